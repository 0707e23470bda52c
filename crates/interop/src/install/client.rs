//! Supported client applications: configuration file, section and entry format.

use super::{ENTRY_NAME, Endpoint, InstallError, Transport};
use crate::client_file;
use portcullis_config::{Environment, jsonc};
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Placeholder of an unknown token.
const TOKEN_PLACEHOLDER: &str = "YOUR_TOKEN";

/// Whether an application is on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppPresence {
    Absent,
    Found,
    /// It has an entry of the hub.
    Configured,
}

/// An MCP client application.
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

    /// Returns the command line name.
    pub fn as_str(self) -> &'static str {
        match self {
            ClientApp::ClaudeDesktop => "claude-desktop",
            ClientApp::ClaudeCode => "claude-code",
            ClientApp::Cursor => "cursor",
            ClientApp::VsCode => "vscode",
            ClientApp::OpenCode => "opencode",
        }
    }

    /// Returns the display name.
    pub fn title(self) -> &'static str {
        match self {
            ClientApp::ClaudeDesktop => "Claude Desktop",
            ClientApp::ClaudeCode => "Claude Code",
            ClientApp::Cursor => "Cursor",
            ClientApp::VsCode => "VS Code",
            ClientApp::OpenCode => "OpenCode",
        }
    }

    /// Returns the transport to use for `wanted`.
    ///
    /// Claude Desktop's file supports local commands only.
    pub fn transport(self, wanted: Transport) -> Transport {
        match self {
            ClientApp::ClaudeDesktop => Transport::Stdio,
            ClientApp::ClaudeCode | ClientApp::Cursor | ClientApp::VsCode | ClientApp::OpenCode => wanted,
        }
    }

    /// Returns a note on the entry, if any.
    pub fn note(self, wanted: Transport) -> Option<&'static str> {
        (self.transport(wanted) != wanted).then_some(
            "Claude Desktop supports stdio servers only, so this entry starts `portcullis stdio`; restart Claude Desktop afterwards",
        )
    }

    /// Returns the configuration file of this client.
    pub fn path(self, folders: &ClientFolders) -> PathBuf {
        match self {
            ClientApp::ClaudeDesktop => folders.app_config.join("Claude/claude_desktop_config.json"),
            ClientApp::ClaudeCode => folders.claude.join(".claude.json"),
            ClientApp::Cursor => folders.home.join(".cursor/mcp.json"),
            ClientApp::VsCode => folders.app_config.join("Code/User/mcp.json"),
            ClientApp::OpenCode => {
                let folder = folders.xdg_config.join("opencode");
                // It reads both; the second takes precedence.
                let with_comments = folder.join("opencode.jsonc");
                if with_comments.exists() { with_comments } else { folder.join("opencode.json") }
            }
        }
    }

    /// Returns whether the application is on this machine, and knows the hub. Reads no more than its file.
    pub fn presence(self, folders: &ClientFolders) -> AppPresence {
        let path = self.path(folders);
        let is_there = path.is_file() || self.traces(folders).iter().any(|trace| trace.exists());
        if !is_there {
            return AppPresence::Absent;
        }
        let text = client_file::read(&path).unwrap_or_default();
        let knows_hub = jsonc::parse_as_others(&text).is_ok_and(|(file, _)| {
            let section = self.section(&file).iter().try_fold(&file, |value, key| value.get(key));
            section.is_some_and(|section| section.get(ENTRY_NAME).is_some())
        });
        if knows_hub { AppPresence::Configured } else { AppPresence::Found }
    }

    /// Returns what the application leaves behind, besides its file.
    fn traces(self, folders: &ClientFolders) -> Vec<PathBuf> {
        match self {
            ClientApp::ClaudeDesktop => vec![folders.app_config.join("Claude")],
            ClientApp::ClaudeCode => vec![folders.home.join(".claude")],
            ClientApp::Cursor => vec![folders.home.join(".cursor")],
            ClientApp::VsCode => vec![folders.app_config.join("Code/User")],
            ClientApp::OpenCode => vec![folders.xdg_config.join("opencode"), folders.home.join(".opencode")],
        }
    }

    /// Returns the application's own command that adds the entry, if it has one.
    pub fn add_command(self, wanted: Transport, endpoint: &Endpoint) -> Option<String> {
        if self != ClientApp::ClaudeCode {
            return None;
        }
        let entry = self.entry(wanted, endpoint, &Value::Null);
        let text = |value: &Value| shell_word(value.as_str().unwrap_or_default());
        let words: Vec<String> = match wanted {
            Transport::Stdio => {
                let args = entry["args"].as_array().into_iter().flatten().map(text);
                [ENTRY_NAME.to_owned(), "--".to_owned(), text(&entry["command"])]
                    .into_iter()
                    .chain(args)
                    .collect()
            }
            Transport::Http => {
                let authorization = entry["headers"]["Authorization"].as_str().unwrap_or_default();
                let header = shell_word(&format!("Authorization: {authorization}"));
                ["--transport", "http", ENTRY_NAME, endpoint.url.as_str(), "--header", header.as_str()]
                    .map(str::to_owned)
                    .to_vec()
            }
        };
        Some(format!("claude mcp add --scope user {}", words.join(" ")))
    }

    /// Returns the path of the servers section, given the file's contents.
    pub(super) fn section(self, file: &Value) -> &'static [&'static str] {
        match self {
            ClientApp::ClaudeDesktop | ClientApp::ClaudeCode | ClientApp::Cursor => &["mcpServers"],
            ClientApp::VsCode => &["servers"],
            ClientApp::OpenCode if is_opencode_2(file) => &["mcp", "servers"],
            ClientApp::OpenCode => &["mcp"],
        }
    }

    /// Returns the entry.
    pub(super) fn entry(self, wanted: Transport, endpoint: &Endpoint, file: &Value) -> Value {
        let binary = text_of(&endpoint.binary);
        // Named, so that its scope, expiry and revocation apply here too.
        let args = ["--home", &text_of(&endpoint.home), "stdio", "--client", &endpoint.client];
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
            // It infers the transport from the URL.
            (ClientApp::Cursor, Transport::Http) => json!({ "url": url, "headers": headers }),
            (ClientApp::OpenCode, Transport::Stdio) => {
                let command: Vec<&str> = std::iter::once(binary.as_ref()).chain(args).collect();
                json!({ "type": "local", "command": command })
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
                "unsupported application `{}`; expected one of {names}",
                portcullis_core::json::printable(text)
            )
        })
    }
}

/// Returns whether a file is of OpenCode 2, which nests servers one level deeper and has no `enabled`.
fn is_opencode_2(file: &Value) -> bool {
    // In version 1 this would be a server named `servers`, which has a type.
    file["mcp"]["servers"]
        .as_object()
        .is_some_and(|servers| !servers.get("type").is_some_and(Value::is_string))
}

/// Quotes a word for a POSIX shell, where that is needed.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,~".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) && !word.starts_with('~') {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Operating system, for folder conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    Linux,
    MacOs,
    Windows,
}

impl Platform {
    /// Returns the build target's system.
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

/// Base folders of client configuration.
#[derive(Debug, Clone)]
pub struct ClientFolders {
    home: PathBuf,
    /// Settings of desktop applications.
    app_config: PathBuf,
    /// XDG config folder, for applications that use it on every system.
    xdg_config: PathBuf,
    claude: PathBuf,
}

impl ClientFolders {
    /// Finds the folders from the environment.
    pub fn from_env(platform: Platform, env: Environment<'_>) -> Result<ClientFolders, InstallError> {
        // A relative path would depend on the working directory.
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
        Ok(ClientFolders { home, app_config, xdg_config, claude })
    }
}
