use super::*;
use crate::testing::{call, gate, outcome_text};
use portcullis_core::{CallCtx, CallLimits, Effect, Example, Family, Gate, Reach, Registry, Text, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

#[tokio::test]
async fn arguments_that_do_not_fit_never_reach_the_tool() {
    let (guarded, world) = gate(vec![Box::new(ValidationLayer::default())]);
    for (line, expected) in [
        (r#"stub_read {"text":"x","limit":100}"#, "ok: did x"),
        (
            r#"stub_read {"limit":500}"#,
            "invalid_args: invalid arguments: `limit` is 500, expected 1 to 100\n\
             hint: call it as `stub_read(text?: string, limit?: integer)`; those with `?` may be left out",
        ),
        (
            r#"stub_read {"txt":"a"}"#,
            "invalid_args: invalid arguments: `txt` is not an argument; did you mean `text`?\n\
             hint: use `text` instead of `txt`\n\
             hint: call it as `stub_read(text?: string, limit?: integer)`; those with `?` may be left out",
        ),
        (
            r#"stub_read {"text":"a","text":"b"}"#,
            "invalid_args: invalid arguments: key `text` is given twice at line 1 column 18\n\
             hint: call it as `stub_read(text?: string, limit?: integer)`; those with `?` may be left out",
        ),
        (
            "prompt stub_greet {\"a\":1,\"a\":2}",
            "invalid_args: invalid arguments: key `a` is given twice at line 1 column 10",
        ),
        ("resource stub://a", "ok: stub://a | contents of stub://a"),
        ("none_such {\"a\":1}", "unknown: Unknown tool: none_such"),
    ] {
        assert_eq!(outcome_text(&guarded.call(call(line)).await), expected);
    }
    assert_eq!(world.acted(), 1);
    // Control: without the layer 101 is accepted, because the type holds it.
    let (bare, _) = gate(vec![]);
    assert!(bare.call(call(r#"stub_read {"limit":101}"#)).await.is_ok());
}

fn misfits(schema: Value, arguments: Value) -> String {
    match compile(&schema).unwrap().check(&arguments) {
        Ok(()) => "fits".to_owned(),
        Err(ArgumentRejection::Misfits(misfits)) => misfits.join("\n"),
        Err(ArgumentRejection::TooCostly(why)) => why,
    }
}

#[test]
fn each_misfit_says_what_would_fit() {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]*$" },
            "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
            "least": { "type": "number", "minimum": 3 },
            "below": { "type": "number", "exclusiveMaximum": 3, "multipleOf": 2 },
            "state": { "enum": ["open", "closed", "all", null] },
            "deep": { "type": ["boolean", "null"] },
            "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 2, "uniqueItems": true },
            "filter": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": { "author": { "type": "string" } },
                        "required": ["author"],
                        "additionalProperties": false
                    },
                    { "type": "null" }
                ]
            },
            "either": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
            "fixed": { "const": 7 }
        },
        "required": ["path"],
        "additionalProperties": false
    });
    for (arguments, expected) in [
        (json!({ "path": "ab" }), "fits"),
        (json!([]), "the whole is an array, expected an object"),
        (json!({}), "`path` is missing"),
        (json!({ "pth": "ab" }), "`pth` is not an argument; did you mean `path`?\n`path` is missing"),
        (json!({ "path": 5 }), "`path` is 5, expected a string"),
        (json!({ "path": "a" }), "`path` has 1 characters, expected at least 2"),
        (json!({ "path": "abcdefg" }), "`path` has 7 characters, expected at most 5"),
        (json!({ "path": "A\u{202e}B" }), "`path` is \"A\\u{202e}B\", expected a match of `^[a-z]*$`"),
        (json!({ "path": "ab", "limit": 500 }), "`limit` is 500, expected 1 to 100"),
        (json!({ "path": "ab", "limit": "ten" }), "`limit` is \"ten\", expected an integer"),
        (json!({ "path": "ab", "limit": 1.5 }), "`limit` is 1.5, expected an integer"),
        (json!({ "path": "ab", "least": 1 }), "`least` is 1, expected at least 3"),
        (json!({ "path": "ab", "below": 4 }), "`below` is 4, expected less than 3"),
        (json!({ "path": "ab", "below": 1 }), "`below` is 1, expected a multiple of 2"),
        (
            json!({ "path": "ab", "state": "opn" }),
            "`state` is \"opn\", expected one of \"open\", \"closed\", \"all\", null; did you mean \"open\"?",
        ),
        (json!({ "path": "ab", "deep": {} }), "`deep` is an object, expected null or true or false"),
        (json!({ "path": "ab", "tags": ["a", 5] }), "`tags[1]` is 5, expected a string"),
        (json!({ "path": "ab", "tags": ["a", "b", "c"] }), "`tags` has 3 items, expected at most 2"),
        (json!({ "path": "ab", "tags": ["a", "a"] }), "`tags` has the same item twice"),
        (
            json!({ "path": "ab", "filter": { "autor": "x" } }),
            "`filter.autor` is not an argument; did you mean `filter.author`?\n`filter.author` is missing",
        ),
        (json!({ "path": "ab", "filter": { "author": 1 } }), "`filter.author` is 1, expected a string"),
        (json!({ "path": "ab", "filter": 3 }), "`filter` is 3, expected an object"),
        (json!({ "path": "ab", "either": true }), "`either` is true, which fits none of its allowed forms"),
        (json!({ "path": "ab", "fixed": 8 }), "`fixed` is 8, expected 7"),
    ] {
        assert_eq!(misfits(schema.clone(), arguments.clone()), expected, "{arguments}");
    }
}

