//! The host's side of the C table: makes an instance from an entry function and runs rounds on it.
//!
//! Before: a loaded `.so` or a linked-in scheduler gave its entry function. After: the plan's arrays hold what the
//! scheduler wrote - not validated; that is the host's work. The helper process and the tests stand on this.

use crate::PluginError;
use saetta_abi as abi;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Bytes of error text a plugin may write; more is cut by the plugin.
pub const ERR_TEXT_BYTES_MAX: usize = 512;
/// Text of an error that came without one.
pub const NO_REASON: &str = "it gave no reason";
/// Bytes of one log line taken from a plugin; more is cut.
pub const LOG_TEXT_BYTES_MAX: usize = 512;

/// A scheduler linked into this program; made by `export_scheduler!`.
#[derive(Clone, Copy)]
pub struct Builtin {
    /// Id as in its manifest.
    pub id: &'static str,
    pub(crate) entry: abi::EntryFn,
}

impl Builtin {
    /// A scheduler that was loaded from a file.
    ///
    /// # Safety
    /// `entry` follows the scheduler ABI. Nothing can check that: a wrong one is why this runs in a helper process.
    pub unsafe fn loaded(id: &'static str, entry: abi::EntryFn) -> Self {
        Builtin { id, entry }
    }

    /// Calls the entry as a host whose own table has `host_bytes` bytes more than this version's and whose room for the plugin's table has
    /// `room` bytes, at least 4. Returns the code, what was written into the room, and whether anything was written behind it.
    pub fn probe_entry(&self, host_bytes: usize, room: usize) -> (i32, Vec<u8>, bool) {
        const CANARY: u8 = 0xA5;
        let context: &'static Context = Box::leak(Box::new(Context {
            started: Instant::now(),
            services: Services::new(|_, _| {}),
            stats: abi::StatsV1 { struct_size: 0, window_s: 0 },
        }));
        let size = size_of::<abi::Host>();
        let host = host_table(context, size + host_bytes);
        // u64s, so that both are aligned; leaked, since a host's table lives as long as the process.
        let table: &'static mut [u64] = Vec::leak(vec![0; (size + host_bytes).div_ceil(8)]);
        let mut place = vec![0u64; room.div_ceil(8) + 32];
        // NEED: tables of sizes that no type of ours has.
        // SAFETY: `table` has at least `size` bytes and `place` 256 more than `room`; both are aligned for what lies there. The entry
        // follows the ABI (see `loaded`), so it reads no more of the host than the host says it has.
        let (code, bytes) = unsafe {
            table.as_mut_ptr().cast::<abi::Host>().write(host);
            let at = place.as_mut_ptr().cast::<u8>();
            std::ptr::write_bytes(at.add(room), CANARY, place.len() * 8 - room);
            at.cast::<u32>().write(room as u32);
            let code = (self.entry)(table.as_ptr().cast(), at.cast());
            (code, std::slice::from_raw_parts(at, place.len() * 8).to_vec())
        };
        let beyond = bytes[room..].iter().any(|b| *b != CANARY);
        (code, bytes[..room].to_vec(), beyond)
    }
}

/// Where log lines of a plugin go: level (`abi::LOG_*`) and text.
pub type LogSink = Box<dyn Fn(i32, &str) + Send + Sync>;

/// Where reasons of a plugin go.
pub type ExplainSink = Box<dyn Fn(&Reason) + Send + Sync>;

/// What a host offers an instance.
pub struct Services {
    /// Takes log lines.
    pub log: LogSink,
    /// Takes reasons; `None` = the host has no `saetta.explain/1`.
    pub explain: Option<ExplainSink>,
    /// Seconds over which measured rates are averaged; `None` = the host has no `saetta.stats/1`.
    pub stats_window_s: Option<u32>,
}

impl Services {
    /// A host without extensions.
    pub fn new(log: impl Fn(i32, &str) + Send + Sync + 'static) -> Self {
        Services { log: Box::new(log), explain: None, stats_window_s: None }
    }
}

/// A reason as a plugin gave it, copied. Row numbers are not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Row of the executor.
    pub exec: u32,
    /// Row of the slot, or `abi::NONE`.
    pub slot: u32,
    /// `abi::WHY_*`.
    pub code: u32,
    /// What the code says it is, or `abi::NONE`.
    pub arg: u32,
    /// Larger is better, in thousandths.
    pub score: i64,
    /// What the score is made of.
    pub parts: Vec<(String, i64)>,
    /// One line.
    pub text: String,
}

