//! The fixtures as a client sees them, through a gate without layers.

use super::family;
use parking_lot::Mutex;
use portcullis_core::{
    Arguments, BoxFuture, Call, CallCtx, Caller, CatalogChange, Client, CompletionRef, Content, ContentBody,
    Gate, InputRefusal, InputRequestKind, InputRequired, InputResponses, KeyedInputRequest, LogMessage,
    NoPeer, Origin, Outcome, Output, Peer, Progress, Registry, ResourceBody, ResourceContents, Scope, Target,
    TaskSupport,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Every tool, in the order of listing.
const TOOLS: &str = "
    test_simple_text test_image_content test_audio_content test_embedded_resource test_multiple_content_types
    test_error_handling json_schema_2020_12_tool test_custom_header test_tool_with_progress
    test_tool_with_logging test_logging_tool test_reconnection test_missing_capability
    test_streaming_elicitation test_trigger_tool_change test_trigger_prompt_change test_sampling
    test_elicitation test_elicitation_sep1034_defaults test_elicitation_sep1330_enums
    test_input_required_result_elicitation test_input_required_result_sampling
    test_input_required_result_list_roots test_input_required_result_request_state
    test_input_required_result_multiple_inputs test_input_required_result_multi_round
    test_input_required_result_tampered_state test_input_required_result_capabilities greet slow_compute
    failing_job protocol_error_job confirm_delete multi_input test_tool_with_task";

const PROMPTS: &str = "
    test_simple_prompt test_prompt_with_arguments test_prompt_with_embedded_resource test_prompt_with_image
    test_input_required_result_prompt";

const RESOURCES: &str = "test://static-text test://static-binary test://watched-resource";

/// A client with scripted answers, which otherwise makes the call return for another round.
#[derive(Default)]
struct ScriptedPeer {
    answers: InputResponses,
    offers: Vec<InputRequestKind>,
    heard: Mutex<Vec<String>>,
}

impl ScriptedPeer {
    fn offering(offers: &[InputRequestKind]) -> ScriptedPeer {
        ScriptedPeer { offers: offers.to_vec(), ..ScriptedPeer::default() }
    }

    fn answering(answers: Value) -> ScriptedPeer {
        let answers = answers.as_object().cloned().unwrap_or_default().into_iter().collect();
        ScriptedPeer {
            answers,
            ..ScriptedPeer::offering(&[
                InputRequestKind::Elicit,
                InputRequestKind::Sample,
                InputRequestKind::Roots,
            ])
        }
    }

    /// Returns a client with an answer to every question of the fixtures.
    fn willing() -> ScriptedPeer {
        let form = json!({ "action": "accept", "content": {
            "name": "Alice", "color": "blue", "ok": true, "confirm": true, "context": "testing",
            "username": "alice", "email": "alice@example.com",
        }});
        let said =
            json!({ "role": "assistant", "content": { "type": "text", "text": "Paris." }, "model": "m" });
        let roots = json!({ "roots": [{ "uri": "file:///test/root", "name": "Test Root" }] });
        ScriptedPeer::answering(json!({
            "user": form, "defaults": form, "choices": form, "user_name": form, "confirm": form, "step1": form,
            "step2": form, "name": form, "confirmation": form, "user_context": form, "completion": said,
            "capital_question": said, "greeting": said, "client_roots": roots,
        }))
    }

    fn hear(&self, what: String) {
        self.heard.lock().push(what);
    }
}

impl Peer for ScriptedPeer {
    fn progress(&self, progress: Progress) {
        self.hear(format!("progress {} of {}", progress.said["progress"], progress.said["total"]));
    }

    fn log(&self, message: LogMessage) {
        self.hear(format!("{}: {}", message.level.as_str(), message.said["data"]));
    }

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        Box::pin(async move {
            if let Some(question) = questions.iter().find(|question| !self.offers(question.ask.kind)) {
                return Err(InputRefusal::NotOffered(question.ask.kind));
            }
            let known = |question: &KeyedInputRequest| {
                Some((question.key.clone(), self.answers.get(&question.key)?.clone()))
            };
            let answers: InputResponses = questions.iter().filter_map(known).collect();
            if answers.len() == questions.len() {
                return Ok(answers);
            }
            let open =
                questions.into_iter().filter(|question| !answers.contains_key(&question.key)).collect();
            Err(InputRefusal::NextRound(InputRequired {
                questions: open,
                state: None,
                more: Map::new(),
                approved: None,
            }))
        })
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.offers.contains(&kind)
    }

    fn close_connection(&self) {
        self.hear("let go".to_owned());
    }
}

