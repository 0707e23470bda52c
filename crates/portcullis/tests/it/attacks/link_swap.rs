//! TOCTOU: folders and files replaced by symlinks to the outside while in use. The long run is `abuse links`.

use portcullis_bench::abuse::{AbuseReport, GatedFileAccess, LinkSwapPlan, RacyFileAccess, swap_links};
use portcullis_core::Root;
use std::time::Duration;

const SHORT: LinkSwapPlan = LinkSwapPlan { duration: Duration::from_secs(2), threads: 2, seed: 1 };

#[test]
fn never_leads_out_of_the_root() {
    let figures = swap_links(|inside| Root::open(inside).unwrap(), SHORT);
    eprintln!("root: {figures}");
    assert_eq!(figures.faults(), Vec::<String>::new());
}

#[test]
fn never_leads_out_through_the_tools() {
    let figures = swap_links(GatedFileAccess::open, SHORT);
    eprintln!("tools: {figures}");
    assert_eq!(figures.faults(), Vec::<String>::new());
}

/// The test can fail: a door that looks first and opens then is found out.
#[test]
fn leads_out_of_a_door_that_looks_first() {
    let mut seen = Vec::new();
    // Two seconds are plenty; a busy machine gets some more.
    for seed in 0..10 {
        let open = |inside: &std::path::Path| RacyFileAccess(inside.canonicalize().unwrap());
        let figures = swap_links(open, LinkSwapPlan { seed, ..SHORT });
        eprintln!("weak: {figures}");
        if figures.seen_outside > 0 && figures.changed_outside {
            return;
        }
        seen.push(figures);
    }
    panic!("{seen:?}");
}
