//! Newline-delimited framing (stdio, sockets) with a bound on the length of a line.

use crate::mapped_buffer::{LARGE_BYTES, MappedBuffer};
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Read size, and the buffer size above which a line takes its buffer with it.
const CHUNK_BYTES: usize = 64 * 1024;
/// A longer line is read in parts, so that the reading task can yield between them.
pub const LONG_BYTES: usize = 2 * 1024 * 1024;
/// How much of a long or oversized line is read before [`LineFrame::Longer`] is returned.
pub const PART_BYTES: usize = 32 * 1024;

/// How many bytes of each end of an oversized line are kept. More than the longest id, the longest method and what else
/// precedes or follows the large member.
pub const EDGE_BYTES: usize = 1024;

/// The UTF-8 byte order mark, which some programs write first.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Appends a message without line breaks. Upstream JSON may hold line breaks between tokens; passed through, the reader
/// would take the rest of such a line for a separate message from the hub. JSON strings cannot hold raw line breaks, so
/// a space is equivalent.
pub fn append_unbroken(to: &mut Vec<u8>, message: &[u8]) {
    let mut at = to.len();
    to.extend_from_slice(message);
    while let Some(found) = memchr2(b'\n', b'\r', &to[at..]) {
        at += found;
        to[at] = b' ';
    }
}

/// Appends a message and a newline.
pub fn append_line(to: &mut Vec<u8>, message: &[u8]) {
    append_unbroken(to, message);
    to.push(b'\n');
}

/// One line, or the reason there is none.
#[derive(Debug, PartialEq, Eq)]
pub enum LineFrame {
    /// The line without its terminator.
    Text(Bytes),
    /// The line exceeded the limit. It was read to its end and dropped, except for its edges.
    TooLong {
        bytes: u64,
    },
    /// The line is long or oversized and has not ended. `bytes` were read so far; the next call continues it.
    Longer {
        bytes: u64,
    },
    /// An empty line.
    Blank,
    End,
}

/// Reads lines and never buffers more than one line of the maximum length.
#[derive(Debug)]
pub struct LineReader<R> {
    from: R,
    buffer: BytesMut,
    /// Replaces `buffer` once the line is large.
    large: Option<MappedBuffer>,
    /// How far the line has been searched for its end.
    searched: usize,
    /// The length of the line at the last [`LineFrame::Longer`].
    reported: usize,
    line_bytes_max: usize,
    /// How many bytes of the current oversized line were dropped.
    skipped: Option<u64>,
    edges: LineEdges,
    /// Nothing was read yet, so a byte order mark may follow.
    is_fresh: bool,
}

/// The first and last bytes of an oversized line. Until the line ends, the tail is the last that was read.
#[derive(Debug, Default)]
pub struct LineEdges {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
}

impl LineEdges {
    fn of(line: &[u8]) -> LineEdges {
        let mut edges = LineEdges::default();
        edges.add(line);
        edges
    }

    /// Extends the line.
    fn add(&mut self, part: &[u8]) {
        let room = EDGE_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        let last = &part[part.len().saturating_sub(EDGE_BYTES)..];
        let too_many = (self.tail.len() + last.len()).saturating_sub(EDGE_BYTES);
        self.tail.drain(..too_many);
        self.tail.extend_from_slice(last);
    }
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(from: R, line_bytes_max: usize) -> LineReader<R> {
        LineReader {
            from,
            buffer: BytesMut::new(),
            large: None,
            searched: 0,
            reported: 0,
            line_bytes_max,
            skipped: None,
            edges: LineEdges::default(),
            is_fresh: true,
        }
    }

    /// Returns the edges of the last oversized line, which may not have ended yet.
    pub fn edges(&self) -> &LineEdges {
        &self.edges
    }

