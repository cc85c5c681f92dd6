//! A tuple read by name or field number, over the bytes typed code reads: for bolts that take any stream, and for people who look.
//!
//! Before: an archive, and the schema of whoever made it. After: values borrowed from the bytes. Total: whatever the bytes are, nothing outside
//! them is read and nothing panics; what does not lie whole in them reads as `None`. Safe code, so a wrong layout shows as a wrong value.

use crate::key::KeyBytes;
use crate::schema::Schema;
use crate::shape::Shape;
use crate::view;
use std::fmt;

/// Items of a list that its `Debug` shows.
const SHOWN_ITEMS_MAX: usize = 32;

/// One tuple of any schema.
#[derive(Clone, Copy)]
pub struct Dyn<'a> {
    bytes: &'a [u8],
    /// Where the fixed part begins.
    at: usize,
    schema: &'a Schema,
}

/// One value.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// `u8` to `u64`.
    U64(u64),
    /// `u128`.
    U128(u128),
    /// `i8` to `i64`.
    I64(i64),
    /// `i128`.
    I128(i128),
    /// `f32` and `f64`.
    F64(f64),
    /// `bool`.
    Bool(bool),
    /// `char`.
    Char(char),
    /// `String`.
    Str(&'a str),
    /// `Vec<u8>`.
    Bytes(&'a [u8]),
    /// `None` of an option; a `Some` reads as its value.
    None,
    /// `Vec<T>` or `[T; N]`.
    List(List<'a>),
    /// A nested tuple.
    Tuple(Dyn<'a>),
    /// A type outside the subset that is read dynamically.
    Opaque,
}

/// Items of a `Vec<T>` or `[T; N]`.
#[derive(Clone, Copy)]
pub struct List<'a> {
    bytes: &'a [u8],
    at: usize,
    len: usize,
    item: &'a Shape,
    item_bytes: usize,
}

impl<'a> Dyn<'a> {
    /// Over a whole archive of a tuple of this schema; `None` when it is shorter than the tuple's fixed part.
    #[inline]
    pub fn new(archive: &'a [u8], schema: &'a Schema) -> Option<Self> {
        Some(Dyn { bytes: archive, at: archive.len().checked_sub(schema.size)?, schema })
    }

    /// What fields it has.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// The field of this place; `None` when there is no such field or its bytes are not whole. Where the type is known, `u64_at` and its like
    /// are about twice as fast.
    #[inline(always)]
    pub fn at(&self, index: usize) -> Option<Value<'a>> {
        let (at, shape) = self.place(index)?;
        value(self.bytes, at, shape)
    }

    /// The integer in the field of this place, if it is one and fits.
    #[inline]
    pub fn u64_at(&self, index: usize) -> Option<u64> {
        match self.place(index)? {
            (at, Shape::U64) => Some(u64::from_le_bytes(word(self.bytes, at)?)),
            (at, Shape::U32) => Some(u32::from_le_bytes(word(self.bytes, at)?).into()),
            _ => self.u64_of_any(index),
        }
    }

    /// The integer in the field of this place, if it is one and fits.
    #[inline]
    pub fn i64_at(&self, index: usize) -> Option<i64> {
        match self.place(index)? {
            (at, Shape::I64) => Some(i64::from_le_bytes(word(self.bytes, at)?)),
            (at, Shape::I32) => Some(i32::from_le_bytes(word(self.bytes, at)?).into()),
            _ => self.i64_of_any(index),
        }
    }

    /// The number in the field of this place, to the nearest.
    #[inline]
    pub fn f64_at(&self, index: usize) -> Option<f64> {
        match self.place(index)? {
            (at, Shape::F64) => Some(f64::from_le_bytes(word(self.bytes, at)?)),
            _ => self.f64_of_any(index),
        }
    }

    /// The text in the field of this place.
    #[inline]
    pub fn str_at(&self, index: usize) -> Option<&'a str> {
        match self.place(index)? {
            (at, Shape::Text) => view::text(text(self.bytes, at)?),
            _ => self.str_of_any(index),
        }
    }

    /// Where a field begins and how it lies there.
    #[inline(always)]
    fn place(&self, index: usize) -> Option<(usize, &'a Shape)> {
        let field = self.schema.fields.get(index)?;
        Some((self.at.checked_add(field.offset)?, &field.shape))
    }

    // The rarer types, out of line: what they need on the stack would be reserved by every caller.
    #[inline(never)]
    fn u64_of_any(&self, index: usize) -> Option<u64> {
        self.at(index)?.as_u64()
    }
    #[inline(never)]
    fn i64_of_any(&self, index: usize) -> Option<i64> {
        self.at(index)?.as_i64()
    }
    #[inline(never)]
    fn f64_of_any(&self, index: usize) -> Option<f64> {
        self.at(index)?.as_f64()
    }
    #[inline(never)]
    fn str_of_any(&self, index: usize) -> Option<&'a str> {
        self.at(index)?.as_str()
    }

    /// The field of this name. It is looked for: where it matters, ask `schema().index(name)` once and use [`Dyn::at`].
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.at(self.schema.index(name)?)
    }

    /// Names and values in declaration order; values as by [`Dyn::at`].
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, Option<Value<'a>>)> + use<'a> {
        let tuple = *self;
        tuple.schema.fields.iter().enumerate().map(move |(i, f)| (f.name, tuple.at(i)))
    }
}

