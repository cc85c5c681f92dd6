//! A worker with a topology made by hand, for the tests of this crate: numbers -> middle (by key) -> count (shuffled).
//!
//! Called as a supervisor calls a topology's binary: `worker --socket PATH --topology ID --port N --placement HEX --start N --key-fd N`.
//! The record's arguments: an output directory, how many numbers each spout task emits (0 = endless), and a word: `plain`; `stuck` holds
//! the first middle task up for a while; `fatal` ends it for good; `tracked` has one executor of each and tracks every number.
//! Each count task writes what it saw at its end: tuples, sum of values, how many came out of the order their source sent them in, and from how
//! many sources they came. An instance that is not the first to end, or that its executor moves away from, writes the same to a file of its own:
//! a task that has ended and moves then begins, and ends, anew. A tracked spout task writes then how many trees were acked and how many
//! failed, and before that the reason of the first one that did.

// `#[tuple]` names the crate users depend on, which stands on this one.
extern crate self as saetta;

use saetta_engine::{Asked, Chooser, Component, Cx, Fail, KeyFn, Program, ProgramComponent, Progress, TreeFail};
use saetta_model::Name;
use saetta_model::topology::{ComponentKind, ComponentSpec, FieldSpec, Format, Grouping, InputSpec, Resources, StreamSpec, TopologySpec};
use saetta_tuple::rkyv::rancor::Failure;
use saetta_tuple::{Tuple as _, rkyv, tuple};
use saetta_worker::WorkerArgs;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[doc(hidden)]
pub mod __rt {
    pub use saetta_tuple::rt::*;
}

/// How long `stuck` holds its loop up.
const HELD_UP: Duration = Duration::from_millis(2500);

/// What travels.
#[tuple]
pub struct Item {
    /// Grouping key.
    key: u32,
    /// Rises with each tuple of its emitter.
    seq: u64,
    /// What is summed up.
    value: u64,
}

fn read(archive: &[u8]) -> (u32, u64, u64) {
    let item = rkyv::access::<ArchivedItem, Failure>(archive).expect("checked at the door");
    (item.key.to_native(), item.seq.to_native(), item.value.to_native())
}

struct Numbers {
    next: u64,
    /// 0 = endless.
    end: u64,
    /// Tracked: where it writes, trees acked and failed.
    trees: Option<(PathBuf, u64, u64)>,
}

impl Component for Numbers {
    fn ask(&mut self, calls: u32, cx: &mut Cx<'_>) -> Asked {
        cx.ask(calls, |cx| {
            if self.end > 0 && self.next == self.end {
                return Ok(Progress::Done);
            }
            let n = self.next;
            self.next += 1;
            let item = Item { key: (n % 97) as u32, seq: n, value: n };
            match self.trees {
                None => cx.emit(0, &item),
                Some(_) => cx.emit_tracked(Some(0), n, &item),
            }
            Ok(Progress::Busy)
        })
    }
    fn acked(&mut self, ids: &[u64]) {
        self.trees.as_mut().expect("tracked").1 += ids.len() as u64;
    }
    fn failed(&mut self, _id: u64, why: &TreeFail) {
        let (out, _, failed) = self.trees.as_mut().expect("tracked");
        *failed += 1;
        if *failed == 1 {
            std::fs::write(out.join("failed"), why.to_string()).expect("the test's directory");
        }
    }
    fn finish(&mut self, _cx: &mut Cx<'_>) -> Result<(), Fail> {
        let Some((out, acked, failed)) = &self.trees else { return Ok(()) };
        std::fs::write(out.join("trees"), format!("{acked} {failed}")).map_err(|e| Fail::Fatal(e.to_string()))
    }
}

/// Checks that each source's tuples come in order.
#[derive(Default)]
struct Order(BTreeMap<u32, u64>);

impl Order {
    fn holds(&mut self, source: u32, seq: u64) -> bool {
        self.0.insert(source, seq).is_none_or(|last| last < seq)
    }
}

#[derive(Default)]
struct Middle {
    word: String,
    order: Order,
}

impl Component for Middle {
    fn open(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail> {
        match self.word.as_str() {
            "stuck" if cx.task() == 3 => std::thread::sleep(HELD_UP),
            "fatal" if cx.task() == 3 => return Err(Fail::Fatal("the middle\nis missing".into())),
            _ => {}
        }
        Ok(())
    }
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut Cx<'_>) {
        while let Some(frame) = cx.next_frame(stream, window) {
            let (key, seq, value) = read(frame.archive());
            if !self.order.holds(frame.header.source, seq) {
                cx.fail("out of order".into());
            }
            // The order of its source, which outlives this instance; the lowest bit says which source.
            cx.emit(0, &Item { key, seq: value << 1 | u64::from(frame.header.source & 1), value });
        }
    }
}

struct Count {
    out: PathBuf,
    task: u32,
    /// By source of the tuples, and by theirs.
    order: BTreeMap<u32, [Order; 2]>,
    ended: bool,
    tuples: u64,
    sum: u64,
    disorder: u64,
}

impl Count {
    fn write(&self, name: &str) -> Result<(), Fail> {
        let text = format!("{} {} {} {}", self.tuples, self.sum, self.disorder, self.order.len());
        std::fs::write(self.out.join(name), text).map_err(|e| Fail::Fatal(e.to_string()))
    }
}

