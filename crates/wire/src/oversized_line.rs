//! Correlation id of a message whose line is over the size limit.
//!
//! Only the edges of the line are kept, so only members at the very beginning or end of the message can be told from
//! nested ones. That is where every implementation writes the id. Two ids, or none that is certain, are no id.

use crate::frame::LineEdges;
use crate::message::RequestId;

const ID: &[u8] = b"\"id\"";
const METHOD: &[u8] = b"\"method\"";
const PARAMS: &[u8] = b"\"params\"";
/// What makes a message a response. A request of the other side has an id too, but the other side's.
const OUTCOMES: [&[u8]; 2] = [b"\"result\"", b"\"error\""];

/// Whether a line has been read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineState {
    Complete,
    /// What was read last may be anywhere in the message.
    Open,
}

/// Returns the id of the request that a complete line holds.
pub fn request_id(edges: &LineEdges) -> Option<RequestId> {
    let (head, tail) = (EdgeMembers::of_head(&edges.head)?, EdgeMembers::of_tail(&edges.tail));
    let is_request = head.open == Some(PARAMS) || head.has_method || tail.has_method;
    if !is_request || head.is_response() {
        return None;
    }
    head.only_id(&tail)
}

/// Returns the request that a line responds to.
pub fn response_id(edges: &LineEdges, state: LineState) -> Option<RequestId> {
    let head = EdgeMembers::of_head(&edges.head)?;
    let tail = match state {
        LineState::Complete => EdgeMembers::of_tail(&edges.tail),
        LineState::Open => EdgeMembers::default(),
    };
    if !head.is_response() || head.has_method || tail.has_method {
        return None;
    }
    head.only_id(&tail)
}

/// The members at one edge of a message, up to the first whose value is an object or a list, or does not end there.
#[derive(Debug, Default)]
struct EdgeMembers<'t> {
    ids: Vec<&'t [u8]>,
    has_method: bool,
    /// The name of the member at which the head ends.
    open: Option<&'t [u8]>,
}

impl<'t> EdgeMembers<'t> {
    /// Reads the members from the first brace on; `None` if this is no object.
    fn of_head(head: &'t [u8]) -> Option<EdgeMembers<'t>> {
        let (mut members, mut rest) = (EdgeMembers::default(), after(head, b"{")?);
        while let Some((name, rest_of_member)) = string(rest)
            && let Some(value) = after(rest_of_member, b":")
        {
            let Some((value, following)) = scalar(value) else {
                members.open = Some(name);
                break;
            };
            members.add(name, value);
            let Some(next) = after(following, b",") else { break };
            rest = next;
        }
        Some(members)
    }

    /// Reads the members before the last brace, which is the message's own.
    fn of_tail(tail: &'t [u8]) -> EdgeMembers<'t> {
        let mut members = EdgeMembers::default();
        let mut rest = before(tail, b"}");
        while let Some(end) = rest
            && let Some((start, value)) = scalar_before(end)
            && let Some((start, name)) = before(start, b":").and_then(string_before)
            // Not the first member: then the whole message would be in both edges.
            && let Some(next) = before(start, b",")
        {
            members.add(name, value);
            rest = Some(next);
        }
        members
    }

    fn add(&mut self, name: &[u8], value: &'t [u8]) {
        match name {
            ID => self.ids.push(value),
            METHOD => self.has_method = true,
            _ => {}
        }
    }

    fn is_response(&self) -> bool {
        self.open.is_some_and(|open| OUTCOMES.contains(&open))
    }

    fn only_id(&self, tail: &EdgeMembers<'_>) -> Option<RequestId> {
        match (&self.ids[..], &tail.ids[..]) {
            ([id], []) | ([], [id]) => RequestId::parse(std::str::from_utf8(id).ok()?),
            _ => None,
        }
    }
}

fn after<'t>(text: &'t [u8], token: &[u8]) -> Option<&'t [u8]> {
    text.trim_ascii_start().strip_prefix(token)
}

fn before<'t>(text: &'t [u8], token: &[u8]) -> Option<&'t [u8]> {
    text.trim_ascii_end().strip_suffix(token)
}

