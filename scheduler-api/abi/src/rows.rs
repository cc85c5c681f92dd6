//! The snapshot: header, directory of tables sorted by id, tables at multiples of [`TABLE_ALIGN`](crate::TABLE_ALIGN). No pointers.
//!
//! Tables are in canonical order, stated at each `TABLE_*` number: a plugin that walks them gives the same answer everywhere. Amounts are
//! fixed point in `i64`: CPU in thousandths of a percent of a core, memory in bytes, other kinds in thousandths; requests were
//! rounded up, offers down. Three tables have no struct: NODE_TOTAL, NODE_AVAIL and COMP_REQUEST (and USER_GUARANTEE) hold
//! `i64[kinds]` per node, component or user, one amount for each row of the resource kinds.

use crate::*;

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

abi_row! {
    /// Facts of the round.
    Meta = "saetta_meta" in TABLE_META {
        /// Wall clock, milliseconds since 1970.
        wall_ms: i64,
        /// `REASON_*`.
        reason: u32,
        /// 0.
        reserved: u32,
        /// Monotonic nanoseconds, on the clock of [`Host::now_ns`].
        monotonic_ns: u64,
        /// Least CPU a worker counts as taking, in thousandths of a percent of a core.
        min_worker_cpu: i64,
        /// Time between two periodic rounds, milliseconds; 0 = not stated.
        monitor_period_ms: u64,
        /// Rises with each change of the leader; 0 = not stated.
        leader_term: u64,
    }
}

abi_row! {
    /// One kind of resource. Row [`RESOURCE_CPU`] and row [`RESOURCE_MEMORY`] always come first, then the others by name.
    KindRow = "saetta_kind_row" in TABLE_RESOURCE_KINDS {
        /// As the configuration calls it.
        name: Str,
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
        /// `HOST_*` bits.
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
        /// Since its supervisor started, seconds; 0 = not known.
        uptime_s: u64,
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
        /// Row in the user table, or [`NONE`] = it has no owner.
        user: u32,
        /// Most on-heap memory one worker may take, bytes; 0 = no limit.
        max_worker_heap: i64,
        /// Most states a searching strategy may look at; 0 = no limit.
        max_states: u64,
        /// Most time it may take, milliseconds; 0 = no limit.
        max_ms: u64,
        /// The strategy it asks for; empty = the scheduler's own choice.
        strategy: Str,
        /// Machines it wants for itself; 0 = none.
        isolate_machines: u32,
        /// Ackers that go with each worker; 0 = not stated.
        ackers_per_worker: u32,
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
        /// Memory of one executor that counts against [`TopologyRow::max_worker_heap`], bytes.
        on_heap: i64,
        /// Its other memory, bytes. Both together are its amount of [`RESOURCE_MEMORY`].
        off_heap: i64,
        /// Most executors of it on one node; 0 = no limit.
        max_colocation: u32,
        /// `COMP_*` bits.
        flags: u32,
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
    /// Two components that may not share a worker. Both directions are stored.
    IncompatibleRow = "saetta_incompatible_row" in TABLE_INCOMPATIBLE {
        /// Row in the component table.
        component: u32,
        /// The other one.
        other: u32,
    }
}

abi_row! {
    /// Memory that executors share. It counts once, however many of them are there.
    SharedMemRow = "saetta_shared_mem_row" in TABLE_SHARED_MEM {
        /// Name, unique in the topology.
        name: Str,
        /// Row in the topology table.
        topology: u32,
        /// 0.
        reserved: u32,
        /// Bytes once in each worker, counting against [`TopologyRow::max_worker_heap`].
        on_heap: i64,
        /// Other bytes once in each worker.
        off_heap_worker: i64,
        /// Other bytes once on each node.
        off_heap_node: i64,
    }
}

abi_row! {
    /// A component that uses a shared block.
    CompSharedRow = "saetta_comp_shared_row" in TABLE_COMP_SHARED {
        /// Row in the component table.
        component: u32,
        /// Row in the table of shared memory.
        block: u32,
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
        /// Slot it ran in before it died, or [`NONE`].
        last_slot: u32,
        /// When it was first placed there, milliseconds since 1970; 0 = not placed.
        started_ms: i64,
        /// Row of the core it runs on, or [`NONE`].
        core: u32,
        /// 0.
        reserved: u32,
    }
}

abi_row! {
    /// A host a topology would rather have.
    FavoredRow = "saetta_favored_row" in TABLE_FAVORED {
        /// Row in the topology table.
        topology: u32,
        /// Row in the host table.
        host: u32,
    }
}

abi_row! {
    /// A host a topology would rather not have.
    UnfavoredRow = "saetta_unfavored_row" in TABLE_UNFAVORED {
        /// Row in the topology table.
        topology: u32,
        /// Row in the host table.
        host: u32,
    }
}

abi_row! {
    /// An owner of topologies, or one that the configuration gives a guarantee.
    UserRow = "saetta_user_row" in TABLE_USERS {
        /// Name.
        name: Str,
        /// Nodes it may have for itself; 0 = none.
        max_isolated_nodes: u32,
        /// 0.
        reserved: u32,
    }
}

abi_row! {
    /// What was measured on a subscription, over all its executors. Only where the host has [`EXT_STATS`], and only edges that were measured.
    StatEdgeRow = "saetta_stat_edge_row" in TABLE_STAT_EDGE {
        /// Row in the edge table.
        edge: u32,
        /// 0.
        reserved: u32,
        /// Tuples per second that arrived over it.
        tuples_per_s: u64,
        /// Their bytes per second.
        bytes_per_s: u64,
    }
}

abi_row! {
    /// One core that workers may get.
    CoreRow = "saetta_core_row" in TABLE_CORES {
        /// Row in the node table.
        node: u32,
        /// Number the operating system gives it.
        os_id: u32,
        /// Cores of a node with the same number share their last-level cache.
        l3: u32,
        /// NUMA node: cores of a node with the same number are equally near to its memory.
        numa: u32,
        /// Row of the other thread of the same physical core, or [`NONE`].
        sibling: u32,
        /// `CORE_*` bits.
        flags: u32,
    }
}

abi_row! {
    /// A core that a worker in a slot gets. Slots of a crowded node share cores ([`SlotRow::share`]).
    SlotCoreRow = "saetta_slot_core_row" in TABLE_SLOT_CORES {
        /// Row in the slot table.
        slot: u32,
        /// Row in the core table.
        core: u32,
    }
}
