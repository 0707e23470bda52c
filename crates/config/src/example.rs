//! The file that `portcullis init` writes: every key with its default, commented out.

use super::schema_with;
use portcullis_core::Origin;
use portcullis_family::{Families, sections};
use portcullis_tools::FAMILIES;
use serde_json::Value;
use std::fmt::Write;

const HEAD: &str = "\
# Portcullis configuration.
#
# Every setting is shown with its default. Remove the `#` in front of it to change it.
# Unknown keys are errors. Check this file with `portcullis doctor`.
";

/// Rules have no default to show. `##` keeps them apart from the settings.
const RULES: &str = r#"## [[policy]]
## tools = ["workspace_*"]        # globs over names
## clients = ["*"]                # globs over clients
## origins = ["client"]           # {origins}
## effects = ["write", "destroy"] # read, create, write, destroy
## reach = "local"                # local or outside; default: both
## labels = ["private"]           # any of private, untrusted, outward
## hours = "22:00-06:00"          # the end is exclusive; in `time.timezone`
## days = ["mon-fri"]             # mon to sun, and ranges; the day on which the hours begin
## until = "2026-12-31T00:00:00Z" # the rule expires
## decision = "ask"               # allow, ask or deny
"#;

/// Returns the commented example, generated from the schema.
pub fn example() -> String {
    example_with(FAMILIES)
}

/// Returns the commented example for a hub with other families.
pub fn example_with(families: Families) -> String {
    let sections = example_sections(families).into_iter().map(|section| section.text);
    std::iter::once(HEAD.to_owned()).chain(sections).collect()
}

/// A section of the example.
pub(crate) struct ExampleSection {
    pub(crate) key: String,
    /// With a blank line and the description above the heading.
    pub(crate) text: String,
}

impl ExampleSection {
    /// Returns whether a text shows this section already, in force or commented out.
    pub(crate) fn is_shown_in(&self, text: &str) -> bool {
        text.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ', '\t']);
            let name = line.trim_start_matches('[').trim_start();
            let rest = name.strip_prefix(self.key.as_str()).filter(|_| line.starts_with('['));
            rest.is_some_and(|rest| rest.trim_start().starts_with([']', '.']))
        })
    }
}

/// Returns the sections of the example, in order.
pub(crate) fn example_sections(families: Families) -> Vec<ExampleSection> {
    let schema = schema_with(families);
    let mut found = Vec::new();
    for (name, node) in schema["properties"].as_object().into_iter().flatten() {
        let mut text = String::new();
        let about = node["description"].as_str().unwrap_or_default();
        if let Some(keys) = node["properties"].as_object() {
            // A section without a default enables something, so it is commented out.
            let mark = if node["default"].is_null() { "#" } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n# {about}\n{mark}[{name}]");
            for (key, node) in keys {
                let about =
                    node["description"].as_str().and_then(|text| text.lines().next()).unwrap_or_default();
                let _ = writeln!(text, "# {about}\n#{key} = {}", toml_of(&node["default"]));
            }
        } else if let Some(keys) = node["additionalProperties"]["properties"].as_object() {
            let _ = writeln!(text, "\n# {about}\n## [{name}.NAME]");
            for (key, node) in keys {
                let about = node["description"].as_str().unwrap_or_default();
                // A key without a default shows an example value.
                let value = if node["default"].is_null() { &node["examples"][0] } else { &node["default"] };
                let value = if value.is_null() { "…".to_owned() } else { toml_of(value) };
                let _ = writeln!(text, "# {about}\n## {key} = {value}");
            }
        } else if node["type"] == "array" {
            let declared = sections(families).find(|spec| spec.key == name).and_then(|spec| spec.example);
            let rules = || RULES.replace("{origins}", &Origin::ALL.map(Origin::as_str).join(", "));
            let shown = declared.map_or_else(rules, commented_out);
            let _ = write!(text, "\n# {about}\n{shown}");
        }
        if !text.is_empty() {
            found.push(ExampleSection { key: name.clone(), text });
        }
    }
    found
}

fn commented_out(entry: &str) -> String {
    entry.lines().map(|line| format!("## {line}\n")).collect()
}