impl Count {
    /// No name is used twice: instances of a task in one process come one after the other.
    fn write_part(&self) -> Result<(), Fail> {
        let name = (0..).map(|n| format!("part-{}-{}-{n}", self.task, std::process::id())).find(|name| !self.out.join(name).exists());
        self.write(&name.expect("endless"))
    }
}

impl Component for Count {
    fn open(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail> {
        self.task = cx.task();
        Ok(())
    }
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut Cx<'_>) {
        while let Some(frame) = cx.next_frame(stream, window) {
            let (_, seq, value) = read(frame.archive());
            let order = &mut self.order.entry(frame.header.source).or_default()[seq as usize & 1];
            self.disorder += u64::from(!order.holds(0, seq));
            self.tuples += 1;
            self.sum += value;
        }
    }
    fn finish(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail> {
        self.ended = true;
        let name = format!("count-{}", cx.task());
        if self.out.join(&name).exists() { self.write_part() } else { self.write(&name) }
    }
    fn close(&mut self) {
        if !self.ended && self.tuples > 0 {
            let _ = self.write_part();
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a constant")
}

/// The description; the tests make their record from the same lines, by `describe`.
fn spec(word: &str) -> TopologySpec {
    let tracked = word == "tracked";
    let stream = || {
        let fields = ["key", "seq", "value"].map(|f| FieldSpec { name: f.into(), ty: "u64".into() });
        StreamSpec { name: name("Item"), schema: Item::schema().id(), fields: fields.to_vec() }
    };
    let component = |id: &str, kind, outputs, inputs| ComponentSpec {
        id: name(id),
        kind,
        executors: if tracked { 1 } else { 2 },
        tasks: None,
        resources: Resources::default(),
        outputs,
        inputs,
        config: BTreeMap::new(),
        tracked: tracked && kind == ComponentKind::Spout,
    };
    let input = |from: &str, grouping| InputSpec { from: name(from), stream: name("Item"), grouping };
    let (archive, endian, unaligned, pointer_bits) = saetta_tuple::FORMAT;
    TopologySpec {
        saetta: env!("CARGO_PKG_VERSION").into(),
        format: Format { archive: archive.into(), endian: endian.into(), unaligned, pointer_bits },
        components: vec![
            component("count", ComponentKind::Bolt, vec![], vec![input("middle", Grouping::Shuffle)]),
            component("middle", ComponentKind::Bolt, vec![stream()], vec![input("numbers", Grouping::Fields(vec!["key".into()]))]),
            component("numbers", ComponentKind::Spout, vec![stream()], vec![]),
        ],
    }
}

fn build(args: &[String]) -> Result<Program, String> {
    let [out, end, word] = args else { return Err("usage: OUT END WORD".into()) };
    let (out, word) = (PathBuf::from(out), word.clone());
    let spec = spec(&word);
    let trees = spec.components.iter().any(|c| c.tracked).then(|| (out.clone(), 0, 0));
    let end: u64 = end.parse().map_err(|e| format!("END {end:?}: {e}"))?;
    let key: KeyFn = Arc::new(|archive, bytes| bytes.raw(&read(archive).0.to_le_bytes()));
    let check: fn(&[u8]) -> bool = saetta_tuple::check::<Item>;
    let tag = std::any::TypeId::of::<Item>();
    let count = move || -> Box<dyn Component> {
        Box::new(Count { out: out.clone(), task: 0, order: BTreeMap::new(), ended: false, tuples: 0, sum: 0, disorder: 0 })
    };
    let middle = move || -> Box<dyn Component> { Box::new(Middle { word: word.clone(), ..Middle::default() }) };
    let numbers = move || -> Box<dyn Component> { Box::new(Numbers { next: 0, end, trees: trees.clone() }) };
    Ok(Program {
        spec,
        config: [("topology.acker.executors".to_owned(), "0".to_owned())].into(),
        components: vec![
            ProgramComponent { dead_letters: None, factory: Arc::new(count), tags: vec![], checks: vec![], choosers: vec![None] },
            ProgramComponent {
                dead_letters: None,
                factory: Arc::new(middle),
                tags: vec![tag],
                checks: vec![check],
                choosers: vec![Some(Chooser::Key(key, Arc::default()))],
            },
            ProgramComponent { dead_letters: None, factory: Arc::new(numbers), tags: vec![tag], checks: vec![check], choosers: vec![] },
        ],
    })
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some("describe") {
        println!("{}", serde_json::to_string(&spec(args.get(2).map_or("plain", String::as_str))).expect("a description is JSON"));
        return std::process::ExitCode::SUCCESS;
    }
    let value = |flag: &str| args[args.iter().position(|a| a == flag).unwrap_or_else(|| panic!("no {flag}")) + 1].clone();
    let args = WorkerArgs {
        socket: value("--socket").into(),
        topology: value("--topology"),
        port: value("--port").parse().expect("a port"),
        placement: u64::from_str_radix(&value("--placement"), 16).expect("a placement id in hex"),
        start: value("--start").parse().expect("a start number"),
        key_fd: value("--key-fd").parse().expect("a descriptor"),
    };
    match saetta_worker::run(args, &build) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            std::process::ExitCode::from(if e.is_restart() { 75 } else { 1 })
        }
    }
}
