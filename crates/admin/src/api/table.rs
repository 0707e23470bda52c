//! The route table, in the order of the OpenAPI document.

use super::route::{NoInput, Route};
use crate::redacted_desk::RedactedValue;
use portcullis_ops::desk::{
    AddClient, AddRule, AddServer, AdminEvent, ApprovalFilter, ApproveScript, ChangeClient, DecideApproval,
    DryRun, GrantSecret, ImportServers, ImportSource, MoveRule, RejectScript, RemoveRule, RestoreScript,
    SaveScript, SearchAudit, SetSecret, StatisticsQuery, SwitchServer, TestPolicy, TrustServer, TryTool,
};

pub(super) fn routes() -> Vec<Route> {
    let mut routes = super::sign_in::routes();
    routes.extend(watching());
    routes.extend(deciding());
    routes.extend(servers());
    routes.extend(rules_and_records());
    routes.extend(scripts().into_iter().map(Route::for_scripts));
    routes
}

fn watching() -> Vec<Route> {
    vec![
        Route::get("/openapi.json", "This document", |_, _: NoInput| {
            Box::pin(async { Ok(RedactedValue::trusted(super::document())) })
        }),
        Route::get("/overview", "Health, alerts and metrics", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.overview()))
        }),
        Route::get(
            "/statistics",
            "Calls, errors and latency over time: all, by client and by server",
            |ask, wanted: StatisticsQuery| Box::pin(ask.counter.ask(|desk| desk.statistics(wanted))),
        ),
        Route::get("/calls", "Recent calls, newest first", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.recent_calls()))
        }),
        Route::events::<AdminEvent>("/events", "Stream of events"),
        Route::get("/settings", "The configuration in force", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.settings()))
        }),
    ]
}

fn deciding() -> Vec<Route> {
    vec![
        Route::get("/approvals", "Pending approvals", |ask, wanted: ApprovalFilter| {
            Box::pin(ask.counter.ask(|desk| desk.approvals(wanted)))
        }),
        Route::get(
            "/approvals/{id}",
            "One approval, with the tool and the previous decision",
            |ask, _: NoInput| Box::pin(ask.counter.ask(|desk| desk.approval(ask.param("id")))),
        ),
        Route::post("/approvals/{id}", "Approve or reject a call", |ask, decision: DecideApproval| {
            Box::pin(ask.counter.ask(|desk| desk.decide(ask.param("id"), decision, ask.actor())))
        }),
        Route::get("/clients", "Clients and their scopes", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.clients()))
        }),
        Route::post("/clients", "Create a client; its token is returned only here", |ask, new: AddClient| {
            Box::pin(ask.counter.ask_showing(|desk| desk.add_client(new, ask.actor())))
        }),
        Route::put("/clients/{name}", "Change the scope of a client", |ask, change: ChangeClient| {
            Box::pin(ask.counter.ask(|desk| desk.change_client(ask.param("name"), change, ask.actor())))
        }),
        Route::delete("/clients/{name}", "Revoke a client", |ask, _| {
            Box::pin(ask.counter.ask(|desk| desk.revoke_client(ask.param("name"), ask.actor())))
        }),
        Route::get("/secrets", "Names and allowed hosts of secrets", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.secrets()))
        }),
        Route::put("/secrets/{name}", "Set a secret; the value is write-only", |ask, new: SetSecret| {
            Box::pin(ask.counter.ask(|desk| desk.set_secret(ask.param("name"), new, ask.actor())))
        }),
        Route::put(
            "/secrets/{name}/grants",
            "Set the allowed hosts of a secret",
            |ask, grants: GrantSecret| {
                Box::pin(ask.counter.ask(|desk| desk.grant_secret(ask.param("name"), grants, ask.actor())))
            },
        ),
        Route::delete("/secrets/{name}", "Remove a secret", |ask, _| {
            Box::pin(ask.counter.ask(|desk| desk.remove_secret(ask.param("name"), ask.actor())))
        }),
        Route::get("/tools", "All tools", |ask, _: NoInput| Box::pin(ask.counter.ask(|desk| desk.tools()))),
        Route::get("/tools/{name}", "One tool", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.tool(ask.param("name"))))
        }),
        Route::post("/tools/{name}/try", "Call a tool, through all checks", |ask, arguments: TryTool| {
            Box::pin(ask.counter.ask(|desk| desk.try_tool(ask.param("name"), arguments, ask.actor())))
        }),
    ]
}

