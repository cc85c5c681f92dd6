//! The host's side of the C table: makes an instance from an entry function and runs rounds on it.
//!
//! Before: a loaded `.so` or a linked-in scheduler gave its entry function. After: the plan's arrays hold what the
//! scheduler wrote - not validated; that is the host's work. The helper process and the tests stand on this.

use crate::PluginError;
use saetta_abi as abi;
use std::ffi::{c_char, c_void};
use std::time::Instant;

/// Bytes of error text a plugin may write; more is cut by the plugin.
pub const ERR_TEXT_BYTES_MAX: usize = 512;
/// Bytes of one log line taken from a plugin; more is cut.
pub const LOG_TEXT_BYTES_MAX: usize = 512;

/// A scheduler linked into this program; made by `export_scheduler!`.
#[derive(Clone, Copy)]
pub struct Builtin {
    /// Id as in its manifest.
    pub id: &'static str,
    pub(crate) entry: abi::EntryFn,
}

/// Where log lines of a plugin go: level (`abi::LOG_*`) and text.
pub type LogSink = Box<dyn Fn(i32, &str) + Send + Sync>;

/// What the host's C functions find behind `ctx`.
struct Context {
    started: Instant,
    log: LogSink,
}

/// One instance behind the C table.
pub struct Instance {
    plugin: abi::Plugin,
    /// Made by `create`, not null, destroyed in drop.
    instance: *mut c_void,
    context: &'static Context,
}

/// Arguments of a round that are not the snapshot.
#[derive(Debug, Clone, Copy)]
pub struct RoundArgs {
    /// `abi::REASON_*`.
    pub reason: u32,
    /// Rises with each round.
    pub round_id: u64,
    /// The only permitted randomness.
    pub seed: u64,
    /// Running executors that may move; `abi::NONE` = no limit.
    pub max_moves: u32,
    /// Nanoseconds the plugin has; at 80 % `should_stop` says so. The hard limit is the host's.
    pub budget_ns: u64,
}

/// At this share of the budget `should_stop` becomes true.
const STOP_AT_PERCENT: u64 = 80;

unsafe extern "C" fn host_log(ctx: *mut c_void, level: i32, _: *const c_char, _: u64, msg: *const c_char, msg_len: u64) {
    if msg.is_null() {
        return;
    }
    let len = (msg_len as usize).min(LOG_TEXT_BYTES_MAX);
    // NEED: called from C with raw pointers.
    // SAFETY: `ctx` is the leaked Context of `Instance::new`; the plugin's contract is that `msg` has `msg_len` readable bytes.
    let (context, bytes) = unsafe { (&*ctx.cast::<Context>(), std::slice::from_raw_parts(msg.cast::<u8>(), len)) };
    let text: String = String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    (context.log)(level, &text);
}

unsafe extern "C" fn host_extension(_: *mut c_void, _: *const c_char, _: u64) -> *const c_void {
    std::ptr::null()
}

unsafe extern "C" fn host_now(ctx: *mut c_void) -> u64 {
    // SAFETY: `ctx` is the leaked Context of `Instance::new`.
    unsafe { &*ctx.cast::<Context>() }.started.elapsed().as_nanos() as u64
}

/// Behind `Round::ctx` during one call.
struct StopAt {
    context: &'static Context,
    at_ns: u64,
}

unsafe extern "C" fn should_stop(ctx: *mut c_void) -> i32 {
    // SAFETY: `ctx` points to the StopAt on the stack of `Instance::schedule`, which outlives the call it is passed to.
    let stop = unsafe { &*ctx.cast::<StopAt>() };
    i32::from(stop.context.started.elapsed().as_nanos() as u64 >= stop.at_ns)
}

fn error_room(buf: &mut [u8; ERR_TEXT_BYTES_MAX]) -> abi::Err {
    abi::Err { struct_size: size_of::<abi::Err>() as u32, code: 0, buf: buf.as_mut_ptr().cast(), cap: buf.len() as u64, len: 0 }
}

fn error_text(code: i32, err: &abi::Err, buf: &[u8]) -> PluginError {
    let said = String::from_utf8_lossy(&buf[..(err.len as usize).min(buf.len())]);
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    PluginError { code, text: if said.is_empty() { "it gave no reason".to_owned() } else { said } }
}

impl Instance {
    /// Makes an instance of a linked-in scheduler.
    pub fn builtin(builtin: Builtin, config: &str, log: LogSink) -> Result<Self, PluginError> {
        // SAFETY: `entry` was made by `export_scheduler!` in this program, so it keeps the contract.
        unsafe { Self::new(builtin.entry, builtin.id, config, log) }
    }

