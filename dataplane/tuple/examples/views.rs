//! What reading a tuple costs: four fields of a quote, typed and dynamic, and its key. `cargo run --release -p saetta-tuple --example views`
//!
//! Prints nanoseconds per tuple, the best of fifty runs of 200,000 on one core.

extern crate self as saetta;

use saetta_tuple::{Dyn, DynKey, Encoder, KeyBytes, KeyField, Schema, Tuple as _, check, tuple};
use std::hint::black_box;
use std::time::Instant;

#[doc(hidden)]
pub mod __rt {
    pub use saetta_tuple::rt::*;
}

/// 14 characters of symbol: text that does not fit in line.
#[tuple]
pub struct Quote {
    /// When.
    pub ts: u64,
    /// What.
    pub symbol: String,
    /// How much.
    pub px: f64,
    /// How many.
    pub qty: u32,
}

const TUPLES: u32 = 200_000;
const RUNS: u32 = 50;

fn best(what: &str, mut read: impl FnMut() -> u64) {
    let runs = (0..RUNS).map(|_| {
        let start = Instant::now();
        for _ in 0..TUPLES {
            black_box(read());
        }
        start.elapsed().as_nanos() as f64 / f64::from(TUPLES)
    });
    println!("{what:<32} {:6.1} ns", runs.fold(f64::MAX, f64::min));
}

#[inline]
fn by_place(archive: &[u8], schema: &Schema) -> Option<u64> {
    let t = Dyn::new(archive, schema)?;
    Some(t.u64_at(0)? + t.str_at(1)?.len() as u64 + t.f64_at(2)? as u64 + t.u64_at(3)?)
}

#[inline]
fn by_name(archive: &[u8], schema: &Schema) -> Option<u64> {
    let t = Dyn::new(archive, schema)?;
    Some(t.get("ts")?.as_u64()? + t.get("symbol")?.as_str()?.len() as u64 + t.get("px")?.as_f64()? as u64 + t.get("qty")?.as_u64()?)
}

fn main() {
    let mut archive = Vec::new();
    Encoder::default().append(&Quote { ts: 1, symbol: "ABCDEFGHIJKLMN".into(), px: 2.0, qty: 3 }, &mut archive).expect("small");
    let want = 1 + 14 + 2 + 3;
    let schema = Quote::schema();
    assert_eq!((by_place(&archive, schema), by_name(&archive, schema)), (Some(want), Some(want)));

    best("checked", || u64::from(check::<Quote>(black_box(&archive))));
    best("dynamic, one integer by place", || Dyn::new(black_box(&archive), schema).and_then(|t| t.u64_at(0)).expect("whole"));
    best("dynamic, four fields by place", || by_place(black_box(&archive), schema).expect("whole"));
    best("dynamic, four fields by name", || by_name(black_box(&archive), schema).expect("whole"));
    let mut key = KeyBytes::default();
    let by = DynKey::new(schema, &["symbol"]).expect("a field");
    best("hash of the symbol, dynamic", || {
        key.clear();
        by.add(black_box(&archive), &mut key).expect("whole");
        key.hash()
    });
    best("hash of the symbol, native", || {
        key.clear();
        black_box("ABCDEFGHIJKLMN").key(&mut key);
        key.hash()
    });
}
