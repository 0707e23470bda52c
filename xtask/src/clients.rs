//! Real clients against the built program: SDKs of two languages in two generations, and the Inspector.
//!
//! What they check is in `tests/clients`; here is who talks to whom. Each conversation is a process of its own.

use crate::hub::Hub;
use crate::layout::Layout;
use crate::node::{Node, renew};
use crate::run::{self, Told};
use crate::{python, steps};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// One conversation. The scripts give themselves a minute.
const CONVERSATION_LIMIT: Duration = Duration::from_secs(75);
/// How the scripts begin the line of a check that passed.
const PASSED: &str = "ok    ";

/// What a script runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Python1,
    Python2,
    Node,
}

/// Whose home a conversation takes place in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A new one, where the process that the client starts is the hub.
    Own,
    /// That of the running hub, to which a process that the client starts passes everything on.
    Hub,
}

/// One conversation: a script and its arguments.
struct Conversation {
    client: &'static str,
    runtime: Runtime,
    script: &'static str,
    arguments: &'static [&'static str],
    place: Place,
}

const CONVERSATIONS: [Conversation; 30] = [
    python_1(&["stdio"], Place::Own),
    python_1(&["http"], Place::Hub),
    python_1(&["sse"], Place::Hub),
    python_2(&["stdio", "legacy"], Place::Own),
    python_2(&["stdio", "auto"], Place::Own),
    python_2(&["stdio", "auto"], Place::Hub),
    python_2(&["stdio", "2026-07-28"], Place::Own),
    python_2(&["http", "legacy"], Place::Hub),
    python_2(&["http", "auto"], Place::Hub),
    python_2(&["http", "2026-07-28"], Place::Hub),
    python_2(&["sse", "legacy"], Place::Hub),
    typescript_1(&["stdio"], Place::Own),
    typescript_1(&["stdio"], Place::Hub),
    typescript_1(&["http"], Place::Hub),
    typescript_1(&["sse"], Place::Hub),
    typescript_2(&["stdio", "legacy"], Place::Own),
    typescript_2(&["stdio", "auto"], Place::Own),
    typescript_2(&["stdio", "2026-07-28"], Place::Own),
    typescript_2(&["http", "legacy"], Place::Hub),
    typescript_2(&["http", "auto"], Place::Hub),
    typescript_2(&["http", "2026-07-28"], Place::Hub),
    typescript_2(&["sse", "legacy"], Place::Hub),
    inspector(&["stdio", "legacy"], Place::Own),
    inspector(&["stdio", "modern"], Place::Own),
    inspector(&["http", "legacy"], Place::Hub),
    inspector(&["http", "modern"], Place::Hub),
    inspector(&["sse", "legacy"], Place::Hub),
    lifetime(&["stdio"], Place::Own),
    lifetime(&["stdio"], Place::Hub),
    lifetime(&["http"], Place::Own),
];

const fn python_1(arguments: &'static [&'static str], place: Place) -> Conversation {
    let runtime = Runtime::Python1;
    Conversation { client: "Python SDK 1.x", runtime, script: "mcp1.py", arguments, place }
}

const fn python_2(arguments: &'static [&'static str], place: Place) -> Conversation {
    let runtime = Runtime::Python2;
    Conversation { client: "Python SDK 2.x", runtime, script: "mcp2.py", arguments, place }
}

const fn typescript_1(arguments: &'static [&'static str], place: Place) -> Conversation {
    let runtime = Runtime::Node;
    Conversation { client: "TypeScript SDK 1.x", runtime, script: "sdk1.mjs", arguments, place }
}

const fn typescript_2(arguments: &'static [&'static str], place: Place) -> Conversation {
    let runtime = Runtime::Node;
    Conversation { client: "TypeScript SDK 2.x", runtime, script: "client2.mjs", arguments, place }
}

const fn inspector(arguments: &'static [&'static str], place: Place) -> Conversation {
    let runtime = Runtime::Node;
    Conversation { client: "Inspector", runtime, script: "inspector.mjs", arguments, place }
}

