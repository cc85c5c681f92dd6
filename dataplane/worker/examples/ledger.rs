//! A worker with a topology that keeps its own books, for the live tests of this crate: numbers -> relay (by key) -> sink (shuffled), tracked.
//!
//! Called as `counting.rs` is. The record's arguments: an output directory, tasks of `numbers`, numbers a second of each task, and the size of
//! the padding of every 16th number (the others have little): large ones are cut anywhere on their way.
//! Each task of each process appends to a file of its own, `COMPONENT-TASK-PID`, pairs of u64, before any ack leaves the process:
//! numbers: (event, time), see `EMITTED`; relay and sink: (process of the spout and its task, number), see `BROKEN`. Nothing is sent twice.

// `#[tuple]` names the crate users depend on, which stands on this one.
extern crate self as saetta;

use saetta_engine::{Asked, Chooser, Component, Cx, Fail, KeyFn, Program, ProgramComponent, Progress, TreeFail};
use saetta_model::Name;
use saetta_model::topology::{ComponentKind, ComponentSpec, FieldSpec, Format, Grouping, InputSpec, Resources, StreamSpec, TopologySpec};
use saetta_tuple::rkyv::rancor::Failure;
use saetta_tuple::{Tuple as _, rkyv, tuple};
use saetta_worker::WorkerArgs;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

#[doc(hidden)]
pub mod __rt {
    pub use saetta_tuple::rt::*;
}

/// Events of a spout: this in the upper byte, the number below; a failure adds its reason's place in `saetta_engine::Reason`.
const EMITTED: u64 = 1;
const ACKED: u64 = 2;
const FAILED: u64 = 16;
/// Set in a number that a bolt saw with padding it was not sent with.
const BROKEN: u64 = 1 << 63;
/// Every so many numbers a large one.
const LARGE_EVERY: u64 = 16;
const SMALL_BYTES: usize = 64;

/// What travels.
#[tuple]
pub struct Item {
    /// Grouping key.
    key: u32,
    /// Process of the spout.
    life: u32,
    /// Its task.
    task: u32,
    /// Rises with each tuple of its emitter.
    n: u64,
    /// The low byte of `n`, again and again.
    pad: Vec<u8>,
}

fn read(archive: &[u8]) -> &ArchivedItem {
    rkyv::access::<ArchivedItem, Failure>(archive).expect("checked at the door")
}

/// One task's book. What is written is in the kernel's hands: it outlives a killed process.
struct Book {
    file: File,
    bytes: Vec<u8>,
}

impl Book {
    fn open(out: &Path, component: &str, task: u32) -> Result<Book, Fail> {
        let path = out.join(format!("{component}-{task}-{}", std::process::id()));
        let file = File::options().append(true).create(true).open(path).map_err(|e| Fail::Fatal(e.to_string()))?;
        Ok(Book { file, bytes: Vec::new() })
    }

    fn note(&mut self, a: u64, b: u64) {
        self.bytes.extend_from_slice(&a.to_le_bytes());
        self.bytes.extend_from_slice(&b.to_le_bytes());
    }