fn servers() -> Vec<Route> {
    vec![
        Route::get("/servers", "Upstream servers", |ask, _: NoInput| {
            Box::pin(ask.counter.ask_configured(|desk| desk.servers()))
        }),
        Route::post("/servers", "Add a server to the configuration, disabled", |ask, new: AddServer| {
            Box::pin(ask.counter.ask(|desk| desk.add_server(new, ask.actor())))
        }),
        Route::post(
            "/servers/importable",
            "Preview an import from other applications",
            |ask, from: ImportSource| Box::pin(ask.counter.ask_configured(|desk| desk.importable(from))),
        ),
        Route::post("/servers/import", "Import servers, disabled", |ask, wanted: ImportServers| {
            Box::pin(ask.counter.ask_configured(|desk| desk.import_servers(wanted, ask.actor())))
        }),
        Route::get("/servers/{name}", "One server, with its changes since trusted", |ask, _: NoInput| {
            Box::pin(ask.counter.ask_configured(|desk| desk.server(ask.param("name"))))
        }),
        Route::post(
            "/servers/{name}/look",
            "Connect once to a disabled server and list what it provides",
            |ask, _: NoInput| {
                Box::pin(ask.counter.ask_configured(|desk| desk.probe_server(ask.param("name"), ask.actor())))
            },
        ),
        Route::delete("/servers/{name}", "Remove a server from the configuration", |ask, _| {
            Box::pin(ask.counter.ask(|desk| desk.remove_server(ask.param("name"), ask.actor())))
        }),
        Route::put(
            "/servers/{name}/trust",
            "Trust what a server provides, as reviewed",
            |ask, trust: TrustServer| {
                Box::pin(ask.counter.ask(|desk| desk.trust_server(ask.param("name"), trust, ask.actor())))
            },
        ),
        Route::delete("/servers/{name}/trust", "Revoke trust in a server", |ask, _| {
            Box::pin(ask.counter.ask(|desk| desk.distrust_server(ask.param("name"), ask.actor())))
        }),
        Route::put("/servers/{name}/enabled", "Enable or disable a server", |ask, switch: SwitchServer| {
            Box::pin(ask.counter.ask(|desk| desk.switch_server(ask.param("name"), switch, ask.actor())))
        }),
        Route::post("/servers/{name}/restart", "Restart a server", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.restart_server(ask.param("name"), ask.actor())))
        }),
        Route::post("/servers/{name}/sign-in", "Start a login to a server", |ask, _: NoInput| {
            Box::pin(ask.counter.ask_showing(|desk| desk.sign_in_to_server(ask.param("name"), ask.actor())))
        }),
    ]
}

fn rules_and_records() -> Vec<Route> {
    vec![
        Route::get("/policy", "Rules and defaults; the first match wins", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.policy()))
        }),
        Route::post("/policy/test", "Explain the decision on a call", |ask, question: TestPolicy| {
            Box::pin(ask.counter.ask(|desk| desk.test_policy(question)))
        }),
        Route::post("/policy/rules", "Add a rule", |ask, rule: AddRule| {
            Box::pin(ask.counter.ask(|desk| desk.add_rule(rule, ask.actor())))
        }),
        Route::post("/policy/rules/remove", "Remove a rule", |ask, rule: RemoveRule| {
            Box::pin(ask.counter.ask(|desk| desk.remove_rule(rule, ask.actor())))
        }),
        Route::post("/policy/rules/move", "Move a rule", |ask, rule: MoveRule| {
            Box::pin(ask.counter.ask(|desk| desk.move_rule(rule, ask.actor())))
        }),
        Route::get("/audit", "Search the audit log, newest first", |ask, search: SearchAudit| {
            Box::pin(ask.counter.ask(|desk| desk.search_audit(search)))
        }),
        Route::get("/audit/{seq}", "All records of one call", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.call_history(ask.param("seq").parse().unwrap_or_default())))
        }),
        Route::post("/audit/verify", "Verify the hash chain of the audit log", |ask, _: NoInput| {
            Box::pin(ask.counter.ask(|desk| desk.verify_audit()))
        }),
    ]
}

fn scripts() -> Vec<Route> {
    vec![
        Route::get("/scripts", "Scripts and their state", |ask, _: NoInput| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.list()))
        }),
        Route::post(
            "/scripts/dry-run",
            "Run a source in the sandbox, without secrets, network or tools",
            |ask, run: DryRun| Box::pin(ask.counter.ask_scripts(|scripts| scripts.dry_run(run, ask.actor()))),
        ),
        Route::get("/scripts/{name}", "One script, with its changes since approved", |ask, _: NoInput| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.detail(ask.param("name"))))
        }),
        Route::put("/scripts/{name}", "Save a script; it needs approval", |ask, text: SaveScript| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.save(ask.param("name"), text, ask.actor())))
        }),
        Route::delete("/scripts/{name}", "Remove a script", |ask, _| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.remove(ask.param("name"), ask.actor())))
        }),
        Route::post("/scripts/{name}/approve", "Approve this version", |ask, approval: ApproveScript| {
            Box::pin(
                ask.counter.ask_scripts(|scripts| scripts.approve(ask.param("name"), approval, ask.actor())),
            )
        }),
        Route::post("/scripts/{name}/reject", "Reject this version", |ask, rejection: RejectScript| {
            Box::pin(
                ask.counter.ask_scripts(|scripts| scripts.reject(ask.param("name"), rejection, ask.actor())),
            )
        }),
        Route::post("/scripts/{name}/restore", "Restore an older version", |ask, version: RestoreScript| {
            Box::pin(
                ask.counter.ask_scripts(|scripts| scripts.restore(ask.param("name"), version, ask.actor())),
            )
        }),
        Route::get("/scripts/{name}/versions/{sha256}", "The source of a version", |ask, _: NoInput| {
            Box::pin(
                ask.counter.ask_scripts(|scripts| scripts.version(ask.param("name"), ask.param("sha256"))),
            )
        }),
    ]
}
