//! The attack: short schemas with shared references, so that the work doubles at every level.
//!
//! A custom keyword in every subschema counts how often the validator compiles and evaluates it. For any schema and value,
//! either the budget refuses, or the validation takes no more steps than were counted before, and compiles hardly more.

use super::compile_steps::{COMPILED_MAX, compile_steps};
use super::cost::Cost;
use super::graph::graph;
use super::validity::options;
use jsonschema::{Keyword, ValidationError, Validator};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Step budget in this test. Smaller than the real one, to keep the test short.
const STEPS_MAX: u64 = 20_000;
/// Tolerance for compiled subschemas relative to the count: some cannot be shared and are compiled again. The maximum over
/// 6,000 schemas was a third more.
const COMPILED_AGAIN_MAX: u64 = 2;

#[derive(Default)]
struct Counts {
    compiled: AtomicU64,
    compared: AtomicU64,
}

struct CountedKeyword {
    counts: Arc<Counts>,
    fits: bool,
}

impl<'i> Keyword<'i> for CountedKeyword {
    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(value) { Ok(()) } else { Err(ValidationError::custom("counted")) }
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        self.counts.compared.fetch_add(1, Ordering::Relaxed);
        self.fits
    }
}

/// Makes a counting validator.
fn counting(schema: &Value) -> Result<(Validator, Arc<Counts>), String> {
    let counts = Arc::new(Counts::default());
    let of_factory = counts.clone();
    let counted = options().with_keyword("x-step", move |_: &Map<String, Value>, fits: &Value, _| {
        of_factory.compiled.fetch_add(1, Ordering::Relaxed);
        let keyword = CountedKeyword { counts: of_factory.clone(), fits: fits == &Value::Bool(true) };
        Ok(Box::new(keyword) as Box<dyn for<'i> Keyword<'i>>)
    });
    let validator = counted.build(schema).map_err(|error| error.to_string())?;
    Ok((validator, counts))
}

/// The admission decision before a validation: the maximum number of evaluations of a subschema, or `None` if refused.
type Admit = fn(&Cost, &Value, Asks) -> Option<u64>;

#[derive(Debug, Clone, Copy)]
enum Asks {
    Verdict,
    Errors,
}

fn budget(cost: &Cost, value: &Value, asks: Asks) -> Option<u64> {
    match asks {
        Asks::Verdict => cost.steps(value, STEPS_MAX).ok(),
        Asks::Errors => cost.error_steps(value, STEPS_MAX).ok(),
    }
}

/// The number of refused and completed validations, and the maximum number of steps of one.
#[derive(Debug, Default)]
struct Tally {
    refused: u64,
    made: u64,
    most: u64,
}

/// Runs admitted validations. Returns an error if compiling or validating takes more than was counted.
fn check(schema: &Value, values: &[Value], tally: &mut Tally) -> Result<(), String> {
    let Ok(cost) = Cost::of(schema) else {
        tally.refused += 1;
        return Ok(());
    };
    let counted = compile_steps(&graph(schema)?, COMPILED_MAX).ok_or("too much is compiled")?;
    let (validator, counts) = counting(schema)?;
    let compiled = counts.compiled.load(Ordering::Relaxed);
    if compiled > counted.saturating_mul(COMPILED_AGAIN_MAX) {
        return Err(format!("{compiled} were compiled and {counted} were counted"));
    }
    values.iter().try_for_each(|value| compare(&validator, &counts, &cost, value, budget, tally))
}

