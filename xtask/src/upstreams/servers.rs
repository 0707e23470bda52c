//! The real servers: how each is started, and its checks.

use super::local_page::{LocalPage, TITLE};
use super::mcp_http;
use crate::hub::HubUnderTest;
use crate::layout::Layout;
use crate::node::NodePackages;
use crate::run::{self, BackgroundProcess};
use crate::{browser, node, python};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The text that the servers echo.
const SAID: &str = "through the gate";

/// One upstream server.
pub(super) struct RealServer {
    pub(super) name: &'static str,
    /// Its settings, besides its name and trust.
    reached: String,
    /// The revision it must negotiate, if it is here for that.
    pub(super) revision: Option<&'static str>,
    pub(super) checks: Vec<ServerCheck>,
}

/// A call, and what its result must contain.
pub(super) struct ServerCheck {
    pub(super) what: &'static str,
    tool: &'static str,
    arguments: Value,
    holds: String,
}

impl RealServer {
    pub(super) fn section(&self) -> String {
        format!("[mcp.{}]\n{}\ntrust = \"always\"\n\n", self.name, self.reached)
    }
}

impl ServerCheck {
    pub(super) fn make(&self, hub: &HubUnderTest, server: &RealServer) -> Result<()> {
        let tool = format!("{}_{}", server.name, self.tool);
        let listed = mcp_http::ask(hub, "tools/list", &json!({}))?;
        let listed = listed["tools"].as_array().cloned().unwrap_or_default();
        if !listed.iter().any(|listed| listed["name"] == tool) {
            let mut names: Vec<&str> = listed.iter().filter_map(|listed| listed["name"].as_str()).collect();
            names.retain(|name| name.starts_with(server.name));
            bail!("`{tool}` is not listed, but: {}", names.join(", "));
        }
        let result = mcp_http::ask(hub, "tools/call", &json!({ "name": tool, "arguments": self.arguments }))?;
        if result["isError"] == true || !mcp_http::text(&result).contains(&self.holds) {
            bail!("no `{}` in {result}", self.holds);
        }
        Ok(())
    }
}

/// Installed programs, and background processes.
pub(super) struct UpstreamsEnvironment {
    node: PathBuf,
    servers: NodePackages,
    python: PathBuf,
    chromium: Option<PathBuf>,
    page: String,
    /// Servers over HTTP. They end with this value.
    running: Vec<BackgroundProcess>,
    pub(super) skipped: Vec<String>,
}

pub(super) fn install(layout: &Layout, page: &LocalPage) -> Result<UpstreamsEnvironment> {
    let node = NodePackages::install(layout)?;
    let mut skipped = Vec::new();
    let chromium = browser::find(layout).map_err(|error| skipped.push(format!("playwright: {error:#}"))).ok();
    Ok(UpstreamsEnvironment {
        node: node.program(),
        servers: NodePackages::packages(
            layout,
            "servers",
            "server-everything, -filesystem, -memory and playwright-mcp",
        )?,
        python: python::install(layout, "servers")?,
        chromium,
        page: format!("http://{}/", page.address),
        running: Vec::new(),
        skipped,
    })
}

