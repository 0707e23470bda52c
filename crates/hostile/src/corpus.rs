//! The stored corpora, and feeding them to a target.

use crate::mutate::mutated;
use crate::{FuzzTarget, PropertyResult};
use anyhow::{Context, Result};
use portcullis_bench::torture::SplitMix64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Returns the corpus of a target, by file name.
pub fn load(name: &str) -> Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    paths.iter().map(|path| Ok(std::fs::read(path)?)).collect()
}

/// Feeds a target with its corpus and then with mutations of it, while `go_on` returns true. Returns the
/// number of inputs, or the first that fails and why.
pub fn feed(
    target: &FuzzTarget,
    seed: u64,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<u64, (Vec<u8>, String)> {
    let mut corpus = load(target.name).map_err(|error| (Vec::new(), format!("{error:#}")))?;
    let mut random = SplitMix64::new(seed);
    for input in &corpus {
        judge(target.check, input).map_err(|problem| (input.clone(), problem))?;
    }
    // The empty input.
    corpus.push(Vec::new());
    let mut fed = corpus.len() as u64;
    while go_on(fed) {
        let input = mutated(&corpus, target.words, &mut random);
        judge(target.check, &input).map_err(|problem| (input, problem))?;
        fed += 1;
    }
    Ok(fed)
}

/// Returns the violation; a panic is one.
fn judge(check: fn(&[u8]) -> PropertyResult, input: &[u8]) -> PropertyResult {
    catch_unwind(AssertUnwindSafe(|| check(input))).unwrap_or_else(|_| Err("it panicked".to_owned()))
}
