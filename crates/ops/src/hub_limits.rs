//! The bounds of a hub's server side.

use crate::config::Config;
use portcullis_server::HubLimits;

/// File descriptors of the hub itself, besides one per connection.
const OWN_FILES: u64 = 256;

/// Raises the open file limit (RLIMIT_NOFILE) for `limits.connections_max`. The usual 1,024 is for programs that use `select`.
pub fn raise_open_files(connections_max: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = connections_max as u64 + OWN_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < wanted) else { return };
    let possible = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum }).is_err() || possible < wanted
    {
        tracing::warn!(target: "hub", current, wanted, "open file limit too low for `limits.connections_max`; accepting fewer connections");
    }
}

/// Reserves file descriptors for the hub: with a low limit, connections must not use them all. One source gets at most
/// three quarters of the rest.
fn within_open_files(limits: HubLimits, open_files: Option<u64>) -> HubLimits {
    let Some(open_files) = open_files else { return limits };
    let connections = open_files - OWN_FILES.min(open_files / 2);
    let connections = usize::try_from(connections).unwrap_or(usize::MAX).max(1);
    if limits.connections_max <= connections {
        return limits;
    }
    let per_source = limits.connections_per_source_max.min((connections * 3 / 4).max(1));
    HubLimits { connections_max: connections, connections_per_source_max: per_source, ..limits }
}

/// Returns the bounds of a hub, within what this process may open.
pub fn hub_limits(config: &Config) -> HubLimits {
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    within_open_files(wanted_limits(config), open_files)
}

fn wanted_limits(config: &Config) -> HubLimits {
    let limits = &config.limits;
    HubLimits {
        line_bytes_max: limits.line_bytes_max,
        body_bytes_max: limits.body_bytes_max,
        sessions_max: limits.sessions_max,
        sessions_per_client_max: limits.sessions_per_client_max,
        session_idle: limits.session_idle,
        in_flight_max: limits.in_flight_max,
        connections_max: limits.connections_max,
        connections_per_source_max: limits.connections_per_source_max,
        headers_within: limits.headers_within,
        body_within: limits.body_within,
        write_within: limits.write_within,
        keep_alive: limits.keep_alive,
        token_failures_max: limits.token_failures_max,
        token_lockout: limits.token_lockout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether there are files left for the hub itself when all connections are open.
    fn leaves_files(limits: &HubLimits, open_files: u64) -> bool {
        let left = open_files.saturating_sub(limits.connections_max as u64);
        left >= OWN_FILES.min(open_files / 2)
    }

    #[test]
    fn connections_leave_files_for_the_hub() {
        for open_files in [1, 2, 64, 256, 1_024, 4_096, 4_256, 1_000_000] {
            let clamped = within_open_files(HubLimits::default(), Some(open_files));
            assert!(open_files < 2 || leaves_files(&clamped, open_files), "{open_files}: {clamped:?}");
            assert!(clamped.connections_max >= 1 && clamped.connections_per_source_max >= 1);
        }
        let few = within_open_files(HubLimits::default(), Some(256));
        assert_eq!((few.connections_max, few.connections_per_source_max), (128, 96));
        let enough = within_open_files(HubLimits::default(), Some(4_256));
        assert_eq!((enough.connections_max, enough.connections_per_source_max), (4_000, 3_000));
        // The check can fail: what the configuration says is too many where few files can be open.
        assert!(!leaves_files(&within_open_files(HubLimits::default(), None), 256));
    }
}
