//! The admin page in a real browser: Chromium of the distribution, driven by Playwright.
//!
//! The checks are in `tests/pages`; this task provides what the scripts need. It leaves screenshots of every
//! page in `target/pages`.

use crate::layout::Layout;
use crate::node::{NodePackages, renew};
use crate::{browser, run, steps};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Timeout of one script. Each check in it has a minute, and there are many; a tenth of this is usual.
const SCRIPT_LIMIT: Duration = Duration::from_secs(15 * 60);
/// Prefix of a passed check in the scripts' output.
const PASSED: &str = "ok    ";
/// A demo hub first, which shows everything; then a real one.
const SCRIPTS: [&str; 2] = ["demo.mjs", "hub.mjs"];
/// The screenshots of the README, by name.
const SHOWN: [(&str, &str); 2] = [("now-light", "now"), ("approval-hostile-dark", "approval")];
/// Largest screenshot in the repository.
const SHOWN_BYTES_MAX: u64 = 160 * 1024;

/// What to do with the screenshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScreenshotMode {
    Leave,
    /// Copy two of them to `docs/images`.
    Keep,
}

/// Runs the scripts, and returns whether all passed.
pub(crate) fn run(layout: &Layout, pictures: ScreenshotMode) -> Result<bool> {
    let chromium = browser::find(layout)?;
    let node = NodePackages::install(layout)?;
    let scripts = node.adopt(&layout.root.join("tests/pages"))?;
    steps::build(layout)?;
    let out = layout.pages();
    renew(&out)?;
    let mut failed = 0;
    for script in SCRIPTS {
        let mut command = layout.command(node.program());
        command
            .arg(scripts.join(script))
            .env("CHROMIUM", &chromium)
            .env("PORTCULLIS_BIN", layout.built("portcullis"))
            .env("DEMO_BIN", layout.built("examples/demo"))
            .env("PAGES_OUT", &out)
            .env("PORTCULLIS_SHARED", shared(layout));
        let log = layout.log(script);
        run::start_log(&log)?;
        let start = Instant::now();
        let outcome = run::logged(&mut command, &log, SCRIPT_LIMIT, |_| println!("{script} …"))?;
        let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let passed = output.lines().filter(|line| line.starts_with(PASSED)).count();
        output.lines().filter(|line| line.starts_with("figure:")).for_each(|line| println!("{line}"));
        let took = start.elapsed().as_secs_f32();
        // A script without checks has not passed.
        if outcome.passed() && passed > 0 {
            println!("{PASSED} {script} ({passed} checks, {took:.1} s)");
        } else {
            println!("\nFAILED {script} ({took:.1} s, {outcome})\n{}\n", output.trim_end());
            failed += 1;
        }
    }
    println!("Pictures of every page are in {}", layout.shown(&out));
    if failed == 0 && pictures == ScreenshotMode::Keep {
        keep(layout)?;
    }
    Ok(failed == 0)
}

/// Returns the folder of corpora that are not part of the repository.
fn shared(layout: &Layout) -> PathBuf {
    match std::env::var_os("PORTCULLIS_SHARED") {
        Some(place) => place.into(),
        None => layout.root.join("../shared"),
    }
}

/// Copies the screenshots for the README.
fn keep(layout: &Layout) -> Result<()> {
    let folder = layout.root.join("docs/images");
    fs::create_dir_all(&folder)?;
    for (picture, name) in SHOWN {
        let from = layout.pages().join(format!("{picture}-shown.png"));
        let size = fs::metadata(&from).with_context(|| from.display().to_string())?.len();
        if size > SHOWN_BYTES_MAX {
            bail!("{picture} has {size} bytes, at most {SHOWN_BYTES_MAX} are wanted");
        }
        fs::copy(&from, folder.join(format!("{name}.png")))?;
        println!("docs/images/{name}.png, {size} bytes");
    }
    Ok(())
}
