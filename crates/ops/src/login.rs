//! OAuth login of one server: settings, and token storage in the secret store.

use crate::config::{Config, McpOAuth, McpServerSettings};
use crate::secret_store::LiveSecrets;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use portcullis_core::{Secret, SystemClock};
use portcullis_egress::{EgressSettings, SystemResolver};
use portcullis_store::secrets::{HELD_ABOUT, SecretError, SecretRef, SecretStore, ordinary_text};
use portcullis_upstream::{
    ClientSecret, Login, LoginLock, LoginMetadata, LoginStore, OAuth, OAuthSpec, Shutdown,
};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The grant field of a client secret.
const CLIENT_SECRET_FIELD: &str = "client_secret";
const ACCESS: &str = "access";
const REFRESH: &str = "refresh";
const CLIENT: &str = "client";
/// Previous tokens. They may still be valid for a while, so they stay redacted.
const BEFORE: [(&str, &str); 2] = [(ACCESS, "old_access"), (REFRESH, "old_refresh")];

/// The login of one server.
pub struct ServerLogin {
    oauth: Arc<OAuth>,
    place: Arc<SecretLoginStore>,
}

impl ServerLogin {
    pub fn new(
        server: &McpServerSettings,
        wanted: &McpOAuth,
        config: &Config,
        store: Arc<SecretStore>,
        live: Option<Arc<LiveSecrets>>,
        shutdown: Shutdown,
    ) -> Result<ServerLogin> {
        let place = server.place.as_ref().context("it has no URL")?;
        let url = place.url().context("it has no URL")?;
        let spec = OAuthSpec {
            name: server.name.clone(),
            url: url.clone(),
            headers: crate::mcp::headers(server, place, &store),
            client_id: wanted.client_id.clone(),
            client_secret: wanted.client_secret.clone().map(|handle| client_secret(handle, store.clone())),
            scope: wanted.scope.clone(),
            callback_port: wanted.callback_port,
            client_metadata_url: wanted.client_metadata_url.clone(),
        };
        let settings = EgressSettings {
            exceptions: config.egress.exceptions.clone(),
            per_host: config.egress.per_host,
            extra_roots: crate::tool_families::extra_roots(config)?,
            ..EgressSettings::default()
        };
        let seen = Mutex::new(digest(&store, &server.name));
        let place = Arc::new(SecretLoginStore { store, server: server.name.clone(), live, seen });
        let resolver = Arc::new(SystemResolver::default());
        let oauth =
            OAuth::new(spec, settings, resolver, place.clone(), Arc::new(SystemClock), None, shutdown)?;
        Ok(ServerLogin { oauth: Arc::new(oauth), place })
    }

    /// Returns whether tokens are stored.
    pub fn is_kept(&self) -> bool {
        self.place.store.load_login(&self.place.server).is_ok_and(|held| !held.is_empty())
    }

    pub fn oauth(&self) -> Arc<OAuth> {
        self.oauth.clone()
    }

    /// Returns whether another process logged in or out since the last check. Refreshed tokens do not count: every request
    /// reads the current ones.
    pub fn was_changed(&self) -> bool {
        // Locked while this process saves, so that its own changes are not reported.
        let mut seen = self.place.seen.lock();
        let now = digest(&self.place.store, &self.place.server);
        std::mem::replace(&mut *seen, now) != now
    }
}

/// Returns the login of a server, also if it is no longer configured but tokens are stored.
pub fn to_end(
    server: &McpServerSettings,
    config: &Config,
    store: Arc<SecretStore>,
    shutdown: Shutdown,
) -> Option<ServerLogin> {
    let wanted = server.oauth.clone().unwrap_or_default();
    let login = ServerLogin::new(server, &wanted, config, store, None, shutdown).ok()?;
    (server.oauth.is_some() || login.is_kept()).then_some(login)
}

/// Removes stored tokens whose server is unknown. Returns whether there were any.
pub fn forget_orphaned(store: &SecretStore, server: &str) -> Result<bool, SecretError> {
    let held = match store.load_login(server) {
        // An invalid name has no tokens.
        Err(SecretError::Name(_)) => return Ok(false),
        held => held?,
    };
    if held.is_empty() {
        return Ok(false);
    }
    // Locked: a concurrent refresh would store it again.
    let _turn = store.lock_login(server)?;
    store.delete_login(server)
}

/// A client secret is sent to the token endpoint's host, if granted.
fn client_secret(handle: SecretRef, store: Arc<SecretStore>) -> ClientSecret {
    ClientSecret(Arc::new(move |host: &str| {
        let value = store.resolve_for(handle.name(), host, CLIENT_SECRET_FIELD);
        value.map_err(|error| {
            format!(
                "{error}; to grant it: portcullis secrets grant {} {host}:{CLIENT_SECRET_FIELD}",
                handle.name()
            )
        })
    }))
}

