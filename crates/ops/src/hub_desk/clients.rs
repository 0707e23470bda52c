//! Clients, as the page shows them.

use super::HubDesk;
use crate::desk::{
    AddClient, ChangeClient, ClientList, ClientView, CreatedClient, OneTimeReveal, SHOWN_HERE, Snippet,
};
use crate::{Actor, Problem};
use jiff::Timestamp;
use portcullis_core::{EffectSet, Secret, SystemClock, blocking};
use portcullis_guard::audit;
use portcullis_interop::install::{ClientApp, Endpoint, Transport};
use portcullis_store::clients::ClientInfo;
use std::collections::{BTreeSet, HashMap};

/// Time of the last call, by client.
pub(super) type LastCalls = HashMap<String, Timestamp>;

impl HubDesk {
    pub(super) async fn show_clients(&self) -> Result<ClientList, Problem> {
        let all = self.run(|ops| ops.list_clients()).await?;
        let config = self.config();
        let calls = self.last_calls(&all).await;
        let stdio = &config.stdio;
        let local = ClientView {
            name: stdio.client.clone(),
            token_hint: None,
            allow: stdio.scope.allow.globs().iter().map(ToString::to_string).collect(),
            deny: stdio.scope.deny.iter().flat_map(|deny| deny.globs().to_vec()).collect(),
            effects: names(stdio.scope.effects),
            tools: stdio.scope.view.as_str().to_owned(),
            created: None,
            expires: None,
            expired: false,
            last_call: calls.get(&stdio.client).copied(),
        };
        let mut clients = vec![local];
        clients.extend(all.into_iter().map(|info| shown(info, &calls)));
        Ok(ClientList { url: self.ops.url.clone(), clients })
    }

    pub(super) async fn show_new_client(
        &self,
        new: AddClient,
        actor: Actor,
    ) -> Result<OneTimeReveal<CreatedClient>, Problem> {
        // A form sends an empty field for what is left out.
        let expires = new.expires.filter(|text| !text.trim().is_empty());
        let new = AddClient { expires, ..new };
        let (info, token) = self.run(move |ops| ops.add_client(new, &actor)).await?;
        let placeholder = Secret::new(SHOWN_HERE.to_owned());
        let endpoint =
            Endpoint::of_this_program(self.ops.home.path(), &self.ops.url, &info.name, &placeholder);
        let mut snippets = Vec::new();
        for (transport, name) in [(Transport::Http, "http"), (Transport::Stdio, "stdio")] {
            snippets.extend(ClientApp::ALL.into_iter().map(|app| Snippet {
                application: app.as_str().to_owned(),
                title: app.title().to_owned(),
                transport: name.to_owned(),
                note: app.note(transport).map(str::to_owned),
                text: app.snippet(transport, &endpoint),
            }));
        }
        let answer = CreatedClient {
            client: shown(info, &HashMap::new()),
            token: SHOWN_HERE.to_owned(),
            url: self.ops.url.clone(),
            snippets,
        };
        Ok(OneTimeReveal { answer, shown: token })
    }

    pub(super) async fn show_changed_client(
        &self,
        name: String,
        change: ChangeClient,
        actor: Actor,
    ) -> Result<ClientView, Problem> {
        let info = self.run(move |ops| ops.change_client(&name, change, &actor)).await?;
        let calls = self.last_calls(std::slice::from_ref(&info)).await;
        Ok(shown(info, &calls))
    }

    /// Returns the last call of each client: since startup, or else from the end of the audit log.
    async fn last_calls(&self, all: &[ClientInfo]) -> LastCalls {
        let names: BTreeSet<String> =
            all.iter().map(|info| info.name.clone()).chain([self.config().stdio.client.clone()]).collect();
        // Read from the log once, for all clients: later calls are tracked in memory. If the log cannot be read now, the
        // next request retries.
        let before = self.last_calls.get_or_try_init(|| async {
            let all = self.run(|ops| ops.list_clients()).await?;
            let local = self.config().stdio.client.clone();
            let wanted = all.iter().map(|info| info.name.clone()).chain([local]).collect();
            let settings = self.ops.audit_settings();
            blocking(move || {
                audit::last_calls(&settings, wanted).map_err(|error| Problem::unavailable(error.to_string()))
            })
            .await
        });
        let (before, none) = (before.await, LastCalls::new());
        let before = before.unwrap_or(&none);
        let live = &self.live.handles.live;
        let last = |name: &String| {
            let since = live.last_call(name).and_then(|at| Timestamp::try_from(at).ok());
            since.or_else(|| before.get(name).copied())
        };
        names.into_iter().filter_map(|name| last(&name).map(|at| (name, at))).collect()
    }
}

fn names(effects: EffectSet) -> Vec<String> {
    effects.iter().map(|effect| effect.as_str().to_owned()).collect()
}

fn shown(info: ClientInfo, calls: &LastCalls) -> ClientView {
    ClientView {
        expired: info.is_expired(&SystemClock),
        // An earlier client may have had the same name.
        last_call: calls.get(&info.name).copied().filter(|at| *at >= info.created),
        token_hint: Some(info.token_hint),
        allow: info.allow,
        deny: info.deny,
        effects: names(info.effects),
        tools: info.tools.as_str().to_owned(),
        created: Some(info.created),
        expires: info.expires,
        name: info.name,
    }
}
