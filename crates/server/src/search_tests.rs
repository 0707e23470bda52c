use super::test_tools::{all, foreign};
use super::*;
use portcullis_core::{
    CallCtx, Client, Layer, Next, Origin, PolicySubject, Registry, Scope, VisibilityFilter,
};

/// A server with some tools.
struct Server(Vec<Arc<ToolDef>>);

impl Provider for Server {
    fn name(&self) -> &str {
        "servers"
    }

    fn catalog(&self) -> Catalog {
        Catalog { tools: self.0.clone(), ..Catalog::default() }
    }

    fn call(&self, _: Permit, call: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(async move { Err(ToolError::unknown(call.target.kind(), call.target.name())) })
    }
}

/// A layer that hides other servers' tools.
struct HidesOthers;

impl Layer for HidesOthers {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        next.run(call)
    }

    fn visibility_filter<'a>(&'a self, _: &'a Caller) -> VisibilityFilter<'a> {
        Box::new(|listing: &PolicySubject<'_>| listing.in_every_scope)
    }
}

fn caller() -> Caller {
    let scope = Scope { view: ToolView::Search, ..Scope::everything() };
    Caller::new(Arc::new(Client { name: "finder".to_owned(), scope, token: None }), Origin::Client)
}

fn gate(tools: Vec<ToolDef>, layers: Vec<Box<dyn Layer>>) -> Arc<Gate> {
    let (registry, search) = (Registry::default(), ToolSearch::default());
    registry.add(search.clone()).unwrap();
    registry.add(Server(tools.into_iter().map(Arc::new).collect())).unwrap();
    let gate = Arc::new(Gate::new(registry, layers));
    search.searches(&gate);
    gate
}

async fn find(gate: &Gate, wanted: Value) -> (String, Value) {
    let call = Call::new(
        caller().client,
        Target::Tool(FIND.to_owned()),
        Arguments::of(&wanted),
        CallCtx::detached(),
    );
    match gate.call(call).await {
        Ok(Output::Tool(ToolOutput { content, structured: Some(structured), .. })) => {
            let portcullis_core::ContentBody::Text(text) = &content[0].body else { panic!("no text") };
            (text.clone(), structured)
        }
        other => panic!("{other:?}"),
    }
}

fn names(structured: &Value) -> Vec<&str> {
    structured["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn what_may_be_any_tool_is_not_said_to_be_harmless() {
    let hints = |tool: &ToolDef| {
        let definition: Value = serde_json::from_str(render::tool(tool).get()).unwrap();
        ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
            .map(|hint| definition["annotations"][hint].as_bool().unwrap())
    };
    let search = ToolSearch::default();
    let [find, call] = search.tools.as_slice() else { panic!("not two") };
    assert_eq!(hints(find), [true, false, true, false]);
    assert_eq!(hints(call), [false, true, false, true]);
    // For the policy it is only a way to another tool.
    assert_eq!((call.effect, call.reach), (Effect::Read, Reach::Local));
}

#[tokio::test]
async fn what_is_found_says_what_it_does() {
    let gate = gate(all(), vec![]);
    let (_, found) = find(&gate, json!({ "query": "forecast" })).await;
    assert_eq!(names(&found), ["weather_get_forecast"]);
    assert_eq!(found["tools"][0]["annotations"], json!({ "readOnlyHint": true, "mood": "calm" }));
}

#[tokio::test]
async fn a_server_alone_lists_its_tools_in_order() {
    let gate = gate(all(), vec![]);
    for query in [json!({ "query": "", "server": "brave" }), json!({ "server": "brave" })] {
        let (_, found) = find(&gate, query).await;
        assert_eq!(names(&found), ["brave_web_search", "brave_local_search"]);
    }
    let (text, found) = find(&gate, json!({ "server": "github", "limit": 3 })).await;
    assert_eq!((names(&found).len(), &found["fitting"]), (3, &json!(8)));
    assert!(text.ends_with("\n5 more with a higher `limit`."), "{text}");
    let (text, found) = find(&gate, json!({ "query": "" })).await;
    assert!(names(&found).is_empty() && text.contains("\n- brave (2 tools): "), "{text}");
}

#[tokio::test]
async fn whom_nothing_is_open_to_is_told_so() {
    let gate = gate(all(), vec![Box::new(HidesOthers)]);
    let open = "At the moment no tool of another server is open to this client.";
    assert_eq!(within_reach(&gate, &caller()), open);
    assert_eq!(find(&gate, json!({ "query": "weather" })).await.0, format!("No tool fits. {open}"));
}

#[test]
fn every_server_is_named() {
    let tools: Vec<ToolDef> =
        (0..450).map(|n| foreign(&format!("s{n:03}"), &format!("kettle_{n}"), "", json!({}))).collect();
    let gate = gate(tools, vec![]);
    let text = within_reach(&gate, &caller());
    assert!(text.starts_with("Behind the hub:\n- s000 (1 tool): kettle\n"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("- also s040, s041, ") && last.ends_with(", s439 and 10 more servers"),
        "{last}"
    );
    assert!(!text.contains("s440"), "{last}");
}

#[test]
fn a_description_is_cut_between_words() {
    let plain = "word ".repeat(117);
    let cut = beginning(&format!("{plain}secret-that-is-long and more"));
    assert_eq!(cut, format!("{}…", plain.trim_end()));
    assert_eq!(beginning("short"), "short");
    assert_eq!(beginning(&"天".repeat(700)).chars().count(), DESCRIPTION_CHARS_MAX);
    assert_eq!(beginning(&"x".repeat(700)), "…");
}

#[test]
fn a_call_names_another_in_the_shapes_that_models_write() {
    let named = |arguments: &str| {
        let raw = RawValue::from_string(arguments.to_owned()).unwrap();
        super::named(Some(&raw), |_| 20).map(|(name, arguments)| (name, arguments.raw().get().to_owned()))
    };
    for (written, arguments) in [
        (r#"{"name": "x", "arguments": {"a": 1.50}}"#, r#"{"a": 1.50}"#),
        (r#"{"name": "x", "arguments": " {\"a\": 1.50}"}"#, r#"{"a": 1.50}"#),
        (r#"{"name": "x", "arguments": null}"#, "{}"),
        (r#"{"name": "x"}"#, "{}"),
    ] {
        assert_eq!(named(written), Some(("x".to_owned(), arguments.to_owned())), "{written}");
    }
    for wrong in [
        "{}",
        r#"{"nme": "x"}"#,
        r#"{"name": 5}"#,
        r#"{"name": "x", "title": "t"}"#,
        r#"{"name": "x", "arguments": []}"#,
        r#"{"name": "x", "arguments": "a"}"#,
        r#"{"name": "x", "arguments": "[1]"}"#,
        r#"{"name": "x", "name": "y"}"#,
    ] {
        assert_eq!(named(wrong), None, "{wrong}");
    }
    // The size limit holds for both shapes.
    let long = r#"{"name": "x", "arguments": "{\"text\": \"0123456789abcdef\"}"}"#;
    let raw = RawValue::from_string(long.to_owned()).unwrap();
    let (_, arguments) = super::named(Some(&raw), |_| 20).unwrap();
    assert_eq!(arguments.too_long().map(|too_long| too_long.bytes), Some(28));
}
