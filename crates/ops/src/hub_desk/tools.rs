//! Tools, and calls from the admin page.

use super::HubDesk;
use super::overview::micros;
use crate::desk::{ToolDetail, ToolList, TryTool, TryToolResult};
use crate::{Actor, Problem};
use portcullis_core::json::printable;
use portcullis_core::{Arguments, HubCall, Origin, Principal, Target, ToolDef};
use portcullis_wire::{Revision, render};
use serde_json::{Value, json};
use std::time::Instant;

impl HubDesk {
    pub(super) fn list_tools(&self) -> ToolList {
        let all = self.live.registry.tools();
        ToolList {
            tools: all.iter().filter(|tool| tool.withheld.is_none()).map(|tool| shown(tool)).collect(),
        }
    }

    pub(super) fn show_tool(&self, name: &str) -> Result<ToolDetail, Problem> {
        let all = self.live.registry.tools();
        let found = all.iter().find(|tool| tool.name == name && tool.withheld.is_none());
        found
            .map(|tool| shown(tool))
            .ok_or_else(|| Problem::not_found(format!("no such tool: `{}`", printable(name))))
    }

    pub(super) async fn call_tool(
        &self,
        name: String,
        TryTool { arguments }: TryTool,
        actor: Actor,
    ) -> Result<TryToolResult, Problem> {
        if !arguments.is_object() {
            return Err(Problem::invalid("`arguments` must be a JSON object"));
        }
        let tools = self.live.registry.tools();
        let style =
            tools.iter().find(|tool| tool.name == name).map(|tool| tool.error_style).unwrap_or_default();
        let target = Target::Tool(name.clone());
        let call = HubCall::new(target.clone(), Arguments::of(&arguments));
        let (id, trail) = (call.id(), call.trail());
        let began = Instant::now();
        let administrator = Principal::administrator(actor.principal());
        let outcome = self.live.gate.call_as(&administrator, Origin::Admin, call).await;
        let duration_us = micros(began.elapsed());
        let revision = Revision::NEWEST_WITH_SESSIONS;
        let (word, answer) = match &outcome {
            Ok(output) => (None, Ok(render::output(revision, &target, output))),
            Err(error) => (Some(error.kind.code()), render::failure(revision, &target, style, error)),
        };
        let request = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "arguments": arguments },
        });
        let reply = match answer {
            Ok(result) => {
                let result: Value = serde_json::from_slice(&result)
                    .map_err(|_| Problem::internal("the response is not JSON"))?;
                json!({ "jsonrpc": "2.0", "id": 1, "result": result })
            }
            Err(error) => {
                let error = json!({ "code": error.code, "message": error.message, "data": error.data });
                json!({ "jsonrpc": "2.0", "id": 1, "error": error })
            }
        };
        let says_error = reply["result"]["isError"].as_bool().unwrap_or(false);
        let is_error = says_error || reply.get("error").is_some();
        let outcome = word.unwrap_or(if says_error { "tool_error" } else { "ok" });
        let decision = trail.decision.get();
        Ok(TryToolResult {
            call: id.get(),
            request,
            reply,
            is_error,
            outcome: outcome.to_owned(),
            decision: decision.map(|decision| decision.as_str().to_owned()),
            rule: decision.map(|decision| decision.rule().to_owned()),
            duration_us,
        })
    }
}

fn shown(tool: &ToolDef) -> ToolDetail {
    ToolDetail {
        name: tool.name.clone(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        effect: tool.effect.as_str().to_owned(),
        reach: tool.reach.as_str().to_owned(),
        provider: tool.provider().to_owned(),
        input_schema: tool.input_schema.clone(),
        output_schema: tool.output_schema.clone(),
    }
}
