//! Local stand-ins for the web page and GitHub of the examples: the selftest needs no network.

use crate::config::Config;
use crate::database;
use crate::home::Home;
use crate::secret_store;
use anyhow::{Context, Result};
use portcullis_core::{Secret, SystemClock};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

const PAGE_IN_EXAMPLES: &str = "https://example.com/";
const PAGE: &str = "<title>Example</title><p>A page for the selftest.";
const ISSUE: &str =
    r#"{"number": 1, "title": "An issue", "state": "open", "html_url": "https://github.example/1"}"#;
pub(super) const CALENDAR: &str = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nSUMMARY:Every day\n\
                                   DTSTART;VALUE=DATE:20240101\nRRULE:FREQ=DAILY\nEND:VEVENT\nEND:VCALENDAR\n";
const TOKEN: &str = "a token for the selftest";
/// Requests of the selftest are small.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// A web page and a minimal GitHub API.
pub(super) struct SelftestSite {
    address: SocketAddr,
}

impl SelftestSite {
    /// Serves until the process exits.
    pub(super) fn open() -> Result<SelftestSite> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port for the selftest's page")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for mut visitor in listener.incoming().flatten() {
                // A closed connection does not matter.
                let _ = request(&mut visitor).and_then(|request| visitor.write_all(&answer(&request)));
            }
        });
        Ok(SelftestSite { address })
    }

    /// Returns a configuration with all tool families enabled, no approvals, no rate limits.
    pub(super) fn config(&self, key: &Path) -> String {
        let address = self.address;
        let key = toml::Value::String(key.display().to_string());
        format!(
            r#"
            rate_limit = {{ requests_per_second = 1000000, burst = 1000000 }}
            egress = {{ allow = ["{address}"] }}
            vault = {{}}
            web = {{}}
            github = {{ base_url = "http://{address}" }}
            calendars = [{{ name = "Example", file = "example.ics" }}]
            secrets = {{ key = "file", key_file = {key} }}
            policy = [{{ decision = "allow" }}]
            "#
        )
    }

    /// Stores a token for the minimal GitHub API.
    pub(super) fn keep_token(&self, home: &Home, config: &Config) -> Result<()> {
        let store = secret_store::open(
            home,
            config,
            &database::open(home, config)?,
            Arc::new(SystemClock),
            secret_store::unasked,
        )?;
        let grant = self.address.ip().to_string().parse()?;
        store.set("GITHUB_TOKEN", &Secret::new(TOKEN.to_owned().into()), Some(vec![grant]))?;
        Ok(())
    }

    /// Returns an example's arguments with the local page instead of the public one.
    pub(super) fn instead_of_the_web(&self, arguments: &Value) -> Value {
        let mut arguments = arguments.clone();
        for value in arguments.as_object_mut().into_iter().flat_map(|object| object.values_mut()) {
            if *value == PAGE_IN_EXAMPLES {
                *value = json!(format!("http://{}/", self.address));
            }
        }
        arguments
    }
}

/// Reads a request with its body.
fn request(visitor: &mut TcpStream) -> std::io::Result<String> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = visitor.read(&mut piece)?;
        request.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&request);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let is_whole = text.contains("\r\n\r\n") && body.len() >= length.unwrap_or(0);
        if is_whole || count == 0 || request.len() > REQUEST_BYTES_MAX {
            return Ok(text.into_owned());
        }
    }
}

fn answer(request: &str) -> Vec<u8> {
    let (status, kind, body) = match request {
        request if request.starts_with("GET /repos/") => ("200 OK", "application/json", format!("[{ISSUE}]")),
        request if request.starts_with("POST /repos/") => {
            ("201 Created", "application/json", ISSUE.to_owned())
        }
        _ => ("200 OK", "text/html", PAGE.to_owned()),
    };
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}
