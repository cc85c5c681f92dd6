//! The plugin's side of the C table: what `export_scheduler!` fills in. Nobody calls this by hand.
//!
//! Before: the host called the exported function. After: the trait's methods run on checked references, inside a guard
//! that turns a panic into an error code and a poisoned instance.

use crate::call::Builtin;
use crate::{CreateCx, Explanation, Health, Memory, NodeHealth, Plan, PluginError, Round, Scheduler, Snapshot, Verdict};
use saetta_abi as abi;
use std::any::Any;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One instance with its poison mark.
struct Guarded<S> {
    /// True after a panic: the state may be half changed, so every later call answers `E_PANIC`.
    poisoned: bool,
    host: HostSide,
    scheduler: S,
}

/// What an instance uses of its host. The tables live as long as the process.
#[derive(Clone, Copy)]
struct HostSide {
    host: &'static abi::Host,
    explain: Option<abi::ExplainFn>,
}

/// The host's table between entry and create. A process of its own has one host; where several meet in one process (tests), each
/// calls the two under a lock (`call.rs`).
static HOST: AtomicPtr<abi::Host> = AtomicPtr::new(std::ptr::null_mut());

/// The table entry for a program that links `S` in.
pub const fn builtin<S: Scheduler>(id: &'static str) -> Builtin {
    Builtin { id, entry: entry_of::<S> }
}

unsafe extern "C" fn entry_of<S: Scheduler>(host: *const abi::Host, plugin: *mut abi::Plugin) -> i32 {
    // SAFETY: the same contract.
    unsafe { export::<S>(host, plugin) }
}

/// The exported function for `S`.
///
/// # Safety
/// `host` is NULL or a complete host table that lives as long as the process; `plugin` is NULL or points to as many writable
/// bytes as its first field says.
pub unsafe fn export<S: Scheduler>(host: *const abi::Host, plugin: *mut abi::Plugin) -> i32 {
    if host.is_null() || plugin.is_null() {
        return abi::E_INTERNAL;
    }
    // NEED: the C entry hands over raw pointers.
    // SAFETY: not null (above); the contract says `host` lives as long as the process and begins with its size, and `plugin`
    // points to at least `struct_size` writable bytes, where `struct_size` is its first field.
    let (host_size, out_size) =
        unsafe { (std::ptr::addr_of!((*host).struct_size).read(), std::ptr::addr_of!((*plugin).struct_size).read()) };
    if (host_size as usize) < size_of::<abi::Host>() {
        return abi::E_UNSUPPORTED;
    }
    // Release: pairs with the Acquire in `host_side`; the table was complete before the host passed it.
    HOST.store(host.cast_mut(), Ordering::Release);
    let n = (out_size as usize).min(size_of::<abi::Plugin>());
    let mine = abi::Plugin {
        struct_size: n as u32,
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        flags: 0,
        reserved: 0,
        create: Some(create::<S>),
        destroy: Some(destroy::<S>),
        schedule: Some(schedule::<S>),
        get_extension: Some(get_extension::<S>),
    };
    // NEED: the host's struct may be shorter or longer than ours; only the common part may be written.
    // SAFETY: `n` is at most the size of `mine` and at most what the host says it owns; the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping((&raw const mine).cast::<u8>(), plugin.cast::<u8>(), n) };
    abi::OK
}

unsafe extern "C" fn get_extension<S: Scheduler>(id: *const c_char, id_len: u64) -> *const c_void {
    // SAFETY: the contract: `id` has `id_len` readable bytes during the call.
    let id = unsafe { text(id, id_len) };
    S::EXTENSIONS.iter().find(|e| e.id() == id).map_or(std::ptr::null(), |e| e.table())
}

