//! The numbers of the ABI. A number is never used again for something else; a reader tolerates those it does not know.

use crate::Constant;

macro_rules! consts {
    ($($(#[doc = $doc:literal])* $name:ident: $ty:ty = $value:expr;)*) => {
        $($(#[doc = $doc])* pub const $name: $ty = $value;)*
        /// Every constant of this list, for the golden file and the C header.
        pub const CONSTANTS: &[Constant] =
            &[$(Constant { name: stringify!($name), value: $value as i64, ty: stringify!($ty), doc: concat!($($doc),*) }),*];
    };
}

consts! {
    /// Not a table.
    TABLE_NONE: u32 = 0;
    /// [`Meta`](crate::Meta), one row.
    TABLE_META: u32 = 1;
    /// Raw bytes, stride 1.
    TABLE_STRINGS: u32 = 2;
    /// [`KindRow`](crate::KindRow): CPU, memory, then by name.
    TABLE_RESOURCE_KINDS: u32 = 3;
    /// [`Rack`](crate::Rack), by id.
    TABLE_RACKS: u32 = 4;
    /// [`HostRow`](crate::HostRow), by rack, name.
    TABLE_HOSTS: u32 = 5;
    /// [`NodeRow`](crate::NodeRow), by host, id.
    TABLE_NODES: u32 = 6;
    /// `i64[kinds]` for each node: all it has.
    TABLE_NODE_TOTAL: u32 = 7;
    /// `i64[kinds]` for each node: what the executors placed there leave. Never negative.
    TABLE_NODE_AVAIL: u32 = 8;
    /// [`SlotRow`](crate::SlotRow), by node, port.
    TABLE_SLOTS: u32 = 9;
    /// [`TopologyRow`](crate::TopologyRow), by launch time, id.
    TABLE_TOPOLOGIES: u32 = 10;
    /// [`ComponentRow`](crate::ComponentRow), by topology, name.
    TABLE_COMPONENTS: u32 = 11;
    /// `i64[kinds]` for each component: what one executor asks for.
    TABLE_COMP_REQUEST: u32 = 12;
    /// [`EdgeRow`](crate::EdgeRow), by from, to, stream.
    TABLE_EDGES: u32 = 13;
    /// [`IncompatibleRow`](crate::IncompatibleRow), by component, other.
    TABLE_INCOMPATIBLE: u32 = 14;
    /// [`SharedMemRow`](crate::SharedMemRow), by topology, name.
    TABLE_SHARED_MEM: u32 = 15;
    /// [`CompSharedRow`](crate::CompSharedRow), by component, block.
    TABLE_COMP_SHARED: u32 = 16;
    /// [`ExecutorRow`](crate::ExecutorRow), by topology, component, first task.
    TABLE_EXECUTORS: u32 = 17;
    /// [`FavoredRow`](crate::FavoredRow), by topology, then best first.
    TABLE_FAVORED: u32 = 18;
    /// [`UnfavoredRow`](crate::UnfavoredRow), by topology, then as stated.
    TABLE_UNFAVORED: u32 = 19;
    /// [`UserRow`](crate::UserRow), by name.
    TABLE_USERS: u32 = 20;
    /// `i64[kinds]` for each user: what it is sure to get.
    TABLE_USER_GUARANTEE: u32 = 21;
    // 22..=26 SLOT_USE, REMAP_*, CHANGED_*, STAT_EXEC: kept free for the design's remaining tables.
    /// [`StatEdgeRow`](crate::StatEdgeRow), by edge.
    TABLE_STAT_EDGE: u32 = 27;
    /// [`CoreRow`](crate::CoreRow), by node, number.
    TABLE_CORES: u32 = 28;
    /// [`SlotCoreRow`](crate::SlotCoreRow), by slot, core.
    TABLE_SLOT_CORES: u32 = 29;

    /// Row of the resource kinds: CPU.
    RESOURCE_CPU: u32 = 0;
    /// Row of the resource kinds: memory.
    RESOURCE_MEMORY: u32 = 1;
    /// One core as an amount of CPU.
    CPU_PER_CORE: i64 = 100_000;
    /// One unit of a kind that is neither CPU nor memory.
    PER_UNIT: i64 = 1000;

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

    /// Executors of another topology may be freed, if its priority is lower.
    ROUND_MAY_PREEMPT: u32 = 1;
    /// Somebody waits for reasons: [`EXT_EXPLAIN`](crate::EXT_EXPLAIN) is read in this round.
    ROUND_EXPLAIN: u32 = 2;

    /// Nothing new may be placed on its nodes, what runs may stay.
    HOST_BLACKLISTED: u32 = 1;

    /// The node is only known from an assignment: nothing new may be placed there, what runs may stay.
    NODE_GONE: u32 = 1;
    /// It fails too often: nothing new may be placed there, what runs may stay.
    NODE_BLACKLISTED: u32 = 2;
    /// It failed too often and is needed all the same: used last.
    NODE_GREYLISTED: u32 = 4;
    /// Kept for another scheduler: nothing new may be placed there, what runs may stay.
    NODE_RESERVED: u32 = 8;

    /// Executors may be placed here.
    SLOT_ASSIGNABLE: u32 = 1;
    /// A worker is here.
    SLOT_USED: u32 = 2;
    /// Known from an assignment; the supervisor does not report this port (now).
    SLOT_PORT_NOT_REPORTED: u32 = 4;

    /// The round asks for a decision on this topology. Without it, its rows only say which slots are used.
    TOPO_SCHEDULE: u32 = 1;
    /// An executor has no slot, or it uses fewer slots than workers it wants.
    TOPO_NEEDS_SCHEDULING: u32 = 2;
    /// A rebalance was asked for: its running executors may move.
    TOPO_REBALANCE: u32 = 4;
    /// A worker of it holds one executor.
    TOPO_ONE_EXEC_PER_WORKER: u32 = 8;
    /// A worker of it holds executors of one component.
    TOPO_ONE_COMP_PER_WORKER: u32 = 16;
    /// A resource-aware strategy orders its executors by how near they are in the graph.
    TOPO_ORDER_BY_PROXIMITY: u32 = 32;

    /// Its executors go to as many nodes as there are.
    COMP_SPREAD: u32 = 1;

    /// The kernel schedules nothing else there.
    CORE_ISOLATED: u32 = 1;

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

    /// Chosen: it has the best score.
    WHY_BEST_SCORE: u32 = 1;
    /// Chosen: near what it talks to.
    WHY_AFFINITY: u32 = 2;
    /// Stays where it ran.
    WHY_KEPT: u32 = 3;
    /// Moved by a rebalance.
    WHY_MOVED_REBALANCE: u32 = 4;
    /// Moved because its node or slot was lost.
    WHY_MOVED_NODE_LOST: u32 = 5;
    /// Freed for a topology; `arg` is its row.
    WHY_EVICTED: u32 = 6;
    /// Looked at and not chosen: a runner-up with its score.
    WHY_CANDIDATE: u32 = 7;
    /// No free slot.
    WHY_NO_SLOT: u32 = 20;
    /// Not enough CPU.
    WHY_NO_CPU: u32 = 21;
    /// Not enough memory.
    WHY_NO_MEMORY: u32 = 22;
    /// The worker's memory limit is reached.
    WHY_NO_HEAP: u32 = 23;
    /// Not enough of another kind; `arg` is its row.
    WHY_NO_GENERIC: u32 = 24;
    /// Blacklisted.
    WHY_BLACKLISTED: u32 = 25;
    /// A component it may not share a worker with; `arg` is its row.
    WHY_INCOMPATIBLE: u32 = 26;
    /// As many of its component there as may be.
    WHY_COLOCATION: u32 = 27;
    /// Its topology or its user has no more machines to itself.
    WHY_ISOLATION_QUOTA: u32 = 28;
    /// Its user has no more resources.
    WHY_USER_QUOTA: u32 = 29;
    /// Out of time.
    WHY_DEADLINE: u32 = 30;
    /// Placed by the fallback, since the plugin failed.
    WHY_FALLBACK: u32 = 31;
    /// The plan was refused; `arg` is the number of the rule.
    WHY_REJECTED: u32 = 32;

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
