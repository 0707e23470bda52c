//! The routes by which a session begins and ends.

use super::route::{Ask, Nothing, Route};
use crate::clean::{Asked, Clean};
use crate::desk::{Done, SecretValue};
use crate::problem::Problem;
use crate::sign_in::{Opened, Session, SessionShown};
use jiff::Timestamp;
use portcullis_core::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Credentials {
    /// The name of the administrator.
    name: String,
    password: SecretValue,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Welcome {
    /// What the printed link has after its `#`.
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
struct SignedIn {
    /// Names the session, opens nothing.
    id: String,
    admin: String,
    created: Timestamp,
    expires: Timestamp,
    /// What every request that changes something sends as `x-csrf-token`.
    csrf: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Sessions {
    sessions: Vec<SessionShown>,
}

impl SignedIn {
    fn of(session: &Session) -> SignedIn {
        let Session { id, admin, created, expires, csrf } = session.clone();
        SignedIn { id, admin, created, expires, csrf }
    }
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/sign-in", "Sign in with a password; the answer sets a cookie", sign_in).for_anyone(),
        Route::post("/welcome", "Set a password with a one-time link, and sign in", welcome).for_anyone(),
        Route::get("/session", "The session that asks, with the token for changes", session),
        Route::post("/sign-out", "End this session", sign_out),
        Route::post("/sign-out-everywhere", "End all sessions of everyone", sign_out_everywhere),
        Route::post(
            "/password",
            "Set another password; all other sessions of this person end",
            change_password,
        ),
        Route::get("/sessions", "Everyone who is signed in", sessions),
        Route::delete("/sessions/{id}", "End one session", end_session),
    ]
}

fn opened(ask: &Ask, opened: Result<Opened, Problem>) -> Asked<SignedIn> {
    let Opened { cookie, session } = opened.map_err(|problem| ask.counter.problem(problem))?;
    let _ = ask.cookie.set(cookie);
    Ok(Clean::words(SignedIn::of(&session)))
}

fn sign_in(ask: &Ask, given: Credentials) -> BoxFuture<'_, Asked<SignedIn>> {
    Box::pin(
        async move { opened(ask, ask.sign_in.sign_in(&ask.visitor, &given.name, given.password.0).await) },
    )
}

fn welcome(ask: &Ask, given: Welcome) -> BoxFuture<'_, Asked<SignedIn>> {
    Box::pin(async move {
        let Welcome { link, name, password } = given;
        opened(ask, ask.sign_in.welcome(&ask.visitor, link.0.expose(), &name, password.0).await)
    })
}

fn session(ask: &Ask, _: Nothing) -> BoxFuture<'_, Asked<SignedIn>> {
    Box::pin(async move { Ok(Clean::words(SignedIn::of(ask.session().map_err(Clean::words)?))) })
}

fn sign_out(ask: &Ask, _: Nothing) -> BoxFuture<'_, Asked<Done>> {
    Box::pin(async move {
        let session = ask.session().map_err(Clean::words)?;
        let cookie = ask.sign_in.sign_out(session).await.map_err(|problem| ask.counter.problem(problem))?;
        let _ = ask.cookie.set(cookie);
        Ok(Clean::words(Done { said: "Signed out.".to_owned() }))
    })
}

fn sign_out_everywhere(ask: &Ask, _: Nothing) -> BoxFuture<'_, Asked<Done>> {
    Box::pin(async move {
        let ended = ask.sign_in.sign_out_everywhere().await;
        let count = ended.map_err(|problem| ask.counter.problem(problem))?;
        tracing::info!(target: "admin", admin = ask.by().name, count, "All sessions were ended.");
        Ok(Clean::words(Done { said: format!("{count} sessions were ended.") }))
    })
}

fn change_password(ask: &Ask, given: ChangePassword) -> BoxFuture<'_, Asked<Done>> {
    Box::pin(async move {
        let session = ask.session().map_err(Clean::words)?;
        let ChangePassword { old, new } = given;
        let changed = ask.sign_in.change_password(&ask.visitor, session, old.0, new.0).await;
        changed.map_err(|problem| ask.counter.problem(problem))?;
        Ok(Clean::words(Done { said: "The password is changed; other sessions are ended.".to_owned() }))
    })
}

fn sessions(ask: &Ask, _: Nothing) -> BoxFuture<'_, Asked<Sessions>> {
    Box::pin(async move {
        let session = ask.session().map_err(Clean::words)?;
        let sessions = ask.sign_in.sessions(session).map_err(|problem| ask.counter.problem(problem))?;
        // What a browser says of itself is a stranger's text.
        ask.counter.cleaned(Sessions { sessions })
    })
}

fn end_session(ask: &Ask, _: Nothing) -> BoxFuture<'_, Asked<Done>> {
    Box::pin(async move {
        let ended = ask.sign_in.end_session(&ask.param("id")).await;
        ended.map_err(|problem| ask.counter.problem(problem))?;
        Ok(Clean::words(Done { said: "The session is ended.".to_owned() }))
    })
}
