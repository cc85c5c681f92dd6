//! The plugin's side of the C table: what `export_scheduler!` fills in. Nobody calls this by hand.
//!
//! Before: the host called the exported function. After: the trait's methods run on checked references, inside a guard
//! that turns a panic into an error code and a poisoned instance.

use crate::call::Builtin;
use crate::{CreateCx, Plan, PluginError, Round, Scheduler, Snapshot, Verdict};
use saetta_abi as abi;
use std::any::Any;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One instance with its poison mark.
struct Guarded<S> {
    /// True after a panic: the state may be half changed, so every later call answers `E_PANIC`.
    poisoned: bool,
    scheduler: S,
}

/// The host's table, for log lines. One per process: the host's lives as long as the process, and every host of a process
/// passes an equally long-lived one.
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
    // Release: pairs with the Acquire in `log`; the table was complete before the host passed it.
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
        get_extension: Some(get_extension),
    };
    // NEED: the host's struct may be shorter or longer than ours; only the common part may be written.
    // SAFETY: `n` is at most the size of `mine` and at most what the host says it owns; the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping((&raw const mine).cast::<u8>(), plugin.cast::<u8>(), n) };
    abi::OK
}

unsafe extern "C" fn get_extension(_id: *const c_char, _id_len: u64) -> *const c_void {
    std::ptr::null()
}

fn log(level: i32, text: &str) {
    // Acquire: pairs with the Release in `export`.
    let host = HOST.load(Ordering::Acquire);
    if host.is_null() {
        return;
    }
    // NEED: the host's log is a C function.
    // SAFETY: `export` checked that the table is at least as long as ours, and it lives as long as the process; texts are valid
    // for the call, which is all the contract asks.
    unsafe {
        if let Some(f) = (*host).log {
            let target = "scheduler";
            f((*host).ctx, level, target.as_ptr().cast(), target.len() as u64, text.as_ptr().cast(), text.len() as u64);
        }
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
        S::create(&cx)
    });
    match made {
        Ok(Ok(scheduler)) => {
            let guarded = Box::new(Guarded { poisoned: false, scheduler });
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

unsafe extern "C" fn schedule<S: Scheduler>(
    instance: *mut c_void,
    round: *const abi::Round,
    plan: *mut abi::Plan,
    err: *mut abi::Err,
) -> i32 {
    if instance.is_null() || round.is_null() || plan.is_null() {
        return abi::E_INTERNAL;
    }
    // NEED: the C call hands over raw pointers.
    // SAFETY: not null (above); `create` made the instance for the same S and the contract says that no two calls overlap; round and
    // plan are valid until the call returns.
    let (guarded, round, plan) = unsafe { (&mut *instance.cast::<Guarded<S>>(), &*round, &mut *plan) };
    if guarded.poisoned {
        return report(err, &PluginError { code: abi::E_PANIC, text: "the instance is poisoned by an earlier panic".into() });
    }
    if (round.struct_size as usize) < size_of::<abi::Round>() || (plan.struct_size as usize) < size_of::<abi::Plan>() {
        return report(err, &PluginError { code: abi::E_UNSUPPORTED, text: "the host's structs are shorter than version 1.0".into() });
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the contract: `snap` has `snap_len` readable bytes that do not change during the call, the plan's arrays have the
        // lengths stated and are the plugin's alone during the call.
        let (bytes, slot_of_exec, outcome) = unsafe {
            (
                std::slice::from_raw_parts(round.snap, round.snap_len as usize),
                slice_mut(plan.slot_of_exec, plan.n_execs),
                slice_mut(plan.outcome, plan.n_topologies),
            )
        };
        let snapshot = Snapshot::new(bytes)?;
        if snapshot.executors().len() != slot_of_exec.len() || snapshot.topologies().len() != outcome.len() {
            return Err(PluginError { code: abi::E_BAD_SNAPSHOT, text: "the plan's arrays do not match the snapshot".into() });
        }
        let should_stop = || match round.should_stop {
            // SAFETY: the host's function with the host's own context.
            Some(f) => unsafe { f(round.ctx) != 0 },
            None => false,
        };
        let mut safe_plan = Plan::new(slot_of_exec, outcome, snapshot.slots().len() as u32);
        let safe_round = Round {
            snapshot,
            reason: round.reason,
            round_id: round.round_id,
            seed: round.seed,
            max_moves: Some(round.max_moves).filter(|m| *m != abi::NONE),
            should_stop: &should_stop,
            log: &log,
        };
        guarded.scheduler.schedule(&safe_round, &mut safe_plan)
    }));
    match outcome {
        Ok(Ok(Verdict::Done)) => abi::OK,
        Ok(Ok(Verdict::NoChange)) => abi::OK_NO_CHANGE,
        Ok(Err(e)) => report(err, &e),
        Err(payload) => {
            guarded.poisoned = true;
            report(err, &PluginError { code: abi::E_PANIC, text: panic_text(&*payload) })
        }
    }
}
