//! Responses to submitted forms.

use crate::support::AdminFixture;
use axum::http::{StatusCode, header};

#[tokio::test]
async fn what_was_done_is_said_once_on_the_next_page() {
    let hub = AdminFixture::signed_in().await;
    let csrf = hub.get("/admin").await.csrf().to_owned();
    let answer = hub.post("/admin/clients/laptop", &format!("csrf={csrf}&do=revoke")).await;
    assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/admin/clients"));
    assert!(hub.get("/admin/clients").await.text.contains("Revoked client <code>laptop</code>."));
    assert!(!hub.get("/admin/clients").await.text.contains("Revoked client"));
}

#[tokio::test]
async fn what_is_wrong_stands_at_its_form_with_what_was_put_in() {
    let hub = AdminFixture::signed_in().await;
    let csrf = hub.get("/admin").await.csrf().to_owned();
    for (path, form, message, kept) in [
        ("/admin/servers", "name=a%22b&command=x&url=y", "either a command or a URL", "value=\"a&#34;b\""),
        (
            "/admin/servers",
            "name=n&env=novalue",
            "a line of <code>env</code> has no <code>=</code>",
            "novalue</textarea>",
        ),
        ("/admin/secrets", "name=SHORT&value=1", "shorter than 8 bytes", "value=\"SHORT\""),
        ("/admin/policy/rules", "do=add&before=x&tools=t", "expected a number", "value=\"t\""),
        (
            "/admin/tools/workspace_write",
            "with=fields&arg.limit=many&arg.path=p",
            "<code>limit</code>",
            "many",
        ),
        ("/admin/tools/workspace_write", "with=raw&raw=%7B", "the arguments", "{</textarea>"),
        ("/admin/settings/password", "old=a&new=b&again=c", "do not match", "password"),
        ("/admin/scripts", "do=save&name=../x&text=1", "expected a name like report.star", "value=\"../x\""),
        ("/admin/servers/git", "do=explode", "unknown form action", "git"),
    ] {
        let answer = hub.post(path, &format!("csrf={csrf}&{form}")).await;
        assert!(answer.status.is_client_error(), "{path}: {}", answer.status);
        assert!(answer.text.contains("role=\"alert\""), "{path}");
        assert!(answer.text.contains(message), "{path}: {message}");
        assert!(answer.text.contains(kept), "{path}: {kept}");
    }
    // A value that is secret does not come back, even when it is refused.
    let answer = hub.post("/admin/secrets", &format!("csrf={csrf}&name=A&value=s3cr3t")).await;
    assert!(!answer.text.contains("s3cr3t"));
}

#[tokio::test]
async fn deciding_again_or_about_something_else_is_refused() {
    let hub = AdminFixture::signed_in().await;
    let csrf = hub.get("/admin").await.csrf().to_owned();
    let decide = |digest: &str| format!("csrf={csrf}&decision=once&digest={digest}");
    let digest = "9b2f".repeat(16);
    let other = hub.post("/admin/approvals/2e89j26n", &decide("other")).await;
    assert_eq!(other.status, StatusCode::CONFLICT);
    assert!(other.text.contains("not the one that you reviewed"));
    assert_eq!(hub.post("/admin/approvals/2e89j26n", &decide(&digest)).await.status, StatusCode::SEE_OTHER);
    let again = hub.post("/admin/approvals/2e89j26n", &decide(&digest)).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert!(again.text.contains("was decided already"));
}

#[tokio::test]
async fn a_form_has_a_bound() {
    let hub = AdminFixture::signed_in().await;
    let csrf = hub.get("/admin").await.csrf().to_owned();
    let long = format!("csrf={csrf}&text={}", "x".repeat(5 * 1024 * 1024));
    assert_eq!(hub.post("/admin/scripts", &long).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let many = format!("csrf={csrf}&{}", "a=1&".repeat(2_200));
    assert_eq!(hub.post("/admin/scripts", &many).await.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn colours_are_right_from_the_first_byte() {
    let hub = AdminFixture::signed_in().await;
    let csrf = hub.get("/admin").await.csrf().to_owned();
    let answer = hub.post("/admin/theme", &format!("csrf={csrf}&theme=dark&back=//evil.example")).await;
    assert_eq!(answer.header(header::LOCATION), "/admin");
    assert!(answer.header(header::SET_COOKIE).starts_with("portcullis-theme=dark; "));
    assert!(!hub.get("/admin").await.text.contains("data-theme"));
}