    fn write(&mut self) {
        self.file.write_all(&self.bytes).expect("the test's directory takes the books");
        self.bytes.clear();
    }
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

struct Numbers {
    out: PathBuf,
    per_second: u64,
    large_bytes: usize,
    next: u64,
    /// When the first number was due.
    began_ns: u64,
    book: Option<Book>,
}

impl Numbers {
    fn book(&mut self) -> &mut Book {
        self.book.as_mut().expect("opened")
    }
}

impl Component for Numbers {
    fn open(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail> {
        self.book = Some(Book::open(&self.out, "numbers", cx.task())?);
        self.began_ns = unix_ns();
        Ok(())
    }
    fn ask(&mut self, calls: u32, cx: &mut Cx<'_>) -> Asked {
        let now_ns = unix_ns();
        let due = (now_ns - self.began_ns) / 1000 * self.per_second / 1_000_000;
        // Nobody makes up for a pause.
        if due > self.next + self.per_second / 10 {
            self.began_ns = now_ns - self.next * 1_000_000_000 / self.per_second;
        }
        let asked = cx.ask(calls, |cx| {
            if self.next >= due {
                return Ok(Progress::Idle);
            }
            let n = self.next;
            self.next += 1;
            self.book().note(EMITTED << 56 | n, now_ns);
            let bytes = if n.is_multiple_of(LARGE_EVERY) { self.large_bytes } else { SMALL_BYTES };
            let pad = vec![n as u8; bytes];
            cx.emit_tracked(Some(0), n, &ItemRef { key: n as u32 % 97, life: std::process::id(), task: cx.task(), n, pad: &pad });
            Ok(Progress::Busy)
        });
        self.book().write();
        asked
    }
    fn acked(&mut self, ids: &[u64]) {
        let now_ns = unix_ns();
        ids.iter().for_each(|n| self.book().note(ACKED << 56 | n, now_ns));
        self.book().write();
    }
    fn failed(&mut self, id: u64, why: &TreeFail) {
        self.book().note((FAILED + why.reason as u64) << 56 | id, unix_ns());
        self.book().write();
    }
}

/// Relay and, where it emits nothing, sink.
struct Seen {
    out: PathBuf,
    component: &'static str,
    emits: bool,
    book: Option<Book>,
}

impl Component for Seen {
    fn open(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail> {
        self.book = Some(Book::open(&self.out, self.component, cx.task())?);
        Ok(())
    }
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut Cx<'_>) {
        let book = self.book.as_mut().expect("opened");
        while let Some(frame) = cx.next_frame(stream, window) {
            let item = read(frame.archive());
            let (n, pad) = (item.n.to_native(), item.pad.as_slice());
            let whole = !pad.is_empty() && pad.iter().all(|b| *b == n as u8);
            let (life, task) = (item.life.to_native(), item.task.to_native());
            book.note(u64::from(life) << 32 | u64::from(task), if whole { n } else { n | BROKEN });
            if self.emits {
                cx.emit(0, &ItemRef { key: item.key.to_native(), life, task, n, pad });
            }
        }
        // The acks leave at the end of the loop's turn, behind this.
        book.write();
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a constant")
}

/// The description; the tests make their record from the same lines, by `describe TASKS`.
fn spec(numbers: u32) -> TopologySpec {
    let stream = || {
        let fields = ["key", "life", "task", "n", "pad"].map(|f| FieldSpec { name: f.into(), ty: "u64".into() });
        StreamSpec { name: name("Item"), schema: Item::schema().id(), fields: fields.to_vec() }
    };
    let component = |id: &str, kind, executors, outputs, inputs| ComponentSpec {
        id: name(id),
        kind,
        executors,
        tasks: None,
        resources: Resources::default(),
        outputs,
        inputs,
        config: BTreeMap::new(),
        tracked: kind == ComponentKind::Spout,
    };
    let input = |from: &str, grouping| InputSpec { from: name(from), stream: name("Item"), grouping };
    let (archive, endian, unaligned, pointer_bits) = saetta_tuple::FORMAT;
    TopologySpec {
        saetta: env!("CARGO_PKG_VERSION").into(),
        format: Format { archive: archive.into(), endian: endian.into(), unaligned, pointer_bits },
        components: vec![
            component("numbers", ComponentKind::Spout, numbers, vec![stream()], vec![]),
            component("relay", ComponentKind::Bolt, 2, vec![stream()], vec![input("numbers", Grouping::Fields(vec!["key".into()]))]),
            component("sink", ComponentKind::Bolt, 2, vec![], vec![input("relay", Grouping::Shuffle)]),
        ],
    }
}

fn build(args: &[String]) -> Result<Program, String> {
    let [out, tasks, per_second, large] = args else { return Err("usage: OUT TASKS PER_SECOND LARGE_BYTES".into()) };
    let number = |text: &String| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    let (per_second, large) = (number(per_second)?, number(large)? as usize);
    let key: KeyFn = Arc::new(|archive, bytes| bytes.raw(&read(archive).key.to_native().to_le_bytes()));
    let check: fn(&[u8]) -> bool = saetta_tuple::check::<Item>;
    let tag = std::any::TypeId::of::<Item>();
    let out = PathBuf::from(out);
    let seen = |component, emits| {
        let out = out.clone();
        move || -> Box<dyn Component> { Box::new(Seen { out: out.clone(), component, emits, book: None }) }
    };
    let (relay, sink) = (seen("relay", true), seen("sink", false));
    let numbers = move || -> Box<dyn Component> {
        Box::new(Numbers { out: out.clone(), per_second, large_bytes: large, next: 0, began_ns: 0, book: None })
    };
    Ok(Program {
        spec: spec(number(tasks)? as u32),
        config: BTreeMap::new(),
        components: vec![
            ProgramComponent { dead_letters: None, factory: Arc::new(numbers), tags: vec![tag], checks: vec![check], choosers: vec![] },
            ProgramComponent {
                dead_letters: None,
                factory: Arc::new(relay),
                tags: vec![tag],
                checks: vec![check],
                choosers: vec![Some(Chooser::Key(key, Arc::default()))],
            },
            ProgramComponent { dead_letters: None, factory: Arc::new(sink), tags: vec![], checks: vec![], choosers: vec![None] },
        ],
    })
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some("describe") {
        let tasks = args.get(2).and_then(|n| n.parse().ok()).expect("usage: describe TASKS");
        println!("{}", serde_json::to_string(&spec(tasks)).expect("a description is JSON"));
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
