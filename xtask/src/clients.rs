//! Real clients against the built program: SDKs of two languages in two generations, and the Inspector.
//!
//! The checks are in `tests/clients`; this task pairs clients and transports. Each conversation is a separate
//! process.

use crate::hub::HubUnderTest;
use crate::layout::Layout;
use crate::node::{NodePackages, renew};
use crate::run::{self, StopMethod};
use crate::{python, steps};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Timeout of one conversation. The scripts have their own of a minute.
const CONVERSATION_LIMIT: Duration = Duration::from_secs(75);
/// Prefix of a passed check in the scripts' output.
const PASSED: &str = "ok    ";

/// The interpreter of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Python1,
    Python2,
    Node,
}

/// The home that a conversation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConversationHome {
    /// A new one: the process that the client starts is the hub.
    Own,
    /// That of the running hub: the process that the client starts bridges to it.
    Hub,
}

/// One conversation: a script and its arguments.
struct Conversation {
    client: &'static str,
    runtime: Runtime,
    script: &'static str,
    arguments: &'static [&'static str],
    home: ConversationHome,
}

const CONVERSATIONS: [Conversation; 30] = [
    python_1(&["stdio"], ConversationHome::Own),
    python_1(&["http"], ConversationHome::Hub),
    python_1(&["sse"], ConversationHome::Hub),
    python_2(&["stdio", "legacy"], ConversationHome::Own),
    python_2(&["stdio", "auto"], ConversationHome::Own),
    python_2(&["stdio", "auto"], ConversationHome::Hub),
    python_2(&["stdio", "2026-07-28"], ConversationHome::Own),
    python_2(&["http", "legacy"], ConversationHome::Hub),
    python_2(&["http", "auto"], ConversationHome::Hub),
    python_2(&["http", "2026-07-28"], ConversationHome::Hub),
    python_2(&["sse", "legacy"], ConversationHome::Hub),
    typescript_1(&["stdio"], ConversationHome::Own),
    typescript_1(&["stdio"], ConversationHome::Hub),
    typescript_1(&["http"], ConversationHome::Hub),
    typescript_1(&["sse"], ConversationHome::Hub),
    typescript_2(&["stdio", "legacy"], ConversationHome::Own),
    typescript_2(&["stdio", "auto"], ConversationHome::Own),
    typescript_2(&["stdio", "2026-07-28"], ConversationHome::Own),
    typescript_2(&["http", "legacy"], ConversationHome::Hub),
    typescript_2(&["http", "auto"], ConversationHome::Hub),
    typescript_2(&["http", "2026-07-28"], ConversationHome::Hub),
    typescript_2(&["sse", "legacy"], ConversationHome::Hub),
    inspector(&["stdio", "legacy"], ConversationHome::Own),
    inspector(&["stdio", "modern"], ConversationHome::Own),
    inspector(&["http", "legacy"], ConversationHome::Hub),
    inspector(&["http", "modern"], ConversationHome::Hub),
    inspector(&["sse", "legacy"], ConversationHome::Hub),
    lifetime(&["stdio"], ConversationHome::Own),
    lifetime(&["stdio"], ConversationHome::Hub),
    lifetime(&["http"], ConversationHome::Own),
];

const fn python_1(arguments: &'static [&'static str], home: ConversationHome) -> Conversation {
    let runtime = Runtime::Python1;
    Conversation { client: "Python SDK 1.x", runtime, script: "mcp1.py", arguments, home }
}

const fn python_2(arguments: &'static [&'static str], home: ConversationHome) -> Conversation {
    let runtime = Runtime::Python2;
    Conversation { client: "Python SDK 2.x", runtime, script: "mcp2.py", arguments, home }
}

const fn typescript_1(arguments: &'static [&'static str], home: ConversationHome) -> Conversation {
    let runtime = Runtime::Node;
    Conversation { client: "TypeScript SDK 1.x", runtime, script: "sdk1.mjs", arguments, home }
}

const fn typescript_2(arguments: &'static [&'static str], home: ConversationHome) -> Conversation {
    let runtime = Runtime::Node;
    Conversation { client: "TypeScript SDK 2.x", runtime, script: "client2.mjs", arguments, home }
}

const fn inspector(arguments: &'static [&'static str], home: ConversationHome) -> Conversation {
    let runtime = Runtime::Node;
    Conversation { client: "Inspector", runtime, script: "inspector.mjs", arguments, home }
}

const fn lifetime(arguments: &'static [&'static str], home: ConversationHome) -> Conversation {
    let runtime = Runtime::Python2;
    Conversation { client: "Ends with a subscription", runtime, script: "lifetime.py", arguments, home }
}

