//! Event subscriptions: calls, approvals, servers, scripts.

use super::overview::micros;
use super::script_status::{self, ScriptStatuses};
use super::servers;
use crate::context::LiveHub;
use crate::desk::{AdminEvent, AdminEventStream, CallEnding, CallView, ServerBrief};
use futures::stream;
use jiff::Timestamp;
use portcullis_guard::{ApprovalDesk, LiveCall, LiveEvent};
use std::collections::VecDeque;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

/// Returns the view of a call.
pub(super) fn line(call: &LiveCall) -> CallView {
    let decision = call.decision();
    CallView {
        call: call.id(),
        at: Timestamp::try_from(call.at).unwrap_or_default(),
        client: call.client().to_owned(),
        origin: call.origin().to_owned(),
        kind: call.kind().to_owned(),
        target: call.target().to_owned(),
        effect: call.effect().to_owned(),
        arguments: call.arguments().to_owned(),
        end: call.end().map(|end| CallEnding {
            outcome: end.outcome().to_owned(),
            decision: decision.map(|(decision, _)| decision.to_owned()),
            rule: decision.map(|(_, rule)| rule.to_owned()),
            approval: call.approval().map(str::to_owned),
            bytes: end.bytes as u64,
            duration_us: micros(end.duration),
        }),
    }
}

/// One subscription.
struct EventWatcher {
    hub: LiveHub,
    calls: Receiver<LiveEvent>,
    approvals: watch::Receiver<()>,
    servers: watch::Receiver<()>,
    /// `None` if the hub has no scripts.
    scripts: Option<watch::Receiver<ScriptStatuses>>,
    /// The last sent state.
    waiting: Vec<String>,
    stood: Vec<ServerBrief>,
    scripts_stood: ScriptStatuses,
    /// Queued events, sent first.
    next: VecDeque<AdminEvent>,
}

pub(super) fn listen(
    hub: &LiveHub,
    mut scripts: Option<watch::Receiver<ScriptStatuses>>,
) -> AdminEventStream {
    let watching = EventWatcher {
        hub: hub.clone(),
        calls: hub.handles.live.listen(),
        approvals: hub.handles.approvals.changed(),
        servers: hub.servers.status_changes.subscribe(),
        waiting: Vec::new(),
        stood: servers::briefs(hub),
        scripts_stood: scripts.as_mut().and_then(|scripts| scripts.borrow_and_update().clone()),
        scripts,
        next: VecDeque::new(),
    };
    AdminEventStream::new(stream::unfold(watching, |mut watching| async move {
        let event = watching.event().await?;
        Some((event, watching))
    }))
}

impl EventWatcher {
    async fn event(&mut self) -> Option<AdminEvent> {
        loop {
            if let Some(event) = self.next.pop_front() {
                return Some(event);
            }
            tokio::select! {
                call = self.calls.recv() => return Some(match call {
                    // It may have finished meanwhile; that is its own event.
                    Ok(LiveEvent::Opened(call)) => AdminEvent::CallOpened(CallView { end: None, ..line(&call) }),
                    Ok(LiveEvent::Closed(call)) => AdminEvent::CallClosed(line(&call)),
                    Err(RecvError::Lagged(count)) => AdminEvent::Missed { count },
                    Err(RecvError::Closed) => return None,
                }),
                changed = self.approvals.changed() => {
                    changed.ok()?;
                    let waiting = pending(self.hub.handles.approvals.clone()).await;
                    // Every change in the folder wakes this; most are of other files.
                    if waiting != self.waiting {
                        self.next.push_back(AdminEvent::Approvals { waiting: waiting.len() });
                        self.waiting = waiting;
                    }
                }
                changed = self.servers.changed() => {
                    changed.ok()?;
                    let stand = servers::briefs(&self.hub);
                    let other = stand.iter().filter(|now| !self.stood.contains(now)).cloned();
                    self.next.extend(other.map(AdminEvent::Server));
                    self.stood = stand;
                }
                stand = next_standing(&mut self.scripts) => {
                    let stand = stand?;
                    self.next.extend(script_status::script_events(&self.scripts_stood, &stand));
                    self.scripts_stood = stand;
                }
            }
        }
    }
}

/// Returns the script states once they differ from the last sent.
async fn next_standing(scripts: &mut Option<watch::Receiver<ScriptStatuses>>) -> Option<ScriptStatuses> {
    let Some(scripts) = scripts else { return std::future::pending().await };
    scripts.changed().await.ok()?;
    Some(scripts.borrow_and_update().clone())
}

async fn pending(desk: ApprovalDesk) -> Vec<String> {
    let pending = portcullis_core::run_blocking(move || desk.approvals().pending().unwrap_or_default()).await;
    pending.unwrap_or_default().into_iter().map(|approval| approval.id).collect()
}
