//! The scheduler ABI: what a plugin in any language and the host agree on, byte for byte.
//!
//! Before: nothing; this is the single source of truth. After: `include/saetta_sched.h` says the same in C,
//! `sdk` reads and writes it safely in Rust, `host` loads a plugin and calls it.
//! Rules (checked by the macros below and by `tests/`): fixed-width integers only, 64-bit little-endian only, natural
//! alignment without hidden padding, structs passed by pointer begin with `struct_size` and only grow at the end, table rows carry
//! no size (the directory has their stride) and grow in multiples of 8, entities are u32 indices with [`NONE`] for "none".
//! First cut: it is not frozen yet; the table ids of the whole design are reserved here so that they stay free.
#![no_std]
#![forbid(unsafe_code)]

use core::ffi::{c_char, c_void};

const _: () = assert!(size_of::<*const c_void>() == 8, "the ABI is for 64-bit machines");
const _: () = assert!(cfg!(target_endian = "little"), "the ABI is for little-endian machines");

/// Major version: part of the exported symbol's name.
pub const ABI_MAJOR: u16 = 1;
/// Minor version: which struct sizes and ids are known. Informative; code tests `struct_size`, never this.
pub const ABI_MINOR: u16 = 0;
/// The only symbol a plugin exports.
pub const ENTRY_SYMBOL: &str = "saetta_scheduler_v1";
/// ELF section that holds the manifest, readable without running the plugin's code.
pub const NOTE_SECTION: &str = ".note.saetta.sched";
/// Owner field of the note, with its NUL.
pub const NOTE_OWNER: &[u8; 12] = b"SAETTASCHED\0";
/// Type field of the note.
pub const NOTE_TYPE: u32 = 1;
/// First word of a snapshot: `SSNP` read as little-endian text.
pub const SNAPSHOT_MAGIC: u32 = u32::from_le_bytes(*b"SSNP");
/// No slot, no topology, no limit.
pub const NONE: u32 = u32::MAX;
/// Tables begin at multiples of this many bytes.
pub const TABLE_ALIGN: usize = 64;
/// Incompatible snapshot features this version knows. A reader that meets another bit answers [`E_UNSUPPORTED`].
pub const FEATURES_INCOMPAT_KNOWN: u64 = 0;

/// A primitive or reference that may stand in a table row. Reads and writes little-endian, without alignment.
pub trait Field: Sized {
    /// Bytes it takes.
    const SIZE: usize;
    /// Reads from the start of `bytes`, which holds at least `SIZE`.
    fn get(bytes: &[u8]) -> Self;
    /// Writes to the start of `bytes`, which holds at least `SIZE`.
    fn put(&self, bytes: &mut [u8]);
}

macro_rules! field {
    ($($ty:ty),*) => { $(impl Field for $ty {
        const SIZE: usize = size_of::<$ty>();
        fn get(bytes: &[u8]) -> Self {
            let mut raw = [0; size_of::<$ty>()];
            raw.copy_from_slice(&bytes[..size_of::<$ty>()]);
            <$ty>::from_le_bytes(raw)
        }
        fn put(&self, bytes: &mut [u8]) {
            bytes[..size_of::<$ty>()].copy_from_slice(&self.to_le_bytes());
        }
    })* };
}
field!(u32, i32, u64, i64);

/// Reference into the string table: UTF-8, also NUL-terminated there.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Str {
    /// Offset from the start of the string table.
    pub off: u32,
    /// Bytes, without the NUL.
    pub len: u32,
}

impl Field for Str {
    const SIZE: usize = 8;
    fn get(bytes: &[u8]) -> Self {
        Str { off: u32::get(bytes), len: u32::get(&bytes[4..]) }
    }
    fn put(&self, bytes: &mut [u8]) {
        self.off.put(bytes);
        self.len.put(&mut bytes[4..]);
    }
}

