//! Resource URIs of workspace files, like `workspace:///notes/todo.md`.
//!
//! Invariant: each file has exactly one URI. Policy rules match URIs as text, and a second spelling would bypass them.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use portcullis_core::ToolError;
use portcullis_core::json::printable;
use portcullis_core::root::RootedPath;

pub(super) const PREFIX: &str = "workspace:///";
pub(super) const TEMPLATE: &str = "workspace:///{+path}";

/// The characters to percent-encode: all but those that RFC 3986 allows in a path, as in an expanded template.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/');

/// Returns the URI of a file.
pub(super) fn of(path: &RootedPath) -> String {
    format!("{PREFIX}{}", utf8_percent_encode(path.as_str(), ESCAPED))
}

/// Returns the file of a URI.
pub(super) fn parse(uri: &str) -> Result<RootedPath, ToolError> {
    let unknown = || ToolError::not_found("resource", uri).hint("`resources/list` shows what exists");
    let escaped = uri.strip_prefix(PREFIX).ok_or_else(unknown)?;
    let text = percent_decode_str(escaped).decode_utf8().map_err(|_| unknown())?;
    let path = RootedPath::parse(&text)
        .map_err(|error| error.into_tool_error("resource", &text, "resources/list"))?;
    let canonical = of(&path);
    if canonical != uri {
        let error = ToolError::invalid_args(format!("`{}` is not written as addresses are", printable(uri)));
        // The right spelling is shown only if just the encoding differs: other corrections could reveal a secret
        // unredacted.
        return Err(match path.as_str() == text {
            true => error.hint(format!("use `{}`", printable(&canonical))),
            false => error.hint("take it as `resources/list` shows it"),
        });
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_address() {
        for (path, uri) in [
            ("notes/todo.md", "workspace:///notes/todo.md"),
            ("a b?#[1].md", "workspace:///a%20b%3F%23%5B1%5D.md"),
            ("100%.md", "workspace:///100%25.md"),
            ("%2e%2e", "workspace:///%252e%252e"),
            ("über/naïve (1)+2.md", "workspace:///%C3%BCber/na%C3%AFve%20(1)+2.md"),
            ("back\\slash", "workspace:///back%5Cslash"),
        ] {
            let path = RootedPath::parse(path).unwrap();
            assert_eq!(of(&path), uri);
            assert_eq!(parse(uri).unwrap(), path);
        }
    }

    #[test]
    fn no_other_spelling_is_taken() {
        for (uri, error) in [
            (
                "workspace:///./notes.md",
                "invalid_args: `workspace:///./notes.md` is not written as addresses are",
            ),
            (
                "workspace:///n%6ftes.md",
                "invalid_args: `workspace:///n%6ftes.md` is not written as addresses are",
            ),
            ("workspace:///a%2fb", "invalid_args: `workspace:///a%2fb` is not written as addresses are"),
            (
                "workspace:////workspace/a",
                "invalid_args: `workspace:////workspace/a` is not written as addresses are",
            ),
            ("workspace:///%C3%bc", "invalid_args: `workspace:///%C3%bc` is not written as addresses are"),
            ("workspace:///%zz", "invalid_args: `workspace:///%zz` is not written as addresses are"),
            ("workspace:///%ff", "not_found: resource `workspace:///%ff` not found"),
            ("workspace:///../secure", "denied: path `../secure` leads outside the folder of this tool"),
            (
                "workspace:///%2e%2e%2fsecure",
                "denied: path `../secure` leads outside the folder of this tool",
            ),
            ("workspace:////etc/passwd", "denied: path `/etc/passwd` leads outside the folder of this tool"),
            (
                "workspace:///a%00b",
                "invalid_args: invalid path `a\\u{0}b`: a path must not hold control or invisible characters",
            ),
            ("file:///etc/passwd", "not_found: resource `file:///etc/passwd` not found"),
        ] {
            assert_eq!(parse(uri).unwrap_err().to_string(), error, "{uri}");
        }
    }
}
