//! The scheduler ABI: what a plugin in any language and the host agree on, byte for byte.
//!
//! Before: nothing; this is the single source of truth. After: `include/saetta_sched.h` says the same in C,
//! `sdk` reads and writes it safely in Rust, `host` loads a plugin and calls it.
//! Rules (checked by the macros below and by `tests/`): fixed-width integers only, 64-bit little-endian only, natural
//! alignment without hidden padding, structs passed by pointer begin with `struct_size` and only grow at the end, table rows carry
//! no size (the directory has their stride) and grow in multiples of 8, entities are u32 indices with [`NONE`] for "none".
//! By subject: `calls` is what the two sides call, `rows` the snapshot, `extensions` what only some hosts or plugins have,
//! `consts` the numbers. `v1.layout.txt` is the layout in words, `EXTENSIONS.md` the registry of extension ids.
#![no_std]
#![forbid(unsafe_code)]

use core::ffi::c_void;

const _: () = assert!(size_of::<*const c_void>() == 8, "the ABI is for 64-bit machines");
const _: () = assert!(cfg!(target_endian = "little"), "the ABI is for little-endian machines");

/// Major version: part of the exported symbol's name.
pub const ABI_MAJOR: u16 = 1;
/// Minor version: which struct sizes and ids are known. Informative; code tests `struct_size`, never this.
pub const ABI_MINOR: u16 = 0;
/// The only symbol a plugin exports.
pub const ENTRY_SYMBOL: &str = "saetta_scheduler_v1";
/// ELF section that holds the manifest, readable without running the plugin's code.
pub const NOTE_SECTION: &str = ".note.saetta.sched";
/// Owner field of the note, with its NUL.
pub const NOTE_OWNER: &[u8; 12] = b"SAETTASCHED\0";
/// Type field of the note.
pub const NOTE_TYPE: u32 = 1;
/// First word of a snapshot: `SSNP` read as little-endian text.
pub const SNAPSHOT_MAGIC: u32 = u32::from_le_bytes(*b"SSNP");
/// No slot, no topology, no limit.
pub const NONE: u32 = u32::MAX;
/// Tables begin at multiples of this many bytes.
pub const TABLE_ALIGN: usize = 64;
/// Incompatible snapshot features this version knows. A reader that meets another bit answers [`E_UNSUPPORTED`].
pub const FEATURES_INCOMPAT_KNOWN: u64 = 0;

/// A primitive or reference that may stand in a table row. Reads and writes little-endian, without alignment.
pub trait Field: Sized {
    /// Bytes it takes.
    const SIZE: usize;
    /// Reads from the start of `bytes`, which holds at least `SIZE`.
    fn get(bytes: &[u8]) -> Self;
    /// Writes to the start of `bytes`, which holds at least `SIZE`.
    fn put(&self, bytes: &mut [u8]);
}

macro_rules! field {
    ($($ty:ty),*) => { $(impl Field for $ty {
        const SIZE: usize = size_of::<$ty>();
        fn get(bytes: &[u8]) -> Self {
            let mut raw = [0; size_of::<$ty>()];
            raw.copy_from_slice(&bytes[..size_of::<$ty>()]);
            <$ty>::from_le_bytes(raw)
        }
        fn put(&self, bytes: &mut [u8]) {
            bytes[..size_of::<$ty>()].copy_from_slice(&self.to_le_bytes());
        }
    })* };
}
field!(u32, i32, u64, i64);

/// Reference into the string table: UTF-8, also NUL-terminated there.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Str {
    /// Offset from the start of the string table.
    pub off: u32,
    /// Bytes, without the NUL.
    pub len: u32,
}

impl Field for Str {
    const SIZE: usize = 8;
    fn get(bytes: &[u8]) -> Self {
        Str { off: u32::get(bytes), len: u32::get(&bytes[4..]) }
    }
    fn put(&self, bytes: &mut [u8]) {
        self.off.put(bytes);
        self.len.put(&mut bytes[4..]);
    }
}

/// One field of a struct as the golden file and the C header see it.
#[derive(Debug, Clone, Copy)]
pub struct FieldLayout {
    /// Name, the same in C.
    pub name: &'static str,
    /// Type as written in Rust.
    pub ty: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// One struct as the golden file and the C header see it.
#[derive(Debug, Clone, Copy)]
pub struct StructLayout {
    /// Name of the Rust type.
    pub name: &'static str,
    /// Name of the C type.
    pub c_name: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Bytes.
    pub size: usize,
    /// Fields in order.
    pub fields: &'static [FieldLayout],
}

/// One constant as the golden file and the C header see it.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Name without `SAETTA_`.
    pub name: &'static str,
    /// Value.
    pub value: i64,
    /// Type as written in Rust.
    pub ty: &'static str,
    /// What it is.
    pub doc: &'static str,
}

