//! A worker for the tests of this crate; in production the hub's own binary is the worker.
//!
//! `weak` has only the interpreter's limits, no sandbox. `escape WHAT` enters the sandbox and tries to escape.

use std::process::ExitCode;

/// The same allocator as in production: whether the memory limit holds depends on how memory is allocated.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next().as_ref().and_then(|word| word.to_str()) {
        Some("worker") => portcullis_worker::main(words),
        Some("weak") => portcullis_worker::main_without_sandbox(),
        Some("escape") => escape(words.next().and_then(|word| word.into_string().ok()).unwrap_or_default()),
        _ => ExitCode::from(2),
    }
}

/// Exits with 0 if it escaped, with 1 if it was refused. A kill counts as refused.
fn escape(what: String) -> ExitCode {
    let free = what.strip_prefix("free-");
    if free.is_none() {
        let missing = portcullis_worker::sandbox::enter(128 * 1024 * 1024, 5);
        if !missing.0.is_empty() {
            return ExitCode::from(3);
        }
    }
    let got_out = match free.unwrap_or(&what) {
        "read" => std::fs::read("/etc/hostname").is_ok() || std::fs::read("/proc/self/status").is_ok(),
        "list" => std::fs::read_dir("/").is_ok(),
        "write" => std::fs::write("/tmp/portcullis-script-escape", "").is_ok(),
        "bind" => std::net::TcpListener::bind("127.0.0.1:0").is_ok(),
        "udp" => std::net::UdpSocket::bind("127.0.0.1:0").is_ok(),
        "exec" => std::process::Command::new("/bin/true").status().is_ok(),
        "thread" => std::thread::Builder::new().spawn(|| {}).is_ok(),
        "kill" => rustix::process::test_kill_process(
            rustix::process::getppid().unwrap_or(rustix::process::Pid::INIT),
        )
        .is_ok(),
        "memory" => {
            let mut kept = Vec::new();
            for _ in 0..256 {
                kept.push(vec![1_u8; 1024 * 1024]);
            }
            kept.len() == 256
        }
        // Reserved in one allocation and used in part: the kernel accounts for reserved memory differently.
        "reserved" => {
            let mut kept = Vec::new();
            kept.try_reserve_exact(2_000_000_000).is_ok_and(|()| {
                kept.resize(256 * 1024 * 1024, 1_u8);
                kept.len() == 256 * 1024 * 1024
            })
        }
        _ => return ExitCode::from(2),
    };
    if got_out { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
