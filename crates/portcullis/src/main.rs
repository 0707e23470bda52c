//! The binary. Everything it does is in the library, so that tests can do it too.

use clap::Parser;
use portcullis::cli::Cli;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => portcullis::run(cli),
        Err(error) => portcullis::refuse(&error),
    }
}
