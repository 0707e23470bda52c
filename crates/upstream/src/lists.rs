//! Reading what a server offers: when it says that something changed, and from time to time though it does not.

use crate::catalog::{self, Kind, Offer, PROMPTS, RESOURCES, Said, TEMPLATES, TOOLS, Unlisted};
use crate::connection::Connection;
use crate::flaws::flaws;
use crate::greet::Greeting;
use crate::supervise::jittered;
use futures::future::{BoxFuture, FutureExt, TryFutureExt, try_join_all};
use portcullis_core::List;
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

    pub(crate) fn list(self) -> List {
        match self {
            Listed::Tools => List::Tools,
            Listed::Prompts => List::Prompts,
            Listed::Resources => List::Resources,
        }
    }
}

/// How long one page may take.
pub(crate) const LIST_WITHIN: Duration = Duration::from_secs(30);
/// The same of a list that a server is of use without, while its tools wait for it to be shown.
pub(crate) const FIRST_WITHIN: Duration = Duration::from_secs(3);
/// How long to wait before a list that is late is asked for once more; twice as long before each further time.
const OWED_AGAIN: Duration = Duration::from_secs(1);
/// A list that was asked for so often will not come, and a server that nobody needs need not run for it.
const IN_VAIN_MAX: u32 = 4;

/// Reads these lists; the others stay as they were. Each that the server is of use without has so much time; one that does not
/// come within that stays as it was too, and is late.
pub(crate) async fn list(
    connection: &Connection,
    greeting: &Greeting,
    offer: &mut Offer,
    lists: &BTreeSet<Listed>,
    within: impl Fn(Listed) -> Duration,
) -> Result<(), Unlisted> {
    let Offer { tools, prompts, resources, templates, dropped, late, flaws: known_flaws, .. } = offer;
    if lists.contains(&Listed::Tools) {
        let before = tools.clone();
        // Asked for in any case: some have tools and do not say so.
        let is_needed = greeting.has("tools");
        let within = if is_needed { LIST_WITHIN } else { within(Listed::Tools) };
        let came = read(connection, TOOLS, is_needed, within, tools).await?;
        late.remove(&Listed::Tools);
        came.noted(dropped, Listed::Tools, late);
        *known_flaws = flaws(tools, &before, known_flaws).await;
    }
    let mut others = Vec::new();
    if lists.contains(&Listed::Prompts) && greeting.has("prompts") {
        others.push((PROMPTS, prompts, Listed::Prompts));
    }
    if lists.contains(&Listed::Resources) && greeting.has("resources") {
        others.push((RESOURCES, resources, Listed::Resources));
        others.push((TEMPLATES, templates, Listed::Resources));
    }
    // All at once: none of them depends on another, and each may be slow.
    let others = others.into_iter().map(|(kind, list, listed)| {
        read(connection, kind, false, within(listed), list).map_ok(move |came| (came, listed))
    });
    let others = try_join_all(others).await?;
    late.retain(|listed| *listed == Listed::Tools || !lists.contains(listed));
    for (came, listed) in others {
        came.noted(dropped, listed, late);
    }
    Ok(())
}

/// What came of reading one list.
struct Read {
    kind: Kind,
    left_out: Vec<(String, String)>,
    is_late: bool,
}