impl<'a> Value<'a> {
    /// An integer that is one.
    #[inline(always)]
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U64(v) => Some(v),
            Value::I64(v) => v.try_into().ok(),
            Value::U128(v) => v.try_into().ok(),
            Value::I128(v) => v.try_into().ok(),
            _ => None,
        }
    }
    /// An integer that is one.
    #[inline(always)]
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::I64(v) => Some(v),
            Value::U64(v) => v.try_into().ok(),
            Value::U128(v) => v.try_into().ok(),
            Value::I128(v) => v.try_into().ok(),
            _ => None,
        }
    }
    /// Any number, to the nearest.
    #[inline(always)]
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F64(v) => Some(v),
            Value::U64(v) => Some(v as f64),
            Value::I64(v) => Some(v as f64),
            Value::U128(v) => Some(v as f64),
            Value::I128(v) => Some(v as f64),
            _ => None,
        }
    }
    /// `bool`.
    #[inline(always)]
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(v) = *self { Some(v) } else { None }
    }
    /// `char`.
    #[inline(always)]
    pub fn as_char(&self) -> Option<char> {
        if let Value::Char(v) = *self { Some(v) } else { None }
    }
    /// `String`.
    #[inline(always)]
    pub fn as_str(&self) -> Option<&'a str> {
        if let Value::Str(v) = *self { Some(v) } else { None }
    }
    /// `Vec<u8>`.
    #[inline(always)]
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        if let Value::Bytes(v) = *self { Some(v) } else { None }
    }
    /// `Vec<T>` or `[T; N]`.
    #[inline(always)]
    pub fn as_list(&self) -> Option<List<'a>> {
        if let Value::List(v) = *self { Some(v) } else { None }
    }
    /// A nested tuple.
    #[inline(always)]
    pub fn as_tuple(&self) -> Option<Dyn<'a>> {
        if let Value::Tuple(v) = *self { Some(v) } else { None }
    }
    /// `None` of an option.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }
}

impl<'a> List<'a> {
    /// Whole items only: a list that passes the end of its bytes is none.
    fn new(bytes: &'a [u8], at: usize, len: usize, item: &'a Shape) -> Option<Self> {
        let item_bytes = item.size();
        let end = at.checked_add(len.checked_mul(item_bytes)?)?;
        (end <= bytes.len()).then_some(List { bytes, at, len, item, item_bytes })
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }
    /// True without items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// One item; `None` behind the end, or when its bytes are not whole.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        if index >= self.len {
            return None;
        }
        value(self.bytes, self.at + index * self.item_bytes, self.item)
    }
    /// All items, as by [`List::get`]. A hostile archive may claim four thousand million items of no size: bound what you do for each.
    pub fn iter(&self) -> impl Iterator<Item = Option<Value<'a>>> + use<'a> {
        let list = *self;
        (0..list.len).map(move |i| list.get(i))
    }
}

