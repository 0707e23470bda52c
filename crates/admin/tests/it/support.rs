//! A hub without a network.

use crate::desk::DemoDesk;
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use jiff::tz::TimeZone;
use portcullis_admin::sign_in::SignIn;
use portcullis_admin::{AdminApp, RedactedDesk, routes};
use portcullis_core::{Scrub, SystemClock};
use portcullis_guard::AuditSettings;
use portcullis_ops::admins::Administrators;
use portcullis_ops::change::ChangeRecorder;
use portcullis_store::admins::AdminStore;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) const PASSWORD: &str = "correct horse battery";

struct NothingToHide;

impl Scrub for NothingToHide {
    fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }

    fn scrub_value(&self, _: &mut Value) {}

    fn generation(&self) -> u64 {
        0
    }
}

/// A hub, and the cookie of who is signed in.
pub(crate) struct AdminFixture {
    pub(crate) router: Router,
    admins: Arc<AdminStore>,
    cookie: Option<String>,
    _folder: TempDir,
}

pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl TestResponse {
    pub(crate) fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the token that the forms of a page carry.
    pub(crate) fn csrf(&self) -> &str {
        let after = self.text.split("name=\"csrf\" value=\"").nth(1).expect("a page with forms");
        after.split('"').next().unwrap()
    }
}

impl AdminFixture {
    pub(crate) fn new() -> AdminFixture {
        AdminFixture::of(DemoDesk::new())
    }

    fn of(desk: DemoDesk) -> AdminFixture {
        let folder = tempfile::tempdir().unwrap();
        let admins = Arc::new(AdminStore::open(
            &portcullis_store::open(folder.path(), &[]).unwrap(),
            Arc::new(SystemClock),
        ));
        let settings = AuditSettings::in_folder(folder.path());
        let changes = ChangeRecorder::Spool { settings, warn: |_| {} };
        let app = AdminApp {
            counter: RedactedDesk::new(Arc::new(desk), Arc::new(NothingToHide)),
            sign_in: Arc::new(SignIn::new(
                Arc::new(Administrators::new(admins.clone(), changes)),
                Arc::new(SystemClock),
            )),
            zone: Arc::new(ArcSwap::from_pointee(TimeZone::system())),
            closing: CancellationToken::new(),
        };
        AdminFixture { router: routes(app), admins, cookie: None, _folder: folder }
    }

    /// With somebody signed in.
    pub(crate) async fn signed_in() -> AdminFixture {
        AdminFixture::new().with_session().await
    }

    /// After the first start of a hub, with somebody signed in.
    pub(crate) async fn fresh() -> AdminFixture {
        AdminFixture::of(DemoDesk::fresh()).with_session().await
    }

    async fn with_session(mut self) -> AdminFixture {
        let hub = &mut self;
        let link = hub.admins.make_link().unwrap();
        let form = format!("link={}&name=marta&password={PASSWORD}&again={PASSWORD}", link.expose());
        let answer = hub.post("/admin/welcome", &form.replace(' ', "+")).await;
        assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/admin"));
        let cookie = answer.header(header::SET_COOKIE).split(';').next().unwrap().to_owned();
        hub.cookie = Some(cookie);
        self
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.ask(Method::GET, path, "", &[]).await
    }

    /// As [`AdminFixture::get`], with one more cookie.
    pub(crate) async fn get_with_cookie(&self, path: &str, cookie: &str) -> TestResponse {
        self.ask(Method::GET, path, "", &[("cookie", cookie)]).await
    }

    pub(crate) async fn post(&self, path: &str, form: &str) -> TestResponse {
        self.ask(Method::POST, path, form, &[]).await
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        form: &str,
        with: &[(&str, &str)],
    ) -> TestResponse {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:3000")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, cookie);
        }
        for (name, value) in with {
            request = request.header(*name, *value);
        }
        answer_of(&self.router, request.body(Body::from(form.to_owned())).unwrap()).await
    }
}

pub(crate) async fn answer_of(router: &Router, request: Request<Body>) -> TestResponse {
    let response = TowerToHyperService::new(router.clone()).call(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let is_stream = parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    let bytes = if is_stream { Default::default() } else { body.collect().await.unwrap().to_bytes() };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    TestResponse { status: parts.status, headers: parts.headers, text }
}
