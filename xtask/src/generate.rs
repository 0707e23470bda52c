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
    let mut command = layout.cargo();
    command.args(["run", "--quiet", "--locked", "--package", "portcullis", "--example", "gen", "--"]);
    command.arg(&layout.root);
    if mode == Mode::Check {
        command.arg("--check");
    }
    Ok(run::shown(&mut command, run::BUILD_LIMIT)?.passed())
}
