//! A web page on this machine, for a browser test.

use anyhow::Result;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

pub(super) const TITLE: &str = "Behind the gate";
const HEADING: &str = "The portcullis is up";
/// Timeout of a browser's request.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// The page. It is served until the process ends.
pub(super) struct LocalPage {
    pub(super) address: SocketAddr,
}

impl LocalPage {
    pub(super) fn open() -> Result<LocalPage> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for visitor in listener.incoming().flatten() {
                // A browser that disconnects is no error.
                let _ = answer(visitor);
            }
        });
        Ok(LocalPage { address })
    }
}

fn answer(mut visitor: std::net::TcpStream) -> Result<()> {
    visitor.set_read_timeout(Some(ASKED_WITHIN))?;
    let _ = visitor.read(&mut [0; 8 * 1024])?;
    let page = format!("<!doctype html><title>{TITLE}</title><h1>{HEADING}</h1>");
    let length = page.len();
    write!(
        visitor,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}"
    )?;
    Ok(())
}
