//! Newline-delimited frames, with a bound on what one line may cost.

use crate::room::{LARGE_BYTES, Room};
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is read at once, and how much of a line that is too long is kept in memory.
const CHUNK_BYTES: usize = 64 * 1024;
/// A line of more than this is read in parts, so that whoever reads can leave the processor to others in between.
pub const LONG_BYTES: usize = 2 * 1024 * 1024;
/// How much of a long line, or of one that is too long, is read before the reader is told.
pub const PART_BYTES: usize = 32 * 1024;

/// How much of either end of a line that is too long can be looked at.
pub const EDGE_BYTES: usize = 256;

/// What some programs put before all that they write.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Appends a message that is read by lines, without the end of its line. What is passed on is as others wrote it, who may have
/// broken lines between any two words of it; and whoever reads would take what stands on such a line for a message of ours.
/// Within strings JSON has no such bytes, so a blank means the same.
pub fn append_unbroken(to: &mut Vec<u8>, message: &[u8]) {
    let mut at = to.len();
    to.extend_from_slice(message);
    while let Some(found) = memchr2(b'\n', b'\r', &to[at..]) {
        at += found;
        to[at] = b' ';
    }
}

/// Appends a message as a line.
pub fn append_line(to: &mut Vec<u8>, message: &[u8]) {
    append_unbroken(to, message);
    to.push(b'\n');
}

/// One line, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The line without its end.
    Text(Bytes),
    /// The line was longer than allowed. It was read to its end and thrown away, but for its edges.
    TooLong {
        bytes: u64,
    },
    /// The line is long, or longer than allowed, and does not end yet. So much of it was read; the next call goes on with it.
    Longer {
        bytes: u64,
    },
    /// A line with nothing in it.
    Blank,
    End,
}

/// Reads lines without ever holding more than one line of the allowed length.
#[derive(Debug)]
pub struct LineReader<R> {
    from: R,
    buffer: BytesMut,
    /// The line, instead, once it is large.
    large: Option<Room>,
    /// How far the line has been searched for its end.
    searched: usize,
    /// How much of the line the reader was told about.
    told: usize,
    line_bytes_max: usize,
    /// How much was thrown away of a line that has not ended.
    skipped: Option<u64>,
    edges: Edges,
    /// Nothing was read yet, so that a byte order mark may come.
    is_fresh: bool,
}

/// How a line begins and ends that was too long to be kept. Where it has not ended yet, the tail is as far as it was read.
#[derive(Debug, Default)]
pub struct Edges {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
}

impl Edges {
    fn of(line: &[u8]) -> Edges {
        let mut edges = Edges::default();
        edges.add(line);
        edges
    }