fn gate() -> Gate {
    let registry = Registry::default();
    registry.add(family(registry.changes())).unwrap();
    Gate::new(registry, vec![])
}

fn caller() -> Caller {
    let client = Client { name: "suite".to_owned(), scope: Scope::everything(), token: None };
    Caller::new(Arc::new(client), Origin::Client)
}

async fn call(gate: &Gate, target: Target, arguments: &str, ctx: CallCtx) -> Outcome {
    let arguments = Arguments::of(&serde_json::from_str(arguments).unwrap());
    gate.call(Call::new(caller().client, target, arguments, ctx)).await
}

/// Makes a call, written `name {arguments}`, and returns what the client sees: notifications first.
async fn check(line: &str, peer: ScriptedPeer) -> String {
    let (name, arguments) = line.split_once(' ').unwrap_or((line, "{}"));
    let target = if let Some(prompt) = name.strip_prefix("complete:") {
        Target::Completion(CompletionRef::Prompt(prompt.to_owned()))
    } else if name.contains("://") {
        Target::Resource(name.to_owned())
    } else if PROMPTS.split_whitespace().any(|prompt| prompt == name) {
        Target::Prompt(name.to_owned())
    } else {
        Target::Tool(name.to_owned())
    };
    let peer = Arc::new(peer);
    let ctx = CallCtx::new(CancellationToken::new(), peer.clone());
    let outcome = call(&gate(), target, arguments, ctx).await;
    let mut lines = peer.heard.lock().clone();
    lines.extend(seen(outcome));
    lines.join("\n")
}

fn seen(outcome: Outcome) -> Vec<String> {
    match outcome {
        Ok(Output::Tool(output)) => {
            let failed = output.is_error.then(|| "failed".to_owned());
            failed.into_iter().chain(output.content.iter().map(seen_content)).collect()
        }
        Ok(Output::Prompt(prompt)) => prompt.messages.iter().map(|m| seen_content(&m.content)).collect(),
        Ok(Output::Resource(contents)) => contents.iter().map(seen_resource).collect(),
        Ok(Output::Completion(completion)) => completion.values,
        Ok(Output::Raw(raw)) => vec![raw.get().to_owned()],
        Err(error) => match error.input {
            Some(input) => {
                let asked = |q: KeyedInputRequest| format!("{:?} `{}`: {}", q.ask.kind, q.key, q.ask.params);
                input.questions.into_iter().map(asked).collect()
            }
            None => vec![error.to_string()],
        },
    }
}

fn seen_content(content: &Content) -> String {
    match &content.body {
        ContentBody::Text(text) => text.clone(),
        ContentBody::Image { base64, mime_type } => format!("image {mime_type} ({})", base64.len()),
        ContentBody::Audio { base64, mime_type } => format!("audio {mime_type} ({})", base64.len()),
        ContentBody::Resource(resource) => seen_resource(resource),
    }
}

fn seen_resource(resource: &ResourceContents) -> String {
    let ResourceContents { uri, mime_type, body } = resource;
    let mime_type = mime_type.as_deref().unwrap_or_default();
    match body {
        ResourceBody::Text(text) => format!("{uri} {mime_type}: {text}"),
        ResourceBody::Base64(data) => format!("{uri} {mime_type} ({})", data.len()),
    }
}

#[tokio::test]
async fn every_name_is_there_in_order() {
    let gate = gate();
    let tools = gate.tools(&caller()).unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, TOOLS.split_whitespace().collect::<Vec<_>>());
    let prompts = gate.prompts(&caller()).unwrap();
    let names: Vec<&str> = prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    assert_eq!(names, PROMPTS.split_whitespace().collect::<Vec<_>>());
    let (resources, failed) = gate.resources(&caller()).await.unwrap();
    let uris: Vec<&str> = resources.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(uris, RESOURCES.split_whitespace().collect::<Vec<_>>());
    assert!(failed.is_empty());
    assert_eq!(gate.templates(&caller()).unwrap()[0].uri_template, "test://template/{id}/data");
}

