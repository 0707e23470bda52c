//! Shape of a definition, as the protocol requires it.
//!
//! Many clients reject a whole list where one member of one definition violates the schema. So no definition is
//! passed on that such a client would reject. An optional `null` is removed, which means the same. An optional
//! member that does not fit is dropped; where more is wrong, the definition is. Unknown members stay as they came.

use portcullis_wire::params::RawMembers;
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// The type of a value.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Truth,
    Number,
    /// A number from 0 to 1.
    Share,
    /// A date, a time and its offset from UTC.
    Moment,
    OneOf(&'static [&'static str]),
    List(&'static Shape),
    /// Any object.
    Object,
    Members(&'static [Member]),
    Schema,
}

/// A member that the protocol defines.
pub(crate) struct Member {
    key: &'static str,
    shape: Shape,
    need: Need,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Must,
    May,
    /// Clients can do without it.
    Adorns,
}

const fn must(key: &'static str, shape: Shape) -> Member {
    Member { key, shape, need: Need::Must }
}

const fn may(key: &'static str, shape: Shape) -> Member {
    Member { key, shape, need: Need::May }
}

const fn adorns(key: &'static str, shape: Shape) -> Member {
    Member { key, shape, need: Need::Adorns }
}

pub(crate) const TOOL: &[Member] = &[
    must("name", Shape::Text),
    may("title", Shape::Text),
    may("description", Shape::Text),
    may("inputSchema", Shape::Schema),
    may("outputSchema", Shape::Schema),
    adorns("annotations", Shape::Members(HINTS)),
    adorns("execution", Shape::Members(&[may("taskSupport", TASK_SUPPORT)])),
    ICONS,
    META,
];
pub(crate) const PROMPT: &[Member] = &[
    must("name", Shape::Text),
    may("title", Shape::Text),
    may("description", Shape::Text),
    may("arguments", Shape::List(&Shape::Members(ARGUMENT))),
    ICONS,
    META,
];
pub(crate) const RESOURCE: &[Member] = &[
    may("name", Shape::Text),
    may("title", Shape::Text),
    may("description", Shape::Text),
    adorns("mimeType", Shape::Text),
    adorns("size", Shape::Number),
    adorns("annotations", Shape::Members(ANNOTATIONS)),
    ICONS,
    META,
];

const ARGUMENT: &[Member] = &[
    must("name", Shape::Text),
    may("title", Shape::Text),
    may("description", Shape::Text),
    may("required", Shape::Truth),
];
// A client without these hints expects the worst.
const HINTS: &[Member] = &[
    adorns("title", Shape::Text),
    adorns("readOnlyHint", Shape::Truth),
    adorns("destructiveHint", Shape::Truth),
    adorns("idempotentHint", Shape::Truth),
    adorns("openWorldHint", Shape::Truth),
];
const ANNOTATIONS: &[Member] = &[
    adorns("audience", Shape::List(&Shape::OneOf(&["user", "assistant"]))),
    adorns("priority", Shape::Share),
    adorns("lastModified", Shape::Moment),
];
const TASK_SUPPORT: Shape = Shape::OneOf(&["required", "optional", "forbidden"]);
const META: Member = adorns("_meta", Shape::Object);
const ICONS: Member = adorns("icons", Shape::List(&Shape::Members(ICON)));
const ICON: &[Member] = &[
    must("src", Shape::Text),
    adorns("mimeType", Shape::Text),
    adorns("sizes", Shape::List(&Shape::Text)),
    adorns("theme", Shape::OneOf(&["light", "dark"])),
];

/// A definition that fits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FittedDefinition {
    pub(crate) text: String,
    /// The members that were dropped, and why.
    pub(crate) left_out: Vec<(&'static str, String)>,
}

/// Makes a definition fit, or says why it is dropped.
pub(crate) fn fit(definition: &RawValue, members: &'static [Member]) -> Result<FittedDefinition, String> {
    let mut fitting =
        FittedDefinition { text: String::with_capacity(definition.get().len()), left_out: Vec::new() };
    write_members(definition.get(), members, &mut fitting)?;
    Ok(fitting)
}

fn write_members(text: &str, known: &'static [Member], into: &mut FittedDefinition) -> Result<(), String> {
    let fields: RawMembers<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for member in known.iter().filter(|member| member.need == Need::Must) {
        if fields.get(member.key).is_none() {
            return Err(format!("`{}` is missing", member.key));
        }
    }
    into.text.push('{');
    let mut is_first = true;
    for (key, raw) in &fields.0 {
        let member = known.iter().find(|member| member.key == *key);
        if raw.get() == "null" && member.is_some_and(|member| member.need != Need::Must) {
            continue;
        }
        let (before, left_out_before) = (into.text.len(), into.left_out.len());
        if !std::mem::take(&mut is_first) {
            into.text.push(',');
        }
        into.text.push_str(&Value::from(key.as_ref()).to_string());
        into.text.push(':');
        let Some(Member { key, shape, need }) = member else {
            into.text.push_str(raw.get());
            continue;
        };
        let Err(why) = write(raw, *shape, into) else { continue };
        if *need != Need::Adorns {
            return Err(format!("`{key}` {why}"));
        }
        into.text.truncate(before);
        into.left_out.truncate(left_out_before);
        into.left_out.push((key, format!("it {why}")));
        is_first = into.text.ends_with('{');
    }
    into.text.push('}');
    Ok(())
}

/// Writes a value that fits as it came. Otherwise returns what is wrong with it, for a sentence about it.
fn write(raw: &RawValue, shape: Shape, into: &mut FittedDefinition) -> Result<(), String> {
    let text = raw.get();
    let is = |fits: bool, what: &str| if fits { Ok(()) } else { Err(format!("is not {what}")) };
    let said = || serde_json::from_str::<String>(text).ok();
    let number = || serde_json::from_str::<Number>(text).ok().and_then(|number| number.as_f64());
    match shape {
        Shape::Text => is(text.starts_with('"'), "a text")?,
        Shape::Truth => is(matches!(text, "true" | "false"), "true or false")?,
        Shape::Number => is(number().is_some(), "a number")?,
        Shape::Share => is(number().is_some_and(|it| (0.0..=1.0).contains(&it)), "a number from 0 to 1")?,
        Shape::Moment => is(said().is_some_and(|said| is_moment(&said)), "a date with time and zone")?,
        Shape::OneOf(words) => {
            let known = said().is_some_and(|said| words.contains(&said.as_str()));
            is(known, &format!("one of {}", words.join(", ")))?;
        }
        Shape::Object => is(text.starts_with('{'), "an object")?,
        Shape::List(of) => {
            is(text.starts_with('['), "a list")?;
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| error.to_string())?;
            into.text.push('[');
            for (at, item) in items.into_iter().enumerate() {
                into.text.push_str(if at > 0 { "," } else { "" });
                write(item, *of, into).map_err(|why| format!("has an entry that {why}"))?;
            }
            into.text.push(']');
            return Ok(());
        }
        Shape::Members(members) => {
            is(text.starts_with('{'), "an object")?;
            return write_members(text, members, into).map_err(|why| format!("is not right: {why}"));
        }
        Shape::Schema => {
            is(text.starts_with('{'), "an object")?;
            return write_schema(text, &mut into.text).map_err(|error| error.to_string());
        }
    }
    into.text.push_str(text);
    Ok(())
}