impl HostSide {
    /// The host that called the entry last, and what it has. Inside create, as the contract wants.
    fn get() -> Option<Self> {
        // Acquire: pairs with the Release in `export`.
        let host = HOST.load(Ordering::Acquire);
        // NEED: the host's table comes as a raw pointer.
        // SAFETY: NULL, or `export` checked that it is at least as long as ours, and the contract says that it lives as long as the process.
        let host: &'static abi::Host = unsafe { host.as_ref() }?;
        let id = abi::EXT_EXPLAIN;
        // SAFETY: the host's function with the host's context and a text that is valid for the call.
        let table = host.get_extension.map(|f| unsafe { f(host.ctx, id.as_ptr().cast(), id.len() as u64) });
        // SAFETY: NULL, or the table the registry states for this id, which lives as long as the process.
        let table = unsafe { table.and_then(|t| t.cast::<abi::ExplainV1>().as_ref()) };
        let explain = table.filter(|t| t.struct_size as usize >= size_of::<abi::ExplainV1>()).and_then(|t| t.explain);
        Some(HostSide { host, explain })
    }

    fn log(&self, level: i32, text: &str) {
        if let Some(f) = self.host.log {
            let target = "scheduler";
            // NEED: the host's log is a C function.
            // SAFETY: the host's function with the host's context; texts are valid for the call, which is all the contract asks.
            unsafe { f(self.host.ctx, level, target.as_ptr().cast(), target.len() as u64, text.as_ptr().cast(), text.len() as u64) };
        }
    }

    fn explain(&self, e: &Explanation<'_>) {
        let Some(f) = self.explain else { return };
        let part = |(name, value): &(&str, i64)| abi::ScorePart { name: name.as_ptr().cast(), name_len: name.len() as u64, value: *value };
        let parts: Vec<abi::ScorePart> = e.parts.iter().take(abi::SCORE_PARTS_MAX as usize).map(part).collect();
        let raw = abi::Explanation {
            struct_size: size_of::<abi::Explanation>() as u32,
            exec: e.exec.0,
            slot: e.slot.map_or(abi::NONE, |s| s.0),
            code: e.code,
            arg: e.arg.unwrap_or(abi::NONE),
            n_parts: parts.len() as u32,
            score: e.score,
            parts: parts.as_ptr(),
            text: e.text.as_ptr().cast(),
            text_len: e.text.len() as u64,
        };
        // NEED: the host's function is C.
        // SAFETY: the host's function with the host's context; everything `raw` points to outlives the call, and the host copies.
        unsafe { f(self.host.ctx, &raw) };
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("(no text)"))
}

/// Writes an error where the host wants it and returns its code.
fn report(err: *mut abi::Err, e: &PluginError) -> i32 {
    let code = if e.code < 0 { e.code } else { abi::E_INTERNAL };
    if err.is_null() {
        return code;
    }
    // NEED: host memory behind raw pointers.
    // SAFETY: not null; the host owns `struct_size` bytes there and `cap` bytes at `buf`, and nothing else touches them during the call.
    unsafe {
        if ((*err).struct_size as usize) < size_of::<abi::Err>() {
            return code;
        }
        (*err).code = code;
        let mut n = e.text.len().min((*err).cap as usize);
        while !e.text.is_char_boundary(n) {
            n -= 1;
        }
        if !(*err).buf.is_null() {
            std::ptr::copy_nonoverlapping(e.text.as_ptr(), (*err).buf.cast(), n);
            (*err).len = n as u64;
        }
    }
    code
}

/// Text by pointer and length; NULL or no UTF-8 reads as empty.
///
/// # Safety
/// `ptr` is NULL or points to `len` readable bytes that live for `'a`.
unsafe fn text<'a>(ptr: *const c_char, len: u64) -> &'a str {
    if ptr.is_null() {
        return "";
    }
    // SAFETY: this function's contract.
    std::str::from_utf8(unsafe { std::slice::from_raw_parts(ptr.cast(), len as usize) }).unwrap_or("")
}

