//! Calls that the hub makes itself, and calls within them.

use super::*;
use crate::call::{Arguments, CallId, Client, OriginSet, Scope};
use crate::context::CallCtx;
use crate::family::{Family, Text};
use crate::owner::OwnerId;
use crate::principal::GateHandle;
use crate::tool::{CallLimits, Example, ToolSpec};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

const NEST: ToolSpec = ToolSpec {
    name: "nest",
    title: "Nest",
    description: "Calls itself.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "Nest", arguments: "{}" },
};

#[derive(Deserialize, JsonSchema)]
struct NestArgs {
    /// How many calls are nested in this one.
    times: usize,
}

/// Calls itself as a script would.
async fn nest(gate: Arc<GateHandle>, args: NestArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let Some(times) = args.times.checked_sub(1) else { return Ok(Text("done".to_owned())) };
    let arguments = Arguments::of(&serde_json::json!({ "times": times }));
    let inner = HubCall::within(&ctx, Target::Tool("nest".to_owned()), arguments, CallCtx::detached());
    gate.get().unwrap().call_as(&ctx.principal(), Origin::Script, inner).await?;
    Ok(Text("done".to_owned()))
}

/// What a layer sees of a call.
#[derive(Debug, Clone, PartialEq)]
struct SeenCall {
    id: CallId,
    within: Option<CallId>,
    origin: Origin,
    ancestors: OriginSet,
    via: Option<String>,
    allow: String,
}

#[derive(Default)]
struct Watching(Mutex<Vec<SeenCall>>, Mutex<Vec<String>>);

impl Layer for Arc<Watching> {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let caller = call.caller();
        self.0.lock().push(SeenCall {
            id: call.id,
            within: call.trail.within,
            origin: caller.origin,
            ancestors: caller.ancestors,
            via: call.trail.via().map(str::to_owned),
            allow: caller.client.scope.allow.globs()[0].to_string(),
        });
        next.run(call)
    }

    fn record<'a>(
        &'a self,
        event: &'a Event,
        ended: Result<(), ErrorKind>,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let Event { caller, kind, target, details, .. } = event;
        let (client, origin) = (&caller.client.name, caller.origin.as_str());
        self.1.lock().push(format!("{client} by {origin}: {kind} {target} {details} {ended:?}"));
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Makes one call with so many nested in it, for `owner`, where only `ada` with token 7 is known.
async fn run(owner: OwnerId, times: usize) -> (Outcome, Arc<Watching>) {
    let (registry, handle) = (Registry::default(), GateHandle::default());
    registry.add(Family::new("nest").tool(NEST, &Arc::new(handle.clone()), nest)).unwrap();
    let watching = Arc::new(Watching::default());
    let ada = Arc::new(Client { name: "ada".to_owned(), scope: Scope::everything(), token: Some(7) });
    let gate = Gate::new(registry, vec![Box::new(watching.clone())]).with_owners(Arc::new(ada));
    let gate = Arc::new(gate);
    handle.connect(&gate);
    let scope = Scope { allow: crate::pattern::Pattern::new(&["nes*"]).unwrap(), ..Scope::everything() };
    let principal = Principal::of(owner).narrowed(scope).acting_via("schedule:daily");
    let call =
        HubCall::new(Target::Tool("nest".to_owned()), Arguments::of(&serde_json::json!({ "times": times })));
    let outcome = gate.call_as(&principal, Origin::Schedule, call).await;
    (outcome, watching)
}

fn ada() -> OwnerId {
    OwnerId { name: "ada".to_owned(), token: Some(7) }
}

#[tokio::test]
async fn a_nested_call_keeps_its_principal_its_parent_and_all_origins() {
    let (outcome, watching) = run(ada(), 2).await;
    outcome.unwrap();
    let seen = watching.0.lock().clone();
    let [first, second, third] = seen.as_slice() else { panic!("{seen:?}") };
    let same = |call: &SeenCall| (call.via.clone(), call.allow.clone());
    for call in &seen {
        assert_eq!(same(call), (Some("schedule:daily".to_owned()), "nes*".to_owned()));
    }
    assert_eq!((first.within, second.within, third.within), (None, Some(first.id), Some(second.id)));
    assert_eq!((first.origin, second.origin), (Origin::Schedule, Origin::Script));
    assert_eq!(first.ancestors, OriginSet::NONE);
    assert_eq!(second.ancestors, OriginSet::NONE.with(Origin::Schedule));
    assert_eq!(third.ancestors, OriginSet::NONE.with(Origin::Schedule).with(Origin::Script));
}

#[tokio::test]
async fn nesting_has_a_bound() {
    let (outcome, watching) = run(ada(), 1_000).await;
    assert_eq!(outcome.unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(watching.0.lock().len(), 17);
}

#[tokio::test]
async fn a_call_without_an_owner_is_refused_and_recorded() {
    for token in [None, Some(8)] {
        let (outcome, watching) = run(OwnerId { token, ..ada() }, 0).await;
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::Denied);
        assert!(watching.0.lock().is_empty());
        let recorded = r#"ada by schedule: tool nest {"via":"schedule:daily"} Err(Denied)"#;
        assert_eq!(*watching.1.lock(), [recorded]);
    }
}
