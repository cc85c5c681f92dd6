//! What the two sides call: the entry, the host's table, the plugin's table, and the arguments of a round.

use core::ffi::{c_char, c_void};

/// Writes one log line. `ctx` is the host's; text is UTF-8, not NUL-terminated. Thread-safe.
pub type LogFn =
    unsafe extern "C" fn(ctx: *mut c_void, level: i32, target: *const c_char, target_len: u64, msg: *const c_char, msg_len: u64);
/// Looks up an extension of the host by its id; NULL = not there. Only inside entry and create.
pub type HostExtensionFn = unsafe extern "C" fn(ctx: *mut c_void, id: *const c_char, id_len: u64) -> *const c_void;
/// Monotonic nanoseconds; virtual during replay. Thread-safe.
pub type NowFn = unsafe extern "C" fn(ctx: *mut c_void) -> u64;
/// Makes an instance. 0 = done.
pub type CreateFn = unsafe extern "C" fn(args: *const Create, instance: *mut *mut c_void, err: *mut Err) -> i32;
/// Ends an instance.
pub type DestroyFn = unsafe extern "C" fn(instance: *mut c_void);
/// One round. 0 = done, 1 = done and nothing changed, negative = error and the plan is discarded.
pub type ScheduleFn = unsafe extern "C" fn(instance: *mut c_void, round: *const Round, plan: *mut Plan, err: *mut Err) -> i32;
/// Looks up an extension of the plugin by its id; NULL = not there. The table it returns lives for ever.
pub type PluginExtensionFn = unsafe extern "C" fn(id: *const c_char, id_len: u64) -> *const c_void;
/// Non-zero when the plugin should return its best plan so far. Cheap. Thread-safe.
pub type ShouldStopFn = unsafe extern "C" fn(ctx: *mut c_void) -> i32;
/// The exported function: [`ENTRY_SYMBOL`](crate::ENTRY_SYMBOL).
pub type EntryFn = unsafe extern "C" fn(host: *const Host, plugin: *mut Plugin) -> i32;

abi_struct! {
    /// Host to plugin; lives as long as the process.
    Host = "saetta_host" {
        /// Bytes the host provides.
        struct_size: u32,
        /// [`ABI_MAJOR`](crate::ABI_MAJOR) of the host.
        abi_major: u16,
        /// [`ABI_MINOR`](crate::ABI_MINOR) of the host.
        abi_minor: u16,
        /// Passed back unchanged as the first argument.
        ctx: *mut c_void,
        /// See [`LogFn`].
        log: Option<LogFn>,
        /// See [`HostExtensionFn`].
        get_extension: Option<HostExtensionFn>,
        /// See [`NowFn`].
        now_ns: Option<NowFn>,
    }
}

abi_struct! {
    /// Plugin to host: arrives zeroed with the host's `struct_size`; the plugin writes at most that many bytes.
    Plugin = "saetta_plugin" {
        /// Bytes the plugin wrote.
        struct_size: u32,
        /// [`ABI_MAJOR`](crate::ABI_MAJOR) of the plugin.
        abi_major: u16,
        /// [`ABI_MINOR`](crate::ABI_MINOR) of the plugin.
        abi_minor: u16,
        /// `PLUGIN_*` bits.
        flags: u32,
        /// 0.
        reserved: u32,
        /// See [`CreateFn`].
        create: Option<CreateFn>,
        /// See [`DestroyFn`].
        destroy: Option<DestroyFn>,
        /// See [`ScheduleFn`].
        schedule: Option<ScheduleFn>,
        /// See [`PluginExtensionFn`]; may be NULL.
        get_extension: Option<PluginExtensionFn>,
    }
}

abi_struct! {
    /// Arguments of create. Texts are pointer and length, UTF-8, valid until the call returns.
    Create = "saetta_create" {
        /// Bytes the host provides.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// Configuration as JSON text.
        config: *const c_char,
        /// Its bytes.
        config_len: u64,
        /// Name of the instance.
        name: *const c_char,
        /// Its bytes.
        name_len: u64,
        /// Scheduler profile.
        profile: *const c_char,
        /// Its bytes.
        profile_len: u64,
    }
}

abi_struct! {
    /// Where a failing call says why. Host memory; the plugin writes at most `cap` bytes of UTF-8, no NUL needed.
    Err = "saetta_err" {
        /// Bytes the host provides.
        struct_size: u32,
        /// `E_*`.
        code: i32,
        /// Text goes here.
        buf: *mut c_char,
        /// Room in bytes.
        cap: u64,
        /// Bytes written.
        len: u64,
    }
}

abi_struct! {
    /// One round, valid until the call returns.
    Round = "saetta_round" {
        /// Bytes the host provides.
        struct_size: u32,
        /// `REASON_*`: why there is a round.
        reason: u32,
        /// Rises with each round.
        round_id: u64,
        /// Base for delta hints; 0 = none.
        base_round_id: u64,
        /// On the clock of [`Host::now_ns`].
        deadline_ns: u64,
        /// The only permitted randomness.
        seed: u64,
        /// The snapshot: [`Header`](crate::Header) first. Read-only; a write is a crash.
        snap: *const u8,
        /// Its bytes.
        snap_len: u64,
        /// For [`Round::should_stop`].
        ctx: *mut c_void,
        /// See [`ShouldStopFn`].
        should_stop: Option<ShouldStopFn>,
        /// Running executors that may move; [`NONE`](crate::NONE) = no limit.
        max_moves: u32,
        /// `ROUND_*` bits.
        flags: u32,
    }
}

abi_struct! {
    /// The answer, in host memory, pre-filled with the current placement. Writing nothing keeps everything.
    Plan = "saetta_plan" {
        /// Bytes the host provides.
        struct_size: u32,
        /// Length of `slot_of_exec`: rows of the executor table.
        n_execs: u32,
        /// Slot index of each executor, or [`NONE`](crate::NONE) = not placed.
        slot_of_exec: *mut u32,
        /// Length of `outcome`: rows of the topology table.
        n_topologies: u32,
        /// 0.
        reserved: u32,
        /// `OUT_*` of each topology, pre-filled [`OUT_KEEP`](crate::OUT_KEEP).
        outcome: *mut u32,
        /// Row of the core table for each executor: one of its slot's cores, or [`NONE`](crate::NONE) = Saetta chooses. As long as
        /// `slot_of_exec`, pre-filled [`NONE`](crate::NONE); NULL = the host takes no cores. Not read for a topology left at [`OUT_KEEP`](crate::OUT_KEEP).
        core_of_exec: *mut u32,
    }
}
