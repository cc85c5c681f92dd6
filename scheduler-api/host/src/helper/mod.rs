//! The helper's side: limits, load, rounds. Everything here runs in the process that may die.
//!
//! Before: `process` started us with the channel as stdin. After: each ROUND is answered by a RESULT, until the channel
//! closes or a plugin takes the process down. Order: limits -> first filter -> look at the file -> load -> instance ->
//! second filter -> HELLO -> rounds.

pub(crate) mod check;
mod filters;
mod limits;
#[expect(unsafe_code, reason = "dlopen runs foreign code, and its symbol is called as a function")]
pub(crate) mod load;
#[expect(unsafe_code, reason = "maps the snapshot and the answer, closes inherited descriptors")]
mod sys;

use crate::inspect::inspect;
use crate::wire::{Kind, LOG_LINES_MAX, MESSAGE_BYTES, Message, REASONS_MAX};
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
            if say(&Message::new(Kind::Hello, code, &text)).is_err() {
                return ExitCode::FAILURE;
            }
            serve(instance, &dropped)
        }
        Err((code, text)) => {
            let _ = say(&Message::new(Kind::Hello, code, &text));
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Args> {
    let (mut parent_pid, mut memory_bytes, mut name, mut plugin, mut builtin) = (None, None, None, None, false);
    let mut config = "{}".to_owned();
    while let Some(key) = args.next() {
        let value = args.next()?;
        match key.as_str() {
            "--parent" => parent_pid = value.parse().ok(),
            "--memory-bytes" => memory_bytes = value.parse().ok(),
            "--name" => name = Some(value),
            "--config" => config = value,
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
    Some(Args { parent_pid: parent_pid?, memory_bytes: memory_bytes?, plugin, config })
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
    let instance = instance.map_err(|e| (e.code, format!("its constructor failed: {e}")))?;
    if let Err(why) = filters::after_create(manifest.as_ref()) {
        partial.get_or_insert(why);
    }
    Ok((instance, lines, partial))
}

fn serve(mut instance: Instance, lines: &Said) -> ExitCode {
    loop {
        let (message, fds) = match hear() {
            Ok(Some(heard)) => heard,
            Ok(None) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::FAILURE,
        };
        let [snapshot, answer] = fds;
        // Relaxed: set and read by this thread, or by one that the plugin started in between.
        lines.wanted.store(message.flags & abi::ROUND_EXPLAIN != 0, Ordering::Relaxed);
        lines.reasons.store(0, Ordering::Relaxed);
        let result = match message.kind {
            Kind::Judge => judge(&mut instance, &message, &snapshot, &answer),
            _ => round(&mut instance, &message, &snapshot, &answer),
        };
        let total = lines.log.swap(0, Ordering::Relaxed);
        if total > LOG_LINES_MAX {
            let text = format!("{} more log lines of this round were dropped", total - LOG_LINES_MAX);
            let _ = say(&Message::new(Kind::Log, abi::LOG_WARN, &text));
        }
        let (code, text) = result.map_or_else(|(code, text)| (code, text), |changed| (i32::from(!changed), String::new()));
        if say(&Message { round_id: message.round_id, ..Message::new(Kind::Result, code, &text) }).is_err() {
            return ExitCode::FAILURE;
        }
    }
}

fn round(instance: &mut Instance, m: &Message, snapshot: &OwnedFd, answer: &OwnedFd) -> Result<bool, (i32, String)> {
    let mapping = |e: Errno| (abi::E_INTERNAL, format!("mapping the round's memory: {e}"));
    let snapshot = sys::ReadMap::new(snapshot, m.snap_len as usize).map_err(mapping)?;
    let (n_execs, n_topologies) = (m.n_execs as usize, m.n_topologies as usize);
    let mut answer = sys::WriteMap::new(answer, 2 * n_execs + n_topologies).map_err(mapping)?;
    let (slot_of_exec, rest) = answer.words().split_at_mut(n_execs);
    let (outcome, core_of_exec) = rest.split_at_mut(n_topologies);
    let args = args_of(m);
    let plan = PlanArrays { slot_of_exec, outcome, core_of_exec: Some(core_of_exec) };
    instance.schedule(args, snapshot.bytes(), plan).map_err(|e| (e.code, e.text))
}

/// A health stage's round: the flags of the nodes.
fn judge(instance: &mut Instance, m: &Message, snapshot: &OwnedFd, answer: &OwnedFd) -> Result<bool, (i32, String)> {
    let mapping = |e: Errno| (abi::E_INTERNAL, format!("mapping the round's memory: {e}"));
    let snapshot = sys::ReadMap::new(snapshot, m.snap_len as usize).map_err(mapping)?;
    let mut answer = sys::WriteMap::new(answer, m.n_execs as usize).map_err(mapping)?;
    match instance.judge(args_of(m), snapshot.bytes(), answer.words()) {
        Some(judged) => judged.map_err(|e| (e.code, e.text)),
        None => Err((abi::E_UNSUPPORTED, format!("it judges no nodes: it has no {}", abi::EXT_NODE_HEALTH))),
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

/// The next ROUND with its two descriptors; `None` = nimbus closed the channel.
fn hear() -> Result<Option<(Message, [OwnedFd; 2])>, Errno> {
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
    match (Message::decode(&buf[..n]), <[OwnedFd; 2]>::try_from(fds)) {
        (Some(message), Ok(fds)) if matches!(message.kind, Kind::Round | Kind::Judge) => Ok(Some((message, fds))),
        _ => Err(Errno::PROTO),
    }
}
