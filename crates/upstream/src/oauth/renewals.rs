//! Token renewal: one for all calls that wait, and run to its end even if they stop waiting.
//!
//! An issuer invalidates a refresh token as soon as it is used. If a renewal ended with the call that began it, the
//! response with the next refresh token would be lost, and the login with it.

use super::OAuthError;
use super::account::{Account, RenewalReason};
use super::error_response::TOKEN_ENDPOINT;
use crate::shutdown::Shutdown;
use futures::future::{BoxFuture, FutureExt, Shared};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// How often tokens are renewed after a refusal, and within how long.
const REFUSED_MAX: usize = 3;
const REFUSED_WITHIN_SECS: u64 = 5 * 60;
/// The pause after a failed renewal, while the token is valid.
const AGAIN_SECS: u64 = 10;
/// How long a call with a valid token waits for the next one.
const DUE_WITHIN: Duration = Duration::from_secs(1);
/// How long shutdown waits for a renewal.
const END_WITHIN: Duration = Duration::from_secs(3);

pub(super) struct TokenRenewer {
    account: Arc<Account>,
    state: Arc<Mutex<State>>,
    shutdown: Shutdown,
}

#[derive(Default)]
struct State {
    under_way: Option<Shared<BoxFuture<'static, RenewalResult>>>,
    /// When tokens were renewed after a refusal, with none accepted since, in seconds since the epoch.
    refused: Vec<u64>,
    /// When a valid token may be renewed again, after that failed.
    not_before: u64,
}

/// The header to use from now on, or why there is none.
type RenewalResult = Result<String, OAuthError>;

impl TokenRenewer {
    pub(super) fn new(account: Arc<Account>, shutdown: Shutdown) -> TokenRenewer {
        TokenRenewer { account, state: Arc::default(), shutdown }
    }

    /// Returns whether a renewal may help. A server that refuses new tokens too is not helped by more.
    pub(super) fn may(&self, why: RenewalReason) -> bool {
        let (mut state, now) = (self.state.lock(), self.account.now());
        match why {
            RenewalReason::Due => state.not_before <= now,
            RenewalReason::Over => true,
            RenewalReason::Refused => {
                state.refused.retain(|then| now < then + REFUSED_WITHIN_SECS);
                state.refused.len() < REFUSED_MAX
            }
        }
    }

    /// Renews the token of the header `used`, or waits for the renewal in flight.
    pub(super) async fn renewed(&self, used: &str, why: RenewalReason) -> RenewalResult {
        let under_way = {
            let mut state = self.state.lock();
            state.under_way.get_or_insert_with(|| self.begin(used.to_owned(), why)).clone()
        };
        under_way.await
    }

    /// Renews a token that is due, and returns the one to use: the old one where the new one takes long. It is still
    /// valid for a moment, and the issuer may have responded by then.
    pub(super) async fn renewed_soon(&self, used: String) -> String {
        if !self.may(RenewalReason::Due) {
            return used;
        }
        match tokio::time::timeout(DUE_WITHIN, self.renewed(&used, RenewalReason::Due)).await {
            Ok(Ok(header)) => header,
            Ok(Err(_)) | Err(_) => used,
        }
    }

    /// Takes note that the server accepted the token.
    pub(super) fn accepted(&self) {
        self.state.lock().refused.clear();
    }

    /// Begins a renewal in the background. The caller holds the state.
    fn begin(&self, used: String, why: RenewalReason) -> Shared<BoxFuture<'static, RenewalResult>> {
        let (account, state) = (self.account.clone(), self.state.clone());
        let ends = self.shutdown.clone();
        let renewal = self.shutdown.spawn(async move {
            let renewed = tokio::select! {
                renewed = account.renew(&used, why) => renewed,
                () = end(&ends) => Err(broken_off("the hub ends")),
            };
            state.lock().ended(&account, why, &renewed);
            renewed
        });
        let state = self.state.clone();
        let renewal = async move {
            renewal.await.unwrap_or_else(|error| {
                // It was aborted, so it has not cleared itself.
                state.lock().under_way = None;
                Err(broken_off(error))
            })
        };
        renewal.boxed().shared()
    }
}

impl State {
    fn ended(&mut self, account: &Account, why: RenewalReason, renewed: &RenewalResult) {
        self.under_way = None;
        let now = account.now();
        match (why, renewed) {
            (RenewalReason::Due, Err(error)) => {
                self.not_before = now + AGAIN_SECS;
                let server = &account.spec.name;
                tracing::warn!(target: "upstream", %server, %error, "token could not be renewed");
            }
            // The login may be fine; the issuer or the store is unreachable.
            (RenewalReason::Refused, Err(OAuthError::Unreachable { .. } | OAuthError::Store(_))) => {}
            (RenewalReason::Refused, _) => self.refused.push(now),
            (RenewalReason::Due | RenewalReason::Over, _) => {}
        }
    }
}

/// The login may be fine, as when its issuer is unreachable.
fn broken_off(why: impl ToString) -> OAuthError {
    OAuthError::Unreachable { what: TOKEN_ENDPOINT, why: why.to_string() }
}

/// Resolves some time after shutdown was requested.
async fn end(shutdown: &Shutdown) {
    shutdown.requested().await;
    tokio::time::sleep(END_WITHIN).await;
}
