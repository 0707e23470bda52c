//! Login to an upstream server from the page: the hub waits for the redirect.

use super::HubDesk;
use crate::desk::{OneTimeReveal, SHOWN_HERE, ServerLoginUrl};
use crate::servers::find_server;
use crate::{Actor, Problem};
use parking_lot::Mutex;
use portcullis_core::{BoxFuture, Secret};
use portcullis_upstream::LoginPrompt;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Pending logins, by server.
pub(super) type PendingLogins = BTreeMap<String, JoinHandle<()>>;

/// How long a server may take to return its authorization URL.
const LOGIN_PAGE_WITHIN: Duration = Duration::from_secs(30);

impl HubDesk {
    pub(super) async fn begin_login(
        &self,
        name: String,
        actor: Actor,
    ) -> Result<OneTimeReveal<ServerLoginUrl>, Problem> {
        let config = self.config();
        find_server(&config, &name)?;
        let login = self.live.servers.login(&name).ok_or_else(|| {
            Problem::conflict(format!("login is not configured for `{name}`, or it is not running")).hint(
                format!("add `oauth = true` to `mcp.{name}` in the configuration and enable the server"),
            )
        })?;
        let (send, page) = oneshot::channel();
        let (failed, why) = oneshot::channel();
        let (ops, servers, own) = (self.ops.clone(), self.live.servers.clone(), name.clone());
        let waiting = tokio::spawn(async move {
            let person = PageConsent(Mutex::new(Some(send)));
            match ops.log_in_to_server(&own, &login, &person, &actor).await {
                Ok(_) => {
                    if let Some(upstream) = servers.upstream(&own) {
                        upstream.reconnect();
                    }
                }
                Err(error) => {
                    tracing::warn!(target: "admin", server = %own, %error, "login to server failed");
                    let _ = failed.send(error);
                }
            }
        });
        // A newer login to the same server replaces the older one.
        if let Some(older) = self.logins.lock().insert(name, waiting) {
            older.abort();
        }
        let url = tokio::select! {
            url = page => url.map_err(|_| None),
            why = why => Err(why.ok()),
            () = tokio::time::sleep(LOGIN_PAGE_WITHIN) => Err(None),
        };
        let url = url.map_err(|why| {
            why.unwrap_or_else(|| Problem::unavailable("the server did not return a login URL"))
        })?;
        Ok(OneTimeReveal { answer: ServerLoginUrl { url: SHOWN_HERE.to_owned() }, shown: Secret::new(url) })
    }
}

/// Sends the authorization URL to the page.
struct PageConsent(Mutex<Option<oneshot::Sender<String>>>);

impl LoginPrompt for PageConsent {
    fn show<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        let sent = self.0.lock().take().and_then(|person| person.send(url.to_owned()).ok());
        Box::pin(async move { sent.ok_or_else(|| "the login was abandoned".to_owned()) })
    }
}
