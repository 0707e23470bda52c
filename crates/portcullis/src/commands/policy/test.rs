//! `portcullis policy test`: explains the decision on a call.
//!
//! Evaluates the same function that decides calls and lists, with the client and tool as the hub would see them. Needs
//! no running hub, and calls nothing.

use super::{effects, now, place, zone_name};
use crate::cli::PolicyTestArgs;
use crate::commands::tools::read_arguments;
use crate::config::{Config, LoadedConfig, moment};
use crate::database;
use crate::home::Home;
use crate::known_tools::KnownTools;
use crate::mcp::{self, ServerFactory};
use crate::passphrase::{PassphrasePrompt, open_secrets};
use crate::{BadUsage, print};
use anyhow::Result;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_core::json::printable;
use portcullis_core::{
    Arguments, Caller, Client, Clock, Decision, EffectSet, Labels, Origin, Pattern, PolicySubject, Reach,
    Scope, SystemClock, ToolDef,
};
use portcullis_guard::{Explanation, Policy, PolicyRule, RuleCondition, check_arguments};
use portcullis_ops::{guard_settings, tool_families};
use portcullis_store::clients::ClientDirectory;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

const ASK: u8 = 3;
const DENY: u8 = 4;
/// Suggestions for an unknown name.
const NEAREST_MAX: usize = 3;

/// The client in question.
enum TestedClient {
    /// The stdio client.
    Local(Arc<Client>),
    /// Token valid at the given time.
    Known(Arc<Client>),
    /// Token expired at the given time.
    Expired(Arc<Client>, Timestamp),
    /// No such client.
    Unknown,
}

impl TestedClient {
    fn client(&self) -> Option<&Arc<Client>> {
        match self {
            TestedClient::Local(client) | TestedClient::Known(client) | TestedClient::Expired(client, _) => {
                Some(client)
            }
            TestedClient::Unknown => None,
        }
    }

    fn is_let_in(&self) -> bool {
        matches!(self, TestedClient::Local(_) | TestedClient::Known(_))
    }
}

/// The explanation.
struct PolicyTestReport<'a> {
    name: &'a str,
    who: TestedClient,
    tool_name: &'a str,
    tool: Option<Arc<ToolDef>>,
    /// The server whose settings determine the tool, if it is not pinned.
    assumed_of: Option<String>,
    nearest: Vec<String>,
    origin: Origin,
    now: Timestamp,
    zone: &'a TimeZone,
    policy: &'a Policy,
    /// `None` if the rules are not evaluated.
    explained: Option<Explanation<'a>>,
    decision: Decision,
    /// `None` if no arguments were given, or the schema is unknown.
    arguments: Option<Result<(), String>>,
    loaded: &'a LoadedConfig,
}

pub(super) fn run(
    home: &Home,
    loaded: &LoadedConfig,
    args: PolicyTestArgs,
    as_json: bool,
) -> Result<ExitCode> {
    answered(home, loaded, &args, |answer| {
        if as_json {
            print::json(&answer.json());
        } else {
            print::out(answer.text());
        }
        match answer.decision {
            Decision::Allow { .. } => ExitCode::SUCCESS,
            Decision::Ask { .. } => ExitCode::from(ASK),
            Decision::Deny { .. } => ExitCode::from(DENY),
        }
    })
}

/// Returns the explanation as JSON.
pub(crate) fn answer_json(home: &Home, loaded: &LoadedConfig, args: &PolicyTestArgs) -> Result<Value> {
    answered(home, loaded, args, |answer| answer.json())
}