/// One field of a struct as the layout golden file and the C check see it.
#[derive(Debug, Clone, Copy)]
pub struct FieldLayout {
    /// Name, the same in C.
    pub name: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// One struct as the layout golden file and the C check see it.
#[derive(Debug, Clone, Copy)]
pub struct StructLayout {
    /// Name of the C type.
    pub c_name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Fields in order.
    pub fields: &'static [FieldLayout],
}

/// Declares a struct of the ABI: `repr(C)`, no hidden padding (checked at compile time), its layout as data.
macro_rules! abi_struct {
    ($(#[$doc:meta])* $name:ident = $c:literal { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$ty>())*, "hidden padding");
        const _: () = assert!(size_of::<$name>() % 8 == 0, "structs grow in multiples of 8");
        impl $name {
            /// Its layout as data.
            pub const LAYOUT: StructLayout = StructLayout {
                c_name: $c,
                size: size_of::<$name>(),
                fields: &[$(FieldLayout { name: stringify!($field), offset: core::mem::offset_of!($name, $field), size: size_of::<$ty>() }),*],
            };
        }
    };
}

/// A table row: declared like a struct, and read and written without unsafe code.
pub trait Row: Copy {
    /// Which table.
    const TABLE: u32;
    /// Bytes of a row in this version: the stride a writer of this version uses.
    const SIZE: usize;
    /// Reads a row of any stride: fields beyond its end are 0 ("absent").
    fn read(row: &[u8]) -> Self;
    /// Writes `SIZE` bytes.
    fn write(&self, row: &mut [u8]);
}

macro_rules! abi_row {
    ($(#[$doc:meta])* $name:ident = $c:literal in $table:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* }) => {
        abi_struct! { $(#[$doc])* $name = $c { $($(#[$fdoc])* $field: $ty,)* } }
        impl Row for $name {
            const TABLE: u32 = $table;
            const SIZE: usize = size_of::<$name>();
            fn read(row: &[u8]) -> Self {
                let mut full = [0u8; size_of::<$name>()];
                let n = row.len().min(full.len());
                full[..n].copy_from_slice(&row[..n]);
                $name { $($field: <$ty as Field>::get(&full[core::mem::offset_of!($name, $field)..]),)* }
            }
            fn write(&self, row: &mut [u8]) {
                $(self.$field.put(&mut row[core::mem::offset_of!($name, $field)..]);)*
            }
        }
    };
}

// Entry and tables of functions.

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
/// The exported function: [`ENTRY_SYMBOL`].
pub type EntryFn = unsafe extern "C" fn(host: *const Host, plugin: *mut Plugin) -> i32;

abi_struct! {
    /// Host to plugin; lives as long as the process.
    Host = "saetta_host" {
        /// Bytes the host provides.
        struct_size: u32,
        /// [`ABI_MAJOR`] of the host.
        abi_major: u16,
        /// [`ABI_MINOR`] of the host.
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
        /// [`ABI_MAJOR`] of the plugin.
        abi_major: u16,
        /// [`ABI_MINOR`] of the plugin.
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
        /// The snapshot: [`Header`] first. Read-only; a write is a crash.
        snap: *const u8,
        /// Its bytes.
        snap_len: u64,
        /// For [`Round::should_stop`].
        ctx: *mut c_void,
        /// See [`ShouldStopFn`].
        should_stop: Option<ShouldStopFn>,
        /// Running executors that may move; [`NONE`] = no limit.
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
        /// Slot index of each executor, or [`NONE`] = not placed.
        slot_of_exec: *mut u32,
        /// Length of `outcome`: rows of the topology table.
        n_topologies: u32,
        /// 0.
        reserved: u32,
        /// `OUT_*` of each topology, pre-filled [`OUT_KEEP`].
        outcome: *mut u32,
    }
}

// The snapshot: header, directory of tables sorted by id, tables at multiples of TABLE_ALIGN. No pointers.

abi_row! {
    /// Start of the snapshot. Not a table; it has the same reader because it also grows at the end.
    Header = "saetta_header" in TABLE_NONE {
        /// Bytes of this header.
        struct_size: u32,
        /// [`SNAPSHOT_MAGIC`].
        magic: u32,
        /// Bytes of the whole block.
        total_len: u64,
        /// The round it was made for.
        round_id: u64,
        /// Rises when the cluster changes; 0 = not tracked.
        cluster_epoch: u64,
        /// Bits a reader may ignore.
        features_compat: u64,
        /// Bits a reader must know, else [`E_UNSUPPORTED`].
        features_incompat: u64,
        /// Entries of the directory.
        n_tables: u32,
        /// Bytes from one entry to the next.
        dir_stride: u32,
        /// Where the directory begins.
        dir_off: u64,
    }
}

abi_row! {
    /// One entry of the directory. Unknown tables are ignored; a missing table means no rows.
    DirEntry = "saetta_dir" in TABLE_NONE {
        /// `TABLE_*`.
        table_id: u32,
        /// Bytes from one row to the next.
        stride: u32,
        /// Rows.
        count: u64,
        /// Where the first row begins, from the start of the block.
        off: u64,
    }
}

/// Not a table.
pub const TABLE_NONE: u32 = 0;
/// [`Meta`].
pub const TABLE_META: u32 = 1;
/// Raw bytes, stride 1.
pub const TABLE_STRINGS: u32 = 2;
// 3 RESOURCE_KINDS: reserved, comes with the resource-aware scheduler.
/// [`Rack`], by id.
pub const TABLE_RACKS: u32 = 4;
/// [`HostRow`], by rack, name.
pub const TABLE_HOSTS: u32 = 5;
/// [`NodeRow`], by host, id.
pub const TABLE_NODES: u32 = 6;
// 7 NODE_TOTAL, 8 NODE_AVAIL: reserved.
/// [`SlotRow`], by node, port.
pub const TABLE_SLOTS: u32 = 9;
/// [`TopologyRow`], by launch time, id.
pub const TABLE_TOPOLOGIES: u32 = 10;
/// [`ComponentRow`], by topology, name.
pub const TABLE_COMPONENTS: u32 = 11;
// 12 COMP_REQUEST: reserved.
/// [`EdgeRow`], by from, to, stream.
pub const TABLE_EDGES: u32 = 13;
// 14 INCOMPATIBLE, 15 SHARED_MEM, 16 COMP_SHARED: reserved.
/// [`ExecutorRow`], by topology, first task.
pub const TABLE_EXECUTORS: u32 = 17;
// 18..=27 FAVORED, UNFAVORED, USERS, USER_GUARANTEE, SLOT_USE, REMAP_*, CHANGED_*, STAT_*: reserved.

abi_row! {
    /// Facts of the round.
    Meta = "saetta_meta" in TABLE_META {
        /// Wall clock, milliseconds since 1970.
        wall_ms: i64,
        /// `REASON_*`.
        reason: u32,
        /// 0.
        reserved: u32,
    }
}

abi_row! {
    /// One rack.
    Rack = "saetta_rack" in TABLE_RACKS {
        /// Id; empty = not stated.
        id: Str,
        /// First row in the host table.
        first_host: u32,
        /// Rows there.
        n_hosts: u32,
    }
}

abi_row! {
    /// One machine, by the address its workers are reached at.
    HostRow = "saetta_host_row" in TABLE_HOSTS {
        /// Address.
        name: Str,
        /// Row in the rack table.
        rack: u32,
        /// First row in the node table.
        first_node: u32,
        /// Rows there.
        n_nodes: u32,
        /// 0 in this version.
        flags: u32,
    }
}

abi_row! {
    /// One supervisor.
    NodeRow = "saetta_node_row" in TABLE_NODES {
        /// Id.
        id: Str,
        /// Row in the host table.
        host: u32,
        /// First row in the slot table.
        first_slot: u32,
        /// Rows there.
        n_slots: u32,
        /// `NODE_*` bits.
        flags: u32,
    }
}

abi_row! {
    /// One slot.
    SlotRow = "saetta_slot_row" in TABLE_SLOTS {
        /// Row in the node table.
        node: u32,
        /// Port.
        port: u32,
        /// Row of the topology whose worker is here, or [`NONE`].
        topology: u32,
        /// `SLOT_*` bits.
        flags: u32,
        /// Cores a worker here gets; 0 where the supervisor is gone.
        n_cores: u32,
        /// Slots that share a core with this one; 1 = alone.
        share: u32,
    }
}

abi_row! {
    /// One topology.
    TopologyRow = "saetta_topology_row" in TABLE_TOPOLOGIES {
        /// Id, unique for ever.
        id: Str,
        /// Name as the operator calls it.
        name: Str,
        /// Who submitted it.
        owner: Str,
        /// When, milliseconds since 1970.
        launch_ms: i64,
        /// Workers asked for.
        workers_wanted: u32,
        /// Smaller is served first when slots are short.
        priority: i32,
        /// First row in the component table.
        first_comp: u32,
        /// Rows there.
        n_comps: u32,
        /// First row in the executor table.
        first_exec: u32,
        /// Rows there.
        n_execs: u32,
        /// `TOPO_*` bits.
        flags: u32,
        /// 0.
        reserved: u32,
    }
}

abi_row! {
    /// One component.
    ComponentRow = "saetta_component_row" in TABLE_COMPONENTS {
        /// Id.
        name: Str,
        /// Row in the topology table.
        topology: u32,
        /// `KIND_*`.
        kind: u32,
        /// First row in the executor table.
        first_exec: u32,
        /// Rows there.
        n_execs: u32,
    }
}

abi_row! {
    /// One subscription.
    EdgeRow = "saetta_edge_row" in TABLE_EDGES {
        /// Emitting component.
        from: u32,
        /// Subscribing component.
        to: u32,
        /// Name of the stream.
        stream: Str,
        /// `GROUP_*`.
        grouping: u32,
        /// 0.
        reserved: u32,
    }
}

abi_row! {
    /// One executor.
    ExecutorRow = "saetta_executor_row" in TABLE_EXECUTORS {
        /// Row in the topology table.
        topology: u32,
        /// Row in the component table.
        component: u32,
        /// First task.
        first_task: u32,
        /// Last task, included.
        last_task: u32,
        /// Slot it runs in, or [`NONE`].
        slot: u32,
        /// 0.
        reserved: u32,
        /// When it was first placed there, milliseconds since 1970; 0 = not placed.
        started_ms: i64,
    }
}

macro_rules! consts {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $ty = $value;)*
        /// Every constant of the C header as (name without `SAETTA_`, value).
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $value as i64)),*];
    };
}

