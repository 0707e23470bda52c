//! Generated files. What they hold is known to an example of the `portcullis` crate; this only starts it.

use crate::layout::Layout;
use crate::run;
use anyhow::Result;

/// What to do about a file that is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    Check,
}

pub(crate) fn run(layout: &Layout, mode: Mode) -> Result<bool> {
    let mut build = layout.cargo();
    // As the tests are built, with the same features: nothing is compiled a second time.
    build.args(["build", "--quiet", "--locked", "--workspace", "--example", "gen"]);
    if !run::shown(&mut build, run::BUILD_LIMIT)?.passed() {
        return Ok(false);
    }
    let mut command = layout.command(layout.built("examples/gen"));
    command.arg(&layout.root);
    if mode == Mode::Check {
        command.arg("--check");
    }
    Ok(run::shown(&mut command, run::BUILD_LIMIT)?.passed())
}
