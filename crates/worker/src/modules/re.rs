//! `re`: regular expressions with linear-time matching.

use regex::{Captures, Regex, RegexBuilder};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::{Heap, Value};

/// Size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

fn compiled(pattern: &str) -> anyhow::Result<Regex> {
    let built =
        RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX).build();
    built.map_err(|error| anyhow::anyhow!("re: {error}"))
}

fn groups<'v>(found: &Captures<'_>, heap: Heap<'v>) -> Value<'v> {
    let groups: Vec<Value<'v>> = found
        .iter()
        .map(|group| group.map_or_else(Value::new_none, |group| heap.alloc(group.as_str())))
        .collect();
    heap.alloc(groups)
}

#[starlark_module]
pub(crate) fn re(builder: &mut GlobalsBuilder) {
    /// Returns the first match and its groups as a list, or None.
    fn search<'v>(
        #[starlark(require = pos)] pattern: &str,
        #[starlark(require = pos)] text: &str,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let found = compiled(pattern)?.captures(text).map(|found| groups(&found, heap));
        Ok(found.unwrap_or_else(Value::new_none))
    }

    /// Like `search`, but anchored at the start of the text.
    fn r#match<'v>(
        #[starlark(require = pos)] pattern: &str,
        #[starlark(require = pos)] text: &str,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let found = compiled(&format!("\\A(?:{pattern})"))?.captures(text).map(|found| groups(&found, heap));
        Ok(found.unwrap_or_else(Value::new_none))
    }

    /// Returns all matches: strings, or lists of groups if the pattern has groups.
    fn findall<'v>(
        #[starlark(require = pos)] pattern: &str,
        #[starlark(require = pos)] text: &str,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let pattern = compiled(pattern)?;
        let found: Vec<Value<'v>> = match pattern.captures_len() {
            1 => pattern.find_iter(text).map(|found| heap.alloc(found.as_str())).collect(),
            _ => pattern.captures_iter(text).map(|found| groups(&found, heap)).collect(),
        };
        Ok(heap.alloc(found))
    }

    /// Replaces every match; `$1` or `${name}` refers to a group.
    fn sub(
        #[starlark(require = pos)] pattern: &str,
        #[starlark(require = pos)] replacement: &str,
        #[starlark(require = pos)] text: &str,
    ) -> anyhow::Result<String> {
        Ok(compiled(pattern)?.replace_all(text, replacement).into_owned())
    }

    fn split<'v>(
        #[starlark(require = pos)] pattern: &str,
        #[starlark(require = pos)] text: &str,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let parts: Vec<Value<'v>> = compiled(pattern)?.split(text).map(|part| heap.alloc(part)).collect();
        Ok(heap.alloc(parts))
    }

    fn escape(#[starlark(require = pos)] text: &str) -> anyhow::Result<String> {
        Ok(regex::escape(text))
    }
}
