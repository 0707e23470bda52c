//! Compares instances with a reference implementation: `icalendar` with `recurring-ical-events`, from PyPI.
//!
//! `cargo xtask calendars` generates calendars from a seed, expands them there, and runs this test with the results.

use super::shown;
use serde_json::Value;

/// Names the file with calendars and their expected instances.
const VARIABLE: &str = "PORTCULLIS_TEST_CALENDARS";

/// Changes a calendar before it is parsed.
type Misread = fn(&str) -> String;

/// Deliberate misreadings, to show that the comparison detects them.
const MISREADINGS: [(&str, Misread); 5] = [
    ("ignores exceptions", |text| text.replace("EXDATE", "X-EXDATE")),
    ("ignores changes", |text| text.replace("RECURRENCE-ID", "X-RECURRENCE-ID")),
    ("ignores time zones", |text| text.replace(";TZID=", ";X-TZID=")),
    ("ignores rules", |text| text.replace("RRULE", "X-RRULE")),
    ("ignores where weeks begin", |text| text.replace("WKST", "X-WKST")),
];

fn differences(cases: &[Value], read: Misread) -> Vec<String> {
    let mut differences = Vec::new();
    for case in cases {
        let part = |key: &str| case[key].as_str().unwrap();
        let mut ours = shown(&read(&unfolded(part("text"))), part("home"), part("from"), part("to"));
        let expected = case["events"].as_array().unwrap().iter().map(|event| {
            let words = event.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
            words.collect::<Vec<_>>().join(" ")
        });
        let mut expected: Vec<String> = expected.collect();
        ours.sort();
        expected.sort();
        if ours != expected {
            let only = |some: &[String], other: &[String]| {
                some.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>().join("\n  ")
            };
            differences.push(format!(
                "{} in {} from {} to {}\n{}only ours:\n  {}\nonly theirs:\n  {}",
                part("name"),
                part("home"),
                part("from"),
                part("to"),
                part("text"),
                only(&ours, &expected),
                only(&expected, &ours)
            ));
        }
    }
    differences
}

/// Unfolds lines, because a misreading searches for words.
fn unfolded(text: &str) -> String {
    text.replace("\r\n ", "").replace("\n ", "")
}

#[test]
fn the_same_takes_place_as_by_the_reference() {
    let Some(path) = std::env::var_os(VARIABLE) else {
        eprintln!("skipped: {VARIABLE} names no file; `cargo xtask calendars` makes one");
        return;
    };
    let text = std::fs::read_to_string(path).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() >= 200, "{} calendars", cases.len());
    let events: usize = cases.iter().map(|case| case["events"].as_array().unwrap().len()).sum();
    let different = differences(&cases, str::to_owned);
    eprintln!("figure: {} calendars, {events} events, {} differ", cases.len(), different.len());
    assert!(different.is_empty(), "{}", different.iter().take(5).cloned().collect::<Vec<_>>().join("\n\n"));
    for (what, misread) in MISREADINGS {
        let different = differences(&cases, misread).len();
        eprintln!("figure: a reader that {what}: {different} differ");
        assert!(different > 0, "a reader that {what} is noticed");
    }
}