    /// Makes an instance from an entry function. The host table and its context are leaked: they live as long as the process,
    /// as the contract says (one instance per process outside of tests).
    ///
    /// # Safety
    /// `entry` follows the scheduler ABI. Nothing can check that: a wrong one is why this runs in a helper process.
    pub unsafe fn new(entry: abi::EntryFn, name: &str, config: &str, log: LogSink) -> Result<Self, PluginError> {
        let context: &'static Context = Box::leak(Box::new(Context { started: Instant::now(), log }));
        let host: &'static abi::Host = Box::leak(Box::new(abi::Host {
            struct_size: size_of::<abi::Host>() as u32,
            abi_major: abi::ABI_MAJOR,
            abi_minor: abi::ABI_MINOR,
            ctx: (&raw const *context).cast_mut().cast(),
            log: Some(host_log),
            get_extension: Some(host_extension),
            now_ns: Some(host_now),
        }));
        let mut plugin = abi::Plugin {
            struct_size: size_of::<abi::Plugin>() as u32,
            abi_major: 0,
            abi_minor: 0,
            flags: 0,
            reserved: 0,
            create: None,
            destroy: None,
            schedule: None,
            get_extension: None,
        };
        // SAFETY: the caller's contract; both structs are complete and live long enough.
        let code = unsafe { entry(host, &mut plugin) };
        if code != abi::OK {
            return Err(PluginError { code, text: "its entry function refused this host".into() });
        }
        if plugin.abi_major != abi::ABI_MAJOR {
            return Err(PluginError {
                code: abi::E_UNSUPPORTED,
                text: format!("it speaks ABI {}, this host {}", plugin.abi_major, abi::ABI_MAJOR),
            });
        }
        let (Some(create), Some(_), Some(_)) = (plugin.create, plugin.destroy, plugin.schedule) else {
            return Err(PluginError { code: abi::E_UNSUPPORTED, text: "it left create, destroy or schedule empty".into() });
        };
        let profile = "default";
        let args = abi::Create {
            struct_size: size_of::<abi::Create>() as u32,
            reserved: 0,
            config: config.as_ptr().cast(),
            config_len: config.len() as u64,
            name: name.as_ptr().cast(),
            name_len: name.len() as u64,
            profile: profile.as_ptr().cast(),
            profile_len: profile.len() as u64,
        };
        let mut buf = [0; ERR_TEXT_BYTES_MAX];
        let mut err = error_room(&mut buf);
        let mut instance = std::ptr::null_mut();
        // SAFETY: the caller's contract; all arguments live until the call returns.
        let code = unsafe { create(&args, &mut instance, &mut err) };
        if code != abi::OK {
            return Err(error_text(code, &err, &buf));
        }
        Ok(Instance { plugin, instance, context })
    }

    /// Runs one round. `slot_of_exec` and `outcome` arrive filled with the current placement and [`abi::OUT_KEEP`].
    /// On `Err` their content means nothing. True = the plugin says that it changed something.
    pub fn schedule(&mut self, args: RoundArgs, snap: &[u8], slot_of_exec: &mut [u32], outcome: &mut [u32]) -> Result<bool, PluginError> {
        let schedule = self.plugin.schedule.expect("checked in new");
        let now_ns = self.context.started.elapsed().as_nanos() as u64;
        let stop = StopAt { context: self.context, at_ns: now_ns.saturating_add(args.budget_ns / 100 * STOP_AT_PERCENT) };
        let round = abi::Round {
            struct_size: size_of::<abi::Round>() as u32,
            reason: args.reason,
            round_id: args.round_id,
            base_round_id: 0,
            deadline_ns: now_ns.saturating_add(args.budget_ns),
            seed: args.seed,
            snap: snap.as_ptr(),
            snap_len: snap.len() as u64,
            ctx: (&raw const stop).cast_mut().cast(),
            should_stop: Some(should_stop),
            max_moves: args.max_moves,
            flags: 0,
        };
        let mut plan = abi::Plan {
            struct_size: size_of::<abi::Plan>() as u32,
            n_execs: slot_of_exec.len() as u32,
            slot_of_exec: slot_of_exec.as_mut_ptr(),
            n_topologies: outcome.len() as u32,
            reserved: 0,
            outcome: outcome.as_mut_ptr(),
        };
        let mut buf = [0; ERR_TEXT_BYTES_MAX];
        let mut err = error_room(&mut buf);
        // SAFETY: `instance` was made by this plugin's create and is used by one thread (`&mut self`); all arguments live until the
        // call returns.
        let code = unsafe { schedule(self.instance, &round, &mut plan, &mut err) };
        match code {
            abi::OK => Ok(true),
            abi::OK_NO_CHANGE => Ok(false),
            code if code < 0 => Err(error_text(code, &err, &buf)),
            code => Err(PluginError { code: abi::E_INTERNAL, text: format!("schedule returned {code}, which is no code of the ABI") }),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(destroy) = self.plugin.destroy {
            // SAFETY: made by this plugin's create, destroyed once.
            unsafe { destroy(self.instance) };
        }
    }
}