#[test]
fn names_far_from_any_other_are_answered_with_the_list() {
    let schema =
        json!({ "type": "object", "properties": { "path": {}, "limit": {} }, "additionalProperties": false });
    assert_eq!(misfits(schema, json!({ "zzz": 1 })), "`zzz` is not an argument; expected `path`, `limit`");
    let empty = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    assert_eq!(misfits(empty, json!({ "zzz": 1 })), "`zzz` is not an argument; none are expected");
}

#[test]
fn long_complaints_are_cut() {
    let schema = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let many: serde_json::Map<_, _> = (0..1_000).map(|n| (format!("key{n}"), json!(n))).collect();
    let Err(ArgumentRejection::Misfits(misfits)) = compile(&schema).unwrap().check(&Value::Object(many))
    else {
        panic!("they do not fit")
    };
    assert_eq!(misfits.len(), MISFITS_COUNTED_MAX);
    let message = invalid(&misfits).message;
    assert!(message.ends_with("`key7` is 7, expected a string; and 92 or more others"), "{message}");
    let long = vec!["ä".repeat(3_000); 9];
    assert_eq!(invalid(&long).message, "invalid arguments: 9 of them, too long to repeat");
    let some = vec!["ä".repeat(400); 9];
    assert!(invalid(&some).message.len() < MESSAGE_BYTES_MAX + 100);
    assert!(invalid(&some).message.ends_with("ä; and 7 more"), "whole ones, and the rest counted");
}

#[test]
fn a_schema_that_cannot_be_read_is_refused_and_fetches_nothing() {
    for schema in [json!({ "type": "nonsense" }), json!({ "$ref": "http://127.0.0.1:9/schema.json" })] {
        assert!(compile(&schema).is_err(), "{schema}");
    }
}

