//! A local web server, and a hub that may reach it.

use crate::testing::ToolsFixture;
use crate::web::{WebConfig, WebSettings, family};
use parking_lot::Mutex;
use portcullis_core::{Output, SystemClock, Target};
use portcullis_egress::{EgressClient, EgressSettings, HostRateLimit, NoSecrets, PlainHttp, Resolve};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;

/// Resolves no name, so that tests do not use the network.
struct NoNames;

impl Resolve for NoNames {
    fn resolve(&self, host: String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        Box::pin(async move { Err(io::Error::other(format!("unknown host {host}"))) })
    }
}

pub(crate) struct WebFixtureSite {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl WebFixtureSite {
    /// Serves each path with the result of `answer`, until the test ends.
    pub(crate) fn open(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> WebFixtureSite {
        WebFixtureSite::open_heads(move |request| answer(request.split(' ').nth(1).unwrap_or_default()))
    }

    /// The same, by the whole request head.
    pub(crate) fn open_heads(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> WebFixtureSite {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let asking = asked.clone();
        std::thread::spawn(move || {
            for mut visitor in listener.incoming().flatten() {
                let mut request = [0; 8192];
                let count = visitor.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..count]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let answer = answer(&request);
                asking.lock().push(path);
                let _ = visitor.write_all(&answer);
            }
        });
        WebFixtureSite { address, asked }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// Returns a call in the form of `ToolsFixture::check`.
    pub(crate) fn call(&self, path: &str, more: &str) -> String {
        format!(r#"web_fetch {{"url": "{}"{more}}}"#, self.url(path))
    }

    /// Returns a transcript without the port, which varies.
    pub(crate) fn anonymous(&self, transcript: &str) -> String {
        transcript.replace(&self.address.to_string(), "127.0.0.1:PORT")
    }

    pub(crate) fn config(&self) -> WebConfig {
        let settings = EgressSettings {
            exceptions: vec![self.address.to_string().parse().unwrap()],
            per_host: HostRateLimit { per_minute: 1_000_000, burst: 1_000_000 },
            ..EgressSettings::default()
        };
        let clock = Arc::new(SystemClock);
        let egress =
            EgressClient::new(settings, Arc::new(NoNames), Arc::new(NoSecrets), clock.clone()).unwrap();
        WebConfig {
            egress: Arc::new(egress),
            clock,
            settings: WebSettings {
                plain_http: PlainHttp::Refused,
                respect_robots: false,
                user_agent: None,
                allow: Vec::new(),
                deny: Vec::new(),
            },
        }
    }

    pub(crate) fn hub(&self) -> ToolsFixture {
        self.hub_with(|_| {})
    }

    pub(crate) fn hub_with(&self, change: impl FnOnce(&mut WebConfig)) -> ToolsFixture {
        let mut config = self.config();
        change(&mut config);
        ToolsFixture::and(family(config))
    }

    /// Returns the data of a successful call.
    pub(crate) async fn facts(&self, hub: &ToolsFixture, path: &str, more: &str) -> Value {
        let mut arguments: Value = serde_json::from_str(&format!("{{\"_\": 0{more}}}")).unwrap();
        arguments.as_object_mut().unwrap().remove("_");
        arguments["url"] = json!(self.url(path));
        match hub.call(Target::Tool("web_fetch".to_owned()), arguments).await {
            Ok(Output::Tool(output)) => output.structured.unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Whatever\r\nconnection: close\r\n");
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    [text.as_bytes(), b"\r\n", body.as_ref()].concat()
}

pub(crate) fn html(page: &str) -> Vec<u8> {
    answer(200, &[("content-type", "text/html; charset=utf-8")], page)
}
