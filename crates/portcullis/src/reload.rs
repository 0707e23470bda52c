//! The service that follows the configuration file of a running hub.

use crate::compose::{BoundAddress, ComposedHub};
use crate::config::{Config, Level};
use crate::home::Home;
use crate::logging::LogLevelHandle;
use portcullis_core::Service;
use portcullis_guard::audit::ChangeLog;
use portcullis_ops::mcp::ServerManager;
use portcullis_ops::reload::{self, ConfigFileVersion, ReloadTarget};
use std::sync::Arc;

/// The hub, with what its transport and its log follow.
struct ReloadedHub {
    composed: Arc<ComposedHub>,
    bound: Option<BoundAddress>,
    log_level: LogLevelHandle,
}

impl ReloadTarget for ReloadedHub {
    fn servers(&self) -> &ServerManager {
        &self.composed.servers
    }

    fn change_log(&self) -> ChangeLog {
        self.composed.change_log()
    }

    fn apply(&self, config: &Config) {
        self.composed.apply(config, self.bound.as_ref());
    }

    fn set_config_problem(&self, problem: String) {
        self.composed.health.set(Some(problem));
    }

    fn set_log_level(&self, level: Level) {
        self.log_level.set(level);
    }
}

pub(crate) fn service(
    home: &Home,
    seen: &ConfigFileVersion,
    composed: &Arc<ComposedHub>,
    start: &Config,
    bound: Option<BoundAddress>,
    log_level: LogLevelHandle,
) -> Arc<dyn Service> {
    let (home, seen, start) = (home.clone(), seen.clone(), start.clone());
    // Weak: the hub owns its services.
    let composed = Arc::downgrade(composed);
    portcullis_ops::service("config", move |ctx| {
        let (home, seen, start) = (home.clone(), seen.clone(), start.clone());
        let (bound, log_level) = (bound.clone(), log_level.clone());
        let composed = composed.upgrade();
        async move {
            if let Some(composed) = composed {
                let target = Arc::new(ReloadedHub { composed, bound, log_level });
                reload::watch(home, seen, target, start, ctx.shutdown).await;
            }
        }
    })
}
