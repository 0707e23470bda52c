//! Questions whose answers are not shown.

use anyhow::{Context, Result, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use zeroize::Zeroizing;

const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const DELETE_LINE: u8 = 0x15;
const DELETE: u8 = 0x7f;

/// Asks at the terminal, wherever standard input comes from. The answer is wiped from memory when dropped.
pub(crate) fn ask(question: &str, bytes_max: usize) -> Result<Zeroizing<String>> {
    let mut terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .context("there is no terminal to ask at")?;
    write!(terminal, "{question}: ")?;
    let answer = {
        let quiet = Quiet::new(&terminal)?;
        read_line(quiet.terminal, bytes_max)
    };
    let _ = writeln!(terminal);
    answer
}

/// Keeps a terminal from showing what is typed, and from cutting long lines, until dropped.
struct Quiet<'a> {
    terminal: &'a File,
    before: Termios,
}

impl Quiet<'_> {
    fn new(terminal: &File) -> io::Result<Quiet<'_>> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        // Not by lines, which the kernel cuts at 4,095 bytes; and without signals, which would leave it as it is now.
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Quiet { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // Not what came after the line: that is for whoever reads the terminal next.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

fn read_line(mut from: impl Read, bytes_max: usize) -> Result<Zeroizing<String>> {
    // Never grows: a buffer that moves leaves copies behind.
    let mut line = Zeroizing::new(Vec::with_capacity(bytes_max));
    let mut byte = Zeroizing::new([0]);
    loop {
        if from.read(&mut *byte)? == 0 {
            bail!("the terminal has gone away");
        }
        match byte[0] {
            b'\r' | b'\n' => break,
            INTERRUPT => bail!("cancelled"),
            END if line.is_empty() => bail!("cancelled"),
            END => break,
            BACKSPACE | DELETE => delete_last(&mut line),
            DELETE_LINE => line.clear(),
            b'\t' => line.push(b'\t'),
            // The arrow keys, for instance. Dropped in silence they would leave a value that nobody meant.
            0..0x20 => bail!("a key was pressed that does not write anything; try again"),
            _ if line.len() == bytes_max => bail!("it is longer than {bytes_max} bytes"),
            other => line.push(other),
        }
    }
    let text = std::str::from_utf8(&line).context("it is not text")?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Takes one character away, which may be several bytes.
fn delete_last(line: &mut Vec<u8>) {
    while let Some(byte) = line.pop() {
        if byte & 0xc0 != 0x80 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_was_meant() {
        let cases: [(&[u8], Option<&str>); 10] = [
            (b"hunter22\nrest", Some("hunter22")),
            (b"hunter22\r", Some("hunter22")),
            ("pÄ\x7f\x7fhunter\n".as_bytes(), Some("hunter")),
            (b"wrong\x15right\n", Some("right")),
            (b"\x7f\x7fx\n", Some("x")),
            (b"hunter22\x04", Some("hunter22")),
            (b"\x04", None),
            (b"hunter\x03", None),
            (b"hunter\x1b[D22\n", None),
            (b"\xff\xfe\n", None),
        ];
        for (typed, expected) in cases {
            let line = read_line(typed, 16).ok();
            assert_eq!(line.as_ref().map(|line| line.as_str()), expected, "{typed:?}");
        }
        assert!(read_line(&b"12345678901234567\n"[..], 16).is_err());
        assert!(read_line(&b"cut off"[..], 16).is_err());
    }
}
