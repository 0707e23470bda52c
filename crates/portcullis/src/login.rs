//! The login of one server: how the configuration means it, and where it is kept.

use crate::config::{Config, McpOAuth, McpServer};
use crate::secrets::LiveSecrets;
use anyhow::{Context, Result};
use portcullis_core::{Secret, SystemClock};
use portcullis_egress::{EgressSettings, SystemResolver};
use portcullis_store::secrets::{HELD_ABOUT, SecretError, SecretRef, SecretStore, vocabulary};
use portcullis_upstream::{About, ClientSecret, Keep, Login as Kept, OAuth, OAuthSpec, Turn};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The field that the secret of a client is granted for.
const CLIENT_SECRET_FIELD: &str = "client_secret";
const ACCESS: &str = "access";
const REFRESH: &str = "refresh";
const CLIENT: &str = "client";
/// The tokens before these. They may be good for a while still, so they go on being masked.
const BEFORE: [(&str, &str); 2] = [(ACCESS, "old_access"), (REFRESH, "old_refresh")];

/// The login of one server.
pub(crate) struct Login {
    oauth: Arc<OAuth>,
    place: Arc<Place>,
}

impl Login {
    pub(crate) fn new(
        server: &McpServer,
        wanted: &McpOAuth,
        config: &Config,
        store: Arc<SecretStore>,
        live: Option<Arc<LiveSecrets>>,
    ) -> Result<Login> {
        let place = server.place.as_ref().context("it has no address")?;
        let url = place.url().context("it has no address")?;
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
            extra_roots: crate::compose::extra_roots(config)?,
            ..EgressSettings::default()
        };
        let seen = Mutex::new(digest(&store, &server.name));
        let place = Arc::new(Place { store, server: server.name.clone(), live, seen });
        let resolver = Arc::new(SystemResolver::default());
        let oauth = OAuth::new(spec, settings, resolver, place.clone(), Arc::new(SystemClock), None)?;
        Ok(Login { oauth: Arc::new(oauth), place })
    }

    /// Returns whether something is kept of it.
    pub(crate) fn is_kept(&self) -> bool {
        self.place.store.held(&self.place.server).is_ok_and(|held| !held.is_empty())
    }

    pub(crate) fn oauth(&self) -> Arc<OAuth> {
        self.oauth.clone()
    }

    /// Returns whether somebody else logged in or out since this was last asked. That tokens were renewed concerns nobody:
    /// every request shows those that there are.
    pub(crate) fn was_changed(&self) -> bool {
        // Held while this process itself saves, so that its own changes are known as such.
        let mut seen = self.place.seen();
        let now = digest(&self.place.store, &self.place.server);
        std::mem::replace(&mut *seen, now) != now
    }
}

/// Returns the login of a server, also where the configuration does not speak of it any more but something is kept of it.
pub(crate) fn to_end(server: &McpServer, config: &Config, store: Arc<SecretStore>) -> Option<Login> {
    let wanted = server.oauth.clone().unwrap_or_default();
    let login = Login::new(server, &wanted, config, store, None).ok()?;
    (server.oauth.is_some() || login.is_kept()).then_some(login)
}

/// Forgets what is kept of a login of which nobody knows any more where it was. Returns whether there was one.
pub(crate) fn forget_left(store: &SecretStore, server: &str) -> Result<bool, SecretError> {
    let held = match store.held(server) {
        // Nothing is kept under what is no name.
        Err(SecretError::Name(_)) => return Ok(false),
        held => held?,
    };
    if held.is_empty() {
        return Ok(false);
    }
    // Whoever renews it at this moment would keep it again.
    let _turn = store.turn(server)?;
    store.let_go(server)
}

/// A client's secret goes to the host where tokens are, if it was granted for that.
fn client_secret(handle: SecretRef, store: Arc<SecretStore>) -> ClientSecret {
    ClientSecret(Arc::new(move |host: &str| {
        let value = store.resolve_for(handle.name(), host, CLIENT_SECRET_FIELD);
        value.map_err(|error| {
            format!(
                "{error}; `portcullis secrets grant {} {host}:{CLIENT_SECRET_FIELD}` grants it",
                handle.name()
            )
        })
    }))
}

