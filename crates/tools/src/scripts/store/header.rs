//! The header of a script: `# @key: value` comments at its beginning.
//!
//! Only lines are scanned: the hub never parses the language. The header requests permissions; a person
//! grants them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const STEM_CHARS_MAX: usize = 64;
const ENDING: &str = ".star";
/// Lines of the header, and characters of a text that are kept.
const LINES_MAX: usize = 200;
const TEXT_CHARS_MAX: usize = 500;
/// Secrets, hosts or tools that one script can be granted.
const NAMES_MAX: usize = 64;
const TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// The name of a script: that of its file. `x` and `x.star` both mean `x.star`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScriptName(String);

#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not a valid script name: expected 1 to {STEM_CHARS_MAX} of a-z, 0-9, `_` and `-`, with or without `.star`"
)]
pub struct ScriptNameError(String);

impl FromStr for ScriptName {
    type Err = ScriptNameError;

    fn from_str(text: &str) -> Result<ScriptName, ScriptNameError> {
        let stem = text.strip_suffix(ENDING).unwrap_or(text);
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        if stem.is_empty() || stem.len() > STEM_CHARS_MAX || !stem.bytes().all(fits) {
            let shown: String = text.chars().take(STEM_CHARS_MAX + 1).collect();
            return Err(ScriptNameError(portcullis_core::json::printable(&shown)));
        }
        Ok(ScriptName(format!("{stem}{ENDING}")))
    }
}

impl TryFrom<String> for ScriptName {
    type Error = ScriptNameError;

    fn try_from(text: String) -> Result<ScriptName, ScriptNameError> {
        text.parse()
    }
}

impl From<ScriptName> for String {
    fn from(name: ScriptName) -> String {
        name.0
    }
}

impl ScriptName {
    /// Returns the name of the file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScriptName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A kind of permission: its key, its entries, the check of an entry, and what an error expects.
type PermissionKind<'a> = (&'a str, &'a BTreeSet<String>, fn(&str) -> bool, &'a str);