    /// Returns the next line. Cancel-safe: bytes already read stay in the buffer.
    pub async fn next(&mut self) -> std::io::Result<LineFrame> {
        while self.is_fresh {
            self.begin().await?;
        }
        loop {
            if self.skipped.is_some() {
                return self.skip_line().await;
            }
            if let Some(at) = self.find_end() {
                let line = self.take_line(at);
                return Ok(self.classify(line));
            }
            if self.is_too_long() {
                self.edges = LineEdges::of(self.so_far());
                self.skipped = Some(self.so_far().len() as u64);
                (self.buffer, self.large) = (BytesMut::with_capacity(PART_BYTES), None);
                (self.searched, self.reported) = (0, 0);
                continue;
            }
            let bytes = self.so_far().len();
            if bytes >= LONG_BYTES.max(self.reported + PART_BYTES) {
                self.reported = bytes;
                return Ok(LineFrame::Longer { bytes: bytes as u64 });
            }
            if self.read_more().await? == 0 {
                // A last line without a newline still counts.
                let rest = match self.large.take() {
                    Some(room) => Bytes::from_owner(room),
                    None => self.buffer.split().freeze(),
                };
                (self.searched, self.reported) = (0, 0);
                return Ok(match self.classify(rest) {
                    LineFrame::Blank => LineFrame::End,
                    line => line,
                });
            }
        }
    }