/// Returns a default in TOML. Defaults are plain values and lists of them, which TOML writes as JSON does.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(toml_of).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(key, value)| format!("{key} = {}", toml_of(value))).collect();
            if members.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", members.join(", ")) }
        }
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use crate::schema;
    use crate::tests::keys;
    use crate::written::schema_check::check;

    /// Returns what a file says, with defaults.
    fn parsed(toml: &str) -> Value {
        let document = read::parse("portcullis.toml", toml).unwrap();
        let (written, findings) = check(&document.value, FAMILIES).unwrap();
        assert!(findings.is_empty(), "{findings:?}");
        written.value()
    }

    #[test]
    fn the_example_shows_every_key_and_its_default() {
        let example = example();
        assert_eq!(parsed(&example), parsed(""));
        let uncommented: String = example
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.is_empty() && !setting.starts_with([' ', '#']) => {
                    format!("{setting}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect();
        assert_eq!(parsed(&uncommented), parsed("[vault]\n[web]\n[github]\n"));
        let document = read::parse("portcullis.toml", &uncommented).unwrap();
        for key in keys().iter().filter(|key| !["policy", "calendars", "mcp"].contains(&key.as_str())) {
            let pointer = format!("/{}", key.replace('.', "/"));
            assert!(document.value.pointer(&pointer).is_some(), "{key} is missing");
        }
        // The server and the rule that are shown are good ones too, and names every key that a rule has.
        let rule: String = example
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .map(|line| format!("{line}\n"))
            .collect();
        let shown = parsed(&rule);
        for (section, count) in [
            ("policy", shown["policy"].as_array().unwrap().len()),
            ("calendars", shown["calendars"].as_array().unwrap().len()),
            ("mcp", shown["mcp"].as_object().unwrap().len()),
        ] {
            assert_eq!(count, 1, "{section}");
        }
        let server = &schema()["properties"]["mcp"]["additionalProperties"]["properties"];
        for key in server.as_object().unwrap().keys() {
            assert!(rule.contains(&format!("{key} = ")), "{key}");
        }
        for key in schema()["properties"]["policy"]["items"]["properties"].as_object().unwrap().keys() {
            assert!(rule.contains(&format!("{key} = ")), "{key}");
        }
        insta::assert_snapshot!(example, @r#"
        # Portcullis configuration.
        #
        # Every setting is shown with its default. Remove the `#` in front of it to change it.
        # Unknown keys are errors. Check this file with `portcullis doctor`.

        # HTTP endpoint of `portcullis serve`.
        [http]
        # Listen address; MCP_HTTP_PORT overrides the port.
        #listen = "127.0.0.1:3000"
        # Allowed Host headers besides localhost.
        #allowed_hosts = []
        # Allowed Origin headers of browser requests.
        #allowed_origins = []

        # Rate limit per client.
        [rate_limit]
        # Requests per second and client.
        #requests_per_second = 10
        # Burst size per client.
        #burst = 20
        # How long a call over the limit may wait for its turn, in milliseconds; one that would wait longer is refused. 0 refuses at once.
        #wait_ms = 1000

        # Logs, written to stderr.
        [logging]
        # Log level: error, warn, info, debug or trace.
        #level = "info"
        # Log format: text or json.
        #format = "text"

        # The folder that tools read and write.
        [workspace]
        # Folder that holds ai-data/, servers/ and secure/; relative to the home folder.
        #path = "workspace"
        # Enable the workspace_* tools.
        #enabled = true

        # Memory that persists across conversations.
        [memory]
        # Enable the memory_* tools.
        #enabled = true

        # Obsidian vault. This section enables the vault_* tools.
        #[vault]
        # Folder of the notes; relative to the home folder.
        #path = "vault"
        # Git repository to sync with; needs git 2.40 or newer.
        #git_repo = ""
        # Sync automatically: clone into an empty folder, pull before reads, commit and push writes.
        #auto_sync = false
        # Secret with the repository's HTTPS token; set it with `portcullis secrets set NAME --grant HOST`.
        #git_token = ""
        # User name for the token.
        #git_user = "git"
        # Author of commits.
        #git_author = "Portcullis <portcullis@localhost>"
        # Seconds between pulls.
        #pull_after_secs = 60
        # Timeout of a sync, in seconds.
        #git_timeout_secs = 60

        # Public web. This section enables `web_fetch`.
        #[web]
        # Allow unencrypted pages (http://).
        #http = false
        # Obey robots.txt.
        #respect_robots = false
        # User-Agent header; empty for Portcullis and its version.
        #user_agent = ""
        # Allowed domains, including subdomains; empty allows all.
        #allow = []
        # Denied domains, including subdomains.
        #deny = []

        # Calendars for `calendar_read`, which is enabled by the first one.
        ## [[calendars]]
        ## name = "Personal"
        ## url = "secret:PERSONAL_ICS"    # `portcullis secrets set PERSONAL_ICS`; or file = "personal.ics"

        # GitHub issues. This section enables the github_* tools.
        #[github]
        # Token as `secret:NAME`; it needs a grant for the host of `base_url`.
        #token = "secret:GITHUB_TOKEN"
        # API URL; for GitHub Enterprise it ends with /api/v3.
        #base_url = "https://api.github.com"
        # Allowed repositories, as owner/name or owner/*; empty allows all.
        #repositories = []

        # Starlark scripts, approved by a person.
        [scripts]
        # Enable the script_* tools.
        #enabled = true
        # Folder of scripts, which no tool can reach; relative to the home folder.
        #path = "scripts"
        # Default timeout of a script, in milliseconds.
        #timeout_ms = 2000
        # Memory limit of a script, in megabytes.
        #memory_mb = 128
        # If the kernel lacks part of the sandbox: required (scripts do not run) or best-effort.
        #sandbox = "required"
        # Pre-started worker processes.
        #warm = 2
        # Grants of `script_exec` code, each use with approval; nothing by default.
        #exec = { secrets = [], hosts = [], tools = [] }
        # Pre-approved scripts, with name, sha256, secrets, hosts and tools.
        #allow = []

        # Prompt templates.
        [prompts]
        # Folder of prompt templates; relative to the home folder.
        #path = "prompts"

        # Outbound requests (egress).
        [egress]
        # Non-public hosts and ports to allow, exact (SSRF exceptions); also over http://.
        #allow = []
        # Requests per minute and host.
        #per_host_per_minute = 60
        # Burst size per host.
        #per_host_burst = 20
        # PEM file with additional CA certificates, such as a company's own.
        #ca_file = ""

        # The client of `portcullis stdio` without `--client`. It needs no token: the process that starts it is trusted.
        [stdio]
        # Client name in rules and the audit log.
        #client = "local"
        # Allowed tools, resources and prompts, as globs.
        #allow = ["*"]
        # Denied tools, resources and prompts, as globs.
        #deny = []
        # Allowed effects: read, create, write, destroy.
        #effects = ["read", "create", "write", "destroy"]
        # Upstream tools: `all` lists them, `search` offers `find_tools` and `call_tool` instead.
        #tools = "all"

        # Redaction of everything that leaves the hub. Secrets of the store are always redacted.
        [redaction]
        # Redact tokens of well-known providers by their shape, even if not in the store.
        #token_shapes = true

        # Key of the secret store. PORTCULLIS_KEY, PORTCULLIS_KEY_FILE and PORTCULLIS_PASSPHRASE_FILE take precedence.
        [secrets]
        # Source of the key: auto, credential (systemd), keyring (desktop), file or passphrase.
        #key = "auto"
        # Key file, outside the data folder; empty for ~/.config/portcullis/key.
        #key_file = ""

        # Limits. The defaults suit one machine with a few users.
        [limits]
        # Maximum message on stdio, in bytes.
        #line_bytes_max = 4194304
        # Maximum HTTP request body, in bytes.
        #body_bytes_max = 4194304
        # Maximum concurrent HTTP connections.
        #connections_max = 4000
        # Maximum concurrent HTTP connections per address; behind a proxy, all have the proxy's address.
        #connections_per_source_max = 3000
        # Timeout of request headers, in seconds; also for the first byte of a new connection.
        #headers_secs = 10
        # Timeout of a request body, in seconds.
        #body_secs = 12
        # Timeout of a client that does not read its response, in seconds.
        #write_secs = 30
        # Keep-alive timeout of an authenticated connection, in seconds.
        #keep_alive_secs = 75
        # Invalid tokens before an address is locked out; it is slowed down after half of them.
        #token_failures_max = 10
        # Duration of a lockout, in seconds.
        #token_lockout_secs = 900
        # Maximum timeout of a call, in seconds; a tool may have a lower one.
        #call_secs_max = 300
        # Maximum result of a call, in bytes; a tool may have a lower one.
        #result_bytes_max = 10485760
        # Maximum calls in flight per connection or session.
        #in_flight_max = 256
        # Maximum concurrent sessions.
        #sessions_max = 10000
        # Maximum concurrent sessions per client.
        #sessions_per_client_max = 2000
        # Idle timeout of a session, in seconds.
        #session_idle_secs = 1800
        # Grace period of in-flight calls at shutdown, in seconds.
        #shutdown_grace_secs = 10

        # Timeouts of approvals.
        [approvals]
        # Seconds that a call waits for a decision before the client is told to retry.
        #wait_secs = 50
        # Seconds after which a pending approval expires.
        #pending_secs = 86400
        # Seconds after which an unused approval expires.
        #approved_secs = 3600

        # Notifications of calls that wait for approval.
        [notify]
        # Webhook that is told of each pending approval, or better secret:NAME. Without the arguments of the call.
        #url = ""
        # Format of the webhook: auto, json, ntfy or slack. auto goes by the host, which a secret: URL does not show.
        #format = "auto"
        # Show a notification on the desktop, with notify-send, where there is a session.
        #desktop = true

        # Admin page and API.
        [admin]
        # Enable the admin page and API.
        #enabled = true
        # Serve the admin page on non-loopback addresses; use a TLS proxy in front.
        #allow_remote = false

        # Time zone.
        [time]
        # Time zone of rules and calendars, such as Europe/Vienna; system is the machine's, or UTC.
        #timezone = "system"

        # Upstream MCP servers by name. Their tools appear as NAME_tool and pass the same checks.
        ## [mcp.NAME]
        # Command of a local server (stdio): a name looked up in PATH once, or a path, absolute or relative to `~/` or `cwd`.
        ## command = "npx"
        # Arguments, passed verbatim; use `env` for variables and secrets.
        ## args = []
        # Working directory; by default a private folder that no tool can reach.
        ## cwd = "~/project"
        # URL of a remote server (HTTP), instead of a command: https://, http:// or unix:/SOCKET:/PATH.
        ## url = "https://mcp.example.com/mcp"
        # Headers of every request; "${NAME}" is a variable of the hub, "secret:NAME" a secret, also after "Bearer ".
        ## headers = {}
        # OAuth login, with `portcullis mcp auth NAME`: true, or a table.
        ## oauth = true
        # Environment, besides PATH and HOME; "${NAME}" is a variable of the hub, "secret:NAME" a secret, also after "Bearer ".
        ## env = {}
        # Enable the server.
        ## enabled = true
        # Timeout of a call without progress, in milliseconds; by default `experimental.mcp_timeout`, 30000.
        ## timeout_ms = 30000
        # Timeout of its start and handshake, in milliseconds; raise it for packages that take long to download.
        ## start_timeout_ms = 30000
        # Prefix of its tools and prompts; default NAME_, "" for none. On a clash the second tool becomes server_tool; deny rules for either name apply.
        ## prefix = "git_"
        # Tools to expose, by the server's names.
        ## tools = { allow = ["*"], deny = [] }
        # New names of tools, by the server's names; the prefix is still added.
        ## rename = {}
        # Effect of its tools: read, create, write or destroy; by default what was chosen with `portcullis mcp trust`.
        ## effect = "write"
        # Effects by tool, as globs over the server's names; the longest match wins.
        ## effects = {}
        # Labels by tool, as globs: private, untrusted, outward; by default untrusted and outward.
        ## labels = {}
        # New and changed tools: ask (need review with `portcullis mcp trust`) or always (trusted without review).
        ## trust = "ask"
        # Start with the hub (now) or at the first call (lazy).
        ## start = "now"
        # Idle time after which it is stopped until the next call, like 10m; by default never.
        ## idle_stop = "10m"
        # Start one instance per client, to isolate clients from each other.
        ## per_client = false
        # Maximum instances with `per_client`.
        ## clients_max = 32
        # Seconds between refreshes of its tool list without a change notification.
        ## relist_secs = 300
        # Decision on its tools if no rule matches: allow, ask or deny; by default the policy chosen with `portcullis mcp trust`.
        ## decision = "ask"

        # Settings under the names that other programs gave them.
        [experimental]
        # Default of `timeout_ms` of every upstream server, in milliseconds.
        #mcp_timeout = 30000

        # Policy rules; the first match wins. Without a match, the effect of the call decides, for upstream tools the server's `decision`.
        ## [[policy]]
        ## tools = ["workspace_*"]        # globs over names
        ## clients = ["*"]                # globs over clients
        ## origins = ["client"]           # client, schedule, script, chat, engine, admin
        ## effects = ["write", "destroy"] # read, create, write, destroy
        ## reach = "local"                # local or outside; default: both
        ## labels = ["private"]           # any of private, untrusted, outward
        ## hours = "22:00-06:00"          # the end is exclusive; in `time.timezone`
        ## days = ["mon-fri"]             # mon to sun, and ranges; the day on which the hours begin
        ## until = "2026-12-31T00:00:00Z" # the rule expires
        ## decision = "ask"               # allow, ask or deny
        "#);
    }
}
