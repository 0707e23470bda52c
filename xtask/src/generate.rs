//! Generated files. An example of the `portcullis` crate knows their contents; this task runs it.

use crate::layout::Layout;
use crate::run;
use anyhow::Result;

/// Whether to write or to report stale files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GenerateMode {
    Write,
    Check,
}

pub(crate) fn run(layout: &Layout, mode: GenerateMode) -> Result<bool> {
    let mut build = layout.cargo();
    // Built as the tests are, with the same features, so that nothing is compiled twice.
    build.args(["build", "--quiet", "--locked", "--workspace", "--example", "gen"]);
    if !run::shown(&mut build, run::BUILD_LIMIT)?.passed() {
        return Ok(false);
    }
    let mut command = layout.command(layout.built("examples/gen"));
    command.arg(&layout.root);
    if mode == GenerateMode::Check {
        command.arg("--check");
    }
    Ok(run::shown(&mut command, run::BUILD_LIMIT)?.passed())
}
