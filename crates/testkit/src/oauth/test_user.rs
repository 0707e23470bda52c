//! A test user with a browser: follows the login page and its redirect back.

use crate::raw_http::RawHttpRequest;
use crate::wait::within;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex};
use portcullis_upstream::{Login, LoginLock, LoginPrompt, LoginStore};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A user who completes every login, with an in-memory token store.
#[derive(Default)]
pub struct TestUser {
    pages: Mutex<Vec<String>>,
    kept: Mutex<Option<Login>>,
    /// Whether the store is unavailable.
    pub keeps_nothing: AtomicBool,
    /// Whether the lock on the login has no effect.
    pub keeps_no_turns: AtomicBool,
    turns: Arc<TurnQueue>,
}

/// A mutual exclusion for logins.
#[derive(Default)]
struct TurnQueue {
    taken: Mutex<bool>,
    given_back: Condvar,
}

struct TurnGuard(Arc<TurnQueue>);

impl Drop for TurnGuard {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.given_back.notify_one();
    }
}

impl TestUser {
    /// Returns the pages that were shown.
    pub fn pages(&self) -> Vec<String> {
        self.pages.lock().clone()
    }

    pub fn kept(&self) -> Option<Login> {
        self.kept.lock().clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut Login)) {
        if let Some(login) = &mut *self.kept.lock() {
            change(login);
        }
    }
}

impl LoginPrompt for TestUser {
    fn show<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.pages.lock().push(url.to_owned());
        Box::pin(async move {
            let mut at = url.to_owned();
            // To the login page, and back.
            for _ in 0..3 {
                let page = url::Url::parse(&at).map_err(|error| error.to_string())?;
                let host = page.host_str().unwrap_or_default().replace("localhost", "127.0.0.1");
                let address: SocketAddr = format!("{host}:{}", page.port().unwrap_or(80))
                    .parse()
                    .map_err(|_| format!("{at}: no address"))?;
                let path = page[url::Position::BeforePath..].to_owned();
                let reply = within("a page", RawHttpRequest::get(path).send(address)).await;
                match reply.head.header("location") {
                    Some(next) => at = next.to_owned(),
                    None => return Ok(()),
                }
            }
            Err("sent on and on".to_owned())
        })
    }
}

impl LoginStore for TestUser {
    fn load(&self) -> Result<Option<Login>, String> {
        Ok(self.kept())
    }

    fn prepare(&self) -> Result<(), String> {
        if self.keeps_nothing.load(Ordering::Relaxed) {
            Err("nothing can be kept".to_owned())
        } else {
            Ok(())
        }
    }

    fn save(&self, login: &Login) -> Result<(), String> {
        *self.kept.lock() = Some(login.clone());
        Ok(())
    }

    fn forget(&self) -> Result<bool, String> {
        Ok(self.kept.lock().take().is_some())
    }

    fn lock(&self) -> Result<LoginLock, String> {
        if self.keeps_no_turns.load(Ordering::Relaxed) {
            return Ok(Box::new(()));
        }
        let mut taken = self.turns.taken.lock();
        self.turns.given_back.wait_while(&mut taken, |taken| *taken);
        *taken = true;
        Ok(Box::new(TurnGuard(self.turns.clone())))
    }
}
