//! `script_*`: Starlark scripts that an administrator approved.
//!
//! Approval is bound to the hash of a script ([`store`]), and the grants are part of the approval. A script runs in a worker
//! process (`portcullis_script`); its requests to the hub go to [`host`]. Code from `script_exec` has only the grants that
//! the configuration gives to all such code.

mod checker;
mod doctor;
mod host;
mod scripts_section;
mod store;
#[cfg(test)]
mod tests;

pub use checker::{ScriptCheckError, ScriptCheckReport, ScriptChecker};
pub use scripts_section::{ScriptSettings, ScriptsSection};
pub use store::{
    PreapprovedScript, Proposal, RunRefusal, RunnableScript, SOURCE_BYTES_MAX, ScriptApproval,
    ScriptDecision, ScriptError, ScriptHeader, ScriptName, ScriptNameError, ScriptPermissions,
    ScriptRejection, ScriptRestoration, ScriptReview, ScriptRunRecord, ScriptSnapshot, ScriptState,
    ScriptStore, ScriptSummary,
};

use host::ScriptHost;
use portcullis_core::{
    CallCtx, CallLimits, DefaultDecision, Effect, ErrorKind, Example, Family, GateHandle, IntoToolOutput,
    Json, Reach, SummaryWithData, ToolError, ToolOutput, ToolSpec, blocking,
};
use portcullis_egress::EgressClient;
use portcullis_family::{FamilyModule, FamilyParts, Provided, SectionSpec};
use portcullis_script::{ScriptDiagnostic, ScriptFailure, ScriptJob, ScriptOutput, WorkerPool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Overall timeout of a run, including the time spent waiting for people.
const OVERALL_MAX: Duration = Duration::from_secs(15 * 60);
/// Nesting depth of scripts that call scripts.
const DEPTH_MAX: usize = 4;
/// More than the longest timeout that a script can be granted.
const LIMITS: CallLimits = CallLimits { deadline_ms: 330_000, ..CallLimits::DEFAULT };
/// For source code whose non-ASCII characters are all escaped, plus other arguments. Larger arguments are refused
/// before parsing.
const CODE_LIMITS: CallLimits = CallLimits { input_bytes_max: 3 * SOURCE_BYTES_MAX + 4_096, ..LIMITS };

const LIST: ToolSpec = ToolSpec {
    name: "script_list",
    title: "List scripts",
    description: "List scripts: name, description, requested permissions and approval state. Only approved scripts run.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "See which scripts there are", arguments: "{}" },
};

const RUN: ToolSpec = ToolSpec {
    name: "script_run",
    title: "Run a script",
    description: "Run a Starlark script that a person has approved, and return its value: what `main` returns, or the function \
                  that you name, else the variable `result`, else the last expression. It may use what it was granted: \
                  secrets that you never see, hosts, and other tools.",
    // The grants are not known here, so the worst case is declared. The approval is what allows it.
    effect: Effect::Destroy,
    reach: Reach::Outside,
    limits: LIMITS,
    example: Example { what: "Run a script", arguments: r#"{"name": "hello"}"# },
};

const EXEC: ToolSpec = ToolSpec {
    name: "script_exec",
    title: "Run Starlark code",
    description: "Run Starlark code and return its value and what it printed. It can compute, with `json`, `re`, `time`, \
                  `math`, `base64` and `hash`; it has no secrets, no network and no tools unless the configuration grants \
                  them. The value is what `main()` returns, else the variable `result`, else the last expression.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CODE_LIMITS,
    example: Example { what: "Compute something", arguments: r#"{"code": "[n * n for n in range(10)]"}"# },
};

const RELOAD: ToolSpec = ToolSpec {
    name: "script_reload",
    title: "Rescan scripts",
    description: "Rescan the scripts folder and return what `script_list` does. Changes are picked up automatically, so \
                  this is rarely needed.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "Rescan", arguments: "{}" },
};

const PROPOSE: ToolSpec = ToolSpec {
    name: "script_propose",
    title: "Propose a script",
    description: "Propose a Starlark script, or a new version of one. It is checked, stored for review, and \
                  runs only once approved. Begin it with comments that say what it does and needs: `# @description:`, \
                  `# @secrets:`, `# @hosts:`, `# @tools:`, `# @timeout:`.",
    effect: Effect::Create,
    reach: Reach::Local,
    limits: CallLimits { deadline_ms: CallLimits::DEFAULT.deadline_ms, ..CODE_LIMITS },
    example: Example {
        what: "Propose a greeting",
        arguments: r##"{"name": "greet", "code": "# @description: Greets\ndef main(name = \"you\"):\n    return \"Hello, \" + name\n"}"##,
    },
};

/// Any JSON value, in a form that clients with a subset of JSON Schema understand.
struct AnyValue;

impl JsonSchema for AnyValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let kinds = ["string", "number", "boolean", "null", "array", "object"];
        schemars::json_schema!({ "anyOf": kinds.map(|kind| serde_json::json!({ "type": kind })) })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunArgs {
    /// Name of the script, with or without `.star`.
    name: String,
    /// Function to call, instead of `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    function: Option<String>,
    /// What the function is called with, in order.
    #[serde(default)]
    #[schemars(with = "Vec<AnyValue>")]
    args: Vec<Value>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecArgs {
    /// The Starlark code to run.
    code: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProposeArgs {
    /// Name of the script: a-z, 0-9, `_` and `-`.
    name: String,
    /// Text of the script.
    code: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ScriptListing {
    /// The scripts, by name.
    scripts: Vec<ListedScript>,
    /// How many there are.
    count: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListedScript {
    /// Name to run it by.
    name: String,
    /// What it does, in its own words.
    description: String,
    /// Version, in its own words.
    version: String,
    /// Secrets that it says it needs.
    secrets: Vec<String>,
    /// Hosts that it says it needs.
    hosts: Vec<String>,
    /// Tools that it says it needs.
    tools: Vec<String>,
    /// State: pending, approved, rejected or changed. Only approved scripts run.
    state: &'static str,
    /// SHA-256 of its text.
    sha256: String,
    /// Whether it is only proposed, and no script yet.
    proposed: bool,
    /// Why it cannot be used, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    problem: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ScriptRunResult {
    /// What the script returned.
    #[schemars(with = "AnyValue")]
    value: Value,
    /// What it printed.
    printed: String,
    /// How long it took.
    duration_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ProposedScript {
    /// Name under which it will be a script.
    name: String,
    /// SHA-256 of its text.
    sha256: String,
    /// State: pending, until a person decides.
    state: &'static str,
}

/// What the script tools work with.
#[derive(Clone)]
pub struct ScriptsConfig {
    pub scripts: Arc<ScriptStore>,
    pub pool: WorkerPool,
    /// Creates the egress client at the first request: a hub whose scripts make none has none.
    pub egress: Arc<dyn Fn() -> Result<Arc<EgressClient>, ToolError> + Send + Sync>,
    /// Whether a secret with this name exists.
    pub has_secret: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The timeout of a script without its own.
    pub timeout: Duration,
    /// The grants of code that is not approved.
    pub exec: ScriptPermissions,
}

impl fmt::Debug for ScriptsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptsConfig").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// The script tools as a family with tables of its own.
pub(crate) const MODULE: FamilyModule = FamilyModule {
    name: "scripts",
    tables: Some(store::TABLES),
    section: Some(SectionSpec::of::<ScriptsSection>()),
    doctor: Some(doctor::checks),
    provide: |parts| {
        let settings = parts.section::<ScriptsSection>().filter(|settings| settings.enabled);
        let Some(settings) = settings else { return Ok(None) };
        let config = ScriptsConfig::of(settings, parts);
        let scripts = config.scripts.clone();
        let family = family(config, parts.gate.clone());
        Ok(Some(Provided::from(family).with_readiness(move || scripts.health())))
    },
};

impl ScriptsConfig {
    fn of(settings: &ScriptSettings, parts: &FamilyParts) -> ScriptsConfig {
        let (shared, secrets) = (parts.egress.clone(), parts.secrets.clone());
        let egress = move || {
            shared.client().map_err(|error| {
                ToolError::unavailable("the network cannot be used")
                    .hint("tell the user: `portcullis doctor` says why")
                    .caused_by(error.to_string())
            })
        };
        let here = ScriptSettings { folder: parts.folder(&settings.folder), ..settings.clone() };
        ScriptsConfig {
            scripts: Arc::new(here.open_store(&parts.database)),
            pool: here.pool(if parts.is_live() { here.warm } else { 0 }),
            egress: Arc::new(egress),
            has_secret: Arc::new(move |name| secrets.has(name)),
            timeout: here.timeout,
            exec: here.exec,
        }
    }
}

/// What the script tools work on.
struct ScriptTools {
    config: ScriptsConfig,
    /// Tool calls of scripts go through it.
    gate: GateHandle,
}

/// Returns the script tools. Tool calls of scripts go through the gate.
pub fn family(config: ScriptsConfig, gate: GateHandle) -> Family {
    let has_grants = !config.exec.is_empty();
    let tools = Arc::new(ScriptTools { config, gate });
    let family = Family::new("scripts")
        .tool(LIST, &tools, list)
        .tool(RUN, &tools, run)
        .default_decision(DefaultDecision::Reviewed)
        .tool(EXEC, &tools, exec);
    // With grants, code can do anything that they allow, without approval.
    let family = if has_grants { family.with_effect(Effect::Destroy, Reach::Outside) } else { family };
    family.tool(RELOAD, &tools, list).tool(PROPOSE, &tools, propose)
}

fn check_code(code: &str) -> Result<(), ToolError> {
    match code.len() {
        bytes if bytes > SOURCE_BYTES_MAX => Err(ToolError::too_large("the code", bytes, SOURCE_BYTES_MAX)),
        _ => Ok(()),
    }
}

async fn list(tools: Arc<ScriptTools>, _: NoArgs, _: CallCtx) -> Result<Json<ScriptListing>, ToolError> {
    let listed = tools.with_store(|scripts| scripts.list().map_err(script_tool_error)).await?;
    let scripts: Vec<ListedScript> = listed.into_iter().map(ListedScript::of).collect();
    Ok(Json(ScriptListing { count: scripts.len(), scripts }))
}

async fn run(tools: Arc<ScriptTools>, args: RunArgs, ctx: CallCtx) -> Result<ScriptRunResult, ToolError> {
    if ctx.depth() >= DEPTH_MAX {
        return Err(ToolError::denied(format!("scripts call one another more than {DEPTH_MAX} levels deep"))
            .hint("call the last one by itself"));
    }
    let name: ScriptName = args.name.parse().map_err(|error| script_tool_error(ScriptError::Name(error)))?;
    let runnable = tools
        .with_store({
            let name = name.clone();
            move |scripts| scripts.runnable(&name).map_err(not_runnable)
        })
        .await?;
    let timeout = runnable.granted.timeout_ms.map_or(tools.config.timeout, Duration::from_millis);
    let began = Instant::now();
    let host = ScriptHost::new(&ctx, &tools, runnable.granted);
    let job = job(name.as_str(), runnable.source, args.function, &args.args, timeout)?;
    let done = tools.config.pool.run(job, &host, &ctx.cancel).await;
    let outcome = done.as_ref().map_or_else(code, |_| "ok");
    let run = ScriptRunRecord {
        at: tools.config.scripts.now(),
        sha256: runnable.sha256,
        client: ctx.caller().client.name.clone(),
        duration_ms: milliseconds(began.elapsed()),
        outcome: outcome.to_owned(),
    };
    if let Err(error) = tools.config.scripts.record_run(&name, run).await {
        tracing::warn!(%error, "could not record the run of a script");
    }
    done.map(ScriptRunResult::of)
        .map_err(|failure| failed(&format!("script `{name}`"), ErrorKind::Upstream, failure))
}

async fn exec(tools: Arc<ScriptTools>, args: ExecArgs, ctx: CallCtx) -> Result<ScriptRunResult, ToolError> {
    check_code(&args.code)?;
    if ctx.depth() >= DEPTH_MAX {
        return Err(ToolError::denied(format!("scripts call one another more than {DEPTH_MAX} levels deep")));
    }
    let host = ScriptHost::new(&ctx, &tools, tools.config.exec.clone());
    let timeout = tools.config.exec.timeout_ms.map_or(tools.config.timeout, Duration::from_millis);
    let job = job("code", args.code, None, &[], timeout)?;
    let done = tools.config.pool.run(job, &host, &ctx.cancel).await;
    done.map(ScriptRunResult::of).map_err(|failure| failed("the code", ErrorKind::InvalidArgs, failure))
}

async fn propose(
    tools: Arc<ScriptTools>,
    args: ProposeArgs,
    ctx: CallCtx,
) -> Result<SummaryWithData<ProposedScript>, ToolError> {
    check_code(&args.code)?;
    let name: ScriptName = args.name.parse().map_err(|error| script_tool_error(ScriptError::Name(error)))?;
    let mut job = job(name.as_str(), args.code.clone(), None, &[], tools.config.timeout)?;
    job.check_only = true;
    let checked = tools.config.pool.run(job, &portcullis_script::NoHostFunctions, &ctx.cancel).await;
    checked.map_err(|failure| failed("the code", ErrorKind::InvalidArgs, failure))?;
    let client = ctx.caller().client.name.clone();
    let proposal = tools
        .with_store({
            let name = name.clone();
            move |scripts| scripts.propose(&name, &args.code, &client).map_err(script_tool_error)
        })
        .await?;
    let sentence = format!(
        "Script '{name}' is proposed and waits for a person. Once it is approved, `script_run` runs it."
    );
    let facts = ProposedScript {
        name: name.to_string(),
        sha256: proposal.sha256,
        state: ScriptState::Pending.as_str(),
    };
    Ok(SummaryWithData { sentence, facts })
}

fn job(
    name: &str,
    source: String,
    function: Option<String>,
    args: &[Value],
    timeout: Duration,
) -> Result<ScriptJob, ToolError> {
    let args = serde_json::value::to_raw_value(args).map_err(ToolError::internal)?;
    let (name, overall) = (name.to_owned(), timeout + OVERALL_MAX);
    Ok(ScriptJob { name, source, function, args, timeout, overall, check_only: false })
}

impl ScriptTools {
    /// Runs blocking store access on a blocking thread.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ScriptStore) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let scripts = self.config.scripts.clone();
        blocking(move || work(&scripts)).await
    }
}

impl ListedScript {
    fn of(listed: ScriptSummary) -> ListedScript {
        let wants = listed.header.wants;
        ListedScript {
            name: listed.name.to_string(),
            description: listed.header.description,
            version: listed.header.version,
            secrets: wants.secrets.into_iter().collect(),
            hosts: wants.hosts.into_iter().collect(),
            tools: wants.tools.into_iter().collect(),
            state: listed.state.as_str(),
            sha256: listed.sha256,
            proposed: !listed.exists,
            problem: listed.problem,
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl IntoToolOutput for ScriptRunResult {
    fn schema() -> Option<Value> {
        <Json<ScriptRunResult> as IntoToolOutput>::schema()
    }

    /// The text is the value, followed by what was printed. A value that is a text stands as it is, without quotes.
    fn into_output(self) -> ToolOutput {
        let value = match &self.value {
            Value::String(text) if text.is_empty() => "The value is an empty text.".to_owned(),
            Value::String(text) => text.clone(),
            Value::Null if !self.printed.is_empty() => String::new(),
            value => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        let text = match (value.as_str(), self.printed.as_str()) {
            (_, "") => value,
            ("", printed) => format!("Printed:\n{printed}"),
            (_, printed) => format!("{value}\n\nPrinted:\n{printed}"),
        };
        ToolOutput { structured: Json(self).into_output().structured, ..ToolOutput::text(text) }
    }
}

impl ScriptRunResult {
    fn of(done: ScriptOutput) -> ScriptRunResult {
        let value: Value = serde_json::from_str(done.value.get()).unwrap_or_default();
        ScriptRunResult { value, printed: done.printed, duration_ms: milliseconds(done.took) }
    }
}

fn script_tool_error(error: ScriptError) -> ToolError {
    let said = error.to_string();
    match error {
        ScriptError::Name(_) => ToolError::invalid_args(format!("invalid arguments: {said}")),
        ScriptError::Unknown(name) => {
            ToolError::new(ErrorKind::NotFound, format!("script '{name}' not found"))
                .hint("`script_list` shows what exists")
        }
        ScriptError::TooLarge { .. } => ToolError::new(ErrorKind::TooLarge, said),
        ScriptError::NotText(_) | ScriptError::NotFile(_) | ScriptError::Unreadable { .. } => {
            ToolError::unavailable(said).hint("tell the user; an administrator must repair the file")
        }
        ScriptError::ManyProposals
        | ScriptError::ManyOwnProposals
        | ScriptError::ProposedByAnother(_)
        | ScriptError::Full => ToolError::unavailable(said),
        ScriptError::Capabilities(_) => ToolError::invalid_args(said),
        other => ToolError::unavailable("the decisions about scripts cannot be used, so none runs")
            .hint("tell the user: `portcullis doctor` says why")
            .caused_by(other),
    }
}

fn not_runnable(why: RunRefusal) -> ToolError {
    match why {
        RunRefusal::Waits { name, state } => {
            let error = ToolError::new(
                ErrorKind::NeedsApproval,
                format!(
                    "Script '{name}' is pending approval. An administrator must review and approve this script before \
                     it can be executed."
                ),
            );
            let error = match state {
                ScriptState::Changed => error.hint("it was approved before and has changed since"),
                ScriptState::Pending | ScriptState::Approved | ScriptState::Rejected => error,
            };
            error.hint(format!(
                "tell the user: `portcullis scripts show {name}` shows it, and `portcullis scripts approve {name} --hash HASH` \
                 approves it; run it again afterwards"
            ))
        }
        RunRefusal::Rejected { name, reason, .. } => {
            let reason = reason
                .map_or_else(String::new, |reason| format!(": {}", portcullis_core::json::visible(&reason)));
            ToolError::denied(format!("Script '{name}' was rejected by an administrator{reason}"))
                .hint("do not run it again unless the person asks for it")
        }
        RunRefusal::Error(error) => script_tool_error(error),
    }
}

/// Returns the code for the run history.
fn code(failure: &ScriptFailure) -> &'static str {
    match failure {
        ScriptFailure::Script(..) => "script_error",
        ScriptFailure::Time(_) => "timeout",
        ScriptFailure::Memory(_) => "memory",
        ScriptFailure::Depth => "depth",
        ScriptFailure::Result | ScriptFailure::Asks => "too_large",
        ScriptFailure::Broke(_) => "broke",
        ScriptFailure::Cancelled => "cancelled",
        ScriptFailure::NoSandbox(_) | ScriptFailure::NoProcess(_) => "unavailable",
    }
}

/// Maps a failure to a tool error. `script` is the error kind if the script itself is at fault.
fn failed(what: &str, script: ErrorKind, failure: ScriptFailure) -> ToolError {
    let said = failure.to_string();
    match failure {
        ScriptFailure::Script(fault, printed) => {
            let error = ToolError::new(script, format!("{what} failed{}", describe_diagnostic(&fault)));
            let error = match script {
                // The caller wrote it.
                ErrorKind::InvalidArgs => error.hint("correct the code where it failed, and run it again"),
                _ => {
                    error.hint("check what it was called with; otherwise tell the user to correct the script")
                }
            };
            if printed.is_empty() { error } else { error.hint(format!("it printed before: {printed}")) }
        }
        ScriptFailure::Time(_) => ToolError::new(ErrorKind::Timeout, said)
            .hint("let it do less, or ask for more time with `# @timeout:` in an approved script"),
        ScriptFailure::Memory(_) | ScriptFailure::Depth | ScriptFailure::Result | ScriptFailure::Asks => {
            ToolError::new(ErrorKind::TooLarge, said).hint("let it do less at once")
        }
        ScriptFailure::Broke(_) => {
            ToolError::new(script, said).hint("change the script; it does something that no script may do")
        }
        ScriptFailure::Cancelled => ToolError::cancelled(),
        ScriptFailure::NoSandbox(_) => ToolError::unavailable("scripts cannot run on this machine")
            .hint("tell the user: `portcullis doctor` says what is missing")
            .caused_by(said),
        ScriptFailure::NoProcess(_) => ToolError::unavailable("the script's process could not be started")
            .hint("try again")
            .caused_by(said),
    }
}

/// Formats an error with its position and excerpt.
pub(crate) fn describe_diagnostic(fault: &ScriptDiagnostic) -> String {
    let mut text = match (fault.line, fault.column) {
        (Some(line), Some(column)) => format!(" at line {line}, column {column}: {}", fault.message),
        _ => format!(": {}", fault.message),
    };
    if let Some(excerpt) = &fault.excerpt {
        text.push('\n');
        text.push_str(excerpt);
    }
    text
}