/// Refuses a token that is ordinary text: its issuer could choose what the hub redacts.
fn check_issued(part: &str, value: &Secret<String>) -> Result<(), String> {
    let what = match part {
        ACCESS => "access token",
        REFRESH => "refresh token",
        _ => "client secret",
    };
    match ordinary_text::ordinary(value.expose()) {
        // One in a hundred random tokens looks like the start of a path.
        None | Some(ordinary_text::NotSecretReason::Path) => Ok(()),
        Some(ordinary) => Err(format!(
            "the {what} that was issued is {}, which would be redacted wherever it occurs, so the login is refused; \
             ask the server's operator to issue random tokens",
            ordinary.as_str()
        )),
    }
}

/// Token storage of a login.
struct SecretLoginStore {
    store: Arc<SecretStore>,
    server: String,
    live: Option<Arc<LiveSecrets>>,
    /// Last state seen by this process.
    seen: Mutex<[u8; 32]>,
}

impl SecretLoginStore {
    /// Updates the stored tokens and registers them with the redactor.
    fn change<T>(&self, change: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let mut seen = self.seen.lock();
        let done = change()?;
        *seen = digest(&self.store, &self.server);
        drop(seen);
        // Before first use: the receiver of a token may echo it.
        if let Some(live) = &self.live {
            live.apply();
        }
        Ok(done)
    }
}

/// Identifies a login, independent of its current tokens.
fn digest(store: &SecretStore, server: &str) -> [u8; 32] {
    let held = store.load_login(server).unwrap_or_default();
    let about = held.iter().find(|(part, _)| part == HELD_ABOUT);
    let about: Option<LoginMetadata> = about.and_then(|(_, about)| serde_json::from_str(about.expose()).ok());
    let (expires_at, renew_at, granted, wanted) = (None, None, None, Vec::new());
    let about = about.map(|about| LoginMetadata { expires_at, renew_at, granted, wanted, ..about });
    let has_tokens = held.iter().any(|(part, _)| part == ACCESS);
    // Unique per login; a serialization failure counts as none.
    let text = serde_json::to_string(&(about, has_tokens)).unwrap_or_default();
    Sha256::digest(text).into()
}

impl LoginStore for SecretLoginStore {
    fn load(&self) -> Result<Option<Login>, String> {
        let held = self.store.load_login(&self.server).map_err(|error| error.to_string())?;
        // A token just stored by another process is not used before it is redacted.
        if let Some(live) = &self.live {
            live.catch_up();
            live.health()?;
        }
        let part = |name: &str| held.iter().find(|(part, _)| part == name).map(|(_, value)| value.clone());
        let Some(about) = part(HELD_ABOUT) else { return Ok(None) };
        // Stored by another version; its audience is unknown, so it is not used.
        let Ok(about) = serde_json::from_str(about.expose()) else { return Ok(None) };
        let (access_token, refresh_token, client_secret) = (part(ACCESS), part(REFRESH), part(CLIENT));
        Ok(Some(Login { about, access_token, refresh_token, client_secret }))
    }

    fn prepare(&self) -> Result<(), String> {
        self.store.prepare().map_err(|error| error.to_string())
    }

    fn save(&self, login: &Login) -> Result<(), String> {
        let about = serde_json::to_string(&login.about).map_err(|error| error.to_string())?;
        let about = Secret::new(about);
        let held = self.store.load_login(&self.server).map_err(|error| error.to_string())?;
        let mut parts = vec![(HELD_ABOUT, &about)];
        let now =
            [(ACCESS, &login.access_token), (REFRESH, &login.refresh_token), (CLIENT, &login.client_secret)];
        parts.extend(now.into_iter().filter_map(|(part, value)| Some((part, value.as_ref()?))));
        // Every token is registered with the redactor, and the remote server chose it.
        for (part, value) in &parts[1..] {
            check_issued(part, value)?;
        }
        for (part, before) in BEFORE {
            let value = |name: &str| held.iter().find(|(own, _)| own == name).map(|(_, value)| value);
            let stays = value(part).filter(|old| !parts.iter().any(|(_, new)| new.expose() == old.expose()));
            parts.extend(stays.or_else(|| value(before)).map(|value| (before, value)));
        }
        self.change(|| self.store.save_login(&self.server, &parts).map_err(|error| error.to_string()))
    }

    fn lock(&self) -> Result<LoginLock, String> {
        let turn = self.store.lock_login(&self.server).map_err(|error| error.to_string())?;
        Ok(Box::new(turn))
    }

    fn forget(&self) -> Result<bool, String> {
        self.change(|| self.store.delete_login(&self.server).map_err(|error| error.to_string()))
    }
}
