//! Asking the hub, from within a running script.

use super::secret::Handles;
use portcullis_script::frame;
use portcullis_script::message::{Ask, FromWorker, ToWorker};
use serde::de::DeserializeOwned;
use starlark::PrintHandler;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How much of what is printed is kept.
const PRINTED_BYTES_MAX: usize = 64 * 1024;

pub(crate) fn say(message: &FromWorker) -> io::Result<()> {
    frame::write(&mut io::stdout().lock(), message)
}

/// What one run knows besides its values.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) handles: Handles,
    began: Instant,
    timeout: Duration,
    waited: Cell<Duration>,
    printed: RefCell<String>,
    /// The code of the last refusal.
    refused: RefCell<Option<String>>,
}

thread_local! {
    /// A worker has one job, on one thread. The functions that a script calls find it here.
    static RUN: RefCell<Option<Rc<Run>>> = const { RefCell::new(None) };
}

impl Run {
    /// Begins the one run of this process.
    pub(crate) fn begin(timeout: Duration) -> io::Result<Rc<Run>> {
        let run = Rc::new(Run {
            handles: Handles::new()?,
            began: Instant::now(),
            timeout,
            waited: Cell::default(),
            printed: RefCell::default(),
            refused: RefCell::default(),
        });
        RUN.set(Some(run.clone()));
        Ok(run)
    }

    /// Returns the run that a function is called in.
    pub(crate) fn now() -> anyhow::Result<Rc<Run>> {
        RUN.with_borrow(Clone::clone).ok_or_else(|| anyhow::anyhow!("there is no run"))
    }

    /// Returns how much time the script has left.
    pub(crate) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.began.elapsed().saturating_sub(self.waited.get()))
    }

    pub(crate) fn printed(&self) -> String {
        self.handles.named(self.printed.take())
    }

    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.take()
    }

    pub(crate) fn ask<T: DeserializeOwned>(&self, ask: Ask) -> anyhow::Result<T> {
        self.refused.replace(None);
        say(&FromWorker::Ask(ask))
            .map_err(|error| anyhow::anyhow!("too much to ask for at once: {error}"))?;
        match frame::read(&mut io::stdin().lock())? {
            ToWorker::Answer { answer, waited_ms } => {
                self.waited.set(Duration::from_millis(waited_ms));
                match answer {
                    Ok(value) => Ok(serde_json::from_str(value.get())?),
                    Err(refusal) => {
                        self.refused.replace(Some(refusal.code));
                        Err(anyhow::anyhow!(refusal.message))
                    }
                }
            }
            ToWorker::Job(_) => Err(anyhow::anyhow!("the hub said something else")),
        }
    }

    /// Refuses a text with a handle in it, for what needs the value.
    pub(crate) fn without_handle<'t>(&self, what: &str, text: &'t str) -> anyhow::Result<&'t str> {
        match self.handles.is_in(text) {
            false => Ok(text),
            true => Err(anyhow::anyhow!(
                "{what}: a secret can be put into requests only; its value is not known here"
            )),
        }
    }
}

impl PrintHandler for Run {
    fn println(&self, text: &str) -> starlark::Result<()> {
        let mut printed = self.printed.borrow_mut();
        let room = PRINTED_BYTES_MAX.saturating_sub(printed.len());
        if room == 0 {
            return Ok(());
        }
        let kept = &text[..text.floor_char_boundary(room)];
        printed.push_str(kept);
        printed.push_str(if kept.len() < text.len() { "… [more was printed]" } else { "\n" });
        Ok(())
    }
}
