//! Files in TOML and YAML, as the programs' documentation shows them.

use super::check;

/// Fails unless the import of a file says all of these.
fn says(path: &str, text: &str, parts: &[&str]) {
    let said = check(path, text);
    for part in parts {
        assert!(said.contains(part), "{part}:\n{said}");
    }
}

const OPENCODE: &str = "/home/me/work/.opencode/config.toml";

#[test]
fn opencode_in_toml() {
    let text = r#"
# Stdio transport (local process)
[mcp.filesystem]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/path/to/project"]

# SSE transport (HTTP Server-Sent Events)
[mcp.database]
url = "http://localhost:3000/sse"
headers = { "Authorization" = "Bearer token123" }

# HTTP transport (Streamable HTTP)
[mcp.web_api]
url = "http://localhost:8080"
headers = { "X-API-Key" = "key123" }

# OAuth-enabled server
[mcp.github]
url = "https://mcp-github.example.com"
oauth = true

[mcp.brave_search]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-brave-search"]
env = { "BRAVE_API_KEY" = "your-key" }
"#;
    let parts = [
        "[mcp.filesystem]\ncommand = \"npx\"\n",
        "args = [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/path/to/project\"]\n",
        "[mcp.database]\nurl = \"http://localhost:3000/sse\"\n",
        "[mcp.web-api]\nurl = \"http://localhost:8080\"\n",
        "[mcp.github-mcp]\nurl = \"https://mcp-github.example.com\"\noauth = true\n",
        "[mcp.brave_search]\ncommand = \"npx\"\n",
    ];
    says(OPENCODE, text, &parts);
}

#[test]
fn a_timeout_for_all_servers() {
    let text = r#"
updated = 2026-11-19T12:00:00Z

[mcp.slow_server]
command = "python"
args = ["server.py"]

[mcp.own]
command = "x"
timeout = 90000

[experimental]
mcp_timeout = 60000  # 60 seconds (default 30s)
"#;
    says(OPENCODE, text, &["args = [\"server.py\"]\ntimeout_ms = 60000\n", "timeout_ms = 90000\n"]);
    let short = "experimental.mcp_timeout = 5000\nmcp.one.command = \"x\"\n";
    says(
        OPENCODE,
        short,
        &["[mcp.one]\n", "`experimental.mcp_timeout` is 5000 there, and is not taken over"],
    );
    assert!(!check(OPENCODE, short).contains("timeout_ms = 5000"));
}

#[test]
fn opencode_in_yaml() {
    let text = r#"
# OpenCode MCP config
mcp:
  servers:
    openpact:
      command: "./openpact"
      args: ["--mcp"]
"#;
    says("/home/me/work/config.yaml", text, &["[mcp.openpact]\n", "args = [\"--mcp\"]\n"]);
    // Pasted text has no extension.
    says("pasted text", text, &["[mcp.openpact]\n", "args = [\"--mcp\"]\n"]);
}

#[test]
fn pasted_text_is_recognised() {
    let expected = check("pasted.json", r#"{ "mcpServers": { "a": { "command": "x" } } }"#);
    assert!(expected.contains("[mcp.a]\ncommand = \"x\""), "{expected}");
    for text in [
        "// mine\n{ \"mcpServers\": { \"a\": { \"command\": \"x\" } } }",
        "[mcpServers.a]\ncommand = 'x'\n",
        "[mcp_servers.a]\ncommand = 'x'\n",
        "mcp:\n  a:\n    command: x\n",
    ] {
        assert_eq!(check("pasted text", text), expected, "{text}");
    }
    for (path, text) in [
        ("pasted text", "hello"),
        ("a.toml", "mcp = ["),
        ("a.yaml", "mcp: [}"),
        ("a.yml", "- a\n"),
        ("a.toml", "x = 1\n"),
    ] {
        assert!(check(path, text).starts_with("refused: "), "{path}: {}", check(path, text));
    }
    let large = format!("# {}\n", "x".repeat(1024 * 1024));
    assert_eq!(check("a.toml", &large), "refused: it is larger than 1048576 bytes\n");
}