impl UpstreamsEnvironment {
    /// Prepares what the servers need in `home`, and starts those that the hub does not start.
    pub(super) fn prepare(&mut self, layout: &Layout, home: &Path) -> Result<Vec<RealServer>> {
        let files = home.join("files");
        fs::create_dir_all(&files)?;
        fs::write(files.join("note.txt"), SAID)?;
        let repository = repository(layout, home)?;
        let everything = self.servers.module("@modelcontextprotocol/server-everything/dist/index.js");
        let echo = |name, reached| RealServer {
            name,
            reached,
            revision: None,
            checks: vec![
                ServerCheck {
                    what: "echoes",
                    tool: "echo",
                    arguments: json!({ "message": SAID }),
                    holds: format!("Echo: {SAID}"),
                },
                ServerCheck {
                    what: "runs a task to its end",
                    tool: "simulate-research-query",
                    arguments: json!({ "topic": SAID }),
                    holds: format!("Research Report: {SAID}"),
                },
            ],
        };
        let over_http = self.serve(layout, &everything, "streamableHttp")?;
        let over_sse = self.serve(layout, &everything, "sse")?;
        let mut servers = vec![
            echo("everything", self.script(&everything, &["stdio"], "")),
            echo("streamable", format!("url = \"http://127.0.0.1:{over_http}/mcp\"")),
            echo("sse", format!("url = \"http://127.0.0.1:{over_sse}/sse\"")),
            RealServer {
                name: "files",
                reached: self.module(
                    "@modelcontextprotocol/server-filesystem/dist/index.js",
                    &[&shown(&files)],
                    "",
                ),
                revision: None,
                checks: vec![ServerCheck {
                    what: "reads a file",
                    tool: "read_text_file",
                    arguments: json!({ "path": files.join("note.txt") }),
                    holds: SAID.to_owned(),
                }],
            },
            self.graph("graph", "@modelcontextprotocol/server-memory/dist/index.js", home, None),
            self.graph("graph24", "server-memory-2024/dist/index.js", home, Some("2024-11-05")),
            RealServer {
                name: "git",
                reached: self.python("mcp_server_git", &["--repository", &shown(&repository)]),
                revision: None,
                checks: vec![ServerCheck {
                    what: "tells the log",
                    tool: "git_log",
                    arguments: json!({ "repo_path": repository }),
                    holds: SAID.to_owned(),
                }],
            },
            RealServer {
                name: "time",
                reached: self.python("mcp_server_time", &["--local-timezone", "Europe/Vienna"]),
                revision: None,
                checks: vec![ServerCheck {
                    what: "converts a time",
                    tool: "convert_time",
                    arguments: json!({ "source_timezone": "UTC", "time": "06:30", "target_timezone": "Asia/Tokyo" }),
                    holds: "15:30".to_owned(),
                }],
            },
        ];
        if let Some(chromium) = &self.chromium {
            let arguments =
                ["--headless", "--isolated", "--no-sandbox", "--executable-path", &shown(chromium)];
            servers.push(RealServer {
                name: "browser",
                reached: self.module("@playwright/mcp/cli.js", &arguments, ""),
                revision: None,
                checks: vec![ServerCheck {
                    what: "opens a page",
                    tool: "browser_navigate",
                    arguments: json!({ "url": self.page }),
                    holds: TITLE.to_owned(),
                }],
            });
        }
        Ok(servers)
    }

    /// A server that stores its data in a file.
    fn graph(
        &self,
        name: &'static str,
        module: &str,
        home: &Path,
        revision: Option<&'static str>,
    ) -> RealServer {
        let file = home.join(format!("{name}.json"));
        let env = format!("env = {{ MEMORY_FILE_PATH = {:?} }}", shown(&file));
        // The old one stores its data next to its program, and refuses the same name in the next run.
        let gate = format!("gate {}", std::process::id());
        let entity = json!({ "name": gate, "entityType": "thing", "observations": [SAID] });
        let check = |what, tool, arguments| ServerCheck { what, tool, arguments, holds: SAID.to_owned() };
        RealServer {
            name,
            reached: self.module(module, &[], &env),
            revision,
            checks: vec![
                check("takes an entity", "create_entities", json!({ "entities": [entity] })),
                check("gives it back", "read_graph", json!({})),
            ],
        }
    }

    fn module(&self, module: &str, arguments: &[&str], more: &str) -> String {
        self.script(&self.servers.module(module), arguments, more)
    }

    fn script(&self, script: &Path, arguments: &[&str], more: &str) -> String {
        let script = shown(script);
        let arguments: Vec<&str> = [script.as_str()].into_iter().chain(arguments.iter().copied()).collect();
        format!("command = {:?}\nargs = {arguments:?}\n{more}", shown(&self.node))
    }

    fn python(&self, module: &str, arguments: &[&str]) -> String {
        let arguments: Vec<&str> = ["-m", module].into_iter().chain(arguments.iter().copied()).collect();
        format!("command = {:?}\nargs = {arguments:?}", shown(&self.python))
    }

    /// Starts server-everything on a port, and returns that.
    fn serve(&mut self, layout: &Layout, script: &Path, transport: &str) -> Result<u16> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = layout.command(&self.node);
        command.arg(script).arg(transport).env("PORT", port.to_string());
        let log = layout.log(&format!("upstreams-{transport}"));
        self.running.push(BackgroundProcess::start(&mut command, &log)?);
        Ok(port)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Makes a git repository with one commit.
fn repository(layout: &Layout, home: &Path) -> Result<PathBuf> {
    let folder = home.join("repository");
    node::renew(&folder)?;
    for words in [&["init", "--quiet"][..], &["commit", "--quiet", "--allow-empty", "--message", SAID]] {
        let mut git = layout.command("git");
        git.current_dir(&folder)
            .args(["-c", "user.name=Test", "-c", "user.email=test@example.com"])
            .args(words);
        run::prepare("git", &mut git, &layout.log("upstreams-git"), run::INSTALL_LIMIT)
            .context("git is needed: apt-get install git")?;
    }
    Ok(folder)
}