/// What the host's C functions find behind `ctx`.
struct Context {
    started: Instant,
    services: Services,
    stats: abi::StatsV1,
}

static EXPLAIN: abi::ExplainV1 =
    abi::ExplainV1 { struct_size: size_of::<abi::ExplainV1>() as u32, reserved: 0, explain: Some(host_explain) };

/// The plan's arrays, which the host owns.
pub struct PlanArrays<'a> {
    /// Filled with the current slot of each executor.
    pub slot_of_exec: &'a mut [u32],
    /// Filled with `abi::OUT_KEEP` for each topology.
    pub outcome: &'a mut [u32],
    /// Filled with `abi::NONE` for each executor; `None` = the host takes no cores.
    pub core_of_exec: Option<&'a mut [u32]>,
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
    /// `abi::ROUND_*` bits.
    pub flags: u32,
    /// Nanoseconds the plugin has; at 80 % `should_stop` says so. The hard limit is the host's.
    pub budget_ns: u64,
}

/// At this share of the budget `should_stop` becomes true.
const STOP_AT_PERCENT: u64 = 80;

/// The host's table as a plugin sees it, said to be of this size.
fn host_table(context: &'static Context, struct_size: usize) -> abi::Host {
    abi::Host {
        struct_size: struct_size as u32,
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        ctx: (&raw const *context).cast_mut().cast(),
        log: Some(host_log),
        get_extension: Some(host_extension),
        now_ns: Some(host_now),
    }
}

unsafe extern "C" fn host_log(ctx: *mut c_void, level: i32, _: *const c_char, _: u64, msg: *const c_char, msg_len: u64) {
    if msg.is_null() {
        return;
    }
    // NEED: called from C with raw pointers.
    // SAFETY: `ctx` is the leaked Context of `Instance::new`; the plugin's contract is that `msg` has `msg_len` readable bytes.
    let (context, text) = unsafe { (&*ctx.cast::<Context>(), foreign_text(msg, msg_len, LOG_TEXT_BYTES_MAX)) };
    (context.services.log)(level, &text);
}

