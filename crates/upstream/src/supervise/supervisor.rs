//! Supervisor of one server: keeps it connected with backoff, and its catalog up to date.

use super::server::UpstreamServer;
use crate::backoff::{GOOD_AFTER, RETRY_FIRST, RETRY_MAX, jittered, sleep_until};
use crate::catalog::cache::{self, SAID_NAME};
use crate::catalog::list_refresh::{FIRST_WITHIN, LIST_WITHIN, RelistSchedule, list};
use crate::catalog::{AdvertisedCatalog, ListError, RawCatalog, snapshot};
use crate::rpc::handshake::{HandshakeError, HandshakeResult, ProtocolHint, handshake};
use crate::rpc::{Connection, Demux, ListKind, NotificationBatch, PendingNotifications};
use crate::spec::StartPolicy;
use crate::status::{ServerStatus, StartPhase, StatusKind};
use crate::subscribe::{ListenEvent, ResourceSubscriber, SubscriptionListener};
use crate::transport::{DiagnosticTail, Inbound, LinkError, RequestError, TransportParts};
use portcullis_store::pins::ServerIdentity;
use portcullis_wire::SubscriptionStyle;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often in a row an immediate retry is right.
const AT_ONCE_MAX: usize = 5;
/// Changes within this time are debounced into one.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// The debounce interval for a server that announces changes all the time.
const DEBOUNCE_MAX: Duration = Duration::from_secs(5);
/// So many announcements within one debounce interval are a storm.
const STORM: usize = 3;
/// So many changed resources are announced before other tasks run.
const ANNOUNCED_AT_ONCE: usize = 32;

/// Faults that should happen once, for the case that they repeat.
const LOSES_SESSIONS: &str = "the server loses every session at once";
const ENDS_WHEN_PROBED: &str = "the server exits on its first request";
const CHANGES_VERSION: &str = "the server speaks another protocol version each time";
const ENDED: &str = "the server ended";
const BREAKS_AT_ONCE: &str = "every connection to the server breaks at once";

