use super::*;
use serde_json::{Map, json};

/// A chain of definitions, `depth` long, each with a reference to the next.
fn row(depth: usize, step: impl Fn(Value) -> Value) -> Value {
    let next = |at: usize| json!({ "$ref": format!("#/$defs/d{at}") });
    let mut defs: Map<_, _> = (0..depth).map(|at| (format!("d{at}"), step(next(at + 1)))).collect();
    defs.insert(format!("d{depth}"), json!({ "type": "string" }));
    json!({ "type": "object", "properties": { "a": next(0) }, "$defs": defs })
}

fn refused(schema: &Value) -> String {
    Cost::of(schema).err().unwrap_or_default()
}

#[test]
fn what_doubles_on_one_value_is_refused_at_once() {
    let too_many = "it takes more than 100000 steps to compare a value with it";
    for word in ["anyOf", "allOf", "oneOf"] {
        assert_eq!(refused(&row(40, |next| json!({ word: [next, next] }))), too_many);
        assert_eq!(refused(&row(10, |next| json!({ word: [next, next] }))), "");
    }
    let twice = |next: Value| json!({ "if": next, "then": next, "else": next, "not": next });
    assert_eq!(refused(&row(20, twice)), too_many);
    let dependent = |next: Value| json!({ "dependentSchemas": { "a": next, "b": next } });
    assert_eq!(refused(&row(20, dependent)), too_many);
    // Without references: each level evaluates again what the level below has evaluated.
    let unevaluated = (0..28).fold(
        json!({ "properties": { "a": {} } }),
        |inner, _| json!({ "allOf": [inner], "unevaluatedProperties": false }),
    );
    assert_eq!(refused(&unevaluated), too_many);
    let dynamic = json!({
        "$dynamicAnchor": "a", "anyOf": [{ "$dynamicRef": "#b" }, { "$dynamicRef": "#b" }],
        "$defs": { "b": { "$dynamicAnchor": "b", "$recursiveRef": "#" } },
    });
    assert_eq!(refused(&dynamic), "it refers to itself without end");
}

#[test]
fn what_a_validator_could_not_be_made_of_is_refused_at_once() {
    let patterns: Map<_, _> = (0..1_000)
        .map(|at| (format!("p{at}"), json!({ "pattern": format!("(a{{99}}){{99}}{at}") })))
        .collect();
    assert_eq!(refused(&json!({ "properties": patterns })), "its patterns are too large");
    let wide = json!({ "anyOf": vec![json!({ "properties": { "a": {} } }); 1_000] });
    let rest: Map<_, _> = (0..1_000)
        .map(|at| (format!("p{at}"), json!({ "$ref": "#/$defs/wide", "unevaluatedProperties": false })))
        .collect();
    let schema = json!({ "properties": rest, "$defs": { "wide": wide } });
    assert_eq!(refused(&schema), "it takes more than 100000 steps to make a validator of it");
}

#[test]
fn what_would_overflow_the_stack_is_refused_at_once() {
    let too_deep = "more than 128 of its parts lead to each other";
    assert_eq!(refused(&row(5_000, |next| json!({ "anyOf": [next] }))), too_deep);
    // The same chain, reached from its end: memoized results keep their height.
    let mut defs: Map<_, _> = (1..200)
        .map(|at| (format!("d{at:03}"), json!({ "allOf": [{ "$ref": format!("#/$defs/d{:03}", at - 1) }] })))
        .collect();
    defs.insert("d000".to_owned(), json!({}));
    let each: Map<_, _> =
        defs.keys().map(|name| (name.clone(), json!({ "$ref": format!("#/$defs/{name}") }))).collect();
    assert_eq!(refused(&json!({ "properties": each, "$defs": defs })), too_deep);
    assert_eq!(refused(&json!({ "$ref": "#" })), "it refers to itself without end");
    assert_eq!(refused(&json!({ "allOf": [{ "$ref": "#/allOf/0" }] })), "it refers to itself without end");
}

