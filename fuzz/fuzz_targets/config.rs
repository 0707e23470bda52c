#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = portcullis_hostile::config::check(input) {
        panic!("{problem}");
    }
});
