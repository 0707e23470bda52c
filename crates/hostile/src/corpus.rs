//! The inputs that are kept with the code, and feeding a target with them.

use crate::mutate::mutated;
use crate::{Target, Verdict};
use anyhow::{Context, Result};
use portcullis_testkit::torture::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Returns the corpus of a target, in the order of its names.
pub fn kept(name: &str) -> Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    paths.iter().map(|path| Ok(std::fs::read(path)?)).collect()
}

/// Feeds a target with its corpus and then with mutations of it, as long as `go_on` says so. Returns how many inputs
/// there were, or the first that fails and why.
pub fn feed(
    target: &Target,
    seed: u64,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<u64, (Vec<u8>, String)> {
    let mut corpus = kept(target.name).map_err(|error| (Vec::new(), format!("{error:#}")))?;
    let mut random = Random::new(seed);
    for input in &corpus {
        judge(target.check, input).map_err(|problem| (input.clone(), problem))?;
    }
    // Something to begin with that nobody thought about.
    corpus.push(Vec::new());
    let mut fed = corpus.len() as u64;
    while go_on(fed) {
        let input = mutated(&corpus, target.words, &mut random);
        judge(target.check, &input).map_err(|problem| (input, problem))?;
        fed += 1;
    }
    Ok(fed)
}

/// Returns what is wrong; a panic is.
fn judge(check: fn(&[u8]) -> Verdict, input: &[u8]) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| check(input))).unwrap_or_else(|_| Err("it panicked".to_owned()))
}