/// The `N` bytes at `at`.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// A string: text in line ends with 0xff or at eight bytes; else the two high bits of the first byte are `10`, around which the length is split.
#[inline]
fn text(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let repr = u64::from_le_bytes(word(bytes, at)?);
    if repr & 0xc0 != 0x80 {
        // The lowest zero byte of the complement: a borrow passes only above it, so its high bit is the lowest one set.
        let ends = (!repr).wrapping_sub(0x0101_0101_0101_0101) & repr & 0x8080_8080_8080_8080;
        return bytes.get(at..at + ends.trailing_zeros() as usize / 8);
    }
    let (low, distance) = (repr as u32, (repr >> 32) as i32);
    let len = (low & 0x3f) | ((low & !0xff) >> 2);
    let start = at.checked_add_signed(distance as isize)?;
    bytes.get(start..start.checked_add(len as usize)?)
}

/// A vector: distance, then length.
#[inline]
fn vector(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let repr = u64::from_le_bytes(word(bytes, at)?);
    let (distance, len) = (repr as i32, (repr >> 32) as usize);
    Some((at.checked_add_signed(distance as isize)?, len))
}

/// The value of a shape at `at`. Always in line, so that a caller that wants one kind tests the shape alone.
#[inline(always)]
fn value<'a>(bytes: &'a [u8], at: usize, shape: &'a Shape) -> Option<Value<'a>> {
    Some(match shape {
        Shape::U64 => Value::U64(u64::from_le_bytes(word(bytes, at)?)),
        Shape::U32 => Value::U64(u32::from_le_bytes(word(bytes, at)?).into()),
        Shape::U16 => Value::U64(u16::from_le_bytes(word(bytes, at)?).into()),
        Shape::U8 => Value::U64((*bytes.get(at)?).into()),
        Shape::I64 => Value::I64(i64::from_le_bytes(word(bytes, at)?)),
        Shape::I32 => Value::I64(i32::from_le_bytes(word(bytes, at)?).into()),
        Shape::I16 => Value::I64(i16::from_le_bytes(word(bytes, at)?).into()),
        Shape::I8 => Value::I64(i8::from_le_bytes(word(bytes, at)?).into()),
        Shape::F64 => Value::F64(f64::from_le_bytes(word(bytes, at)?)),
        Shape::F32 => Value::F64(f32::from_le_bytes(word(bytes, at)?).into()),
        Shape::Bool => Value::Bool(boolean(bytes, at)?),
        Shape::Text => Value::Str(view::text(text(bytes, at)?)?),
        _ => return composite(bytes, at, shape),
    })
}

fn composite<'a>(bytes: &'a [u8], at: usize, shape: &'a Shape) -> Option<Value<'a>> {
    Some(match shape {
        Shape::U128 => Value::U128(u128::from_le_bytes(word(bytes, at)?)),
        Shape::I128 => Value::I128(i128::from_le_bytes(word(bytes, at)?)),
        Shape::Char => Value::Char(char::from_u32(u32::from_le_bytes(word(bytes, at)?))?),
        Shape::Bytes => {
            let (start, len) = vector(bytes, at)?;
            Value::Bytes(bytes.get(start..start.checked_add(len)?)?)
        }
        Shape::List(item) => {
            let (start, len) = vector(bytes, at)?;
            Value::List(List::new(bytes, start, len, item)?)
        }
        Shape::Array(item, n) => Value::List(List::new(bytes, at, *n, item)?),
        Shape::Option(some) => match boolean(bytes, at)? {
            false => Value::None,
            true => value_again(bytes, at + 1, some)?,
        },
        Shape::Tuple(schema) => Value::Tuple(Dyn { bytes, at, schema }),
        Shape::Opaque(_) => Value::Opaque,
        _ => unreachable!("read by `value`"),
    })
}

/// `value`, out of line: options may nest.
fn value_again<'a>(bytes: &'a [u8], at: usize, shape: &'a Shape) -> Option<Value<'a>> {
    value(bytes, at, shape)
}

