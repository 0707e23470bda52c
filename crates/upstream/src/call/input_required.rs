//! Results of the newer era that ask for input instead of ending the call.

use crate::rpc::{Demux, elicitation};
use portcullis_core::{
    ErrorKind, InputRequest, InputRequestKind, KeyedInputRequest, OWN_KEYS, ToolError, json,
};
use portcullis_wire::era;
use portcullis_wire::params::RawMembers;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An `input_required` result.
pub(super) struct InputRequiredResult {
    pub(super) questions: Vec<KeyedInputRequest>,
    /// The state that the server wants back with the answers.
    pub(super) state: Option<String>,
    /// All other members.
    pub(super) more: Map<String, Value>,
}

/// Returns the questions of a result, if it is `input_required`.
pub(super) fn questions_of(
    demux: &Demux,
    result: &RawValue,
) -> Result<Option<InputRequiredResult>, ToolError> {
    // Most results are passed on unparsed. The type may be written with escapes.
    let text = result.get();
    if !text.starts_with('{') || !(text.contains("\"input_required\"") || text.contains("\\u")) {
        return Ok(None);
    }
    let unreadable = || ToolError::new(ErrorKind::Upstream, "the server's question cannot be read");
    let fields: RawMembers<'_> = serde_json::from_str(result.get()).map_err(|_| unreadable())?;
    let kind = fields.get("resultType").and_then(|kind| serde_json::from_str::<String>(kind.get()).ok());
    if kind.is_none_or(|kind| kind != "input_required") {
        return Ok(None);
    }
    let said = json::parse_exact(result.get()).map_err(|error| unreadable().caused_by(error))?;
    let Value::Object(mut more) = said else { return Err(unreadable()) };
    more.remove("resultType");
    let requests = match more.remove("inputRequests").unwrap_or_default() {
        Value::Object(requests) => requests,
        Value::Null => Map::new(),
        _ => return Err(unreadable()),
    };
    let state = match more.remove("requestState").unwrap_or_default() {
        Value::String(state) => Some(state),
        Value::Null => None,
        _ => return Err(unreadable()),
    };
    Ok(Some(InputRequiredResult { questions: questions(demux, requests)?, state, more }))
}

/// Parses input requests, by their keys.
pub(super) fn questions(
    demux: &Demux,
    requests: Map<String, Value>,
) -> Result<Vec<KeyedInputRequest>, ToolError> {
    let mut questions = Vec::with_capacity(requests.len());
    for (key, mut request) in requests {
        let kinds = [InputRequestKind::Elicit, InputRequestKind::Sample, InputRequestKind::Roots];
        let kind = kinds.into_iter().find(|kind| request["method"] == era::ask_method(*kind));
        let params = request["params"].take();
        let kind = kind.filter(|kind| era::is_askable(*kind, &params) && !key.starts_with(OWN_KEYS));
        let Some(kind) = kind else {
            return Err(ToolError::new(
                ErrorKind::Upstream,
                "the server asks for something that no client supports",
            ));
        };
        let mut ask = InputRequest { kind, params };
        elicitation::check_key(&key).and_then(|()| demux.elicitations.make_presentable(&mut ask)).map_err(
            |why| ToolError::new(ErrorKind::Upstream, format!("the server's question is not shown: {why}")),
        )?;
        questions.push(KeyedInputRequest { key, ask });
    }
    Ok(questions)
}
