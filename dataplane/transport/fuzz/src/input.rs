//! The bytes of one execution, read as a script: whatever is asked for past their end is zero.
//!
//! Before: a fuzzer's bytes. After: choices of a harness.

pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.word::<1>()[0]
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.word())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.word())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.word())
    }

    /// So many bytes, or what is left.
    pub(super) fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn word<const N: usize>(&mut self) -> [u8; N] {
        let mut word = [0; N];
        let taken = self.take(N);
        word[..taken.len()].copy_from_slice(taken);
        word
    }
}
