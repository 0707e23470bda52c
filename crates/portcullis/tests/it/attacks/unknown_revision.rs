//! Unknown protocol versions.

use super::{Attack, Victim, check_all, error};
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::json;

fn request(version: &str, capabilities: &str) -> String {
    let prefix = "io.modelcontextprotocol/";
    format!(
        r#"{{"jsonrpc":"2.0","id":"attack","method":"tools/list","params":{{"_meta":{{"{prefix}protocolVersion":{version}{capabilities}}}}}}}"#
    )
}

/// Those that look the same over every transport. Over HTTP a header must agree, see `header_mismatch`.
fn attacks() -> Vec<Attack> {
    vec![error(-32602, "clientCapabilities", request(r#""2026-07-28""#, ""))]
}

#[tokio::test]
async fn is_told_what_there_is() {
    check_all(attacks).await;
    let mut victim = Victim::on_stdio().await;
    let offers = r#","io.modelcontextprotocol/clientCapabilities":{}"#;
    for version in ["2099-01-01", "2025-11-25", "", "2026-07-28 "] {
        let attack =
            error(-32022, "Unsupported protocol version", request(&format!("\"{version}\""), offers));
        victim.suffer(&attack).await;
    }
}

#[tokio::test]
async fn in_a_header_is_told_what_there_is() {
    let mut victim = Victim::over_http().await;
    let hub = victim.hub.as_ref().unwrap();
    for version in ["2099-01-01", "1.0", "latest"] {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let request =
            RawHttpRequest::post("/mcp", body).token(&hub.token).header("MCP-Protocol-Version", version);
        let reply = request.send(hub.address).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status(), &error["code"]), (400, &json!(-32022)), "{error}");
        assert_eq!(error["data"]["requested"], version);
        assert_eq!(error["data"]["supported"][0], "2026-07-28");
    }
    victim.lives().await;
}

/// Who asks for a version that is not there by `initialize` is offered the newest one that is.
#[tokio::test]
async fn is_negotiated_by_initialize() {
    let home = crate::support::home();
    let mut client = crate::support::stdio(&home, "2099-01-01");
    assert_eq!(client.initialize(json!({})).await["protocolVersion"], "2025-11-25");
}
