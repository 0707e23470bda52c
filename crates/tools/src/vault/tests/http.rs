//! Sync over HTTP, with `git http-backend` behind a server that requires authentication.

use super::facts;
use super::remote::{SyncFixture, write};
use crate::vault::sync::SyncConfig;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use portcullis_core::Secret;
use portcullis_egress::SecretSource;
use portcullis_store::secrets::SecretError;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

const TOKEN: &str = "tok-3f9a1c77e2b84d50";

/// A secret granted for one host.
struct GrantedSecret(&'static str);

impl SecretSource for GrantedSecret {
    fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError> {
        if name == "NOTES_TOKEN" && host == self.0 && field == "Authorization" {
            Ok(Secret::new(TOKEN.to_owned()))
        } else {
            Err(SecretError::Unknown(name.to_owned()))
        }
    }
}

/// How a server responds.
#[derive(Clone)]
enum GitServerBehavior {
    /// Serves requests with the token.
    Serve(PathBuf),
    /// Redirects every request.
    Redirect(SocketAddr),
}

struct Server {
    address: SocketAddr,
    /// The `Authorization` header of each request.
    shown: Arc<Mutex<Vec<Option<String>>>>,
}

impl Server {
    fn open(does: GitServerBehavior) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shown) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let seen = shown.clone();
        std::thread::spawn(move || {
            for visitor in listener.incoming().flatten() {
                // A client that disconnects early is not an error of the server.
                let _ = answer(visitor, &does, &seen);
            }
        });
        Server { address, shown }
    }

    fn shown(&self) -> Vec<Option<String>> {
        self.shown.lock().clone()
    }
}

struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn read(from: &mut BufReader<TcpStream>) -> std::io::Result<Request> {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut request = Request { method, target, headers: Vec::new(), body: Vec::new() };
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            request.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        request.body = vec![0; length];
        from.read_exact(&mut request.body)?;
        Ok(request)
    }
}

fn answer(
    mut visitor: TcpStream,
    does: &GitServerBehavior,
    shown: &Mutex<Vec<Option<String>>>,
) -> std::io::Result<()> {
    let request = Request::read(&mut BufReader::new(visitor.try_clone()?))?;
    let credentials = request.header("authorization").map(str::to_owned);
    shown.lock().push(credentials.clone());
    let wanted = format!("Basic {}", STANDARD.encode(format!("git:{TOKEN}")));
    match does {
        GitServerBehavior::Redirect(to) => {
            write!(visitor, "HTTP/1.1 302 Found\r\nlocation: http://{to}{}\r\nconnection: close\r\n\r\n", request.target)
        }
        GitServerBehavior::Serve(_) if credentials != Some(wanted) => visitor.write_all(
            b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"notes\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        ),
        GitServerBehavior::Serve(root) => visitor.write_all(&by_backend(root, &request)),
    }
}

fn by_backend(root: &Path, request: &Request) -> Vec<u8> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let mut command = Command::new("git");
    command.arg("http-backend").env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    for (name, value) in [
        ("GIT_PROJECT_ROOT", root.to_str().unwrap()),
        ("GIT_HTTP_EXPORT_ALL", "1"),
        ("REMOTE_USER", "git"),
        ("REQUEST_METHOD", &request.method),
        ("PATH_INFO", path),
        ("QUERY_STRING", query),
        ("CONTENT_TYPE", request.header("content-type").unwrap_or_default()),
        ("CONTENT_LENGTH", &request.body.len().to_string()),
        ("HTTP_CONTENT_ENCODING", request.header("content-encoding").unwrap_or_default()),
        ("GIT_PROTOCOL", request.header("git-protocol").unwrap_or_default()),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ] {
        command.env(name, value);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = request.body.clone();
    let feed = std::thread::spawn(move || drop(stdin.write_all(&body)));
    let output = child.wait_with_output().unwrap().stdout;
    feed.join().unwrap();
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    [format!("HTTP/1.1 {status}\r\nconnection: close\r\n").as_bytes(), &output].concat()
}

fn config(world: &SyncFixture, server: &Server, granted: &'static str) -> SyncConfig {
    SyncConfig {
        address: format!("http://{}/notes.git", server.address).parse().unwrap(),
        token: Some("secret:NOTES_TOKEN".parse().unwrap()),
        secrets: Arc::new(GrantedSecret(granted)),
        ..world.config()
    }
}

#[tokio::test]
async fn notes_are_cloned_pulled_and_pushed_with_a_token() {
    let world = SyncFixture::with(&[("Home.md", "home\n")]);
    let server = Server::open(GitServerBehavior::Serve(world.folder.path().to_owned()));
    let hub = world.hub_with(config(&world, &server, "127.0.0.1"));
    assert_eq!(facts(&hub, "vault_read", json!({ "path": "Home" })).await["content"], "home\n");
    world.elsewhere(&[("Home.md", "home elsewhere\n")]);
    let sync = write(&hub, "a.md", "a\n").await;
    assert_eq!((&sync["pulled"], &sync["pushed"]), (&json!(true), &json!(true)), "{sync}");
    assert_eq!(
        (world.there("a.md").as_deref(), world.here("Home.md").as_deref()),
        (Some("a\n"), Some("home elsewhere\n"))
    );
    assert!(server.shown().iter().all(Option::is_some), "no request is made without the token");
    // The repository configuration has no token.
    let kept = std::fs::read_to_string(world.vault().join(".git/config")).unwrap();
    assert!(!kept.contains(TOKEN) && !kept.contains(&STANDARD.encode(format!("git:{TOKEN}"))), "{kept}");
}

#[tokio::test]
async fn a_token_goes_only_where_it_was_granted_for() {
    let world = SyncFixture::with(&[("Home.md", "home\n")]);
    let server = Server::open(GitServerBehavior::Serve(world.folder.path().to_owned()));
    let hub = world.hub_with(config(&world, &server, "notes.example.com"));
    let listed = facts(&hub, "vault_list", json!({})).await;
    assert!(listed["notice"].as_str().unwrap().contains("NOTES_TOKEN"), "{listed}");
    assert_eq!(server.shown(), [], "no request was made");
    // Without a token, the remote's error is reported, and git does not prompt for a password.
    let hub = world.hub_with(SyncConfig { token: None, ..config(&world, &server, "127.0.0.1") });
    let listed = facts(&hub, "vault_list", json!({})).await;
    assert_eq!(
        listed["notice"],
        "the vault could not be synced: the remote does not let the hub in; check `vault.git_token`, or the key for ssh"
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let world = SyncFixture::with(&[("Home.md", "home\n")]);
    let thief = Server::open(GitServerBehavior::Serve(world.folder.path().to_owned()));
    let server = Server::open(GitServerBehavior::Redirect(thief.address));
    let hub = world.hub_with(config(&world, &server, "127.0.0.1"));
    let listed = facts(&hub, "vault_list", json!({})).await;
    assert!(listed["notice"].as_str().unwrap().starts_with("the vault could not be synced"), "{listed}");
    assert_eq!((server.shown().len(), thief.shown().len()), (1, 0));

    // Control: git with default settings follows the first redirect.
    let header = format!("http.extraHeader=Authorization: Basic {}", STANDARD.encode(format!("git:{TOKEN}")));
    let address = format!("http://{}/notes.git", server.address);
    super::remote::plain_git(world.folder.path(), &["-c", &header, "ls-remote", &address]);
    assert_eq!(thief.shown().len(), 1);
}
