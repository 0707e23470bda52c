//! The binary. Everything is in the library, for tests.

use clap::Parser;
use portcullis::cli::Cli;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // First: a sandbox worker needs nothing that the hub sets up.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == portcullis_script::WORD) {
        return portcullis_worker::main(words);
    }
    match Cli::try_parse() {
        Ok(cli) => portcullis::run(cli),
        Err(error) => portcullis::refuse(&error),
    }
}
