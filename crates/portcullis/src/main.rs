//! The binary. Everything it does is in the library, so that tests can do it too.

use clap::Parser;
use portcullis::cli::Cli;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    portcullis::run(Cli::parse())
}
