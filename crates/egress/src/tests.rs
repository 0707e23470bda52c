//! Hostile addresses, names, redirects and bodies.

mod configured_client;
mod echoing_redirect;
mod memory;
mod redirects;
mod secret_url;
mod secrets;
mod site;
mod tls;

use crate::{EgressClient, EgressSettings, HostRateLimit, NoSecrets, Resolve, SecretSource};
use futures::future::BoxFuture;
use portcullis_core::SystemClock;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// A rate limit that no test reaches by accident.
pub(crate) const UNHURRIED: HostRateLimit = HostRateLimit { per_minute: 1_000_000, burst: 1_000_000 };

/// A resolver for tests that use IP addresses only.
struct NoNames;

impl Resolve for NoNames {
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        panic!("`{host}` was looked up");
    }
}

/// Returns a client with `places` on its allowlist.
fn reaching(places: &[String], secrets: Arc<dyn SecretSource>) -> EgressClient {
    let settings = EgressSettings {
        exceptions: places.iter().map(|place| place.parse().unwrap()).collect(),
        per_host: UNHURRIED,
        ..EgressSettings::default()
    };
    EgressClient::new(settings, Arc::new(NoNames), secrets, Arc::new(SystemClock)).unwrap()
}

fn client(places: &[String]) -> EgressClient {
    reaching(places, Arc::new(NoSecrets))
}

/// Runs the test `name` again in a child process, behind `command`. Returns whether it passed, if it could start.
fn again(name: &str, command: &[&str], variable: &str) -> Option<bool> {
    let program = std::env::current_exe().unwrap();
    let status = std::process::Command::new(command[0])
        .args(&command[1..])
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(variable, "1")
        .status();
    status.ok().map(|status| status.success())
}
