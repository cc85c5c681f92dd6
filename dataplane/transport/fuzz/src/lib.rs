//! Fuzzing of the two decoders that read what a peer sends: harnesses that any bytes drive, and a driver that needs no nightly.
//!
//! Before: libFuzzer (`fuzz_targets`), the test `tests/fuzz.rs` or the program `examples/fuzz.rs`, which take this file in by path.
//! After: the public API of `saetta-transport` and nothing below it.
//!
//! A harness reads its input as a script: choices of what a peer sends next, how it is cut and what this side does meanwhile. So every
//! mutation of a script is a script, checksums and proofs come out right where the script does not ask for wrong ones, and what follows
//! them is reached. Each harness holds what the decoder says against a second reading of the layout, written from its drawing.

pub mod drive;
pub mod frames;
pub mod handshake;
mod input;

/// What an execution came by, a bit each: shows that a corpus still reaches what it was kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reached(pub u64);

impl Reached {
    fn mark(&mut self, bit: u32) {
        self.0 |= 1 << bit;
    }
}

/// A harness: name, body, and how many bits of [`Reached`] it has.
pub struct Target {
    /// As in `fuzz_targets` and `corpus`.
    pub name: &'static str,
    /// One execution. Panics on a finding.
    pub run: fn(&[u8]) -> Reached,
    /// What there is to be reached, in the order of the bits.
    pub marks: &'static [&'static str],
}

/// All harnesses.
pub const TARGETS: [Target; 2] = [
    Target { name: "handshake", run: handshake::run, marks: handshake::MARKS },
    Target { name: "frames", run: frames::run, marks: frames::MARKS },
];
