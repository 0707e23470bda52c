//! What a hub needs when it has nothing to do, and what a session costs.

use crate::figure::BenchFigure;
use crate::http::{SessionMode, ask, begin_session, list_tools, open};
use crate::hub::{BenchHub, furnish};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Duration;

/// The targets.
/// 3 MB more than the hub had before it had a database.
const IDLE_MB_MAX: f64 = 14.1 + 3.0;
const SESSION_KB_MAX: f64 = 50.0;
const SESSIONS: usize = 1_000;
/// How long the hub is left alone before its memory is looked at.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(portcullis: &Path) -> Result<Vec<BenchFigure>> {
    let home = tempfile::tempdir().context("no temporary folder")?;
    furnish(home.path())?;
    let hub = BenchHub::serve(portcullis, home.path(), None)?;
    let mut stream = hub.place.connect()?;
    list_tools(&mut stream, &hub.place)?;
    let idle_kb = settled(&hub).await?;

    let mut open_streams = Vec::with_capacity(SESSIONS);
    for _ in 0..SESSIONS {
        let session = begin_session(&mut stream, &hub.place)?;
        let mut events = hub.place.connect()?;
        let (head, _) =
            open(&mut events, &hub.place.request("GET", &SessionMode::Sessions.headers(Some(&session)), ""))?;
        if head.status != 200 {
            bail!("a stream was answered {}", head.status);
        }
        open_streams.push((session, events));
    }
    let full_kb = settled(&hub).await?;

    for (session, events) in open_streams {
        let headers = SessionMode::Sessions.headers(Some(&session));
        let answer = ask(&mut stream, &hub.place.request("DELETE", &headers, ""))?;
        if answer.status != 204 {
            bail!("the end of a session was answered {}", answer.status);
        }
        drop(events);
    }
    let closed_kb = settled(&hub).await?;

    let mb = |kb: u64| kb as f64 / 1024.0;
    let per_session = full_kb.saturating_sub(idle_kb) as f64 / SESSIONS as f64;
    let what = format!("memory per session with an open stream, of {SESSIONS}");
    Ok(vec![
        BenchFigure::at_most("memory of an idle hub", mb(idle_kb), IDLE_MB_MAX, "MB"),
        BenchFigure::at_most(what, per_session, SESSION_KB_MAX, "KB"),
        BenchFigure::info(
            "… idle → all open → all closed",
            format!("{:.1} → {:.1} → {:.1} MB", mb(idle_kb), mb(full_kb), mb(closed_kb)),
        ),
    ])
}

async fn settled(hub: &BenchHub) -> Result<u64> {
    tokio::time::sleep(SETTLE).await;
    hub.process.rss_kb()
}