#[tokio::test]
async fn arguments_that_nobody_kept_are_refused_whoever_reads_them() {
    let (guarded, world) = gate(vec![Box::new(ValidationLayer::default())]);
    let whole = call(r#"stub_read {"text":"too long"}"#);
    let before = Limit::ArgumentBytes.hits();
    for (bytes_max, expected) in [
        (19, "ok: did too long"),
        (
            18,
            "too_large: the text of the arguments has 19 bytes, at most 18 are allowed\nhint: give it less at once, in several calls",
        ),
    ] {
        let arguments = Arguments::at_most(bytes_max, whole.arguments.raw());
        let mut cut = whole.clone();
        cut.arguments = arguments.clone();
        assert_eq!(outcome_text(&guarded.call(cut).await), expected);
        assert_eq!(arguments.value().is_ok(), bytes_max == 19);
        assert_eq!(arguments.into_value().is_ok(), bytes_max == 19);
    }
    assert_eq!(world.acted(), 1);
    assert!(Limit::ArgumentBytes.hits() > before);
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn what_stands_beside_the_arguments_counts_with_them() {
    const SHORT: ToolSpec = ToolSpec {
        name: "short_read",
        title: "Short",
        description: "Takes little.",
        effect: Effect::Read,
        reach: Reach::Local,
        limits: CallLimits { input_bytes_max: 10, ..CallLimits::DEFAULT },
        example: Example { what: "a stub", arguments: "{}" },
    };
    async fn read(_: Arc<()>, _: Nothing, _: CallCtx) -> Result<Text, ToolError> {
        Ok(Text("read".to_owned()))
    }
    let registry = Registry::default();
    registry.add(Family::new("short").tool(SHORT, &Arc::new(()), read)).unwrap();
    let gate = Gate::new(registry, vec![Box::new(ValidationLayer::default())]);
    for (extra, expected) in [
        (r#""a":1234"#, "ok: read"),
        (
            r#""a":12345"#,
            "too_large: the text of the arguments and the extra parameters has 11 bytes, at most 10 are allowed\nhint: give it less at once, in several calls",
        ),
    ] {
        let mut call = call("short_read");
        call.passed.params = extra.to_owned();
        assert_eq!(outcome_text(&gate.call(call).await), expected);
    }
}

#[test]
fn an_evil_pattern_ends() {
    let schema = json!({ "type": "object", "properties": { "a": { "pattern": "^(?=(a+)+$)(a+)+$" } } });
    let text = misfits(schema, json!({ "a": format!("{}b", "a".repeat(5_000)) }));
    assert!(text.starts_with("`a` "), "{text}");
}

mod plain {
    use super::*;
    use portcullis_core::schema::plainly_fits;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            (-3..4i64).prop_map(Value::from),
            prop_oneof![Just(json!(1.0)), Just(json!(1.5)), Just(json!(u64::MAX)), Just(json!(-0.0))],
            "[aé]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 12, 3, |inner| {
            let members = prop::collection::btree_map("[ab]", inner.clone(), 0..3);
            prop_oneof![
                prop::collection::vec(inner, 0..3).prop_map(Value::from),
                members.prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn schema() -> impl Strategy<Value = Value> {
        let name =
            prop::sample::select(vec!["object", "array", "string", "number", "integer", "boolean", "null"]);
        let small = -2..3i64;
        let size = 0..3u64;
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            name.clone().prop_map(|name| json!({ "type": name })),
            prop::collection::vec(name, 1..3).prop_map(|names| json!({ "type": names })),
            prop::collection::vec(value(), 1..3).prop_map(|options| json!({ "enum": options })),
            value().prop_map(|only| json!({ "const": only })),
            (small.clone(), small)
                .prop_map(|(least, most)| json!({ "type": "integer", "minimum": least, "maximum": most })),
            (size.clone(), size).prop_map(
                |(least, most)| json!({ "minLength": least, "maxLength": most, "minItems": least })
            ),
            Just(json!({ "type": "string", "pattern": "^a" })),
            Just(json!({ "$schema": "http://json-schema.org/draft-07/schema#", "format": "date" })),
        ];
        leaf.prop_recursive(2, 10, 3, |inner| {
            let named = prop::collection::btree_map("[ab]", inner.clone(), 0..3);
            prop_oneof![
                inner.clone().prop_map(|items| json!({ "type": "array", "items": items, "maxItems": 2 })),
                (named, inner, prop::collection::vec("[ab]", 0..2)).prop_map(|(named, others, needed)| {
                    json!({ "properties": named, "additionalProperties": others, "required": needed })
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn nothing_is_let_through_that_the_validator_refuses(schema in schema(), value in value()) {
            if plainly_fits(&schema, &value) {
                // Some of these schemas are invalid, in parts that are not evaluated.
                if let Ok(check) = compile(&schema) {
                    prop_assert!(check.check(&value).is_ok(), "{} for {}", schema, value);
                }
            }
        }
    }

    /// Otherwise the above would hold for a fast path that never accepts.
    #[test]
    fn ordinary_arguments_need_no_validator() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "Where", "minLength": 1 },
                "lines": { "type": "integer", "minimum": 1, "maximum": 100 },
                "how": { "enum": ["fast", "slow"] },
                "tags": { "type": "array", "items": { "type": "string" } },
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let fits = |arguments: Value| plainly_fits(&schema, &arguments);
        assert!(fits(json!({ "path": "a", "lines": 3, "how": "fast", "tags": ["x"] })));
        for wrong in [
            json!({}),
            json!({ "path": "" }),
            json!({ "path": "a", "lines": 0 }),
            json!({ "path": "a", "how": "no" }),
            json!({ "path": "a", "tags": [1] }),
            json!({ "path": "a", "more": 1 }),
        ] {
            assert!(!fits(wrong.clone()), "{wrong}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_cannot_succeed_refuses_before_a_person_is_asked() {
    let spec = ToolSpec {
        name: "stub_unready",
        title: "Stub",
        description: "A stub.",
        effect: Effect::Create,
        reach: Reach::Outside,
        limits: CallLimits::DEFAULT,
        example: Example { what: "a stub", arguments: "{}" },
    };
    #[derive(Deserialize, JsonSchema)]
    struct NoArgs {}
    async fn act(_: Arc<std::sync::atomic::AtomicBool>, _: NoArgs, _: CallCtx) -> Result<Text, ToolError> {
        Ok(Text("done".to_owned()))
    }
    let has_token = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let family = Family::new("stub").tool(spec, &has_token, act).ready_if(&has_token, |has_token| {
        match has_token.load(std::sync::atomic::Ordering::Relaxed) {
            true => Ok(()),
            false => Err(ToolError::unavailable("no token").hint("store one")),
        }
    });
    let registry = Registry::default();
    registry.add(family).unwrap();
    let gate = Gate::new(registry, vec![Box::new(ValidationLayer::default())]);
    assert_eq!(
        outcome_text(&gate.call(call("stub_unready {}")).await),
        "unavailable: no token\nhint: store one"
    );
    has_token.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(outcome_text(&gate.call(call("stub_unready {}")).await), "ok: done");
}
