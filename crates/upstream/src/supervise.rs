//! Keeps one server connected, and what it offers up to date.

use crate::catalog::{Offer, Unlisted};
use crate::connection::{Connection, LinkError, RequestError};
use crate::elicitation::Asker;
use crate::greet::{Greeting, Unknown, greet};
use crate::heard::{Ear, Heard};
use crate::http;
use crate::inbox::Inbox;
use crate::link::Carrier;
use crate::listen::{self, Listening};
use crate::lists::{FIRST_WITHIN, LIST_WITHIN, Listed, Relist, list};
use crate::recall::{self, SAID_NAME};
use crate::server::{Known, Offered, Server};
use crate::spec::{Start, TransportSpec};
use crate::status::{Status, StatusKind};
use crate::stdio::{self, StderrTail};
use crate::subscribe::Subscribing;
use crate::trust;
use portcullis_store::pins::Identity;
use portcullis_wire::Era;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait before the first new attempt; twice as long before each further one.
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(250);
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(60);
/// How often in a row trying again at once is right.
const AT_ONCE_MAX: usize = 5;
/// A connection that lasted this long, counted from when it could be used, was a good one.
pub(crate) const GOOD_AFTER: Duration = Duration::from_secs(10);
/// Changes that come closer together are told as one.
const DAMPED: Duration = Duration::from_millis(200);
/// A server that goes on and on saying so is looked at this seldom.
const DAMPED_MAX: Duration = Duration::from_secs(5);
/// So many changes within one moment are a storm.
const STORM: usize = 3;
/// So many changed resources are told of before others get to do something.
const TOLD_AT_ONCE: usize = 32;

/// What each is called that should go wrong once, where it goes wrong again and again.
const FORGETS: &str = "the server forgets every session at once";
const ENDS_WHEN_PROBED: &str = "the server ends as soon as it is asked anything";
const SPEAKS_OTHERWISE: &str = "the server speaks otherwise each time it is asked";
const ENDED: &str = "the server ended";
const BREAKS: &str = "every connection to the server breaks as soon as it is made";