/// Text of a plugin, cut, without control characters. NULL reads as empty.
///
/// # Safety
/// `ptr` is NULL or has `len` readable bytes.
unsafe fn foreign_text(ptr: *const c_char, len: u64, bytes_max: usize) -> String {
    if ptr.is_null() {
        return String::new();
    }
    // SAFETY: this function's contract, and no more than `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(ptr.cast::<u8>(), (len as usize).min(bytes_max)) };
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

unsafe extern "C" fn host_extension(ctx: *mut c_void, id: *const c_char, id_len: u64) -> *const c_void {
    // SAFETY: `ctx` is the leaked Context of `Instance::new`; the plugin's contract is that `id` has `id_len` readable bytes.
    let (context, id) = unsafe { (&*ctx.cast::<Context>(), foreign_text(id, id_len, LOG_TEXT_BYTES_MAX)) };
    match id.as_str() {
        abi::EXT_EXPLAIN if context.services.explain.is_some() => (&raw const EXPLAIN).cast(),
        abi::EXT_STATS if context.services.stats_window_s.is_some() => (&raw const context.stats).cast(),
        _ => std::ptr::null(),
    }
}

unsafe extern "C" fn host_explain(ctx: *mut c_void, explanation: *const abi::Explanation) {
    // NEED: called from C with raw pointers.
    // SAFETY: `ctx` is the leaked Context of `Instance::new`; the plugin's contract is that the explanation is complete and that all it
    // points to has the lengths it states.
    unsafe {
        let (context, Some(e)) = (&*ctx.cast::<Context>(), explanation.as_ref()) else { return };
        let Some(sink) = context.services.explain.as_ref().filter(|_| e.struct_size as usize >= size_of::<abi::Explanation>()) else {
            return;
        };
        let n_parts = if e.parts.is_null() { 0 } else { e.n_parts.min(abi::SCORE_PARTS_MAX) as usize };
        let parts = if n_parts == 0 { &[] } else { std::slice::from_raw_parts(e.parts, n_parts) };
        let text_max = abi::EXPLAIN_TEXT_BYTES_MAX as usize;
        sink(&Reason {
            exec: e.exec,
            slot: e.slot,
            code: e.code,
            arg: e.arg,
            score: e.score,
            parts: parts.iter().map(|p| (foreign_text(p.name, p.name_len, text_max), p.value)).collect(),
            text: foreign_text(e.text, e.text_len, text_max),
        });
    }
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
    PluginError { code, text: if said.is_empty() { NO_REASON.to_owned() } else { said } }
}

/// Bytes of a call that fills an `Out`: asked with little room first, then with what it takes.
fn read_out(bytes_max: u64, f: impl Fn(*mut abi::Out) -> i32) -> Result<Vec<u8>, PluginError> {
    let mut bytes = vec![0u8; 4096];
    loop {
        let size = size_of::<abi::Out>() as u32;
        let mut out = abi::Out { struct_size: size, reserved: 0, buf: bytes.as_mut_ptr(), cap: bytes.len() as u64, len: 0 };
        let code = f(&mut out);
        let room = bytes.len() as u64;
        match code {
            abi::OK if out.len <= room => {
                bytes.truncate(out.len as usize);
                return Ok(bytes);
            }
            abi::E_NO_MEMORY if out.len > room && out.len <= bytes_max => bytes.resize(out.len as usize, 0),
            code => {
                return Err(PluginError {
                    code: code.min(abi::E_INTERNAL),
                    text: format!("it wants to write {} bytes, at most {bytes_max}", out.len),
                });
            }
        }
    }
}

impl Instance {
    /// Makes an instance of a linked-in scheduler.
    pub fn builtin(builtin: Builtin, config: &str, services: Services) -> Result<Self, PluginError> {
        // SAFETY: `entry` was made by `export_scheduler!` in this program, so it keeps the contract.
        unsafe { Self::new(builtin.entry, builtin.id, config, services) }
    }

    /// Makes an instance from an entry function. The host table and its context are leaked: they live as long as the process,
    /// as the contract says (one instance per process outside of tests).
    ///
    /// # Safety
    /// `entry` follows the scheduler ABI. Nothing can check that: a wrong one is why this runs in a helper process.
    pub unsafe fn new(entry: abi::EntryFn, name: &str, config: &str, services: Services) -> Result<Self, PluginError> {
        /// A plugin may remember the host between entry and create in one place for the whole process.
        static ENTERING: Mutex<()> = Mutex::new(());
        let _entering = ENTERING.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = abi::StatsV1 { struct_size: size_of::<abi::StatsV1>() as u32, window_s: services.stats_window_s.unwrap_or(0) };
        let context: &'static Context = Box::leak(Box::new(Context { started: Instant::now(), services, stats }));
        let host: &'static abi::Host = Box::leak(Box::new(host_table(context, size_of::<abi::Host>())));
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

    /// Runs one round. On `Err` the content of the arrays means nothing. True = the plugin says that it changed something.
    pub fn schedule(&mut self, args: RoundArgs, snap: &[u8], plan: PlanArrays<'_>) -> Result<bool, PluginError> {
        let schedule = self.plugin.schedule.expect("checked in new");
        let core_of_exec = plan.core_of_exec.map_or(std::ptr::null_mut(), |cores| {
            assert_eq!(cores.len(), plan.slot_of_exec.len(), "one core for each executor");
            cores.as_mut_ptr()
        });
        let mut plan = abi::Plan {
            struct_size: size_of::<abi::Plan>() as u32,
            n_execs: plan.slot_of_exec.len() as u32,
            slot_of_exec: plan.slot_of_exec.as_mut_ptr(),
            n_topologies: plan.outcome.len() as u32,
            reserved: 0,
            outcome: plan.outcome.as_mut_ptr(),
            core_of_exec,
        };
        let instance = self.instance;
        // SAFETY: `instance` was made by this plugin's create and is used by one thread (`&mut self`); all arguments live until the
        // call returns.
        self.in_round(args, snap, |round, err| unsafe { schedule(instance, round, &mut plan, err) })
    }

    /// Lets a plugin with `saetta.node_health/1` mark nodes; `None` = it has none. `flags_of_node` arrives with the flags of the snapshot.
    pub fn judge(&mut self, args: RoundArgs, snap: &[u8], flags_of_node: &mut [u32]) -> Option<Result<bool, PluginError>> {
        // SAFETY: the registry states this table for this id.
        let table = unsafe { self.extension::<abi::NodeHealthV1>(abi::EXT_NODE_HEALTH) }?;
        let judge = table.health?;
        let size = size_of::<abi::Health>() as u32;
        let mut health = abi::Health { struct_size: size, n_nodes: flags_of_node.len() as u32, flags_of_node: flags_of_node.as_mut_ptr() };
        let instance = self.instance;
        // SAFETY: as in `schedule`.
        Some(self.in_round(args, snap, |round, err| unsafe { judge(instance, round, &mut health, err) }))
    }

    /// What a plugin with `saetta.state/1` wants to find again; `None` = it has no memory.
    pub fn save(&mut self) -> Option<Result<Vec<u8>, PluginError>> {
        // SAFETY: the registry states this table for this id.
        let save = unsafe { self.extension::<abi::StateV1>(abi::EXT_STATE) }?.save?;
        let instance = self.instance;
        // SAFETY: `instance` was made by this plugin's create and is used by one thread; `out` lives until the call returns.
        Some(read_out(abi::STATE_BYTES_MAX, |out| unsafe { save(instance, out) }))
    }

    /// Gives a plugin with `saetta.state/1` back what it saved; nothing happens without.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), PluginError> {
        // SAFETY: the registry states this table for this id.
        let Some(restore) = (unsafe { self.extension::<abi::StateV1>(abi::EXT_STATE) }).and_then(|t| t.restore) else { return Ok(()) };
        let mut buf = [0; ERR_TEXT_BYTES_MAX];
        let mut err = error_room(&mut buf);
        // SAFETY: `instance` was made by this plugin's create and is used by one thread; all arguments live until the call returns.
        match unsafe { restore(self.instance, bytes.as_ptr(), bytes.len() as u64, &mut err) } {
            abi::OK => Ok(()),
            code => Err(error_text(code, &err, &buf)),
        }
    }

    /// JSON schema and configuration in force of a plugin with `saetta.config/1`; `None` = it does not tell.
    pub fn config(&mut self) -> Option<Result<(String, String), PluginError>> {
        // SAFETY: the registry states this table for this id.
        let table = unsafe { self.extension::<abi::ConfigV1>(abi::EXT_CONFIG) }?;
        let (effective, instance) = (table.effective?, self.instance);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        // SAFETY: functions of this plugin's table, `out` lives until the call returns, the instance is used by one thread.
        let schema = table.schema.map_or(Ok(Vec::new()), |schema| read_out(abi::STATE_BYTES_MAX, |out| unsafe { schema(out) }));
        // SAFETY: the same.
        let effective = read_out(abi::STATE_BYTES_MAX, |out| unsafe { effective(instance, out) });
        Some(schema.and_then(|schema| effective.map(|effective| (text(schema), text(effective)))))
    }

    /// True when the plugin has a table for this id.
    pub fn has_extension(&self, id: &str) -> bool {
        // SAFETY: the plugin's function with a text that is valid for the call.
        self.plugin.get_extension.is_some_and(|get| !unsafe { get(id.as_ptr().cast(), id.len() as u64) }.is_null())
    }

    /// A table of the plugin. One that is shorter than ours is not used.
    ///
    /// # Safety
    /// `T` is the struct the registry states for `id`; it begins with its size.
    unsafe fn extension<T>(&self, id: &str) -> Option<&'static T> {
        let get = self.plugin.get_extension?;
        // SAFETY: the plugin's function with a text that is valid for the call.
        let table = unsafe { get(id.as_ptr().cast(), id.len() as u64) };
        if table.is_null() {
            return None;
        }
        // SAFETY: not null; the contract says that the table begins with its size and lives for ever.
        unsafe { (table.cast::<u32>().read() as usize >= size_of::<T>()).then(|| &*table.cast::<T>()) }
    }

    /// Calls `f` with a round and room for an error, and reads what it returns.
    fn in_round(&self, args: RoundArgs, snap: &[u8], f: impl FnOnce(*const abi::Round, *mut abi::Err) -> i32) -> Result<bool, PluginError> {
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
            flags: args.flags,
        };
        let mut buf = [0; ERR_TEXT_BYTES_MAX];
        let mut err = error_room(&mut buf);
        let code = f(&round, &mut err);
        match code {
            abi::OK => Ok(true),
            abi::OK_NO_CHANGE => Ok(false),
            code if code < 0 => Err(error_text(code, &err, &buf)),
            code => Err(PluginError { code: abi::E_INTERNAL, text: format!("it returned {code}, which is no code of the ABI") }),
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
