//! What a tuple's fields are, as text, as an id that is equal wherever the schema is, and as places in an archive.

use crate::shape::Shape;
use xxhash_rust::xxh3::xxh3_64;

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSchema {
    /// As written in the struct.
    pub name: &'static str,
    /// Canonical type text; a nested tuple is spelled out.
    pub ty: String,
    /// Bytes from the beginning of the tuple's fixed part to the field's.
    pub offset: usize,
    /// How it lies there.
    pub shape: Shape,
}

/// All fields of a tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Struct name.
    pub name: &'static str,
    /// Bytes of the fixed part, which ends the archive.
    pub size: usize,
    /// In declaration order, which is archive order.
    pub fields: Vec<FieldSchema>,
}

impl Schema {
    /// Place of the field of this name.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }

    /// `Name{field:type,...}`.
    pub fn text(&self) -> String {
        let fields = self.fields.iter().map(|f| format!("{}:{}", f.name, f.ty)).collect::<Vec<_>>();
        format!("{}{{{}}}", self.name, fields.join(","))
    }

    /// Hash of [`Self::text`]: a different field, type or order is a different id.
    pub fn id(&self) -> u64 {
        xxh3_64(self.text().as_bytes())
    }
}