/// Why a connection ended, or never was.
enum Ended {
    /// Trying again at once is right: what went wrong will not go wrong again. This is what it is called if it does.
    Again(&'static str),
    /// Nobody needs it now.
    Idle,
    Why(StatusKind, String),
}

impl From<RequestError> for Ended {
    fn from(error: RequestError) -> Ended {
        let kind = match &error {
            RequestError::Link(LinkError::NeedsAuth(_)) => StatusKind::NeedsAuth,
            RequestError::Link(LinkError::NeedsRegistration(_)) => StatusKind::NeedsClientRegistration,
            RequestError::Link(LinkError::SessionLost) => return Ended::Again(FORGETS),
            _ => StatusKind::Failed,
        };
        Ended::Why(kind, error.to_string())
    }
}

impl From<Unlisted> for Ended {
    fn from(unlisted: Unlisted) -> Ended {
        let told = unlisted.to_string();
        match unlisted {
            Unlisted::Request(_, error) => match error.into() {
                Ended::Why(StatusKind::Failed, _) => Ended::Why(StatusKind::Failed, told),
                ended => ended,
            },
            Unlisted::Unreadable(..) => Ended::Why(StatusKind::Failed, told),
        }
    }
}

/// Keeps the server connected until it is no longer wanted.
pub(crate) async fn run(server: Arc<Server>) {
    let (mut pause, mut at_once) = (RETRY_FIRST, 0);
    let mut rests = recall::recall(&server).await;
    while !server.stop.is_cancelled() {
        if rests {
            rest(&server).await;
            rests = false;
            continue;
        }
        server.tries();
        server.was_wished();
        let ends = stdio::ends();
        let (stderr, mut since) = (StderrTail::default(), None::<Instant>);
        let ended = tokio::select! {
            biased;
            // First: a server that was told to end has not failed.
            () = server.stop.cancelled() => break,
            () = stdio::told_to_end() => break,
            // At whatever point: what hangs at its greeting is wanted anew most of all.
            () = server.again.notified() => Ended::Again(BREAKS),
            ended = attempt(&server, stderr.clone(), &mut since) => ended,
        };
        if stdio::ends() != ends {
            break;
        }
        server.live.clear();
        server.uses.forget_tasks();
        if since.is_some() {
            server.goes_unheard();
        }
        // Somebody who wants it anew, however often, is no sign of anything wrong.
        let is_wished = server.was_wished();
        // One that takes long to fail has failed all the same.
        let was_good = since.is_some_and(|since| since.elapsed() >= GOOD_AFTER);
        if is_wished || was_good {
            (pause, at_once) = (RETRY_FIRST, 0);
        }
        let ended = match ended {
            Ended::Idle => {
                (pause, at_once, rests) = (RETRY_FIRST, 0, true);
                continue;
            }
            Ended::Again(why) if at_once >= AT_ONCE_MAX => Ended::Why(StatusKind::Failed, why.to_owned()),
            ended => ended,
        };
        let Ended::Why(kind, reason) = ended else {
            at_once += 1;
            // One that has failed stays so until it is known better, or somebody wants to know.
            server.status.send_if_modified(|status| {
                let starts = is_wished || status.kind == StatusKind::Connected;
                if starts {
                    status.kind = StatusKind::Starting;
                }
                starts
            });
            tokio::select! {
                () = tokio::time::sleep(RETRY_FIRST) => {}
                // Who found out said so too; that is one wish, not two.
                () = server.again.notified() => {}
                () = server.stop.cancelled() => break,
            }
            continue;
        };
        at_once = 0;
        tracing::warn!(target: "upstream", server = %server.spec.name, %reason, "A server is not connected.");
        let (reason, stderr) = (Some(reason), stderr.last_words().await);
        let retry_at = Instant::now() + jittered(pause);
        server.fails(Status { reason, stderr, ..Status::of(kind) }, retry_at);
        // One that is started when it is needed is also tried again when it is needed.
        let next = async {
            tokio::time::sleep_until(retry_at).await;
            if server.spec.is_lazy() && server.is_known() {
                server.needed().await;
            }
        };
        tokio::select! {
            () = next => {}
            () = server.again.notified() => pause = RETRY_FIRST,
            () = server.stop.cancelled() => break,
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
    server.live.clear();
    server.withdraw();
    server.status.send_replace(Status::of(StatusKind::Disabled));
}

/// Waits until somebody needs the server, or wants it anew, or no longer.
async fn rest(server: &Server) {
    tracing::info!(target: "upstream", server = %server.spec.name, "A server rests until somebody needs it.");
    server.rests(true);
    tokio::select! {
        () = server.needed() => {}
        () = server.again.notified() => {}
        () = server.stop.cancelled() => {}
    }
    server.rests(false);
}

/// Connects once. Returns when the connection has ended; `since` is when it could be used, if it ever could.
async fn attempt(server: &Arc<Server>, stderr: StderrTail, since: &mut Option<Instant>) -> Ended {
    if let TransportSpec::Stdio(spec) = &server.spec.transport {
        stdio::former_ended(spec, &server.whose()).await;
    }
    // Started for nobody, one that waits to be needed is only asked what it offers.
    let uses = &server.uses;
    let learns = server.spec.is_lazy() && server.is_quiet();
    let ever = uses.ever();
    // Read before it is started: what runs is what was read, but for whoever replaces it at this very moment.
    let facts = trust::facts(&server.spec).await;
    let (connection, hears, greeting) = match connect(server, stderr).await {
        Ok(connected) => connected,
        Err(ended) => return ended,
    };
    let _over = Over(connection.inbox.clone());
    let mut offer = server.last_offer(&identity(&facts, &greeting));
    offer.keep(|capability| greeting.has(capability));
    offer.instructions.clone_from(&greeting.instructions);
    offer.era = Some(connection.era());
    let all = BTreeSet::from(Listed::ALL);
    // What nobody waits for, or a person is to judge, may take its time.
    let is_patient = learns || matches!(server.spec.start, Start::ToBeSeen);
    let within = if is_patient { LIST_WITHIN } else { FIRST_WITHIN };
    let listed = list(&connection, &greeting, &mut offer, &all, |_| within);
    if let Err(error) = tokio::join!(listed, hear_all(&connection, &greeting)).0 {
        return given_up(&connection).unwrap_or_else(|| error.into());
    }
    publish(server, &connection, &greeting, &facts, offer.clone());
    *since = Some(Instant::now());
    let is_unneeded = || learns && server.is_quiet() && uses.ever() == ever;
    // What it rests with has to be whole.
    if offer.is_whole() && is_unneeded() {
        return Ended::Idle;
    }
    tokio::select! {
        biased;
        // First, and whatever is being waited for: there is nothing more to come.
        () = connection.inbox.retired.cancelled() => given_up(&connection).unwrap_or_else(|| {
            let gone = connection.closed().is_cancelled();
            if gone { Ended::Why(StatusKind::Failed, ENDED.to_owned()) } else { Ended::Again(FORGETS) }
        }),
        ended = keep(server, &connection, hears, &greeting, &facts, offer, is_unneeded) => ended,
    }
}

/// Asks for everything that the server logs: what each client wants to hear is its own to say. One that refuses tells what it
/// tells.
async fn hear_all(connection: &Connection, greeting: &Greeting) {
    if !connection.is_modern() && greeting.has("logging") {
        let level = r#""level":"debug""#.to_owned();
        let _ = connection.own("logging/setLevel", level, FIRST_WITHIN).await;
    }
}

/// Whatever still waits for something on a connection that is no longer kept hears that nothing will come of it.
struct Over(Arc<Inbox>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.retire();
    }
}

/// Returns why a connection was given up, where that was for a reason of ours.
fn given_up(connection: &Connection) -> Option<Ended> {
    connection.inbox.given_up_for().map(|why| Ended::Why(StatusKind::Failed, why.to_owned()))
}

/// Keeps what is known of the server up to date, until nobody needs it or that cannot be done. One that `is_unneeded` was only
/// to say what it offers.
async fn keep(
    server: &Arc<Server>,
    connection: &Arc<Connection>,
    hears: Arc<Ear>,
    greeting: &Greeting,
    facts: &Identity,
    mut offer: Offer,
    is_unneeded: impl Fn() -> bool,
) -> Ended {
    let (uses, is_modern) = (&server.uses, connection.is_modern());
    let mut idle = idle_from(server, Instant::now());
    let mut relist = Relist::new(server.spec.relist_every, &offer);
    let unheard = server.take_unheard();
    let mut listening = Listening::new(connection, greeting, unheard.clone());
    let mut subscribing = Subscribing::new(server, connection, unheard);
    let mut damped = DAMPED;
    // Watched already, from before this connection.
    server.watch_changed.notify_one();
    loop {
        server.awaits_lists.store(relist.is_awaited(&offer), Ordering::Relaxed);
        tokio::select! {
            () = server.watch_changed.notified() => match is_modern {
                true => listening.watch(server.watched()),
                false => subscribing.is_due(),
            },
            () = subscribing.run() => {}
            () = sleep_until(idle) => {
                let due = server.spec.idle_stop.is_some_and(|idle| uses.last() + idle <= Instant::now());
                // What it rests with has to be whole.
                if due && server.is_quiet() && !relist.is_awaited(&offer) {
                    return Ended::Idle;
                }
                idle = idle_from(server, if due { Instant::now() } else { uses.last() });
            }
            listed = relist.due(connection, greeting, &offer) => {
                if let Some(listed) = listed {
                    offer = listed;
                    publish(server, connection, greeting, facts, offer.clone());
                }
                if !relist.is_awaited(&offer) && is_unneeded() {
                    return Ended::Idle;
                }
            }
            news = listening.news() => match news {
                listen::News::Heard(unheard) => tell_updated(server, unheard).await,
                listen::News::HeardAgain => connection.inbox.heard_again(),
                listen::News::Gone(error) => return error.into(),
            },
            () = hears.news() => {
                let Heard { mut lists, updated, missed, .. } = hears.take();
                tell_updated(server, updated).await;
                if lists.is_empty() && !missed {
                    continue;
                }
                tokio::time::sleep(damped).await;
                // Counted before it is taken, so that nothing counts as looked at that was not.
                let said = connection.inbox.lists.borrow().said;
                let more = hears.take();
                lists.extend(more.lists);
                tell_updated(server, more.updated).await;
                let is_storm = more.often > STORM;
                let mut read = lists.clone();
                if missed || more.missed {
                    read.extend(offered(greeting));
                }
                // Calls wait for what the server said of tools and prompts, and for no more than that: the rest may be late,
                // and is asked for beside them.
                let within = |list: Listed| match list != Listed::Resources && lists.contains(&list) {
                    true => LIST_WITHIN,
                    false => FIRST_WITHIN,
                };
                damped = if is_storm { (damped * 2).min(DAMPED_MAX) } else { DAMPED };
                relist.forget(&offer);
                // Listed first, told afterwards. A list that fails leaves the last good one.
                match list(connection, greeting, &mut offer, &read, within).await {
                    Ok(()) => {
                        relist.looked(&offer);
                        let changed = publish(server, connection, greeting, facts, offer.clone());
                        // What was counted by now, and does not wait to be taken, was taken before this look.
                        let counted = connection.inbox.lists.borrow().said;
                        let looked = if hears.waits_for_lists() { said } else { counted };
                        connection.inbox.lists.send_modify(|lists| lists.looked = looked);
                        // Nothing is different, but the server may know better; one that says so all the time is not
                        // believed.
                        if !changed && !is_storm {
                            for list in lists {
                                server.tell(list.list());
                            }
                        }
                    }
                    // It is busy with a call, and does one thing at a time. What it offers is asked for until it is known.
                    Err(error) if error.is_late() && connection.inbox.serves_call() => {
                        tracing::debug!(target: "upstream", server = %server.spec.name, %error, "a server is asked again for what it offers");
                        lists.into_iter().for_each(|list| _ = hears.changed(list));
                        if missed || more.missed {
                            hears.missed();
                        }
                    }
                    // What the tools are now is not known, so none of them can be called.
                    Err(error) => {
                        tracing::warn!(target: "upstream", server = %server.spec.name, %error, "A changed list could not be read.");
                        return error.into();
                    }
                }
            }
        }
    }
}

/// Returns the lists that a server has.
fn offered(greeting: &Greeting) -> impl Iterator<Item = Listed> {
    let all = [("tools", Listed::Tools), ("prompts", Listed::Prompts), ("resources", Listed::Resources)];
    all.into_iter().filter(|(capability, _)| greeting.has(capability)).map(|(_, list)| list)
}

/// Tells of changed resources, and lets those who pass it on keep up.
async fn tell_updated(server: &Server, updated: BTreeSet<String>) {
    for (number, uri) in (1..).zip(updated) {
        server.tell_updated(uri);
        if number % TOLD_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
}

type Connected = (Arc<Connection>, Arc<Ear>, Greeting);

async fn connect(server: &Server, stderr: StderrTail) -> Result<Connected, Ended> {
    let failed = |why: String| Ended::Why(StatusKind::Failed, why);
    let (inbox, hears) = Inbox::new();
    inbox.asks_for(Asker::of(&server.spec));
    let known = server.known();
    let link = match &server.spec.transport {
        TransportSpec::Stdio(spec) => stdio::start(spec, server.whose(), inbox.clone(), stderr),
        TransportSpec::Http(spec) => {
            let (credentials, carrier) = (server.credentials.clone(), known.map(|known| known.carrier));
            http::open(spec, inbox.clone(), credentials, carrier)
        }
    };
    let link = link.map_err(failed)?;
    let connection = Arc::new(Connection::new(link, inbox));
    let greeted = greet(&connection, known.map(|known| known.era)).await;
    if greeted.is_err()
        && let Some(ended) = given_up(&connection)
    {
        return Err(ended);
    }
    let greeting = match greeted {
        Ok(greeting) => greeting,
        Err(Unknown::EndedWhenProbed) => {
            server.remember(Some(Known { era: Era::Sessions, carrier: Carrier::Usual }));
            return Err(Ended::Again(ENDS_WHEN_PROBED));
        }
        Err(Unknown::Failed(error)) => {
            let is_other =
                matches!(error, RequestError::Refused(_) | RequestError::Link(LinkError::Unsuitable { .. }));
            // What was known may be wrong by now; but not because the server is away or slow.
            if is_other || matches!(error, RequestError::Closed) {
                server.remember(None);
            }
            // Then it is found out anew before anybody is told that it failed.
            let again = known.is_some() && is_other;
            return Err(if again { Ended::Again(SPEAKS_OTHERWISE) } else { error.into() });
        }
    };
    let carrier = connection.carrier();
    server.remember(connection.revision().map(|revision| Known { era: revision.era(), carrier }));
    Ok((connection, hears, greeting))
}

fn publish(
    server: &Server,
    connection: &Arc<Connection>,
    greeting: &Greeting,
    facts: &Identity,
    mut offer: Offer,
) -> bool {
    let snapshot = Arc::new(trust::snapshot(&mut offer, identity(facts, greeting)));
    let (name, revision) = (greeting.name.clone(), connection.revision().map(|revision| revision.as_str()));
    let offered = Offered { offer, snapshot, name, revision };
    // A part of it would be taken for all of it when the hub next starts.
    if offered.offer.is_whole() {
        recall::remember(server, &offered);
    }
    server.offers(offered, connection)
}

/// Returns who the server is: what is known of it, and what it says itself.
fn identity(facts: &Identity, greeting: &Greeting) -> Identity {
    let mut identity = facts.clone();
    identity.insert(SAID_NAME.to_owned(), greeting.name.clone().unwrap_or_default());
    identity
}

/// Returns when a server is to be looked at that nobody has needed since then.
fn idle_from(server: &Server, since: Instant) -> Option<Instant> {
    server.spec.idle_stop.map(|idle| since + idle)
}

pub(crate) async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Spreads attempts, so that many servers do not come back at the same moment.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    // Without random numbers there is no spread, and no harm.
    let _ = getrandom::fill(&mut random);
    pause.mul_f64(0.75 + f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX) / 2.0)
}
