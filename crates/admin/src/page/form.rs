//! Form and query fields, URL-encoded, with bounds.

use axum::body::Body;
use http_body_util::{BodyExt, Limited};
use portcullis_ops::{Problem, ProblemCode};
use zeroize::Zeroizing;

/// Size of a form: the largest script, with every byte percent-encoded.
pub(crate) const FORM_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Fields of a form. The largest form has one for each tool of a server.
const FIELDS_MAX: usize = 2_100;

/// Fields in the order received. A value may be a password or a secret, so all are zeroized on drop.
#[derive(Default)]
pub(crate) struct FormFields(Vec<(String, Zeroizing<String>)>);

impl FormFields {
    pub(crate) fn parse(encoded: &[u8]) -> Result<FormFields, Problem> {
        let mut fields = Vec::new();
        for (name, value) in url::form_urlencoded::parse(encoded) {
            if fields.len() == FIELDS_MAX {
                return Err(Problem::new(
                    ProblemCode::TooLarge,
                    format!("too many form fields: the limit is {FIELDS_MAX}"),
                ));
            }
            // Browsers send CRLF line ends.
            fields.push((name.into_owned(), Zeroizing::new(value.replace("\r\n", "\n"))));
        }
        Ok(FormFields(fields))
    }

    pub(crate) async fn read(body: Body) -> Result<FormFields, Problem> {
        match Limited::new(body, FORM_BYTES_MAX).collect().await {
            Ok(whole) => FormFields::parse(&Zeroizing::new(whole.to_bytes().to_vec())),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Problem::new(
                ProblemCode::TooLarge,
                format!("the form is too large: the limit is {FORM_BYTES_MAX} bytes"),
            )),
            Err(_) => Err(Problem::invalid("the form upload was interrupted").hint("submit it again")),
        }
    }

    /// Returns the value of a field, or an empty string.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    /// Returns the trimmed value of a field that is not blank.
    pub(crate) fn some(&self, name: &str) -> Option<String> {
        let value = self.get(name).trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// Returns the values of all fields of that name: ticked checkboxes.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(own, _)| own == name).map(|(_, value)| value.to_string()).collect()
    }

    /// Returns the fields whose names begin so, with the rest of their names.
    pub(crate) fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
        let fields = self.0.iter();
        fields.filter_map(move |(own, value)| Some((own.strip_prefix(prefix)?.to_owned(), value.to_string())))
    }

    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.0.iter().any(|(own, found)| own == name && found.as_str() == value)
    }

    /// Returns the non-empty lines of a field.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        self.get(name).lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Returns the words of a field, separated by spaces or commas.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let words = self.get(name).split(|c: char| c.is_whitespace() || c == ',');
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    /// Returns a field parsed as a number, if it is not blank.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        self.parsed(name, "a number")
    }

    /// Parses a field that is not blank; the error names the `expected` kind of value.
    pub(crate) fn parsed<T: std::str::FromStr>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.some(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let text = portcullis_core::json::printable(&text);
            Problem::invalid(format!("`{name}` is `{text}`, expected {expected}"))
        })
    }

    /// Returns the `key between value` pairs of a field, one per line.
    pub(crate) fn pairs(
        &self,
        name: &str,
        between: char,
    ) -> Result<std::collections::BTreeMap<String, String>, Problem> {
        let pair = |line: String| match line.split_once(between) {
            Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
            None => Err(Problem::invalid(format!(
                "a line of `{name}` has no `{between}`; write one pair per line"
            ))),
        };
        self.lines(name).into_iter().map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_send_them() {
        let form =
            FormFields::parse(b"name=a+b%26&x=1&x=2&args=one%0D%0A%0D%0A+two&env=A%3D1%0AB%3Dx%3Dy&n=7&e=")
                .unwrap();
        assert_eq!(form.get("name"), "a b&");
        assert_eq!(form.get("gone"), "");
        assert_eq!(form.some("e"), None);
        assert_eq!(form.all("x"), ["1", "2"]);
        assert_eq!(form.lines("args"), ["one", "two"]);
        assert_eq!(form.words("name"), ["a", "b&"]);
        assert_eq!(form.number::<u8>("n").unwrap(), Some(7));
        assert!(form.number::<u8>("name").is_err());
        assert_eq!(form.pairs("env", '=').unwrap()["B"], "x=y");
        assert!(form.pairs("args", '=').is_err());
    }

    #[test]
    fn a_form_has_a_bound() {
        assert!(FormFields::parse("a=1&".repeat(FIELDS_MAX).as_bytes()).is_ok());
        assert!(FormFields::parse("a=1&".repeat(FIELDS_MAX + 1).as_bytes()).is_err());
    }
}