/// Refuses a token that is ordinary text: whoever issues it would choose what is redacted.
fn check_issued(part: &str, value: &Secret<String>) -> Result<(), String> {
    let what = match part {
        ACCESS => "access token",
        REFRESH => "refresh token",
        _ => "client secret",
    };
    match vocabulary::ordinary(value.expose()) {
        // One in a hundred random tokens begins like a path.
        None | Some(vocabulary::Ordinary::Path) => Ok(()),
        Some(ordinary) => Err(format!(
            "the {what} that was issued is {}, which would be redacted wherever it occurs, so the login is refused; \
             ask whoever runs the server for one that issues random tokens",
            ordinary.as_str()
        )),
    }
}

/// Where a login is kept.
struct Place {
    store: Arc<SecretStore>,
    server: String,
    live: Option<Arc<LiveSecrets>>,
    /// What was there when this process last looked.
    seen: Mutex<[u8; 32]>,
}

impl Place {
    fn seen(&self) -> MutexGuard<'_, [u8; 32]> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is kept. Afterwards it is masked, too.
    fn change<T>(&self, change: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let mut seen = self.seen();
        let done = change()?;
        *seen = digest(&self.store, &self.server);
        drop(seen);
        // Before anyone uses it: whoever gets a token may show it to us.
        if let Some(live) = &self.live {
            live.apply();
        }
        Ok(done)
    }
}

/// Names a login, whichever tokens it has now.
fn digest(store: &SecretStore, server: &str) -> [u8; 32] {
    let held = store.held(server).unwrap_or_default();
    let about = held.iter().find(|(part, _)| part == HELD_ABOUT);
    let about: Option<About> = about.and_then(|(_, about)| serde_json::from_str(about.expose()).ok());
    let (expires_at, renew_at, granted, wanted) = (None, None, None, Vec::new());
    let about = about.map(|about| About { expires_at, renew_at, granted, wanted, ..about });
    let has_tokens = held.iter().any(|(part, _)| part == ACCESS);
    // A text of its own for each; what cannot be written is as good as none.
    let text = serde_json::to_string(&(about, has_tokens)).unwrap_or_default();
    Sha256::digest(text).into()
}

impl Keep for Place {
    fn load(&self) -> Result<Option<Kept>, String> {
        let held = self.store.held(&self.server).map_err(|error| error.to_string())?;
        // What another process has just put there is not used before it is masked.
        if let Some(live) = &self.live {
            live.catch_up();
            live.health()?;
        }
        let part = |name: &str| held.iter().find(|(part, _)| part == name).map(|(_, value)| value.clone());
        let Some(about) = part(HELD_ABOUT) else { return Ok(None) };
        // Kept by another version; what it was for is not known, so it is shown to nobody.
        let Ok(about) = serde_json::from_str(about.expose()) else { return Ok(None) };
        let (access_token, refresh_token, client_secret) = (part(ACCESS), part(REFRESH), part(CLIENT));
        Ok(Some(Kept { about, access_token, refresh_token, client_secret }))
    }

    fn prepare(&self) -> Result<(), String> {
        self.store.prepare().map_err(|error| error.to_string())
    }

    fn save(&self, login: &Kept) -> Result<(), String> {
        let about = serde_json::to_string(&login.about).map_err(|error| error.to_string())?;
        let about = Secret::new(about);
        let held = self.store.held(&self.server).map_err(|error| error.to_string())?;
        let mut parts = vec![(HELD_ABOUT, &about)];
        let now =
            [(ACCESS, &login.access_token), (REFRESH, &login.refresh_token), (CLIENT, &login.client_secret)];
        parts.extend(now.into_iter().filter_map(|(part, value)| Some((part, value.as_ref()?))));
        // Every token is registered with the redactor, and a stranger chose it.
        for (part, value) in &parts[1..] {
            check_issued(part, value)?;
        }
        for (part, before) in BEFORE {
            let value = |name: &str| held.iter().find(|(own, _)| own == name).map(|(_, value)| value);
            let stays = value(part).filter(|old| !parts.iter().any(|(_, new)| new.expose() == old.expose()));
            parts.extend(stays.or_else(|| value(before)).map(|value| (before, value)));
        }
        self.change(|| self.store.hold(&self.server, &parts).map_err(|error| error.to_string()))
    }

    fn turn(&self) -> Result<Turn, String> {
        let turn = self.store.turn(&self.server).map_err(|error| error.to_string())?;
        Ok(Box::new(turn))
    }

    fn forget(&self) -> Result<bool, String> {
        self.change(|| self.store.let_go(&self.server).map_err(|error| error.to_string()))
    }
}
