//! What a tuple's fields are, as text and as an id that is equal wherever the schema is.

use xxhash_rust::xxh3::xxh3_64;

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSchema {
    /// As written in the struct.
    pub name: &'static str,
    /// Canonical type text; a nested tuple is spelled out.
    pub ty: String,
}

/// All fields of a tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Struct name.
    pub name: &'static str,
    /// In declaration order, which is archive order.
    pub fields: Vec<FieldSchema>,
}

impl Schema {
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
