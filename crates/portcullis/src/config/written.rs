//! The configuration as it is written.
//!
//! These types are the file's grammar: the JSON schema, the example file and the reference all come from
//! them, so a doc comment here is what a user reads. Its first line says what the key does.

mod defaults;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a file may hold. Every key has a default, so an empty file is a good one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Portcullis configuration")]
pub(super) struct Written {
    /// HTTP: where `portcullis serve` listens, and which web pages may talk to it.
    pub(super) http: Http,
    /// How many requests one client may make.
    pub(super) rate_limit: RateLimit,
    /// What the hub says on standard error.
    pub(super) logging: Logging,
    /// Files that tools may work on.
    pub(super) workspace: Workspace,
    /// Notes that outlive a conversation.
    pub(super) memory: Memory,
    /// Prompt templates.
    pub(super) prompts: Prompts,
    /// Notes of an Obsidian vault. This section turns the vault_* tools on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vault")]
    pub(super) vault: Option<Vault>,
    /// Pages of the public web. This section turns `web_fetch` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Web")]
    pub(super) web: Option<Web>,
    /// Calendars that `calendar_read` reads; it exists where there is one.
    pub(super) calendars: Vec<Calendar>,
    /// Issues on GitHub. This section turns the github_* tools on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Github")]
    pub(super) github: Option<Github>,
    /// Starlark scripts that a person approved.
    pub(super) scripts: Scripts,
    /// What every request that leaves this machine has to keep to.
    pub(super) egress: Egress,
    /// The client at the other end of `portcullis stdio`. It needs no token: whoever starts the process is trusted.
    pub(super) stdio: Stdio,
    /// What is masked in everything that leaves. Secrets of the store always are.
    pub(super) redaction: Redaction,
    /// Where the key of the secret store is; PORTCULLIS_KEY, PORTCULLIS_KEY_FILE and PORTCULLIS_PASSPHRASE_FILE come first.
    pub(super) secrets: Secrets,
    /// Bounds of the server. The defaults suit one machine and its people.
    pub(super) limits: Limits,
    /// How long a person may take to decide about a call that has to be asked about.
    pub(super) approvals: Approvals,
    /// Where people see what agents do and decide: a page and its API, beside MCP.
    pub(super) admin: Admin,
    /// How the hub reads the clock.
    pub(super) time: Time,
    /// Other MCP servers by name. Their tools appear as NAME_tool, behind the same guards.
    pub(super) mcp: BTreeMap<String, McpServer>,
    /// Rules, first match wins; a call that no rule matches is decided by what it does, one of another server by its `decision`.
    pub(super) policy: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Http {
    /// Address and port to listen on; MCP_HTTP_PORT changes the port.
    #[schemars(example = &"127.0.0.1:3000")]
    pub(super) listen: String,
    /// Names besides localhost under which clients reach the hub (the Host header).
    #[schemars(example = ["hub.example.com"])]
    pub(super) allowed_hosts: Vec<String>,
    /// Web pages that may call the hub from a browser (the Origin header).
    #[schemars(example = ["https://app.example.com"])]
    pub(super) allowed_origins: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RateLimit {
    /// Requests per second and client, on average.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) requests_per_second: u32,
    /// Requests that a client may make at once after a quiet time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) burst: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Logging {
    /// The least important message that is shown: error, warn, info, debug or trace.
    pub(super) level: LevelName,
    /// text for people, json for log collectors.
    pub(super) format: FormatName,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Workspace {
    /// Folder that holds ai-data/, servers/ and secure/; relative to the home folder.
    #[schemars(length(min = 1), example = &"workspace")]
    pub(super) path: String,
    /// Whether the workspace_* tools exist.
    pub(super) enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Memory {
    /// Whether the memory_* tools exist.
    pub(super) enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Prompts {
    /// Folder of prompt templates; relative to the home folder.
    #[schemars(length(min = 1), example = &"prompts")]
    pub(super) path: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Vault {
    /// Folder of the notes; relative to the home folder.
    #[schemars(length(min = 1), example = &"~/Notes")]
    pub(super) path: String,
    /// Git repository that the notes are synced with; needs git 2.40 or newer.
    #[schemars(example = &"git@example.com:me/notes.git")]
    pub(super) git_repo: String,
    /// Whether to clone it if the folder is empty, pull before reading, and commit and push what is written.
    pub(super) auto_sync: bool,
    /// Secret that opens the repository over https://, granted for its host; `portcullis secrets set NAME --grant HOST`.
    #[schemars(example = &"secret:NOTES_TOKEN")]
    pub(super) git_token: String,
    /// User that the secret belongs to, where the repository asks for one.
    pub(super) git_user: String,
    /// Who the commits are by.
    #[schemars(example = &"Me <me@example.com>")]
    pub(super) git_author: String,
    /// Seconds after which a read pulls again.
    #[schemars(range(min = 0, max = 86_400))]
    pub(super) pull_after_secs: u64,
    /// Seconds that one sync may take.
    #[schemars(range(min = 1, max = 120))]
    pub(super) git_timeout_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Web {
    /// Whether pages may be fetched unencrypted (http://), too.
    pub(super) http: bool,
    /// Whether what a site asks of programs (robots.txt) is obeyed.
    pub(super) respect_robots: bool,
    /// What sites are told about who is asking, if not Portcullis and its version.
    #[schemars(example = &"ExampleBot/1.0 (+https://example.com/bot)")]
    pub(super) user_agent: String,
    /// Domains that may be asked, with all below them; any if empty.
    #[schemars(example = ["example.com"])]
    pub(super) allow: Vec<String>,
    /// Domains that may not be asked, nor any below them.
    #[schemars(example = ["example.net"])]
    pub(super) deny: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Egress {
    /// Exact hosts and ports that may be reached although they are not public; also by http://.
    #[schemars(example = ["127.0.0.1:8080"])]
    pub(super) allow: Vec<String>,
    /// Requests per minute to one host, on average.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) per_host_per_minute: u32,
    /// Requests that one host may get at once after a quiet time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) per_host_burst: u32,
    /// File (PEM) with certificates of authorities to trust besides the well-known ones, such as a company's own.
    #[schemars(example = &"company-ca.pem")]
    pub(super) ca_file: String,
}

/// One calendar: an address, or a file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Calendar {
    /// What it is called, for people and models.
    #[schemars(example = &"Personal")]
    pub(super) name: String,
    /// Address of an iCalendar feed, best as a handle of the secret store; it is never shown.
    #[schemars(example = &"secret:PERSONAL_ICS")]
    pub(super) url: String,
    /// File (.ics) instead of an address; relative to the home folder.
    #[schemars(example = &"personal.ics")]
    pub(super) file: String,
    /// Whether the feed may be fetched unencrypted (http://), too.
    pub(super) http: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Github {
    /// Handle of the token, which needs to be granted for the host of `base_url`.
    #[schemars(example = &"secret:GITHUB_TOKEN")]
    pub(super) token: String,
    /// Address of the API; that of GitHub Enterprise ends with /api/v3.
    #[schemars(example = &"https://github.example.com/api/v3")]
    pub(super) base_url: String,
    /// Repositories that may be used, as owner/name or owner/*; any if empty.
    #[schemars(example = ["octocat/hello-world"])]
    pub(super) repositories: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Scripts {
    /// Whether the script_* tools exist.
    pub(super) enabled: bool,
    /// Folder of the scripts, out of reach of every tool; relative to the home folder.
    #[schemars(length(min = 1), example = &"scripts")]
    pub(super) path: String,
    /// Milliseconds that a script may run where nobody granted it another time.
    #[schemars(range(min = 100, max = 300_000))]
    pub(super) timeout_ms: u64,
    /// Megabytes of memory that one script may take.
    #[schemars(range(min = 64, max = 4_096))]
    pub(super) memory_mb: u64,
    /// What happens where the kernel does not offer all of the sandbox: required (no script runs) or best-effort.
    pub(super) sandbox: SandboxName,
    /// Processes that stand ready while scripts are used.
    #[schemars(range(min = 0, max = 16))]
    pub(super) warm: usize,
    /// What code in `script_exec` may use: nothing, unless it says so here; then a person is asked each time.
    pub(super) exec: Grants,
    /// Scripts that are approved here instead of by a person, each with name and sha256, and its secrets, hosts and tools.
    pub(super) allow: Vec<AllowedScript>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SandboxName {
    #[default]
    Required,
    BestEffort,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Grants {
    /// Names of secrets.
    #[schemars(example = ["API_KEY"])]
    pub(super) secrets: Vec<String>,
    /// Hosts, or *.example.com for all below one.
    #[schemars(example = ["api.example.com"])]
    pub(super) hosts: Vec<String>,
    /// Globs over names of tools.
    #[schemars(example = ["workspace_read"])]
    pub(super) tools: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AllowedScript {
    /// Name of the script.
    #[schemars(example = &"report.star")]
    pub(super) name: String,
    /// SHA-256 of its text; any other text waits for a person.
    pub(super) sha256: String,
    /// Names of secrets that it may use.
    pub(super) secrets: Vec<String>,
    /// Hosts that it may reach, or *.example.com for all below one.
    pub(super) hosts: Vec<String>,
    /// Globs over names of tools that it may call.
    pub(super) tools: Vec<String>,
    /// Milliseconds that it may run, if not as long as any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 300_000))]
    pub(super) timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stdio {
    /// Name of the client in rules and in the audit log.
    #[schemars(example = &"local")]
    pub(super) client: String,
    /// Globs over the names that it may use.
    #[schemars(length(min = 1), example = ["workspace_*"])]
    pub(super) allow: Vec<String>,
    /// Globs over those of them that it may not use.
    #[schemars(example = ["*_delete"])]
    pub(super) deny: Vec<String>,
    /// What it may do at most: read, create, write, destroy.
    #[schemars(length(min = 1))]
    pub(super) effects: Vec<EffectName>,
    /// How it gets to know the tools of other servers: `all` lists them, `search` has `find_tools` and `call_tool`.
    pub(super) tools: ViewName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ViewName {
    #[default]
    All,
    Search,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Redaction {
    /// Whether tokens of well-known providers are masked by their shape, registered or not.
    pub(super) token_shapes: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Secrets {
    /// Kind of key: auto, credential (systemd), keyring (desktop), file or passphrase.
    pub(super) key: KeyName,
    /// Key file, outside of the data; empty for the usual place, ~/.config/portcullis/key.
    #[schemars(example = &"~/keys/portcullis")]
    pub(super) key_file: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    /// Longest message on stdio, in bytes.
    #[schemars(range(min = 4096, max = 67_108_864))]
    pub(super) line_bytes_max: usize,
    /// Largest HTTP request body, in bytes.
    #[schemars(range(min = 4096, max = 67_108_864))]
    pub(super) body_bytes_max: usize,
    /// HTTP connections open at the same time.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) connections_max: usize,
    /// HTTP connections open at the same time from one address; behind a proxy all come from the proxy's.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) connections_per_source_max: usize,
    /// Seconds from the first byte of a request to the end of its headers, and for a new connection to begin.
    #[schemars(range(min = 1, max = 600))]
    pub(super) headers_secs: u64,
    /// Seconds in which a request body must arrive.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) body_secs: u64,
    /// Seconds that a client which does not read its answer is waited for.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) write_secs: u64,
    /// Seconds that a connection may stay open between two requests, once it has shown a good token.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) keep_alive_secs: u64,
    /// Wrong tokens after which an address is locked out; it is slowed down after half of them.
    #[schemars(range(min = 2, max = 1_000))]
    pub(super) token_failures_max: u32,
    /// Seconds for which an address is locked out.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) token_lockout_secs: u64,
    /// Longest time of one call in seconds, where its tool allows more.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) call_secs_max: u64,
    /// Largest result of one call in bytes, where its tool allows more.
    #[schemars(range(min = 4096, max = 67_108_864))]
    pub(super) result_bytes_max: usize,
    /// Calls under way at the same time on one connection or in one session.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) in_flight_max: usize,
    /// Sessions open at the same time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sessions_max: usize,
    /// Sessions that one client may have open.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sessions_per_client_max: usize,
    /// Seconds without a request after which a session ends.
    #[schemars(range(min = 10, max = 604_800))]
    pub(super) session_idle_secs: u64,
    /// Seconds that calls under way get to finish when the hub stops.
    #[schemars(range(min = 0, max = 600))]
    pub(super) shutdown_grace_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Approvals {
    /// Seconds that a call waits for a person before it is told to come back.
    #[schemars(range(min = 0, max = 600))]
    pub(super) wait_secs: u64,
    /// Seconds after which a question that nobody answered is forgotten.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub(super) pending_secs: u64,
    /// Seconds within which a call that was approved has to be made.
    #[schemars(range(min = 60, max = 604_800))]
    pub(super) approved_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Admin {
    /// Whether the admin page and its API exist, where the hub listens for HTTP.
    pub(super) enabled: bool,
    /// Whether they exist where the hub listens on more than loopback; only with TLS in front of it.
    pub(super) allow_remote: bool,
}

/// Takes out of a file as it is shown what may be a secret: values that are not handles, and what follows an address.
pub(super) fn hide_values(written: &mut serde_json::Value) {
    const NOT_SHOWN: &str = "[not shown]";
    let hide = |value: &mut serde_json::Value| {
        if value.as_str().is_some_and(|text| !text.contains("secret:")) {
            *value = NOT_SHOWN.into();
        }
    };
    for calendar in written["calendars"].as_array_mut().into_iter().flatten() {
        calendar.get_mut("url").into_iter().for_each(hide);
    }
    for server in written["mcp"].as_object_mut().into_iter().flat_map(|mcp| mcp.values_mut()) {
        for key in ["env", "headers"] {
            let values = server[key].as_object_mut().into_iter().flat_map(|all| all.values_mut());
            values.for_each(hide);
        }
        if let Some(url) = server["url"].as_str().and_then(|url| url.split_once('?')) {
            server["url"] = format!("{}?{NOT_SHOWN}", url.0).into();
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Time {
    /// Time zone of hours and days in rules and of what calendars tell, such as Europe/Vienna; system is the machine's, or UTC.
    #[schemars(length(min = 1), example = &"Europe/Vienna")]
    pub(super) timezone: String,
}

/// One MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct McpServer {
    /// Program to start; it speaks MCP on its standard input and output. A name, looked up once, or a path, whole or from `~/` or `cwd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"npx")]
    pub(super) command: Option<String>,
    /// Its arguments, as they are: nothing in them stands for a variable or a secret, which belong into `env`.
    #[schemars(example = ["-y", "@modelcontextprotocol/server-filesystem"])]
    pub(super) args: Vec<String>,
    /// The folder it starts in; one of its own, which no tool can reach, if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"~/project")]
    pub(super) cwd: Option<String>,
    /// Address of a server that is reached over HTTP, instead of a program: https://, http:// or unix:/SOCKET:/PATH.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"https://mcp.example.com/mcp")]
    pub(super) url: Option<String>,
    /// Headers that every request to it carries; "${NAME}" is the hub's variable, "secret:NAME" a secret, also after "Bearer ".
    pub(super) headers: BTreeMap<String, String>,
    /// Whether to log in there by OAuth, with `portcullis mcp auth NAME`: true, or a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::oauth::schema")]
    pub(super) oauth: Option<super::oauth::WrittenOAuth>,
    /// Its environment, with PATH and HOME; "${NAME}" is the hub's variable, "secret:NAME" a secret, also after "Bearer ".
    pub(super) env: BTreeMap<String, String>,
    /// Whether it is used.
    pub(super) enabled: bool,
    /// Milliseconds that a call may take without a sign of progress.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub(super) timeout_ms: u64,
    /// What stands before the names of its tools and prompts instead of its own name and `_`; "" for nothing, where no other has the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"git_")]
    pub(super) prefix: Option<String>,
    /// Which of its tools appear, by the names it gives them.
    pub(super) tools: McpTools,
    /// Under which other names its tools appear, by the names it gives them; the prefix still comes first.
    pub(super) rename: BTreeMap<String, String>,
    /// What its tools do: read, create, write or destroy. Left out, they may do anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "EffectName", example = &"write")]
    pub(super) effect: Option<EffectName>,
    /// What some of its tools do, by globs over the names it gives them; the longest that fits counts.
    pub(super) effects: BTreeMap<String, EffectName>,
    /// What some of its tools have to do with data, by such globs: private, untrusted, outward. Left out: untrusted and outward.
    pub(super) labels: BTreeMap<String, Vec<LabelName>>,
    /// Whether its new and changed definitions wait for `portcullis mcp trust` (ask) or are taken as they come (always).
    pub(super) trust: TrustName,
    /// When it is started: with the hub (now), or by the first call of one of its tools (lazy).
    pub(super) start: StartName,
    /// How long nothing is called before it is ended until the next call, like 10m; never if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 2), example = &"10m")]
    pub(super) idle_stop: Option<String>,
    /// Whether each client gets one of its own, so that nothing of one client reaches another.
    pub(super) per_client: bool,
    /// How many clients may have one of their own at the same time, with `per_client`.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) clients_max: usize,
    /// Seconds after which it is asked again what it offers, though it said nothing of a change.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) relist_secs: u64,
    /// What is decided about its tools where no rule speaks: allow, ask or deny.
    pub(super) decision: DecisionName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum TrustName {
    Ask,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum StartName {
    Now,
    Lazy,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct McpTools {
    /// Globs; those that fit appear.
    #[schemars(length(min = 1))]
    pub(super) allow: Vec<String>,
    /// Globs; those that fit do not.
    pub(super) deny: Vec<String>,
}

/// One rule. It matches a call when all that it names match.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// Globs over the names of tools, resources and prompts.
    #[serde(default = "anything")]
    #[schemars(length(min = 1), example = ["workspace_*"])]
    pub(super) tools: Vec<String>,
    /// Globs over the names of clients.
    #[serde(default = "anything")]
    #[schemars(length(min = 1), example = ["laptop"])]
    pub(super) clients: Vec<String>,
    /// By which way the call came: client, schedule, script, chat, admin.
    #[serde(default = "all_origins")]
    #[schemars(length(min = 1))]
    pub(super) origins: Vec<OriginName>,
    /// What the call does: read, create, write, destroy.
    #[serde(default = "all_effects")]
    #[schemars(length(min = 1))]
    pub(super) effects: Vec<EffectName>,
    /// How far the call reaches: local or outside; both if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReachName")]
    pub(super) reach: Option<ReachName>,
    /// What the call has to do with data; any of private, untrusted and outward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<LabelName>", length(min = 1), example = ["private"])]
    pub(super) labels: Option<Vec<LabelName>>,
    /// Time of day at which the rule holds; the end is not part of it, and may be on the next day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"22:00-06:00")]
    pub(super) hours: Option<String>,
    /// Days on which the rule holds, or on which its hours begin: mon to sun, or ranges of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", length(min = 1), example = ["mon-fri"])]
    pub(super) days: Option<Vec<String>>,
    /// When the rule ends by itself: a date and time, in the hub's time zone if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"2026-12-31T00:00:00Z")]
    pub(super) until: Option<String>,
    /// What happens: allow, ask (a person decides) or deny.
    pub(super) decision: DecisionName,
}

// The variants carry no doc comments: with them, a schema would list each as a case of its own.

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LevelName {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FormatName {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyName {
    #[default]
    Auto,
    Credential,
    Keyring,
    File,
    Passphrase,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum EffectName {
    Read,
    Create,
    Write,
    Destroy,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LabelName {
    Private,
    Untrusted,
    Outward,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OriginName {
    Client,
    Schedule,
    Script,
    Chat,
    Admin,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReachName {
    Local,
    Outside,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum DecisionName {
    Allow,
    Ask,
    Deny,
}

fn anything() -> Vec<String> {
    vec!["*".to_owned()]
}

fn all_effects() -> Vec<EffectName> {
    vec![EffectName::Read, EffectName::Create, EffectName::Write, EffectName::Destroy]
}

fn all_origins() -> Vec<OriginName> {
    use OriginName::{Admin, Chat, Client, Schedule, Script};
    vec![Client, Schedule, Script, Chat, Admin]
}
