//! The programs that Portcullis can be added to: where each keeps its servers, and in which form.

use super::{Endpoint, InstallError, Transport};
use crate::config::Environment;
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Stands where a token belongs that is not known.
const TOKEN_PLACEHOLDER: &str = "YOUR_TOKEN";

/// A program that talks MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientApp {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    VsCode,
    OpenCode,
}

impl ClientApp {
    pub const ALL: [ClientApp; 5] = [
        ClientApp::ClaudeDesktop,
        ClientApp::ClaudeCode,
        ClientApp::Cursor,
        ClientApp::VsCode,
        ClientApp::OpenCode,
    ];

    /// Returns the name used on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            ClientApp::ClaudeDesktop => "claude-desktop",
            ClientApp::ClaudeCode => "claude-code",
            ClientApp::Cursor => "cursor",
            ClientApp::VsCode => "vscode",
            ClientApp::OpenCode => "opencode",
        }
    }

    /// Returns the name that people know.
    pub fn title(self) -> &'static str {
        match self {
            ClientApp::ClaudeDesktop => "Claude Desktop",
            ClientApp::ClaudeCode => "Claude Code",
            ClientApp::Cursor => "Cursor",
            ClientApp::VsCode => "VS Code",
            ClientApp::OpenCode => "OpenCode",
        }
    }

    /// Returns the transport that an entry for this client uses when `wanted` is asked for.
    ///
    /// Claude Desktop's file takes only programs to start; an address in it is dropped.
    pub fn transport(self, wanted: Transport) -> Transport {
        match self {
            ClientApp::ClaudeDesktop => Transport::Stdio,
            ClientApp::ClaudeCode | ClientApp::Cursor | ClientApp::VsCode | ClientApp::OpenCode => wanted,
        }
    }

    /// Returns what a person should know about an entry, if anything.
    pub fn note(self, wanted: Transport) -> Option<&'static str> {
        (self.transport(wanted) != wanted).then_some(
            "Claude Desktop's file knows stdio servers only, so this entry starts `portcullis stdio`; restart Claude Desktop afterwards",
        )
    }

    /// Returns the file that holds this client's servers.
    pub(crate) fn path(self, places: &Places) -> PathBuf {
        match self {
            ClientApp::ClaudeDesktop => places.app_config.join("Claude/claude_desktop_config.json"),
            ClientApp::ClaudeCode => places.claude.join(".claude.json"),
            ClientApp::Cursor => places.home.join(".cursor/mcp.json"),
            ClientApp::VsCode => places.app_config.join("Code/User/mcp.json"),
            ClientApp::OpenCode => {
                let folder = places.xdg_config.join("opencode");
                // It reads both and lets the second win.
                let with_comments = folder.join("opencode.jsonc");
                if with_comments.exists() { with_comments } else { folder.join("opencode.json") }
            }
        }
    }

    /// Returns the keys under which this client looks for servers, given what its file holds.
    pub(super) fn section(self, file: &Value) -> &'static [&'static str] {
        match self {
            ClientApp::ClaudeDesktop | ClientApp::ClaudeCode | ClientApp::Cursor => &["mcpServers"],
            ClientApp::VsCode => &["servers"],
            ClientApp::OpenCode if is_opencode_2(file) => &["mcp", "servers"],
            ClientApp::OpenCode => &["mcp"],
        }
    }

    /// Returns the entry itself.
    pub(super) fn entry(self, wanted: Transport, endpoint: &Endpoint, file: &Value) -> Value {
        let binary = text_of(&endpoint.binary);
        let args = json!(["--home", text_of(&endpoint.home), "stdio"]);
        let token = endpoint.token.as_ref().map_or(TOKEN_PLACEHOLDER, |token| token.expose().as_str());
        let headers = json!({ "Authorization": format!("Bearer {token}") });
        let url = &endpoint.url;
        let mut entry = match (self, self.transport(wanted)) {
            (ClientApp::ClaudeDesktop, _) => json!({ "command": binary, "args": args }),
            (ClientApp::ClaudeCode | ClientApp::VsCode | ClientApp::Cursor, Transport::Stdio) => {
                json!({ "type": "stdio", "command": binary, "args": args })
            }
            (ClientApp::ClaudeCode | ClientApp::VsCode, Transport::Http) => {
                json!({ "type": "http", "url": url, "headers": headers })
            }
            // It tells the transport by the address.
            (ClientApp::Cursor, Transport::Http) => json!({ "url": url, "headers": headers }),
            (ClientApp::OpenCode, Transport::Stdio) => {
                json!({ "type": "local", "command": [binary, "--home", text_of(&endpoint.home), "stdio"] })
            }
            (ClientApp::OpenCode, Transport::Http) => {
                json!({ "type": "remote", "url": url, "headers": headers })
            }
        };
        if self == ClientApp::OpenCode && !is_opencode_2(file) {
            entry["enabled"] = json!(true);
        }
        entry
    }
}

impl fmt::Display for ClientApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ClientApp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        ClientApp::ALL.into_iter().find(|client| client.as_str() == text).ok_or_else(|| {
            let names = ClientApp::ALL.map(ClientApp::as_str).join(", ");
            format!(
                "`{}` is not a client that can be set up; expected one of {names}",
                portcullis_core::json::printable(text)
            )
        })
    }
}

/// Returns whether a file is of OpenCode 2, which keeps servers one level deeper and has no `enabled`.
fn is_opencode_2(file: &Value) -> bool {
    // In version 1 this would be a server called `servers`, and a server has a type.
    file["mcp"]["servers"]
        .as_object()
        .is_some_and(|servers| !servers.get("type").is_some_and(Value::is_string))
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Which system's folders to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    Linux,
    MacOs,
    Windows,
}

impl Platform {
    /// Returns the system that this program was built for.
    pub fn current() -> Platform {
        if cfg!(target_os = "macos") {
            Platform::MacOs
        } else if cfg!(windows) {
            Platform::Windows
        } else {
            Platform::Linux
        }
    }
}

/// The folders in which clients keep their files.
#[derive(Debug, Clone)]
pub struct Places {
    home: PathBuf,
    /// Where desktop programs keep their settings.
    app_config: PathBuf,
    /// Where programs look that follow XDG on every system.
    xdg_config: PathBuf,
    claude: PathBuf,
}

impl Places {
    /// Finds the folders from the environment.
    pub fn from_env(platform: Platform, env: Environment<'_>) -> Result<Places, InstallError> {
        // A relative path would mean another file in every working folder.
        let folder = |name: &str| env(name).map(PathBuf::from).filter(|path| path.has_root());
        let home_variable = if platform == Platform::Windows { "USERPROFILE" } else { "HOME" };
        let home = folder(home_variable).ok_or(InstallError::NoHome { variable: home_variable })?;
        let xdg_config = folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let app_config = match platform {
            Platform::Linux => xdg_config.clone(),
            Platform::MacOs => home.join("Library/Application Support"),
            Platform::Windows => folder("APPDATA").unwrap_or_else(|| home.join("AppData/Roaming")),
        };
        let claude = folder("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.clone());
        Ok(Places { home, app_config, xdg_config, claude })
    }
}
