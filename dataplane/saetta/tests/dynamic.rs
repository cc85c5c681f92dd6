//! Dynamic views: they read what typed code reads, make the same keys, and take any bytes without harm.

#![allow(missing_docs, reason = "tuples of a test")]

use proptest::prelude::*;
use saetta::prelude::*;
use saetta::{Emit, KeyField, RunOptions, Schema, Tuple, Value, run};
use saetta_model::config::{Config, Owner};
use saetta_tuple::rkyv::Archive;
use saetta_tuple::{DynKey, Encoder, KeyBytes, Shape};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[tuple]
#[derive(Debug, Clone, PartialEq)]
pub struct Leg {
    pub side: char,
    pub size: i64,
    pub venue: Option<String>,
}

/// One field of every kind there is.
#[tuple]
#[derive(Debug, Clone, PartialEq)]
pub struct Every {
    pub u8: u8,
    pub u16: u16,
    pub u32: u32,
    pub u64: u64,
    pub u128: u128,
    pub i8: i8,
    pub i16: i16,
    pub i32: i32,
    pub i64: i64,
    pub i128: i128,
    pub f32: f32,
    pub f64: f64,
    pub flag: bool,
    pub letter: char,
    pub text: String,
    pub bytes: Vec<u8>,
    pub maybe: Option<u32>,
    pub maybe_text: Option<String>,
    pub leg: Leg,
    pub legs: Vec<Leg>,
    pub texts: Vec<String>,
    pub nested: Vec<Vec<u16>>,
    pub triple: [i32; 3],
    pub pair: (u8, String),
    pub maybe_leg: Option<Leg>,
    pub last: u64,
}

fn leg() -> impl Strategy<Value = Leg> {
    (any::<char>(), any::<i64>(), prop::option::of(".{0,12}")).prop_map(|(side, size, venue)| Leg { side, size, venue })
}

prop_compose! {
    fn every()(
        (u8, u16, u32, u64, u128) in any::<(u8, u16, u32, u64, u128)>(),
        (i8, i16, i32, i64, i128) in any::<(i8, i16, i32, i64, i128)>(),
        (f32, f64, flag, letter) in any::<(f32, f64, bool, char)>(),
        (text, bytes) in (".{0,90}", prop::collection::vec(any::<u8>(), 0..40)),
        (maybe, maybe_text) in (any::<Option<u32>>(), prop::option::of(".{0,12}")),
        (leg1, legs, maybe_leg) in (leg(), prop::collection::vec(leg(), 0..4), prop::option::of(leg())),
        (texts, nested) in (prop::collection::vec(".{0,12}", 0..4), prop::collection::vec(prop::collection::vec(any::<u16>(), 0..3), 0..3)),
        (triple, pair, last) in (any::<[i32; 3]>(), (any::<u8>(), ".{0,12}"), any::<u64>()),
    ) -> Every {
        Every {
            u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, flag, letter, text, bytes, maybe, maybe_text, leg: leg1, legs, texts,
            nested, triple, pair, maybe_leg, last,
        }
    }
}

fn archive<E: Emit>(value: &E) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::default().append(value, &mut out).unwrap();
    out
}

fn assert_leg(t: Option<Value<'_>>, want: &Leg) {
    let t = t.unwrap().as_tuple().unwrap();
    assert_eq!(t.schema().name, "Leg");
    assert_eq!(t.get("side").unwrap().as_char(), Some(want.side));
    assert_eq!(t.get("size").unwrap().as_i64(), Some(want.size));
    match &want.venue {
        Some(venue) => assert_eq!(t.get("venue").unwrap().as_str(), Some(&venue[..])),
        None => assert!(t.get("venue").unwrap().is_none()),
    }
}

