//! Terminal prompts without echo.

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

/// Prompts at the controlling terminal, even if stdin is redirected. The answer is zeroized on drop.
pub fn ask(question: &str, bytes_max: usize) -> Result<Zeroizing<String>> {
    let mut terminal =
        OpenOptions::new().read(true).write(true).open("/dev/tty").context("no terminal for the prompt")?;
    write!(terminal, "{question}: ")?;
    let answer = {
        let quiet = EchoGuard::new(&terminal)?;
        read_line(quiet.terminal, bytes_max)
    };
    let _ = writeln!(terminal);
    answer
}

/// Disables echo and canonical mode of a terminal until dropped.
struct EchoGuard<'a> {
    terminal: &'a File,
    before: Termios,
}

impl EchoGuard<'_> {
    fn new(terminal: &File) -> io::Result<EchoGuard<'_>> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        // Not canonical: the kernel truncates lines at 4,095 bytes. Without signals, which would leave echo off.
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(EchoGuard { terminal, before })
    }
}

impl Drop for EchoGuard<'_> {
    fn drop(&mut self) {
        // Keeps typed-ahead input for the next reader.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

fn read_line(mut from: impl Read, bytes_max: usize) -> Result<Zeroizing<String>> {
    // Never reallocates: that would leave copies in memory.
    let mut line = Zeroizing::new(Vec::with_capacity(bytes_max));
    let mut byte = Zeroizing::new([0]);
    loop {
        if from.read(&mut *byte)? == 0 {
            bail!("the terminal was closed");
        }
        match byte[0] {
            b'\r' | b'\n' => break,
            INTERRUPT => bail!("cancelled"),
            END if line.is_empty() => bail!("cancelled"),
            END => break,
            BACKSPACE | DELETE => delete_last(&mut line),
            DELETE_LINE => line.clear(),
            b'\t' => line.push(b'\t'),
            // Arrow keys, for example. Ignoring them would produce a wrong value.
            0..0x20 => bail!("unsupported key; try again"),
            _ if line.len() == bytes_max => bail!("too long: the limit is {bytes_max} bytes"),
            other => line.push(other),
        }
    }
    let text = std::str::from_utf8(&line).context("not UTF-8")?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Deletes one character, which may be several bytes.
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
