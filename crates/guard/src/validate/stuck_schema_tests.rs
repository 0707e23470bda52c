//! The attack: an upstream schema that is slow to evaluate. Only calls of that server's tools may be delayed.

use super::*;
use crate::contain::ContainmentLayer;
use crate::testing::{call, outcome_text};
use portcullis_core::{
    CallLimits, Catalog, Definition, Effect, Gate, Output, Permit, Provider, Reach, Registry, ToolOutput,
};
use serde_json::{json, value::RawValue};
use std::sync::mpsc;
use std::thread::ThreadId;
use std::time::Duration;

/// A server with one tool, whose arguments are validated by the test.
struct Server {
    name: &'static str,
    tool: Arc<ToolDef>,
}

impl Server {
    fn new(name: &'static str, schema: Value) -> Server {
        let (tool, nothing) = (format!("{name}_do"), Definition::new(RawValue::NULL.to_owned()));
        let limits = CallLimits { deadline_ms: 1_000, ..CallLimits::DEFAULT };
        let (title, text, owner) = (String::new(), String::new(), name.to_owned());
        let (effect, reach) = (Effect::Read, Reach::Outside);
        let def = ToolDef::foreign(owner, tool, title, text, effect, reach, limits, schema, None, nothing);
        Server { name, tool: Arc::new(def) }
    }

    fn checked_by(name: &'static str, check: impl Fn() + Send + Sync + 'static) -> Server {
        // Not decided by the fast path.
        let server = Server::new(name, json!({ "type": "object", "minProperties": 0 }));
        assert!(server.tool.check_with(|_| Ok(Box::new(Checked(check)))).is_ok());
        server
    }
}

struct Checked<F>(F);

impl<F: Fn() + Send + Sync> ArgumentCheck for Checked<F> {
    fn check(&self, _: &Value) -> Result<(), ArgumentRejection> {
        self.0();
        Ok(())
    }
}

impl Provider for Server {
    fn name(&self) -> &str {
        self.name
    }

    fn catalog(&self) -> Catalog {
        Catalog { tools: vec![self.tool.clone()], ..Catalog::default() }
    }

    fn call(&self, _: Permit, _: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(async { Ok(Output::Tool(ToolOutput::text("done"))) })
    }
}

fn gate_to(servers: Vec<Server>) -> Arc<Gate> {
    let registry = Registry::default();
    for server in servers {
        registry.add(server).unwrap();
    }
    let layers: Vec<Box<dyn Layer>> =
        vec![Box::new(ContainmentLayer::new(CallLimits::CEILING)), Box::new(ValidationLayer::default())];
    Arc::new(Gate::new(registry, layers))
}

/// Fails for a validation on a worker.
fn off_the_workers(worker: ThreadId, compared_on: ThreadId) -> Result<(), &'static str> {
    if worker == compared_on { Err("it was compared on a worker") } else { Ok(()) }
}

#[tokio::test]
async fn a_servers_schema_is_compared_off_the_workers() {
    let (on, compared_on) = mpsc::channel();
    let checked = move || on.send(std::thread::current().id()).unwrap();
    let server = Server::checked_by("slow", checked);
    let (tool, worker) = (server.tool.clone(), std::thread::current().id());
    assert_eq!(outcome_text(&gate_to(vec![server]).call(call("slow_do {}")).await), "ok: done");
    assert_eq!(off_the_workers(worker, compared_on.recv().unwrap()), Ok(()));
    // Control: validates inline.
    check_arguments(&tool, &Arguments::of(&json!({}))).unwrap();
    assert!(off_the_workers(worker, compared_on.recv().unwrap()).is_err());
}

#[tokio::test]
async fn a_comparison_that_does_not_end_costs_nobody_else_anything() {
    let (began, mut has_begun) = tokio::sync::mpsc::channel(8);
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let stuck = Server::checked_by("stuck", move || {
        began.try_send(()).unwrap();
        let _ = released.lock().recv();
    });
    let gate = gate_to(vec![stuck, Server::checked_by("quick", || {})]);
    tokio::time::pause();
    let calls: Vec<_> = (0..VALIDATIONS_PER_SERVER_MAX + 2)
        .map(|_| {
            let gate = gate.clone();
            tokio::spawn(async move { outcome_text(&gate.call(call("stuck_do {}")).await) })
        })
        .collect();
    for _ in 0..VALIDATIONS_PER_SERVER_MAX {
        has_begun.recv().await.unwrap();
    }
    // There is one worker here, and it is free.
    assert_eq!(outcome_text(&gate.call(call("quick_do {}")).await), "ok: done");
    tokio::time::advance(Duration::from_secs(2)).await;
    for ended in calls {
        assert!(ended.await.unwrap().starts_with("timeout: no answer within 1000 ms"));
    }
    // Queued calls never took a thread.
    assert!(has_begun.try_recv().is_err());
    assert_eq!(outcome_text(&gate.call(call("quick_do {}")).await), "ok: done");
    drop(release);
}

// Time is paused during a validation.
#[tokio::test(start_paused = true)]
async fn what_doubles_with_the_arguments_is_refused_and_counted() {
    let twice = json!({ "properties": { "a": { "$ref": "#" } } });
    let schema = json!({ "type": "object", "anyOf": [twice, twice] });
    let gate = gate_to(vec![Server::new("doubling", schema)]);
    let nested = |depth| (0..depth).fold(json!({}), |inner, _| json!({ "a": inner }));
    let ask = |depth: usize| format!("doubling_do {}", nested(depth));
    assert_eq!(outcome_text(&gate.call(call(&ask(4))).await), "ok: done");
    let before = Limit::ValidationSteps.hits();
    assert_eq!(
        outcome_text(&gate.call(call(&ask(60))).await),
        "invalid_args: comparing these arguments with the schema of tool `doubling_do` is too much work: it takes more \
         than 10000000 steps\nhint: give it less at once, or nest it less deeply"
    );
    assert_eq!(Limit::ValidationSteps.hits(), before + 1);
}

#[tokio::test]
async fn a_schema_beyond_the_budget_is_never_compared_with() {
    let next = |at: usize| json!({ "$ref": format!("#/$defs/d{at}") });
    let mut defs: serde_json::Map<_, _> =
        (0..40).map(|at| (format!("d{at}"), json!({ "anyOf": [next(at + 1), next(at + 1)] }))).collect();
    defs.insert("d40".to_owned(), json!({ "type": "string" }));
    let schema = json!({ "type": "object", "properties": { "a": next(0) }, "$defs": defs });
    let outcome = gate_to(vec![Server::new("bomb", schema)]).call(call(r#"bomb_do {"a":1}"#)).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.message, "the schema of tool `bomb_do` cannot be understood");
    let why = error.source.unwrap().to_string();
    assert_eq!(why, "it takes more than 100000 steps to compare a value with it");
}
