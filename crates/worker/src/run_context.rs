//! State of the running script, and its requests to the hub.

use super::secret_handle::SecretHandles;
use portcullis_script::frame;
use portcullis_script::message::{HostRequest, HubMessage, WorkerMessage};
use serde::de::DeserializeOwned;
use starlark::PrintHandler;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Captured output of `print`.
const PRINTED_BYTES_MAX: usize = 64 * 1024;

pub(crate) fn send(message: &WorkerMessage) -> io::Result<()> {
    frame::write(&mut io::stdout().lock(), message)
}

/// The state of one run.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) handles: SecretHandles,
    began: Instant,
    timeout: Duration,
    waited: Cell<Duration>,
    printed: RefCell<String>,
    /// The error code of the last refusal.
    refused: RefCell<Option<String>>,
}

thread_local! {
    /// A worker runs one job on one thread. The builtins find its state here.
    static RUN: RefCell<Option<Rc<RunContext>>> = const { RefCell::new(None) };
}

impl RunContext {
    /// Begins the run; a process has only one.
    pub(crate) fn begin(timeout: Duration) -> io::Result<Rc<RunContext>> {
        let run = Rc::new(RunContext {
            handles: SecretHandles::new()?,
            began: Instant::now(),
            timeout,
            waited: Cell::default(),
            printed: RefCell::default(),
            refused: RefCell::default(),
        });
        RUN.set(Some(run.clone()));
        Ok(run)
    }

    /// Returns the current run.
    pub(crate) fn now() -> anyhow::Result<Rc<RunContext>> {
        RUN.with_borrow(Clone::clone).ok_or_else(|| anyhow::anyhow!("no script is running"))
    }

    /// Returns the remaining time of the script.
    pub(crate) fn remaining_time(&self) -> Duration {
        self.timeout.saturating_sub(self.began.elapsed().saturating_sub(self.waited.get()))
    }

    pub(crate) fn printed(&self) -> String {
        self.handles.named(self.printed.take())
    }

    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.take()
    }

    pub(crate) fn ask<T: DeserializeOwned>(&self, ask: HostRequest) -> anyhow::Result<T> {
        self.refused.replace(None);
        send(&WorkerMessage::Ask(ask))
            .map_err(|error| anyhow::anyhow!("the request is too large: {error}"))?;
        match frame::read(&mut io::stdin().lock())? {
            HubMessage::Answer { answer, waited_ms } => {
                self.waited.set(Duration::from_millis(waited_ms));
                match answer {
                    Ok(value) => Ok(serde_json::from_str(value.get())?),
                    Err(refusal) => {
                        self.refused.replace(Some(refusal.code));
                        Err(anyhow::anyhow!(refusal.message))
                    }
                }
            }
            HubMessage::Job(_) => Err(anyhow::anyhow!("unexpected message from the hub")),
        }
    }

    /// Refuses a text with a handle, for functions that would need the value.
    pub(crate) fn without_handle<'t>(&self, what: &str, text: &'t str) -> anyhow::Result<&'t str> {
        match self.handles.is_in(text) {
            false => Ok(text),
            true => Err(anyhow::anyhow!(
                "{what}: a secret can only be used in requests; a script cannot read its value"
            )),
        }
    }
}

impl PrintHandler for RunContext {
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