#[test]
fn references_that_cannot_be_followed_are_refused() {
    for reference in ["http://127.0.0.1:9/x.json", "#/$defs/none", "#none", "other#/a", "a/../b", "#/%zz"] {
        let said = refused(&json!({ "properties": { "a": { "$ref": reference } } }));
        assert_eq!(said, format!("it refers to `{reference}`, which it does not hold"));
    }
    // Many anchors of one name are not multiplied with many references to it.
    let many = vec![json!({ "$anchor": "a", "allOf": [{ "$ref": "#a" }] }); 100];
    assert_eq!(refused(&json!({ "items": many })), "it refers to `#a`, which could be too many things");
    // A second anchor of the same name hides nothing: both are counted.
    let heavy = json!({ "$id": "outer", "$defs": {
        "x": row(40, |next| json!({ "anyOf": [next, next] }))["$defs"]["d0"],
        "y": { "id": "inner", "$ref": "#/$defs/x" },
    } });
    let said = refused(&json!({ "$ref": "#/$defs/outer/$defs/y", "$defs": { "x": {}, "outer": heavy } }));
    assert!(said.starts_with("it refers to `#/$defs/d1`"), "{said}");
    for fine in [
        json!({ "$id": "https://example.com/a", "$ref": "https://example.com/a#/$defs/b", "$defs": { "b": {} } }),
        json!({ "$id": "T0", "properties": { "next": { "$ref": "T0" } } }),
        json!({ "properties": { "a": { "$ref": "https://json-schema.org/draft/2020-12/schema" } } }),
        json!({ "$ref": "#/$defs/a~1b%20c", "$defs": { "a/b c": {} } }),
        json!({ "$anchor": "here", "items": { "$ref": "#here" } }),
    ] {
        assert_eq!(refused(&fine), "", "{fine}");
        assert!(super::super::compile(&fine).is_ok(), "{fine}");
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }))
}

#[test]
fn what_doubles_with_the_value_ends_with_the_budget() {
    let twice = json!({ "properties": { "a": { "$ref": "#" } } });
    let cost = Cost::of(&json!({ "anyOf": [twice, twice] })).unwrap();
    assert!(cost.steps(&nested(8), STEPS_MAX).unwrap() < 10_000);
    assert_eq!(cost.steps(&nested(60), STEPS_MAX), Err(TooCostly::Steps(STEPS_MAX)));
    assert_eq!(cost.error_steps(&nested(60), ERROR_STEPS_MAX), Err(TooCostly::Steps(ERROR_STEPS_MAX)));
    // Each level of the value may pass many levels of the schema.
    let chain =
        (0..20).fold(json!({ "properties": { "a": { "$ref": "#" } } }), |i, _| json!({ "allOf": [i] }));
    assert_eq!(Cost::of(&chain).unwrap().steps(&nested(60), STEPS_MAX), Err(TooCostly::Depth));
}

#[test]
fn each_way_to_make_much_of_a_little_is_paid_for() {
    let text = "a".repeat(100_000);
    let items: Vec<Value> = (0..2_000).map(|at| json!({ "at": at })).collect();
    let members: Map<_, _> = (0..1_000).map(|at| (format!("m{at}"), json!("aaaa"))).collect();
    let patterns: Map<_, _> = (0..1_000).map(|at| (format!("(?=x){at}"), json!({}))).collect();
    let whole = json!({ "const": [] });
    for (schema, value) in [
        (json!({ "pattern": "((a{9}){9}){99}" }), json!(text)),
        (json!({ "patternProperties": patterns }), Value::Object(members.clone())),
        (json!({ "enum": vec![json!([]); 2_000] }), json!(items)),
        (json!({ "anyOf": vec![json!({ "uniqueItems": true }); 1_000] }), json!(items)),
        (json!({ "items": { "allOf": vec![whole; 2_000] } }), json!([items, items])),
        (
            json!({ "propertyNames": { "anyOf": vec![json!({ "pattern": "(?!y)" }); 20] } }),
            Value::Object(members),
        ),
        (
            json!({ "items": { "$ref": "http://json-schema.org/draft-07/schema#" } }),
            json!(vec![items.clone(); 20]),
        ),
        (json!({ "anyOf": vec![json!({ "contains": { "minimum": 1 } }); 3_000] }), json!(items)),
    ] {
        let cost = Cost::of(&schema).unwrap();
        assert_eq!(
            cost.steps(&value, STEPS_MAX),
            Err(TooCostly::Steps(STEPS_MAX)),
            "{:.80}",
            schema.to_string()
        );
    }
    // Alternatives copy the value on a mismatch, and `not` its schema.
    let many = Cost::of(&json!({ "anyOf": vec![json!({ "type": "string" }); 50] })).unwrap();
    assert!(many.steps(&json!(items), STEPS_MAX).is_ok());
    assert!(many.error_steps(&json!(items), ERROR_STEPS_MAX).is_err());
    let not = Cost::of(&json!({ "items": { "not": { "enum": items } } })).unwrap();
    assert!(not.steps(&json!(vec![1; 1_000]), STEPS_MAX).is_ok());
    assert!(not.error_steps(&json!(vec![1; 1_000]), ERROR_STEPS_MAX).is_err());
}

