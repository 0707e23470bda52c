//! Resolves the sections of upstream servers.

use super::{ConfigResolver, effect_of, labels_of, oauth, verdict};
use crate::McpServerSettings;
use crate::errors::{Finding, key_path};
use crate::written::{self, EffectName, LabelName, StartName, TrustName};
use portcullis_core::json::printable;
use portcullis_core::{Effect, Pattern};
use portcullis_egress::configured_client::{ConfiguredEndpoint, EndpointError};
use portcullis_egress::header::HeaderName;
use portcullis_store::clients::parse_duration;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Leaves room for the tool name.
const SERVER_NAME_CHARS_MAX: usize = 32;
/// Hop-by-hop and framing headers, which the hub sets. `Authorization` is not among them.
const HEADERS_TAKEN: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "te",
    "transfer-encoding",
    "upgrade",
];

impl ConfigResolver<'_> {
    /// `timeout_ms` is of servers without their own.
    pub(super) fn mcp(
        &mut self,
        name: &str,
        server: &written::WrittenMcpServer,
        timeout_ms: u64,
    ) -> McpServerSettings {
        let at = |key: &str| format!("/mcp/{}/{key}", name.replace('~', "~0").replace('/', "~1"));
        if !is_server_name(name) {
            let mut pointer = at("");
            pointer.pop();
            // A key path would contain the name without delimiting it.
            let text = format!(
                "`mcp` has a server named \"{}\", expected {}",
                printable(name),
                server_name_expected()
            );
            self.findings.push(Finding { pointer, text });
        }
        for (variable, value) in &server.env {
            // No process can be started with these.
            if variable.is_empty() || variable.contains(['=', '\0']) {
                let text = format!(
                    "`mcp.{}.env` has a variable named \"{}\", expected one without `=` and NUL",
                    printable(name),
                    printable(variable)
                );
                self.findings.push(Finding { pointer: at("env"), text });
            } else if value.contains('\0') {
                let text = format!(
                    "`mcp.{}.env` has a character in `{}` that no variable can hold",
                    printable(name),
                    printable(variable)
                );
                self.findings.push(Finding { pointer: at("env"), text });
            }
        }
        let place = self.mcp_place(name, server, &at);
        let oauth = oauth::meant(server.oauth.as_ref(), name, place.as_ref(), &at, &mut self.findings);
        let mut globs: Vec<(&String, &EffectName)> = server.effects.iter().collect();
        // The longest glob is the most specific.
        globs.sort_by_key(|(glob, _)| (std::cmp::Reverse(glob.len()), glob.as_str()));
        let effects = globs.into_iter().map(|(glob, effect)| {
            (self.pattern(&at("effects"), std::slice::from_ref(glob)), effect_of(*effect))
        });
        let mut effects: Vec<(Pattern, Effect)> = effects.collect();
        effects.extend(server.effect.map(|effect| (Pattern::any(), effect_of(effect))));
        let mut globs: Vec<(&String, &Vec<LabelName>)> = server.labels.iter().collect();
        globs.sort_by_key(|(glob, _)| (std::cmp::Reverse(glob.len()), glob.as_str()));
        let labels = globs
            .into_iter()
            .map(|(glob, names)| (self.pattern(&at("labels"), std::slice::from_ref(glob)), labels_of(names)));
        let labels = labels.collect();
        let rename = self.renames(&at("rename"), &server.rename);
        McpServerSettings {
            name: name.to_owned(),
            enabled: server.enabled,
            command: self.mcp_command(name, server, &at("command")),
            args: server.args.clone(),
            cwd: server.cwd.as_ref().map(|path| self.path(&at("cwd"), path)),
            place,
            headers: self.mcp_headers(server, &at),
            oauth,
            env: server.env.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            timeout: Duration::from_millis(server.timeout_ms.unwrap_or(timeout_ms)),
            start_timeout: Duration::from_millis(server.start_timeout_ms),
            prefix: match server.prefix.as_deref() {
                Some(written) => self.prefix(&at("prefix"), written),
                None => format!("{name}_"),
            },
            allow: self.pattern(&at("tools/allow"), &server.tools.allow),
            deny: (!server.tools.deny.is_empty())
                .then(|| self.pattern(&at("tools/deny"), &server.tools.deny)),
            rename,
            effects,
            labels,
            always_trusted: server.trust == TrustName::Always,
            lazy: server.start == StartName::Lazy,
            idle_stop: server.idle_stop.as_ref().and_then(|text| self.lasting(&at("idle_stop"), text)),
            per_client: server.per_client.then_some(server.clients_max),
            relist_every: Duration::from_secs(server.relist_secs),
            decision: server.decision.map(verdict),
        }
    }

    fn lasting(&mut self, pointer: &str, text: &str) -> Option<Duration> {
        let expected = "a whole number and s, m, h, d or w, like 10m";
        parse_duration(text).map_err(|_| self.unexpected(pointer, text, expected)).ok()
    }

    fn renames(&mut self, pointer: &str, names: &BTreeMap<String, String>) -> Vec<(String, String)> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let mut taken = BTreeSet::new();
        for (own, other) in names {
            if other.is_empty() || !other.chars().all(legal) || !taken.insert(other) {
                let pointer = format!("{pointer}/{}", own.replace('~', "~0").replace('/', "~1"));
                self.unexpected(&pointer, other, "letters, digits, `-` and `_`, each name once");
            }
        }
        names.iter().map(|(own, other)| (own.clone(), other.clone())).collect()
    }

    /// Returns the prefix of a server's tools, written as `git` or `git_`.
    fn prefix(&mut self, pointer: &str, written: &str) -> String {
        // Other characters would be replaced in every name and leave too little room.
        if !written.is_empty() && !is_server_name(written.strip_suffix('_').unwrap_or(written)) {
            self.unexpected(pointer, written, &format!("\"\", or {}", server_name_expected()));
        }
        let between = if written.is_empty() || written.ends_with('_') { "" } else { "_" };
        format!("{written}{between}")
    }

    /// A command is a name looked up in PATH, or a path. The result must not depend on the current directory.
    fn mcp_command(&mut self, name: &str, server: &written::WrittenMcpServer, pointer: &str) -> String {
        let Some(command) = &server.command else { return String::new() };
        let path = Path::new(command);
        if !command.contains('/') || path.is_absolute() {
            return command.clone();
        }
        let whole = match (&server.cwd, command.starts_with("~/")) {
            (_, true) => self.path(pointer, command),
            (Some(cwd), false) => self.path(pointer, cwd).join(path),
            (None, false) => {
                let text = format!(
                    "`mcp.{name}.command` is {command:?}, expected a program name or an absolute path; or set `cwd`"
                );
                self.findings.push(Finding { pointer: pointer.to_owned(), text });
                path.to_owned()
            }
        };
        whole.display().to_string()
    }

    /// A server has either a command or a URL, and only the keys of its kind.
    fn mcp_place(
        &mut self,
        name: &str,
        server: &written::WrittenMcpServer,
        at: &dyn Fn(&str) -> String,
    ) -> Option<ConfiguredEndpoint> {
        let mut find = |key: &str, text: String| self.findings.push(Finding { pointer: at(key), text });
        match (&server.command, &server.url) {
            (None, None) => find(
                "command",
                format!(
                    "`mcp.{name}.command` is missing, expected the program to start, like \"npx\", or `url`"
                ),
            ),
            (Some(_), Some(_)) => {
                find("url", format!("`mcp.{name}` has `command` and `url`, expected one of them"));
            }
            (Some(_), None) if !server.headers.is_empty() => {
                find("headers", format!("`mcp.{name}.headers` is for a server with `url`; use `env`"));
            }
            (None, Some(_)) => {
                let given = [
                    ("args", !server.args.is_empty()),
                    ("cwd", server.cwd.is_some()),
                    ("env", !server.env.is_empty()),
                ];
                for (key, _) in given.iter().filter(|(_, given)| *given) {
                    find(key, format!("`mcp.{name}.{key}` is for a server with `command`"));
                }
            }
            (Some(_), None) => {}
        }
        // Arguments of a process are readable by other processes.
        if server.args.iter().any(|argument| argument.starts_with("secret:")) {
            find("args", format!("`mcp.{name}.args` holds a secret; secrets are for `env` and `headers`"));
        }
        let url = server.url.as_ref()?;
        if url.contains("${") {
            find("url", format!("`mcp.{name}.url` holds `${{`; variables are for `env` and `headers`"));
        }
        // Not quoted: a URL may contain a password.
        let invalid = |why: EndpointError| format!("`mcp.{name}.url` is not a valid URL: {why}");
        url.parse().map_err(|why| find("url", invalid(why))).ok()
    }

    fn mcp_headers(
        &mut self,
        server: &written::WrittenMcpServer,
        at: &dyn Fn(&str) -> String,
    ) -> Vec<(HeaderName, String)> {
        let mut headers = Vec::with_capacity(server.headers.len());
        for (name, value) in &server.headers {
            let lower = name.to_ascii_lowercase();
            match HeaderName::from_bytes(lower.as_bytes()) {
                Ok(header) if !sets_header(name) => headers.push((header, value.clone())),
                Ok(_) => {
                    self.unexpected(&at("headers"), name, "header names that the hub does not set itself")
                }
                // Not quoted: it may be a whole header with a secret.
                Err(_) => {
                    let text = format!(
                        "a key in `{}` is not a header name, expected NAME = \"VALUE\"",
                        key_path(&at("headers"))
                    );
                    self.findings.push(Finding { pointer: at("headers"), text });
                }
            }
        }
        headers
    }
}

/// Returns whether the hub sets this header itself.
pub fn sets_header(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.starts_with("mcp-") || HEADERS_TAKEN.contains(&lower.as_str())
}

/// Returns whether this is a valid server name.
pub(crate) fn is_server_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= SERVER_NAME_CHARS_MAX && name.chars().all(legal)
}

pub(crate) fn server_name_expected() -> String {
    format!("letters, digits, `-` and `_`, 1 to {SERVER_NAME_CHARS_MAX} of them")
}
