//! Which tools have schemas that nobody could use.
//!
//! Looked at when a list is read, and only where something is new. What most schemas say is seen to be right at a
//! glance; for the rest a validator is made and let go again.

use crate::catalog::Said;
use portcullis_core::json::{parse_strict, printable};
use portcullis_core::schema::{compile, is_plainly_sound};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How long all closer looks at one list may take. Some thousand schemas take a second.
const LOOK_FOR: Duration = Duration::from_secs(20);

/// By the own name of a tool, why it cannot be taken.
pub(crate) type Flaws = BTreeMap<String, String>;

/// Looks at the schemas of tools. What was said in the same words `before` is as it was.
pub(crate) async fn flaws(tools: &[Said], before: &[Said], known: &Flaws) -> Flaws {
    let before: HashMap<&str, &str> = before.iter().map(|said| (said.own.as_str(), said.raw.get())).collect();
    let (mut found, mut closer) = (Flaws::new(), Vec::new());
    for said in tools {
        if before.get(said.own.as_str()) == Some(&said.raw.get()) {
            found.extend(known.get(&said.own).map(|why| (said.own.clone(), why.clone())));
            continue;
        }
        // What cannot be read is left out for that.
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
    // A stranger's patterns may take long to read.
    let looked = tokio::task::spawn_blocking(move || look_closer(closer)).await;
    found.extend(looked.unwrap_or_else(|_| {
        owns.into_iter().map(|own| (own, "its schema cannot be read".to_owned())).collect()
    }));
    found
}

fn look_closer(schemas: Vec<(String, &'static str, Value)>) -> Flaws {
    let (mut found, began) = (Flaws::new(), Instant::now());
    for (own, kind, schema) in schemas {
        let why = if began.elapsed() > LOOK_FOR {
            Err("looking at the schemas of its server takes too long".to_owned())
        } else {
            compile(&schema).map(|_| ())
        };
        if let Err(why) = why {
            found.insert(own, format!("its {kind} schema cannot be used: {}", printable(&why)));
        }
    }
    found
}
