//! Every route, in the order of the document.

use super::route::{Nothing, Route};
use crate::clean::Clean;
use crate::desk::{
    AddClient, AddRule, AddServer, ApproveScript, ChangeClient, Decide, DryRun, Event, GrantSecret,
    ImportFrom, ImportServers, MoveRule, RejectScript, RemoveRule, RestoreScript, SaveScript, SearchAudit,
    SetSecret, SwitchServer, TestPolicy, TrustServer, TryTool, WantedApprovals,
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
        Route::get("/openapi.json", "This document", |_, _: Nothing| {
            Box::pin(async { Ok(Clean::words(super::document())) })
        }),
        Route::get("/overview", "The hub at a glance", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.overview()))
        }),
        Route::get("/calls", "The last calls, newest first", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.recent_calls()))
        }),
        Route::events::<Event>("/events", "What happens, as it happens"),
        Route::get("/settings", "The configuration in force", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.settings()))
        }),
    ]
}

fn deciding() -> Vec<Route> {
    vec![
        Route::get("/approvals", "Calls that wait for a person", |ask, wanted: WantedApprovals| {
            Box::pin(ask.counter.ask(|desk| desk.approvals(wanted)))
        }),
        Route::get("/approvals/{id}", "All there is to know before deciding", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.approval(ask.param("id"))))
        }),
        Route::post("/approvals/{id}", "Decide", |ask, decision: Decide| {
            Box::pin(ask.counter.ask(|desk| desk.decide(ask.param("id"), decision, ask.by())))
        }),
        Route::get("/clients", "Who may call", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.clients()))
        }),
        Route::post("/clients", "Make a client; its token is shown only now", |ask, new: AddClient| {
            Box::pin(ask.counter.ask_showing(|desk| desk.add_client(new, ask.by())))
        }),
        Route::put("/clients/{name}", "Change what a client may do", |ask, change: ChangeClient| {
            Box::pin(ask.counter.ask(|desk| desk.change_client(ask.param("name"), change, ask.by())))
        }),
        Route::delete("/clients/{name}", "Take a client's token back", |ask, _| {
            Box::pin(ask.counter.ask(|desk| desk.revoke_client(ask.param("name"), ask.by())))
        }),
        Route::get("/secrets", "The names of secrets, and where they may be sent", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.secrets()))
        }),
        Route::put("/secrets/{name}", "Set a secret; its value never comes back", |ask, new: SetSecret| {
            Box::pin(ask.counter.ask(|desk| desk.set_secret(ask.param("name"), new, ask.by())))
        }),
        Route::put("/secrets/{name}/grants", "Say where a secret may be sent", |ask, grants: GrantSecret| {
            Box::pin(ask.counter.ask(|desk| desk.grant_secret(ask.param("name"), grants, ask.by())))
        }),
        Route::delete("/secrets/{name}", "Forget a secret", |ask, _| {
            Box::pin(ask.counter.ask(|desk| desk.remove_secret(ask.param("name"), ask.by())))
        }),
        Route::get("/tools", "What agents can call", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.tools()))
        }),
        Route::get("/tools/{name}", "One tool", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.tool(ask.param("name"))))
        }),
        Route::post("/tools/{name}/try", "Call a tool through every guard", |ask, arguments: TryTool| {
            Box::pin(ask.counter.ask(|desk| desk.try_tool(ask.param("name"), arguments, ask.by())))
        }),
    ]
}

