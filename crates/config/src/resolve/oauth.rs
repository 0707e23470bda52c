//! OAuth settings of a server: `oauth = true`, or a table.

use crate::errors::Finding;
use crate::written::{OAuthTable, WrittenOAuth};
use portcullis_egress::Url;
use portcullis_egress::configured_client::ConfiguredEndpoint;
use portcullis_store::secrets::SecretRef;
use serde_json::json;

/// Resolved OAuth settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpOAuth {
    pub client_id: Option<String>,
    pub client_secret: Option<SecretRef>,
    pub scope: Option<String>,
    pub callback_port: Option<u16>,
    pub client_metadata_url: Option<String>,
}

/// Resolves the settings and adds errors to `findings`. `at` returns the pointer of a key of the server `name`.
pub(super) fn meant(
    written: Option<&WrittenOAuth>,
    name: &str,
    place: Option<&ConfiguredEndpoint>,
    at: &dyn Fn(&str) -> String,
    findings: &mut Vec<Finding>,
) -> Option<McpOAuth> {
    let table = match written? {
        WrittenOAuth::Switch(false) => return None,
        WrittenOAuth::Switch(true) => OAuthTable::default(),
        WrittenOAuth::Settings(table) => table.clone(),
    };
    let mut find = |key: &str, text: String| findings.push(Finding { pointer: at(key), text });
    if place.is_none_or(|place| place.url().is_none()) {
        find("oauth", format!("`mcp.{name}.oauth` is for a server with a `url` of https:// or http://"));
    }
    let client_secret = table.client_secret.as_ref().and_then(|text| text.parse::<SecretRef>().ok());
    if table.client_secret.is_some() && client_secret.is_none() {
        // Not repeated: it may be the secret itself.
        find(
            "oauth/client_secret",
            format!(
                "`mcp.{name}.oauth.client_secret` must be secret:NAME; store it with `portcullis secrets set NAME`"
            ),
        );
    }
    if table.client_secret.is_some() && table.client_id.is_none() {
        find("oauth/client_secret", format!("`mcp.{name}.oauth.client_secret` needs `client_id`"));
    }
    if let Some(document) = &table.client_metadata_url
        && !Url::parse(document).is_ok_and(|url| url.scheme() == "https" && url.path() != "/")
    {
        let expected = "the https:// URL of a document, like https://hub.example.com/client.json";
        findings.push(Finding::unexpected(&at("oauth/client_metadata_url"), &json!(document), expected));
    }
    Some(McpOAuth {
        client_id: table.client_id,
        client_secret,
        scope: table.scope,
        callback_port: table.callback_port,
        client_metadata_url: table.client_metadata_url,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(oauth: &str) -> Result<Option<McpOAuth>, String> {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("[mcp.notes]\nurl = 'https://notes.example.com/mcp'\n{oauth}\n");
        std::fs::write(folder.path().join("portcullis.toml"), text).unwrap();
        let loaded = Config::load(folder.path(), &|_| None).map_err(|errors| errors.to_string())?;
        Ok(loaded.config.mcp[0].oauth.clone())
    }

    #[test]
    fn a_login_is_a_switch_or_a_table() {
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("oauth = false"), Ok(None));
        assert_eq!(read("oauth = true"), Ok(Some(McpOAuth::default())));
        assert_eq!(read("oauth = {}"), Ok(Some(McpOAuth::default())));
        let table = "[mcp.notes.oauth]\nclient_id = 'mine'\nclient_secret = 'secret:NOTES'\nscope = 'a b'\n\
             callback_port = 4000\nclient_metadata_url = 'https://hub.example.com/client.json'";
        let expected = McpOAuth {
            client_id: Some("mine".to_owned()),
            client_secret: Some("secret:NOTES".parse().unwrap()),
            scope: Some("a b".to_owned()),
            callback_port: Some(4000),
            client_metadata_url: Some("https://hub.example.com/client.json".to_owned()),
        };
        assert_eq!(read(table), Ok(Some(expected)));
    }

    #[test]
    fn what_is_wrong_is_told_by_its_key() {
        for (written, expected) in [
            ("oauth = 1", "`mcp.notes.oauth` is 1, expected true, false or a table of settings"),
            (
                "oauth = { clientid = 'x' }",
                "`mcp.notes.oauth.clientid` is not a setting; did you mean `client_id`?",
            ),
            ("oauth = { callback_port = 0 }", "`mcp.notes.oauth.callback_port` is 0, expected 1 to 65535"),
            ("oauth = { client_secret = 'secret:A' }", "client_secret` needs `client_id`"),
            (
                "oauth = { client_metadata_url = 'http://a.test/x' }",
                "expected the https:// URL of a document",
            ),
        ] {
            let told = read(written).unwrap_err();
            assert!(told.contains(expected), "{written}: {told}");
        }
        let told = read("oauth = { client_id = 'x', client_secret = 'hunter2-hunter2' }").unwrap_err();
        assert!(told.contains("must be secret:NAME") && !told.contains("hunter2"), "{told}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("portcullis.toml"), "[mcp.x]\ncommand = 'x'\noauth = true\n")
            .unwrap();
        let told = Config::load(folder.path(), &|_| None).unwrap_err().to_string();
        assert!(told.contains("`mcp.x.oauth` is for a server with a `url`"), "{told}");
    }
}
