//! Refresh of lists: after a notification, and periodically, because some servers never notify.

use super::list_reader::{ListError, ListMethod, PROMPTS, RESOURCES, TEMPLATES, TOOLS, read_list};
use super::schema_flaws::find_schema_flaws;
use super::{RawCatalog, RawDefinition};
use crate::backoff::jittered;
use crate::rpc::handshake::HandshakeResult;
use crate::rpc::{Connection, ListKind};
use futures::future::{BoxFuture, FutureExt, TryFutureExt, try_join_all};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The timeout of one page.
pub(crate) const LIST_WITHIN: Duration = Duration::from_secs(30);
/// The same for an optional list, while the tools wait for it to be shown.
pub(crate) const FIRST_WITHIN: Duration = Duration::from_secs(3);
/// The delay before a late list is read again; it doubles with each further time.
const LATE_RETRY_FIRST: Duration = Duration::from_secs(1);
/// A list that was late so often will not come, and an idle server need not run for it.
const LATE_RETRIES_MAX: u32 = 4;

/// Reads these lists; the others stay as they were. The timeout is for optional ones; one that exceeds it stays as
/// it was, and is late.
pub(crate) async fn list(
    connection: &Connection,
    server_info: &HandshakeResult,
    offer: &mut RawCatalog,
    lists: &BTreeSet<ListKind>,
    within: impl Fn(ListKind) -> Duration,
) -> Result<(), ListError> {
    let RawCatalog { tools, prompts, resources, templates, dropped, late, flaws: known_flaws, .. } = offer;
    if lists.contains(&ListKind::Tools) {
        let before = tools.clone();
        // Read in any case: some have tools and do not declare them.
        let is_needed = server_info.has("tools");
        let within = if is_needed { LIST_WITHIN } else { within(ListKind::Tools) };
        let came = read(connection, TOOLS, is_needed, within, tools).await?;
        late.remove(&ListKind::Tools);
        came.record(dropped, ListKind::Tools, late);
        *known_flaws = find_schema_flaws(tools, &before, known_flaws).await;
    }
    let mut others = Vec::new();
    if lists.contains(&ListKind::Prompts) && server_info.has("prompts") {
        others.push((PROMPTS, prompts, ListKind::Prompts));
    }
    if lists.contains(&ListKind::Resources) && server_info.has("resources") {
        others.push((RESOURCES, resources, ListKind::Resources));
        others.push((TEMPLATES, templates, ListKind::Resources));
    }
    // Concurrently: none depends on another, and each may be slow.
    let others = others.into_iter().map(|(kind, list, listed)| {
        read(connection, kind, false, within(listed), list).map_ok(move |came| (came, listed))
    });
    let others = try_join_all(others).await?;
    late.retain(|listed| *listed == ListKind::Tools || !lists.contains(listed));
    for (came, listed) in others {
        came.record(dropped, listed, late);
    }
    Ok(())
}

/// The result of reading one list.
struct ListOutcome {
    kind: ListMethod,
    left_out: Vec<(String, String)>,
    is_late: bool,
}

impl ListOutcome {
    /// Records what was dropped from this list, in place of what was dropped from it before.
    fn record(
        mut self,
        dropped: &mut Vec<(String, String)>,
        listed: ListKind,
        late: &mut BTreeSet<ListKind>,
    ) {
        dropped.retain(|(list, _)| list != self.kind.key);
        dropped.append(&mut self.left_out);
        if self.is_late {
            late.insert(listed);
        }
    }
}

/// Reads one list again. Without a list that `is_needed` the server is unusable; any other that fails stays as it
/// was, and is reported.
async fn read(
    connection: &Connection,
    kind: ListMethod,
    is_needed: bool,
    within: Duration,
    list: &mut Vec<RawDefinition>,
) -> Result<ListOutcome, ListError> {
    let (mut left_out, mut is_late) = (Vec::new(), false);
    match read_list(connection, kind, within, &mut left_out).await {
        Ok(said) => *list = said,
        Err(error) if !is_needed && error.is_of_list() => {
            is_late = error.is_late();
            left_out.push((kind.key.to_owned(), format!("the list could not be read: {error}")));
        }
        Err(error) => return Err(error),
    }
    Ok(ListOutcome { kind, left_out, is_late })
}

/// Schedule of the periodic refresh, and of the retries of a late list.
pub(crate) struct RelistSchedule {
    every: Duration,
    next: Instant,
    /// How often a late list was read again in vain.
    late_retries: u32,
    /// Runs concurrently: a server that is busy with a call may respond late.
    running: Option<BoxFuture<'static, Result<RawCatalog, ListError>>>,
}

impl RelistSchedule {
    pub(crate) fn new(every: Duration, offer: &RawCatalog) -> RelistSchedule {
        let mut relist = RelistSchedule { every, next: Instant::now(), late_retries: 0, running: None };
        relist.refreshed(offer);
        relist
    }

    /// Takes note of a refresh for another reason.
    pub(crate) fn refreshed(&mut self, offer: &RawCatalog) {
        let now = Instant::now();
        if offer.is_whole() {
            (self.next, self.late_retries) = (now + jittered(self.every), 0);
        } else if self.late_retries == 0 {
            self.next = now;
        }
    }

    /// Returns whether the server is kept running for a late list.
    pub(crate) fn is_awaited(&self, offer: &RawCatalog) -> bool {
        !offer.is_whole() && self.late_retries < LATE_RETRIES_MAX
    }