/// Runs every conversation, and returns whether all passed.
pub(crate) fn run(layout: &Layout) -> Result<bool> {
    let runtimes = Runtimes::install(layout)?;
    steps::build(layout)?;
    renew(&layout.work("homes"))?;
    let hub = HubUnderTest::start(layout, new_home(layout, "hub")?, "hub")?;
    let mut failed: Vec<String> = Vec::new();
    for (at, conversation) in CONVERSATIONS.iter().enumerate() {
        let name = conversation.name();
        let home = match conversation.home {
            ConversationHome::Own => new_home(layout, &at.to_string())?,
            ConversationHome::Hub => hub.home.clone(),
        };
        let mut command = runtimes.command(layout, conversation);
        hub.introduce(layout, &mut command, &home);
        let log = layout.log(&format!("conversation-{at}"));
        run::start_log(&log)?;
        let start = Instant::now();
        let outcome = run::logged(&mut command, &log, CONVERSATION_LIMIT, |_| println!("{name} …"))?;
        let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let passed = output.lines().filter(|line| line.starts_with(PASSED)).count();
        let took = start.elapsed().as_secs_f32();
        // A script without checks has not passed.
        if outcome.passed() && passed > 0 {
            println!("{PASSED} {name} ({passed} checks, {took:.1} s)");
        } else {
            println!("\nFAILED {name} ({took:.1} s, {outcome})\n{}\n", output.trim_end());
            failed.push(name);
        }
    }
    let ended = hub.process.end(StopMethod::BySignal)?;
    if ended.passed() {
        println!("{PASSED} The hub ends on SIGTERM");
    } else {
        println!("FAILED The hub ends on SIGTERM: {ended}");
        failed.push("The hub ends on SIGTERM".to_owned());
    }
    println!("\n{} conversations, {} failed", CONVERSATIONS.len(), failed.len());
    failed.iter().for_each(|name| println!("FAILED {name}"));
    Ok(failed.is_empty())
}

impl Conversation {
    fn name(&self) -> String {
        let through = match (self.home, self.arguments.first()) {
            (ConversationHome::Hub, Some(&"stdio")) => ", through a running hub",
            _ => "",
        };
        format!("{}: {}{through}", self.client, self.arguments.join(", "))
    }
}

/// The installed interpreters.
struct Runtimes {
    python_1: PathBuf,
    python_2: PathBuf,
    node: PathBuf,
    /// Where the scripts for Node are.
    node_scripts: PathBuf,
}

impl Runtimes {
    fn install(layout: &Layout) -> Result<Runtimes> {
        let node = NodePackages::install(layout)?;
        Ok(Runtimes {
            python_1: python::install(layout, "mcp-1")?,
            python_2: python::install(layout, "mcp-2")?,
            node: node.program(),
            node_scripts: node.adopt(&layout.root.join("tests/clients/typescript"))?,
        })
    }

    /// Returns the command that runs a conversation's script, without the server to talk to.
    fn command(&self, layout: &Layout, conversation: &Conversation) -> Command {
        let python_scripts = layout.root.join("tests/clients/python");
        let (program, scripts) = match conversation.runtime {
            Runtime::Python1 => (&self.python_1, &python_scripts),
            Runtime::Python2 => (&self.python_2, &python_scripts),
            Runtime::Node => (&self.node, &self.node_scripts),
        };
        let mut command = layout.command(program);
        // Python writes no compiled files next to the sources.
        command
            .arg(scripts.join(conversation.script))
            .args(conversation.arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// Makes a home with the settings and the prompt that the scripts expect.
fn new_home(layout: &Layout, name: &str) -> Result<PathBuf> {
    let home = layout.work("homes").join(name);
    let model = layout.root.join("tests/clients/home");
    fs::create_dir_all(home.join("prompts"))?;
    for file in ["portcullis.toml", "prompts/greet.md"] {
        fs::copy(model.join(file), home.join(file)).with_context(|| format!("tests/clients/home/{file}"))?;
    }
    let config = home.join("portcullis.toml");
    let written = fs::read_to_string(&config)? + &other_server(layout);
    fs::write(&config, written)?;
    Ok(home)
}

/// Returns the configuration of an upstream server, which every client calls too.
fn other_server(layout: &Layout) -> String {
    let program = layout.built("torture");
    format!(
        "\n[mcp.far]\ncommand = {program:?}\nargs = [\"fault-server\"]\ntools = {{ allow = [\"echo\"] }}\n\
         effect = \"read\"\ntrust = \"always\"\n"
    )
}