#[inline]
fn boolean(bytes: &[u8], at: usize) -> Option<bool> {
    match bytes.get(at)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Key fields of a schema by name: canonical bytes as typed code makes them.
#[derive(Debug, Clone)]
pub struct DynKey {
    schema: &'static Schema,
    fields: Vec<usize>,
}

impl DynKey {
    /// The error names the fields there are, or the type that cannot be a key.
    pub fn new(schema: &'static Schema, names: &[&str]) -> Result<Self, String> {
        let resolve = |name: &&str| {
            let Some(index) = schema.index(name) else {
                let has = schema.fields.iter().map(|f| f.name).collect::<Vec<_>>().join(", ");
                return Err(format!("stream `{}` has no field `{name}`; it has: {has}", schema.name));
            };
            let field = &schema.fields[index];
            match field.shape.no_key() {
                None => Ok(index),
                Some(what) => Err(format!(
                    "field `{name}` of stream `{}` is a `{}`, and {what} cannot be a grouping key; group by an integer, bool, char, String, Vec<u8>, Option of these, or a tuple of these",
                    schema.name, field.ty
                )),
            }
        };
        Ok(DynKey { schema, fields: names.iter().map(resolve).collect::<Result<_, _>>()? })
    }

    /// Adds the canonical bytes from an archive. `None` when the bytes are not whole; then some may have been added.
    #[inline]
    pub fn add(&self, archive: &[u8], out: &mut KeyBytes) -> Option<()> {
        let tuple = Dyn::new(archive, self.schema)?;
        self.fields.iter().try_for_each(|index| {
            let field = &self.schema.fields[*index];
            add_key(tuple.bytes, tuple.at.checked_add(field.offset)?, &field.shape, out)
        })
    }
}

fn add_key(bytes: &[u8], at: usize, shape: &Shape, out: &mut KeyBytes) -> Option<()> {
    match shape {
        // They lie in the archive as the rule wants them.
        Shape::U8 | Shape::I8 => out.raw(&word::<1>(bytes, at)?),
        Shape::U16 | Shape::I16 => out.raw(&word::<2>(bytes, at)?),
        Shape::U32 | Shape::I32 | Shape::Char => out.raw(&word::<4>(bytes, at)?),
        Shape::U64 | Shape::I64 => out.raw(&word::<8>(bytes, at)?),
        Shape::U128 | Shape::I128 => out.raw(&word::<16>(bytes, at)?),
        Shape::Bool => out.raw(&[boolean(bytes, at)?.into()]),
        Shape::Text => out.sized(text(bytes, at)?),
        Shape::Bytes => {
            let (start, len) = vector(bytes, at)?;
            out.sized(bytes.get(start..start.checked_add(len)?)?);
        }
        Shape::Option(some) => {
            let tag = boolean(bytes, at)?;
            out.raw(&[tag.into()]);
            if tag {
                add_key(bytes, at + 1, some, out)?;
            }
        }
        Shape::Tuple(schema) => {
            schema.fields.iter().try_for_each(|f| add_key(bytes, at.checked_add(f.offset)?, &f.shape, out))?;
        }
        Shape::F32 | Shape::F64 | Shape::List(_) | Shape::Array(..) | Shape::Opaque(_) => return None,
    }
    Some(())
}

impl fmt::Debug for Dyn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct(self.schema.name);
        for (name, value) in self.fields() {
            out.field(name, &Shown(value));
        }
        out.finish()
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U64(v) => v.fmt(f),
            Value::U128(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::I128(v) => v.fmt(f),
            Value::F64(v) => fmt::Debug::fmt(v, f),
            Value::Bool(v) => v.fmt(f),
            Value::Char(v) => fmt::Debug::fmt(v, f),
            Value::Str(v) => fmt::Debug::fmt(v, f),
            Value::Bytes(v) => write!(f, "{} bytes", v.len()),
            Value::None => f.write_str("None"),
            Value::List(v) => v.fmt(f),
            Value::Tuple(v) => v.fmt(f),
            Value::Opaque => f.write_str(".."),
        }
    }
}

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_list();
        out.entries(self.iter().take(SHOWN_ITEMS_MAX).map(Shown));
        if self.len > SHOWN_ITEMS_MAX { out.finish_non_exhaustive() } else { out.finish() }
    }
}

/// A value, or that its bytes are not whole.
struct Shown<'a>(Option<Value<'a>>);
impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("?"),
        }
    }
}
