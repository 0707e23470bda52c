//! The admin API of the real binary: authentication, views, decisions, and what stays hidden.

mod actions;
mod approvals;
mod bad_input;
mod live;
mod password_guessing;
mod routes;
mod scripts;
mod sessions;
mod sinks;

use portcullis_testkit::process::HubProcess;
use portcullis_testkit::raw_http::{RawHttpRequest, RawHttpResponse};
use serde_json::{Value, json};
use std::net::SocketAddr;

pub(crate) const PASSWORD: &str = "correct horse battery staple";

/// Someone who is signed in.
#[derive(Debug, Clone)]
pub(crate) struct Admin {
    pub(crate) address: SocketAddr,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl Admin {
    /// Takes the link that the first start printed.
    pub(crate) async fn first(hub: &HubProcess) -> Admin {
        let link = hub.admin_link.split_once('#').expect("a link").1;
        Admin::welcome(hub.address, link, "ann").await
    }

    pub(crate) async fn welcome(address: SocketAddr, link: &str, name: &str) -> Admin {
        let body = json!({ "link": link, "name": name, "password": PASSWORD });
        Admin::opened(address, &RawHttpRequest::json("POST", "/api/v1/welcome", &body).send(address).await)
    }

    pub(crate) async fn signed_in(address: SocketAddr, name: &str) -> Admin {
        Admin::opened(address, &sign_in(name, PASSWORD).send(address).await)
    }

    fn opened(address: SocketAddr, reply: &RawHttpResponse) -> Admin {
        assert_eq!(reply.status(), 200, "{}", reply.text());
        let cookie = reply.head.header("set-cookie").expect("a cookie");
        assert!(cookie.ends_with("; Path=/; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_owned();
        assert!(cookie.starts_with("__Host-portcullis="));
        Admin { address, cookie, csrf: reply.json()["csrf"].as_str().unwrap().to_owned() }
    }

    /// A request with the cookie, and without the token for changes.
    pub(crate) fn plain(&self, method: &'static str, path: &str, body: Option<&Value>) -> RawHttpRequest {
        let path = format!("/api/v1{path}");
        let request = match body {
            Some(body) => RawHttpRequest::json(method, path, body),
            None => RawHttpRequest::new(method, path),
        };
        request.header("Cookie", &self.cookie)
    }

    pub(crate) async fn get(&self, path: &str) -> RawHttpResponse {
        self.plain("GET", path, None).send(self.address).await
    }

    pub(crate) async fn send(&self, method: &'static str, path: &str, body: Value) -> RawHttpResponse {
        self.plain(method, path, Some(&body)).header("x-csrf-token", &self.csrf).send(self.address).await
    }

    /// Does something that has to work.
    pub(crate) async fn does(&self, method: &'static str, path: &str, body: Value) -> Value {
        let reply = self.send(method, path, body).await;
        assert_eq!(reply.status(), 200, "{method} {path}: {}", reply.text());
        reply.json()
    }

    pub(crate) async fn sees(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.status(), 200, "{path}: {}", reply.text());
        reply.json()
    }
}

pub(crate) fn sign_in(name: &str, password: &str) -> RawHttpRequest {
    RawHttpRequest::json("POST", "/api/v1/sign-in", &json!({ "name": name, "password": password }))
}

/// Returns the code of a problem, having seen that it says what happened.
pub(crate) fn problem(reply: &RawHttpResponse) -> String {
    let value = reply.json();
    assert!(value["message"].as_str().is_some_and(|text| !text.is_empty()), "{}", reply.text());
    value["code"].as_str().unwrap_or_default().to_owned()
}
