//! How a token is renewed: once for all who wait for it, and to the end, whoever still waits.
//!
//! An issuer takes a refresh token for used as soon as it is asked. If a renewal ended with the call that began it, because
//! that was cancelled or took too long, the answer with the next refresh token would be lost, and the login with it.

use super::account::Account;
use super::{OAuthError, tokens};
use crate::stdio;
use futures::future::{BoxFuture, FutureExt, Shared};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often tokens are renewed because they were refused, and within how long.
const REFUSED_MAX: usize = 3;
const REFUSED_WITHIN_SECS: u64 = 5 * 60;
/// How long a renewal that did not succeed is not tried again, while the token is good.
const AGAIN_SECS: u64 = 10;
/// How long whoever has a good token waits for the next one.
const DUE_WITHIN: Duration = Duration::from_secs(1);
/// How long a hub that is to end waits for a renewal.
const END_WITHIN: Duration = Duration::from_secs(3);

/// Why a token is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It will expire, and can be used until then.
    Due,
    Over,
    Refused,
}

pub(super) struct Renewals {
    account: Arc<Account>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    under_way: Option<Shared<BoxFuture<'static, Renewed>>>,
    /// When tokens were renewed because the server refused them, and has taken none since, in seconds since the epoch.
    refused: Vec<u64>,
    /// When a token that is good still is to be renewed again, after that did not succeed.
    not_before: u64,
}

/// The header to use from now on, or why there is none.
type Renewed = Result<String, OAuthError>;

impl Renewals {
    pub(super) fn new(account: Arc<Account>) -> Renewals {
        Renewals { account, state: Arc::default() }
    }

    /// Returns whether renewing may be of use now. A server that refuses new tokens as well is not helped by more.
    pub(super) fn may(&self, why: Why) -> bool {
        let (mut state, now) = (lock(&self.state), self.account.now());
        match why {
            Why::Due => state.not_before <= now,
            Why::Over => true,
            Why::Refused => {
                state.refused.retain(|then| now < then + REFUSED_WITHIN_SECS);
                state.refused.len() < REFUSED_MAX
            }
        }
    }

    /// Renews the token of the header `used`, or waits for the renewal that is under way.
    pub(super) async fn renewed(&self, used: &str, why: Why) -> Renewed {
        let under_way = {
            let mut state = lock(&self.state);
            state.under_way.get_or_insert_with(|| self.begin(used.to_owned(), why)).clone()
        };
        under_way.await
    }

    /// Renews a token that is due, and returns the one to use: the old one where the new one is not there soon. It is good
    /// for a moment still, and whoever is slow or away may have answered by then.
    pub(super) async fn renewed_soon(&self, used: String) -> String {
        if !self.may(Why::Due) {
            return used;
        }
        match tokio::time::timeout(DUE_WITHIN, self.renewed(&used, Why::Due)).await {
            Ok(Ok(header)) => header,
            Ok(Err(_)) | Err(_) => used,
        }
    }

    /// Hears that the server took the token that it was shown.
    pub(super) fn accepted(&self) {
        lock(&self.state).refused.clear();
    }

    /// Begins a renewal that nobody has to wait for. Whoever calls this holds the state.
    fn begin(&self, used: String, why: Why) -> Shared<BoxFuture<'static, Renewed>> {
        let (account, state) = (self.account.clone(), self.state.clone());
        let renewal = stdio::see_out(async move {
            let renewed = tokio::select! {
                renewed = account.renew(&used, why) => renewed,
                () = end() => Err(broken_off("the hub ends")),
            };
            lock(&state).ended(&account, why, &renewed);
            renewed
        });
        let state = self.state.clone();
        let renewal = async move {
            renewal.await.unwrap_or_else(|error| {
                // It did not come to its end, so nobody has said that it is over.
                lock(&state).under_way = None;
                Err(broken_off(error))
            })
        };
        renewal.boxed().shared()
    }
}

impl State {
    fn ended(&mut self, account: &Account, why: Why, renewed: &Renewed) {
        self.under_way = None;
        let now = account.now();
        match (why, renewed) {
            (Why::Due, Err(error)) => {
                self.not_before = now + AGAIN_SECS;
                let server = &account.spec.name;
                tracing::warn!(target: "upstream", %server, %error, "A login could not be renewed.");
            }
            // Nothing is known of the login then; as soon as who knows can be asked, all is well.
            (Why::Refused, Err(OAuthError::Unreachable { .. } | OAuthError::Store(_))) => {}
            (Why::Refused, _) => self.refused.push(now),
            (Why::Due | Why::Over, _) => {}
        }
    }
}

/// Nothing is known of the login then, as when its issuer cannot be asked.
fn broken_off(why: impl ToString) -> OAuthError {
    OAuthError::Unreachable { what: tokens::WHERE, why: why.to_string() }
}

/// Resolves some time after this process was told to end.
async fn end() {
    stdio::told_to_end().await;
    tokio::time::sleep(END_WITHIN).await;
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
