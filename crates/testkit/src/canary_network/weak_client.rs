//! Clients with the usual SSRF mistakes, to show that the same test notices.

use super::canaries::ScriptedResolver;
use portcullis_egress::is_public;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::{Host, Url};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SsrfMistake {
    /// Knows loopback, private and link-local IPv4, and ::1.
    FewRanges,
    /// Checks one DNS answer and connects by another (TOCTOU).
    ResolvesAgain,
    /// Checks only the first address.
    LooksAtOneAddress,
    /// Checks the first URL, but no redirect.
    FollowsBlindly,
}

pub struct WeakClient {
    pub mistake: SsrfMistake,
    pub names: Arc<ScriptedResolver>,
}

impl WeakClient {
    pub async fn fetch(&self, url: &str) -> Option<u16> {
        let mut url = Url::parse(url).ok().filter(|url| url.scheme() == "http")?;
        for hop in 0..6 {
            let addresses = self.addresses(&url)?;
            let checks = hop == 0 || self.mistake != SsrfMistake::FollowsBlindly;
            if checks && !self.passes(&addresses) {
                return None;
            }
            let addresses = match self.mistake {
                SsrfMistake::ResolvesAgain => self.addresses(&url)?,
                _ => addresses,
            };
            let port = url.port_or_known_default()?;
            // The last address: the first is the checked one.
            let (status, location) = ask(SocketAddr::new(*addresses.last()?, port), &url).await?;
            match location.filter(|_| [301, 302, 303, 307, 308].contains(&status)) {
                Some(location) => url = url.join(&location).ok().filter(|url| url.scheme() == "http")?,
                None => return Some(status),
            }
        }
        None
    }

    fn addresses(&self, url: &Url) -> Option<Vec<IpAddr>> {
        match url.host()? {
            Host::Ipv4(address) => Some(vec![address.into()]),
            Host::Ipv6(address) => Some(vec![address.into()]),
            Host::Domain(name) => self.names.answer(name),
        }
    }

    fn passes(&self, addresses: &[IpAddr]) -> bool {
        match self.mistake {
            SsrfMistake::FewRanges => addresses.iter().all(|address| match address {
                IpAddr::V4(address) => {
                    !address.is_private() && !address.is_loopback() && !address.is_link_local()
                }
                IpAddr::V6(address) => !address.is_loopback(),
            }),
            SsrfMistake::LooksAtOneAddress => addresses.first().is_some_and(|address| is_public(*address)),
            SsrfMistake::ResolvesAgain | SsrfMistake::FollowsBlindly => {
                addresses.iter().all(|address| is_public(*address))
            }
        }
    }
}

async fn ask(address: SocketAddr, url: &Url) -> Option<(u16, Option<String>)> {
    let asking = async {
        #[expect(clippy::disallowed_methods, reason = "the weak variant of a test, to itself")]
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", url.path());
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut reply = Vec::new();
        stream.take(64 * 1024).read_to_end(&mut reply).await.ok()?;
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let status = reply.split(' ').nth(1)?.parse().ok()?;
        let location = reply.lines().find_map(|line| line.strip_prefix("location: ").map(str::to_owned));
        Some((status, location))
    };
    tokio::time::timeout(Duration::from_secs(2), asking).await.ok()?
}
