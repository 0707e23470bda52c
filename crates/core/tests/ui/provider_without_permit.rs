//! A provider cannot be called without a permit.

use portcullis_core::{Call, Provider};

fn call(provider: &dyn Provider, call: Box<Call>) {
    let _ = provider.call(call);
    let _ = provider.call((), call);
}

fn main() {}
