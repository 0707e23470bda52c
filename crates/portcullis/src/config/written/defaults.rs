//! What holds where nothing is written.

use super::*;

impl Default for Admin {
    fn default() -> Self {
        Admin { enabled: true, allow_remote: false }
    }
}

impl Default for Http {
    fn default() -> Self {
        Http { listen: "127.0.0.1:3000".to_owned(), allowed_hosts: Vec::new(), allowed_origins: Vec::new() }
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        RateLimit { requests_per_second: 10, burst: 20 }
    }
}

impl Default for Logging {
    fn default() -> Self {
        Logging { level: LevelName::Info, format: FormatName::Text }
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Workspace { path: "workspace".to_owned(), enabled: true }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory { enabled: true }
    }
}

impl Default for Vault {
    fn default() -> Self {
        Vault {
            path: "vault".to_owned(),
            git_repo: String::new(),
            auto_sync: false,
            git_token: String::new(),
            // What most servers ignore, because the token says it all.
            git_user: "git".to_owned(),
            git_author: "Portcullis <portcullis@localhost>".to_owned(),
            pull_after_secs: 60,
            git_timeout_secs: 60,
        }
    }
}

impl Default for Prompts {
    fn default() -> Self {
        Prompts { path: "prompts".to_owned() }
    }
}

impl Default for Egress {
    fn default() -> Self {
        Egress { allow: Vec::new(), per_host_per_minute: 60, per_host_burst: 20, ca_file: String::new() }
    }
}

impl Default for Github {
    fn default() -> Self {
        Github {
            token: "secret:GITHUB_TOKEN".to_owned(),
            base_url: "https://api.github.com".to_owned(),
            repositories: Vec::new(),
        }
    }
}

impl Default for Scripts {
    fn default() -> Self {
        Scripts {
            enabled: true,
            path: "scripts".to_owned(),
            timeout_ms: 2_000,
            memory_mb: 128,
            sandbox: SandboxName::Required,
            // One runs while the next is ready.
            warm: 2,
            exec: Grants::default(),
            allow: Vec::new(),
        }
    }
}

impl Default for Stdio {
    fn default() -> Self {
        Stdio {
            client: "local".to_owned(),
            allow: anything(),
            deny: Vec::new(),
            effects: all_effects(),
            tools: ViewName::All,
        }
    }
}

impl Default for Redaction {
    fn default() -> Self {
        Redaction { token_shapes: true }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
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
            // Longer than the 60 s after which most proxies let go of an idle connection themselves.
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

impl Default for Approvals {
    fn default() -> Self {
        Approvals {
            // Common clients give up on a call after a minute.
            wait_secs: 50,
            pending_secs: 24 * 60 * 60,
            approved_secs: 60 * 60,
        }
    }
}

impl Default for Time {
    fn default() -> Self {
        Time { timezone: "system".to_owned() }
    }
}

impl Default for McpServer {
    fn default() -> Self {
        McpServer {
            command: None,
            args: Vec::new(),
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            oauth: None,
            env: BTreeMap::new(),
            enabled: true,
            timeout_ms: 30_000,
            prefix: None,
            tools: McpTools::default(),
            rename: BTreeMap::new(),
            effect: None,
            effects: BTreeMap::new(),
            labels: BTreeMap::new(),
            trust: TrustName::Ask,
            start: StartName::Now,
            idle_stop: None,
            per_client: false,
            // A process each; one machine has as many people and agents.
            clients_max: 32,
            relist_secs: 5 * 60,
            decision: DecisionName::Allow,
        }
    }
}

impl Default for McpTools {
    fn default() -> Self {
        McpTools { allow: anything(), deny: Vec::new() }
    }
}
