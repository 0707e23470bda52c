//! Correlation id of a response line that is over the size limit.
//!
//! Only the edges of the line are kept, so only members at the very beginning or end of the message can be told from
//! nested ones. That is where every implementation writes the id.

use portcullis_wire::frame::LineEdges;

const ID: &[u8] = b"\"id\"";
const JSONRPC: &[u8] = b"\"jsonrpc\"";
const VERSION: &[u8] = b"\"2.0\"";
/// What makes a message a response. A request of the server has an id too, but the server's.
const ANSWERS: [&[u8]; 2] = [b"\"result\"", b"\"error\""];

/// Returns the request that a complete line responds to.
pub(crate) fn id_of_complete_line(edges: &LineEdges) -> Option<u64> {
    let AnswerHead { id } = begun(&edges.head)?;
    id.or_else(|| last_id(&edges.tail))
}

/// Returns the request that an unfinished line responds to.
pub(crate) fn id_of_open_line(edges: &LineEdges) -> Option<u64> {
    begun(&edges.head)?.id
}

/// The members of a response before its result.
struct AnswerHead {
    id: Option<u64>,
}

/// Reads the members before the result; `None` if this is no response.
fn begun(head: &[u8]) -> Option<AnswerHead> {
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
            return is_answer.then_some(AnswerHead { id });
        }
        rest = after(rest, b",")?;
    }
}

/// Reads the id where it is the last member, or the last but for the version. What precedes the last brace of a
/// message is not nested, and quotes inside of a string are escaped.
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

/// Returns the text from the value of a key on.
fn member<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    after(after(text, key)?, b":").map(<[u8]>::trim_ascii_start)
}

fn after<'t>(text: &'t [u8], token: &[u8]) -> Option<&'t [u8]> {
    text.trim_ascii_start().strip_prefix(token)
}

/// Returns the text before a member that is not the first one, where its value was.
fn member_before<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    before(before(before(text, b":")?, key)?, b",")
}

fn before<'t>(text: &'t [u8], token: &[u8]) -> Option<&'t [u8]> {
    text.trim_ascii_end().strip_suffix(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(head: &str, tail: &str) -> LineEdges {
        LineEdges { head: head.as_bytes().to_vec(), tail: tail.as_bytes().to_vec() }
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
            assert_eq!(id_of_complete_line(&edges(head, tail)), Some(7), "{head} {tail}");
        }
    }

    #[test]
    fn what_stands_elsewhere_is_no_id_of_an_answer() {
        for (head, tail) in [
            // Nested, or in a string.
            (r#"{"result":{"id":7,"content":[{"#, r#"x"}]}}"#),
            (r#"{"result":{"content":[{"#, r#"x"}],"id":7}}"#),
            (r#"{"result":{"content":[{"#, r#"x,\"id\":7}"}]},"jsonrpc":"2.0"}"#),
            (r#"{"result":{"a,\"id":7,"#, r#""\"id":7}"#),
            // Requests of the server, and other messages.
            (r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","#, r#"}}"#),
            (r#"{"method":"sampling/createMessage","params":{"#, r#"},"id":7}"#),
            (r#"{"jsonrpc":"2.0","id":7}"#, r#"{"jsonrpc":"2.0","id":7}"#),
            (r#"[{"jsonrpc":"2.0","id":7,"result":{"#, r#"},"id":7}]"#),
            ("xxxx", r#","id":7}"#),
            // Ids that the hub does not use.
            (r#"{"jsonrpc":"2.0","id":"7","result":{"#, r#"}}"#),
            (r#"{"result":{"#, r#"},"id":-7}"#),
            (r#"{"result":{"#, r#"},"id":7.5}"#),
            (r#"{"result":{"#, r#"},"id":77777777777777777777777}"#),
            ("", ""),
        ] {
            assert_eq!(id_of_complete_line(&edges(head, tail)), None, "{head} {tail}");
        }
    }

    #[test]
    fn a_line_that_goes_on_is_known_by_its_beginning_alone() {
        assert_eq!(id_of_open_line(&edges(r#"{"jsonrpc":"2.0","id":7,"result":{"#, "x")), Some(7));
        assert_eq!(id_of_open_line(&edges(r#"{"result":{"list":[{"#, r#"},{"a":1,"id":7}"#)), None);
    }
}
