//! What happens, for whoever watches.

use super::overview::micros;
use super::servers;
use super::stands::{self, Standing};
use crate::compose::Composed;
use futures::stream;
use jiff::Timestamp;
use portcullis_admin::desk::{CallEnd, CallLine, Event, Listener, ServerBrief};
use portcullis_guard::{ApprovalDesk, LiveCall, LiveEvent};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

/// Returns a call as it is shown.
pub(super) fn line(call: &LiveCall) -> CallLine {
    let decision = call.decision();
    CallLine {
        call: call.id(),
        at: Timestamp::try_from(call.at).unwrap_or_default(),
        client: call.client().to_owned(),
        origin: call.origin().to_owned(),
        kind: call.kind().to_owned(),
        target: call.target().to_owned(),
        effect: call.effect().to_owned(),
        arguments: call.arguments().to_owned(),
        end: call.end().map(|end| CallEnd {
            outcome: end.outcome().to_owned(),
            decision: decision.map(|(decision, _)| decision.to_owned()),
            rule: decision.map(|(_, rule)| rule.to_owned()),
            approval: call.approval().map(str::to_owned),
            bytes: end.bytes as u64,
            duration_us: micros(end.duration),
        }),
    }
}

/// One who watches.
struct Watching {
    composed: Arc<Composed>,
    calls: Receiver<LiveEvent>,
    approvals: watch::Receiver<()>,
    servers: watch::Receiver<()>,
    /// Nothing where there are no scripts.
    scripts: Option<watch::Receiver<Standing>>,
    /// What was told last.
    waiting: Vec<String>,
    stood: Vec<ServerBrief>,
    scripts_stood: Standing,
    /// What is to be told before anything else.
    next: VecDeque<Event>,
}

pub(super) fn listen(composed: &Arc<Composed>, mut scripts: Option<watch::Receiver<Standing>>) -> Listener {
    let watching = Watching {
        composed: composed.clone(),
        calls: composed.handles.live.listen(),
        approvals: composed.handles.approvals.changed(),
        servers: composed.servers.stands.subscribe(),
        waiting: Vec::new(),
        stood: servers::briefs(composed),
        scripts_stood: scripts.as_mut().and_then(|scripts| scripts.borrow_and_update().clone()),
        scripts,
        next: VecDeque::new(),
    };
    Listener::new(stream::unfold(watching, |mut watching| async move {
        let event = watching.event().await?;
        Some((event, watching))
    }))
}

impl Watching {
    async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.next.pop_front() {
                return Some(event);
            }
            tokio::select! {
                call = self.calls.recv() => return Some(match call {
                    // It may have ended meanwhile; that is told when it is its turn.
                    Ok(LiveEvent::Opened(call)) => Event::CallOpened(CallLine { end: None, ..line(&call) }),
                    Ok(LiveEvent::Closed(call)) => Event::CallClosed(line(&call)),
                    Err(RecvError::Lagged(count)) => Event::Missed { count },
                    Err(RecvError::Closed) => return None,
                }),
                changed = self.approvals.changed() => {
                    changed.ok()?;
                    let waiting = pending(self.composed.handles.approvals.clone()).await;
                    // Told of every change in the folder; most are of other files.
                    if waiting != self.waiting {
                        self.next.push_back(Event::Approvals { waiting: waiting.len() });
                        self.waiting = waiting;
                    }
                }
                changed = self.servers.changed() => {
                    changed.ok()?;
                    let stand = servers::briefs(&self.composed);
                    let other = stand.iter().filter(|now| !self.stood.contains(now)).cloned();
                    self.next.extend(other.map(Event::Server));
                    self.stood = stand;
                }
                stand = next_standing(&mut self.scripts) => {
                    let stand = stand?;
                    self.next.extend(stands::told(&self.scripts_stood, &stand));
                    self.scripts_stood = stand;
                }
            }
        }
    }
}

/// Returns how scripts stand when that is not as before.
async fn next_standing(scripts: &mut Option<watch::Receiver<Standing>>) -> Option<Standing> {
    let Some(scripts) = scripts else { return std::future::pending().await };
    scripts.changed().await.ok()?;
    Some(scripts.borrow_and_update().clone())
}

async fn pending(desk: ApprovalDesk) -> Vec<String> {
    let pending = tokio::task::spawn_blocking(move || desk.approvals().pending().unwrap_or_default()).await;
    pending.unwrap_or_default().into_iter().map(|approval| approval.id).collect()
}