unsafe extern "C" fn create<S: Scheduler>(args: *const abi::Create, instance: *mut *mut c_void, err: *mut abi::Err) -> i32 {
    if args.is_null() || instance.is_null() {
        return abi::E_INTERNAL;
    }
    let made = catch_unwind(|| {
        // NEED: arguments come as raw pointers.
        // SAFETY: not null; the contract says texts are valid until the call returns, and they are not kept.
        let cx = unsafe { CreateCx { name: text((*args).name, (*args).name_len), config: text((*args).config, (*args).config_len) } };
        let host = HostSide::get().ok_or_else(|| PluginError::internal("create was called before the entry"))?;
        Ok(Guarded { poisoned: false, host, scheduler: S::create(&cx)? })
    });
    match made {
        Ok(Ok(guarded)) => {
            let guarded = Box::new(guarded);
            // SAFETY: not null (above); the host owns the pointer-sized place.
            unsafe { *instance = Box::into_raw(guarded).cast() };
            abi::OK
        }
        Ok(Err(e)) => report(err, &e),
        Err(payload) => report(err, &PluginError { code: abi::E_PANIC, text: panic_text(&*payload) }),
    }
}

unsafe extern "C" fn destroy<S: Scheduler>(instance: *mut c_void) {
    if !instance.is_null() {
        // SAFETY: `create` made it with Box::into_raw for the same S, and the contract says destroy is called once. A panic in
        // the scheduler's own drop is swallowed: nothing may unwind into C.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(instance.cast::<Guarded<S>>()) })));
    }
}

/// A slice by pointer and length; an empty one may have a NULL pointer.
///
/// # Safety
/// `len` is 0, or `ptr` points to `len` writable values that nobody else touches for `'a`.
unsafe fn slice_mut<'a>(ptr: *mut u32, len: u32) -> &'a mut [u32] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: this function's contract.
    unsafe { std::slice::from_raw_parts_mut(ptr, len as usize) }
}

/// Runs `f` on an instance that is well: a panic in it becomes [`abi::E_PANIC`] and poisons the instance.
///
/// # Safety
/// `instance` is NULL or was made by `create` for the same S, and no other call uses it.
unsafe fn guarded<S: Scheduler>(
    instance: *mut c_void,
    err: *mut abi::Err,
    f: impl FnOnce(&mut S, &HostSide) -> Result<Verdict, PluginError>,
) -> i32 {
    if instance.is_null() {
        return abi::E_INTERNAL;
    }
    // SAFETY: not null, and this function's contract.
    let guarded = unsafe { &mut *instance.cast::<Guarded<S>>() };
    if guarded.poisoned {
        return report(err, &PluginError { code: abi::E_PANIC, text: "the instance is poisoned by an earlier panic".into() });
    }
    match catch_unwind(AssertUnwindSafe(|| f(&mut guarded.scheduler, &guarded.host))) {
        Ok(Ok(Verdict::Done)) => abi::OK,
        Ok(Ok(Verdict::NoChange)) => abi::OK_NO_CHANGE,
        Ok(Err(e)) => report(err, &e),
        Err(payload) => {
            guarded.poisoned = true;
            report(err, &PluginError { code: abi::E_PANIC, text: panic_text(&*payload) })
        }
    }
}

fn too_short() -> PluginError {
    PluginError { code: abi::E_UNSUPPORTED, text: "the host's structs are shorter than version 1.0".into() }
}

