use super::super::{CatalogChange, List, NameReservation, Registry};
use super::*;
use crate::Outcome;
use crate::call::Call;
use crate::effect::{Effect, Reach};
use crate::error::ToolError;
use crate::gate::Permit;
use crate::registry::{Definition, TemplateDef};
use crate::tool::{CallLimits, DefaultDecision};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::RawValue;

/// A server that offers these tools, or of which nothing is known yet. A tool with the prefix `?` is withheld.
#[derive(Clone)]
struct Server {
    name: &'static str,
    prefix: Option<&'static str>,
    offer: Arc<Mutex<Option<Vec<&'static str>>>>,
    /// Listed URIs, and templates; a template ends in `*`.
    addresses: &'static [&'static str],
    conflicts: Arc<Mutex<Vec<String>>>,
}

fn server(name: &'static str, prefix: &'static str, tools: &[&'static str]) -> Server {
    let offer = Arc::new(Mutex::new(Some(tools.to_vec())));
    Server { name, prefix: Some(prefix), offer, addresses: &[], conflicts: Arc::default() }
}

fn native(name: &'static str, tools: &[&'static str]) -> Server {
    Server { prefix: None, ..server(name, "", tools) }
}

fn tool(server: &str, name: &str) -> Arc<ToolDef> {
    let server = server.to_owned();
    if let Some(name) = name.strip_prefix('?') {
        let hint = "look".to_owned();
        let def = ToolDef::quarantined(
            server,
            name.to_owned(),
            Effect::Read,
            Reach::Outside,
            DefaultDecision::Allow,
            hint,
        );
        return Arc::new(def);
    }
    let nothing = Definition::new(RawValue::NULL.to_owned());
    let (title, text, schema) = (String::new(), String::new(), json!({ "type": "object" }));
    let (effect, reach, limits) = (Effect::Read, Reach::Outside, CallLimits::DEFAULT);
    let def =
        ToolDef::foreign(server, name.to_owned(), title, text, effect, reach, limits, schema, None, nothing);
    Arc::new(def)
}

impl Provider for Server {
    fn name(&self) -> &str {
        self.name
    }

    fn prefix(&self) -> Option<&str> {
        self.prefix
    }

    fn is_known(&self) -> bool {
        self.offer.lock().is_some()
    }

    fn catalog(&self) -> Catalog {
        let offer = self.offer.lock();
        let tools: Vec<_> = offer.iter().flatten().map(|name| tool(self.name, name)).collect();
        let mut second = HashMap::new();
        for first in tools.iter().filter(|_| self.prefix == Some("")) {
            let name = fallback_name(self.name, &first.name).unwrap();
            second.insert(first.name.clone(), tool(self.name, &name));
        }
        let (forms, listed): (Vec<_>, Vec<_>) = self.addresses.iter().partition(|uri| uri.ends_with('*'));
        let form = |uri: &str| TemplateDef {
            uri_template: uri.to_owned(),
            name: String::new(),
            title: None,
            description: None,
            mime_type: None,
            definition: None,
        };
        let templates = forms.into_iter().map(|uri| Arc::new(form(uri))).collect();
        let resources = listed.into_iter().map(|uri| (*uri).to_owned()).collect();
        Catalog { tools, second, templates, resources, ..Catalog::default() }
    }

    fn owns_resource(&self, uri: &str, _: &str) -> ResourceClaim {
        let fits = |form: &&str| form.strip_suffix('*').is_some_and(|start| uri.starts_with(start));
        match self.addresses.contains(&uri) {
            true => ResourceClaim::Listed,
            false if self.addresses.iter().any(fits) => ResourceClaim::ByForm,
            false => ResourceClaim::Not,
        }
    }

    fn on_name_conflicts(&self, taken: Vec<NameConflict>) {
        *self.conflicts.lock() = taken.iter().map(NameConflict::why).collect();
    }

    fn call(&self, _: Permit, call: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(async move { Err(ToolError::unknown("tool", call.target.name())) })
    }
}

fn expected(server: &str, naming: &str, tools: &[&str]) -> NameReservation {
    let tools = tools.iter().map(|name| (*name).to_owned()).collect();
    let (server, naming) = (server.to_owned(), naming.to_owned());
    NameReservation { server, prefix: String::new(), naming, tools, prompts: Vec::new() }
}

/// Returns the listed tools, each with its owner.
fn listed(registry: &Registry) -> String {
    let tools = registry.tools();
    let each = tools.iter().map(|tool| format!("{}:{}", tool.server.as_deref().unwrap_or(""), tool.name));
    each.collect::<Vec<_>>().join(" ")
}

