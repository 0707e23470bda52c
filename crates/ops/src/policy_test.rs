//! Policy test: explains the decision on a call.
//!
//! Evaluates the same function that decides calls and lists, with the client and tool as the hub would see them. Needs
//! no running hub, and calls nothing.

use crate::config::{Config, LoadedConfig, moment};
use crate::config_file::load;
use crate::context::Operations;
use crate::desk::TestPolicy;
use crate::known_tools::KnownTools;
use crate::mcp;
use crate::policy::{effect_names, now, place};
use crate::{Problem, guard_settings, tool_families};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_core::json::printable;
use portcullis_core::{
    Arguments, Caller, Client, Clock, Decision, EffectSet, Labels, Origin, Pattern, PolicySubject, Reach,
    Scope, ToolDef,
};
use portcullis_guard::{Explanation, Policy, PolicyRule, RuleCondition, check_arguments};
use portcullis_text::nearest_names;
use std::sync::Arc;
use std::time::SystemTime;

/// The client in question.
pub enum TestedClient {
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
    pub fn client(&self) -> Option<&Arc<Client>> {
        match self {
            TestedClient::Local(client) | TestedClient::Known(client) | TestedClient::Expired(client, _) => {
                Some(client)
            }
            TestedClient::Unknown => None,
        }
    }

    pub fn is_let_in(&self) -> bool {
        matches!(self, TestedClient::Local(_) | TestedClient::Known(_))
    }
}

/// The explanation.
pub struct PolicyTestReport<'a> {
    pub name: &'a str,
    pub who: TestedClient,
    pub tool_name: &'a str,
    pub tool: Option<Arc<ToolDef>>,
    /// The server whose settings determine the tool, if it is not pinned.
    pub assumed_of: Option<String>,
    pub nearest: Vec<String>,
    pub origin: Origin,
    pub now: Timestamp,
    pub zone: &'a TimeZone,
    pub policy: &'a Policy,
    /// `None` if the rules are not evaluated.
    pub explained: Option<Explanation<'a>>,
    pub decision: Decision,
    /// `None` if no arguments were given, or the schema is unknown.
    pub arguments: Option<Result<(), String>>,
    pub loaded: &'a LoadedConfig,
}

