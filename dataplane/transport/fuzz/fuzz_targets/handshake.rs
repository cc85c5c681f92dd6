//! libFuzzer's door to the harness `handshake`.
//!
//! Before: `cargo fuzz run handshake`. After: `src/handshake.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    saetta_transport_fuzz::handshake::run(data);
});