fn assert_reads(t: Dyn<'_>, want: &Every) {
    let get = |name| t.get(name).unwrap();
    assert_eq!(get("u8").as_u64(), Some(want.u8.into()));
    assert_eq!(get("u16").as_u64(), Some(want.u16.into()));
    assert_eq!(get("u32").as_u64(), Some(want.u32.into()));
    assert_eq!(get("u64").as_u64(), Some(want.u64));
    assert!(matches!(get("u128"), Value::U128(v) if v == want.u128));
    assert_eq!(get("i8").as_i64(), Some(want.i8.into()));
    assert_eq!(get("i16").as_i64(), Some(want.i16.into()));
    assert_eq!(get("i32").as_i64(), Some(want.i32.into()));
    assert_eq!(get("i64").as_i64(), Some(want.i64));
    assert!(matches!(get("i128"), Value::I128(v) if v == want.i128));
    assert_eq!(get("f32").as_f64().unwrap().to_bits(), f64::from(want.f32).to_bits());
    assert_eq!(get("f64").as_f64().unwrap().to_bits(), want.f64.to_bits());
    assert_eq!(get("flag").as_bool(), Some(want.flag));
    assert_eq!(get("letter").as_char(), Some(want.letter));
    assert_eq!(get("text").as_str(), Some(&want.text[..]));
    assert_eq!(get("bytes").as_bytes(), Some(&want.bytes[..]));
    assert_eq!(get("maybe").as_u64(), want.maybe.map(u64::from));
    assert_eq!(get("maybe").is_none(), want.maybe.is_none());
    assert_eq!(get("maybe_text").as_str(), want.maybe_text.as_deref());
    assert_leg(t.get("leg"), &want.leg);
    let legs = get("legs").as_list().unwrap();
    assert_eq!((legs.len(), legs.is_empty()), (want.legs.len(), want.legs.is_empty()));
    legs.iter().zip(&want.legs).for_each(|(l, w)| assert_leg(l, w));
    let texts: Vec<_> = get("texts").as_list().unwrap().iter().map(|t| t.unwrap().as_str().unwrap()).collect();
    assert_eq!(texts, want.texts);
    let numbers = |v: Value<'_>| v.as_list().unwrap().iter().map(|n| n.unwrap().as_i64().unwrap()).collect::<Vec<_>>();
    let nested: Vec<_> = get("nested").as_list().unwrap().iter().map(|l| numbers(l.unwrap())).collect();
    assert_eq!(nested, want.nested.iter().map(|l| l.iter().map(|n| i64::from(*n)).collect::<Vec<_>>()).collect::<Vec<_>>());
    assert_eq!(numbers(get("triple")), want.triple.map(i64::from));
    assert!(matches!(get("pair"), Value::Opaque));
    match &want.maybe_leg {
        Some(leg) => assert_leg(t.get("maybe_leg"), leg),
        None => assert!(get("maybe_leg").is_none()),
    }
    assert_eq!(get("last").as_u64(), Some(want.last));
    assert!(t.get("nothing").is_none() && t.at(t.schema().fields.len()).is_none());
    assert_eq!(t.fields().count(), t.schema().fields.len());
}

/// Reads everything there is to read; lists up to a bound, since hostile bytes may claim any length.
fn read_all(value: Option<Value<'_>>) -> usize {
    match value {
        Some(Value::List(list)) => list.iter().take(64).map(read_all).sum::<usize>() + read_all(list.get(list.len())),
        Some(Value::Tuple(t)) => t.fields().map(|(_, v)| read_all(v)).sum(),
        Some(Value::Str(text)) => text.chars().count(),
        Some(Value::Bytes(bytes)) => bytes.iter().map(|b| usize::from(*b)).sum(),
        Some(_) => 1,
        None => 0,
    }
}

/// The names of the fields that may be a key.
const KEYS: [&str; 18] = [
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "flag",
    "letter",
    "text",
    "bytes",
    "maybe",
    "maybe_text",
    "leg",
    "maybe_leg",
];

fn dyn_key(bytes: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    let mut out = KeyBytes::default();
    DynKey::new(Every::schema(), names).unwrap().add(bytes, &mut out)?;
    Some(out.bytes().to_vec())
}

/// Adds the keys of all fields in `KEYS`, of a native or an archived value.
macro_rules! key_of_all {
    ($value:expr) => {{
        let (mut out, v) = (KeyBytes::default(), $value);
        key_of_all!(@ out, v, u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, flag, letter, text, bytes, maybe, maybe_text, leg, maybe_leg);
        out.bytes().to_vec()
    }};
    (@ $out:ident, $v:ident, $($field:ident),*) => { $( KeyField::key(&$v.$field, &mut $out); )* };
}

