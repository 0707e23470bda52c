//! Where calendars come from: an address that nobody may see, or a file.

use super::CalendarPlace;
use portcullis_core::root::RootedPath;
use portcullis_core::{CallCtx, Clock, Root, ToolError};
use portcullis_egress::{Egress, HiddenAddress, HiddenAnswer, PlainHttp, header, reason};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A calendar in full. A hundred thousand short events.
pub(super) const CALENDAR_BYTES_MAX: usize = 5 * 1024 * 1024;
/// For so long a calendar is not asked for again: a model asks several times in a row.
const FRESH: Duration = Duration::from_secs(60);
/// For so long what was last seen stands in for a calendar that does not answer.
const STALE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const ACCEPTED: &str = "text/calendar, text/plain;q=0.5, */*;q=0.1";

/// What a calendar said.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    pub(super) text: Arc<str>,
    /// When it was last known to be true, since the epoch.
    pub(super) seen: Duration,
}

/// What came of asking: a copy, a problem, or both where an old one has to do.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) copy: Option<Copy>,
    pub(super) problem: Option<ToolError>,
}

/// One calendar, and what it said last.
pub(super) struct Feed {
    pub(super) name: String,
    place: CalendarPlace,
    kept: Mutex<Option<Kept>>,
    /// Held while it is asked, so that several calls at once ask once.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Kept {
    copy: Copy,
    etag: Option<String>,
    last_modified: Option<String>,
}

impl Feed {
    pub(super) fn new(name: String, place: CalendarPlace) -> Feed {
        Feed { name, place, kept: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// Returns what the calendar says, asking it if what is known is not fresh.
    pub(super) async fn ask(&self, egress: &Egress, clock: &dyn Clock, ctx: &CallCtx) -> Asked {
        let (address, plain_http) = match &self.place {
            CalendarPlace::File(path) => return self.read_file(path.clone(), clock).await,
            CalendarPlace::Address { address, plain_http } => (address, *plain_http),
        };
        let _asking = self.asking.lock().await;
        let now = clock.since_epoch();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(kept) = kept.as_ref().filter(|kept| now.saturating_sub(kept.copy.seen) < FRESH) {
            return Asked { copy: Some(kept.copy.clone()), problem: None };
        }
        match self.fetch(egress, address, plain_http, kept.as_ref(), ctx).await {
            Ok(fresh) => {
                let kept = Kept { copy: Copy { seen: now, ..fresh.copy }, ..fresh };
                let copy = kept.copy.clone();
                *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
                Asked { copy: Some(copy), problem: None }
            }
            Err(problem) => {
                let old = kept.map(|kept| kept.copy);
                let copy = old.filter(|copy| now.saturating_sub(copy.seen) < STALE_MAX);
                Asked { copy, problem: Some(problem) }
            }
        }
    }

    async fn fetch(
        &self,
        egress: &Egress,
        address: &HiddenAddress,
        plain_http: PlainHttp,
        kept: Option<&Kept>,
        ctx: &CallCtx,
    ) -> Result<Kept, ToolError> {
        let label = format!("calendar `{}`", self.name);
        let mut request = egress
            .get_hidden(address, label.clone())
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
            (200..300, Some(body), _) => Ok(Kept {
                copy: Copy { text: String::from_utf8_lossy(&body).into(), seen: Duration::ZERO },
                etag: answer.etag,
                last_modified: answer.last_modified,
            }),
            (304, _, Some(kept)) => Ok(kept.clone()),
            (_, body, _) => Err(refused(&label, HiddenAnswer { body, ..answer })),
        }
    }

    async fn read_file(&self, path: std::path::PathBuf, clock: &dyn Clock) -> Asked {
        let name = self.name.clone();
        let seen = clock.since_epoch();
        let reading = tokio::task::spawn_blocking(move || read(&path, &name)).await;
        match reading.map_err(ToolError::internal).and_then(|read| read) {
            Ok(text) => Asked { copy: Some(Copy { text: text.into(), seen }), problem: None },
            Err(problem) => Asked { copy: None, problem: Some(problem) },
        }
    }
}

/// Reads a file that a person named. Where it is goes to the log only.
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

/// Says what a status means, without saying where.
fn refused(label: &str, answer: HiddenAnswer) -> ToolError {
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