    /// Skips a byte order mark once enough bytes are there to recognize it.
    async fn begin(&mut self) -> std::io::Result<()> {
        if self.buffer.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(&self.buffer) {
            self.is_fresh = self.read_more().await? > 0;
            return Ok(());
        }
        self.is_fresh = false;
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.advance(BYTE_ORDER_MARK.len());
        }
        Ok(())
    }

    /// Returns the buffered part of the line, and anything after it.
    fn so_far(&self) -> &[u8] {
        self.large.as_ref().map_or(&self.buffer[..], AsRef::as_ref)
    }

    fn classify(&mut self, line: Bytes) -> LineFrame {
        if line.len() > self.line_bytes_max {
            self.edges = LineEdges::of(&line);
            LineFrame::TooLong { bytes: line.len() as u64 }
        } else if line.iter().all(u8::is_ascii_whitespace) {
            LineFrame::Blank
        } else {
            LineFrame::Text(line)
        }
    }

    /// Splits off the line whose terminator is at `at`, and keeps the rest.
    fn take_line(&mut self, at: usize) -> Bytes {
        (self.searched, self.reported) = (0, 0);
        let half = at.checked_sub(1).filter(|before| self.so_far().get(*before) == Some(&b'\r'));
        let end = half.unwrap_or(at);
        if let Some(mut room) = self.large.take() {
            self.buffer = BytesMut::from(&room.as_ref()[at + 1..]);
            room.truncate(end);
            return Bytes::from_owner(room);
        }
        let mut line = self.buffer.split_to(at + 1);
        if line.len() > CHUNK_BYTES {
            // The long line keeps its allocation; the rest gets a small one.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        line.truncate(end);
        line.freeze()
    }

    /// Returns whether the line already exceeds the limit. A trailing `\r` may belong to its terminator and is not counted.
    fn is_too_long(&self) -> bool {
        let end_bytes = usize::from(self.so_far().last() == Some(&b'\r'));
        self.so_far().len() > self.line_bytes_max + end_bytes
    }

    /// Reads more of the line and returns how many bytes came.
    async fn read_more(&mut self) -> std::io::Result<usize> {
        if self.large.is_none() && self.buffer.len() >= LARGE_BYTES {
            self.enlarge();
        }
        match &mut self.large {
            Some(room) => {
                let part = if room.as_ref().len() < LONG_BYTES { CHUNK_BYTES } else { PART_BYTES };
                let count = self.from.read(room.rest(part)).await?;
                room.filled(count);
                Ok(count)
            }
            None => {
                self.buffer.reserve(CHUNK_BYTES);
                self.from.read_buf(&mut self.buffer).await
            }
        }
    }

    /// Moves a large line to a mapping of the maximum size: untouched pages cost nothing, and a doubling buffer would be
    /// copied repeatedly. If the system refuses the mapping, the buffer keeps growing.
    fn enlarge(&mut self) {
        let bytes_max = self.line_bytes_max.max(self.buffer.len()) + CHUNK_BYTES;
        if let Some(mut room) = MappedBuffer::new(bytes_max)
            && room.add(&self.buffer)
        {
            (self.large, self.buffer) = (Some(room), BytesMut::new());
        }
    }

    fn find_end(&mut self) -> Option<usize> {
        let so_far = self.so_far();
        let at = line_end(&so_far[self.searched..]).map(|offset| self.searched + offset);
        self.searched = so_far.len();
        at
    }

    /// Reads on in an oversized line and keeps only its edges.
    async fn skip_line(&mut self) -> std::io::Result<LineFrame> {
        let mut now = 0;
        while now < PART_BYTES as u64 {
            let count = self.from.read_buf(&mut self.buffer).await?;
            let Some(bytes) = self.skipped else { break };
            if count == 0 {
                self.skipped = None;
                return Ok(LineFrame::TooLong { bytes });
            }
            if let Some(at) = line_end(&self.buffer) {
                self.edges.add(&self.buffer[..at]);
                let half = self.edges.tail.pop_if(|last| *last == b'\r');
                let bytes = bytes + at as u64 - u64::from(half.is_some());
                let _ = self.buffer.split_to(at + 1);
                self.skipped = None;
                return Ok(LineFrame::TooLong { bytes });
            }
            self.edges.add(&self.buffer);
            self.skipped = Some(bytes + self.buffer.len() as u64);
            now += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(LineFrame::Longer { bytes: self.skipped.unwrap_or_default() })
    }
}

/// Finds the newline. Most parts of a long line have none, and `contains` finds that out many times faster.
fn line_end(bytes: &[u8]) -> Option<usize> {
    if !bytes.contains(&b'\n') {
        return None;
    }
    bytes.iter().position(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], max: usize) -> Vec<LineFrame> {
        let mut reader = LineReader::new(input, max);
        let mut lines = Vec::new();
        loop {
            match reader.next().await.unwrap() {
                LineFrame::Longer { .. } | LineFrame::Blank => {}
                LineFrame::End => {
                    lines.push(LineFrame::End);
                    return lines;
                }
                line => lines.push(line),
            }
        }
    }

    fn text(text: &'static str) -> LineFrame {
        LineFrame::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_message_is_one_line_however_it_was_written() {
        let mut lines = b"before\n".to_vec();
        append_line(&mut lines, b"{\n\"a\":\r\n[1,\r2]}\n");
        append_line(&mut lines, b"{}");
        assert_eq!(lines, b"before\n{ \"a\":  [1, 2]} \n{}\n");
    }

    #[tokio::test]
    async fn lines_end_with_either_ending_and_blank_ones_are_skipped() {
        assert_eq!(lines(b"a\n\r\n  \nb\r\nc", 10).await, [text("a"), text("b"), text("c"), LineFrame::End]);
    }

    #[tokio::test]
    async fn a_byte_order_mark_is_no_part_of_the_first_line_and_of_every_other() {
        let marked = "\u{feff}a\n\u{feff}b\n".as_bytes();
        assert_eq!(lines(marked, 10).await, [text("a"), text("\u{feff}b"), LineFrame::End]);
        assert_eq!(lines("\u{feff}\r\na".as_bytes(), 10).await, [text("a"), LineFrame::End]);
    }

    #[tokio::test]
    async fn a_long_line_is_skipped_and_the_next_one_read() {
        let mut input = vec![b'x'; 200_000];
        input.extend_from_slice(b"\nok\n");
        let expected = [LineFrame::TooLong { bytes: 200_000 }, text("ok"), LineFrame::End];
        assert_eq!(lines(&input, 1_000).await, expected);
    }

    #[tokio::test]
    async fn how_a_line_arrives_does_not_matter() {
        let input = b"xxxx\r\nyyyyy\r\n     \nzzzz\r";
        let expected = [text("xxxx"), LineFrame::TooLong { bytes: 5 }, LineFrame::TooLong { bytes: 5 }];
        for size in 1..input.len() {
            let (mut to, from) = tokio::io::duplex(size);
            let mut reader = LineReader::new(from, 4);
            tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut to, input).await });
            for expected in &expected {
                assert_eq!(reader.next().await.unwrap(), *expected, "in pieces of {size}");
            }
            assert_eq!(reader.next().await.unwrap(), LineFrame::TooLong { bytes: 5 });
        }
    }

    #[tokio::test]
    async fn the_edges_of_a_line_that_is_too_long_are_known_however_it_arrives() {
        let body: Vec<u8> = (0..3 * EDGE_BYTES).map(|at| b'a' + (at % 23) as u8).collect();
        for (end, max) in [("\n", 4), ("\r\n", 4), ("", 4), ("\n", 3 * EDGE_BYTES - 1)] {
            let input = [&body[..], end.as_bytes()].concat();
            for size in [1, 2, 7, EDGE_BYTES - 1, EDGE_BYTES, EDGE_BYTES + 1, input.len()] {
                let (mut to, from) = tokio::io::duplex(size);
                let mut reader = LineReader::new(from, max);
                let input = input.clone();
                tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut to, &input).await });
                assert_eq!(reader.next().await.unwrap(), LineFrame::TooLong { bytes: body.len() as u64 });
                let LineEdges { head, tail } = reader.edges();
                assert_eq!(*head, body[..EDGE_BYTES], "in pieces of {size}");
                assert_eq!(*tail, body[body.len() - tail.len()..], "in pieces of {size}");
                // The `\r` of the terminator may have taken one byte.
                assert!((EDGE_BYTES - 1..=EDGE_BYTES).contains(&tail.len()), "{}", tail.len());
            }
        }
    }

    #[tokio::test]
    async fn a_long_line_that_is_allowed_comes_in_parts_and_whole() {
        let mut input = vec![b'x'; LONG_BYTES + 3 * PART_BYTES];
        input.extend_from_slice(b"\nok\n");
        let (mut to, from) = tokio::io::duplex(CHUNK_BYTES);
        tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut to, &input).await });
        let mut reader = LineReader::new(from, 2 * LONG_BYTES);
        let mut parts = Vec::new();
        let line = loop {
            match reader.next().await.unwrap() {
                LineFrame::Longer { bytes } => parts.push(bytes),
                line => break line,
            }
        };
        let LineFrame::Text(line) = line else { panic!("{line:?}") };
        assert_eq!(line.len(), LONG_BYTES + 3 * PART_BYTES);
        assert!((3..=4).contains(&parts.len()) && parts[0] >= LONG_BYTES as u64, "{parts:?}");
        assert!(parts.is_sorted_by(|one, next| one + PART_BYTES as u64 <= *next), "{parts:?}");
        assert_eq!(reader.next().await.unwrap(), text("ok"));
    }

    #[tokio::test]
    async fn a_long_line_costs_no_memory() {
        let endless = tokio::io::repeat(b'x').take(1 << 28);
        let mut reader = LineReader::new(endless, 1_000);
        let (mut so_far, mut asked) = (0, 0);
        loop {
            match reader.next().await.unwrap() {
                LineFrame::Longer { bytes } => {
                    assert!(bytes >= so_far + PART_BYTES as u64, "asked after {bytes}");
                    (so_far, asked) = (bytes, asked + 1);
                }
                line => break assert_eq!(line, LineFrame::TooLong { bytes: 1 << 28 }),
            }
        }
        assert!(asked > 1_500, "asked {asked} times");
        assert!(reader.buffer.capacity() <= 4 * CHUNK_BYTES, "{}", reader.buffer.capacity());
        let LineEdges { head, tail } = reader.edges();
        assert!(head.capacity().max(tail.capacity()) <= 4 * EDGE_BYTES);
    }
}
