//! Routes for sign-in, sign-out, sessions and passwords.

use super::route::{ApiRequest, NoInput, Route};
use crate::redacted_desk::{DeskResult, RedactedValue};
use crate::sign_in::{AdminSession, NewSession, SessionView};
use jiff::Timestamp;
use portcullis_core::BoxFuture;
use portcullis_ops::Problem;
use portcullis_ops::desk::{ActionReceipt, SecretValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignInRequest {
    /// The name of the administrator.
    name: String,
    password: SecretValue,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedeemLink {
    /// The fragment of the printed link, after `#`.
    link: SecretValue,
    name: String,
    /// At least 12 characters.
    password: SecretValue,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChangePassword {
    old: SecretValue,
    /// At least 12 characters.
    new: SecretValue,
}

#[derive(Serialize, JsonSchema)]
struct CurrentSession {
    /// Public ID of the session; not a credential.
    id: String,
    admin: String,
    created: Timestamp,
    expires: Timestamp,
    /// The `x-csrf-token` value of state-changing requests.
    csrf: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct SessionList {
    sessions: Vec<SessionView>,
}

impl CurrentSession {
    fn of(session: &AdminSession) -> CurrentSession {
        let AdminSession { id, admin, created, expires, csrf } = session.clone();
        CurrentSession { id, admin, created, expires, csrf }
    }
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/sign-in", "Sign in with a password; sets the session cookie", sign_in).for_anyone(),
        Route::post("/welcome", "Set a password with a one-time link and sign in", welcome).for_anyone(),
        Route::get("/session", "The current session, with its CSRF token", session),
        Route::post("/sign-out", "Sign out", sign_out),
        Route::post("/sign-out-everywhere", "End all sessions of all administrators", sign_out_everywhere),
        Route::post("/password", "Change the password; ends your other sessions", change_password),
        Route::get("/sessions", "All sessions", sessions),
        Route::delete("/sessions/{id}", "End one session", end_session),
    ]
}

fn opened(ask: &ApiRequest, opened: Result<NewSession, Problem>) -> DeskResult<CurrentSession> {
    let NewSession { cookie, session } = opened.map_err(|problem| ask.counter.problem(problem))?;
    let _ = ask.cookie.set(cookie);
    Ok(RedactedValue::trusted(CurrentSession::of(&session)))
}

fn sign_in(ask: &ApiRequest, given: SignInRequest) -> BoxFuture<'_, DeskResult<CurrentSession>> {
    Box::pin(
        async move { opened(ask, ask.sign_in.sign_in(&ask.visitor, &given.name, given.password.0).await) },
    )
}

fn welcome(ask: &ApiRequest, given: RedeemLink) -> BoxFuture<'_, DeskResult<CurrentSession>> {
    Box::pin(async move {
        let RedeemLink { link, name, password } = given;
        opened(ask, ask.sign_in.redeem_link(&ask.visitor, link.0.expose(), &name, password.0).await)
    })
}

fn session(ask: &ApiRequest, _: NoInput) -> BoxFuture<'_, DeskResult<CurrentSession>> {
    Box::pin(async move {
        Ok(RedactedValue::trusted(CurrentSession::of(ask.session().map_err(RedactedValue::trusted)?)))
    })
}

fn sign_out(ask: &ApiRequest, _: NoInput) -> BoxFuture<'_, DeskResult<ActionReceipt>> {
    Box::pin(async move {
        let session = ask.session().map_err(RedactedValue::trusted)?;
        let cookie = ask.sign_in.sign_out(session).await.map_err(|problem| ask.counter.problem(problem))?;
        let _ = ask.cookie.set(cookie);
        Ok(RedactedValue::trusted(ActionReceipt { said: "Signed out.".to_owned() }))
    })
}

fn sign_out_everywhere(ask: &ApiRequest, _: NoInput) -> BoxFuture<'_, DeskResult<ActionReceipt>> {
    Box::pin(async move {
        let ended = ask.sign_in.sign_out_everywhere(ask.actor()).await;
        let ended = ended.map_err(|problem| ask.counter.problem(problem))?;
        Ok(RedactedValue::trusted(ActionReceipt { said: ended.sentence() }))
    })
}

fn change_password(ask: &ApiRequest, given: ChangePassword) -> BoxFuture<'_, DeskResult<ActionReceipt>> {
    Box::pin(async move {
        let session = ask.session().map_err(RedactedValue::trusted)?;
        let ChangePassword { old, new } = given;
        let changed = ask.sign_in.change_password(&ask.visitor, session, old.0, new.0).await;
        let changed = changed.map_err(|problem| ask.counter.problem(problem))?;
        Ok(RedactedValue::trusted(ActionReceipt { said: changed.sentence() }))
    })
}

fn sessions(ask: &ApiRequest, _: NoInput) -> BoxFuture<'_, DeskResult<SessionList>> {
    Box::pin(async move {
        let session = ask.session().map_err(RedactedValue::trusted)?;
        let sessions = ask.sign_in.sessions(session).map_err(|problem| ask.counter.problem(problem))?;
        // The user agent is untrusted text.
        ask.counter.redact(SessionList { sessions })
    })
}

fn end_session(ask: &ApiRequest, _: NoInput) -> BoxFuture<'_, DeskResult<ActionReceipt>> {
    Box::pin(async move {
        let ended = ask.sign_in.end_session(&ask.param("id"), ask.actor()).await;
        let ended = ended.map_err(|problem| ask.counter.problem(problem))?;
        Ok(RedactedValue::trusted(ActionReceipt { said: ended.sentence() }))
    })
}