/// Why a connection ended, or never was.
enum ConnectionEnd {
    /// An immediate retry is right: the fault should not repeat. This is its name if it does.
    Again(&'static str),
    /// The server is not needed now.
    Idle,
    Why(StatusKind, String),
}

impl From<RequestError> for ConnectionEnd {
    fn from(error: RequestError) -> ConnectionEnd {
        let kind = match &error {
            RequestError::Link(LinkError::NeedsAuth(_)) => StatusKind::NeedsAuth,
            RequestError::Link(LinkError::NeedsRegistration(_)) => StatusKind::NeedsClientRegistration,
            RequestError::Link(LinkError::SessionLost) => return ConnectionEnd::Again(LOSES_SESSIONS),
            _ => StatusKind::Failed,
        };
        ConnectionEnd::Why(kind, error.to_string())
    }
}

impl From<ListError> for ConnectionEnd {
    fn from(unlisted: ListError) -> ConnectionEnd {
        let reason_text = unlisted.to_string();
        match unlisted {
            ListError::Request(_, error) => match error.into() {
                ConnectionEnd::Why(StatusKind::Failed, _) => {
                    ConnectionEnd::Why(StatusKind::Failed, reason_text)
                }
                ended => ended,
            },
            ListError::Unreadable(..) => ConnectionEnd::Why(StatusKind::Failed, reason_text),
        }
    }
}

/// Keeps the server connected until it is no longer wanted.
pub(crate) async fn run(server: Arc<UpstreamServer>) {
    let (mut pause, mut at_once) = (RETRY_FIRST, 0);
    let mut is_idle = restore(&server).await;
    while !server.stop.is_cancelled() {
        if is_idle {
            stay_idle(&server).await;
            is_idle = false;
            continue;
        }
        let shutdowns = server.spec.shutdown.requests();
        let (diagnostics, mut since) = (DiagnosticTail::default(), None::<Instant>);
        server.reach.attempting(diagnostics.clone());
        let ended = tokio::select! {
            biased;
            // First: a server that was stopped has not failed.
            () = server.stop.cancelled() => break,
            () = server.spec.shutdown.requested() => break,
            // At any point: a server that hangs in its handshake needs a reconnect most.
            () = server.reach.reconnect_requested() => ConnectionEnd::Again(BREAKS_AT_ONCE),
            ended = attempt(&server, diagnostics.clone(), &mut since) => ended,
        };
        if server.spec.shutdown.requests() != shutdowns {
            break;
        }
        server.reach.live.clear();
        server.leases.forget_tasks();
        if since.is_some() {
            server.subscriptions.connection_lost();
        }
        // A person who asks for a reconnect, however often, is no sign of a fault.
        let is_requested = server.reach.take_reconnect_request();
        // A server that takes long to fail has failed all the same.
        let was_good = since.is_some_and(|since| since.elapsed() >= GOOD_AFTER);
        if is_requested || was_good {
            (pause, at_once) = (RETRY_FIRST, 0);
        }
        let ended = match ended {
            ConnectionEnd::Idle => {
                (pause, at_once, is_idle) = (RETRY_FIRST, 0, true);
                continue;
            }
            ConnectionEnd::Again(why) if at_once >= AT_ONCE_MAX => {
                ConnectionEnd::Why(StatusKind::Failed, why.to_owned())
            }
            ended => ended,
        };
        let ConnectionEnd::Why(kind, reason) = ended else {
            at_once += 1;
            // A failed status stays until more is known, or a person asks for a reconnect.
            server.reach.status.send_if_modified(|status| {
                let starts = is_requested || status.kind == StatusKind::Connected;
                if starts {
                    status.kind = StatusKind::Starting;
                }
                starts
            });
            tokio::select! {
                () = tokio::time::sleep(RETRY_FIRST) => {}
                // The call that noticed the fault has notified too; that is one request, not two.
                () = server.reach.reconnect_requested() => {}
                () = server.stop.cancelled() => break,
            }
            continue;
        };
        at_once = 0;
        tracing::warn!(target: "upstream", server = %server.spec.name, %reason, "server is not connected");
        let (reason, stderr) = (Some(reason), diagnostics.last_words().await);
        let phase = server.reach.start_progress().phase;
        let retry_at = Instant::now() + jittered(pause);
        server.reach.failed(ServerStatus { phase, reason, stderr, ..ServerStatus::of(kind) }, retry_at);
        // A server that is started on demand is also retried on demand.
        let next = async {
            tokio::time::sleep_until(retry_at).await;
            if server.spec.is_lazy() && server.catalog.is_known() {
                server.needed().await;
            }
        };
        tokio::select! {
            () = next => {}
            () = server.reach.reconnect_requested() => pause = RETRY_FIRST,
            () = server.stop.cancelled() => break,
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
    server.reach.live.clear();
    server.withdraw();
    server.reach.status.send_replace(ServerStatus::of(StatusKind::Disabled));
}

/// Restores the cached catalog. Returns whether there is one, so that the server need not run to be listed.
async fn restore(server: &UpstreamServer) -> bool {
    let Some((advertised, hint)) = cache::restore(&server.spec).await else { return false };
    server.reach.set_hint(hint);
    server.catalog.set_advertised(advertised);
    true
}

/// Waits until the server is needed, or to be reconnected, or no longer wanted.
async fn stay_idle(server: &UpstreamServer) {
    tracing::info!(target: "upstream", server = %server.spec.name, "server is idle until it is needed");
    server.set_idle();
    tokio::select! {
        () = server.needed() => {}
        () = server.reach.reconnect_requested() => {}
        () = server.stop.cancelled() => {}
    }
    server.reach.set_starting();
}

/// Connects once. Returns when the connection has ended; `since` is when it could be used, if it ever could.
async fn attempt(
    server: &Arc<UpstreamServer>,
    diagnostics: DiagnosticTail,
    since: &mut Option<Instant>,
) -> ConnectionEnd {
    server.spec.transport.wait_free(&server.instance_id()).await;
    // A server on demand that no client needs is only started to read its catalog.
    let leases = &server.leases;
    let only_lists = server.spec.is_lazy() && server.is_quiet();
    let ever = leases.ever();
    // Read before the start, so that what runs is what was read; a swap in this very moment is not noticed (TOCTOU).
    let facts = server.spec.transport.identity().await;
    let (connection, notifications, server_info) = match connect(server, diagnostics).await {
        Ok(connected) => connected,
        Err(ended) => return ended,
    };
    server.reach.set_phase(Some(StartPhase::Listing));
    let _over = RetireOnDrop(connection.demux.clone());
    let mut offer = server.catalog.last_offer(&identity(&facts, &server_info));
    offer.keep(|capability| server_info.has(capability));
    offer.instructions.clone_from(&server_info.instructions);
    offer.era = Some(connection.era());
    let all = BTreeSet::from(ListKind::ALL);
    // A list that no client waits for, or that a person is to review, may take its time.
    let is_patient = only_lists || matches!(server.spec.start, StartPolicy::ToBeSeen);
    let within = if is_patient { LIST_WITHIN } else { FIRST_WITHIN };
    let listed = list(&connection, &server_info, &mut offer, &all, |_| within);
    if let Err(error) = tokio::join!(listed, request_all_logs(&connection, &server_info)).0 {
        return given_up_by_hub(&connection).unwrap_or_else(|| error.into());
    }
    publish(server, &connection, &server_info, &facts, offer.clone());
    *since = Some(Instant::now());
    server.reach.set_phase(None);
    let is_unneeded = || only_lists && server.is_quiet() && leases.ever() == ever;
    // An idle server has to have a complete catalog.
    if offer.is_whole() && is_unneeded() {
        return ConnectionEnd::Idle;
    }
    tokio::select! {
        biased;
        // First: nothing more can arrive.
        () = connection.demux.life.retired.cancelled() => given_up_by_hub(&connection).unwrap_or_else(|| {
            let gone = connection.closed().is_cancelled();
            if gone { ConnectionEnd::Why(StatusKind::Failed, ENDED.to_owned()) } else { ConnectionEnd::Again(LOSES_SESSIONS) }
        }),
        ended = maintain(server, &connection, notifications, &server_info, &facts, offer, is_unneeded) => ended,
    }
}

/// Asks for all log messages: each client has its own level. A server may refuse.
async fn request_all_logs(connection: &Connection, server_info: &HandshakeResult) {
    if connection.dialect().sets_log_level() && server_info.has("logging") {
        let level = r#""level":"debug""#.to_owned();
        let _ = connection.hub_request("logging/setLevel", level, FIRST_WITHIN).await;
    }
}

/// Ends every wait on a connection that is no longer used.
struct RetireOnDrop(Arc<Demux>);

impl Drop for RetireOnDrop {
    fn drop(&mut self) {
        self.0.life.retire();
    }
}

/// Returns why the hub gave the connection up, where it did.
fn given_up_by_hub(connection: &Connection) -> Option<ConnectionEnd> {
    connection.demux.life.given_up_for().map(|why| ConnectionEnd::Why(StatusKind::Failed, why.to_owned()))
}

/// Keeps the catalog up to date, until the server is not needed or that fails. A server that `is_unneeded` was only
/// started to read its catalog.
async fn maintain(
    server: &Arc<UpstreamServer>,
    connection: &Arc<Connection>,
    notifications: Arc<PendingNotifications>,
    server_info: &HandshakeResult,
    facts: &ServerIdentity,
    mut offer: RawCatalog,
    is_unneeded: impl Fn() -> bool,
) -> ConnectionEnd {
    let (leases, style) = (&server.leases, connection.dialect().subscription_style());
    let mut idle = idle_from(server, Instant::now());
    let mut relist = RelistSchedule::new(server.spec.relist_every, &offer);
    let missed_before = server.subscriptions.take_missed();
    let mut listening = SubscriptionListener::new(connection, server_info, missed_before.clone());
    let mut subscribing = ResourceSubscriber::new(&server.subscriptions, connection, missed_before);
    let mut debounce = DEBOUNCE;
    // What was watched before this connection.
    server.subscriptions.changed.notify_one();
    loop {
        server.catalog.set_awaits_lists(relist.is_awaited(&offer));
        tokio::select! {
            () = server.subscriptions.changed.notified() => match style {
                SubscriptionStyle::OneStream => listening.watch(server.subscriptions.uris()),
                SubscriptionStyle::PerResource => subscribing.is_due(),
            },
            () = subscribing.run() => {}
            () = sleep_until(idle) => {
                let due = server.spec.idle_stop.is_some_and(|idle| leases.last() + idle <= Instant::now());
                // An idle server has to have a complete catalog.
                if due && server.is_quiet() && !relist.is_awaited(&offer) {
                    return ConnectionEnd::Idle;
                }
                idle = idle_from(server, if due { Instant::now() } else { leases.last() });
            }
            listed = relist.due(connection, server_info, &offer) => {
                if let Some(listed) = listed {
                    offer = listed;
                    publish(server, connection, server_info, facts, offer.clone());
                }
                if !relist.is_awaited(&offer) && is_unneeded() {
                    return ConnectionEnd::Idle;
                }
            }
            news = listening.news() => match news {
                ListenEvent::Opened(missed_before) => announce_updated(server, missed_before).await,
                ListenEvent::Reopened => connection.demux.listening_resumed(),
                ListenEvent::Gone(error) => return error.into(),
            },
            () = notifications.news() => {
                let NotificationBatch { mut lists, updated, missed, .. } = notifications.take();
                announce_updated(server, updated).await;
                if lists.is_empty() && !missed {
                    continue;
                }
                tokio::time::sleep(debounce).await;
                // Counted before they are taken, so that none counts as read that was not.
                let said = connection.demux.lists.announcements();
                let more = notifications.take();
                lists.extend(more.lists);
                announce_updated(server, more.updated).await;
                let is_storm = more.often > STORM;
                let mut read = lists.clone();
                if missed || more.missed {
                    read.extend(offered(server_info));
                }
                // Calls wait for announced tools and prompts, and for no more than that: the rest may be late, and
                // is read concurrently.
                let within = |list: ListKind| match list != ListKind::Resources && lists.contains(&list) {
                    true => LIST_WITHIN,
                    false => FIRST_WITHIN,
                };
                debounce = if is_storm { (debounce * 2).min(DEBOUNCE_MAX) } else { DEBOUNCE };
                relist.forget(&offer);
                // Read first, announced afterwards. A list that fails leaves the last good one.
                match list(connection, server_info, &mut offer, &read, within).await {
                    Ok(()) => {
                        relist.refreshed(&offer);
                        let changed = publish(server, connection, server_info, facts, offer.clone());
                        // What was counted by now, and is not pending, was taken before this read.
                        let counted = connection.demux.lists.announcements();
                        let looked = if notifications.waits_for_lists() { said } else { counted };
                        connection.demux.lists.set_read(looked);
                        // Nothing differs, but the server may know better. One that announces all the time is not
                        // believed.
                        if !changed && !is_storm {
                            for list in lists {
                                server.announce_list(list.refresh_lists());
                            }
                        }
                    }
                    // It is busy with a call, and does one thing at a time. Its lists are read until that succeeds.
                    Err(error) if error.is_late() && connection.demux.pending.serves_call() => {
                        tracing::debug!(target: "upstream", server = %server.spec.name, %error, "lists are read again");
                        lists.into_iter().for_each(|list| _ = notifications.changed(list));
                        if missed || more.missed {
                            notifications.missed();
                        }
                    }
                    // The tools are unknown now, so none of them can be called.
                    Err(error) => {
                        tracing::warn!(target: "upstream", server = %server.spec.name, %error, "changed list could not be read");
                        return error.into();
                    }
                }
            }
        }
    }
}

/// Returns the lists that a server declares.
fn offered(server_info: &HandshakeResult) -> impl Iterator<Item = ListKind> {
    let all =
        [("tools", ListKind::Tools), ("prompts", ListKind::Prompts), ("resources", ListKind::Resources)];
    all.into_iter().filter(|(capability, _)| server_info.has(capability)).map(|(_, list)| list)
}

/// Announces changed resources, and lets the receivers keep up.
async fn announce_updated(server: &UpstreamServer, updated: BTreeSet<String>) {
    for (number, uri) in (1..).zip(updated) {
        server.subscriptions.announce(uri);
        if number % ANNOUNCED_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
}

type ConnectedServer = (Arc<Connection>, Arc<PendingNotifications>, HandshakeResult);

async fn connect(
    server: &UpstreamServer,
    diagnostics: DiagnosticTail,
) -> Result<ConnectedServer, ConnectionEnd> {
    let failed = |why: String| ConnectionEnd::Why(StatusKind::Failed, why);
    let (demux, notifications) = Demux::new();
    demux.elicitations.set_asker(server.asker());
    let known = server.reach.hint();
    let parts = TransportParts {
        instance: server.instance_id(),
        inbound: demux.clone(),
        diagnostics,
        hint: known.as_ref().and_then(|known| known.transport.clone()),
        shutdown: &server.spec.shutdown,
    };
    let link = server.spec.transport.open(parts);
    let link = link.map_err(failed)?;
    let connection = Arc::new(Connection::new(link, demux));
    server.reach.set_phase(Some(StartPhase::Handshake));
    let era = known.as_ref().map(|known| known.era);
    let handshaken = handshake(&connection, era, server.spec.start_timeout).await;
    if handshaken.is_err()
        && let Some(ended) = given_up_by_hub(&connection)
    {
        return Err(ended);
    }
    let server_info = match handshaken {
        Ok(server_info) => server_info,
        Err(HandshakeError::EndedWhenProbed) => {
            server.reach.set_hint(Some(ProtocolHint::ended_when_probed()));
            return Err(ConnectionEnd::Again(ENDS_WHEN_PROBED));
        }
        Err(HandshakeError::Failed(error)) => {
            let is_other =
                matches!(error, RequestError::Refused(_) | RequestError::Link(LinkError::Unsuitable { .. }));
            // The hint may be wrong by now; but not because the server is away or slow.
            if is_other || matches!(error, RequestError::Closed) {
                server.reach.set_hint(None);
            }
            // The era is probed again before the status says that it failed.
            let again = known.is_some() && is_other;
            return Err(if again { ConnectionEnd::Again(CHANGES_VERSION) } else { error.into() });
        }
    };
    let transport = connection.transport_hint();
    server
        .reach
        .set_hint(connection.revision().map(|revision| ProtocolHint { era: revision.era(), transport }));
    Ok((connection, notifications, server_info))
}

fn publish(
    server: &UpstreamServer,
    connection: &Arc<Connection>,
    server_info: &HandshakeResult,
    facts: &ServerIdentity,
    mut offer: RawCatalog,
) -> bool {
    let snapshot = Arc::new(snapshot(&mut offer, identity(facts, server_info)));
    let (name, revision) =
        (server_info.name.clone(), connection.revision().map(|revision| revision.as_str()));
    let offered = AdvertisedCatalog { offer, snapshot, name, revision };
    // An incomplete catalog would pass for a complete one at the next start.
    if offered.offer.is_whole() {
        cache::save(&server.spec, &offered, server.reach.hint().and_then(|hint| hint.transport));
    }
    server.set_catalog(offered, connection)
}

/// Returns the identity of the server: what is known of it, and its own name.
fn identity(facts: &ServerIdentity, server_info: &HandshakeResult) -> ServerIdentity {
    let mut identity = facts.clone();
    identity.insert(SAID_NAME.to_owned(), server_info.name.clone().unwrap_or_default());
    identity
}

/// Returns when an idle server is due to stop.
fn idle_from(server: &UpstreamServer, since: Instant) -> Option<Instant> {
    server.spec.idle_stop.map(|idle| since + idle)
}