impl Read {
    /// Notes what was left out. What was left out of this list before is forgotten; what was left out of others is not.
    fn noted(mut self, dropped: &mut Vec<(String, String)>, listed: Listed, late: &mut BTreeSet<Listed>) {
        dropped.retain(|(list, _)| list != self.kind.key);
        dropped.append(&mut self.left_out);
        if self.is_late {
            late.insert(listed);
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
    let (mut left_out, mut is_late) = (Vec::new(), false);
    match catalog::list(connection, kind, within, &mut left_out).await {
        Ok(said) => *list = said,
        Err(error) if !is_needed && error.is_of_list() => {
            is_late = error.is_late();
            left_out.push((kind.key.to_owned(), format!("the list could not be read: {error}")));
        }
        Err(error) => return Err(error),
    }
    Ok(Read { kind, left_out, is_late })
}

/// The look at what a server offers that nothing gave reason for: some change it and never say so. And the one that is owed,
/// where a list did not come in time.
pub(crate) struct Relist {
    every: Duration,
    next: Instant,
    /// How often a list that is late was asked for again, and did not come.
    in_vain: u32,
    /// Beside everything else: a server that is busy with a call may answer late.
    running: Option<BoxFuture<'static, Result<Offer, Unlisted>>>,
}

impl Relist {
    pub(crate) fn new(every: Duration, offer: &Offer) -> Relist {
        let mut relist = Relist { every, next: Instant::now(), in_vain: 0, running: None };
        relist.looked(offer);
        relist
    }

    /// Takes note of a look that something gave reason for.
    pub(crate) fn looked(&mut self, offer: &Offer) {
        let now = Instant::now();
        if offer.is_whole() {
            (self.next, self.in_vain) = (now + jittered(self.every), 0);
        } else if self.in_vain == 0 {
            self.next = now;
        }
    }

    /// Returns whether a server is not let go before it has said the rest.
    pub(crate) fn is_awaited(&self, offer: &Offer) -> bool {
        !offer.is_whole() && self.in_vain < IN_VAIN_MAX
    }

    /// Forgets a look under way: what comes of it would be older than what is known by then.
    pub(crate) fn forget(&mut self, offer: &Offer) {
        if self.running.take().is_some() && !offer.is_whole() {
            self.came_not();
        }
    }

    /// Takes note that a list was asked for and did not come. It is asked for again, each time later: the server may be busy for
    /// long, and may never say it.
    fn came_not(&mut self) {
        let pause = OWED_AGAIN.saturating_mul(2_u32.saturating_pow(self.in_vain));
        self.in_vain += 1;
        self.next = Instant::now() + jittered(pause.min(self.every));
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
            let looks = async move {
                list(&connection, &greeting, &mut offer, &all, |_| LIST_WITHIN).await.map(|()| offer)
            };
            self.running = Some(looks.boxed());
        }
        let listed = match &mut self.running {
            Some(running) => running.await,
            None => return None,
        };
        self.running = None;
        // What is known stays good: a server that is gone is noticed by its connection, one that is slow is slow.
        let listed = listed
            .inspect_err(|error| tracing::debug!(target: "upstream", %error, "a server was not listed again"))
            .ok();
        if listed.as_ref().unwrap_or(offer).is_whole() {
            (self.next, self.in_vain) = (Instant::now() + jittered(self.every), 0);
        } else {
            self.came_not();
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::RequestError;
    use crate::inbox::Inbox;
    use crate::link::{Link, Outgoing};
    use serde_json::json;
    use std::sync::Mutex;

    /// A server without anything, which keeps silent on these questions.
    struct Silent {
        inbox: Arc<Inbox>,
        on: Mutex<Vec<&'static str>>,
    }

    impl Link for Silent {
        fn send<'a>(&'a self, message: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            let asked = message.method.filter(|method| !self.on.lock().unwrap().contains(method));
            if let (Some(id), Some(_)) = (message.id, asked) {
                let nothing = json!({ "tools": [], "resources": [], "resourceTemplates": [] });
                let answer = json!({ "jsonrpc": "2.0", "id": id, "result": nothing });
                self.inbox.receive(answer.to_string().as_bytes(), None);
            }
            Box::pin(async { Ok(()) })
        }
    }

    const EVERY: Duration = Duration::from_secs(3600);

    fn owed(silent_on: &[&'static str]) -> (Arc<Silent>, Arc<Connection>, Greeting, Offer) {
        let (inbox, _hears) = Inbox::new();
        let link = Arc::new(Silent { inbox: inbox.clone(), on: Mutex::new(silent_on.to_vec()) });
        let connection = Arc::new(Connection::new(link.clone(), inbox));
        let capabilities = json!({ "tools": {}, "resources": {} }).as_object().unwrap().clone();
        let greeting = Greeting { capabilities, ..Greeting::default() };
        let offer = Offer { late: BTreeSet::from([Listed::Resources]), ..Offer::default() };
        (link, connection, greeting, offer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_owed_is_asked_for_until_it_comes() {
        let (link, connection, greeting, offer) = owed(&["tools/list", "resources/list"]);
        let (mut relist, began) = (Relist::new(EVERY, &offer), Instant::now());
        // Busy with a call, it does not even say its tools.
        assert!(relist.due(&connection, &greeting, &offer).await.is_none());
        assert!(relist.is_awaited(&offer));
        link.on.lock().unwrap().remove(0);
        let part = relist.due(&connection, &greeting, &offer).await.unwrap();
        assert_eq!(part.late, offer.late);
        assert!(relist.is_awaited(&part));
        link.on.lock().unwrap().clear();
        let whole = relist.due(&connection, &greeting, &part).await.unwrap();
        assert!(whole.is_whole() && !relist.is_awaited(&whole));
        assert!(began.elapsed() < EVERY / 10);
        // Owed nothing, it is looked at as seldom as any other.
        assert!(relist.due(&connection, &greeting, &whole).await.is_some());
        assert!(began.elapsed() > EVERY / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_never_comes_is_not_waited_for_without_end() {
        let (_link, connection, greeting, mut offer) = owed(&["resources/list"]);
        let mut relist = Relist::new(EVERY, &offer);
        for _ in 0..IN_VAIN_MAX {
            assert!(relist.is_awaited(&offer));
            offer = relist.due(&connection, &greeting, &offer).await.unwrap();
            // What else the server says of itself changes nothing of that.
            relist.looked(&offer);
        }
        assert!(!offer.is_whole() && !relist.is_awaited(&offer));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_at_one_list_does_not_pay_what_is_owed_of_another() {
        let (link, connection, greeting, mut offer) = owed(&["resources/list"]);
        let tools = BTreeSet::from([Listed::Tools]);
        list(&connection, &greeting, &mut offer, &tools, |_| FIRST_WITHIN).await.unwrap();
        assert_eq!(offer.late, BTreeSet::from([Listed::Resources]));
        link.on.lock().unwrap().clear();
        let resources = BTreeSet::from([Listed::Resources]);
        list(&connection, &greeting, &mut offer, &resources, |_| FIRST_WITHIN).await.unwrap();
        assert!(offer.is_whole());
    }
}
