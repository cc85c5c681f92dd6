//! libFuzzer's door to the harness `frames`.
//!
//! Before: `cargo fuzz run frames`. After: `src/frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    saetta_transport_fuzz::frames::run(data);
});