/// Calls `f` with the checked form of a round.
///
/// # Safety
/// `round` is valid until the call returns, and so is what it points to; the snapshot does not change meanwhile.
unsafe fn with_round<T>(
    round: *const abi::Round,
    host: &HostSide,
    f: impl FnOnce(&Round<'_>) -> Result<T, PluginError>,
) -> Result<T, PluginError> {
    // SAFETY: this function's contract.
    let raw = unsafe { round.as_ref() }.ok_or_else(|| PluginError::internal("the round is NULL"))?;
    if (raw.struct_size as usize) < size_of::<abi::Round>() {
        return Err(too_short());
    }
    // SAFETY: the contract: `snap` has `snap_len` readable bytes that do not change during the call.
    let bytes = unsafe { std::slice::from_raw_parts(raw.snap, raw.snap_len as usize) };
    let should_stop = || match raw.should_stop {
        // SAFETY: the host's function with the host's own context.
        Some(f) => unsafe { f(raw.ctx) != 0 },
        None => false,
    };
    let log = |level: i32, text: &str| host.log(level, text);
    let explain = |e: &Explanation<'_>| host.explain(e);
    let wanted = raw.flags & abi::ROUND_EXPLAIN != 0 && host.explain.is_some();
    f(&Round {
        snapshot: Snapshot::new(bytes)?,
        reason: raw.reason,
        round_id: raw.round_id,
        seed: raw.seed,
        max_moves: Some(raw.max_moves).filter(|m| *m != abi::NONE),
        may_preempt: raw.flags & abi::ROUND_MAY_PREEMPT != 0,
        explain: if wanted { Some(&explain) } else { None },
        should_stop: &should_stop,
        log: &log,
    })
}

unsafe extern "C" fn schedule<S: Scheduler>(
    instance: *mut c_void,
    round: *const abi::Round,
    plan: *mut abi::Plan,
    err: *mut abi::Err,
) -> i32 {
    let run = |scheduler: &mut S, host: &HostSide| {
        // NEED: the C call hands over raw pointers.
        // SAFETY: NULL, or the contract: the plan is valid until the call returns and nobody else touches it.
        let plan = unsafe { plan.as_mut() }.ok_or_else(|| PluginError::internal("the plan is NULL"))?;
        if (plan.struct_size as usize) < size_of::<abi::Plan>() {
            return Err(too_short());
        }
        let n_core_words = if plan.core_of_exec.is_null() { 0 } else { plan.n_execs };
        // SAFETY: the contract: the plan's arrays have the lengths stated and are the plugin's alone during the call.
        let (slot_of_exec, outcome, core_of_exec) = unsafe {
            (
                slice_mut(plan.slot_of_exec, plan.n_execs),
                slice_mut(plan.outcome, plan.n_topologies),
                slice_mut(plan.core_of_exec, n_core_words),
            )
        };
        // SAFETY: the contract of schedule is that of `with_round`.
        unsafe {
            with_round(round, host, |round| {
                let s = &round.snapshot;
                if s.executors().len() != slot_of_exec.len() || s.topologies().len() != outcome.len() {
                    return Err(PluginError { code: abi::E_BAD_SNAPSHOT, text: "the plan's arrays do not match the snapshot".into() });
                }
                let (n_slots, n_cores) = (s.slots().len() as u32, s.cores().len() as u32);
                scheduler.schedule(round, &mut Plan { slot_of_exec, outcome, core_of_exec, n_slots, n_cores })
            })
        }
    };
    // SAFETY: the contract: `create` made the instance for the same S, and no two calls overlap.
    unsafe { guarded::<S>(instance, err, run) }
}

/// [`abi::HealthFn`] of a scheduler that judges nodes.
pub unsafe extern "C" fn health<S: NodeHealth>(
    instance: *mut c_void,
    round: *const abi::Round,
    health: *mut abi::Health,
    err: *mut abi::Err,
) -> i32 {
    let run = |scheduler: &mut S, host: &HostSide| {
        // NEED: the C call hands over raw pointers.
        // SAFETY: NULL, or the contract: valid until the call returns and nobody else touches it.
        let health = unsafe { health.as_mut() }.ok_or_else(|| PluginError::internal("the answer is NULL"))?;
        if (health.struct_size as usize) < size_of::<abi::Health>() {
            return Err(too_short());
        }
        // SAFETY: the contract: as many words as stated, the plugin's alone during the call.
        let flags = unsafe { slice_mut(health.flags_of_node, health.n_nodes) };
        // SAFETY: the contract of health is that of `with_round`.
        unsafe {
            with_round(round, host, |round| {
                if round.snapshot.nodes().len() != flags.len() {
                    return Err(PluginError { code: abi::E_BAD_SNAPSHOT, text: "the answer's length does not match the snapshot".into() });
                }
                scheduler.judge(round, &mut Health { flags })
            })
        }
    };
    // SAFETY: the contract: `create` made the instance for the same S, and no two calls overlap.
    unsafe { guarded::<S>(instance, err, run) }
}

/// Writes bytes where the host wants them.
///
/// # Safety
/// `out` is NULL or a complete `Out` of the host, whose `buf` has `cap` writable bytes.
unsafe fn write_out(out: *mut abi::Out, bytes: &[u8]) -> i32 {
    // SAFETY: this function's contract.
    let Some(out) = (unsafe { out.as_mut() }).filter(|o| o.struct_size as usize >= size_of::<abi::Out>()) else { return abi::E_INTERNAL };
    out.len = bytes.len() as u64;
    if out.len > out.cap || out.buf.is_null() {
        return abi::E_NO_MEMORY;
    }
    // SAFETY: `bytes` fits into the `cap` bytes at `buf`, which are the host's and cannot overlap it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.buf, bytes.len()) };
    abi::OK
}

/// [`abi::SaveFn`] of a scheduler with a memory.
pub unsafe extern "C" fn save<S: Memory>(instance: *mut c_void, out: *mut abi::Out) -> i32 {
    let mut bytes = Vec::new();
    let run = |scheduler: &mut S, _: &HostSide| {
        bytes = scheduler.save();
        Ok(Verdict::Done)
    };
    // SAFETY: the contract: `create` made the instance for the same S, and no two calls overlap.
    match unsafe { guarded::<S>(instance, std::ptr::null_mut(), run) } {
        // SAFETY: the contract of save is that of `write_out`.
        abi::OK => unsafe { write_out(out, &bytes) },
        code => code,
    }
}

/// [`abi::RestoreFn`] of a scheduler with a memory.
pub unsafe extern "C" fn restore<S: Memory>(instance: *mut c_void, bytes: *const u8, len: u64, err: *mut abi::Err) -> i32 {
    let run = |scheduler: &mut S, _: &HostSide| {
        // SAFETY: the contract: `bytes` has `len` readable bytes during the call; NULL is read as none.
        let bytes = if bytes.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(bytes, len as usize) } };
        scheduler.restore(bytes).map(|()| Verdict::Done)
    };
    // SAFETY: the contract: `create` made the instance for the same S, and no two calls overlap.
    unsafe { guarded::<S>(instance, err, run) }
}

/// [`abi::SchemaFn`] of a scheduler that tells its configuration.
pub unsafe extern "C" fn schema<S: crate::extension::Configured>(out: *mut abi::Out) -> i32 {
    match catch_unwind(S::schema) {
        // SAFETY: the contract of schema is that of `write_out`.
        Ok(text) => unsafe { write_out(out, text.as_bytes()) },
        Err(_) => abi::E_PANIC,
    }
}

/// [`abi::EffectiveFn`] of a scheduler that tells its configuration.
pub unsafe extern "C" fn effective<S: crate::extension::Configured>(instance: *mut c_void, out: *mut abi::Out) -> i32 {
    let mut text = String::new();
    let run = |scheduler: &mut S, _: &HostSide| {
        text = scheduler.effective();
        Ok(Verdict::Done)
    };
    // SAFETY: the contract: `create` made the instance for the same S, and no two calls overlap.
    match unsafe { guarded::<S>(instance, std::ptr::null_mut(), run) } {
        // SAFETY: the contract of effective is that of `write_out`.
        abi::OK => unsafe { write_out(out, text.as_bytes()) },
        code => code,
    }
}
