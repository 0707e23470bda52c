//! A worker cannot do what the sandbox forbids.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::process::{Command, Stdio};

/// Returns whether it escaped.
fn escapes(what: &str) -> bool {
    let status = Command::new(env!("CARGO_BIN_EXE_script_worker"))
        .args(["escape", what])
        .env_clear()
        .envs(portcullis_script::ENVIRONMENT)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    // 3 is an unavailable sandbox, 2 an unknown argument.
    assert!(!matches!(status.code(), Some(2 | 3)), "{what}: {status}");
    status.success()
}

#[test]
fn memory_that_was_reserved_before_is_no_sandbox() {
    // With the allocator's default settings it starts with a gigabyte of address space.
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_script_worker"));
        command.args(["escape", "read"]).env_clear().stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert_eq!(command().status().unwrap().code(), Some(3));
    assert_ne!(command().envs(portcullis_script::ENVIRONMENT).status().unwrap().code(), Some(3));
}

#[test]
fn nothing_gets_out_of_the_sandbox() {
    for what in ["read", "list", "write", "bind", "udp", "exec", "thread", "kill", "memory", "reserved"] {
        assert!(!escapes(what), "{what} got out");
        // Control: the same without the sandbox.
        assert!(escapes(&format!("free-{what}")), "{what} does not work even outside");
    }
}