/// Permissions of a script, requested or granted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptPermissions {
    /// Names of secrets.
    pub secrets: BTreeSet<String>,
    /// Hosts, or `*.example.com` for all subdomains.
    pub hosts: BTreeSet<String>,
    /// Names of tools, or globs over them.
    pub tools: BTreeSet<String>,
    /// A timeout other than the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl ScriptPermissions {
    pub fn is_empty(&self) -> bool {
        *self == ScriptPermissions::default()
    }

    /// Returns whether a lower-case host is covered.
    pub fn has_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|known| match known.strip_prefix("*.") {
            Some(above) => host.strip_suffix(above).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => known == host,
        })
    }

    /// Validates the entries.
    pub fn check(&self) -> Result<(), String> {
        let is_secret = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        let is_host = |host: &str| {
            let host = host.strip_prefix("*.").unwrap_or(host);
            let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:[]".contains(&b);
            !host.is_empty() && host.len() <= 253 && host.bytes().all(fits)
        };
        let is_tool = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.*?".contains(&b));
        let kinds: [PermissionKind<'_>; 3] = [
            ("secrets", &self.secrets, is_secret, "names like API_KEY"),
            ("hosts", &self.hosts, is_host, "hosts like api.example.com or *.example.com"),
            ("tools", &self.tools, is_tool, "tool names like workspace_read"),
        ];
        for (kind, names, fits, expected) in kinds {
            if names.len() > NAMES_MAX {
                return Err(format!("`{kind}` has {} entries, at most {NAMES_MAX} are allowed", names.len()));
            }
            if let Some(name) = names.iter().find(|name| name.is_empty() || name.len() > 253 || !fits(name)) {
                let name = portcullis_core::json::printable(name);
                return Err(format!("`{kind}` has `{name}`, expected {expected}"));
            }
        }
        let timeout_max = u64::try_from(TIMEOUT_MAX.as_millis()).unwrap_or(u64::MAX);
        match self.timeout_ms {
            Some(0) => Err("`timeout` is 0, expected a time like 10s".to_owned()),
            Some(ms) if ms > timeout_max => {
                Err(format!("`timeout` is {ms} ms, at most {timeout_max} ms are allowed"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the diff to `other`, as lines.
    pub fn differences(&self, other: &ScriptPermissions) -> Vec<String> {
        let mut lines = Vec::new();
        let kinds = [
            ("secret", &self.secrets, &other.secrets),
            ("host", &self.hosts, &other.hosts),
            ("tool", &self.tools, &other.tools),
        ];
        for (kind, before, after) in kinds {
            lines.extend(after.difference(before).map(|name| format!("+ {kind} {name}")));
            lines.extend(before.difference(after).map(|name| format!("- {kind} {name}")));
        }
        if self.timeout_ms != other.timeout_ms {
            let shown =
                |ms: Option<u64>| ms.map_or_else(|| "the usual time".to_owned(), |ms| format!("{ms} ms"));
            lines.push(format!("~ time {} -> {}", shown(self.timeout_ms), shown(other.timeout_ms)));
        }
        lines
    }
}

/// The parsed header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScriptHeader {
    pub description: String,
    pub author: String,
    pub version: String,
    /// The requested permissions.
    pub wants: ScriptPermissions,
    /// Errors in the header.
    pub problems: Vec<String>,
}

impl ScriptHeader {
    /// Parses `# @key: value` or `# @key value` up to the first line that is no comment. Blank lines do not
    /// end the header.
    pub fn of(source: &str) -> ScriptHeader {
        let mut header = ScriptHeader::default();
        for line in source.lines().take(LINES_MAX).map(str::trim) {
            if line.is_empty() {
                continue;
            }
            let Some(comment) = line.strip_prefix('#') else { break };
            let Some(tag) = comment.trim_start_matches('#').trim().strip_prefix('@') else { continue };
            let end = tag.find(|c: char| c == ':' || c.is_whitespace()).unwrap_or(tag.len());
            let (key, value) = (&tag[..end], tag[end..].trim_start_matches(':').trim());
            header.take(key, value);
        }
        if let Err(problem) = header.wants.check() {
            header.problems.push(problem);
            header.wants = ScriptPermissions::default();
        }
        header
    }

    fn take(&mut self, key: &str, value: &str) {
        let text = || -> String {
            let seen = portcullis_core::hidden_chars::strip_hidden(value);
            seen.chars().filter(|c| !c.is_control()).take(TEXT_CHARS_MAX).collect()
        };
        let names =
            || value.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
        match key {
            "description" => self.description = text(),
            "author" => self.author = text(),
            "version" => self.version = text(),
            "secret" | "secrets" => self.wants.secrets.extend(names()),
            "host" | "hosts" => self.wants.hosts.extend(names().map(|host| host.to_ascii_lowercase())),
            "tool" | "tools" => self.wants.tools.extend(names()),
            "timeout" => match milliseconds(value) {
                Some(ms) => self.wants.timeout_ms = Some(ms),
                None => self.problems.push("`@timeout` expects a time like 500ms, 10s or 2m".to_owned()),
            },
            _ => {}
        }
    }
}

/// Parses `500ms`, `10s`, `2m`, or a number of milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    match text[digits..].trim() {
        "" | "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_files_and_nothing_else() {
        for good in ["x", "x.star", "daily-report_2", &"a".repeat(64)] {
            assert!(good.parse::<ScriptName>().is_ok(), "{good}");
        }
        assert_eq!("x".parse::<ScriptName>().unwrap(), "x.star".parse().unwrap());
        for bad in
            ["", ".star", "../x", "a/b", "X", "x.star.star", "x y", "x\0", "é", ".", "..", &"a".repeat(65)]
        {
            let error = bad.parse::<ScriptName>().unwrap_err().to_string();
            assert!(error.contains("expected 1 to 64"), "{bad}: {error}");
        }
    }

    #[test]
    fn the_leading_comment_is_read_and_nothing_after_it() {
        let header = ScriptHeader::of(
            "#!/usr/bin/env starlark\n\n# @description: Weather for a city\n# @author Ada\n# @secrets: A_KEY, B_KEY\n\
             # @hosts API.example.com\n# @tools: workspace_read,memory_*\n# @timeout: 10s\nx = 1\n# @secrets: LATER\n",
        );
        assert_eq!(header.description, "Weather for a city");
        assert_eq!(header.author, "Ada");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(
            header.wants,
            ScriptPermissions {
                secrets: names(&["A_KEY", "B_KEY"]),
                hosts: names(&["api.example.com"]),
                tools: names(&["workspace_read", "memory_*"]),
                timeout_ms: Some(10_000),
            }
        );
        assert!(header.problems.is_empty());
    }

    #[test]
    fn a_bad_wish_is_told_and_none_is_taken() {
        for (bad, expected) in [
            ("# @secrets: lower", "names like API_KEY"),
            ("# @hosts: a/b", "hosts like"),
            ("# @tools: a$b", "tool names"),
            ("# @timeout: soon", "a time like"),
            ("# @timeout: 3600s", "at most 300000 ms"),
        ] {
            let header = ScriptHeader::of(&format!("{bad}\n# @secrets: GOOD\n"));
            assert!(header.problems.join(" ").contains(expected), "{bad}: {:?}", header.problems);
        }
    }

    #[test]
    fn hosts_match_whole_labels() {
        let granted = ScriptPermissions {
            hosts: ["a.example.com".to_owned(), "*.b.com".to_owned()].into(),
            ..ScriptPermissions::default()
        };
        for (host, is_among) in [
            ("a.example.com", true),
            ("x.a.example.com", false),
            ("b.com", false),
            ("x.b.com", true),
            ("x.y.b.com", true),
            ("xb.com", false),
            (".b.com", false),
        ] {
            assert_eq!(granted.has_host(host), is_among, "{host}");
        }
    }

    #[test]
    fn differences_name_what_came_and_went() {
        let before = ScriptHeader::of("# @secrets: A\n# @hosts: x.com\n").wants;
        let after = ScriptHeader::of("# @secrets: B\n# @hosts: x.com\n# @timeout: 5s\n").wants;
        assert_eq!(
            before.differences(&after),
            ["+ secret B", "- secret A", "~ time the usual time -> 5000 ms"]
        );
    }
}