consts! {
    /// Safety-net round.
    REASON_PERIODIC: u32 = 0;
    /// A topology was submitted.
    REASON_SUBMIT: u32 = 1;
    /// A rebalance was asked for.
    REASON_REBALANCE: u32 = 2;
    /// A node was lost.
    REASON_NODE_LOST: u32 = 3;
    /// A node came.
    REASON_NODE_BACK: u32 = 4;
    /// Nothing will be committed.
    REASON_DRY_RUN: u32 = 5;
    /// Compared with another scheduler, never committed.
    REASON_SHADOW: u32 = 6;
    /// A topology was killed.
    REASON_KILL: u32 = 7;

    /// The node is only known from an assignment: nothing new may be placed there, what runs may stay.
    NODE_GONE: u32 = 1;

    /// Executors may be placed here.
    SLOT_ASSIGNABLE: u32 = 1;
    /// A worker is here.
    SLOT_USED: u32 = 2;
    /// Known from an assignment; the supervisor does not report this port (now).
    SLOT_PORT_NOT_REPORTED: u32 = 4;

    /// The round asks for a decision on this topology. Without it, its rows only say which slots are used.
    TOPO_SCHEDULE: u32 = 1;

    /// Emits from outside.
    KIND_SPOUT: u32 = 0;
    /// Handles tuples.
    KIND_BOLT: u32 = 1;
    /// Tracks tuple trees.
    KIND_ACKER: u32 = 2;
    /// Reports metrics.
    KIND_METRICS: u32 = 3;
    /// Saetta's own.
    KIND_SYSTEM: u32 = 4;

    /// Round robin.
    GROUP_SHUFFLE: u32 = 0;
    /// In this worker first.
    GROUP_LOCAL_OR_SHUFFLE: u32 = 1;
    /// By queue fill.
    GROUP_LOAD_AWARE: u32 = 2;
    /// By hash of fields.
    GROUP_FIELDS: u32 = 3;
    /// By hash of fields, two candidates.
    GROUP_PARTIAL_KEY: u32 = 4;
    /// One copy each.
    GROUP_ALL: u32 = 5;
    /// Lowest task.
    GROUP_GLOBAL: u32 = 6;
    /// Same as shuffle.
    GROUP_NONE: u32 = 7;
    /// The emitter names the task.
    GROUP_DIRECT: u32 = 8;
    /// User code.
    GROUP_CUSTOM: u32 = 9;

    /// Nothing decided; its current placement stays.
    OUT_KEEP: u32 = 0;
    /// Every executor has a slot.
    OUT_SCHEDULED: u32 = 1;
    /// Some executors have none.
    OUT_PARTIAL: u32 = 2;
    /// Nothing can be placed.
    OUT_UNSCHEDULABLE: u32 = 3;
    /// Waits for something; ask again.
    OUT_WAITING: u32 = 4;
    /// The topology cannot be placed by this scheduler at all.
    OUT_INVALID_TOPOLOGY: u32 = 5;

    /// Done.
    OK: i32 = 0;
    /// Done, nothing changed.
    OK_NO_CHANGE: i32 = 1;
    /// A bug of the plugin.
    E_INTERNAL: i32 = -1;
    /// The configuration is wrong.
    E_CONFIG: i32 = -2;
    /// Stopped because should_stop said so.
    E_CANCELLED: i32 = -3;
    /// Out of time.
    E_DEADLINE: i32 = -4;
    /// The snapshot or the host needs something this plugin does not know.
    E_UNSUPPORTED: i32 = -5;
    /// The snapshot breaks the layout rules.
    E_BAD_SNAPSHOT: i32 = -6;
    /// The plugin panicked; the instance is poisoned.
    E_PANIC: i32 = -7;
    /// Out of memory.
    E_NO_MEMORY: i32 = -8;

    /// Someone must act now.
    LOG_ERROR: i32 = 1;
    /// Someone must act later.
    LOG_WARN: i32 = 2;
    /// A state changed.
    LOG_INFO: i32 = 3;
    /// When asked.
    LOG_DEBUG: i32 = 4;
    /// Everything.
    LOG_TRACE: i32 = 5;
    /// The host broke the contract.
    LOG_HOST_BUG: i32 = 6;
    /// The plugin found a bug of its own.
    LOG_PLUGIN_BUG: i32 = 7;
}

/// Every struct of the ABI, in the order of the header.
pub const STRUCTS: &[StructLayout] = &[
    Host::LAYOUT,
    Create::LAYOUT,
    Err::LAYOUT,
    Round::LAYOUT,
    Plan::LAYOUT,
    Plugin::LAYOUT,
    Header::LAYOUT,
    DirEntry::LAYOUT,
    Meta::LAYOUT,
    Rack::LAYOUT,
    HostRow::LAYOUT,
    NodeRow::LAYOUT,
    SlotRow::LAYOUT,
    TopologyRow::LAYOUT,
    ComponentRow::LAYOUT,
    EdgeRow::LAYOUT,
    ExecutorRow::LAYOUT,
];