/// The borrowed twin of a value.
fn twin_of(v: &Every) -> EveryRef<'_> {
    let Every { u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, flag, letter, maybe, triple, last, .. } = *v;
    let v = v.clone();
    EveryRef {
        u8,
        u16,
        u32,
        u64,
        u128,
        i8,
        i16,
        i32,
        i64,
        i128,
        f32,
        f64,
        flag,
        letter,
        maybe,
        triple,
        last,
        text: "",
        bytes: &[],
        maybe_text: v.maybe_text,
        leg: v.leg,
        legs: v.legs,
        texts: v.texts,
        nested: v.nested,
        pair: v.pair,
        maybe_leg: v.maybe_leg,
    }
}

proptest! {
    #[test]
    fn a_dynamic_view_reads_what_was_written(value in every()) {
        let bytes = archive(&value);
        assert_reads(Dyn::new(&bytes, Every::schema()).unwrap(), &value);
    }

    #[test]
    fn native_archived_and_dynamic_values_are_one_key(value in every()) {
        let bytes = archive(&value);
        let archived = saetta_tuple::rkyv::access::<ArchivedEvery, saetta_tuple::rkyv::rancor::Failure>(&bytes).unwrap();
        let native = key_of_all!(&value);
        prop_assert_eq!(&native, &key_of_all!(archived));
        prop_assert_eq!(&native, &dyn_key(&bytes, &KEYS).unwrap());
    }

    /// What an emit routes by before it encodes is what would be read from the archive.
    #[test]
    fn a_key_is_hashed_before_encoding_as_after(value in every()) {
        let (bytes, mut room) = (archive(&value), KeyBytes::default());
        let twin = EveryRef { text: &value.text, bytes: &value.bytes, ..twin_of(&value) };
        let hash_of = |names: &[&str]| {
            let mut key = KeyBytes::default();
            DynKey::new(Every::schema(), names).unwrap().add(&bytes, &mut key).unwrap();
            key.hash()
        };
        let place = |name: &str| Every::schema().fields.iter().position(|f| f.name == name).unwrap() as u16;
        for name in KEYS {
            let early = value.key_hash(&[place(name)], &mut room);
            prop_assert!(early.is_none_or(|hash| hash == hash_of(&[name])), "{name}");
            prop_assert_eq!(early, twin.key_hash(&[place(name)], &mut room));
            prop_assert_eq!(early.is_some(), !["maybe", "maybe_text", "leg", "maybe_leg"].contains(&name), "{}", name);
        }
        for names in [&["text", "u64"][..], &["u16", "bytes", "letter", "flag"]] {
            let places: Vec<u16> = names.iter().map(|name| place(name)).collect();
            prop_assert_eq!(value.key_hash(&places, &mut room), Some(hash_of(names)));
            prop_assert_eq!(twin.key_hash(&places, &mut room), Some(hash_of(names)));
        }
        prop_assert_eq!(value.key_hash(&[place("u8"), place("leg")], &mut room), None);
        prop_assert_eq!(value.key_hash(&[], &mut room), None);
    }

    /// Safe code cannot read outside the bytes; this looks for what would panic.
    #[test]
    fn any_bytes_are_read_without_harm(
        value in every(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = archive(&value);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let cut = cut.index(bytes.len());
        for bytes in [&bytes[..], &bytes[..cut], &bytes[cut..]] {
            if let Some(t) = Dyn::new(bytes, Every::schema()) {
                read_all(Some(Value::Tuple(t)));
                let _ = format!("{t:?}");
            }
            for name in KEYS {
                dyn_key(bytes, &[name]);
            }
        }
        // What passes the check reads whole.
        if saetta_tuple::check::<Every>(&bytes) {
            let t = Dyn::new(&bytes, Every::schema()).unwrap();
            prop_assert!(t.fields().all(|(_, v)| v.is_some()), "{t:?}");
        }
    }

    #[test]
    fn noise_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Some(t) = Dyn::new(&bytes, Every::schema()) {
            read_all(Some(Value::Tuple(t)));
            let _ = format!("{t:?}");
        }
        for name in KEYS {
            dyn_key(&bytes, &[name]);
        }
    }
}