#[test]
fn who_has_a_name_does_not_depend_on_who_came_first() {
    let offers = [
        native("files", &["read"]),
        server("a", "", &["echo", "read", "c_sum"]),
        server("b", "", &["echo", "only"]),
        server("c", "c_", &["c_sum"]),
    ];
    for order in [[0, 1, 2, 3], [0, 3, 2, 1], [0, 2, 3, 1]] {
        let registry = Registry::default();
        for at in order {
            registry.add(offers[at].clone()).unwrap();
        }
        assert_eq!(
            listed(&registry),
            "files:read a:echo a:a_read a:a_c_sum b:b_echo b:only c:c_sum",
            "{order:?}"
        );
        let conflicts = offers.iter().map(|one| one.conflicts.lock().join(", ")).collect::<Vec<_>>();
        assert_eq!(
            conflicts,
            [
                "",
                "`read` is a tool of the hub; this one is `a_read`, `c_sum` is a tool of server `c`; this one is `a_c_sum`",
                "`echo` is a tool of server `a`; this one is `b_echo`",
                ""
            ]
        );
    }
}

#[test]
fn nobody_steps_into_the_place_of_a_configured_server() {
    let (a, b) = (server("a", "", &["echo", "?new"]), server("b", "", &["echo", "new"]));
    let registry = Registry::default();
    registry.add(a.clone()).unwrap();
    registry.add(b.clone()).unwrap();
    registry.reserve_names(vec![expected("a", "1", &[]), expected("b", "1", &[])]);
    // A withheld tool takes no name from others.
    assert_eq!(listed(&registry), "a:echo b:b_echo b:new");
    for gone in [Some(vec!["?echo"]), None] {
        *a.offer.lock() = gone;
        registry.inner.reindex(List::Tools, CatalogChange::Tools);
        assert_eq!(listed(&registry), "b:b_echo b:new");
    }
    registry.remove("a");
    assert_eq!(listed(&registry), "b:b_echo b:new");
    let conflicts = ["`echo` is reserved for server `a`, which is not running; this one is `b_echo`"];
    assert_eq!(*b.conflicts.lock(), conflicts);
    // With a new naming configuration it loses the old names, and owns only those reserved for it.
    registry.reserve_names(vec![expected("a", "2", &["new"]), expected("b", "1", &[])]);
    assert_eq!(listed(&registry), "b:echo b:b_new");
    registry.reserve_names(vec![expected("b", "1", &[])]);
    assert_eq!(listed(&registry), "b:echo b:new");
}

#[test]
fn a_second_name_is_nobody_elses_whoever_is_there() {
    // All of them would be called `a_b_c`: one owns it, for two others it would be the fallback.
    let first = server("z", "", &["a_b_c"]);
    let (a, a_b, b) = (server("a", "", &["b_c"]), server("a_b", "", &["c"]), server("-", "", &["b_c", "c"]));
    let registry = Registry::default();
    for one in [&a, &a_b, &b] {
        registry.add(one.clone()).unwrap();
    }
    assert_eq!(listed(&registry), "-:b_c -:c a:a_b_c");
    assert_eq!(*a_b.conflicts.lock(), ["`c` is a tool of server `-`"]);
    let all = ["-", "a", "a_b", "z"];
    registry.reserve_names(all.map(|name| expected(name, "1", &[])).into());
    registry.remove("a");
    assert_eq!(listed(&registry), "-:b_c -:c", "a reserved name is not given to another");
    registry.add(a.clone()).unwrap();
    registry.add(first).unwrap();
    assert_eq!(listed(&registry), "-:b_c -:c z:a_b_c");
    assert_eq!(*a.conflicts.lock(), ["`b_c` is a tool of server `-`"]);
}

#[test]
fn an_address_and_its_form_are_of_the_same_server() {
    let short = Server { addresses: &["x:1", "x:*"], ..server("a", "a_", &[]) };
    let long = Server { addresses: &["x:1", "x:*", "y:1"], ..server("b", "longer_", &[]) };
    let registry = Registry::default();
    registry.add(short.clone()).unwrap();
    registry.add(long.clone()).unwrap();
    for uri in ["x:1", "x:2"] {
        assert_eq!(registry.owner_of(uri, "").unwrap().name(), "b", "{uri}");
    }
    let lost = ["`x:*` is a template of server `b`", "`x:1` is a resource of server `b`"];
    assert_eq!((*short.conflicts.lock()).as_slice(), lost);
    assert!(long.conflicts.lock().is_empty());
}

#[test]
fn a_server_that_is_called_like_a_family_does_not_take_it_along() {
    let registry = Registry::default();
    registry.add(native("github", &["github_list"])).unwrap();
    registry.add(server("github", "gh_", &["gh_list"])).unwrap();
    registry.remove("github");
    assert_eq!(listed(&registry), "github:github_list");
}

#[test]
fn what_a_server_has_not_spoken_of_yet_stays_its_own() {
    let names = |name: &str| HashSet::from([name.to_owned()]);
    let mut reserved =
        ReservedNames { tools: names("echo"), prompts: names("ask"), ..ReservedNames::default() };
    for (tools_are_late, prompts_are_late) in [(true, true), (false, true), (false, false)] {
        reserved.update(&Catalog { tools_are_late, prompts_are_late, ..Catalog::default() }, &[]);
        assert_eq!(
            (reserved.tools.is_empty(), reserved.prompts.is_empty()),
            (!tools_are_late, !prompts_are_late)
        );
    }
}
