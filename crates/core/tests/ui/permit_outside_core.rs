//! A permit cannot be made outside core.

use portcullis_core::Permit;

fn main() {
    let _ = Permit(());
}