fn answered<T>(
    home: &Home,
    loaded: &LoadedConfig,
    args: &PolicyTestArgs,
    tell: impl FnOnce(&PolicyTestReport<'_>) -> T,
) -> Result<T> {
    let zone = &loaded.config.time.zone;
    let now = match &args.at {
        None => now()?,
        Some(text) => moment(text, zone).map_err(|expected| {
            BadUsage(format!("`--at` is \"{}\", expected {expected}", printable(text)))
        })?,
    };
    let arguments = args.arguments.as_deref().map(read_arguments).transpose()?;
    let mut tools = tool_families::native_tools(&loaded.config)?;
    tools.extend(server_tools(home, &loaded.config)?);
    let tool = tools.iter().find(|tool| tool.name == args.tool).cloned();
    let nearest = if tool.is_some() { Vec::new() } else { nearest(&args.tool, &tools) };
    let (tool, assumed_of) = match (tool, assumed(home, &loaded.config, &args.tool)?) {
        (Some(tool), _) => (Some(tool), None),
        // Without a prefix, a typo in another tool's name is likelier.
        (None, Some((tool, prefix))) if !prefix.is_empty() || nearest.is_empty() => {
            let server = tool.server.clone();
            (Some(Arc::new(tool)), server)
        }
        (None, _) => (None, None),
    };
    let policy = guard_settings::policy(&loaded.config);
    let who = find_client(loaded, &args.client, now)?;
    let explained = match (who.client(), &tool) {
        (Some(client), Some(tool)) if who.is_let_in() => {
            let caller = Caller { client: client.clone(), origin: args.origin };
            Some(policy.explain(&caller, &PolicySubject::of_tool(tool), now))
        }
        _ => None,
    };
    let decision = match &explained {
        Some(explained) => explained.decision.clone(),
        None if who.is_let_in() => Decision::Deny { rule: "unknown".to_owned() },
        None => Decision::Deny { rule: "identity".to_owned() },
    };
    let arguments = arguments.filter(|_| assumed_of.is_none());
    let arguments = arguments.zip(tool.as_ref()).map(|(value, tool)| {
        check_arguments(tool, &Arguments::of(&value)).map_err(|error| error.message.clone())
    });
    let (name, tool_name, origin) = (args.client.as_str(), args.tool.as_str(), args.origin);
    let answer = PolicyTestReport {
        name,
        who,
        tool_name,
        tool,
        assumed_of,
        nearest,
        origin,
        now,
        zone,
        policy: &policy,
        explained,
        decision,
        arguments,
        loaded,
    };
    Ok(tell(&answer))
}

/// Returns the pinned tools of upstream servers.
pub(in crate::commands) fn server_tools(home: &Home, config: &Config) -> Result<Vec<Arc<ToolDef>>> {
    if config.mcp.is_empty() {
        return Ok(Vec::new());
    }
    Ok(mcp::trusted_tools(config, &makers(home, config)?))
}

/// Returns a tool of an always trusted server, from its settings, and the server.
fn assumed(home: &Home, config: &Config, name: &str) -> Result<Option<(ToolDef, String)>> {
    let Some(tool) = KnownTools::of(config)?.assumed(name) else { return Ok(None) };
    let makers = makers(home, config)?;
    let server = config.mcp.iter().find(|server| tool.server.as_ref() == Some(&server.name));
    let server = server.filter(|server| makers.is_wanted(server));
    Ok(server.map(|server| (tool, server.prefix.clone())))
}

fn makers(home: &Home, config: &Config) -> Result<ServerFactory> {
    let clock = Arc::new(SystemClock);
    let database = database::open_to_look(config)?;
    let secrets = Arc::new(open_secrets(home, config, &database, clock.clone(), PassphrasePrompt::Never)?);
    ServerFactory::open(&config.workspace.secure_dir(), &database, secrets, clock)
}

fn find_client(loaded: &LoadedConfig, name: &str, now: Timestamp) -> Result<TestedClient> {
    /// A clock fixed to the given time.
    struct Then(Timestamp);
    impl Clock for Then {
        fn now(&self) -> SystemTime {
            self.0.into()
        }
    }
    let local = guard_settings::local_client(&loaded.config);
    if local.name == name {
        return Ok(TestedClient::Local(local));
    }
    let directory = ClientDirectory::open(&database::open(&loaded.config)?, Arc::new(SystemClock));
    let Some(info) = directory.list()?.into_iter().find(|info| info.name == name) else {
        return Ok(TestedClient::Unknown);
    };
    let deny = (!info.deny.is_empty()).then(|| Pattern::new(&info.deny)).transpose()?;
    let scope = Scope { allow: Pattern::new(&info.allow)?, deny, effects: info.effects, view: info.tools };
    let client = Arc::new(Client { name: info.name.clone(), scope, token: None });
    Ok(match info.expires.filter(|_| info.is_expired(&Then(now))) {
        Some(expired) => TestedClient::Expired(client, expired),
        None => TestedClient::Known(client),
    })
}

/// Describes the names in a client's scope.
fn names(scope: &Scope) -> String {
    let allowed = scope.allow.globs().join(" ");
    match &scope.deny {
        Some(deny) => format!("{allowed}, except {}", deny.globs().join(" ")),
        None => allowed,
    }
}

fn nearest(name: &str, tools: &[Arc<ToolDef>]) -> Vec<String> {
    let mut near: Vec<(usize, &String)> =
        tools.iter().map(|tool| (strsim::damerau_levenshtein(name, &tool.name), &tool.name)).collect();
    near.sort_unstable();
    let close = near.into_iter().filter(|(distance, known)| *distance <= 2.max(known.len() / 3));
    close.take(NEAREST_MAX).map(|(_, known)| known.clone()).collect()
}

impl PolicyTestReport<'_> {
    fn text(&self) -> String {
        let mut rows = vec![
            vec!["client".to_owned(), self.client_text()],
            vec!["tool".to_owned(), self.tool_text()],
            vec!["call".to_owned(), format!("origin {}, on {}", self.origin.as_str(), self.time())],
        ];
        if let Some(explained) = &self.explained {
            let scope = match explained.out_of_scope {
                None => "allows it".to_owned(),
                Some(part) => format!("denies it: {}", self.scope_why(part)),
            };
            rows.push(vec!["scope".to_owned(), scope]);
            for (at, rule) in self.policy.rules.iter().enumerate() {
                let met = match explained.considered.get(at) {
                    None => "not evaluated".to_owned(),
                    Some((_, None)) => "MATCHES".to_owned(),
                    Some((rule, Some(part))) => format!("no match: {}", self.why(rule, *part)),
                };
                let place = place(self.loaded, at).unwrap_or_default();
                rows.push(vec![rule.name.clone(), format!("{met} [{}, {place}]", rule.decision.as_str())]);
            }
        }
        if let Some(fit) = &self.arguments {
            let fit = fit.as_ref().map_or_else(Clone::clone, |()| "match the tool's schema".to_owned());
            rows.push(vec!["arguments".to_owned(), fit]);
        }
        rows.push(vec!["decision".to_owned(), self.decision_text()]);
        rows.push(vec!["next".to_owned(), self.next().to_owned()]);
        print::table(&rows)
    }

    fn json(&self) -> Value {
        let client = self.who.client();
        let rules: Vec<Value> =
            self.policy.rules.iter().enumerate().map(|(at, rule)| self.rule_json(at, rule)).collect();
        json!({
            "client": {
                "name": self.name,
                "known": client.is_some(),
                "let_in": self.who.is_let_in(),
                "local": matches!(self.who, TestedClient::Local(_)),
                "expired": match self.who { TestedClient::Expired(_, at) => Some(at.to_string()), _ => None },
                "allow": client.map(|client| client.scope.allow.globs()),
                "deny": client.and_then(|client| client.scope.deny.as_ref()).map(Pattern::globs),
                "effects": client.map(|client| effects(client.scope.effects)),
            },
            "tool": {
                "name": self.tool_name,
                "known": self.tool.is_some(),
                "assumed_of": self.assumed_of,
                "effect": self.tool.as_ref().map(|tool| tool.effect.as_str()),
                "reach": self.tool.as_ref().map(|tool| tool.reach.as_str()),
                "labels": self.tool.as_ref().map(|tool| tool.labels.names()),
                "nearest": self.nearest,
            },
            "origin": self.origin.as_str(),
            "at": self.now.to_string(),
            "timezone": zone_name(self.zone),
            "out_of_scope": self.explained.as_ref().and_then(|explained| explained.out_of_scope).map(RuleCondition::as_str),
            "rules": rules,
            "arguments": self.arguments.as_ref().map(|fit| json!({ "fit": fit.is_ok(), "problem": fit.as_ref().err() })),
            "decision": self.decision.as_str(),
            "rule": self.decision.rule(),
            "place": self.place(),
            "next": self.next(),
        })
    }

    /// `matched` is null for a rule that was not evaluated.
    fn rule_json(&self, at: usize, rule: &PolicyRule) -> Value {
        let met = self.explained.as_ref().and_then(|explained| explained.considered.get(at));
        let part = met.and_then(|(_, part)| *part);
        json!({
            "name": rule.name,
            "place": place(self.loaded, at),
            "decision": rule.decision.as_str(),
            "matched": met.map(|(_, part)| part.is_none()),
            "mismatch": part.map(RuleCondition::as_str),
            "why": part.map(|part| self.why(rule, part)),
        })
    }

    fn client_text(&self) -> String {
        let name = printable(self.name);
        let may = |client: &Client| {
            format!("may {} {}", effects(client.scope.effects).join(", "), names(&client.scope))
        };
        match &self.who {
            TestedClient::Local(client) => format!("`{name}`, the stdio client; {}", may(client)),
            TestedClient::Known(client) => format!("`{name}`, known; {}", may(client)),
            TestedClient::Expired(client, at) => format!("`{name}`, expired on {at}; {}", may(client)),
            TestedClient::Unknown => {
                format!("`{name}`: no such client; list them with `portcullis clients list`")
            }
        }
    }

    fn tool_text(&self) -> String {
        let name = printable(self.tool_name);
        match (&self.tool, self.nearest.as_slice()) {
            (Some(tool), _) => {
                let labels: String = tool.labels.iter().map(|label| format!(", {label}")).collect();
                let (effect, reach) = (tool.effect, tool.reach.as_str());
                match &self.assumed_of {
                    None => format!("`{name}`: {effect}, {reach}{labels}; its schema is unknown"),
                    Some(server) => format!(
                        "`{name}`: {effect}, {reach}{labels}, from the settings of server `{server}`; it is always trusted, so only a running hub knows whether the tool exists"
                    ),
                }
            }
            (None, []) => format!("`{name}`: no such tool; list them with `portcullis tools`"),
            (None, nearest) => {
                format!("`{name}`: no such tool; did you mean {}?", nearest.join(" or "))
            }
        }
    }

    fn time(&self) -> String {
        let zoned = self.now.to_zoned(self.zone.clone());
        format!("{} ({})", zoned.strftime("%a %Y-%m-%d %H:%M:%S %:z"), zone_name(self.zone))
    }

    fn scope_why(&self, part: RuleCondition) -> String {
        let scope = self.who.client().map(|client| &client.scope);
        match part {
            RuleCondition::Effects => {
                format!(
                    "the client may only {}",
                    effects(scope.map_or(EffectSet::NONE, |scope| scope.effects)).join(", ")
                )
            }
            _ => format!("the client may only use {}", scope.map(names).unwrap_or_default()),
        }
    }

    fn why(&self, rule: &PolicyRule, part: RuleCondition) -> String {
        let wanted = match part {
            RuleCondition::Tools => rule.tools.globs().join(" "),
            RuleCondition::Clients => rule.clients.globs().join(" "),
            RuleCondition::Origins => {
                rule.origins.iter().flatten().map(|origin| origin.as_str()).collect::<Vec<_>>().join(", ")
            }
            RuleCondition::Effects => rule.effects.map(effects).unwrap_or_default().join(", "),
            RuleCondition::Reach => rule.reach.map(Reach::as_str).unwrap_or_default().to_owned(),
            RuleCondition::Labels => rule.labels.map(Labels::names).unwrap_or_default().join(", "),
            RuleCondition::Until => rule.when.until.map(|until| until.to_string()).unwrap_or_default(),
            RuleCondition::Hours => rule.when.hours.map(|hours| hours.to_string()).unwrap_or_default(),
            RuleCondition::Days => rule.when.days.map(|days| days.to_string()).unwrap_or_default(),
        };
        format!("`{}` is {wanted}", part.as_str())
    }

    fn place(&self) -> Option<String> {
        let at = self.policy.rules.iter().position(|rule| rule.name == self.decision.rule())?;
        place(self.loaded, at)
    }

    fn decision_text(&self) -> String {
        let (decision, rule) = (self.decision.as_str(), self.decision.rule());
        match self.place() {
            Some(place) => format!("{decision}, by {rule} at {place}"),
            None => format!("{decision}, by {rule}"),
        }
    }

    fn next(&self) -> &'static str {
        match (&self.decision, &self.arguments) {
            (Decision::Deny { .. }, _) if !self.who.is_let_in() => "its requests are refused with 401",
            (Decision::Deny { .. }, _) => {
                "the tool is hidden from the client, and a call gets `Unknown tool`"
            }
            (_, Some(Err(_))) => "the call is refused for its arguments, before approval",
            (Decision::Ask { .. }, _) => "the call needs approval by a person",
            (Decision::Allow { .. }, _) => "the call runs",
        }
    }
}
