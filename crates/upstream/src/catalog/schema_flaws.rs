//! Tools whose schemas cannot be used.
//!
//! Checked when a list is read, and only where something is new. Most schemas pass a quick check; for the rest a
//! validator is compiled and dropped.

use crate::catalog::RawDefinition;
use portcullis_core::json::{parse_strict, printable};
use portcullis_core::schema::{compile, is_plainly_sound};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// The time budget of all compilations for one list. Some thousand schemas take a second.
const LOOK_FOR: Duration = Duration::from_secs(20);

/// By the own name of a tool, why it is dropped.
pub(crate) type SchemaFlaws = BTreeMap<String, String>;

/// Checks the schemas of tools. Those that are unchanged since `before` keep their result.
pub(crate) async fn find_schema_flaws(
    tools: &[RawDefinition],
    before: &[RawDefinition],
    known: &SchemaFlaws,
) -> SchemaFlaws {
    let before: HashMap<&str, &str> = before.iter().map(|said| (said.own.as_str(), said.raw.get())).collect();
    let (mut found, mut closer) = (SchemaFlaws::new(), Vec::new());
    for said in tools {
        if before.get(said.own.as_str()) == Some(&said.raw.get()) {
            found.extend(known.get(&said.own).map(|why| (said.own.clone(), why.clone())));
            continue;
        }
        // An unreadable definition is dropped for that reason.
        let Ok(mut tool) = parse_strict(said.raw.get()) else { continue };
        for (key, kind) in [("inputSchema", "input"), ("outputSchema", "output")] {
            let schema = tool.get_mut(key).map(Value::take);
            let schema = schema.filter(|schema| !schema.is_null() && !is_plainly_sound(schema));
            closer.extend(schema.map(|schema| (said.own.clone(), kind, schema)));
        }
    }
    if closer.is_empty() {
        return found;
    }
    let owns: Vec<String> = closer.iter().map(|(own, ..)| own.clone()).collect();
    // Untrusted patterns may take long to compile.
    let looked = portcullis_core::run_blocking(move || look_closer(closer)).await;
    found.extend(looked.unwrap_or_else(|| {
        owns.into_iter().map(|own| (own, "its schema cannot be read".to_owned())).collect()
    }));
    found
}

fn look_closer(schemas: Vec<(String, &'static str, Value)>) -> SchemaFlaws {
    let (mut found, began) = (SchemaFlaws::new(), Instant::now());
    for (own, kind, schema) in schemas {
        let why = if began.elapsed() > LOOK_FOR {
            Err("checking the schemas of its server takes too long".to_owned())
        } else {
            compile(&schema).map(|_| ())
        };
        if let Err(why) = why {
            found.insert(own, format!("its {kind} schema cannot be used: {}", printable(&why)));
        }
    }
    found
}
