//! Notifications of calls that wait for approval: a line in the log, the desktop, a webhook.
//!
//! A service beside the calls: what fails or is slow here delays none. No argument of a call is in a notification, and its
//! text is redacted as everything that leaves the hub.

use crate::config::{NotifyFormat, NotifySettings, NotifyWebhook};
use parking_lot::Mutex;
use portcullis_core::{BoxFuture, Health, Service, ServiceCtx, ServiceError, blocking, jittered};
use portcullis_egress::{EgressError, header};
use portcullis_family::{Environment, SharedEgress};
use portcullis_guard::{ApprovalDesk, GuardHandles, Redactor};
use portcullis_ops::approval_text::announcement;
use portcullis_store::approvals::{Approval, ApprovalStage};
use serde_json::json;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Notifications that wait for a webhook. What comes then is left out: the next one that is sent has the count.
const QUEUE_MAX: usize = 32;
/// More that begin to wait at once are told in one notification.
const SINGLE_MAX: usize = 5;
/// Attempts for one notification, and the delay after the first; it doubles.
const TRIES_MAX: u32 = 4;
const RETRY_FIRST: Duration = Duration::from_secs(2);
/// The longest text. Client names and tool names are short; those of upstream tools may not be.
const TEXT_CHARS_MAX: usize = 500;
/// The largest answer of a webhook that is read; nothing depends on it.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long `notify-send` may take.
const DESKTOP_WITHIN: Duration = Duration::from_secs(5);
const TITLE: &str = "Approval needed";

/// The service.
pub(crate) struct ApprovalNotifier {
    approvals: ApprovalDesk,
    redactor: Redactor,
    egress: SharedEgress,
    webhook: Option<NotifyWebhook>,
    desktop: Option<DesktopNotifier>,
    /// What people were told of. Approvals from before the start count as known.
    known: Mutex<Option<HashSet<String>>>,
    /// Why the webhook got none of the last notification.
    problem: Mutex<Option<String>>,
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ApprovalNotice {
    One(Box<Approval>),
    /// As many began to wait at once.
    Several(usize),
}

impl ApprovalNotice {
    /// Returns the notifications for approvals that began to wait.
    fn of(fresh: Vec<Approval>) -> Vec<ApprovalNotice> {
        match fresh.len() {
            0..=SINGLE_MAX => fresh.into_iter().map(|one| ApprovalNotice::One(Box::new(one))).collect(),
            several => vec![ApprovalNotice::Several(several)],
        }
    }

    fn text(&self, redactor: &Redactor) -> String {
        let text = match self {
            ApprovalNotice::One(approval) => announcement(approval),
            ApprovalNotice::Several(count) => {
                format!("{count} calls need approval; `portcullis approvals list` shows them")
            }
        };
        // Redacted before it is cut: half a secret is not recognised.
        redactor.scrub(&text).chars().take(TEXT_CHARS_MAX).collect()
    }
}

impl ApprovalNotifier {
    pub(crate) fn new(
        handles: &GuardHandles,
        egress: SharedEgress,
        settings: NotifySettings,
        desktop: Option<DesktopNotifier>,
    ) -> ApprovalNotifier {
        ApprovalNotifier {
            approvals: handles.approvals.clone(),
            redactor: handles.redactor.clone(),
            egress,
            webhook: settings.webhook,
            desktop: desktop.filter(|_| settings.desktop),
            known: Mutex::default(),
            problem: Mutex::default(),
        }
    }

    /// Returns the approvals that began to wait since the last look.
    async fn fresh(&self) -> Vec<Approval> {
        let desk = self.approvals.clone();
        let listed = blocking(move || {
            let (store, now) = (desk.approvals(), desk.approvals().now());
            store.list().map(|all| {
                all.into_iter().filter(|one| one.stage(now) == ApprovalStage::Pending).collect::<Vec<_>>()
            })
        });
        let pending = match listed.await {
            Ok(pending) => pending,
            Err(error) => {
                tracing::warn!(target: "approval", %error, "Approvals cannot be read, so none is announced.");
                return Vec::new();
            }
        };
        let ids = pending.iter().map(|one| one.id.clone()).collect();
        let Some(known) = self.known.lock().replace(ids) else { return Vec::new() };
        pending.into_iter().filter(|one| !known.contains(&one.id)).collect()
    }