fn servers() -> Vec<Route> {
    vec![
        Route::get("/servers", "The servers behind the hub", |ask, _: Nothing| {
            Box::pin(ask.counter.ask_configured(|desk| desk.servers()))
        }),
        Route::post(
            "/servers",
            "Write a server into the configuration, switched off",
            |ask, new: AddServer| Box::pin(ask.counter.ask(|desk| desk.add_server(new, ask.by()))),
        ),
        Route::post(
            "/servers/importable",
            "What of other programs could be taken over",
            |ask, from: ImportFrom| Box::pin(ask.counter.ask_configured(|desk| desk.importable(from))),
        ),
        Route::post("/servers/import", "Take servers over, switched off", |ask, wanted: ImportServers| {
            Box::pin(ask.counter.ask_configured(|desk| desk.import_servers(wanted, ask.by())))
        }),
        Route::get("/servers/{name}", "One server, with what is different about it", |ask, _: Nothing| {
            Box::pin(ask.counter.ask_configured(|desk| desk.server(ask.param("name"))))
        }),
        Route::post(
            "/servers/{name}/look",
            "Connect once to a server that is off, and look",
            |ask, _: Nothing| {
                Box::pin(ask.counter.ask_configured(|desk| desk.look_at_server(ask.param("name"), ask.by())))
            },
        ),
        Route::delete("/servers/{name}", "Take a server out of the configuration", |ask, _| {
            Box::pin(ask.counter.ask(|desk| desk.remove_server(ask.param("name"), ask.by())))
        }),
        Route::put(
            "/servers/{name}/trust",
            "Let in what a server offers, as it was seen",
            |ask, trust: TrustServer| {
                Box::pin(ask.counter.ask(|desk| desk.trust_server(ask.param("name"), trust, ask.by())))
            },
        ),
        Route::delete("/servers/{name}/trust", "Let nothing of a server in any more", |ask, _| {
            Box::pin(ask.counter.ask(|desk| desk.distrust_server(ask.param("name"), ask.by())))
        }),
        Route::put("/servers/{name}/enabled", "Switch a server on or off", |ask, switch: SwitchServer| {
            Box::pin(ask.counter.ask(|desk| desk.switch_server(ask.param("name"), switch, ask.by())))
        }),
        Route::post("/servers/{name}/restart", "Connect to a server anew", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.restart_server(ask.param("name"), ask.by())))
        }),
        Route::post("/servers/{name}/sign-in", "Begin a login to a server", |ask, _: Nothing| {
            Box::pin(ask.counter.ask_showing(|desk| desk.sign_in_to_server(ask.param("name"), ask.by())))
        }),
    ]
}

fn rules_and_records() -> Vec<Route> {
    vec![
        Route::get("/policy", "The rules; the first that matches wins", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.policy()))
        }),
        Route::post("/policy/test", "What is decided about a call, and why", |ask, question: TestPolicy| {
            Box::pin(ask.counter.ask(|desk| desk.test_policy(question)))
        }),
        Route::post("/policy/rules", "Write a rule", |ask, rule: AddRule| {
            Box::pin(ask.counter.ask(|desk| desk.add_rule(rule, ask.by())))
        }),
        Route::post("/policy/rules/remove", "Take a rule out", |ask, rule: RemoveRule| {
            Box::pin(ask.counter.ask(|desk| desk.remove_rule(rule, ask.by())))
        }),
        Route::post("/policy/rules/move", "Give a rule another place", |ask, rule: MoveRule| {
            Box::pin(ask.counter.ask(|desk| desk.move_rule(rule, ask.by())))
        }),
        Route::get("/audit", "Search the record of calls, newest first", |ask, search: SearchAudit| {
            Box::pin(ask.counter.ask(|desk| desk.search_audit(search)))
        }),
        Route::get("/audit/{seq}", "One call from its beginning to its end", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.story(ask.param("seq").parse().unwrap_or_default())))
        }),
        Route::post("/audit/verify", "Check that nobody changed the record", |ask, _: Nothing| {
            Box::pin(ask.counter.ask(|desk| desk.verify_audit()))
        }),
    ]
}

fn scripts() -> Vec<Route> {
    vec![
        Route::get("/scripts", "Scripts, and how they stand", |ask, _: Nothing| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.list()))
        }),
        Route::post("/scripts/dry-run", "Run a text in the sandbox, without anything", |ask, run: DryRun| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.dry_run(run, ask.by())))
        }),
        Route::get("/scripts/{name}", "One script, with what is different about it", |ask, _: Nothing| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.whole(ask.param("name"))))
        }),
        Route::put("/scripts/{name}", "Write a script; it waits for approval", |ask, text: SaveScript| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.save(ask.param("name"), text, ask.by())))
        }),
        Route::delete("/scripts/{name}", "Remove a script", |ask, _| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.remove(ask.param("name"), ask.by())))
        }),
        Route::post(
            "/scripts/{name}/approve",
            "Approve exactly these bytes",
            |ask, approval: ApproveScript| {
                Box::pin(
                    ask.counter.ask_scripts(|scripts| scripts.approve(ask.param("name"), approval, ask.by())),
                )
            },
        ),
        Route::post(
            "/scripts/{name}/reject",
            "Reject exactly these bytes",
            |ask, rejection: RejectScript| {
                Box::pin(
                    ask.counter.ask_scripts(|scripts| scripts.reject(ask.param("name"), rejection, ask.by())),
                )
            },
        ),
        Route::post("/scripts/{name}/restore", "Put an older version back", |ask, version: RestoreScript| {
            Box::pin(ask.counter.ask_scripts(|scripts| scripts.restore(ask.param("name"), version, ask.by())))
        }),
        Route::get("/scripts/{name}/versions/{sha256}", "The text of a version", |ask, _: Nothing| {
            Box::pin(
                ask.counter.ask_scripts(|scripts| scripts.version(ask.param("name"), ask.param("sha256"))),
            )
        }),
    ]
}
