//! The helper's side: limits, load, rounds. Everything here runs in the process that may die.
//!
//! Before: `process` started us with the channel as stdin. After: each ROUND is answered by a RESULT, until the channel
//! closes or a plugin takes the process down. Order: limits -> first filter -> look at the file -> load -> instance ->
//! second filter -> HELLO -> rounds.

pub(crate) mod check;
mod filters;
mod limits;
#[expect(unsafe_code, reason = "dlopen runs foreign code, and its symbol is called as a function")]
mod load;
#[expect(unsafe_code, reason = "maps the snapshot and the answer, closes inherited descriptors")]
mod sys;

use crate::inspect::inspect;
use crate::wire::{Kind, LOG_LINES_MAX, MESSAGE_BYTES, Message};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use saetta_model::beat::RATE_WINDOW_S;
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, PlanArrays, RoundArgs, Services};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the command line says. Written by `process::Helper::start` only.
struct Args {
    parent_pid: i32,
    memory_bytes: u64,
    /// `None` = the linked-in even.
    plugin: Option<(String, PathBuf)>,
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
    while let Some(key) = args.next() {
        let value = args.next()?;
        match key.as_str() {
            "--parent" => parent_pid = value.parse().ok(),
            "--memory-bytes" => memory_bytes = value.parse().ok(),
            "--name" => name = Some(value),
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
    Some(Args { parent_pid: parent_pid?, memory_bytes: memory_bytes?, plugin })
}

/// Log lines of the current round that were passed on or dropped.
type Lines = Arc<AtomicU32>;

/// From a fresh process to an instance behind both filters. The third value says which containment is missing.
fn prepare(args: &Args) -> Result<(Instance, Lines, Option<String>), (i32, String)> {
    sys::close_inherited();
    limits::apply(args.parent_pid, args.memory_bytes).map_err(|what| (abi::E_INTERNAL, what))?;
    let mut partial = filters::before_load().err();
    let lines = Lines::default();
    let mut services = {
        let lines = lines.clone();
        Services::new(move |level, text| {
            // Relaxed: a count, nothing is published by it.
            if lines.fetch_add(1, Ordering::Relaxed) < LOG_LINES_MAX {
                let _ = say(&Message::new(Kind::Log, level, text));
            }
        })
    };
    services.stats_window_s = Some(RATE_WINDOW_S);
    let instance = match &args.plugin {
        None => Instance::builtin(saetta_even::BUILTIN, "{}", services),
        Some((name, path)) => {
            inspect(path).map_err(|e| (abi::E_UNSUPPORTED, e.to_string()))?;
            load::load(path, name, services).map_err(|e| (abi::E_UNSUPPORTED, format!("{}: {e}", path.display())))?
        }
    };
    let instance = instance.map_err(|e| (e.code, format!("its constructor failed: {e}")))?;
    if let Err(why) = filters::after_create() {
        partial.get_or_insert(why);
    }
    Ok((instance, lines, partial))
}

fn serve(mut instance: Instance, lines: &AtomicU32) -> ExitCode {
    loop {
        let (message, fds) = match hear() {
            Ok(Some(heard)) => heard,
            Ok(None) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::FAILURE,
        };
        let [snapshot, answer] = fds;
        let result = round(&mut instance, &message, &snapshot, &answer);
        let total = lines.swap(0, Ordering::Relaxed);
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
    let args = RoundArgs { reason: m.reason, round_id: m.round_id, seed: m.seed, max_moves: m.max_moves, flags: 0, budget_ns: m.budget_ns };
    let plan = PlanArrays { slot_of_exec, outcome, core_of_exec: Some(core_of_exec) };
    instance.schedule(args, snapshot.bytes(), plan).map_err(|e| (e.code, e.text))
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
        (Some(message), Ok(fds)) if message.kind == Kind::Round => Ok(Some((message, fds))),
        _ => Err(Errno::PROTO),
    }
}