#[test]
fn what_is_listed_satisfies_the_suite() {
    for tool in gate().tools(&caller()).unwrap() {
        assert!(!tool.description.is_empty(), "{}", tool.name);
        assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
        assert!(tool.input_schema["properties"].is_object(), "{}", tool.name);
        // Ordinary calls carry no such header, so no other tool may require one.
        let has_header = tool.input_schema.to_string().contains("x-mcp-header");
        assert_eq!(has_header, tool.name == "test_custom_header", "{}", tool.name);
    }
    for prompt in gate().prompts(&caller()).unwrap() {
        assert!(prompt.description.as_deref().is_some_and(|text| !text.is_empty()), "{}", prompt.name);
    }
}

#[tokio::test(start_paused = true)]
async fn every_example_works() {
    for tool in gate().tools(&caller()).unwrap() {
        let ctx = CallCtx::new(CancellationToken::new(), Arc::new(ScriptedPeer::willing()));
        let arguments = tool.example.unwrap().arguments;
        let outcome = call(&gate(), Target::Tool(tool.name.clone()), arguments, ctx).await;
        let meant_to_fail = ["failing_job", "protocol_error_job"].contains(&tool.name.as_str());
        assert_eq!(outcome.is_err(), meant_to_fail, "{}: {outcome:?}", tool.name);
    }
}

#[test]
fn who_runs_as_a_task() {
    let tools = gate().tools(&caller()).unwrap();
    let named = |support| {
        tools
            .iter()
            .filter(|tool| tool.tasks == support)
            .map(|tool| tool.name.as_str())
            .collect::<BTreeSet<_>>()
    };
    let optional = ["confirm_delete", "multi_input", "protocol_error_job", "slow_compute"];
    assert_eq!(named(TaskSupport::Optional), BTreeSet::from(optional));
    assert_eq!(named(TaskSupport::Required), BTreeSet::from(["failing_job"]));
    assert_eq!(named(TaskSupport::RequiredAfterQuestions), BTreeSet::from(["test_tool_with_task"]));
}

