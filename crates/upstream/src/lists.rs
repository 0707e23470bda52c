//! Reading what a server offers: when it says that something changed, and from time to time though it does not.

use crate::catalog::{self, Kind, Offer, PROMPTS, RESOURCES, Said, TEMPLATES, TOOLS, Unlisted};
use crate::connection::Connection;
use crate::flaws::flaws;
use crate::greet::Greeting;
use crate::server::Server;
use crate::supervise::jittered;
use futures::future::{BoxFuture, FutureExt, try_join_all};
use portcullis_core::Change;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Listed {
    Tools,
    Prompts,
    Resources,
}

impl Listed {
    pub(crate) const ALL: [Listed; 3] = [Listed::Tools, Listed::Prompts, Listed::Resources];

    pub(crate) fn change(self) -> Change {
        match self {
            Listed::Tools => Change::Tools,
            Listed::Prompts => Change::Prompts,
            Listed::Resources => Change::Resources,
        }
    }
}

/// How long one page may take.
pub(crate) const LIST_WITHIN: Duration = Duration::from_secs(30);
/// The same of a list that a server is of use without, while its tools wait for it to be shown.
pub(crate) const FIRST_WITHIN: Duration = Duration::from_secs(3);

/// Whether all lists came that were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    InTime,
    /// One did not. It stays as it was.
    Late,
}

/// Reads these lists; the others stay as they were. Those that the server is of use without have so much time.
pub(crate) async fn list(
    connection: &Connection,
    greeting: &Greeting,
    offer: &mut Offer,
    lists: &BTreeSet<Listed>,
    within: Duration,
) -> Result<Came, Unlisted> {
    let Offer { tools, prompts, resources, templates, dropped, flaws: known_flaws, .. } = offer;
    let mut came = Came::InTime;
    if lists.contains(&Listed::Tools) {
        let before = tools.clone();
        // Asked for in any case: some have tools and do not say so.
        let (is_needed, within) = if greeting.has("tools") { (true, LIST_WITHIN) } else { (false, within) };
        read(connection, TOOLS, is_needed, within, tools).await?.noted(dropped, &mut came);
        *known_flaws = flaws(tools, &before, known_flaws).await;
    }
    let mut others = Vec::new();
    if lists.contains(&Listed::Prompts) && greeting.has("prompts") {
        others.push((PROMPTS, prompts));
    }
    if lists.contains(&Listed::Resources) && greeting.has("resources") {
        others.extend([(RESOURCES, resources), (TEMPLATES, templates)]);
    }
    // All at once: none of them depends on another, and each may be slow.
    let others = others.into_iter().map(|(kind, list)| read(connection, kind, false, within, list));
    for read in try_join_all(others).await? {
        read.noted(dropped, &mut came);
    }
    Ok(came)
}

/// What came of reading one list.
struct Read {
    kind: Kind,
    left_out: Vec<(String, String)>,
    came: Came,
}

impl Read {
    /// Notes what was left out. What was left out of this list before is forgotten; what was left out of others is not.
    fn noted(mut self, dropped: &mut Vec<(String, String)>, came: &mut Came) {
        dropped.retain(|(list, _)| list != self.kind.key);
        dropped.append(&mut self.left_out);
        if self.came == Came::Late {
            *came = Came::Late;
        }
    }
}

/// Reads one list anew. Without a list that `is_needed` a server is of no use; any other that cannot be read stays as it was,
/// and is told of.
async fn read(
    connection: &Connection,
    kind: Kind,
    is_needed: bool,
    within: Duration,
    list: &mut Vec<Said>,
) -> Result<Read, Unlisted> {
    let (mut left_out, mut came) = (Vec::new(), Came::InTime);
    match catalog::list(connection, kind, within, &mut left_out).await {
        Ok(said) => *list = said,
        Err(error) if !is_needed && error.is_of_list() => {
            if error.is_late() {
                came = Came::Late;
            }
            left_out.push((kind.key.to_owned(), format!("the list could not be read: {error}")));
        }
        Err(error) => return Err(error),
    }
    Ok(Read { kind, left_out, came })
}

/// The look at what a server offers that nothing gave reason for: some change it and never say so. And the one that is owed,
/// where a list did not come in time.
pub(crate) struct Relist {
    every: Duration,
    next: Instant,
    /// Whether a list did not come in time, and is asked for again at once.
    is_owed: bool,
    /// Beside everything else: a server that is busy with a call may answer late.
    running: Option<BoxFuture<'static, Result<Offer, Unlisted>>>,
}

impl Relist {
    pub(crate) fn new(server: &Server, came: Came) -> Relist {
        let (every, is_owed) = (server.spec.relist_every, came == Came::Late);
        let pause = if is_owed { Duration::ZERO } else { jittered(every) };
        Relist { every, next: Instant::now() + pause, is_owed, running: None }
    }

    /// Returns whether a list is still to come.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Forgets a look under way: what comes of it would be older than what is known by then.
    pub(crate) fn forget(&mut self) {
        self.running = None;
    }

    /// Looks when it is time to. Returns what is offered now, if that could be learnt.
    pub(crate) async fn due(
        &mut self,
        connection: &Arc<Connection>,
        greeting: &Greeting,
        offer: &Offer,
    ) -> Option<Offer> {
        if self.running.is_none() {
            tokio::time::sleep_until(self.next).await;
            let (connection, greeting, mut offer) = (connection.clone(), greeting.clone(), offer.clone());
            let all = BTreeSet::from(Listed::ALL);
            self.running =
                Some(
                    async move {
                        list(&connection, &greeting, &mut offer, &all, LIST_WITHIN).await.map(|_| offer)
                    }
                    .boxed(),
                );
        }
        let listed = match &mut self.running {
            Some(running) => running.await,
            None => return None,
        };
        (self.running, self.is_owed) = (None, false);
        self.next = Instant::now() + jittered(self.every);
        // What is known stays good: a server that is gone is noticed by its connection, one that is slow is slow.
        listed
            .inspect_err(|error| tracing::debug!(target: "upstream", %error, "a server was not listed again"))
            .ok()
    }
}
