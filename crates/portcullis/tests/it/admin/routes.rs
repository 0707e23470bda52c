//! Every route of the table, and what it asks for.

use super::{Admin, problem};
use crate::support::home;
use portcullis_admin::api::{RouteInfo, routes};
use portcullis_testkit::process::UNHURRIED;
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::json;

/// What a route answered: to nobody, to an agent's token, and to a session without the token for changes.
struct RouteStatuses {
    route: RouteInfo,
    nobody: u16,
    agent: u16,
    no_csrf: u16,
}

/// The checking function: which routes let somebody in who may not come.
fn forgetful(answers: &[RouteStatuses]) -> Vec<String> {
    let wrong = answers.iter().filter(|answered| {
        let RouteStatuses { route, nobody, agent, no_csrf } = answered;
        let open = (*nobody, *agent) != (401, 401);
        let unguarded = route.method.as_str() != "GET" && *no_csrf != 403;
        route.needs_session && (open || unguarded)
    });
    wrong.map(|answered| format!("{} {}", answered.route.method, answered.route.path)).collect()
}

fn request(route: &RouteInfo) -> RawHttpRequest {
    let method = match route.method.as_str() {
        "GET" => "GET",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "POST",
    };
    let path: Vec<&str> =
        route.path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect();
    if method == "GET" {
        RawHttpRequest::new(method, path.join("/"))
    } else {
        RawHttpRequest::json(method, path.join("/"), &json!({}))
    }
}

/// A hub without scripts does not have their routes.
fn is_served(route: &RouteInfo) -> bool {
    !route.path.starts_with("/api/v1/scripts")
}

#[tokio::test]
async fn every_route_needs_a_session_and_every_change_its_token() {
    let home = home();
    home.configure(&format!("{UNHURRIED}[limits]\ntoken_failures_max = 1000\n"));
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut answers = Vec::new();
    for route in routes().into_iter().filter(is_served) {
        if !route.needs_session || route.path.ends_with("/events") {
            continue;
        }
        let (nobody, agent) = (request(&route), request(&route).token(&hub.token));
        let signed_in = request(&route).header("Cookie", &ann.cookie);
        answers.push(RouteStatuses {
            nobody: nobody.send(hub.address).await.status(),
            agent: agent.send(hub.address).await.status(),
            no_csrf: signed_in.send(hub.address).await.status(),
            route,
        });
    }
    assert!(answers.len() > 40, "{}", answers.len());
    assert_eq!(forgetful(&answers), Vec::<String>::new());
    let open: Vec<String> = routes().into_iter().filter(|r| !r.needs_session).map(|r| r.path).collect();
    assert_eq!(open, ["/api/v1/sign-in", "/api/v1/welcome"], "who may come without a session");
    assert_eq!(RawHttpRequest::get("/api/v1/events").send(hub.address).await.status(), 401);
    assert_eq!(ann.get("/nothing").await.status(), 404);
    assert_eq!(ann.get("/session").await.status(), 200, "none of it ended the session");
}

#[tokio::test]
async fn the_root_leads_to_the_page() {
    let home = home();
    let hub = home.serve().await;
    let reply = RawHttpRequest::get("/").send(hub.address).await;
    assert_eq!((reply.status(), reply.head.header("location")), (303, Some("/admin")));
    // A browser that is led there by another name of this machine is refused as everywhere.
    let other = RawHttpRequest::get("/").header("Host", "evil.example").send(hub.address).await;
    assert_eq!(other.status(), 403);
}

/// The test can fail: a route that forgets is found.
#[test]
fn a_route_that_forgets_is_found() {
    let route = |method: &str| RouteInfo {
        method: method.parse().unwrap(),
        path: "/x".to_owned(),
        needs_session: true,
    };
    for (method, nobody, agent, no_csrf, found) in [
        ("GET", 401, 401, 200, 0),
        ("POST", 401, 401, 403, 0),
        ("GET", 200, 401, 200, 1),
        ("GET", 401, 200, 200, 1),
        ("POST", 401, 401, 400, 1),
        ("DELETE", 401, 401, 404, 1),
    ] {
        let answered = RouteStatuses { route: route(method), nobody, agent, no_csrf };
        assert_eq!(forgetful(&[answered]).len(), found, "{method} {nobody} {agent} {no_csrf}");
    }
}

#[tokio::test]
async fn a_form_of_another_site_changes_nothing() {
    let home = home();
    // Pages of this site may call `/mcp`; they have no business here.
    home.configure(&format!("{UNHURRIED}[http]\nallowed_origins = [\"http://friend.test\"]\n"));
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let body = json!({ "name": "evil" });
    let own = format!("http://{}", hub.address);
    for (headers, expected) in [
        (vec![("x-csrf-token", ann.csrf.as_str()), ("Origin", "http://friend.test")], 403),
        (vec![("x-csrf-token", &ann.csrf), ("Sec-Fetch-Site", "cross-site")], 403),
        (vec![("x-csrf-token", &ann.csrf), ("Sec-Fetch-Site", "same-site")], 403),
        (vec![("x-csrf-token", &ann.csrf[1..])], 403),
        (vec![("Origin", &own), ("Sec-Fetch-Site", "same-origin")], 403),
        (vec![("Origin", &own), ("Sec-Fetch-Site", "same-origin"), ("x-csrf-token", &ann.csrf)], 200),
    ] {
        let request = ann.plain("POST", "/clients", Some(&body));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, *value));
        let reply = request.send(hub.address).await;
        assert_eq!(reply.status(), expected, "{headers:?} {}", reply.text());
        let made = home.run(&["clients", "list", "--json"]).await.json().to_string().contains("evil");
        assert_eq!(made, expected == 200);
    }
    // Neither can it sign somebody in, nor read what they see.
    let login = super::sign_in("ann", super::PASSWORD).header("Origin", "http://friend.test");
    assert_eq!(problem(&login.send(hub.address).await), "forbidden");
    let reads = ann.plain("GET", "/overview", None).header("Origin", "http://friend.test");
    assert_eq!(reads.send(hub.address).await.status(), 403);
    // A form can only send these types.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let form = RawHttpRequest::new("POST", "/api/v1/sign-in").header("Content-Type", kind);
        assert_eq!(form.send(hub.address).await.status(), 400, "{kind}");
    }
}