#[test]
fn ordinary_schemas_and_large_arguments_are_far_below() {
    let shared = json!({
        "type": "object",
        "properties": {
            "filter": { "$ref": "#/$defs/filter" },
            "rows": { "type": "array", "items": { "anyOf": [{ "type": "number" }, { "type": "null" }] } },
        },
        "$defs": { "filter": { "oneOf": [
            { "type": "object", "required": ["and"], "properties": { "and": { "type": "array", "items": { "$ref": "#/$defs/filter" } } } },
            { "type": "object", "required": ["not"], "properties": { "not": { "$ref": "#/$defs/filter" } } },
            { "type": "object", "required": ["field"], "properties": { "field": { "type": "string", "pattern": "^[a-z]{1,64}$" } } },
        ] } },
    });
    let cost = Cost::of(&shared).unwrap();
    let filter = (0..20).fold(json!({ "field": "name" }), |inner, _| json!({ "not": { "and": [inner] } }));
    let value = json!({ "filter": filter, "rows": vec![1; 100_000] });
    assert!(cost.steps(&value, STEPS_MAX).unwrap() < STEPS_MAX / 10);
}

#[test]
fn resources_that_refer_to_each_other_are_not_compiled_for_each_way_through_them() {
    // Each references the next two: the number of paths to the last is a Fibonacci number.
    let ladder = |rungs: usize| {
        let next = |at: usize| json!({ "$ref": format!("r{at}") });
        let mut defs: Map<_, _> = (0..rungs)
            .map(|at| (at, json!({ "a": next(at + 1), "b": next(at + 2) })))
            .map(|(at, named)| (format!("d{at}"), json!({ "$id": format!("r{at}"), "properties": named })))
            .collect();
        defs.extend([rungs, rungs + 1].map(|at| (format!("d{at}"), json!({ "$id": format!("r{at}") }))));
        json!({ "$id": "https://example.com/root", "$ref": "r0", "$defs": defs })
    };
    assert_eq!(refused(&ladder(8)), "");
    assert_eq!(refused(&ladder(40)), "it takes more than 100000 steps to make a validator of it");
    // A resource that references itself closes its cycle. Two in a cycle never do.
    let with = |more: Value| {
        let b = json!({ "$id": "b", "properties": { "own": { "$ref": "b" }, "more": more } });
        json!({ "$id": "https://example.com/root", "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": {
            "a": { "$id": "a", "properties": { "b": { "$ref": "b" } } }, "b": b } })
    };
    let self_only = with(json!({}));
    let said = refused(&self_only);
    assert_eq!(said, "", "{self_only}");
    super::super::compile(&self_only).unwrap();
    assert!(refused(&with(json!({ "$ref": "a" }))).ends_with("to make a validator of it"));
    // `id` is an ordinary keyword, except in draft 4.
    let remark = |dialect: &str| {
        json!({ "$schema": dialect, "$ref": "#/$defs/a", "$defs": {
            "a": { "id": "A", "properties": { "b": { "$ref": "#/$defs/b" } } },
            "b": { "id": "B", "properties": { "a": { "$ref": "#/$defs/a" } } },
        } })
    };
    assert_eq!(refused(&remark("https://json-schema.org/draft/2020-12/schema")), "");
    assert_ne!(refused(&remark("http://json-schema.org/draft-04/schema#")), "");
}

#[test]
fn a_schema_does_not_choose_a_dialect_of_its_own() {
    for dialect in ["urn:x", "https://json-schema.org/draft/mine", "https://example.com/mine"] {
        let own = json!({ "$schema": dialect, "$id": dialect, "type": "object" });
        assert_eq!(refused(&own), format!("its dialect `{dialect}` is not known"));
        assert!(super::super::compile(&own).is_err());
    }
    for draft in ["", "draft/2020-12/", "draft/2019-09/", "draft-07/", "draft-06/", "draft-04/"] {
        for (scheme, end) in [("http", "#"), ("https", "")] {
            let dialect = format!("{scheme}://json-schema.org/{draft}schema{end}");
            super::super::compile(&json!({ "$schema": dialect, "type": "object" })).unwrap();
        }
    }
}

#[test]
fn what_is_just_within_the_budget_fits_on_the_stack_of_a_blocking_thread() {
    let unevaluated =
        json!({ "properties": { "a": { "$ref": "#" } }, "unevaluatedProperties": { "type": "string" } });
    let named = json!({ "properties": { "a": { "$ref": "#" } } });
    for (word, inner) in [("allOf", &named), ("anyOf", &named), ("oneOf", &named), ("allOf", &unevaluated)] {
        let schema = (0..3).fold(inner.clone(), |inner, _| json!({ word: [inner] }));
        let validator = super::super::compile(&schema).unwrap();
        let deepest = (1..).take_while(|depth| validator.is_valid(&nested(*depth)).is_ok()).last().unwrap();
        assert_eq!(validator.is_valid(&nested(deepest + 1)), Err(TooCostly::Depth), "{schema}");
        let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
        let looked = thread.spawn(move || {
            let value = nested(deepest);
            let errors = validator.errors(&value).map(Iterator::count);
            (validator.is_valid(&value), errors.is_ok())
        });
        looked.unwrap().join().unwrap().0.unwrap();
    }
}
