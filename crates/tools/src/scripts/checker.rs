//! Checks and dry runs of scripts, for the command line and the admin page.

use super::describe_diagnostic;
use crate::scripts::{SOURCE_BYTES_MAX, ScriptError, ScriptName, ScriptStore};
use portcullis_script::{
    NoHostFunctions, ScriptDiagnostic, ScriptFailure, ScriptJob, ScriptOutput, WorkerPool,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Runs checks and dry runs in the sandbox. Approvals are in [`ScriptStore`].
#[derive(Clone)]
pub struct ScriptChecker {
    pub scripts: Arc<ScriptStore>,
    pool: WorkerPool,
    timeout: Duration,
}

/// The result of a check or a dry run.
#[derive(Debug, Clone)]
pub struct ScriptCheckReport {
    /// Only of a dry run.
    pub value: Option<Value>,
    pub printed: String,
    pub took: Duration,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum ScriptCheckError {
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// An error in the code, with position and excerpt.
    #[error("{told}")]
    Fault { told: String, place: Option<Box<ScriptDiagnostic>> },
    #[error("{0}")]
    Sandbox(String),
    #[error("the code has {0} bytes, at most {SOURCE_BYTES_MAX} are allowed")]
    TooLarge(usize),
}

/// What the sandbox does with code.
enum ScriptUse<'a> {
    Parse,
    Run { function: Option<String>, args: &'a [Value] },
}

fn fault(told: String) -> ScriptCheckError {
    ScriptCheckError::Fault { told, place: None }
}

impl ScriptChecker {
    pub fn new(scripts: Arc<ScriptStore>, pool: WorkerPool, timeout: Duration) -> ScriptChecker {
        ScriptChecker { scripts, pool, timeout }
    }

    /// Parses code in the sandbox.
    pub async fn check(&self, name: &str, source: &str) -> Result<ScriptCheckReport, ScriptCheckError> {
        self.run(name, source, ScriptUse::Parse).await
    }

    /// Runs code in the sandbox without secrets, network and tools, regardless of its grants.
    pub async fn dry_run(
        &self,
        name: &ScriptName,
        source: &str,
        function: Option<String>,
        args: &[Value],
    ) -> Result<ScriptCheckReport, ScriptCheckError> {
        self.run(name.as_str(), source, ScriptUse::Run { function, args }).await
    }

    /// Like [`ScriptChecker::dry_run`], for text that is not a script yet.
    pub async fn try_text(
        &self,
        source: &str,
        function: Option<String>,
        args: &[Value],
    ) -> Result<ScriptCheckReport, ScriptCheckError> {
        self.run("the text", source, ScriptUse::Run { function, args }).await
    }

    /// Returns the protections that this machine lacks.
    pub async fn probe(&self) -> Result<Vec<String>, ScriptCheckError> {
        self.pool.probe().await.map_err(|failure| ScriptCheckError::Sandbox(failure.to_string()))
    }

    async fn run(
        &self,
        name: &str,
        source: &str,
        wanted: ScriptUse<'_>,
    ) -> Result<ScriptCheckReport, ScriptCheckError> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(ScriptCheckError::TooLarge(source.len()));
        }
        let (function, args, check_only) = match wanted {
            ScriptUse::Parse => (None, &[][..], true),
            ScriptUse::Run { function, args } => (function, args, false),
        };
        let args = serde_json::value::to_raw_value(args).map_err(|error| fault(error.to_string()))?;
        let job = ScriptJob {
            name: name.to_owned(),
            source: source.to_owned(),
            function,
            args,
            timeout: self.timeout,
            overall: self.timeout,
            check_only,
        };
        match self.pool.run(job, &NoHostFunctions, &CancellationToken::new()).await {
            Ok(ScriptOutput { value, printed, took, memory_bytes, .. }) => {
                let value = serde_json::from_str(value.get()).ok().filter(|_| !check_only);
                Ok(ScriptCheckReport { value, printed, took, memory_bytes })
            }
            Err(ScriptFailure::Script(fault, printed)) => {
                let printed =
                    if printed.is_empty() { printed } else { format!("\nprinted before: {printed}") };
                let told = format!("{name}{}{printed}", describe_diagnostic(&fault));
                Err(ScriptCheckError::Fault { told, place: Some(Box::new(fault)) })
            }
            Err(failure @ (ScriptFailure::NoSandbox(_) | ScriptFailure::NoProcess(_))) => {
                Err(ScriptCheckError::Sandbox(failure.to_string()))
            }
            Err(failure) => Err(fault(failure.to_string())),
        }
    }
}
