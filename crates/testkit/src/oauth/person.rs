//! A person with a browser: goes where they are sent, and back to the program that waits.

use crate::http::Request;
use crate::wait::within;
use futures::future::BoxFuture;
use portcullis_upstream::{Consent, Keep, Login, Turn};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// A person who logs in whenever they are asked to, and what they keep of it: nothing but memory.
#[derive(Default)]
pub struct Person {
    pages: Mutex<Vec<String>>,
    kept: Mutex<Option<Login>>,
    /// Whether there is no place to keep anything in.
    pub keeps_nothing: AtomicBool,
    /// Whether whoever wants to change something does not wait for others who do.
    pub keeps_no_turns: AtomicBool,
    turns: Arc<Turns>,
}

/// Lets one after the other.
#[derive(Default)]
struct Turns {
    taken: Mutex<bool>,
    given_back: Condvar,
}

struct Taken(Arc<Turns>);

impl Drop for Taken {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap() = false;
        self.0.given_back.notify_one();
    }
}

impl Person {
    /// Returns the pages that were shown.
    pub fn pages(&self) -> Vec<String> {
        self.pages.lock().unwrap().clone()
    }

    pub fn kept(&self) -> Option<Login> {
        self.kept.lock().unwrap().clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut Login)) {
        if let Some(login) = &mut *self.kept.lock().unwrap() {
            change(login);
        }
    }
}

impl Consent for Person {
    fn show<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.pages.lock().unwrap().push(url.to_owned());
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
                let reply = within("a page", Request::get(path).send(address)).await;
                match reply.head.header("location") {
                    Some(next) => at = next.to_owned(),
                    None => return Ok(()),
                }
            }
            Err("sent on and on".to_owned())
        })
    }
}

impl Keep for Person {
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
        *self.kept.lock().unwrap() = Some(login.clone());
        Ok(())
    }

    fn forget(&self) -> Result<bool, String> {
        Ok(self.kept.lock().unwrap().take().is_some())
    }

    fn turn(&self) -> Result<Turn, String> {
        if self.keeps_no_turns.load(Ordering::Relaxed) {
            return Ok(Box::new(()));
        }
        let taken = self.turns.taken.lock().unwrap();
        *self.turns.given_back.wait_while(taken, |taken| *taken).unwrap() = true;
        Ok(Box::new(Taken(self.turns.clone())))
    }
}
