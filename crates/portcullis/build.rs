//! How the binary is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    // A megabyte of addresses that the loader reads at every start, and that then counts as the idle hub's memory,
    // becomes a few kilobytes. Needs glibc 2.36; a linker that does not know it warns and goes on.
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        // What runs once at the start, and what hardly ever runs, lies apart from the rest: 3 MB less are touched.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    }
}
