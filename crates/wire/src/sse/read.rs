//! Incremental parser for server-sent events.

use crate::frame::BYTE_ORDER_MARK;
use bytes::{Buf, BytesMut};

/// One event. Without data it may still carry an id or a retry delay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: Vec<u8>,
    pub retry_ms: Option<u64>,
}

/// An event or one of its lines exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEventTooLong {
    pub bytes_max: usize,
}

impl std::fmt::Display for SseEventTooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an event has more than {} bytes", self.bytes_max)
    }
}

/// Parses events from chunks. Never buffers more than one event of the maximum length and one chunk.
#[derive(Debug)]
pub struct SseReader {
    buffer: BytesMut,
    /// How far the buffer has been searched for a line end.
    searched: usize,
    /// The last line ended with `\r`, so a following `\n` belongs to it.
    after_return: bool,
    event: SseEvent,
    begun: bool,
    data_lines: usize,
    bytes_max: usize,
    /// Nothing was read yet, so a byte order mark may follow.
    is_fresh: bool,
}

impl SseReader {
    pub fn new(bytes_max: usize) -> SseReader {
        SseReader {
            buffer: BytesMut::new(),
            searched: 0,
            after_return: false,
            event: SseEvent::default(),
            begun: false,
            data_lines: 0,
            bytes_max,
            is_fresh: true,
        }
    }

    /// Appends a chunk.
    pub fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next complete event; `None` if more data is needed.
    pub fn event(&mut self) -> Result<Option<SseEvent>, SseEventTooLong> {
        let too_long = SseEventTooLong { bytes_max: self.bytes_max };
        loop {
            if self.after_return && self.buffer.first() == Some(&b'\n') {
                self.buffer.advance(1);
                self.searched = self.searched.saturating_sub(1);
            }
            let ends = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let Some(at) = self.buffer[self.searched..].iter().position(ends) else {
                self.searched = self.buffer.len();
                self.after_return &= self.buffer.is_empty();
                let held = self.event.data.len() + self.buffer.len();
                return if held > self.bytes_max { Err(too_long) } else { Ok(None) };
            };
            let at = self.searched + at;
            self.searched = 0;
            let mut line = self.buffer.split_to(at);
            if std::mem::take(&mut self.is_fresh) && line.starts_with(BYTE_ORDER_MARK) {
                line.advance(BYTE_ORDER_MARK.len());
            }
            self.after_return = self.buffer.first() == Some(&b'\r');
            self.buffer.advance(1);
            if line.is_empty() {
                if std::mem::take(&mut self.begun) {
                    self.data_lines = 0;
                    return Ok(Some(std::mem::take(&mut self.event)));
                }
                continue;
            }
            self.line(&line);
            if self.event.data.len() > self.bytes_max {
                return Err(too_long);
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => {
                if self.data_lines > 0 {
                    self.event.data.push(b'\n');
                }
                self.data_lines += 1;
                self.event.data.extend_from_slice(value);
            }
            b"event" => self.event.name = Some(text()),
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            b"retry" => self.event.retry_ms = text().parse().ok(),
            // A comment or an unknown field.
            _ => return,
        }
        self.begun = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], size: usize, bytes_max: usize) -> Result<Vec<SseEvent>, SseEventTooLong> {
        let (mut reader, mut events) = (SseReader::new(bytes_max), Vec::new());
        for piece in bytes.chunks(size) {
            reader.feed(piece);
            while let Some(event) = reader.event()? {
                events.push(event);
            }
        }
        Ok(events)
    }

    #[test]
    fn how_events_arrive_does_not_matter() {
        let input = b": hello\n\nid: 7\nretry: 500\ndata: \n\nevent: message\r\ndata: {\"a\":\r\ndata:1}\r\n\r\ndata: x\r\rnonsense\n\ndata: lost";
        let primed = SseEvent { id: Some("7".into()), retry_ms: Some(500), ..SseEvent::default() };
        let named =
            SseEvent { name: Some("message".into()), data: b"{\"a\":\n1}".to_vec(), ..SseEvent::default() };
        let plain = SseEvent { data: b"x".to_vec(), ..SseEvent::default() };
        for size in 1..=input.len() {
            let events = read(input, size, 100).unwrap();
            assert_eq!(events, [primed.clone(), named.clone(), plain.clone()], "in pieces of {size}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_event_and_of_no_other() {
        for (input, expected) in [
            ("\u{feff}data: x\n\ndata: y\n\n", vec!["x", "y"]),
            ("data: x\n\n\u{feff}data: y\n\n", vec!["x"]),
            ("\u{feff}\u{feff}data: x\n\ndata: y\n\n", vec!["y"]),
            ("\u{feff}\ndata: x\n\n", vec!["x"]),
        ] {
            for size in 1..=input.len() {
                let events = read(input.as_bytes(), size, 100).unwrap();
                let data: Vec<_> = events.iter().map(|event| str::from_utf8(&event.data).unwrap()).collect();
                assert_eq!(data, expected, "{input:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn an_event_has_a_bound() {
        let within = [b"data: ".as_slice(), &[b'x'; 90], b"\n\n"].concat();
        assert_eq!(read(&within, 7, 100).unwrap().len(), 1);
        for long in [
            [b"data: ".as_slice(), &[b'x'; 200], b"\n\n"].concat(),
            b"data: xxxxxxxxxxxxxxxxxxxx\n".repeat(10),
            vec![b'x'; 200],
        ] {
            assert_eq!(read(&long, 7, 100), Err(SseEventTooLong { bytes_max: 100 }));
        }
    }
}