/// Declares a struct of the ABI: `repr(C)`, no hidden padding (checked at compile time), its layout as data.
macro_rules! abi_struct {
    ($(#[doc = $doc:literal])* $(#[derive($($derive:ident),*)])? $name:ident = $c:literal { $($(#[doc = $fdoc:literal])* $field:ident: $ty:ty,)* }) => {
        $(#[doc = $doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy $($(, $derive)*)?)]
        pub struct $name { $($(#[doc = $fdoc])* pub $field: $ty,)* }
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$ty>())*, "hidden padding");
        const _: () = assert!(size_of::<$name>() % 8 == 0, "structs grow in multiples of 8");
        impl $name {
            /// Its layout as data.
            pub const LAYOUT: $crate::StructLayout = $crate::StructLayout {
                name: stringify!($name),
                c_name: $c,
                doc: concat!($($doc),*),
                size: size_of::<$name>(),
                fields: &[$($crate::FieldLayout {
                    name: stringify!($field),
                    ty: stringify!($ty),
                    doc: concat!($($fdoc),*),
                    offset: core::mem::offset_of!($name, $field),
                    size: size_of::<$ty>(),
                }),*],
            };
        }
    };
}

/// A table row: declared like a struct, and read and written without unsafe code.
pub trait Row: Copy + 'static {
    /// Which table.
    const TABLE: u32;
    /// Bytes of a row in this version: the stride a writer of this version uses.
    const SIZE: usize;
    /// Reads a row of any stride: fields beyond its end are 0 ("absent").
    fn read(row: &[u8]) -> Self;
    /// Writes `SIZE` bytes.
    fn write(&self, row: &mut [u8]);
}

macro_rules! abi_row {
    ($(#[doc = $doc:literal])* $name:ident = $c:literal in $table:ident { $($(#[doc = $fdoc:literal])* $field:ident: $ty:ty,)* }) => {
        abi_struct! { $(#[doc = $doc])* #[derive(Default, PartialEq, Eq)] $name = $c { $($(#[doc = $fdoc])* $field: $ty,)* } }
        impl Row for $name {
            const TABLE: u32 = $table;
            const SIZE: usize = size_of::<$name>();
            fn read(row: &[u8]) -> Self {
                let mut full = [0u8; size_of::<$name>()];
                let n = row.len().min(full.len());
                full[..n].copy_from_slice(&row[..n]);
                $name { $($field: <$ty as Field>::get(&full[core::mem::offset_of!($name, $field)..]),)* }
            }
            fn write(&self, row: &mut [u8]) {
                $(self.$field.put(&mut row[core::mem::offset_of!($name, $field)..]);)*
            }
        }
    };
}

mod calls;
mod consts;
mod extensions;
mod rows;
pub use calls::*;
pub use consts::*;
pub use extensions::*;
pub use rows::*;

/// Every struct of the ABI, in the order of the header.
pub const STRUCTS: &[StructLayout] = &[
    Host::LAYOUT,
    Create::LAYOUT,
    Err::LAYOUT,
    Round::LAYOUT,
    Plan::LAYOUT,
    Plugin::LAYOUT,
    Header::LAYOUT,
    DirEntry::LAYOUT,
    Meta::LAYOUT,
    KindRow::LAYOUT,
    Rack::LAYOUT,
    HostRow::LAYOUT,
    NodeRow::LAYOUT,
    SlotRow::LAYOUT,
    TopologyRow::LAYOUT,
    ComponentRow::LAYOUT,
    EdgeRow::LAYOUT,
    IncompatibleRow::LAYOUT,
    SharedMemRow::LAYOUT,
    CompSharedRow::LAYOUT,
    ExecutorRow::LAYOUT,
    FavoredRow::LAYOUT,
    UnfavoredRow::LAYOUT,
    UserRow::LAYOUT,
    StatEdgeRow::LAYOUT,
    CoreRow::LAYOUT,
    SlotCoreRow::LAYOUT,
    Out::LAYOUT,
    ScorePart::LAYOUT,
    Explanation::LAYOUT,
    ExplainV1::LAYOUT,
    StatsV1::LAYOUT,
    ConfigV1::LAYOUT,
    StateV1::LAYOUT,
    Health::LAYOUT,
    NodeHealthV1::LAYOUT,
];
