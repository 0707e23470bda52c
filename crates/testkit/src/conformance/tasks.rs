//! Tools that run as tasks, and `greet`, which never does.

use super::input_rounds::ask_name;
use super::{NoArgs, answer, filled_in, filled_in_text, form, pause, question, spec, spec_with};
use portcullis_core::{CallCtx, CallLimits, ErrorKind, Family, TaskSupport, Text, ToolError, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The suite requests 60 seconds at most.
const SECONDS_MAX: f64 = 100.0;

/// How long a job runs before it fails, so that it is seen running. The suite's own figure.
const FAILS_AFTER: Duration = Duration::from_secs(1);

/// Longer than the longest computation, and enough for a person to fill in a form.
const JOB: CallLimits = CallLimits { deadline_ms: 120_000, ..CallLimits::DEFAULT };

pub(super) fn add(family: Family) -> Family {
    let state = Arc::new(());
    family
        .tool(GREET, &state, greet)
        .tool(SLOW_COMPUTE, &state, slow_compute)
        .as_task(TaskSupport::Optional)
        .tool(FAILING_JOB, &state, failing_job)
        .as_task(TaskSupport::Required)
        .tool(PROTOCOL_ERROR_JOB, &state, protocol_error_job)
        .as_task(TaskSupport::Optional)
        .tool(CONFIRM_DELETE, &state, confirm_delete)
        .as_task(TaskSupport::Optional)
        .tool(MULTI_INPUT, &state, multi_input)
        .as_task(TaskSupport::Optional)
        .tool(TOOL_WITH_TASK, &state, tool_with_task)
        .as_task(TaskSupport::RequiredAfterQuestions)
}

const GREET: ToolSpec = spec_with("greet", "Greeting", "Greets by name, at once.", r#"{"name":"World"}"#);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GreetArgs {
    /// Who is greeted.
    name: String,
}

async fn greet(_: Arc<()>, args: GreetArgs, _: CallCtx) -> Result<Text, ToolError> {
    Ok(Text(format!("Hello, {}!", args.name)))
}

const SLOW_COMPUTE: ToolSpec = ToolSpec {
    limits: JOB,
    ..spec_with(
        "slow_compute",
        "Slow computation",
        "Takes the given time and returns; stops when it is cancelled.",
        r#"{"seconds":0,"label":"example"}"#,
    )
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SlowComputeArgs {
    /// How long it takes, 0 to 100.
    #[schemars(range(min = 0, max = 100))]
    seconds: f64,
    /// What the computation is called in the result.
    #[serde(default)]
    label: String,
}

async fn slow_compute(_: Arc<()>, args: SlowComputeArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let SlowComputeArgs { seconds, label } = args;
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(ToolError::invalid_args(format!(
            "invalid arguments: `seconds` is {seconds}, expected 0 to {SECONDS_MAX}"
        )));
    }
    pause(&ctx, Duration::from_secs_f64(seconds)).await?;
    Ok(Text(format!("Computed `{label}` in {seconds} s.")))
}

const FAILING_JOB: ToolSpec = ToolSpec {
    limits: JOB,
    ..spec("failing_job", "Failing job", "Works for a second and fails, as a tool fails.")
};

async fn failing_job(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    pause(&ctx, FAILS_AFTER).await?;
    Err(ToolError::new(ErrorKind::Upstream, "the job failed, as it always does"))
}

const PROTOCOL_ERROR_JOB: ToolSpec = ToolSpec {
    limits: JOB,
    ..spec("protocol_error_job", "Broken job", "Works for a second and fails, as the hub fails.")
};

async fn protocol_error_job(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    pause(&ctx, FAILS_AFTER).await?;
    Err(ToolError::internal("the job broke, as it always does"))
}

const CONFIRM_DELETE: ToolSpec = ToolSpec {
    limits: JOB,
    ..spec_with(
        "confirm_delete",
        "Confirmed deletion",
        "Asks whether to delete a file. Deletes nothing, whatever the answer.",
        r#"{"filename":"example.txt"}"#,
    )
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConfirmDeleteArgs {
    /// The file that the question is about. It need not exist.
    filename: String,
}

async fn confirm_delete(_: Arc<()>, args: ConfirmDeleteArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let filename = args.filename;
    let ask = form(&format!("Delete {filename}?"), json!({ "confirm": { "type": "boolean" } }));
    let answer = ctx.ask("confirm", ask).await?;
    // Declining the form keeps the file.
    let confirmed = filled_in(&answer, "confirm").is_ok_and(|confirm| confirm == &Value::Bool(true));
    let done = if confirmed { "Deleted" } else { "Kept" };
    Ok(Text(format!("{done} {filename}.")))
}

const MULTI_INPUT: ToolSpec = ToolSpec {
    limits: JOB,
    ..spec("multi_input", "Several questions", "Asks for a name and for a confirmation at once.")
};

async fn multi_input(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let confirm = form("Go on?", json!({ "confirm": { "type": "boolean" } }));
    let questions = vec![question("name", ask_name()), question("confirm", confirm)];
    let answers = ctx.ask_all(questions).await?;
    let name = filled_in_text(answer(&answers, "name")?, "name")?;
    let confirm = filled_in(answer(&answers, "confirm")?, "confirm")?;
    Ok(Text(format!("name={name}, confirm={confirm}")))
}

const TOOL_WITH_TASK: ToolSpec = ToolSpec {
    limits: JOB,
    ..spec("test_tool_with_task", "Question, then task", "Asks for a name, then greets from within a task.")
};

async fn tool_with_task(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let answer = ctx.ask("user_name", ask_name()).await?;
    Ok(Text(format!("Hello, {}! The task is done.", filled_in_text(&answer, "name")?)))
}
