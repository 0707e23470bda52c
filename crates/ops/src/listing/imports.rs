//! Servers that could be imported, as `--json` prints them.

use portcullis_interop::import::ImportedFile;
use serde_json::{Value, json};

pub fn import_listing(found: &ImportedFile) -> Value {
    let servers = found.servers.iter().map(|imported| {
        let server = imported.server.shown();
        // As configured: true, or the settings.
        let oauth = server.oauth.as_ref().map(|settings| match settings.as_slice() {
            [] => Value::from(true),
            settings => settings.iter().cloned().collect(),
        });
        json!({
            "name": server.name,
            "own_name": imported.own,
            "command": server.command,
            "args": server.args,
            "cwd": server.cwd,
            "url": server.url,
            "env": server.env.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "headers": server.headers.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "oauth": oauth,
            "timeout_ms": server.timeout_ms,
            "secrets": imported.secrets.iter().map(|secret| json!({
                "key": secret.key, "secret": secret.name, "has_value": secret.value.is_some(), "grant": secret.grant,
            })).collect::<Vec<_>>(),
            "notes": imported.all_notes(),
        })
    });
    json!({
        "path": found.path,
        "notes": found.notes,
        "servers": servers.collect::<Vec<_>>(),
        "skipped": found.skipped.iter().map(|(own, why)| json!({ "name": own, "why": why })).collect::<Vec<_>>(),
    })
}