fn compare(
    validator: &Validator,
    counts: &Counts,
    cost: &Cost,
    value: &Value,
    admit: Admit,
    tally: &mut Tally,
) -> Result<(), String> {
    for asks in [Asks::Verdict, Asks::Errors] {
        let Some(counted) = admit(cost, value, asks) else {
            tally.refused += 1;
            break;
        };
        counts.compared.store(0, Ordering::Relaxed);
        match asks {
            Asks::Verdict => drop(validator.is_valid(value)),
            Asks::Errors => drop(validator.iter_errors(value).count()),
        }
        let compared = counts.compared.load(Ordering::Relaxed);
        tally.made += 1;
        tally.most = tally.most.max(compared);
        if compared > counted {
            return Err(format!("{asks:?}: {compared} steps, and {counted} were counted"));
        }
        if compared > STEPS_MAX {
            return Err(format!("{asks:?}: {compared} steps are too many"));
        }
    }
    Ok(())
}

/// A deterministic pseudo-random generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Generates schemas of definitions that reference each other.
struct Maker {
    random: Random,
    definitions: usize,
    /// How often a reference goes back instead of forward; `None` for never.
    back: Option<usize>,
    /// Whether definitions have an `$id`.
    addressed: bool,
    /// The verdict of all leaves, or a random one each. Keeps inner nodes from ending early.
    ends: Option<bool>,
}

impl Maker {
    fn new(seed: u64) -> Maker {
        let mut random = Random(seed);
        let definitions = 1 + random.below(24);
        let back = (!random.one_in(3)).then(|| 2 + random.below(30));
        let addressed = random.one_in(3);
        let ends = [None, Some(true), Some(false)][random.below(3)];
        Maker { random, definitions, back, addressed, ends }
    }

    fn schema(&mut self) -> Value {
        let pairs = self.random.one_in(3);
        let defs: Map<_, _> = (0..self.definitions)
            .map(|at| {
                let mut schema = if pairs { self.pair(at) } else { self.subschema(at, 3) };
                if let Some(words) = schema.as_object_mut() {
                    words.insert("$anchor".to_owned(), format!("a{at}").into());
                    if self.addressed && at % 2 == 0 {
                        words.insert("$id".to_owned(), format!("r{at}").into());
                    }
                    if self.random.one_in(4) {
                        words.insert("$dynamicAnchor".to_owned(), "dynamic".into());
                    }
                }
                (format!("d{at}"), schema)
            })
            .collect();
        let root =
            if self.addressed && self.definitions > 0 { "https://example.com/root" } else { "urn:root" };
        let first = if self.addressed { "r0".to_owned() } else { "#/$defs/d0".to_owned() };
        json!({ "$id": root, "$dynamicAnchor": "dynamic", "$ref": first, "$defs": defs })
    }

    fn reference(&mut self, from: usize) -> Value {
        let back = self.back.is_some_and(|times| self.random.one_in(times));
        let to = if back { self.random.below(self.definitions) } else { from + 1 + self.random.below(2) };
        if to >= self.definitions {
            let fits = self.random.one_in(2);
            return json!({ "x-step": self.ends.unwrap_or(fits) });
        }
        let reference = match (self.addressed, self.random.below(8)) {
            (true, _) if to % 2 == 0 => format!("r{to}"),
            (true, _) => format!("https://example.com/root#/$defs/d{to}"),
            (false, 0) => format!("#a{to}"),
            (false, 1) if self.back.is_some() => return json!({ "$dynamicRef": "#dynamic", "x-step": true }),
            (false, _) => format!("#/$defs/d{to}"),
        };
        json!({ "$ref": reference, "x-step": true })
    }

    /// Two references, both of which are evaluated.
    fn pair(&mut self, from: usize) -> Value {
        let word = if self.ends == Some(true) { "allOf" } else { "anyOf" };
        let mut schema = json!({ "x-step": true, word: [self.reference(from), self.reference(from)] });
        if self.random.one_in(4) {
            schema["properties"] = json!({ "a": self.reference(from) });
        }
        schema
    }

    fn subschema(&mut self, from: usize, depth: usize) -> Value {
        if depth == 0 || self.random.one_in(3) {
            return self.reference(from);
        }
        let mut words = Map::new();
        words.insert("x-step".to_owned(), true.into());
        for _ in 0..1 + self.random.below(3) {
            let (word, says) = self.word(from, depth - 1);
            words.insert(word.to_owned(), says);
        }
        Value::Object(words)
    }

