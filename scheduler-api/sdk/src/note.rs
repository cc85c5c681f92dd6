//! The ELF note with a plugin's manifest: what a host reads before it runs any code of the file.
//!
//! Layout (ELF gABI): name size, descriptor size, type, then the name with its NUL, then the descriptor padded to 4.

use saetta_abi as abi;

/// Rounds up to the note's alignment.
pub const fn padded(n: usize) -> usize {
    n.div_ceil(4) * 4
}

/// A note with `N` bytes of padded descriptor.
#[repr(C, align(4))]
pub struct Note<const N: usize> {
    name_len: u32,
    desc_len: u32,
    kind: u32,
    name: [u8; 12],
    desc: [u8; N],
}

impl<const N: usize> Note<N> {
    /// The note for a manifest, whose padded length must be `N`.
    pub const fn new(manifest: &str) -> Self {
        assert!(padded(manifest.len()) == N, "N is the padded length of the manifest");
        let mut desc = [0; N];
        let mut i = 0;
        while i < manifest.len() {
            desc[i] = manifest.as_bytes()[i];
            i += 1;
        }
        Note { name_len: abi::NOTE_OWNER.len() as u32, desc_len: manifest.len() as u32, kind: abi::NOTE_TYPE, name: *abi::NOTE_OWNER, desc }
    }
}
