use super::*;
use portcullis_core::Secret;
use serde_json::Value;

fn approval(id: &str, target: &str) -> Approval {
    serde_json::from_value(json!({
        "id": id,
        "state": "pending",
        "asked": "2026-01-02T03:04:05Z",
        "expires": "2026-01-03T03:04:05Z",
        "call": {
            "digest": "", "client": "laptop", "origin": "client", "kind": "tool", "target": target, "effect": "create",
            "reach": "outside", "rule": "policy[0]", "definition": "", "arguments": "{\"body\":\"private\"}",
        },
    }))
    .unwrap()
}

fn redactor() -> Redactor {
    Redactor::new(&[("PIN".to_owned(), Secret::new("hunter2-hunter2".to_owned()))]).unwrap()
}

fn one(target: &str) -> ApprovalNotice {
    ApprovalNotice::One(Box::new(approval("4k2m9q7x", target)))
}

#[test]
fn each_format_has_the_text_and_none_has_the_arguments() {
    let text = "client `laptop` wants to run tool `chat_send` (effect: create, reaches outside); \
                `portcullis approvals show 4k2m9q7x` shows it";
    let notice = one("chat_send");
    assert_eq!(notice.text(&redactor()), text);
    let message = |format| WebhookMessage::of(format, &notice, text);
    let plain: Value = serde_json::from_str(&message(NotifyFormat::Json).body).unwrap();
    assert_eq!(
        plain,
        json!({
            "event": "approval_pending", "id": "4k2m9q7x", "client": "laptop", "kind": "tool", "target": "chat_send",
            "effect": "create", "reach": "outside", "rule": "policy[0]", "requested": "2026-01-02T03:04:05Z",
            "expires": "2026-01-03T03:04:05Z", "text": text,
        })
    );
    let ntfy = message(NotifyFormat::Ntfy);
    assert_eq!((ntfy.title, ntfy.body.as_str()), (Some("Approval needed"), text));
    let slack: Value = serde_json::from_str(&message(NotifyFormat::Slack).body).unwrap();
    assert_eq!(slack, json!({ "text": format!("Approval needed: {text}") }));
    for format in [NotifyFormat::Json, NotifyFormat::Ntfy, NotifyFormat::Slack] {
        assert!(!message(format).body.contains("private"));
    }
}

#[test]
fn a_name_is_redacted_cut_and_no_markup() {
    let said = one("x_hunter2-hunter2").text(&redactor());
    assert!(said.contains("x_[REDACTED:PIN]") && !said.contains("hunter2"), "{said}");
    assert_eq!(one(&"x".repeat(10_000)).text(&redactor()).chars().count(), TEXT_CHARS_MAX);
    let body = WebhookMessage::of(NotifyFormat::Slack, &one("x"), "<!channel> & co").body;
    assert_eq!(body, r#"{"text":"Approval needed: &lt;!channel&gt; &amp; co"}"#);
    assert_eq!(
        DesktopNotifier::arguments("--version <b>"),
        ["--app-name=Portcullis", "--icon=dialog-password", "--", "Approval needed", "--version &lt;b&gt;"]
    );
}

#[test]
fn many_at_once_are_one_notification() {
    let many = |count: usize| (0..count).map(|n| approval(&n.to_string(), "x")).collect::<Vec<_>>();
    assert_eq!(ApprovalNotice::of(many(0)), []);
    assert_eq!(ApprovalNotice::of(many(SINGLE_MAX)).len(), SINGLE_MAX);
    let several = ApprovalNotice::of(many(SINGLE_MAX + 1));
    assert_eq!(several, [ApprovalNotice::Several(SINGLE_MAX + 1)]);
    assert_eq!(several[0].text(&redactor()), "6 calls need approval; `portcullis approvals list` shows them");
}

#[test]
fn the_desktop_is_notified_only_in_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("notify-send");
    std::fs::write(&program, "").unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let find = |bus: Option<&str>, path: &str| {
        let (bus, path) = (bus.map(str::to_owned), path.to_owned());
        DesktopNotifier::find(&move |name: &str| match name {
            "DBUS_SESSION_BUS_ADDRESS" => bus.clone().map(Into::into),
            "PATH" => Some(path.clone().into()),
            _ => None,
        })
    };
    assert_eq!(find(Some("unix:path=/run/bus"), &path), Some(DesktopNotifier { program }));
    assert_eq!(find(None, &path), None);
    assert_eq!(find(Some(""), &path), None);
    assert_eq!(find(Some("unix:path=/run/bus"), "bin:/nonexistent"), None);
}
