//! The file that `portcullis init` writes: every key with its default, commented out.

use super::check::schema;
use serde_json::Value;
use std::fmt::Write;

const HEAD: &str = "\
# Portcullis configuration.
#
# Every setting is shown with its default: take the `#` in front of it away to change it.
# An unknown key is an error, so a slip is noticed. `portcullis doctor` checks this file.
";

/// Rules have no default to show. Two marks in front keep this apart from the settings.
const RULES: &str = r#"## [[policy]]
## tools = ["workspace_*"]        # globs over names
## clients = ["*"]                # globs over clients
## origins = ["client"]           # client, schedule, script, chat, admin
## effects = ["write", "destroy"] # read, create, write, destroy
## reach = "local"                # local or outside; both if left out
## labels = ["private"]           # private, untrusted, outward; a call has any of them
## hours = "22:00-06:00"          # from, and up to but not including; in the zone of `time.timezone`
## days = ["mon-fri"]             # mon to sun, and ranges; the days on which the hours begin
## until = "2026-12-31T00:00:00Z" # the rule ends by itself
## decision = "ask"               # allow, ask or deny
"#;

/// Nor have calendars.
const CALENDARS: &str = r#"## [[calendars]]
## name = "Personal"
## url = "secret:PERSONAL_ICS"    # `portcullis secrets set PERSONAL_ICS`; or file = "personal.ics"
"#;

