//! Fetches a calendar from a secret URL or a file, with a cache.

use super::CalendarLocation;
use parking_lot::Mutex;
use portcullis_core::root::RootedPath;
use portcullis_core::{CallCtx, Clock, Root, ToolError, blocking};
use portcullis_egress::{EgressClient, PlainHttp, SecretUrl, SecretUrlResponse, header, reason};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Size of a calendar. Enough for a hundred thousand short events.
pub(super) const CALENDAR_BYTES_MAX: usize = 5 * 1024 * 1024;
/// How long a copy is fresh: a model often asks several times in a row.
const FRESH: Duration = Duration::from_secs(60);
/// How long a stale copy is used if the server does not respond.
const STALE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const ACCEPTED: &str = "text/calendar, text/plain;q=0.5, */*;q=0.1";

/// A copy of a calendar.
#[derive(Debug, Clone)]
pub(super) struct FeedCopy {
    pub(super) text: Arc<str>,
    /// When it was last confirmed, since the epoch.
    pub(super) seen: Duration,
}

/// The result of a fetch: a copy, a problem, or both for a stale copy.
#[derive(Debug)]
pub(super) struct FeedResult {
    pub(super) copy: Option<FeedCopy>,
    pub(super) problem: Option<ToolError>,
}

/// One calendar with its cached copy.
pub(super) struct CalendarFeed {
    pub(super) name: String,
    place: CalendarLocation,
    kept: Mutex<Option<CachedFeed>>,
    /// Held during a fetch, so that concurrent calls share one.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct CachedFeed {
    copy: FeedCopy,
    etag: Option<String>,
    last_modified: Option<String>,
}

impl CalendarFeed {
    pub(super) fn new(name: String, place: CalendarLocation) -> CalendarFeed {
        CalendarFeed { name, place, kept: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// Returns the calendar, fetching it if the copy is not fresh.
    pub(super) async fn ask(&self, egress: &EgressClient, clock: &dyn Clock, ctx: &CallCtx) -> FeedResult {
        let (address, plain_http) = match &self.place {
            CalendarLocation::File(path) => return self.read_file(path.clone(), clock).await,
            CalendarLocation::Address { address, plain_http } => (address, *plain_http),
        };
        let _asking = self.asking.lock().await;
        let now = clock.since_epoch();
        let kept = self.kept.lock().clone();
        if let Some(kept) = kept.as_ref().filter(|kept| now.saturating_sub(kept.copy.seen) < FRESH) {
            return FeedResult { copy: Some(kept.copy.clone()), problem: None };
        }
        match self.fetch(egress, address, plain_http, kept.as_ref(), ctx).await {
            Ok(fresh) => {
                let kept = CachedFeed { copy: FeedCopy { seen: now, ..fresh.copy }, ..fresh };
                let copy = kept.copy.clone();
                *self.kept.lock() = Some(kept);
                FeedResult { copy: Some(copy), problem: None }
            }
            Err(problem) => {
                let old = kept.map(|kept| kept.copy);
                let copy = old.filter(|copy| now.saturating_sub(copy.seen) < STALE_MAX);
                FeedResult { copy, problem: Some(problem) }
            }
        }
    }

    async fn fetch(
        &self,
        egress: &EgressClient,
        address: &SecretUrl,
        plain_http: PlainHttp,
        kept: Option<&CachedFeed>,
        ctx: &CallCtx,
    ) -> Result<CachedFeed, ToolError> {
        let label = format!("calendar `{}`", self.name);
        let mut request = egress
            .get_secret_url(address, label.clone())
            .header(header::ACCEPT, ACCEPTED)
            .plain_http(plain_http)
            .bytes_max(CALENDAR_BYTES_MAX)
            .cancelled_by(&ctx.cancel);
        if let Some(etag) = kept.and_then(|kept| kept.etag.as_ref()) {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        if let Some(date) = kept.and_then(|kept| kept.last_modified.as_ref()) {
            request = request.header(header::IF_MODIFIED_SINCE, date);
        }
        let answer = request.send().await?;
        match (answer.status, answer.body, kept) {
            (200..300, Some(body), _) => Ok(CachedFeed {
                copy: FeedCopy { text: String::from_utf8_lossy(&body).into(), seen: Duration::ZERO },
                etag: answer.etag,
                last_modified: answer.last_modified,
            }),
            (304, _, Some(kept)) => Ok(kept.clone()),
            (_, body, _) => Err(refused(&label, SecretUrlResponse { body, ..answer })),
        }
    }

    async fn read_file(&self, path: std::path::PathBuf, clock: &dyn Clock) -> FeedResult {
        let name = self.name.clone();
        let seen = clock.since_epoch();
        match blocking(move || read(&path, &name)).await {
            Ok(text) => FeedResult { copy: Some(FeedCopy { text: text.into(), seen }), problem: None },
            Err(problem) => FeedResult { copy: None, problem: Some(problem) },
        }
    }
}

/// Reads a configured file. Its path goes to the log only.
fn read(path: &Path, name: &str) -> Result<String, ToolError> {
    let unreadable = |why: String| {
        ToolError::unavailable(format!("the file of calendar `{name}` cannot be read"))
            .hint("tell the user: `portcullis doctor` says why")
            .caused_by(why)
    };
    let (folder, file) = match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(folder), Some(file)) => (folder, file),
        _ => return Err(unreadable("it names no file".to_owned())),
    };
    let root = Root::open(folder).map_err(|error| unreadable(error.to_string()))?;
    let file = RootedPath::parse(file).map_err(|error| unreadable(error.to_string()))?;
    let bytes = root.read(&file, CALENDAR_BYTES_MAX).map_err(|error| unreadable(error.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the error for a status, without the URL.
fn refused(label: &str, answer: SecretUrlResponse) -> ToolError {
    let status = answer.status;
    let message = format!("{label} answered {status}{}", reason(status));
    const TELL: &str =
        "tell the user: the link may have been withdrawn; a new one is set with `portcullis secrets set`";
    match status {
        429 => ToolError::busy_outside(message, answer.retry_after),
        401 | 403 | 407 => ToolError::denied(message).hint(TELL),
        404 | 410 => ToolError::new(portcullis_core::ErrorKind::NotFound, message).hint(TELL),
        _ => ToolError::new(portcullis_core::ErrorKind::Upstream, message).hint("try again in a minute"),
    }
}
