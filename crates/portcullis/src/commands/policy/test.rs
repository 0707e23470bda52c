//! `portcullis policy test`: what is decided about a call, and why.
//!
//! It asks the function that decides calls and lists, with the client and the tool as the hub would see them. No hub
//! has to run, and nothing is called.

use super::{effects, now, place, zone_name};
use crate::cli::PolicyTestArgs;
use crate::commands::tools::read_arguments;
use crate::config::{Config, Loaded, moment};
use crate::home::{Home, make_private};
use crate::known_tools::KnownTools;
use crate::mcp::{self, Makers};
use crate::secrets::{self, Asking};
use crate::{BadUsage, compose, print};
use anyhow::{Context, Result};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_core::json::printable;
use portcullis_core::{
    Arguments, Caller, Client, Clock, Decision, EffectSet, Labels, Listing, Origin, Pattern, Reach, Scope,
    SystemClock, ToolDef,
};
use portcullis_guard::{Explanation, Part, Policy, Rule, check_arguments};
use portcullis_store::clients::Directory;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

const ASK: u8 = 3;
const DENY: u8 = 4;
/// How many names are offered for one that nobody knows.
const NEAREST_MAX: usize = 3;

/// Who calls, as far as the hub knows.
enum Who {
    /// At the other end of stdio.
    Local(Arc<Client>),
    /// With a token that is good at the time in question.
    Known(Arc<Client>),
    /// With a token that is not good any more then.
    Expired(Arc<Client>, Timestamp),
    /// Nobody has the name.
    Unknown,
}

impl Who {
    fn client(&self) -> Option<&Arc<Client>> {
        match self {
            Who::Local(client) | Who::Known(client) | Who::Expired(client, _) => Some(client),
            Who::Unknown => None,
        }
    }

    fn is_let_in(&self) -> bool {
        matches!(self, Who::Local(_) | Who::Known(_))
    }
}

/// All there is to say.
struct Answer<'a> {
    name: &'a str,
    who: Who,
    tool_name: &'a str,
    tool: Option<Arc<ToolDef>>,
    /// The server whose settings say all that is known of the tool.
    assumed_of: Option<String>,
    nearest: Vec<String>,
    origin: Origin,
    now: Timestamp,
    zone: &'a TimeZone,
    policy: &'a Policy,
    /// `None` if the rules are not asked.
    explained: Option<Explanation<'a>>,
    decision: Decision,
    /// `None` if no arguments were given, or nobody knows what they should be.
    arguments: Option<Result<(), String>>,
    loaded: &'a Loaded,
}

