//! The attack: a server returns a token of a provider that was not registered as a secret.
//!
//! A public list describes such tokens. It is not in the repository; without it the test says so.

use super::corpus_tests::shared;
use super::shape_tests::Rule;
use super::*;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Minimum share of rules that must be known, of those that recognize a token by itself.
const KNOWN_PERCENT_MIN: usize = 90;
const TOKENS_PER_RULE: usize = 24;
/// The start of a rule that only matches next to the provider's name.
const NEXT_TO_A_NAME: &str = r"[\w.-]{0,50}?";
/// These find a password by its position in a command or a file.
const BY_PLACE: [&str; 5] = [
    "curl-auth-header",
    "curl-auth-user",
    "kubernetes-secret-yaml",
    "nuget-config-password",
    "freemius-secret-key",
];

/// Returns the expression without the context of a token, in ASCII, with escaped dots.
fn of_token_alone(regex: &str) -> String {
    let mut plain = regex.to_owned();
    for (theirs, ours) in [
        (r#"(?:[\x60'"\s;]|\\[nr]|$|\b)"#, ""),
        (r#"(?:[\x60'"\s;]|\\[nr]|$)"#, ""),
        (r#"(?:^|[\\'"\x60\s>=:(,)])"#, ""),
        (r#"(?:$|[\\'"\x60\s<),])"#, ""),
        (r"(?:[^\w-]|\z)", ""),
        (r"(?:[^a-zA-Z0-9+/]|\z)", ""),
        (r"(?:[\/|\#|\?|:]|$)", "/"),
        (r"[\s\S-]{64,}?", r"\n[A-Za-z0-9+/]{200,300}\n-----END PRIVATE "),
        (r"\b", ""),
    ] {
        plain = plain.replace(theirs, ours);
    }
    let (mut out, mut in_class, mut characters) = (String::new(), false, plain.chars().peekable());
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some('w')) if in_class => out.push_str("A-Za-z0-9_"),
            ('\\', Some('w')) => out.push_str("[A-Za-z0-9_]"),
            ('\\', Some('d')) if in_class => out.push_str("0-9"),
            ('\\', Some('d')) => out.push_str("[0-9]"),
            ('\\', Some(next)) => out.extend([character, *next]),
            ('.', _) if !in_class => out.push_str(r"\."),
            _ => {
                in_class = (in_class || character == '[') && character != ']';
                out.push(character);
                continue;
            }
        }
        if character == '\\' {
            characters.next();
        }
    }
    out
}

/// Returns tokens that a rule accepts; none if it has no shape of its own.
fn tokens(rule: &Rule, runner: &mut TestRunner) -> Vec<String> {
    let Some(regex) = rule.regex.as_deref().filter(|regex| !regex.is_empty()) else { return Vec::new() };
    if regex.contains(NEXT_TO_A_NAME) || BY_PLACE.contains(&rule.id.as_str()) {
        return Vec::new();
    }
    let Ok(drawn) = proptest::string::string_regex(&of_token_alone(regex)) else {
        println!("{}: nothing can be drawn", rule.id);
        return Vec::new();
    };
    // Ignoring case, two non-ASCII characters count as letters.
    let token =
        |_| drawn.new_tree(runner).unwrap().current().replace('\u{17f}', "s").replace('\u{212a}', "k");
    (0..TOKENS_PER_RULE).map(token).collect()
}

/// Returns the number of rules with their own shape, and those with a token that can be read.
fn unknown(rules: &[Rule], scrub: &dyn Fn(&str) -> String) -> (usize, Vec<String>) {
    let (mut count, mut unknown, mut runner) = (0, Vec::new(), TestRunner::deterministic());
    for rule in rules {
        let tokens = tokens(rule, &mut runner);
        count += usize::from(!tokens.is_empty());
        let leaks = |token: &&String| scrub(&format!("it says key = \"{token}\" and more")).contains(*token);
        let leaked: Vec<&String> = tokens.iter().filter(leaks).collect();
        if let Some(token) = leaked.first() {
            unknown.push(format!("{} ({} of {TOKENS_PER_RULE}), as {token}", rule.id, leaked.len()));
        }
    }
    (count, unknown)
}

#[test]
fn the_tokens_of_most_providers_are_masked() {
    let Some(rules) = shared::<Rule>("gitleaks_rules.jsonl") else { return };
    let ours = Redactor::new(&[]).unwrap_or_else(|e| panic!("{e}"));
    let (count, missed) = unknown(&rules, &|text| ours.scrub(text).into_owned());
    println!("{} of {count} rules are known; not {missed:#?}", count - missed.len());
    assert!(count > 100);
    let is_enough = |missed: usize| (count - missed) * 100 >= count * KNOWN_PERCENT_MIN;
    assert!(is_enough(missed.len()), "{missed:#?}");
    // Control: a redactor that knows the tokens of a few providers fails.
    let weak = |text: &str| match ["ghp_", "glpat-", "AKIA", "xoxb-", "sk_live_"]
        .iter()
        .find(|p| text.contains(**p))
    {
        Some(_) => "[REDACTED]".to_owned(),
        None => text.to_owned(),
    };
    assert!(!is_enough(unknown(&rules, &weak).1.len()), "a weak redactor passes");
}
