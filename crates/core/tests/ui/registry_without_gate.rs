//! A registry hands no call and no provider to anyone but the gate.

use portcullis_core::Registry;

fn reach(registry: &Registry) {
    let _ = registry.providers();
}

fn main() {}