pub(super) fn run(home: &Home, loaded: &Loaded, args: PolicyTestArgs, as_json: bool) -> Result<ExitCode> {
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

/// Returns the answer as data.
pub(crate) fn answer_json(home: &Home, loaded: &Loaded, args: &PolicyTestArgs) -> Result<Value> {
    answered(home, loaded, args, |answer| answer.json())
}

fn answered<T>(
    home: &Home,
    loaded: &Loaded,
    args: &PolicyTestArgs,
    tell: impl FnOnce(&Answer<'_>) -> T,
) -> Result<T> {
    let zone = &loaded.config.time.zone;
    let now = match &args.at {
        None => now()?,
        Some(text) => moment(text, zone).map_err(|expected| {
            BadUsage(format!("`--at` is \"{}\", expected {expected}", printable(text)))
        })?,
    };
    let arguments = args.arguments.as_deref().map(read_arguments).transpose()?;
    let mut tools = compose::native_tools(&loaded.config)?;
    tools.extend(server_tools(home, &loaded.config)?);
    let tool = tools.iter().find(|tool| tool.name == args.tool).cloned();
    let nearest = if tool.is_some() { Vec::new() } else { nearest(&args.tool, &tools) };
    let (tool, assumed_of) = match (tool, assumed(home, &loaded.config, &args.tool)?) {
        (Some(tool), _) => (Some(tool), None),
        // Where names carry no prefix, a slip in another tool's name is likelier.
        (None, Some((tool, prefix))) if !prefix.is_empty() || nearest.is_empty() => {
            let server = tool.server.clone();
            (Some(Arc::new(tool)), server)
        }
        (None, _) => (None, None),
    };
    let policy = compose::policy(&loaded.config);
    let who = find_client(loaded, &args.client, now)?;
    let explained = match (who.client(), &tool) {
        (Some(client), Some(tool)) if who.is_let_in() => {
            let caller = Caller { client: client.clone(), origin: args.origin };
            Some(policy.explain(&caller, &Listing::of_tool(tool), now))
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
    let answer = Answer {
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

/// Returns the tools of other servers, as a person has let them in.
pub(in crate::commands) fn server_tools(home: &Home, config: &Config) -> Result<Vec<Arc<ToolDef>>> {
    if config.mcp.is_empty() {
        return Ok(Vec::new());
    }
    Ok(mcp::trusted_tools(config, &makers(home, config)?))
}

/// Returns a tool as the settings of a server make it whose tools are let in as they come, and that server's prefix.
fn assumed(home: &Home, config: &Config, name: &str) -> Result<Option<(ToolDef, String)>> {
    let Some(tool) = KnownTools::of(config)?.assumed(name) else { return Ok(None) };
    let makers = makers(home, config)?;
    let server = config.mcp.iter().find(|server| tool.server.as_ref() == Some(&server.name));
    let server = server.filter(|server| makers.is_wanted(server));
    Ok(server.map(|server| (tool, server.prefix.clone())))
}

fn makers(home: &Home, config: &Config) -> Result<Makers> {
    let clock = Arc::new(SystemClock);
    let secrets = Arc::new(secrets::open(home, config, clock.clone(), Asking::Never)?);
    Makers::open(&config.workspace.secure_dir(), secrets, clock)
}

fn find_client(loaded: &Loaded, name: &str, now: Timestamp) -> Result<Who> {
    /// The time in question, for whoever asks for the time.
    struct Then(Timestamp);
    impl Clock for Then {
        fn now(&self) -> SystemTime {
            self.0.into()
        }
    }
    let local = compose::local_client(&loaded.config);
    if local.name == name {
        return Ok(Who::Local(local));
    }
    let secure = loaded.config.workspace.secure_dir();
    make_private(&secure)?;
    let directory = Directory::open(&secure, Arc::new(SystemClock)).context("the list of clients")?;
    let Some(info) = directory.list()?.into_iter().find(|info| info.name == name) else {
        return Ok(Who::Unknown);
    };
    let deny = (!info.deny.is_empty()).then(|| Pattern::new(&info.deny)).transpose()?;
    let scope = Scope { allow: Pattern::new(&info.allow)?, deny, effects: info.effects, view: info.tools };
    let client = Arc::new(Client { name: info.name.clone(), scope, token: None });
    Ok(match info.expires.filter(|_| info.is_expired(&Then(now))) {
        Some(expired) => Who::Expired(client, expired),
        None => Who::Known(client),
    })
}

/// Says which names a client may use.
fn names(scope: &Scope) -> String {
    let allowed = scope.allow.globs().join(" ");
    match &scope.deny {
        Some(deny) => format!("{allowed}, but not {}", deny.globs().join(" ")),
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

impl Answer<'_> {
    fn text(&self) -> String {
        let mut rows = vec![
            vec!["client".to_owned(), self.client_text()],
            vec!["tool".to_owned(), self.tool_text()],
            vec!["call".to_owned(), format!("by way of {}, on {}", self.origin.as_str(), self.time())],
        ];
        if let Some(explained) = &self.explained {
            let scope = match explained.out_of_scope {
                None => "covers it".to_owned(),
                Some(part) => format!("does not cover it: {}", self.scope_why(part)),
            };
            rows.push(vec!["scope".to_owned(), scope]);
            for (at, rule) in self.policy.rules.iter().enumerate() {
                let met = match explained.considered.get(at) {
                    None => "not looked at".to_owned(),
                    Some((_, None)) => "MATCHES".to_owned(),
                    Some((rule, Some(part))) => format!("no: {}", self.why(rule, *part)),
                };
                let place = place(self.loaded, at).unwrap_or_default();
                rows.push(vec![rule.name.clone(), format!("{met} [{}, {place}]", rule.decision.as_str())]);
            }
        }
        if let Some(fit) = &self.arguments {
            let fit = fit.as_ref().map_or_else(Clone::clone, |()| "fit the tool's schema".to_owned());
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
                "local": matches!(self.who, Who::Local(_)),
                "expired": match self.who { Who::Expired(_, at) => Some(at.to_string()), _ => None },
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
            "out_of_scope": self.explained.as_ref().and_then(|explained| explained.out_of_scope).map(Part::as_str),
            "rules": rules,
            "arguments": self.arguments.as_ref().map(|fit| json!({ "fit": fit.is_ok(), "problem": fit.as_ref().err() })),
            "decision": self.decision.as_str(),
            "rule": self.decision.rule(),
            "place": self.place(),
            "next": self.next(),
        })
    }

    /// `matched` is null for a rule that was not looked at.
    fn rule_json(&self, at: usize, rule: &Rule) -> Value {
        let met = self.explained.as_ref().and_then(|explained| explained.considered.get(at));
        let part = met.and_then(|(_, part)| *part);
        json!({
            "name": rule.name,
            "place": place(self.loaded, at),
            "decision": rule.decision.as_str(),
            "matched": met.map(|(_, part)| part.is_none()),
            "mismatch": part.map(Part::as_str),
            "why": part.map(|part| self.why(rule, part)),
        })
    }

    fn client_text(&self) -> String {
        let name = printable(self.name);
        let may = |client: &Client| {
            format!("may {} {}", effects(client.scope.effects).join(", "), names(&client.scope))
        };
        match &self.who {
            Who::Local(client) => format!("`{name}`, who calls on stdio; {}", may(client)),
            Who::Known(client) => format!("`{name}`, known; {}", may(client)),
            Who::Expired(client, at) => format!("`{name}`, expired on {at}; {}", may(client)),
            Who::Unknown => {
                format!("`{name}` is nobody's name; `portcullis clients list` shows who exists")
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
                    None => format!("`{name}`: {effect}, {reach}{labels}; whatever its arguments are"),
                    Some(server) => format!(
                        "`{name}`: {effect}, {reach}{labels}, by the settings of server `{server}`; only a running hub knows whether it has this one, because it is trusted whatever it offers"
                    ),
                }
            }
            (None, []) => format!("`{name}`: nobody registered it; `portcullis tools` shows what exists"),
            (None, nearest) => {
                format!("`{name}`: nobody registered it; did you mean {}?", nearest.join(" or "))
            }
        }
    }

    fn time(&self) -> String {
        let zoned = self.now.to_zoned(self.zone.clone());
        format!("{} ({})", zoned.strftime("%a %Y-%m-%d %H:%M:%S %:z"), zone_name(self.zone))
    }

    fn scope_why(&self, part: Part) -> String {
        let scope = self.who.client().map(|client| &client.scope);
        match part {
            Part::Effects => {
                format!(
                    "the client may only {}",
                    effects(scope.map_or(EffectSet::NONE, |scope| scope.effects)).join(", ")
                )
            }
            _ => format!("the client may only use {}", scope.map(names).unwrap_or_default()),
        }
    }

    fn why(&self, rule: &Rule, part: Part) -> String {
        let wanted = match part {
            Part::Tools => rule.tools.globs().join(" "),
            Part::Clients => rule.clients.globs().join(" "),
            Part::Origins => {
                rule.origins.iter().flatten().map(|origin| origin.as_str()).collect::<Vec<_>>().join(", ")
            }
            Part::Effects => rule.effects.map(effects).unwrap_or_default().join(", "),
            Part::Reach => rule.reach.map(Reach::as_str).unwrap_or_default().to_owned(),
            Part::Labels => rule.labels.map(Labels::names).unwrap_or_default().join(", "),
            Part::Until => rule.when.until.map(|until| until.to_string()).unwrap_or_default(),
            Part::Hours => rule.when.hours.map(|hours| hours.to_string()).unwrap_or_default(),
            Part::Days => rule.when.days.map(|days| days.to_string()).unwrap_or_default(),
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
            (Decision::Deny { .. }, _) if !self.who.is_let_in() => {
                "its requests are refused at the door, with 401"
            }
            (Decision::Deny { .. }, _) => {
                "the call is answered like one of an unknown tool, and no list shows it"
            }
            (_, Some(Err(_))) => "the call is refused for its arguments, before anyone is asked",
            (Decision::Ask { .. }, _) => "a person is asked, and the call runs if they agree",
            (Decision::Allow { .. }, _) => "the call runs",
        }
    }
}
