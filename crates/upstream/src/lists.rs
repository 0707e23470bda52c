//! Reading what a server offers: when it says that something changed, and from time to time though it does not.

use crate::catalog::{self, Kind, Offer, PROMPTS, RESOURCES, Said, TEMPLATES, TOOLS, Unlisted};
use crate::connection::Connection;
use crate::flaws::flaws;
use crate::greet::Greeting;
use crate::server::Server;
use crate::supervise::jittered;
use futures::future::{BoxFuture, FutureExt};
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

/// Reads these lists; the others stay as they were.
pub(crate) async fn list(
    connection: &Connection,
    greeting: &Greeting,
    offer: &mut Offer,
    lists: &BTreeSet<Listed>,
) -> Result<(), Unlisted> {
    let Offer { tools, prompts, resources, templates, dropped, flaws: known_flaws, .. } = offer;
    if lists.contains(&Listed::Tools) {
        let before = tools.clone();
        // Asked for in any case: some have tools and do not say so.
        read(connection, TOOLS, greeting.has("tools"), tools, dropped).await?;
        *known_flaws = flaws(tools, &before, known_flaws).await;
    }
    if lists.contains(&Listed::Prompts) && greeting.has("prompts") {
        read(connection, PROMPTS, false, prompts, dropped).await?;
    }
    if lists.contains(&Listed::Resources) && greeting.has("resources") {
        read(connection, RESOURCES, false, resources, dropped).await?;
        read(connection, TEMPLATES, false, templates, dropped).await?;
    }
    Ok(())
}

/// Reads one list anew. What was left out of it before is forgotten; what was left out of others is not. Without a list
/// that `is_needed` a server is of no use; any other that cannot be read stays as it was, and is told of.
async fn read(
    connection: &Connection,
    kind: Kind,
    is_needed: bool,
    list: &mut Vec<Said>,
    dropped: &mut Vec<(String, String)>,
) -> Result<(), Unlisted> {
    let mut left_out = Vec::new();
    match catalog::list(connection, kind, &mut left_out).await {
        Ok(said) => *list = said,
        Err(error) if !is_needed && error.is_of_list() => {
            left_out.push((kind.key.to_owned(), format!("the list could not be read: {error}")));
        }
        Err(error) => return Err(error),
    }
    dropped.retain(|(list, _)| list != kind.key);
    dropped.append(&mut left_out);
    Ok(())
}

/// The look at what a server offers that nothing gave reason for: some change it and never say so.
pub(crate) struct Relist {
    every: Duration,
    next: Instant,
    /// Beside everything else: a server that is busy with a call may answer late.
    running: Option<BoxFuture<'static, Result<Offer, Unlisted>>>,
}

impl Relist {
    pub(crate) fn new(server: &Server) -> Relist {
        let every = server.spec.relist_every;
        Relist { every, next: Instant::now() + jittered(every), running: None }
    }

    /// Forgets a look under way: what comes of it would be older than what is known by then.
    pub(crate) fn begin_anew(&mut self, server: &Server) {
        *self = Relist::new(server);
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
            self.running = Some(
                async move { list(&connection, &greeting, &mut offer, &all).await.map(|()| offer) }.boxed(),
            );
        }
        let listed = match &mut self.running {
            Some(running) => running.await,
            None => return None,
        };
        self.running = None;
        self.next = Instant::now() + jittered(self.every);
        // What is known stays good: a server that is gone is noticed by its connection, one that is slow is slow.
        listed
            .inspect_err(|error| tracing::debug!(target: "upstream", %error, "a server was not listed again"))
            .ok()
    }
}
