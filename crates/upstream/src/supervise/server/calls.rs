//! Calls to one upstream server: wait for the connection, verify the pin, send, retry where that is safe.

use super::UpstreamServer;
use crate::call::{CallFailure, CallRequest, start_or_resume};
use crate::rpc::{Connection, elicitation};
use crate::status::StatusKind;
use crate::transport::{LinkError, RequestError};
use portcullis_core::{Call, Effect, ErrorKind, Outcome, Output, ToolError};
use portcullis_wire::TaskStart;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a call waits for a server that is just being started or reached again.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// Bounds of the liveness probe after a call timed out. Within them it may take as long as a call: a server that does one
/// thing at a time first has to finish what it does.
const PROBE_WITHIN_MIN: Duration = Duration::from_secs(1);
const PROBE_WITHIN_MAX: Duration = Duration::from_secs(60);
/// How often a call is sent that the server has certainly not acted on.
const ATTEMPTS_MAX: usize = 3;

impl UpstreamServer {
    pub(crate) async fn call(&self, call: &Call) -> Outcome {
        let mut attempts = 1;
        let timeout = self.spec.timeout;
        // Counted once for all attempts: the timeout is the call's, not the attempt's.
        let mut began: Option<Instant> = None;
        // Boxed: it is part of every call's future, and few calls have it.
        let mut failed: Option<Box<RequestError>> = None;
        loop {
            let connection = match self.reach.live.get() {
                Some(connection) => connection,
                // Boxed: few calls wait, and it would enlarge the future of every call.
                None => Box::pin(self.connected_in_time(call, &mut began, &mut failed)).await?,
            };
            if !connection.demux.lists.is_up_to_date()
                && !Box::pin(self.up_to_date(&connection, &mut began)).await?
            {
                // The supervisor knows that already, and reconnects.
                self.reach.live.give_up(&connection);
                continue;
            }
            // After every wait: the server may have been replaced by now, or its trust revoked.
            self.catalog.verify_pin(&self.spec, call)?;
            let mut request = CallRequest::new(&self.catalog.exposed.load(), call, self.spec.timeout)?;
            request.timeout = self.left(began);
            began.get_or_insert_with(Instant::now);
            let error = match start_or_resume(&connection, &self.suspended, call, request)?.run().await {
                Ok(result) if result.get().starts_with('{') => {
                    if self.stops_when_idle() && connection.dialect().task_start() == TaskStart::ByServer {
                        self.leases.tasks_in(&result);
                    }
                    self.catalog.links.look(&result);
                    self.reach.call_succeeded();
                    return self.output(result);
                }
                Ok(_) => {
                    let message = format!("server `{}` returned no valid result", self.spec.name);
                    return Err(ToolError::new(ErrorKind::Upstream, message));
                }
                Err(CallFailure::Final(error)) => return Err(error),
                // The client is told the whole timeout, not what was left of it.
                Err(CallFailure::Request(RequestError::Timeout(_))) => RequestError::Timeout(timeout),
                Err(CallFailure::Request(error)) => error,
            };
            // Retried only where the server has not acted on it, or where acting twice is harmless.
            let again = match &error {
                RequestError::Link(LinkError::SessionLost | LinkError::Failed { sent: false, .. }) => true,
                RequestError::Closed | RequestError::Link(LinkError::Failed { sent: true, .. }) => {
                    call.effect() == Effect::Read
                }
                _ => false,
            };
            if !again || attempts >= ATTEMPTS_MAX {
                self.diagnose(&error, &connection);
                return Err(self.tool_error(error));
            }
            attempts += 1;
            // The first to notice asks for a reconnect.
            if self.reach.live.give_up(&connection) {
                self.reach.reconnect();
            }
            failed = Some(Box::new(error));
        }
    }

    /// Returns an error for the client, with the URLs in it made fit to be shown.
    pub(super) fn tool_error(&self, error: RequestError) -> ToolError {
        let name = &self.spec.name;
        elicitation::present_error(self.asker(), error).map_or_else(
            |why| {
                ToolError::new(
                    ErrorKind::Upstream,
                    format!("server `{name}` sent a response that is blocked: {why}"),
                )
            },
            |error| error.into_tool_error(name),
        )
    }

    /// Returns a result for the client, with the questions in it made fit to be shown.
    pub(super) fn output(&self, result: Box<RawValue>) -> Outcome {
        match elicitation::present_result(self.asker(), &result) {
            Ok(presented) => Ok(Output::Raw(presented.unwrap_or(result))),
            Err(why) => {
                let message = format!("server `{}` sent a response that is blocked: {why}", self.spec.name);
                Err(ToolError::new(ErrorKind::Upstream, message))
            }
        }
    }