/// Splits a string from the beginning, with its quotes.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let mut inside = text.strip_prefix(b"\"")?.iter().enumerate();
    while let Some((at, byte)) = inside.next() {
        match byte {
            b'\\' => {
                inside.next();
            }
            b'"' => return text.split_at_checked(at + 2),
            _ => {}
        }
    }
    None
}

/// Splits a string from the end, with its quotes.
fn string_before(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_end();
    let is_quote = |at: usize| text.get(at) == Some(&b'"') && !is_escaped(&text[..at]);
    let end = text.len().checked_sub(1).filter(|at| is_quote(*at))?;
    // Quotes inside of the string are escaped.
    let start = (0..end).rev().find(|at| is_quote(*at))?;
    text.split_at_checked(start)
}

/// Returns whether a byte after this text would be escaped, in a string.
fn is_escaped(text: &[u8]) -> bool {
    text.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Splits a string, a number or a word from the beginning, if something follows it.
fn scalar(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    if text.starts_with(b"\"") {
        return string(text);
    }
    let bytes = text.iter().take_while(|byte| is_of_scalar(**byte)).count();
    (bytes > 0 && bytes < text.len()).then(|| text.split_at(bytes))
}

/// Splits a string, a number or a word from the end.
fn scalar_before(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_end();
    if text.ends_with(b"\"") {
        return string_before(text);
    }
    let bytes = text.iter().rev().take_while(|byte| is_of_scalar(**byte)).count();
    (bytes > 0).then(|| text.split_at(text.len() - bytes))
}

fn is_of_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(head: &str, tail: &str) -> LineEdges {
        LineEdges { head: head.as_bytes().to_vec(), tail: tail.as_bytes().to_vec() }
    }

    fn answered(head: &str, tail: &str) -> Option<String> {
        response_id(&edges(head, tail), LineState::Complete).map(|id| id.to_value().to_string())
    }

    fn requested(head: &str, tail: &str) -> Option<String> {
        request_id(&edges(head, tail)).map(|id| id.to_value().to_string())
    }

    #[test]
    fn an_id_is_found_before_and_after_the_result() {
        let none = r#"x"}]}}"#;
        for (head, tail) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"#, none),
            (r#" { "jsonrpc": "2.0", "id": 7, "result": {"content""#, none),
            (r#"{"id":7,"jsonrpc":"2.0","error":{"code":-1,"#, none),
            (r#"{"id":7,"result":{"content":[{"#, r#"x"}]},"jsonrpc":"2.0"}"#),
            (r#"{"result":{"content":[{"#, r#"x"}]},"jsonrpc":"2.0","id":7}"#),
            (r#"{"result":{"content":[{"#, r#"x"}]},"id":7,"jsonrpc":"2.0"}"#),
            (r#"{"jsonrpc":"2.0","result":{"content":[{"#, "x\"}]}, \"id\": 7 } \t"),
        ] {
            assert_eq!(answered(head, tail).as_deref(), Some("7"), "{head} {tail}");
        }
    }

    #[test]
    fn what_stands_elsewhere_is_no_id_of_an_answer() {
        for (head, tail) in [
            // Nested, or in a string.
            (r#"{"result":{"id":7,"content":[{"#, r#"x"}]}}"#),
            (r#"{"result":{"content":[{"#, r#"x"}],"id":7}}"#),
            (r#"{"result":{"content":[{"#, r#"x,\"id\":7}"}]},"jsonrpc":"2.0"}"#),
            (r#"{"result":{"a,\"id\":7,"#, r#""\"id\":7}"#),
            // Requests of the server, and other messages.
            (r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","#, r#"}}"#),
            (r#"{"method":"sampling/createMessage","params":{"#, r#"},"id":7}"#),
            (r#"{"jsonrpc":"2.0","id":7}"#, r#"{"jsonrpc":"2.0","id":7}"#),
            (r#"[{"jsonrpc":"2.0","id":7,"result":{"#, r#"},"id":7}]"#),
            ("xxxx", r#","id":7}"#),
            // No ids.
            (r#"{"result":{"#, r#"},"id":7.5}"#),
            (r#"{"id":7,"result":{"#, r#"},"id":8}"#),
            ("", ""),
        ] {
            assert_eq!(answered(head, tail), None, "{head} {tail}");
        }
    }

    #[test]
    fn a_line_that_goes_on_is_known_by_its_beginning_alone() {
        let known = |head, tail| response_id(&edges(head, tail), LineState::Open);
        assert_eq!(known(r#"{"jsonrpc":"2.0","id":7,"result":{"#, "x"), Some(RequestId::Number(7)));
        assert_eq!(known(r#"{"result":{"list":[{"#, r#"},{"a":1,"id":7}"#), None);
    }

    #[test]
    fn the_id_of_a_request_is_found_before_and_after_its_parameters() {
        let (head, tail) = (r#"{"path":"a.md","content":"xx"#, r#"xx"}}"#);
        for (id, said) in [("7", "7"), (r#""a\"b\\""#, r#""a\"b\\""#), ("-7", "-7"), (r#""""#, r#""""#)] {
            for (head, tail) in [
                (
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{head}"#),
                    tail.to_owned(),
                ),
                (format!(r#"{{ "method" : "tools/call" , "id" : {id} , "params" : {head}"#), tail.to_owned()),
                (format!(r#"{{"id":{id},"params":{head}"#), format!(r#"{tail},"method":"tools/call"}}"#)),
                (format!(r#"{{"params":{head}"#), format!(r#"{tail},"method":"tools/call","id":{id}}}"#)),
                (
                    format!(r#"{{"method":"tools/call","params":{head}"#),
                    format!("{tail} , \"jsonrpc\" : \"2.0\" , \"id\" : {id} }} \t"),
                ),
            ] {
                assert_eq!(requested(&head, &tail).as_deref(), Some(said), "{head} {tail}");
            }
        }
    }

    #[test]
    fn what_stands_elsewhere_is_no_id_of_a_request() {
        let head = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x","arguments":{"#;
        for (head, tail) in [
            // Nested, or in a string.
            (r#"{"method":"tools/call","params":{"id":7,"name":"x","#, r#"xx"}}"#),
            (head, r#"xx","id":7}}}"#),
            (head, r#"xx,\"id\":7}"}}}"#),
            (head, r#"xx"}},"x":"a,\"id\":7"}"#),
            (head, r#"xx"}},"x,\"id":7}"#),
            (r#"{"method":"tools/call, \"id\":7,"#, r#"xx"}}"#),
            (r#"{"method":"tools/call","ID":7,"params":{"#, r#"xx"}}"#),
            // Two of them, one that is cut off, and what is none.
            (r#"{"id":7,"method":"tools/call","params":{"#, r#"xx"},"id":7}"#),
            (r#"{"id":7,"id":7,"method":"tools/call","params":{"#, r#"xx"}}"#),
            (r#"{"method":"tools/call","id":7"#, r#"xx"}}"#),
            (r#"{"method":"tools/call","id":"7"#, r#"xx"}}"#),
            (r#"{"id":null,"method":"tools/call","params":{"#, r#"xx"}}"#),
            (r#"{"id":7.5,"method":"tools/call","params":{"#, r#"xx"}}"#),
            (r#"{"id":[7],"method":"tools/call","params":{"#, r#"xx"}}"#),
            // A response to the hub, a batch, and no message.
            (r#"{"jsonrpc":"2.0","id":7,"result":{"#, r#"xx"}}"#),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"#, r#"xx"},"method":"x"}"#),
            (r#"[{"id":7,"method":"tools/call","params":{"#, r#"xx"}}]"#),
            (r#"{"id":7,"x":{"#, r#"xx"}}"#),
            ("xxxx", r#","method":"x","id":7}"#),
            ("", ""),
        ] {
            assert_eq!(requested(head, tail), None, "{head} {tail}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_edges_are_read(head: Vec<u8>, tail: Vec<u8>) {
            let edges = LineEdges { head, tail };
            let _ = (request_id(&edges), response_id(&edges, LineState::Complete));
        }
    }
}