const fn lifetime(arguments: &'static [&'static str], place: Place) -> Conversation {
    let runtime = Runtime::Python2;
    Conversation { client: "Ends with a subscription", runtime, script: "lifetime.py", arguments, place }
}

/// Runs every conversation, and returns whether all was well.
pub(crate) fn run(layout: &Layout) -> Result<bool> {
    let runtimes = Runtimes::install(layout)?;
    steps::build(layout)?;
    renew(&layout.work("homes"))?;
    let hub = Hub::start(layout, new_home(layout, "hub")?, "hub")?;
    let mut failed: Vec<String> = Vec::new();
    for (at, conversation) in CONVERSATIONS.iter().enumerate() {
        let name = conversation.name();
        let home = match conversation.place {
            Place::Own => new_home(layout, &at.to_string())?,
            Place::Hub => hub.home.clone(),
        };
        let mut command = runtimes.command(layout, conversation);
        hub.introduce(layout, &mut command, &home);
        let log = layout.log(&format!("conversation-{at}"));
        run::start_log(&log)?;
        let start = Instant::now();
        let outcome = run::logged(&mut command, &log, CONVERSATION_LIMIT, |_| println!("{name} …"))?;
        let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let passed = said.lines().filter(|line| line.starts_with(PASSED)).count();
        let took = start.elapsed().as_secs_f32();
        // A script that checked nothing has not passed.
        if outcome.passed() && passed > 0 {
            println!("{PASSED} {name} ({passed} checks, {took:.1} s)");
        } else {
            println!("\nFAILED {name} ({took:.1} s, {outcome})\n{}\n", said.trim_end());
            failed.push(name);
        }
    }
    let ended = hub.process.end(Told::BySignal)?;
    if ended.passed() {
        println!("{PASSED} The hub ends when it is told to");
    } else {
        println!("FAILED The hub ends when it is told to: {ended}");
        failed.push("The hub ends when it is told to".to_owned());
    }
    println!("\n{} conversations, {} failed", CONVERSATIONS.len(), failed.len());
    failed.iter().for_each(|name| println!("FAILED {name}"));
    Ok(failed.is_empty())
}

impl Conversation {
    fn name(&self) -> String {
        let through = match (self.place, self.arguments.first()) {
            (Place::Hub, Some(&"stdio")) => ", through a running hub",
            _ => "",
        };
        format!("{}: {}{through}", self.client, self.arguments.join(", "))
    }
}

/// What the scripts run under, installed.
struct Runtimes {
    python_1: PathBuf,
    python_2: PathBuf,
    node: PathBuf,
    /// Where the scripts for Node are.
    node_scripts: PathBuf,
}

impl Runtimes {
    fn install(layout: &Layout) -> Result<Runtimes> {
        let node = Node::install(layout)?;
        Ok(Runtimes {
            python_1: python::install(layout, "mcp-1")?,
            python_2: python::install(layout, "mcp-2")?,
            node: node.program(),
            node_scripts: node.adopt(&layout.root.join("tests/clients/typescript"))?,
        })
    }

    /// Returns the command that runs a conversation's script, so far without saying with whom it shall talk.
    fn command(&self, layout: &Layout, conversation: &Conversation) -> Command {
        let python_scripts = layout.root.join("tests/clients/python");
        let (program, scripts) = match conversation.runtime {
            Runtime::Python1 => (&self.python_1, &python_scripts),
            Runtime::Python2 => (&self.python_2, &python_scripts),
            Runtime::Node => (&self.node, &self.node_scripts),
        };
        let mut command = layout.command(program);
        // Python leaves no compiled files next to the sources.
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

/// Returns the section of a server behind the hub, which every client calls too.
fn other_server(layout: &Layout) -> String {
    let program = layout.built("torture");
    format!(
        "\n[mcp.far]\ncommand = {program:?}\nargs = [\"fault-server\"]\ntools = {{ allow = [\"echo\"] }}\n\
         effect = \"read\"\ntrust = \"always\"\n"
    )
}
