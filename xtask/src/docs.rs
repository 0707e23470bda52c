//! `cargo xtask docs`: the documentation site, with search and without foreign hosts.
//!
//! Its pages are `docs/*.md` themselves; `xtask/docs` has the navigation and what the generator (MkDocs) needs beyond
//! it. A link to a missing page, heading or file of the repository is a failure.

use crate::layout::Layout;
use crate::node::renew;
use crate::{python, run};
use anyhow::Result;
use std::time::Duration;

/// Timeout of a build. A second is usual.
const SITE_LIMIT: Duration = Duration::from_secs(2 * 60);

/// Builds the site, and returns whether every link has a target.
pub(crate) fn run(layout: &Layout) -> Result<bool> {
    let python = python::install(layout, "docs")?;
    let site = layout.docs_site();
    renew(&site)?;
    let mut build = layout.command(python);
    build.args(["-m", "mkdocs", "build", "--strict"]);
    build.args(["--config-file", "xtask/docs/mkdocs.yml", "--site-dir"]).arg(&site);
    // No `--quiet`: it drops warnings before `--strict` counts them.
    // Advice about the generator's next version, and files of Python's beside our sources.
    build.env("NO_MKDOCS_2_WARNING", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    let outcome = run::shown(&mut build, SITE_LIMIT)?;
    if !outcome.passed() {
        println!("the site was not built: {outcome}");
        return Ok(false);
    }
    println!("Open {}", layout.shown(&site.join("index.html")));
    Ok(true)
}