/// The compiler's offsets and sizes, against the rule that fields are packed in order.
fn assert_packed(schema: &Schema) {
    let mut end = 0;
    for field in &schema.fields {
        assert_eq!(field.offset, end, "{}.{}", schema.name, field.name);
        end += field.shape.size();
    }
    assert_eq!(end, schema.size, "{}", schema.name);
}

#[test]
fn fields_lie_packed_in_declaration_order() {
    assert_packed(Every::schema());
    assert_packed(Leg::schema());
    assert_eq!(Leg::schema().size, size_of::<<Leg as Archive>::Archived>());
    assert_eq!(Every::schema().fields[18].shape, Shape::Tuple(Leg::schema()));
}

/// Golden vectors: the canonical bytes of a key, by the rule of semantics section 3.
#[test]
fn canonical_key_bytes_are_fixed() {
    let leg = Leg { side: 'é', size: -2, venue: Some("NY".into()) };
    let value = Every {
        u8: 7,
        u16: 0x0102,
        u32: 3,
        u64: 4,
        u128: 5,
        i8: -1,
        i16: -2,
        i32: -3,
        i64: -4,
        i128: -5,
        f32: 0.5,
        f64: 0.25,
        flag: true,
        letter: 'x',
        text: "longer than inline".into(),
        bytes: vec![9, 8],
        maybe: Some(6),
        maybe_text: None,
        leg: leg.clone(),
        legs: vec![leg.clone()],
        texts: vec![],
        nested: vec![],
        triple: [1, 2, 3],
        pair: (1, "p".into()),
        maybe_leg: None,
        last: 1,
    };
    let bytes = archive(&value);
    for (name, want) in [
        ("u16", &[2, 1][..]),
        ("i16", &[0xfe, 0xff]),
        ("flag", &[1]),
        ("letter", &[b'x', 0, 0, 0]),
        ("text", b"\x12\0\0\0longer than inline"),
        ("bytes", &[2, 0, 0, 0, 9, 8]),
        ("maybe", &[1, 6, 0, 0, 0]),
        ("maybe_text", &[0]),
        ("leg", b"\xe9\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\x01\x02\0\0\0NY"),
        ("maybe_leg", &[0]),
    ] {
        assert_eq!(dyn_key(&bytes, &[name]).unwrap(), want, "{name}");
    }
    assert_eq!(dyn_key(&bytes, &["flag", "u8"]).unwrap(), [1, 7], "in the order named");
    let text = format!("{:?}", Dyn::new(&bytes, Every::schema()).unwrap());
    assert!(text.starts_with("Every { u8: 7,") && text.contains("leg: Leg { side: 'é', size: -2, venue: \"NY\" }"), "{text}");
}

#[test]
fn a_key_that_cannot_be_is_refused_by_name() {
    let refused = |names: &[&str]| DynKey::new(Every::schema(), names).unwrap_err();
    assert!(refused(&["u8", "u9"]).starts_with("stream `Every` has no field `u9`; it has: u8, u16, u32,"));
    for (name, what) in [("f32", "a float"), ("f64", "a float"), ("legs", "a list"), ("triple", "an array"), ("pair", "a pair")] {
        let text = refused(&[name]);
        assert!(text.contains(&format!("field `{name}` of stream `Every`")) && text.contains(what), "{text}");
    }
}

#[tuple]
pub struct Price {
    pub symbol: String,
    pub px: f64,
}
#[tuple]
pub struct Count {
    pub n: u64,
    pub symbol: String,
}

struct Feed;
impl Emits<Price> for Feed {}
impl Emits<Count> for Feed {}
impl Spout for Feed {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        for i in 0..300u32 {
            let symbol = ["A", "B", "a symbol that does not fit in line"][i as usize % 3];
            cx.emit(&PriceRef { symbol, px: f64::from(i) });
            cx.emit(&CountRef { n: u64::from(i), symbol });
        }
        Ok(Done)
    }
}

