//! Hostile addresses, names, redirects and bodies.

mod echoing_redirect;
mod hidden;
mod hops;
mod memory;
mod own;
mod secrets;
mod site;
mod tls;

use crate::{Egress, EgressSettings, NoSecrets, PerHost, Resolve, SecretSource};
use futures::future::BoxFuture;
use portcullis_core::SystemClock;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// A pace that no test reaches by accident.
pub(crate) const UNHURRIED: PerHost = PerHost { per_minute: 1_000_000, burst: 1_000_000 };

/// A resolver for tests that name addresses only.
struct NoNames;

impl Resolve for NoNames {
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        panic!("`{host}` was looked up");
    }
}

/// Returns a client that may reach `places`.
fn reaching(places: &[String], secrets: Arc<dyn SecretSource>) -> Egress {
    let settings = EgressSettings {
        exceptions: places.iter().map(|place| place.parse().unwrap()).collect(),
        per_host: UNHURRIED,
        ..EgressSettings::default()
    };
    Egress::new(settings, Arc::new(NoNames), secrets, Arc::new(SystemClock)).unwrap()
}

fn client(places: &[String]) -> Egress {
    reaching(places, Arc::new(NoSecrets))
}

/// Runs the test `name` again in a process of its own, behind `command`. Returns whether that could be tried.
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
