//! Keys of other programs' formats for MCP servers, and ours for the same thing.

use portcullis_core::json::printable;
use serde_json::Value;

/// How another program's key is written here.
enum OwnKey {
    /// The same value under another key.
    Same(&'static str),
    /// Something else to write.
    Other(&'static str),
}

/// Keys of the whole file that hold servers.
const SERVER_LISTS: [&str; 5] = ["mcpServers", "mcp_servers", "context_servers", "mcp-servers", "servers"];

const CONVERT: &str =
    "servers are `[mcp.NAME]` here; `portcullis mcp import FILE` converts another program's file";

fn of_server(key: &str) -> Option<OwnKey> {
    Some(match key {
        "environment" | "envs" => OwnKey::Same("env"),
        "serverUrl" | "server_url" | "httpUrl" | "baseUrl" | "endpoint" | "uri" => OwnKey::Same("url"),
        "arguments" => OwnKey::Same("args"),
        "http_headers" | "requestHeaders" => OwnKey::Same("headers"),
        "workingDirectory" | "working_directory" | "workdir" => OwnKey::Same("cwd"),
        "disabled" => OwnKey::Other("use `enabled`, which is its opposite"),
        "type" | "transport" | "transportType" => {
            OwnKey::Other("remove it: a server with `command` runs here, one with `url` is remote")
        }
        "timeout" => OwnKey::Other("use `timeout_ms`, in milliseconds"),
        "tool_timeout_sec" | "timeout_secs" => OwnKey::Other("use `timeout_ms`, in milliseconds"),
        "envFile" | "env_file" => OwnKey::Other("use `env`; a file is not read"),
        "bearer_token_env_var" => OwnKey::Other(
            "use `headers`, like { Authorization = \"Bearer ${NAME}\" } or { Authorization = \"Bearer secret:NAME\" }",
        ),
        "env_http_headers" => OwnKey::Other("use `headers`, with \"${NAME}\" as the value"),
        "includeTools" | "enabled_tools" => OwnKey::Other("use `tools.allow`"),
        "excludeTools" | "disabledTools" | "disabled_tools" => OwnKey::Other("use `tools.deny`"),
        "alwaysAllow" | "autoApprove" => {
            OwnKey::Other("use a `[[policy]]` rule for these tools with `decision` = \"allow\"")
        }
        _ => return None,
    })
}

/// Returns the advice on a key of another program, and our key if it takes the same value.
pub(super) fn foreign_key(pointer: &str, key: &str) -> Option<(String, Option<String>)> {
    if pointer.is_empty() {
        return SERVER_LISTS.contains(&key).then(|| (CONVERT.to_owned(), None));
    }
    let server = pointer.strip_prefix("/mcp/").filter(|name| !name.contains('/'))?;
    if SERVER_LISTS.contains(&server) {
        // `mcp.servers.NAME` of other programs would be a server named `servers`.
        return Some((format!("write `[mcp.{}]`: {CONVERT}", printable(key)), None));
    }
    Some(match of_server(key)? {
        OwnKey::Same(own) => (format!("use `{own}`"), Some(own.to_owned())),
        OwnKey::Other(advice) => (advice.to_owned(), None),
    })
}

/// Returns what is said of a value in another program's form under a key that is ours too.
pub(super) fn foreign_form(pointer: &str, value: &Value) -> Option<String> {
    let (server, key) = pointer.strip_prefix("/mcp/")?.split_once('/')?;
    let path = format!("mcp.{}.{key}", printable(server));
    match (key, value) {
        ("command", Value::Array(_)) => {
            Some(format!("`{path}` is a list, expected the program alone; its arguments are `args`"))
        }
        ("command", Value::Object(_)) => Some(format!(
            "`{path}` is a table, expected the program; its arguments are `args`, its variables `env`"
        )),
        ("env", Value::Array(_)) => {
            Some(format!("`{path}` is a list, expected a table like {{ NAME = \"value\" }}"))
        }
        _ => None,
    }
}
