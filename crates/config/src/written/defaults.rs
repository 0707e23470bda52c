//! Default values.

use super::*;

impl Default for WrittenAdmin {
    fn default() -> Self {
        WrittenAdmin { enabled: true, allow_remote: false }
    }
}

impl Default for WrittenHttp {
    fn default() -> Self {
        WrittenHttp {
            listen: "127.0.0.1:3000".to_owned(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
        }
    }
}

impl Default for WrittenRateLimit {
    fn default() -> Self {
        WrittenRateLimit { requests_per_second: 10, burst: 20, wait_ms: 1_000 }
    }
}

impl Default for WrittenLogging {
    fn default() -> Self {
        WrittenLogging { level: LevelName::Info, format: FormatName::Text }
    }
}

impl Default for WrittenWorkspace {
    fn default() -> Self {
        WrittenWorkspace { path: "workspace".to_owned(), enabled: true }
    }
}

impl Default for WrittenEgress {
    fn default() -> Self {
        WrittenEgress {
            allow: Vec::new(),
            per_host_per_minute: 60,
            per_host_burst: 20,
            ca_file: String::new(),
        }
    }
}

impl Default for WrittenStdio {
    fn default() -> Self {
        WrittenStdio {
            client: "local".to_owned(),
            allow: anything(),
            deny: Vec::new(),
            effects: all_effects(),
            tools: ViewName::All,
        }
    }
}

impl Default for WrittenRedaction {
    fn default() -> Self {
        WrittenRedaction { token_shapes: true }
    }
}

impl Default for WrittenLimits {
    fn default() -> Self {
        WrittenLimits {
            // Four times the largest argument that a tool takes, with room for its envelope.
            line_bytes_max: 4 * 1024 * 1024,
            body_bytes_max: 4 * 1024 * 1024,
            // The limit on open files is raised to this and what the hub itself needs.
            connections_max: 4_000,
            // No single address can take all connections.
            connections_per_source_max: 3_000,
            headers_secs: 10,
            body_secs: 12,
            write_secs: 30,
            // Longer than the 60 s idle timeout of most proxies.
            keep_alive_secs: 75,
            token_failures_max: 10,
            token_lockout_secs: 15 * 60,
            call_secs_max: 5 * 60,
            result_bytes_max: 10 * 1024 * 1024,
            in_flight_max: 256,
            sessions_max: 10_000,
            // No single client can take all sessions.
            sessions_per_client_max: 2_000,
            session_idle_secs: 30 * 60,
            shutdown_grace_secs: 10,
        }
    }
}

impl Default for WrittenNotify {
    fn default() -> Self {
        WrittenNotify { url: String::new(), format: NotifyFormatName::Auto, desktop: true }
    }
}

impl Default for WrittenApprovals {
    fn default() -> Self {
        WrittenApprovals {
            // Common clients give up on a call after a minute.
            wait_secs: 50,
            pending_secs: 24 * 60 * 60,
            approved_secs: 60 * 60,
        }
    }
}

impl Default for WrittenTime {
    fn default() -> Self {
        WrittenTime { timezone: "system".to_owned() }
    }
}

impl Default for WrittenExperimental {
    fn default() -> Self {
        WrittenExperimental { mcp_timeout: 30_000 }
    }
}

impl Default for WrittenMcpServer {
    fn default() -> Self {
        WrittenMcpServer {
            command: None,
            args: Vec::new(),
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            oauth: None,
            env: BTreeMap::new(),
            enabled: true,
            timeout_ms: None,
            start_timeout_ms: 30_000,
            prefix: None,
            tools: WrittenToolFilter::default(),
            rename: BTreeMap::new(),
            effect: None,
            effects: BTreeMap::new(),
            labels: BTreeMap::new(),
            trust: TrustName::Ask,
            start: StartName::Now,
            idle_stop: None,
            per_client: false,
            // One process each; enough for the clients of one machine.
            clients_max: 32,
            relist_secs: 5 * 60,
            decision: None,
        }
    }
}

impl Default for WrittenToolFilter {
    fn default() -> Self {
        WrittenToolFilter { allow: anything(), deny: Vec::new() }
    }
}