    /// Goes on with the line.
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
            told: 0,
            line_bytes_max,
            skipped: None,
            edges: Edges::default(),
            is_fresh: true,
        }
    }

    /// Returns the edges of the last line that was too long, or is already.
    pub fn edges(&self) -> &Edges {
        &self.edges
    }

    /// Returns the next line. Cancel-safe: what has been read stays in the buffer.
    pub async fn next(&mut self) -> std::io::Result<Line> {
        while self.is_fresh {
            self.begin().await?;
        }
        loop {
            if self.skipped.is_some() {
                return self.skip_line().await;
            }
            if let Some(at) = self.find_end() {
                let line = self.take_line(at);
                return Ok(self.judged(line));
            }
            if self.is_too_long() {
                self.edges = Edges::of(self.so_far());
                self.skipped = Some(self.so_far().len() as u64);
                (self.buffer, self.large) = (BytesMut::with_capacity(PART_BYTES), None);
                (self.searched, self.told) = (0, 0);
                continue;
            }
            let bytes = self.so_far().len();
            if bytes >= LONG_BYTES.max(self.told + PART_BYTES) {
                self.told = bytes;
                return Ok(Line::Longer { bytes: bytes as u64 });
            }
            if self.read_more().await? == 0 {
                // A last line without an end is a line all the same.
                let rest = match self.large.take() {
                    Some(room) => Bytes::from_owner(room),
                    None => self.buffer.split().freeze(),
                };
                (self.searched, self.told) = (0, 0);
                return Ok(match self.judged(rest) {
                    Line::Blank => Line::End,
                    line => line,
                });
            }
        }
    }

    /// Leaves out the mark that all may begin with, as soon as there is enough to tell.
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

    /// Returns what there is of the line, and what may follow it.
    fn so_far(&self) -> &[u8] {
        self.large.as_ref().map_or(&self.buffer[..], AsRef::as_ref)
    }

    fn judged(&mut self, line: Bytes) -> Line {
        if line.len() > self.line_bytes_max {
            self.edges = Edges::of(&line);
            Line::TooLong { bytes: line.len() as u64 }
        } else if line.iter().all(u8::is_ascii_whitespace) {
            Line::Blank
        } else {
            Line::Text(line)
        }
    }

    /// Returns the line whose end is there, without it, and keeps what follows.
    fn take_line(&mut self, at: usize) -> Bytes {
        (self.searched, self.told) = (0, 0);
        let half = at.checked_sub(1).filter(|before| self.so_far().get(*before) == Some(&b'\r'));
        let end = half.unwrap_or(at);
        if let Some(mut room) = self.large.take() {
            self.buffer = BytesMut::from(&room.as_ref()[at + 1..]);
            room.truncate(end);
            return Bytes::from_owner(room);
        }
        let mut line = self.buffer.split_to(at + 1);
        if line.len() > CHUNK_BYTES {
            // The room of a long line goes with it.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        line.truncate(end);
        line.freeze()
    }

    /// Returns whether the line is too long, whatever comes. A `\r` may be half of its end, and does not count then.
    fn is_too_long(&self) -> bool {
        let end_bytes = usize::from(self.so_far().last() == Some(&b'\r'));
        self.so_far().len() > self.line_bytes_max + end_bytes
    }

    /// Reads on in a line, and returns how much came.
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

    /// Gives a large line all the room that it may have: memory that is never written costs nothing, and a buffer that
    /// doubles is copied time and again. Where the system has none, it does so all the same.
    fn enlarge(&mut self) {
        let bytes_max = self.line_bytes_max.max(self.buffer.len()) + CHUNK_BYTES;
        if let Some(mut room) = Room::new(bytes_max)
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

    /// Reads on in a line that is too long, keeping nothing of it but its edges.
    async fn skip_line(&mut self) -> std::io::Result<Line> {
        let mut now = 0;
        while now < PART_BYTES as u64 {
            let count = self.from.read_buf(&mut self.buffer).await?;
            let Some(bytes) = self.skipped else { break };
            if count == 0 {
                self.skipped = None;
                return Ok(Line::TooLong { bytes });
            }
            if let Some(at) = line_end(&self.buffer) {
                self.edges.add(&self.buffer[..at]);
                let half = self.edges.tail.pop_if(|last| *last == b'\r');
                let bytes = bytes + at as u64 - u64::from(half.is_some());
                let _ = self.buffer.split_to(at + 1);
                self.skipped = None;
                return Ok(Line::TooLong { bytes });
            }
            self.edges.add(&self.buffer);
            self.skipped = Some(bytes + self.buffer.len() as u64);
            now += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(Line::Longer { bytes: self.skipped.unwrap_or_default() })
    }
}

/// Finds the end of the line. Most pieces of a long line hold none, and `contains` says so many times faster.
fn line_end(bytes: &[u8]) -> Option<usize> {
    if !bytes.contains(&b'\n') {
        return None;
    }
    bytes.iter().position(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], max: usize) -> Vec<Line> {
        let mut reader = LineReader::new(input, max);
        let mut lines = Vec::new();
        loop {
            match reader.next().await.unwrap() {
                Line::Longer { .. } | Line::Blank => {}
                Line::End => {
                    lines.push(Line::End);
                    return lines;
                }
                line => lines.push(line),
            }
        }
    }

    fn text(text: &'static str) -> Line {
        Line::Text(Bytes::from_static(text.as_bytes()))
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
        assert_eq!(lines(b"a\n\r\n  \nb\r\nc", 10).await, [text("a"), text("b"), text("c"), Line::End]);
    }

    #[tokio::test]
    async fn a_byte_order_mark_is_no_part_of_the_first_line_and_of_every_other() {
        let marked = "\u{feff}a\n\u{feff}b\n".as_bytes();
        assert_eq!(lines(marked, 10).await, [text("a"), text("\u{feff}b"), Line::End]);
        assert_eq!(lines("\u{feff}\r\na".as_bytes(), 10).await, [text("a"), Line::End]);
    }

    #[tokio::test]
    async fn a_long_line_is_skipped_and_the_next_one_read() {
        let mut input = vec![b'x'; 200_000];
        input.extend_from_slice(b"\nok\n");
        let expected = [Line::TooLong { bytes: 200_000 }, text("ok"), Line::End];
        assert_eq!(lines(&input, 1_000).await, expected);
    }

    #[tokio::test]
    async fn how_a_line_arrives_does_not_matter() {
        let input = b"xxxx\r\nyyyyy\r\n     \nzzzz\r";
        let expected = [text("xxxx"), Line::TooLong { bytes: 5 }, Line::TooLong { bytes: 5 }];
        for size in 1..input.len() {
            let (mut to, from) = tokio::io::duplex(size);
            let mut reader = LineReader::new(from, 4);
            tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut to, input).await });
            for expected in &expected {
                assert_eq!(reader.next().await.unwrap(), *expected, "in pieces of {size}");
            }
            assert_eq!(reader.next().await.unwrap(), Line::TooLong { bytes: 5 });
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
                assert_eq!(reader.next().await.unwrap(), Line::TooLong { bytes: body.len() as u64 });
                let Edges { head, tail } = reader.edges();
                assert_eq!(*head, body[..EDGE_BYTES], "in pieces of {size}");
                assert_eq!(*tail, body[body.len() - tail.len()..], "in pieces of {size}");
                // Half of the line's end may have had a place there.
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
                Line::Longer { bytes } => parts.push(bytes),
                line => break line,
            }
        };
        let Line::Text(line) = line else { panic!("{line:?}") };
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
                Line::Longer { bytes } => {
                    assert!(bytes >= so_far + PART_BYTES as u64, "asked after {bytes}");
                    (so_far, asked) = (bytes, asked + 1);
                }
                line => break assert_eq!(line, Line::TooLong { bytes: 1 << 28 }),
            }
        }
        assert!(asked > 1_500, "asked {asked} times");
        assert!(reader.buffer.capacity() <= 4 * CHUNK_BYTES, "{}", reader.buffer.capacity());
        let Edges { head, tail } = reader.edges();
        assert!(head.capacity().max(tail.capacity()) <= 4 * EDGE_BYTES);
    }
}
