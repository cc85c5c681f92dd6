//! The helper's side: limits, load, rounds. Everything here runs in the process that may die.
//!
//! Before: `process` started us with the channel as stdin. After: each ROUND is answered by a RESULT, until the channel
//! closes or a plugin takes the process down. Order: limits -> first filter -> look at the file -> load -> instance ->
//! second filter -> what an instance before it saved -> HELLO -> rounds.

pub(crate) mod check;
mod filters;
mod limits;
#[expect(unsafe_code, reason = "dlopen runs foreign code, and its symbol is called as a function")]
pub(crate) mod load;
#[expect(unsafe_code, reason = "maps the snapshot and the answer, closes inherited descriptors, asks for the locale")]
mod sys;

use crate::inspect::inspect;
use crate::wire::{Kind, LOG_LINES_MAX, MESSAGE_BYTES, Message, REASONS_MAX, REMEMBERS, SAVED};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use saetta_model::beat::RATE_WINDOW_S;
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, PlanArrays, Reason, RoundArgs, Services};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What the command line says. Written by `process::Helper::start` only.
struct Args {
    parent_pid: i32,
    memory_bytes: u64,
    /// `None` = the linked-in even.
    plugin: Option<(String, PathBuf)>,
    /// Configuration of the plugin, JSON.
    config: String,
    /// A message with what an instance saved comes first.
    remember: bool,
}

