//! Health, metrics and configuration of the hub.

use super::{HubDesk, now, servers, statistics};
use crate::Problem;
use crate::config::Config;
use crate::desk::{Overview, SettingsView};
use crate::home::environment;
use portcullis_core::{Clock, SystemClock, blocking};
use portcullis_guard::GuessAlert;

impl HubDesk {
    pub(super) async fn glance(&self) -> Result<Overview, Problem> {
        let hub = self.live.clone();
        let started = self.started;
        let scripts_waiting = match &self.scripts {
            Some(scripts) => Some(scripts.states.waiting().await),
            None => None,
        };
        blocking(move || {
            let parts = hub.control.components();
            let live = &hub.handles.live;
            let waiting = hub.handles.approvals.approvals().pending();
            Ok(Overview {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started,
                now: now(),
                ready: parts.iter().all(|part| part.works),
                parts,
                alerts: hub.handles.redactor.alerts().iter().map(alert).collect(),
                approvals_waiting: waiting.map_or(0, |waiting| waiting.len()),
                scripts_waiting,
                servers: servers::briefs(&hub),
                sessions: hub.control.sessions(),
                calls_open: live.open(),
                minutes: live.minutes(SystemClock.now()).iter().map(statistics::summary).collect(),
            })
        })
        .await
    }

    pub(super) async fn show_settings(&self) -> Result<SettingsView, Problem> {
        let (home, config, hub) = (self.ops.home.clone(), self.config(), self.live.clone());
        blocking(move || {
            let loaded = Config::load(home.path(), &environment);
            Ok(SettingsView {
                file: loaded.ok().and_then(|loaded| loaded.path).map(|path| path.display().to_string()),
                home: home.path().display().to_string(),
                written: config.shown(),
                problem: hub.control.config_problem(),
            })
        })
        .await
    }
}

fn alert(alert: &GuessAlert) -> String {
    let minutes = alert.ends_in.as_secs().div_ceil(60);
    format!(
        "Client `{}` read more values that look like a weak secret than it may, as one that guesses it would. They are masked \
         for it; it may read others in {} h {} min.",
        alert.client,
        minutes / 60,
        minutes % 60
    )
}

pub(super) fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
