//! The corpora and some thousands of mutations of them; for each property, a weak implementation that fails
//! it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails so, and tells its seed"
)]

use portcullis_bench::torture::SplitMix64;
use portcullis_hostile::corpus::{feed, load};
use portcullis_hostile::mutate::mutated;
use portcullis_hostile::redactor::RedactorUnderTest;
use portcullis_hostile::{FuzzTarget, PropertyResult, TARGETS, config, frame, path, redactor};
use portcullis_wire::frame::LineFrame;

/// Inputs for each target in the short form.
const INPUTS: u64 = 4_000;

fn seed() -> u64 {
    let seed =
        std::env::var("TORTURE_SEED").map_or_else(|_| SplitMix64::fresh_seed(), |text| text.parse().unwrap());
    println!("TORTURE_SEED={seed}");
    seed
}

fn target(name: &str) -> FuzzTarget {
    TARGETS.into_iter().find(|target| target.name == name).unwrap()
}

fn holds(name: &str) {
    let fed = feed(&target(name), seed(), |fed| fed < INPUTS);
    let fed =
        fed.unwrap_or_else(|(input, problem)| panic!("{:?}: {problem}", String::from_utf8_lossy(&input)));
    assert!(fed >= INPUTS);
}

/// A weak implementation fails on the same inputs.
fn finds_out(name: &str, check: impl Fn(&[u8]) -> PropertyResult) {
    let (corpus, words) = (load(name).unwrap(), target(name).words);
    let mut random = SplitMix64::new(1);
    let mut inputs =
        corpus.clone().into_iter().chain((0..INPUTS).map(|_| mutated(&corpus, words, &mut random)));
    assert!(inputs.any(|input| check(&input).is_err()));
}

#[test]
fn frames() {
    holds("frame");
}

#[test]
fn redaction() {
    holds("redactor");
}

#[test]
fn paths() {
    holds("path");
}

#[test]
fn configurations() {
    holds("config");
}

#[test]
fn a_reader_that_minds_the_pieces_is_found_out() {
    // The weak reader cuts a line that is longer than one chunk.
    let read: frame::ReadLinesFn = |text, size, bound| {
        let lines = text.split(|byte| *byte == b'\n').flat_map(|line| line.chunks(size));
        let lines = lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace) && line.len() <= bound);
        lines.map(|line| LineFrame::Text(line.to_vec().into())).chain([LineFrame::End]).collect()
    };
    finds_out("frame", |input| frame::check_with(input, read));
}

#[test]
fn exact_replacement_is_found_out() {
    fn whole(text: &str) -> String {
        text.replace("hunter2-blue-horse", "[PLAIN]")
    }
    fn pieces(text: &[u8], _: usize) -> Vec<u8> {
        whole(&String::from_utf8_lossy(text)).into_bytes()
    }
    finds_out("redactor", |input| redactor::check_with(input, &RedactorUnderTest { whole, pieces }));
}

#[test]
fn cleaning_a_path_by_its_text_is_found_out() {
    let clean: path::ParsePathFn = |text| Some(text.replace("../", ""));
    let open: path::OpenFileFn =
        |fixture, text| std::fs::read(fixture.path().join(text.replace("../", ""))).ok();
    finds_out("path", |input| path::check_with(input, clean, |_, _| None));
    finds_out("path", |input| path::check_with(input, |_| None, open));
}

#[test]
fn a_reader_that_does_not_know_the_line_is_found_out() {
    finds_out("config", |input| {
        config::check_with(input, |home| {
            let loaded = portcullis::config::Config::load(home, &|_| None);
            loaded.map(|loaded| loaded.config).map_err(|mut errors| {
                errors
                    .problems
                    .iter_mut()
                    .for_each(|problem| problem.line = problem.line.map(|line| line + 1));
                errors
            })
        })
    });
}