/// (task, stream, symbol) to the sum of its number.
type Sums = Arc<Mutex<BTreeMap<(u32, &'static str, String), f64>>>;
#[derive(Clone, Default)]
struct Adds(Sums);
impl Bolt for Adds {}
impl HandleDyn for Adds {
    fn on_dyn(&mut self, t: Dyn<'_>, cx: &mut Cx<'_, Self>) -> Outcome {
        let number = t.fields().find_map(|(_, v)| v.and_then(|v| v.as_f64())).ok_or("no number")?;
        if number == 299.0 {
            return Err(format!("{t:?} is too much").into());
        }
        let symbol = t.get("symbol").and_then(|v| v.as_str()).ok_or("no symbol")?.to_owned();
        *self.0.lock().unwrap().entry((cx.task(), t.schema().name, symbol)).or_default() += number;
        Ok(())
    }
}
/// Where typed code sends the same keys.
#[derive(Clone, Default)]
struct Typed(Sums);
impl Bolt for Typed {}
impl Handle<Price> for Typed {
    fn on(&mut self, t: &ArchivedPrice, cx: &mut Cx<'_, Self>) -> Outcome {
        *self.0.lock().unwrap().entry((cx.task(), "Price", t.symbol().to_owned())).or_default() += t.px();
        Ok(())
    }
}

#[test]
fn one_bolt_reads_streams_of_any_type_grouped_by_names() {
    let (dynamic, typed) = (Adds::default(), Typed::default());
    let mut t = Topology::new();
    let mut feed = t.spout("feed", || Feed);
    let (prices, counts) = (feed.stream::<Price>(), feed.stream::<Count>());
    let (d, ty) = (dynamic.clone(), typed.clone());
    let _ =
        t.bolt("dynamic", move || d.clone()).input_dyn(&prices, &["symbol"]).input_dyn(&counts, by!(Count.symbol)).executors(2).tasks(5);
    let _ = t.bolt("typed", move || ty.clone()).input(&prices, by!(Price.symbol)).executors(2).tasks(5);
    let program = t.build().unwrap();
    let summary = run(&program, &Config::new(Owner::Topology), &RunOptions { quiet: true, ..RunOptions::default() }).unwrap();
    let dynamic = dynamic.0.lock().unwrap();
    let place = |sums: &BTreeMap<(u32, &'static str, String), f64>, stream: &str, symbol: &str, first: u32| {
        let found: Vec<_> =
            sums.iter().filter(|((_, s, y), _)| *s == stream && y == symbol).map(|((t, ..), sum)| (*t - first, *sum)).collect();
        assert_eq!(found.len(), 1, "equal keys meet");
        found[0]
    };
    // Tasks: __acker 1 or more, then dynamic, feed, typed.
    let spec_tasks = |id: &str| {
        let layout = saetta_model::parallelism::Layout::new(&program.spec, &Config::new(Owner::Topology)).unwrap();
        layout.component(id).unwrap().first_task
    };
    let typed = typed.0.lock().unwrap();
    for symbol in ["A", "B", "a symbol that does not fit in line"] {
        let price = place(&dynamic, "Price", symbol, spec_tasks("dynamic"));
        assert_eq!(price.0, place(&dynamic, "Count", symbol, spec_tasks("dynamic")).0, "by name and by field agree");
        assert_eq!(price.0, place(&typed, "Price", symbol, spec_tasks("typed")).0, "typed and dynamic agree");
    }
    assert_eq!(summary.components["dynamic"].failed, 2);
    assert!(summary.errors.iter().any(|e| e.contains("299") && e.contains("is too much")), "{:?}", summary.errors);
}

#[test]
fn a_dynamic_grouping_by_a_field_there_is_not_is_refused_when_built() {
    let mut t = Topology::new();
    let prices = t.spout("feed", || Feed).stream::<Price>();
    let _ = t.bolt("y", Adds::default).input_dyn(&prices, &["symbl"]);
    let _ = t.bolt("z", Adds::default).input_dyn(&prices, &["px"]);
    let Err(text) = t.build() else { panic!("must be refused") };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], "bolt `y`: stream `Price` has no field `symbl`; it has: symbol, px");
    assert!(lines[1].starts_with("bolt `z`: field `px` of stream `Price` is a `f64`, and a float cannot be a grouping key;"), "{text}");
}
