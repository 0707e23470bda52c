//! The admin endpoint of a running hub: composes its desk, the sign-in and the routes.

use crate::commands::welcome_link;
use crate::compose::ComposedHub;
use crate::config::Config;
use crate::home::Home;
use anyhow::Result;
use portcullis_admin::sign_in::SignIn;
use portcullis_admin::{AdminApp, RedactedDesk};
use portcullis_core::{Clock, Secret, SystemClock};
use portcullis_ops::admins::Administrators;
use portcullis_ops::change::ChangeRecorder;
use portcullis_ops::desk::ComponentHealth;
use portcullis_ops::hub_desk::{HubDesk, ScriptStatusWatcher};
use portcullis_ops::{HubControl, HubStores, LiveHub, url_of};
use portcullis_server::Readiness;
use portcullis_server::http::MountedRoutes;
use portcullis_store::admins::AdminStore;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The admin endpoint, for `serve`.
pub(crate) struct AdminEndpoint {
    pub(crate) beside: Option<MountedRoutes>,
    /// URL of the page, or why it is not served.
    pub(crate) page: String,
    /// The one-time link for the first password.
    pub(crate) link: Option<Secret<String>>,
    /// What watches scripts for the page.
    pub(crate) script_states: Option<Arc<ScriptStatusWatcher>>,
}

const NOT_REMOTE: &str = "the hub listens on more than loopback, where others could read passwords; put TLS in front of \
    it and set `admin.allow_remote`";

/// Builds the admin endpoint, if it is enabled.
pub(crate) fn open(
    home: &Home,
    config: &Config,
    composed: &Arc<ComposedHub>,
    address: SocketAddr,
) -> Result<AdminEndpoint> {
    if !config.admin.enabled {
        let page = "disabled".to_owned();
        return Ok(AdminEndpoint { beside: None, page, link: None, script_states: None });
    }
    if !address.ip().is_loopback() && !config.admin.allow_remote {
        tracing::warn!(target: "admin", "admin page not served: {NOT_REMOTE}");
        let beside = Some(portcullis_admin::mount_refusal(NOT_REMOTE));
        let page = format!("not served: {NOT_REMOTE}");
        return Ok(AdminEndpoint { beside, page, link: None, script_states: None });
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let admins = Arc::new(AdminStore::open(&composed.database, clock.clone()));
    let link = match admins.list() {
        Ok(all) if all.is_empty() => Some(Secret::new(welcome_link(address, &admins.make_link()?))),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(target: "admin", %error, "admin sign-in unavailable");
            None
        }
    };
    let desk = Arc::new(desk(home, composed, address));
    let script_states = desk.script_states();
    let changes = ChangeRecorder::AuditLog(composed.change_log());
    let administrators = Administrators::new(admins, changes);
    let app = AdminApp {
        counter: RedactedDesk::new(desk, Arc::new(composed.handles.redactor.clone())),
        sign_in: Arc::new(SignIn::new(Arc::new(administrators), clock)),
        zone: composed.zone.clone(),
        closing: composed.hub.closing(),
    };
    let page = url_of(address).replace("/mcp", "/admin");
    Ok(AdminEndpoint { beside: Some(portcullis_admin::mount(app)), page, link, script_states })
}

/// Returns the desk of this hub.
fn desk(home: &Home, composed: &Arc<ComposedHub>, address: SocketAddr) -> HubDesk {
    let stores = HubStores {
        database: composed.database.clone(),
        clients: composed.identity.clone(),
        secrets: composed.secrets.clone(),
        config: composed.config.clone(),
    };
    let live = LiveHub {
        control: composed.clone(),
        secrets: composed.live_secrets.clone(),
        servers: composed.servers.clone(),
        gate: composed.gate.clone(),
        registry: composed.registry.clone(),
        handles: composed.handles.clone(),
    };
    let changes = ChangeRecorder::AuditLog(composed.change_log());
    HubDesk::new(home.clone(), address, stores, changes, live)
}

impl HubControl for ComposedHub {
    fn refresh_clients(&self) {
        self.hub.refresh_clients();
    }

    fn announce_lists(&self) {
        ComposedHub::announce_lists(self);
    }

    fn components(&self) -> Vec<ComponentHealth> {
        let component = |part: Readiness| ComponentHealth {
            name: part.component.to_owned(),
            works: part.state.is_ok(),
            reason: part.state.err(),
        };
        self.hub.readiness().into_iter().map(component).collect()
    }

    fn sessions(&self) -> BTreeMap<String, usize> {
        self.hub.counts().sessions.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }

    fn config_problem(&self) -> Option<String> {
        self.health.state().err()
    }
}