    /// Returns what is left of the timeout of a call.
    fn left(&self, began: Option<Instant>) -> Duration {
        self.spec.timeout.saturating_sub(began.map_or(Duration::ZERO, |began| began.elapsed()))
    }

    /// Draws conclusions from a failed call: a login is required, or the server may be dead.
    fn diagnose(&self, error: &RequestError, connection: &Arc<Connection>) {
        if let RequestError::Link(LinkError::NeedsAuth(_)) = error {
            self.reach.login_required(error.to_string());
        }
        if !matches!(error, RequestError::Timeout(_)) {
            return;
        }
        let (connection, stop) = (connection.clone(), self.stop.clone());
        let within = self.spec.timeout.clamp(PROBE_WITHIN_MIN, PROBE_WITHIN_MAX);
        tokio::spawn(async move {
            tokio::select! {
                () = connection.probe_liveness(within) => {}
                // The probe must not keep a retired connection open.
                () = connection.demux.life.retired.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Returns the connection, if there is one in time: the wait is part of the call, but for a server that is
    /// started for it. Otherwise the error says why there is none, or, where that is not known, why the previous
    /// attempt `failed`.
    async fn connected_in_time(
        &self,
        call: &Call,
        began: &mut Option<Instant>,
        failed: &mut Option<Box<RequestError>>,
    ) -> Result<Arc<Connection>, ToolError> {
        let before = match began {
            None if self.starts_on_demand() => None,
            began => Some(*began.get_or_insert_with(Instant::now) + self.spec.timeout),
        };
        let connected = self.connected(&call.ctx.cancel, before).await;
        connected.map_err(|error| match failed.take() {
            Some(failed) if self.reach.status.borrow().reason.is_none() => {
                failed.into_tool_error(&self.spec.name)
            }
            _ => error,
        })
    }

    /// Waits until announced lists are read, as long as the call may take. Returns whether they will be on this
    /// connection.
    async fn up_to_date(
        &self,
        connection: &Connection,
        began: &mut Option<Instant>,
    ) -> Result<bool, ToolError> {
        began.get_or_insert_with(Instant::now);
        let within = self.left(*began).min(CONNECTED_WITHIN);
        let demux = &connection.demux;
        if demux.lists.up_to_date(within, &demux.life.retired).await {
            return Ok(true);
        }
        if demux.life.retired.is_cancelled() {
            return Ok(false);
        }
        let message =
            format!("server `{}` is changing its tools, and the new list is not there yet", self.spec.name);
        Err(ToolError::unavailable(message).hint("try again in a minute"))
    }

    /// Returns whether waiting until then is pointless for a server that had failed `failures` times before.
    fn is_hopeless(&self, failures: u64, until: Instant) -> bool {
        // It was started for this call, and could not be; or it is in backoff for longer.
        let was_tried = self.reach.failures() > failures;
        (was_tried && self.starts_on_demand()) || self.reach.is_backing_off_until(until)
    }

    /// Returns the connection, or why there is none. Waits as long as that is promising, and not after `before`.
    pub(crate) async fn connected(
        &self,
        cancel: &CancellationToken,
        before: Option<Instant>,
    ) -> Result<Arc<Connection>, ToolError> {
        if let Some(connection) = self.reach.live.get() {
            return Ok(connection);
        }
        let (mut live, mut status, began) =
            (self.reach.live.watch(), self.reach.status.subscribe(), Instant::now());
        let failures = self.reach.failures();
        let until = |within: Duration| before.map_or(began + within, |before| before.min(began + within));
        loop {
            // Marked as seen before the check, so that no later change is missed.
            live.borrow_and_update();
            let kind = status.borrow_and_update().kind;
            if let Some(connection) = self.reach.live.get() {
                return Ok(connection);
            }
            let within = match kind {
                // Waiting is pointless: a person has to log in first.
                StatusKind::NeedsAuth | StatusKind::NeedsClientRegistration => break,
                StatusKind::Failed if self.is_hopeless(failures, until(CONNECTED_WITHIN)) => break,
                StatusKind::Failed | StatusKind::Disabled => CONNECTED_WITHIN,
                // It is started for this call.
                _ if self.starts_on_demand() => self.spec.start_timeout,
                StatusKind::Starting | StatusKind::Connected => CONNECTED_WITHIN,
            };
            tokio::select! {
                changed = live.changed() => if changed.is_err() { break },
                changed = status.changed() => if changed.is_err() { break },
                () = cancel.cancelled() => break,
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep_until(until(within)) => break,
            }
        }
        let predicate = self.reach.status.borrow().predicate();
        let error = ToolError::unavailable(format!("server `{}` {predicate}", self.spec.name));
        Err(match self.stop.is_cancelled() {
            true => error.hint("list again: the server was removed"),
            false => error.hint("the hub retries with backoff; see `portcullis mcp status`"),
        })
    }
}