    /// Cancels a refresh in flight: its result would be older than what is known by then.
    pub(crate) fn forget(&mut self, offer: &RawCatalog) {
        if self.running.take().is_some() && !offer.is_whole() {
            self.late_again();
        }
    }

    /// Takes note that a late list did not arrive. It is read again with backoff: the server may be busy for long,
    /// and may never return it.
    fn late_again(&mut self) {
        let pause = LATE_RETRY_FIRST.saturating_mul(2_u32.saturating_pow(self.late_retries));
        self.late_retries += 1;
        self.next = Instant::now() + jittered(pause.min(self.every));
    }

    /// Refreshes when it is due. Returns the new catalog, if it could be read.
    pub(crate) async fn due(
        &mut self,
        connection: &Arc<Connection>,
        server_info: &HandshakeResult,
        offer: &RawCatalog,
    ) -> Option<RawCatalog> {
        if self.running.is_none() {
            tokio::time::sleep_until(self.next).await;
            let (connection, server_info, mut offer) =
                (connection.clone(), server_info.clone(), offer.clone());
            let all = BTreeSet::from(ListKind::ALL);
            let looks = async move {
                list(&connection, &server_info, &mut offer, &all, |_| LIST_WITHIN).await.map(|()| offer)
            };
            self.running = Some(looks.boxed());
        }
        let listed = match &mut self.running {
            Some(running) => running.await,
            None => return None,
        };
        self.running = None;
        // What is known stays valid: the connection notices a server that is gone.
        let listed = listed
            .inspect_err(|error| tracing::debug!(target: "upstream", %error, "periodic refresh failed"))
            .ok();
        if listed.as_ref().unwrap_or(offer).is_whole() {
            (self.next, self.late_retries) = (Instant::now() + jittered(self.every), 0);
        } else {
            self.late_again();
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Demux;
    use crate::transport::Inbound;
    use crate::transport::RequestError;
    use crate::transport::{OutboundMessage, TransportLink};
    use parking_lot::Mutex;
    use serde_json::json;

    /// A server without items, which does not respond to these methods.
    struct Silent {
        demux: Arc<Demux>,
        on: Mutex<Vec<&'static str>>,
    }

    impl TransportLink for Silent {
        fn send<'a>(&'a self, message: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            let asked = message.method.filter(|method| !self.on.lock().contains(method));
            if let (Some(id), Some(_)) = (message.id, asked) {
                let nothing = json!({ "tools": [], "resources": [], "resourceTemplates": [] });
                let answer = json!({ "jsonrpc": "2.0", "id": id, "result": nothing });
                self.demux.receive(answer.to_string().as_bytes(), None);
            }
            Box::pin(async { Ok(()) })
        }
    }

    const EVERY: Duration = Duration::from_secs(3600);

    fn owed(silent_on: &[&'static str]) -> (Arc<Silent>, Arc<Connection>, HandshakeResult, RawCatalog) {
        let (demux, _notifications) = Demux::new();
        let link = Arc::new(Silent { demux: demux.clone(), on: Mutex::new(silent_on.to_vec()) });
        let connection = Arc::new(Connection::new(link.clone(), demux));
        let capabilities = json!({ "tools": {}, "resources": {} }).as_object().unwrap().clone();
        let server_info = HandshakeResult { capabilities, ..HandshakeResult::default() };
        let offer = RawCatalog { late: BTreeSet::from([ListKind::Resources]), ..RawCatalog::default() };
        (link, connection, server_info, offer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_owed_is_asked_for_until_it_comes() {
        let (link, connection, server_info, offer) = owed(&["tools/list", "resources/list"]);
        let (mut relist, began) = (RelistSchedule::new(EVERY, &offer), Instant::now());
        // Busy with a call, it does not even return its tools.
        assert!(relist.due(&connection, &server_info, &offer).await.is_none());
        assert!(relist.is_awaited(&offer));
        link.on.lock().remove(0);
        let part = relist.due(&connection, &server_info, &offer).await.unwrap();
        assert_eq!(part.late, offer.late);
        assert!(relist.is_awaited(&part));
        link.on.lock().clear();
        let whole = relist.due(&connection, &server_info, &part).await.unwrap();
        assert!(whole.is_whole() && !relist.is_awaited(&whole));
        assert!(began.elapsed() < EVERY / 10);
        // With nothing late, the interval is the usual one.
        assert!(relist.due(&connection, &server_info, &whole).await.is_some());
        assert!(began.elapsed() > EVERY / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_never_comes_is_not_waited_for_without_end() {
        let (_link, connection, server_info, mut offer) = owed(&["resources/list"]);
        let mut relist = RelistSchedule::new(EVERY, &offer);
        for _ in 0..LATE_RETRIES_MAX {
            assert!(relist.is_awaited(&offer));
            offer = relist.due(&connection, &server_info, &offer).await.unwrap();
            // Other refreshes do not change that.
            relist.refreshed(&offer);
        }
        assert!(!offer.is_whole() && !relist.is_awaited(&offer));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_at_one_list_does_not_pay_what_is_owed_of_another() {
        let (link, connection, server_info, mut offer) = owed(&["resources/list"]);
        let tools = BTreeSet::from([ListKind::Tools]);
        list(&connection, &server_info, &mut offer, &tools, |_| FIRST_WITHIN).await.unwrap();
        assert_eq!(offer.late, BTreeSet::from([ListKind::Resources]));
        link.on.lock().clear();
        let resources = BTreeSet::from([ListKind::Resources]);
        list(&connection, &server_info, &mut offer, &resources, |_| FIRST_WITHIN).await.unwrap();
        assert!(offer.is_whole());
    }
}