#[tokio::test]
async fn contents() {
    insta::assert_snapshot!(check("test_simple_text", ScriptedPeer::default()).await, @"This is a simple text response for testing.");
    insta::assert_snapshot!(check("test_audio_content", ScriptedPeer::default()).await, @"audio audio/wav (60)");
    insta::assert_snapshot!(check("test_multiple_content_types", ScriptedPeer::default()).await, @r#"
    Multiple content types test:
    image image/png (96)
    test://mixed-content-resource application/json: {"test":"data","value":123}
    "#);
    insta::assert_snapshot!(check("test_error_handling", ScriptedPeer::default()).await, @"
    failed
    This tool intentionally returns an error for testing
    ");
    insta::assert_snapshot!(check(r#"test_custom_header {"region":"=?base64?x"}"#, ScriptedPeer::default()).await, @"Region: =?base64?x");
    insta::assert_snapshot!(check(r#"test_simple_text {"x":1}"#, ScriptedPeer::default()).await, @"invalid_args: invalid arguments: `x` does not fit the tool's schema");
}

#[tokio::test(start_paused = true)]
async fn what_is_heard_before_the_result() {
    insta::assert_snapshot!(check("test_tool_with_progress", ScriptedPeer::default()).await, @"
    progress 0 of 100
    progress 50 of 100
    progress 100 of 100
    Tool with progress executed successfully.
    ");
    insta::assert_snapshot!(check("test_tool_with_logging", ScriptedPeer::default()).await, @r#"
    info: "Tool execution started"
    info: "Tool processing data"
    info: "Tool execution completed"
    Tool with logging executed successfully.
    "#);
    insta::assert_snapshot!(check("test_reconnection", ScriptedPeer::default()).await, @"
    let go
    Reconnection test completed successfully.
    ");
}

#[tokio::test]
async fn capabilities_are_respected() {
    insta::assert_snapshot!(check("test_missing_capability", ScriptedPeer::default()).await, @"needs_capability: the client does not support `sampling`");
    let sampling = || ScriptedPeer::offering(&[InputRequestKind::Sample]);
    insta::assert_snapshot!(check("test_missing_capability", sampling()).await, @"The client offers sampling.");
    insta::assert_snapshot!(check("test_input_required_result_capabilities", sampling()).await, @r#"Sample `greeting`: {"messages":[{"role":"user","content":{"type":"text","text":"Generate a greeting"}}],"maxTokens":50}"#);
}

#[tokio::test]
async fn questions_and_answers() {
    let elicitation = "test_input_required_result_elicitation";
    insta::assert_snapshot!(check(elicitation, ScriptedPeer::answering(json!({}))).await, @r#"Elicit `user_name`: {"mode":"form","message":"What is your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}"#);
    insta::assert_snapshot!(check(elicitation, ScriptedPeer::willing()).await, @"Hello, Alice!");
    let declined = ScriptedPeer::answering(json!({ "user_name": { "action": "decline" } }));
    insta::assert_snapshot!(check(elicitation, declined).await, @"invalid_args: the form came back without `name`");
    insta::assert_snapshot!(check("test_input_required_result_multiple_inputs", ScriptedPeer::answering(json!({}))).await, @r#"
    Elicit `user_name`: {"mode":"form","message":"What is your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}
    Sample `greeting`: {"messages":[{"role":"user","content":{"type":"text","text":"Generate a greeting"}}],"maxTokens":50}
    Roots `client_roots`: {}
    "#);
    insta::assert_snapshot!(check("test_input_required_result_multiple_inputs", ScriptedPeer::willing()).await, @"name=Alice, greeting=Paris., roots=file:///test/root");
    insta::assert_snapshot!(check(r#"test_elicitation {"message":"Who?"}"#, ScriptedPeer::willing()).await, @r#"User response: action=accept, content={"name":"Alice","color":"blue","ok":true,"confirm":true,"context":"testing","username":"alice","email":"alice@example.com"}"#);
    insta::assert_snapshot!(check(r#"test_sampling {"prompt":"Capital?"}"#, ScriptedPeer::willing()).await, @"LLM response: Paris.");
}

#[tokio::test]
async fn one_round_follows_the_other() {
    let multi_round = "test_input_required_result_multi_round";
    let mut answers = json!({});
    insta::assert_snapshot!(check(multi_round, ScriptedPeer::answering(answers.clone())).await, @r#"Elicit `step1`: {"mode":"form","message":"Step 1: What is your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}"#);
    answers["step1"] = json!({ "action": "accept", "content": { "name": "Alice" } });
    insta::assert_snapshot!(check(multi_round, ScriptedPeer::answering(answers.clone())).await, @r#"Elicit `step2`: {"mode":"form","message":"Step 2: What is your favorite color?","requestedSchema":{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}}"#);
    answers["step2"] = json!({ "action": "accept", "content": { "color": "blue" } });
    insta::assert_snapshot!(check(multi_round, ScriptedPeer::answering(answers)).await, @"Alice likes blue.");
}

#[tokio::test(start_paused = true)]
async fn jobs() {
    let willing = ScriptedPeer::willing;
    insta::assert_snapshot!(check(r#"slow_compute {"seconds":60,"label":"long"}"#, willing()).await, @"Computed `long` in 60 s.");
    insta::assert_snapshot!(check(r#"slow_compute {"seconds":-1}"#, willing()).await, @"invalid_args: invalid arguments: `seconds` is -1, expected 0 to 100");
    insta::assert_snapshot!(check("failing_job", willing()).await, @"upstream: the job failed, as it always does");
    insta::assert_snapshot!(check("protocol_error_job", willing()).await, @"internal: something went wrong in the hub");
    insta::assert_snapshot!(check(r#"confirm_delete {"filename":"a.txt"}"#, willing()).await, @"Deleted a.txt.");
    let declined = ScriptedPeer::answering(json!({ "confirm": { "action": "decline" } }));
    insta::assert_snapshot!(check(r#"confirm_delete {"filename":"a.txt"}"#, declined).await, @"Kept a.txt.");
    insta::assert_snapshot!(check("multi_input", ScriptedPeer::answering(json!({}))).await, @r#"
    Elicit `name`: {"mode":"form","message":"What is your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}
    Elicit `confirm`: {"mode":"form","message":"Go on?","requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}}
    "#);
    insta::assert_snapshot!(check("multi_input", willing()).await, @"name=Alice, confirm=true");
    insta::assert_snapshot!(check("test_tool_with_task", willing()).await, @"Hello, Alice! The task is done.");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_computation_stops() {
    let cancel = CancellationToken::new();
    let ctx = CallCtx::new(cancel.clone(), Arc::new(NoPeer));
    let running = tokio::spawn(async move {
        call(&gate(), Target::Tool("slow_compute".to_owned()), r#"{"seconds":60}"#, ctx).await
    });
    tokio::task::yield_now().await;
    cancel.cancel();
    assert_eq!(seen(running.await.unwrap()), ["cancelled: cancelled by the caller"]);
}

#[tokio::test]
async fn changes_are_announced() {
    let gate = gate();
    let mut changes = gate.subscribe();
    for (tool, change) in [
        ("test_trigger_tool_change", CatalogChange::Tools),
        ("test_trigger_prompt_change", CatalogChange::Prompts),
    ] {
        call(&gate, Target::Tool(tool.to_owned()), "{}", CallCtx::detached()).await.unwrap();
        assert_eq!(changes.try_recv().unwrap(), change);
    }
}

#[tokio::test]
async fn prompts() {
    let willing = ScriptedPeer::willing;
    insta::assert_snapshot!(check("test_simple_prompt", willing()).await, @"This is a simple prompt for testing.");
    insta::assert_snapshot!(check(r#"test_prompt_with_arguments {"arg1":"a","arg2":"b"}"#, willing()).await, @"Prompt with arguments: arg1='a', arg2='b'");
    insta::assert_snapshot!(check(r#"test_prompt_with_arguments {"arg1":"a"}"#, willing()).await, @"invalid_args: invalid arguments: `arg2` is missing, expected a text");
    insta::assert_snapshot!(check(r#"test_prompt_with_embedded_resource {"resourceUri":"test://x"}"#, willing()).await, @"
    test://x text/plain: Embedded resource content for testing.
    Please process the embedded resource above.
    ");
    insta::assert_snapshot!(check("test_prompt_with_image", willing()).await, @"
    image image/png (96)
    Please analyze the image above.
    ");
    insta::assert_snapshot!(check("test_input_required_result_prompt", ScriptedPeer::answering(json!({}))).await, @r#"Elicit `user_context`: {"mode":"form","message":"What context should the prompt use?","requestedSchema":{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}}"#);
    insta::assert_snapshot!(check("test_input_required_result_prompt", willing()).await, @"Prompt with context: testing");
    let completion = r#"complete:test_prompt_with_arguments {"argument":{"name":"arg1","value":"test"}}"#;
    insta::assert_snapshot!(check(completion, willing()).await, @"
    testValue1
    testValue2
    ");
}

#[tokio::test]
async fn resources() {
    let none = ScriptedPeer::default;
    insta::assert_snapshot!(check("test://static-text", none()).await, @"test://static-text text/plain: This is the content of the static text resource.");
    insta::assert_snapshot!(check("test://static-binary", none()).await, @"test://static-binary image/png (96)");
    insta::assert_snapshot!(check("test://watched-resource", none()).await, @"test://watched-resource text/plain: Watched resource content");
    insta::assert_snapshot!(check("test://template/123/data", none()).await, @r#"test://template/123/data application/json: {"id":"123","templateTest":true,"data":"Data for ID: 123"}"#);
    insta::assert_snapshot!(check("test://template/1/2/data", none()).await, @"unknown: Unknown resource: test://template/1/2/data");
    insta::assert_snapshot!(check("test://nonexistent-resource-for-conformance-testing", none()).await, @"unknown: Unknown resource: test://nonexistent-resource-for-conformance-testing");
}
