//! What a person does with scripts besides deciding: check one, try one.

use super::described;
use portcullis_script::{Done, Failure, Fault, Job, NoHost, Pool};
use portcullis_store::scripts::{SOURCE_BYTES_MAX, ScriptError, ScriptName, Scripts};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Everything that the command line and the page do with scripts. Decisions are [`Scripts`]' own; this adds the sandbox.
#[derive(Clone)]
pub struct ScriptDesk {
    pub scripts: Arc<Scripts>,
    pool: Pool,
    timeout: Duration,
}

/// What came of a check or of a dry run.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Of a dry run.
    pub value: Option<Value>,
    pub printed: String,
    pub took: Duration,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// What is wrong with the code, with its place and the lines around it.
    #[error("{told}")]
    Fault { told: String, place: Option<Box<Fault>> },
    #[error("{0}")]
    Sandbox(String),
    #[error("the code has {0} bytes, at most {SOURCE_BYTES_MAX} are allowed")]
    TooLarge(usize),
}

fn fault(told: String) -> DeskError {
    DeskError::Fault { told, place: None }
}

impl ScriptDesk {
    pub fn new(scripts: Arc<Scripts>, pool: Pool, timeout: Duration) -> ScriptDesk {
        ScriptDesk { scripts, pool, timeout }
    }

    /// Parses code, in the sandbox.
    pub async fn check(&self, name: &str, source: &str) -> Result<Checked, DeskError> {
        self.run(name, source, None, &[], true).await
    }

    /// Runs code in the sandbox with no secrets, no network and no tools, whatever it was granted.
    pub async fn dry_run(
        &self,
        name: &ScriptName,
        source: &str,
        function: Option<String>,
        args: &[Value],
    ) -> Result<Checked, DeskError> {
        self.run(name.as_str(), source, function, args, false).await
    }

    /// As [`ScriptDesk::dry_run`], of a text that is no script yet.
    pub async fn try_text(
        &self,
        source: &str,
        function: Option<String>,
        args: &[Value],
    ) -> Result<Checked, DeskError> {
        self.run("the text", source, function, args, false).await
    }

    /// Says what of the sandbox this machine does not have.
    pub async fn probe(&self) -> Result<Vec<String>, DeskError> {
        self.pool.probe().await.map_err(|failure| DeskError::Sandbox(failure.to_string()))
    }

    async fn run(
        &self,
        name: &str,
        source: &str,
        function: Option<String>,
        args: &[Value],
        check_only: bool,
    ) -> Result<Checked, DeskError> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(DeskError::TooLarge(source.len()));
        }
        let args = serde_json::value::to_raw_value(args).map_err(|error| fault(error.to_string()))?;
        let job = Job {
            name: name.to_owned(),
            source: source.to_owned(),
            function,
            args,
            timeout: self.timeout,
            overall: self.timeout,
            check_only,
        };
        match self.pool.run(job, &NoHost, &CancellationToken::new()).await {
            Ok(Done { value, printed, took, memory_bytes, .. }) => {
                let value = serde_json::from_str(value.get()).ok().filter(|_| !check_only);
                Ok(Checked { value, printed, took, memory_bytes })
            }
            Err(Failure::Script(fault, printed)) => {
                let printed =
                    if printed.is_empty() { printed } else { format!("\nprinted before: {printed}") };
                let told = format!("{name}{}{printed}", described(&fault));
                Err(DeskError::Fault { told, place: Some(Box::new(fault)) })
            }
            Err(failure @ (Failure::NoSandbox(_) | Failure::NoProcess(_))) => {
                Err(DeskError::Sandbox(failure.to_string()))
            }
            Err(failure) => Err(fault(failure.to_string())),
        }
    }
}
