//! The canonical bytes of key fields, and their hash: the same from native, archived and dynamic values.
//!
//! Rule (semantics section 3): integers, bool and char (as u32) little-endian at their width, strings and bytes as u32 length + bytes,
//! Option as a tag byte + value, the fields of a nested tuple in order; floats refused. The hash is xxh3-64 with seed 0.

use crate::short;
use rkyv::option::ArchivedOption;
use rkyv::string::ArchivedString;
use rkyv::vec::ArchivedVec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Collects canonical bytes. Reuse one: it allocates only while it grows.
#[derive(Default)]
pub struct KeyBytes(Vec<u8>);

impl KeyBytes {
    /// Empties it for the next key.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// Adds bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    /// Adds u32 length + bytes.
    #[inline]
    pub fn sized(&mut self, bytes: &[u8]) {
        self.0.reserve(4 + bytes.len());
        self.raw(&(bytes.len() as u32).to_le_bytes());
        self.raw(bytes);
    }
    /// xxh3-64, seed 0.
    #[inline]
    pub fn hash(&self) -> u64 {
        xxh3_64(&self.0)
    }
    /// xxh3-64 of another seed: the second candidate of a partial key.
    #[inline]
    pub fn hash_seeded(&self, seed: u64) -> u64 {
        xxh3_64_with_seed(&self.0, seed)
    }
    /// The canonical bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A value that may be a grouping key.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` cannot be a grouping key",
    label = "not a key type",
    note = "fix: group by an integer, bool, char, String, Vec<u8>, Option of these, or a tuple of these; floats have no stable equality"
)]
pub trait KeyField {
    /// Adds the canonical bytes.
    fn key(&self, out: &mut KeyBytes);

    /// Hash of the canonical bytes of this value alone. `room` is what they may be put together in.
    #[inline]
    fn hash_alone(&self, room: &mut KeyBytes) -> u64 {
        room.clear();
        self.key(room);
        room.hash()
    }
}

macro_rules! integers {
    ($($native:ty),*) => {$(
        impl KeyField for $native {
            #[inline]
            fn key(&self, out: &mut KeyBytes) { out.raw(&self.to_le_bytes()); }
            #[inline]
            fn hash_alone(&self, _: &mut KeyBytes) -> u64 { xxh3_64(&self.to_le_bytes()) }
        }
    )*};
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128);

macro_rules! archived_integers {
    ($($archived:ty),*) => {$(
        impl KeyField for $archived {
            #[inline]
            fn key(&self, out: &mut KeyBytes) { out.raw(&self.to_native().to_le_bytes()); }
        }
    )*};
}
archived_integers!(
    rkyv::rend::unaligned::u16_ule,
    rkyv::rend::unaligned::i16_ule,
    rkyv::rend::unaligned::u32_ule,
    rkyv::rend::unaligned::i32_ule,
    rkyv::rend::unaligned::u64_ule,
    rkyv::rend::unaligned::i64_ule,
    rkyv::rend::unaligned::u128_ule,
    rkyv::rend::unaligned::i128_ule
);

impl KeyField for char {
    #[inline]
    fn key(&self, out: &mut KeyBytes) {
        out.raw(&u32::from(*self).to_le_bytes());
    }
}

impl KeyField for rkyv::rend::unaligned::char_ule {
    #[inline]
    fn key(&self, out: &mut KeyBytes) {
        self.to_native().key(out);
    }
}

impl KeyField for bool {
    #[inline]
    fn key(&self, out: &mut KeyBytes) {
        out.raw(&[u8::from(*self)]);
    }
}

macro_rules! sized {
    ($($ty:ty => $bytes:ident),*) => {$(
        impl KeyField for $ty {
            #[inline]
            fn key(&self, out: &mut KeyBytes) { out.sized(self.$bytes()); }
            #[inline]
            fn hash_alone(&self, room: &mut KeyBytes) -> u64 { sized_hash(self.$bytes(), room) }
        }
    )*};
}
sized!(str => as_bytes, String => as_bytes, ArchivedString => as_bytes, [u8] => as_ref, Vec<u8> => as_slice, ArchivedVec<u8> => as_slice);

impl<T: KeyField + ?Sized> KeyField for &T {
    #[inline]
    fn key(&self, out: &mut KeyBytes) {
        (**self).key(out);
    }
    #[inline]
    fn hash_alone(&self, room: &mut KeyBytes) -> u64 {
        (**self).hash_alone(room)
    }
}

/// Hash of u32 length + bytes.
#[inline]
fn sized_hash(bytes: &[u8], room: &mut KeyBytes) -> u64 {
    match short::hash(bytes) {
        Some(hash) => hash,
        None => {
            room.clear();
            room.sized(bytes);
            room.hash()
        }
    }
}

impl<T: KeyField> KeyField for Option<T> {
    fn key(&self, out: &mut KeyBytes) {
        out.raw(&[u8::from(self.is_some())]);
        if let Some(value) = self {
            value.key(out);
        }
    }
}

impl<T: KeyField> KeyField for ArchivedOption<T> {
    fn key(&self, out: &mut KeyBytes) {
        self.as_ref().key(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: &dyn KeyField) -> u64 {
        let mut bytes = KeyBytes::default();
        key.key(&mut bytes);
        bytes.hash()
    }

    /// Golden vectors: these numbers are the wire contract of a fields grouping. They were computed with the reference xxh3.
    #[test]
    fn canonical_bytes_are_fixed() {
        let mut bytes = KeyBytes::default();
        7u16.key(&mut bytes);
        true.key(&mut bytes);
        "ab".key(&mut bytes);
        Some(1u8).key(&mut bytes);
        None::<u8>.key(&mut bytes);
        assert_eq!(bytes.bytes(), [7, 0, 1, 2, 0, 0, 0, b'a', b'b', 1, 1, 0]);
    }

    #[test]
    fn a_key_alone_is_hashed_as_its_canonical_bytes_are() {
        let mut room = KeyBytes::default();
        for len in 0..300 {
            let text: String = (0..len).map(|i| char::from(b'!' + (i * 7 % 90) as u8)).collect();
            assert_eq!(text.hash_alone(&mut room), hash(&text), "{len} letters");
            assert_eq!(text.as_bytes().hash_alone(&mut room), hash(&text), "{len} bytes");
        }
        assert_eq!(7u16.hash_alone(&mut room), hash(&7u16));
        assert_eq!((-7i128).hash_alone(&mut room), hash(&-7i128));
        assert_eq!('é'.hash_alone(&mut room), hash(&'é'));
        assert_eq!(true.hash_alone(&mut room), hash(&true));
        assert_eq!(Some("x").hash_alone(&mut room), hash(&Some("x")));
    }

    #[test]
    fn a_string_and_its_str_are_one_key() {
        assert_eq!(hash(&"saetta"), hash(&String::from("saetta")));
        assert_ne!(hash(&"saetta"), hash(&"Saetta"));
    }
}