/// Writes a schema whose properties are objects: up to 2025-11-25 they have to be, so `true` becomes `{}`.
fn write_schema(text: &str, into: &mut String) -> Result<(), serde_json::Error> {
    let schema: RawMembers<'_> = serde_json::from_str(text)?;
    let properties = schema.get("properties").filter(|raw| raw.get().starts_with('{'));
    let properties = match properties {
        Some(raw) => serde_json::from_str::<RawMembers<'_>>(raw.get())?,
        None => RawMembers::default(),
    };
    if !properties.0.iter().any(|(_, raw)| matches!(raw.get(), "true" | "false")) {
        into.push_str(text);
        return Ok(());
    }
    let longer = |raw: &str| match raw {
        "true" => "{}".to_owned(),
        "false" => r#"{"not":{}}"#.to_owned(),
        other => other.to_owned(),
    };
    let object = |members: Vec<(&str, String)>| {
        let members = members.into_iter().map(|(key, value)| format!("{}:{value}", Value::from(key)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    let properties = properties.0.iter().map(|(key, raw)| (key.as_ref(), longer(raw.get())));
    let properties = object(properties.collect());
    let members = schema.0.iter().map(|(key, raw)| match key.as_ref() {
        "properties" => ("properties", properties.clone()),
        key => (key, raw.get().to_owned()),
    });
    into.push_str(&object(members.collect()));
    Ok(())
}

/// Returns whether a text is a `date-time` of JSON Schema: `2026-02-01T09:30:00.5+01:00`.
fn is_moment(text: &str) -> bool {
    fn form(text: &str) -> String {
        text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
    }
    let zone = text.char_indices().skip(10).find(|(_, c)| matches!(c, 'Z' | '+' | '-')).map(|(at, _)| at);
    let Some((moment, zone)) = zone.and_then(|at| text.split_at_checked(at)) else { return false };
    let (moment, fraction) = moment.split_once('.').unwrap_or((moment, "0"));
    let part = |from: usize, most: u8| {
        moment.get(from..from + 2).and_then(|part| part.parse::<u8>().ok()).is_some_and(|part| part <= most)
    };
    form(moment) == "0000-00-00T00:00:00"
        && !fraction.is_empty()
        && fraction.bytes().all(|c| c.is_ascii_digit())
        && matches!(form(zone).as_str(), "Z" | "+00:00" | "-00:00")
        && part(5, 12)
        && part(8, 31)
        && part(11, 23)
        && part(14, 59)
        && part(17, 59)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fitted(members: &'static [Member], definition: &str) -> Result<FittedDefinition, String> {
        fit(&RawValue::from_string(definition.to_owned()).unwrap(), members)
    }

    #[test]
    fn what_fits_keeps_every_byte() {
        let tool = r#"{"name":"a","title":"T","x":null,"inputSchema":{"type":"object","properties":{"n":{"default":1.50}},"y":null},"annotations":{"readOnlyHint":true,"z":1e2,"w":null},"icons":[{"src":"data:","sizes":["any"],"theme":"dark"}],"execution":{"taskSupport":"optional"},"_meta":{"k":null}}"#;
        let resource = r#"{"uri":"x://1","name":"n","size":3.0,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2026-02-01T09:30:00.25+01:00"}}"#;
        let prompt = r#"{"name":"p","arguments":[{"name":"a","required":true,"description":""}]}"#;
        for (members, text) in [(TOOL, tool), (RESOURCE, resource), (PROMPT, prompt)] {
            let expected = FittedDefinition { text: text.to_owned(), left_out: Vec::new() };
            assert_eq!(fitted(members, text), Ok(expected));
        }
    }

    #[test]
    fn what_need_not_be_there_and_is_null_is_left_out() {
        let tool = r#"{"title":null,"name":"a","description":null,"outputSchema":null,"annotations":{"title":null,"readOnlyHint":true},"icons":[{"src":"s","theme":null}],"execution":null,"_meta":null}"#;
        let fitting = fitted(TOOL, tool).unwrap();
        let expected = r#"{"name":"a","annotations":{"readOnlyHint":true},"icons":[{"src":"s"}]}"#;
        assert_eq!((fitting.text.as_str(), fitting.left_out.len()), (expected, 0));
        let prompt = r#"{"name":"p","arguments":[{"name":"a","required":null}],"icons":null}"#;
        assert_eq!(fitted(PROMPT, prompt).unwrap().text, r#"{"name":"p","arguments":[{"name":"a"}]}"#);
        assert_eq!(fitted(PROMPT, r#"{"name":"p","arguments":null}"#).unwrap().text, r#"{"name":"p"}"#);
        assert_eq!(fitted(RESOURCE, r#"{"name":null,"uri":"x"}"#).unwrap().text, r#"{"uri":"x"}"#);
    }

    #[test]
    fn what_only_adorns_is_left_out_where_it_does_not_fit() {
        for (key, says, expected) in [
            ("icons", json!({ "src": "x" }), "it is not a list"),
            ("icons", json!([{ "mimeType": "x" }]), "it has an entry that is not right: `src` is missing"),
            ("annotations", json!("x"), "it is not an object"),
            ("_meta", json!([]), "it is not an object"),
            (
                "execution",
                json!({ "taskSupport": "maybe" }),
                "it is not right: `taskSupport` is not one of required, optional, forbidden",
            ),
        ] {
            let fitting = fitted(TOOL, &json!({ key: says, "name": "a" }).to_string()).unwrap();
            assert_eq!(
                (fitting.text.as_str(), fitting.left_out),
                (r#"{"name":"a"}"#, vec![(key, expected.to_owned())])
            );
        }
        let fitting =
            fitted(TOOL, r#"{"name":"a","annotations":{"readOnlyHint":"yes","title":"T"}}"#).unwrap();
        assert_eq!(fitting.text, r#"{"name":"a","annotations":{"title":"T"}}"#);
        assert_eq!(fitting.left_out, [("readOnlyHint", "it is not true or false".to_owned())]);
        for bad in ["2026-02-01", "2026-02-01 09:30:00Z", "2026-13-01T09:30:00Z", "2026-02-01T09:30:00", "ü"]
        {
            let said = json!({ "name": "n", "annotations": { "lastModified": bad, "priority": 2 } });
            let fitting = fitted(RESOURCE, &said.to_string()).unwrap();
            assert_eq!(
                (fitting.text.as_str(), fitting.left_out.len()),
                (r#"{"name":"n","annotations":{}}"#, 2),
                "{bad}"
            );
        }
    }

    #[test]
    fn anything_else_costs_the_definition() {
        for (members, definition, expected) in [
            (TOOL, json!({ "name": "a", "description": 5 }), "`description` is not a text"),
            (TOOL, json!({ "name": "a", "outputSchema": true }), "`outputSchema` is not an object"),
            (PROMPT, json!({ "name": "a", "arguments": {} }), "`arguments` is not a list"),
            (
                PROMPT,
                json!({ "name": "a", "arguments": [{}] }),
                "`arguments` has an entry that is not right: `name` is missing",
            ),
            (RESOURCE, json!({ "name": 7 }), "`name` is not a text"),
        ] {
            assert_eq!(fitted(members, &definition.to_string()), Err(expected.to_owned()));
        }
    }

    #[test]
    fn properties_that_allow_all_or_nothing_are_said_in_objects() {
        let schema = r#"{"properties":{"a":true,"b":false,"c":{"x":1.0}},"type":"object"}"#;
        let fitting = fitted(TOOL, &format!(r#"{{"name":"a","inputSchema":{schema}}}"#)).unwrap();
        let expected = r#"{"properties":{"a":{},"b":{"not":{}},"c":{"x":1.0}},"type":"object"}"#;
        assert_eq!(fitting.text, format!(r#"{{"name":"a","inputSchema":{expected}}}"#));
    }
}