    fn word(&mut self, from: usize, depth: usize) -> (&'static str, Value) {
        const WORDS: [&str; 20] = [
            "anyOf",
            "allOf",
            "oneOf",
            "not",
            "if",
            "then",
            "else",
            "dependentSchemas",
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
            "items",
            "prefixItems",
            "contains",
            "unevaluatedProperties",
            "unevaluatedItems",
            "anyOf",
            "allOf",
            "oneOf",
        ];
        let word = WORDS[self.random.below(WORDS.len())];
        let says = match word {
            "anyOf" | "allOf" | "oneOf" | "prefixItems" => {
                let many = 1 + self.random.below(3);
                (0..many).map(|_| self.subschema(from, depth)).collect()
            }
            "dependentSchemas" | "properties" => {
                json!({ "a": self.subschema(from, depth), "b": self.subschema(from, depth) })
            }
            "patternProperties" => {
                json!({ "^a": self.subschema(from, depth), "(?=b)": self.subschema(from, depth) })
            }
            _ => self.subschema(from, depth),
        };
        (word, says)
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.random.below(if depth == 0 { 2 } else { 8 }) {
            0 => json!("a"),
            1 => json!(1),
            2..=5 => json!({ "a": self.value(depth - 1), "b": self.value(depth - 1) }),
            _ => json!([self.value(depth - 1), self.value(depth - 1), 1]),
        }
    }
}

/// Tries that many schemas, from this seed on.
fn try_schemas(first: u64, schemas: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in first..first + schemas {
        let mut maker = Maker::new(seed);
        let schema = maker.schema();
        let values = [0, 2, 5].map(|depth| maker.value(depth));
        if let Err(why) = check(&schema, &values, &mut tally) {
            panic!("seed {seed}: {why}\n{schema}\n{values:?}");
        }
    }
    tally
}

#[test]
fn no_schema_takes_more_steps_than_its_budget() {
    let tally = try_schemas(0, 250);
    // Both must occur often, or the test shows nothing.
    assert!(tally.refused > 100 && tally.made > 250 && tally.most > STEPS_MAX / 20, "{tally:?}");
}

/// A chain of definitions, each of which references the next one twice.
fn doubling(levels: usize, word: &str) -> Value {
    let next = |at: usize| json!({ "$ref": format!("#/$defs/d{at}") });
    let mut defs: Map<_, _> =
        (0..levels).map(|at| (format!("d{at}"), json!({ word: [next(at + 1), next(at + 1)] }))).collect();
    defs.insert(format!("d{levels}"), json!({ "x-step": word != "anyOf" }));
    json!({ "$ref": "#/$defs/d0", "$defs": defs })
}

#[test]
fn a_row_of_pairs_is_refused_before_a_validator_is_made() {
    for word in ["anyOf", "allOf", "oneOf"] {
        let mut tally = Tally::default();
        check(&doubling(40, word), &[json!({})], &mut tally).unwrap();
        assert_eq!((tally.refused, tally.made), (1, 0), "{word}");
    }
    // Without admission control the same check fails, at a depth that still ends.
    let everything: Admit = |_, _, _| Some(u64::MAX);
    let schema = doubling(16, "anyOf");
    let cost = Cost::of(&json!({})).unwrap();
    let (validator, counts) = counting(&schema).unwrap();
    let found = compare(&validator, &counts, &cost, &json!({}), everything, &mut Tally::default());
    assert_eq!(found, Err("Verdict: 65536 steps are too many".to_owned()));
    // It also fails if only the parts of a schema are counted, not the paths to them.
    let parts: Admit = |_, _, _| Some(17);
    let found = compare(&validator, &counts, &cost, &json!({}), parts, &mut Tally::default());
    assert_eq!(found, Err("Verdict: 65536 steps, and 17 were counted".to_owned()));
}
