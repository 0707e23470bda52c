//! Whose answer a line is that was too long to be kept.
//!
//! Only its edges are there, so only what stands at the top of the message can be told from what stands deep inside: members at
//! its very beginning, and at its very end. That is where everybody has the id, before the result or after it.

use portcullis_wire::frame::Edges;

const ID: &[u8] = b"\"id\"";
const JSONRPC: &[u8] = b"\"jsonrpc\"";
const VERSION: &[u8] = b"\"2.0\"";
/// What makes a message an answer. A question has an id too, but one of the server's own.
const ANSWERS: [&[u8]; 2] = [b"\"result\"", b"\"error\""];

/// Returns the request that a whole line answers.
pub(crate) fn answered(edges: &Edges) -> Option<u64> {
    let Begun { id } = begun(&edges.head)?;
    id.or_else(|| last_id(&edges.tail))
}

/// Returns the request that a line answers which goes on. How it ends is not known.
pub(crate) fn answers(edges: &Edges) -> Option<u64> {
    begun(&edges.head)?.id
}

/// An answer, as far as what it says has not begun.
struct Begun {
    id: Option<u64>,
}

/// Reads what stands before the result; `None` if this is no answer.
fn begun(head: &[u8]) -> Option<Begun> {
    let (mut rest, mut id) = (after(head, b"{")?, None);
    loop {
        if let Some(version) = member(rest, JSONRPC) {
            rest = after(version, VERSION)?;
        } else if let Some(said) = member(rest, ID) {
            let digits = said.iter().take_while(|byte| byte.is_ascii_digit()).count();
            id = Some(number(&said[..digits])?);
            rest = &said[digits..];
        } else {
            let is_answer = ANSWERS.iter().any(|key| member(rest, key).is_some());
            return is_answer.then_some(Begun { id });
        }
        rest = after(rest, b",")?;
    }
}

/// Reads the id where it is the last member, or the last but for the version. What stands right before the last brace of a
/// message is no part of anything inside it, and quotes inside of a text have a backslash before them.
fn last_id(tail: &[u8]) -> Option<u64> {
    let end = before(tail, b"}")?;
    let end =
        before(end, VERSION).and_then(|end| member_before(end, JSONRPC)).unwrap_or(end).trim_ascii_end();
    let digits = end.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, id) = end.split_at(end.len() - digits);
    member_before(rest, ID)?;
    number(id)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns what follows a key, from its value on.
fn member<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    after(after(text, key)?, b":").map(<[u8]>::trim_ascii_start)
}

fn after<'t>(text: &'t [u8], token: &[u8]) -> Option<&'t [u8]> {
    text.trim_ascii_start().strip_prefix(token)
}

/// Returns what stands before a member that is not the first one, where its value was.
fn member_before<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    before(before(before(text, b":")?, key)?, b",")
}

fn before<'t>(text: &'t [u8], token: &[u8]) -> Option<&'t [u8]> {
    text.trim_ascii_end().strip_suffix(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(head: &str, tail: &str) -> Edges {
        Edges { head: head.as_bytes().to_vec(), tail: tail.as_bytes().to_vec() }
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
            assert_eq!(answered(&edges(head, tail)), Some(7), "{head} {tail}");
        }
    }

    #[test]
    fn what_stands_elsewhere_is_no_id_of_an_answer() {
        for (head, tail) in [
            // Deep inside, or in a text.
            (r#"{"result":{"id":7,"content":[{"#, r#"x"}]}}"#),
            (r#"{"result":{"content":[{"#, r#"x"}],"id":7}}"#),
            (r#"{"result":{"content":[{"#, r#"x,\"id\":7}"}]},"jsonrpc":"2.0"}"#),
            (r#"{"result":{"a,\"id":7,"#, r#""\"id":7}"#),
            // Questions of the server's, and what is neither.
            (r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","#, r#"}}"#),
            (r#"{"method":"sampling/createMessage","params":{"#, r#"},"id":7}"#),
            (r#"{"jsonrpc":"2.0","id":7}"#, r#"{"jsonrpc":"2.0","id":7}"#),
            (r#"[{"jsonrpc":"2.0","id":7,"result":{"#, r#"},"id":7}]"#),
            ("xxxx", r#","id":7}"#),
            // Ids that are none of ours.
            (r#"{"jsonrpc":"2.0","id":"7","result":{"#, r#"}}"#),
            (r#"{"result":{"#, r#"},"id":-7}"#),
            (r#"{"result":{"#, r#"},"id":7.5}"#),
            (r#"{"result":{"#, r#"},"id":77777777777777777777777}"#),
            ("", ""),
        ] {
            assert_eq!(answered(&edges(head, tail)), None, "{head} {tail}");
        }
    }

    #[test]
    fn a_line_that_goes_on_is_known_by_its_beginning_alone() {
        assert_eq!(answers(&edges(r#"{"jsonrpc":"2.0","id":7,"result":{"#, "x")), Some(7));
        assert_eq!(answers(&edges(r#"{"result":{"list":[{"#, r#"},{"a":1,"id":7}"#)), None);
    }
}
