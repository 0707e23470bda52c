//! Code that bypasses the gate does not compile.

#[test]
fn a_provider_is_reached_only_through_the_gate() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