/// The life of a helper. The arguments are an agreement between two parts of one build, not an interface for people.
pub fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let mut args = args.peekable();
    if args.next_if(|first| first == check::FLAG).is_some() {
        return check::main(args);
    }
    let Some(args) = parse(args) else {
        eprintln!("saetta-sched-host is started by `saetta nimbus`; it has no use by hand");
        return ExitCode::from(2);
    };
    match prepare(&args) {
        Ok((instance, dropped, partial)) => {
            let (code, text) = partial.map_or((0, String::new()), |why| (1, why));
            let flags = if instance.has_extension(abi::EXT_STATE) { REMEMBERS } else { 0 };
            if say(&Message { flags, ..Message::new(Kind::Hello, code, &text) }).is_err() {
                return ExitCode::FAILURE;
            }
            serve(instance, &dropped, flags == REMEMBERS)
        }
        Err((code, text)) => {
            let _ = say(&Message::new(Kind::Hello, code, &text));
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Args> {
    let (mut parent_pid, mut memory_bytes, mut name, mut plugin, mut builtin) = (None, None, None, None, false);
    let (mut config, mut remember) = ("{}".to_owned(), false);
    while let Some(key) = args.next() {
        let value = args.next()?;
        match key.as_str() {
            "--parent" => parent_pid = value.parse().ok(),
            "--memory-bytes" => memory_bytes = value.parse().ok(),
            "--name" => name = Some(value),
            "--config" => config = value,
            "--remember" => remember = value == "true",
            "--plugin" => plugin = Some(PathBuf::from(value)),
            "--builtin" if value == "even" => builtin = true,
            _ => return None,
        }
    }
    let plugin = match (name, plugin, builtin) {
        (Some(name), Some(path), false) => Some((name, path)),
        (None, None, true) => None,
        _ => return None,
    };
    Some(Args { parent_pid: parent_pid?, memory_bytes: memory_bytes?, plugin, config, remember })
}

/// What the plugin said in the current round.
#[derive(Default)]
struct Said {
    /// Log lines passed on or dropped.
    log: AtomicU32,
    /// Reasons passed on or dropped.
    reasons: AtomicU32,
    /// The round asked for reasons.
    wanted: AtomicBool,
}

type Lines = Arc<Said>;

/// From a fresh process to an instance behind both filters. The third value says which containment is missing.
fn prepare(args: &Args) -> Result<(Instance, Lines, Option<String>), (i32, String)> {
    sys::close_inherited();
    limits::apply(args.parent_pid, args.memory_bytes).map_err(|what| (abi::E_INTERNAL, what))?;
    let mut partial = filters::before_load().err();
    let lines = Lines::default();
    let services = {
        let (lines, reasons) = (lines.clone(), lines.clone());
        let log = move |level: i32, text: &str| {
            // Relaxed: a count, nothing is published by it.
            if lines.log.fetch_add(1, Ordering::Relaxed) < LOG_LINES_MAX {
                let _ = say(&Message::new(Kind::Log, level, text));
            }
        };
        let explain = move |reason: &Reason| {
            // Relaxed: as above.
            if reasons.wanted.load(Ordering::Relaxed) && reasons.reasons.fetch_add(1, Ordering::Relaxed) < REASONS_MAX {
                let _ = say(&Message::of_reason(reason));
            }
        };
        Services { explain: Some(Box::new(explain)), stats_window_s: Some(RATE_WINDOW_S), ..Services::new(log) }
    };
    let mut manifest = None;
    let instance = match &args.plugin {
        None => Instance::builtin(saetta_even::BUILTIN, "{}", services),
        Some((name, path)) => {
            manifest = Some(inspect(path).map_err(|e| (abi::E_UNSUPPORTED, e.to_string()))?);
            load::load(path, name, &args.config, services).map_err(|e| (abi::E_UNSUPPORTED, format!("{}: {e}", path.display())))?
        }
    };
    let mut instance = instance.map_err(|e| (e.code, format!("its constructor failed: {e}")))?;
    if let Err(why) = filters::after_create(manifest.as_ref()) {
        partial.get_or_insert(why);
    }
    if args.remember {
        remember(&mut instance)?;
    }
    Ok((instance, lines, partial))
}

/// Gives an instance what one before it saved. Where it does not take that, it starts with nothing and says so.
fn remember(instance: &mut Instance) -> Result<(), (i32, String)> {
    let internal = |e: Errno| (abi::E_INTERNAL, format!("what it saved before: {e}"));
    let (message, fds) = hear().map_err(internal)?.ok_or((abi::E_INTERNAL, "its host is gone".to_owned()))?;
    let [memory] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| internal(Errno::PROTO))?;
    let memory = sys::ReadMap::new(&memory, message.snap_len as usize).map_err(internal)?;
    if let Err(e) = instance.restore(memory.bytes()) {
        let _ = say(&Message::new(Kind::Log, abi::LOG_WARN, &format!("what it saved before is not taken, it starts with nothing: {e}")));
    }
    Ok(())
}

fn serve(mut instance: Instance, lines: &Said, remembers: bool) -> ExitCode {
    loop {
        let (message, fds) = match hear() {
            Ok(Some(heard)) => heard,
            Ok(None) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::FAILURE,
        };
        let Ok([snapshot, answer]) = <[OwnedFd; 2]>::try_from(fds) else { return ExitCode::FAILURE };
        // Relaxed: set and read by this thread, or by one that the plugin started in between.
        lines.wanted.store(message.flags & abi::ROUND_EXPLAIN != 0, Ordering::Relaxed);
        lines.reasons.store(0, Ordering::Relaxed);
        let result = answered(&mut instance, &message, &snapshot, &answer, remembers);
        let total = lines.log.swap(0, Ordering::Relaxed);
        if total > LOG_LINES_MAX {
            let text = format!("{} more log lines of this round were dropped", total - LOG_LINES_MAX);
            let _ = say(&Message::new(Kind::Log, abi::LOG_WARN, &text));
        }
        let result = match result {
            Ok((changed, saved)) => Message {
                flags: if saved.is_some() { SAVED } else { 0 },
                snap_len: saved.unwrap_or(0),
                ..Message::new(Kind::Result, i32::from(!changed), "")
            },
            Err((code, text)) => Message::new(Kind::Result, code, &text),
        };
        if say(&Message { round_id: message.round_id, ..result }).is_err() {
            return ExitCode::FAILURE;
        }
    }
}

/// Runs a question. True = something changed; and how many bytes the instance saved behind the answer.
fn answered(
    instance: &mut Instance,
    m: &Message,
    snapshot: &OwnedFd,
    answer: &OwnedFd,
    remembers: bool,
) -> Result<(bool, Option<u64>), (i32, String)> {
    let mapping = |e: Errno| (abi::E_INTERNAL, format!("mapping the round's memory: {e}"));
    let snapshot = sys::ReadMap::new(snapshot, m.snap_len as usize).map_err(mapping)?;
    let (n_execs, n_topologies) = (m.n_execs as usize, m.n_topologies as usize);
    let n_words = if m.kind == Kind::Judge { n_execs } else { 2 * n_execs + n_topologies };
    let room = if remembers { abi::STATE_BYTES_MAX as usize / 4 } else { 0 };
    let mut answer = sys::WriteMap::new(answer, n_words + room).map_err(mapping)?;
    let (words, room) = answer.words().split_at_mut(n_words);
    let args = args_of(m);
    let changed = if m.kind == Kind::Judge {
        let none = || (abi::E_UNSUPPORTED, format!("it judges no nodes: it has no {}", abi::EXT_NODE_HEALTH));
        instance.judge(args, snapshot.bytes(), words).ok_or_else(none)?
    } else {
        let (slot_of_exec, rest) = words.split_at_mut(n_execs);
        let (outcome, core_of_exec) = rest.split_at_mut(n_topologies);
        instance.schedule(args, snapshot.bytes(), PlanArrays { slot_of_exec, outcome, core_of_exec: Some(core_of_exec) })
    };
    let changed = changed.map_err(|e| (e.code, e.text))?;
    // A question without effect leaves nothing to remember.
    let lasts = !matches!(m.reason, abi::REASON_DRY_RUN | abi::REASON_SHADOW);
    Ok((changed, if lasts { save(instance, room) } else { None }))
}

/// Writes what the instance wants to find again.
fn save(instance: &mut Instance, room: &mut [u32]) -> Option<u64> {
    match instance.save()? {
        Ok(saved) => {
            for (word, bytes) in room.iter_mut().zip(saved.chunks(4)) {
                let mut whole = [0; 4];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u32::from_le_bytes(whole);
            }
            Some(saved.len() as u64)
        }
        Err(e) => {
            let _ = say(&Message::new(Kind::Log, abi::LOG_WARN, &format!("it cannot save what it wants to find again: {e}")));
            None
        }
    }
}

fn args_of(m: &Message) -> RoundArgs {
    let Message { reason, round_id, seed, max_moves, flags, budget_ns, .. } = *m;
    RoundArgs { reason, round_id, seed, max_moves, flags, budget_ns }
}

fn say(message: &Message) -> Result<(), Errno> {
    loop {
        match send(std::io::stdin(), &message.encode(), SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The next message with its descriptors; `None` = nimbus closed the channel.
fn hear() -> Result<Option<(Message, Vec<OwnedFd>)>, Errno> {
    let mut buf = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let n = loop {
        match recvmsg(std::io::stdin(), &mut [IoSliceMut::new(&mut buf)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => break got.bytes,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    };
    if n == 0 {
        return Ok(None);
    }
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    match Message::decode(&buf[..n]) {
        Some(message) if matches!(message.kind, Kind::Round | Kind::Judge | Kind::Remember) => Ok(Some((message, fds))),
        _ => Err(Errno::PROTO),
    }
}