impl Operations {
    /// Explains the decision on a call, and shows the explanation with `show`.
    pub fn explain_policy<T>(
        &self,
        question: &TestPolicy,
        show: impl FnOnce(&PolicyTestReport<'_>) -> T,
    ) -> Result<T, Problem> {
        let loaded = &load(&self.home)?;
        let (config, zone) = (&loaded.config, &loaded.config.time.zone);
        let origin = origin_of(question.origin.as_deref())?;
        let now = match question.at.as_deref().filter(|at| !at.trim().is_empty()) {
            None => now()?,
            Some(text) => moment(text, zone).map_err(|expected| {
                Problem::invalid(format!("`at` is \"{}\", expected {expected}", printable(text)))
            })?,
        };
        let arguments = question.arguments.as_ref();
        if arguments.is_some_and(|arguments| !arguments.is_object()) {
            return Err(Problem::invalid("`arguments` must be a JSON object"));
        }
        let mut tools = tool_families::native_tools(config)?;
        tools.extend(self.pinned_tools(config)?);
        let tool = tools.iter().find(|tool| tool.name == question.tool).cloned();
        let names = tools.iter().filter(|_| tool.is_none()).map(|tool| tool.name.as_str());
        let nearest: Vec<String> =
            nearest_names(&question.tool, names).into_iter().map(str::to_owned).collect();
        let (tool, assumed_of) = match (tool, self.assumed(config, &question.tool)?) {
            (Some(tool), _) => (Some(tool), None),
            // Without a prefix, a typo in another tool's name is likelier.
            (None, Some((tool, prefix))) if !prefix.is_empty() || nearest.is_empty() => {
                let server = tool.server.clone();
                (Some(Arc::new(tool)), server)
            }
            (None, _) => (None, None),
        };
        let policy = guard_settings::policy(config);
        let who = self.tested_client(config, &question.client, now)?;
        let explained = match (who.client(), &tool) {
            (Some(client), Some(tool)) if who.is_let_in() => {
                let caller = Caller::new(client.clone(), origin);
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
            check_arguments(tool, &Arguments::of(value)).map_err(|error| error.message.clone())
        });
        Ok(show(&PolicyTestReport {
            name: &question.client,
            who,
            tool_name: &question.tool,
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
        }))
    }

    /// Returns the pinned tools of upstream servers.
    pub fn pinned_tools(&self, config: &Config) -> Result<Vec<Arc<ToolDef>>, Problem> {
        if config.mcp.is_empty() {
            return Ok(Vec::new());
        }
        Ok(mcp::trusted_tools(config, self.server_factory()?))
    }

    /// Returns a tool of an always trusted server, from its settings, and the server's prefix.
    fn assumed(&self, config: &Config, name: &str) -> Result<Option<(ToolDef, String)>, Problem> {
        let Some(tool) = KnownTools::of(config, None)?.assumed(name) else { return Ok(None) };
        let factory = self.server_factory()?;
        let server = config.mcp.iter().find(|server| tool.server.as_ref() == Some(&server.name));
        let server = server.filter(|server| factory.is_wanted(server));
        Ok(server.map(|server| (tool, server.prefix.clone())))
    }

    pub(crate) fn tested_client(
        &self,
        config: &Config,
        name: &str,
        now: Timestamp,
    ) -> Result<TestedClient, Problem> {
        /// A clock fixed to the given time.
        struct Then(Timestamp);
        impl Clock for Then {
            fn now(&self) -> SystemTime {
                self.0.into()
            }
        }
        let local = guard_settings::local_client(config);
        if local.name == name {
            return Ok(TestedClient::Local(local));
        }
        let Some(info) = self.list_clients()?.into_iter().find(|info| info.name == name) else {
            return Ok(TestedClient::Unknown);
        };
        let glob =
            |globs: &[String]| Pattern::new(globs).map_err(|error| Problem::unavailable(error.to_string()));
        let deny = (!info.deny.is_empty()).then(|| glob(&info.deny)).transpose()?;
        let (allow, effects, view) = (glob(&info.allow)?, info.effects, info.tools);
        let scope = Scope { allow, deny, effects, view, ..Scope::everything() };
        let client = Arc::new(Client { name: info.name.clone(), scope, token: None });
        Ok(match info.expires.filter(|_| info.is_expired(&Then(now))) {
            Some(expired) => TestedClient::Expired(client, expired),
            None => TestedClient::Known(client),
        })
    }
}

fn origin_of(name: Option<&str>) -> Result<Origin, Problem> {
    let name = name.unwrap_or(Origin::Client.as_str());
    Origin::parse(name).ok_or_else(|| {
        let names = Origin::ALL.map(Origin::as_str).join(", ");
        Problem::invalid(format!("invalid `origin`: expected one of {names}"))
    })
}

/// Describes the names in a client's scope.
pub fn scope_names(scope: &Scope) -> String {
    let allowed = scope.allow.globs().join(" ");
    match &scope.deny {
        Some(deny) => format!("{allowed}, except {}", deny.globs().join(" ")),
        None => allowed,
    }
}

impl PolicyTestReport<'_> {
    pub fn scope_why(&self, part: RuleCondition) -> String {
        let scope = self.who.client().map(|client| &client.scope);
        match part {
            RuleCondition::Effects => {
                format!(
                    "the client may only {}",
                    effect_names(scope.map_or(EffectSet::NONE, |scope| scope.effects)).join(", ")
                )
            }
            _ => format!("the client may only use {}", scope.map(scope_names).unwrap_or_default()),
        }
    }

    pub fn why(&self, rule: &PolicyRule, part: RuleCondition) -> String {
        let wanted = match part {
            RuleCondition::Tools => rule.tools.globs().join(" "),
            RuleCondition::Clients => rule.clients.globs().join(" "),
            RuleCondition::Origins => {
                rule.origins.iter().flatten().map(|origin| origin.as_str()).collect::<Vec<_>>().join(", ")
            }
            RuleCondition::Effects => rule.effects.map(effect_names).unwrap_or_default().join(", "),
            RuleCondition::Reach => rule.reach.map(Reach::as_str).unwrap_or_default().to_owned(),
            RuleCondition::Labels => rule.labels.map(Labels::names).unwrap_or_default().join(", "),
            RuleCondition::Until => rule.when.until.map(|until| until.to_string()).unwrap_or_default(),
            RuleCondition::Hours => rule.when.hours.map(|hours| hours.to_string()).unwrap_or_default(),
            RuleCondition::Days => rule.when.days.map(|days| days.to_string()).unwrap_or_default(),
        };
        format!("`{}` is {wanted}", part.as_str())
    }

    /// Returns file and line of a rule.
    pub fn place_of(&self, at: usize) -> Option<String> {
        place(self.loaded, at)
    }

    /// Returns file and line of the deciding rule.
    pub fn place(&self) -> Option<String> {
        let at = self.policy.rules.iter().position(|rule| rule.name == self.decision.rule())?;
        place(self.loaded, at)
    }

    pub fn next(&self) -> &'static str {
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
