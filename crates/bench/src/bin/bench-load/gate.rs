//! What the guards add to a call, without any transport.

use crate::figure::{BenchFigure, median, micros};
use crate::hub::{FILE_NAME, sample_text};
use anyhow::{Context, Result};
use portcullis_core::{
    Arguments, Call, CallCtx, CallLimits, Client, Gate, Registry, Scope, SystemClock, Target,
};
use portcullis_guard::{ApprovalTimes, AuditSettings, GuardSettings, Policy, RateSettings};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The target: what all guards together may add.
const ADDED_US_MAX: f64 = 25.0;
/// How many calls make one batch, and how many pairs of batches there are: some 3 s on a quiet machine.
const CALLS: u32 = 2_000;
const ROUNDS: usize = 31;
/// A limit that is checked and never reached.
const UNHURRIED: NonZeroU32 = NonZeroU32::new(1_000_000_000).unwrap();

pub(crate) async fn measure() -> Result<Vec<BenchFigure>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let data = folder.path().join("ai-data");
    std::fs::create_dir_all(&data)?;
    std::fs::write(data.join(FILE_NAME), sample_text())?;
    let bare = Gate::new(registry(folder.path())?, vec![]);
    let client = Arc::new(Client { name: "bench".to_owned(), scope: Scope::everything(), token: None });
    let settings = GuardSettings {
        rate: RateSettings { per_second: UNHURRIED, burst: UNHURRIED, wait: std::time::Duration::ZERO },
        policy: Policy::default(),
        secrets: Vec::new(),
        audit: AuditSettings::in_folder(folder.path()),
        database: portcullis_store::open(folder.path(), &[])?,
        owners: Arc::new(client.clone()),
        approval_times: ApprovalTimes::default(),
        ceiling: CallLimits::CEILING,
    };
    let (guarded, _handles) =
        portcullis_guard::stack(registry(folder.path())?, settings, Arc::new(SystemClock))?;

    // Both once before anything counts: files, schemas and branches are warm afterwards.
    batch(&bare, &client).await?;
    batch(&guarded, &client).await?;
    let (mut alone, mut with_guards, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (without, with) = (batch(&bare, &client).await?, batch(&guarded, &client).await?);
        alone.push(without);
        with_guards.push(with);
        added.push(with - without);
    }
    let detail = format!("{:.1} µs → {:.1} µs", median(&mut alone), median(&mut with_guards));
    Ok(vec![
        BenchFigure::at_most(
            "guards add to `workspace_read` of 4 KB",
            median(&mut added),
            ADDED_US_MAX,
            "µs",
        ),
        BenchFigure::info("… in process, without → with guards", detail),
    ])
}

fn registry(folder: &Path) -> Result<Registry> {
    let registry = Registry::default();
    let registered =
        portcullis_tools::register_local(&folder.join("ai-data"), &folder.join("prompts"), &registry);
    registered.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(registry)
}

/// Returns microseconds per call.
async fn batch(gate: &Gate, client: &Arc<Client>) -> Result<f64> {
    let arguments = serde_json::json!({ "path": FILE_NAME });
    let started = Instant::now();
    for _ in 0..CALLS {
        let target = Target::Tool("workspace_read".to_owned());
        let call = Call::new(client.clone(), target, Arguments::of(&arguments), CallCtx::detached());
        gate.call(call).await.map_err(|error| anyhow::anyhow!("{}", error.message))?;
    }
    Ok(micros(started.elapsed()) / f64::from(CALLS))
}