    async fn watch(&self, queue: mpsc::Sender<ApprovalNotice>) {
        let mut changed = self.approvals.changed();
        loop {
            for notice in ApprovalNotice::of(self.fresh().await) {
                let text = notice.text(&self.redactor);
                tracing::warn!(target: "approval", "{TITLE}: {text}");
                if let Some(desktop) = &self.desktop {
                    desktop.show(&text).await;
                }
                if self.webhook.is_some() && queue.try_send(notice).is_err() {
                    tracing::warn!(target: "approval", "The webhook is too slow; a notification was left out.");
                }
            }
            if changed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    async fn deliver(&self, mut queue: mpsc::Receiver<ApprovalNotice>) {
        let Some(webhook) = &self.webhook else { return std::future::pending().await };
        while let Some(notice) = queue.recv().await {
            let problem = self.post_with_retries(webhook, &notice).await.err();
            if let Some(problem) = &problem {
                tracing::warn!(target: "approval", problem, "The webhook was not notified.");
            }
            *self.problem.lock() = problem;
        }
    }

    async fn post_with_retries(
        &self,
        webhook: &NotifyWebhook,
        notice: &ApprovalNotice,
    ) -> Result<(), String> {
        let mut delay = RETRY_FIRST;
        for attempt in 1.. {
            match self.post(webhook, notice).await {
                Ok(()) => return Ok(()),
                Err(failure) if !failure.is_temporary || attempt >= TRIES_MAX => return Err(failure.why),
                Err(_) => sleep(jittered(delay)).await,
            }
            delay *= 2;
        }
        Ok(())
    }

    async fn post(&self, webhook: &NotifyWebhook, notice: &ApprovalNotice) -> Result<(), WebhookFailure> {
        let lasting = |why: String| WebhookFailure { why, is_temporary: false };
        let egress = self.egress.client().map_err(|error| lasting(error.to_string()))?;
        let message = WebhookMessage::of(webhook.format, notice, &notice.text(&self.redactor));
        let mut request = egress
            .get_secret_url(&webhook.url, "the webhook of `notify.url`")
            .bytes_max(ANSWER_BYTES_MAX)
            .post(message.content_type, message.body);
        if let Some(title) = message.title {
            request = request.header(header::HeaderName::from_static("title"), title);
        }
        let answer = request.send().await.map_err(|error| WebhookFailure {
            is_temporary: !matches!(error, EgressError::Secret { .. } | EgressError::Setup { .. }),
            why: error.to_string(),
        })?;
        match answer.status {
            200..300 => Ok(()),
            status => Err(WebhookFailure {
                why: format!("it answered {status}{}", portcullis_egress::reason(status)),
                is_temporary: matches!(status, 408 | 425 | 429 | 500..),
            }),
        }
    }
}

impl Service for ApprovalNotifier {
    fn name(&self) -> &'static str {
        "approval-notifier"
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            let (sender, receiver) = mpsc::channel(QUEUE_MAX);
            let working = async { tokio::join!(self.watch(sender), self.deliver(receiver)) };
            ctx.shutdown.run_until_cancelled(working).await;
            Ok(())
        })
    }

    // A webhook that is away makes the hub no less ready, so its problem is only logged.
    fn health(&self) -> Health {
        Health::Ok
    }
}

struct WebhookFailure {
    why: String,
    /// Whether another attempt may succeed.
    is_temporary: bool,
}

/// The request to a webhook.
#[derive(Debug, PartialEq, Eq)]
struct WebhookMessage {
    content_type: &'static str,
    title: Option<&'static str>,
    body: String,
}

impl WebhookMessage {
    fn of(format: NotifyFormat, notice: &ApprovalNotice, text: &str) -> WebhookMessage {
        const JSON: &str = "application/json";
        match format {
            NotifyFormat::Json => {
                let mut body = match notice {
                    ApprovalNotice::One(approval) => json!({
                        "event": "approval_pending",
                        "id": approval.id,
                        "client": approval.call.client,
                        "kind": approval.call.kind,
                        "target": approval.call.target,
                        "effect": approval.call.effect,
                        "reach": approval.call.reach,
                        "rule": approval.call.rule,
                        "requested": approval.asked,
                        "expires": approval.expires,
                    }),
                    ApprovalNotice::Several(count) => json!({ "event": "approvals_pending", "count": count }),
                };
                body["text"] = text.into();
                WebhookMessage { content_type: JSON, title: None, body: body.to_string() }
            }
            NotifyFormat::Ntfy => WebhookMessage {
                content_type: "text/plain; charset=utf-8",
                title: Some(TITLE),
                body: text.to_owned(),
            },
            NotifyFormat::Slack => {
                // These three are its markup; without them nothing in the text is a link or a mention.
                let body = json!({ "text": format!("{TITLE}: {}", escape_markup(text)) });
                WebhookMessage { content_type: JSON, title: None, body: body.to_string() }
            }
        }
    }
}

/// Escapes a text for Slack, and for desktops that take markup.
fn escape_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Shows notifications of the desktop with `notify-send` (freedesktop.org).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DesktopNotifier {
    program: PathBuf,
}

impl DesktopNotifier {
    /// Returns it where the program is installed and there is a session to show anything in.
    pub(crate) fn find(env: Environment<'_>) -> Option<DesktopNotifier> {
        let has_address = env("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty());
        let has_socket =
            || env("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(&folder).join("bus").exists());
        if !has_address && !has_socket() {
            return None;
        }
        let folders = env("PATH")?;
        // Absolute ones only: the working directory is anyone's.
        let mut programs = std::env::split_paths(&folders)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join("notify-send"));
        programs.find(|program| program.is_file()).map(|program| DesktopNotifier { program })
    }

    /// Returns the arguments. After `--`, no text is an option.
    fn arguments(text: &str) -> [String; 5] {
        let fixed = ["--app-name=Portcullis", "--icon=dialog-password", "--", TITLE];
        let [app, icon, end, title] = fixed.map(str::to_owned);
        [app, icon, end, title, escape_markup(text)]
    }

    async fn show(&self, text: &str) {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(DesktopNotifier::arguments(text)).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let shown = async { command.spawn()?.wait().await };
        match timeout(DESKTOP_WITHIN, shown).await {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => tracing::debug!(target: "approval", %status, "`notify-send` failed."),
            Ok(Err(error)) => tracing::debug!(target: "approval", %error, "`notify-send` cannot be started."),
            Err(_) => tracing::debug!(target: "approval", "`notify-send` took too long."),
        }
    }
}

#[cfg(test)]
#[path = "approval_notifier_tests.rs"]
mod tests;