/// Returns the commented example, made from the schema.
pub fn example() -> String {
    let schema = schema();
    let mut text = HEAD.to_owned();
    for (name, node) in schema["properties"].as_object().into_iter().flatten() {
        let about = node["description"].as_str().unwrap_or_default();
        if let Some(keys) = node["properties"].as_object() {
            // A section without a default does something by being there.
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
                // What has no default is shown as it could be.
                let value = if node["default"].is_null() { &node["examples"][0] } else { &node["default"] };
                let value = if value.is_null() { "…".to_owned() } else { toml_of(value) };
                let _ = writeln!(text, "# {about}\n## {key} = {value}");
            }
        } else if node["type"] == "array" {
            let shown = if name == "calendars" { CALENDARS } else { RULES };
            let _ = write!(text, "\n# {about}\n{shown}");
        }
    }
    text
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
    use super::super::check::check;
    use super::super::read;
    use super::super::tests::keys;
    use super::super::written::{Github, Vault, Web, Written};
    use super::*;

    fn parsed(toml: &str) -> Written {
        let document = read::parse("portcullis.toml", toml).unwrap();
        let (written, findings) = check(&document.value).unwrap();
        assert!(findings.is_empty(), "{findings:?}");
        written
    }

    #[test]
    fn the_example_shows_every_key_and_its_default() {
        let example = example();
        assert_eq!(parsed(&example), Written::default());
        let uncommented: String = example
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.is_empty() && !setting.starts_with([' ', '#']) => {
                    format!("{setting}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let with_all_sections = Written {
            vault: Some(Vault::default()),
            web: Some(Web::default()),
            github: Some(Github::default()),
            ..Written::default()
        };
        assert_eq!(parsed(&uncommented), with_all_sections);
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
        assert_eq!((parsed(&rule).policy.len(), parsed(&rule).mcp.len()), (1, 1));
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
        # Every setting is shown with its default: take the `#` in front of it away to change it.
        # An unknown key is an error, so a slip is noticed. `portcullis doctor` checks this file.

        # HTTP: where `portcullis serve` listens, and which web pages may talk to it.
        [http]
        # Address and port to listen on; MCP_HTTP_PORT changes the port.
        #listen = "127.0.0.1:3000"
        # Names besides localhost under which clients reach the hub (the Host header).
        #allowed_hosts = []
        # Web pages that may call the hub from a browser (the Origin header).
        #allowed_origins = []

        # How many requests one client may make.
        [rate_limit]
        # Requests per second and client, on average.
        #requests_per_second = 10
        # Requests that a client may make at once after a quiet time.
        #burst = 20

        # What the hub says on standard error.
        [logging]
        # The least important message that is shown: error, warn, info, debug or trace.
        #level = "info"
        # text for people, json for log collectors.
        #format = "text"

        # Files that tools may work on.
        [workspace]
        # Folder that holds ai-data/, servers/ and secure/; relative to the home folder.
        #path = "workspace"
        # Whether the workspace_* tools exist.
        #enabled = true

        # Notes that outlive a conversation.
        [memory]
        # Whether the memory_* tools exist.
        #enabled = true

        # Prompt templates.
        [prompts]
        # Folder of prompt templates; relative to the home folder.
        #path = "prompts"

        # Notes of an Obsidian vault. This section turns the vault_* tools on.
        #[vault]
        # Folder of the notes; relative to the home folder.
        #path = "vault"
        # Git repository that the notes are synced with; needs git 2.40 or newer.
        #git_repo = ""
        # Whether to clone it if the folder is empty, pull before reading, and commit and push what is written.
        #auto_sync = false
        # Secret that opens the repository over https://, granted for its host; `portcullis secrets set NAME --grant HOST`.
        #git_token = ""
        # User that the secret belongs to, where the repository asks for one.
        #git_user = "git"
        # Who the commits are by.
        #git_author = "Portcullis <portcullis@localhost>"
        # Seconds after which a read pulls again.
        #pull_after_secs = 60
        # Seconds that one sync may take.
        #git_timeout_secs = 60

        # Pages of the public web. This section turns `web_fetch` on.
        #[web]
        # Whether pages may be fetched unencrypted (http://), too.
        #http = false
        # Whether what a site asks of programs (robots.txt) is obeyed.
        #respect_robots = false
        # What sites are told about who is asking, if not Portcullis and its version.
        #user_agent = ""
        # Domains that may be asked, with all below them; any if empty.
        #allow = []
        # Domains that may not be asked, nor any below them.
        #deny = []

        # Calendars that `calendar_read` reads; it exists where there is one.
        ## [[calendars]]
        ## name = "Personal"
        ## url = "secret:PERSONAL_ICS"    # `portcullis secrets set PERSONAL_ICS`; or file = "personal.ics"

        # Issues on GitHub. This section turns the github_* tools on.
        #[github]
        # Handle of the token, which needs to be granted for the host of `base_url`.
        #token = "secret:GITHUB_TOKEN"
        # Address of the API; that of GitHub Enterprise ends with /api/v3.
        #base_url = "https://api.github.com"
        # Repositories that may be used, as owner/name or owner/*; any if empty.
        #repositories = []

        # Starlark scripts that a person approved.
        [scripts]
        # Whether the script_* tools exist.
        #enabled = true
        # Folder of the scripts, out of reach of every tool; relative to the home folder.
        #path = "scripts"
        # Milliseconds that a script may run where nobody granted it another time.
        #timeout_ms = 2000
        # Megabytes of memory that one script may take.
        #memory_mb = 128
        # What happens where the kernel does not offer all of the sandbox: required (no script runs) or best-effort.
        #sandbox = "required"
        # Processes that stand ready while scripts are used.
        #warm = 2
        # What code in `script_exec` may use: nothing, unless it says so here; then a person is asked each time.
        #exec = { secrets = [], hosts = [], tools = [] }
        # Scripts that are approved here instead of by a person, each with name and sha256, and its secrets, hosts and tools.
        #allow = []

        # What every request that leaves this machine has to keep to.
        [egress]
        # Exact hosts and ports that may be reached although they are not public; also by http://.
        #allow = []
        # Requests per minute to one host, on average.
        #per_host_per_minute = 60
        # Requests that one host may get at once after a quiet time.
        #per_host_burst = 20
        # File (PEM) with certificates of authorities to trust besides the well-known ones, such as a company's own.
        #ca_file = ""

        # The client at the other end of `portcullis stdio`. It needs no token: whoever starts the process is trusted.
        [stdio]
        # Name of the client in rules and in the audit log.
        #client = "local"
        # Globs over the names that it may use.
        #allow = ["*"]
        # Globs over those of them that it may not use.
        #deny = []
        # What it may do at most: read, create, write, destroy.
        #effects = ["read", "create", "write", "destroy"]
        # How it gets to know the tools of other servers: `all` lists them, `search` has `find_tools` and `call_tool`.
        #tools = "all"

        # What is masked in everything that leaves. Secrets of the store always are.
        [redaction]
        # Whether tokens of well-known providers are masked by their shape, registered or not.
        #token_shapes = true

        # Where the key of the secret store is; PORTCULLIS_KEY, PORTCULLIS_KEY_FILE and PORTCULLIS_PASSPHRASE_FILE come first.
        [secrets]
        # Kind of key: auto, credential (systemd), keyring (desktop), file or passphrase.
        #key = "auto"
        # Key file, outside of the data; empty for the usual place, ~/.config/portcullis/key.
        #key_file = ""

        # Bounds of the server. The defaults suit one machine and its people.
        [limits]
        # Longest message on stdio, in bytes.
        #line_bytes_max = 4194304
        # Largest HTTP request body, in bytes.
        #body_bytes_max = 4194304
        # HTTP connections open at the same time.
        #connections_max = 4000
        # HTTP connections open at the same time from one address; behind a proxy all come from the proxy's.
        #connections_per_source_max = 3000
        # Seconds from the first byte of a request to the end of its headers, and for a new connection to begin.
        #headers_secs = 10
        # Seconds in which a request body must arrive.
        #body_secs = 12
        # Seconds that a client which does not read its answer is waited for.
        #write_secs = 30
        # Seconds that a connection may stay open between two requests, once it has shown a good token.
        #keep_alive_secs = 75
        # Wrong tokens after which an address is locked out; it is slowed down after half of them.
        #token_failures_max = 10
        # Seconds for which an address is locked out.
        #token_lockout_secs = 900
        # Longest time of one call in seconds, where its tool allows more.
        #call_secs_max = 300
        # Largest result of one call in bytes, where its tool allows more.
        #result_bytes_max = 10485760
        # Calls under way at the same time on one connection or in one session.
        #in_flight_max = 256
        # Sessions open at the same time.
        #sessions_max = 10000
        # Sessions that one client may have open.
        #sessions_per_client_max = 2000
        # Seconds without a request after which a session ends.
        #session_idle_secs = 1800
        # Seconds that calls under way get to finish when the hub stops.
        #shutdown_grace_secs = 10

        # How long a person may take to decide about a call that has to be asked about.
        [approvals]
        # Seconds that a call waits for a person before it is told to come back.
        #wait_secs = 50
        # Seconds after which a question that nobody answered is forgotten.
        #pending_secs = 86400
        # Seconds within which a call that was approved has to be made.
        #approved_secs = 3600

        # Where people see what agents do and decide: a page and its API, beside MCP.
        [admin]
        # Whether the admin page and its API exist, where the hub listens for HTTP.
        #enabled = true
        # Whether they exist where the hub listens on more than loopback; only with TLS in front of it.
        #allow_remote = false

        # How the hub reads the clock.
        [time]
        # Time zone of hours and days in rules and of what calendars tell, such as Europe/Vienna; system is the machine's, or UTC.
        #timezone = "system"

        # Other MCP servers by name. Their tools appear as NAME_tool, behind the same guards.
        ## [mcp.NAME]
        # Program to start; it speaks MCP on its standard input and output. A name, looked up once, or a path, whole or from `~/` or `cwd`.
        ## command = "npx"
        # Its arguments, as they are: nothing in them stands for a variable or a secret, which belong into `env`.
        ## args = []
        # The folder it starts in; one of its own, which no tool can reach, if left out.
        ## cwd = "~/project"
        # Address of a server that is reached over HTTP, instead of a program: https://, http:// or unix:/SOCKET:/PATH.
        ## url = "https://mcp.example.com/mcp"
        # Headers that every request to it carries; "${NAME}" is the hub's variable, "secret:NAME" a secret, also after "Bearer ".
        ## headers = {}
        # Whether to log in there by OAuth, with `portcullis mcp auth NAME`: true, or a table.
        ## oauth = true
        # Its environment, with PATH and HOME; "${NAME}" is the hub's variable, "secret:NAME" a secret, also after "Bearer ".
        ## env = {}
        # Whether it is used.
        ## enabled = true
        # Milliseconds that a call may take without a sign of progress.
        ## timeout_ms = 30000
        # What stands before the names of its tools and prompts instead of its own name and `_`; "" for nothing, where no other has the name.
        ## prefix = "git_"
        # Which of its tools appear, by the names it gives them.
        ## tools = { allow = ["*"], deny = [] }
        # Under which other names its tools appear, by the names it gives them; the prefix still comes first.
        ## rename = {}
        # What its tools do: read, create, write or destroy. Left out, they may do anything.
        ## effect = "write"
        # What some of its tools do, by globs over the names it gives them; the longest that fits counts.
        ## effects = {}
        # What some of its tools have to do with data, by such globs: private, untrusted, outward. Left out: untrusted and outward.
        ## labels = {}
        # Whether its new and changed definitions wait for `portcullis mcp trust` (ask) or are taken as they come (always).
        ## trust = "ask"
        # When it is started: with the hub (now), or by the first call of one of its tools (lazy).
        ## start = "now"
        # How long nothing is called before it is ended until the next call, like 10m; never if left out.
        ## idle_stop = "10m"
        # Whether each client gets one of its own, so that nothing of one client reaches another.
        ## per_client = false
        # How many clients may have one of their own at the same time, with `per_client`.
        ## clients_max = 32
        # Seconds after which it is asked again what it offers, though it said nothing of a change.
        ## relist_secs = 300
        # What is decided about its tools where no rule speaks: allow, ask or deny.
        ## decision = "allow"

        # Rules, first match wins; a call that no rule matches is decided by what it does, one of another server by its `decision`.
        ## [[policy]]
        ## tools = ["workspace_*"]        # globs over names
        ## clients = ["*"]                # globs over clients
        ## origins = ["client"]           # client, schedule, script, chat, admin
        ## effects = ["write", "destroy"] # read, create, write, destroy
        ## reach = "local"                # local or outside; both if left out
        ## labels = ["private"]           # private, untrusted, outward; a call has any of them
        ## hours = "22:00-06:00"          # from, and up to but not including; in the zone of `time.timezone`
        ## days = ["mon-fri"]             # mon to sun, and ranges; the days on which the hours begin
        ## until = "2026-12-31T00:00:00Z" # the rule ends by itself
        ## decision = "ask"               # allow, ask or deny
        "#);
    }
}
