/* saetta_sched.h - the scheduler ABI of Saetta in C. The source of truth is scheduler-api/abi; tests compare the two,
 * field by field and constant by constant, with a C and a C++ compiler.
 *
 * A plugin is a shared library that exports exactly one function, saetta_scheduler_v1, and holds a manifest
 * (SAETTA_MANIFEST below). It may include this header from C11 or C++17. Rules:
 * - Nothing that is allocated crosses: inputs are valid until the call returns, the plan's arrays are the host's.
 * - The plan arrives filled with the current placement: writing nothing keeps it. A topology whose slots were changed needs
 *   an outcome other than SAETTA_OUT_KEEP.
 * - Rows are found through the stride of their table (saetta_row below): a newer host's rows are longer.
 * - No exception, longjmp or panic leaves a call. No threads, files, sockets: the helper's filter answers EPERM.
 * - Check struct_size (or a pointer for NULL) before you use a field that came after version 1.0; never compare minors.
 */
#ifndef SAETTA_SCHED_H
#define SAETTA_SCHED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Generated from scheduler-api/abi: begin. `SAETTA_BLESS=1 cargo test -p saetta-abi` writes what is between the two lines. */
#define SAETTA_ABI_MAJOR 1 /* Part of the exported symbol's name. */
#define SAETTA_ABI_MINOR 0 /* Which struct sizes and ids are known. Informative. */
#define SAETTA_SNAPSHOT_MAGIC 0x504e5353u /* First word of a snapshot. */
#define SAETTA_NONE 0xffffffffu /* No row, no limit. */
#define SAETTA_STATE_BYTES_MAX UINT64_C(1048576) /* Most bytes of a saved state. */
#define SAETTA_EXPLAIN_TEXT_BYTES_MAX UINT64_C(256) /* Most bytes of an explanation's text. */
#define SAETTA_SCORE_PARTS_MAX 8u /* Most parts of a score. */

#define SAETTA_TABLE_META 1u /* saetta_meta, one row. */
#define SAETTA_TABLE_STRINGS 2u /* Raw bytes, stride 1. */
#define SAETTA_TABLE_RESOURCE_KINDS 3u /* saetta_kind_row: CPU, memory, then by name. */
#define SAETTA_TABLE_RACKS 4u /* saetta_rack, by id. */
#define SAETTA_TABLE_HOSTS 5u /* saetta_host_row, by rack, name. */
#define SAETTA_TABLE_NODES 6u /* saetta_node_row, by host, id. */
#define SAETTA_TABLE_NODE_TOTAL 7u /* i64[kinds] for each node: all it has. */
#define SAETTA_TABLE_NODE_AVAIL 8u /* i64[kinds] for each node: what the executors placed there leave. Never negative. */
#define SAETTA_TABLE_SLOTS 9u /* saetta_slot_row, by node, port. */
#define SAETTA_TABLE_TOPOLOGIES 10u /* saetta_topology_row, by launch time, id. */
#define SAETTA_TABLE_COMPONENTS 11u /* saetta_component_row, by topology, name. */
#define SAETTA_TABLE_COMP_REQUEST 12u /* i64[kinds] for each component: what one executor asks for. */
#define SAETTA_TABLE_EDGES 13u /* saetta_edge_row, by from, to, stream. */
#define SAETTA_TABLE_INCOMPATIBLE 14u /* saetta_incompatible_row, by component, other. */
#define SAETTA_TABLE_SHARED_MEM 15u /* saetta_shared_mem_row, by topology, name. */
#define SAETTA_TABLE_COMP_SHARED 16u /* saetta_comp_shared_row, by component, block. */
#define SAETTA_TABLE_EXECUTORS 17u /* saetta_executor_row, by topology, component, first task. */
#define SAETTA_TABLE_FAVORED 18u /* saetta_favored_row, by topology, then best first. */
#define SAETTA_TABLE_UNFAVORED 19u /* saetta_unfavored_row, by topology, then as stated. */
#define SAETTA_TABLE_USERS 20u /* saetta_user_row, by name. */
#define SAETTA_TABLE_USER_GUARANTEE 21u /* i64[kinds] for each user: what it is sure to get. */
#define SAETTA_TABLE_STAT_EDGE 27u /* saetta_stat_edge_row, by edge. */
#define SAETTA_TABLE_CORES 28u /* saetta_core_row, by node, number. */
#define SAETTA_TABLE_SLOT_CORES 29u /* saetta_slot_core_row, by slot, core. */

#define SAETTA_RESOURCE_CPU 0u /* Row of the resource kinds: CPU. */
#define SAETTA_RESOURCE_MEMORY 1u /* Row of the resource kinds: memory. */

#define SAETTA_CPU_PER_CORE INT64_C(100000) /* One core as an amount of CPU. */

#define SAETTA_PER_UNIT INT64_C(1000) /* One unit of a kind that is neither CPU nor memory. */

#define SAETTA_REASON_PERIODIC 0u /* Safety-net round. */
#define SAETTA_REASON_SUBMIT 1u /* A topology was submitted. */
#define SAETTA_REASON_REBALANCE 2u /* A rebalance was asked for. */
#define SAETTA_REASON_NODE_LOST 3u /* A node was lost. */
#define SAETTA_REASON_NODE_BACK 4u /* A node came. */
#define SAETTA_REASON_DRY_RUN 5u /* Nothing will be committed. */
#define SAETTA_REASON_SHADOW 6u /* Compared with another scheduler, never committed. */
#define SAETTA_REASON_KILL 7u /* A topology was killed. */

#define SAETTA_ROUND_MAY_PREEMPT 1u /* Executors of another topology may be freed, if its priority is lower. */
#define SAETTA_ROUND_EXPLAIN 2u /* Somebody waits for reasons: SAETTA_EXT_EXPLAIN is read in this round. */

#define SAETTA_HOST_BLACKLISTED 1u /* Nothing new may be placed on its nodes, what runs may stay. */

#define SAETTA_NODE_GONE 1u /* The node is only known from an assignment: nothing new may be placed there, what runs may stay. */
#define SAETTA_NODE_BLACKLISTED 2u /* It fails too often: nothing new may be placed there, what runs may stay. */
#define SAETTA_NODE_GREYLISTED 4u /* It failed too often and is needed all the same: used last. */
#define SAETTA_NODE_RESERVED 8u /* Kept for another scheduler: nothing new may be placed there, what runs may stay. */

#define SAETTA_SLOT_ASSIGNABLE 1u /* Executors may be placed here. */
#define SAETTA_SLOT_USED 2u /* A worker is here. */
#define SAETTA_SLOT_PORT_NOT_REPORTED 4u /* Known from an assignment; the supervisor does not report this port (now). */

#define SAETTA_TOPO_SCHEDULE 1u /* The round asks for a decision on this topology. Without it, its rows only say which slots are used. */
#define SAETTA_TOPO_NEEDS_SCHEDULING 2u /* An executor has no slot, or it uses fewer slots than workers it wants. */
#define SAETTA_TOPO_REBALANCE 4u /* A rebalance was asked for: its running executors may move. */
#define SAETTA_TOPO_ONE_EXEC_PER_WORKER 8u /* A worker of it holds one executor. */
#define SAETTA_TOPO_ONE_COMP_PER_WORKER 16u /* A worker of it holds executors of one component. */
#define SAETTA_TOPO_ORDER_BY_PROXIMITY 32u /* A resource-aware strategy orders its executors by how near they are in the graph. */

#define SAETTA_COMP_SPREAD 1u /* Its executors go to as many nodes as there are. */

#define SAETTA_CORE_ISOLATED 1u /* The kernel schedules nothing else there. */

#define SAETTA_KIND_SPOUT 0u /* Emits from outside. */
#define SAETTA_KIND_BOLT 1u /* Handles tuples. */
#define SAETTA_KIND_ACKER 2u /* Tracks tuple trees. */
#define SAETTA_KIND_METRICS 3u /* Reports metrics. */
#define SAETTA_KIND_SYSTEM 4u /* Saetta's own. */

#define SAETTA_GROUP_SHUFFLE 0u /* Round robin. */
#define SAETTA_GROUP_LOCAL_OR_SHUFFLE 1u /* In this worker first. */
#define SAETTA_GROUP_LOAD_AWARE 2u /* By queue fill. */
#define SAETTA_GROUP_FIELDS 3u /* By hash of fields. */
#define SAETTA_GROUP_PARTIAL_KEY 4u /* By hash of fields, two candidates. */
#define SAETTA_GROUP_ALL 5u /* One copy each. */
#define SAETTA_GROUP_GLOBAL 6u /* Lowest task. */
#define SAETTA_GROUP_NONE 7u /* Same as shuffle. */
#define SAETTA_GROUP_DIRECT 8u /* The emitter names the task. */
#define SAETTA_GROUP_CUSTOM 9u /* User code. */

#define SAETTA_OUT_KEEP 0u /* Nothing decided; its current placement stays. */
#define SAETTA_OUT_SCHEDULED 1u /* Every executor has a slot. */
#define SAETTA_OUT_PARTIAL 2u /* Some executors have none. */
#define SAETTA_OUT_UNSCHEDULABLE 3u /* Nothing can be placed. */
#define SAETTA_OUT_WAITING 4u /* Waits for something; ask again. */
#define SAETTA_OUT_INVALID_TOPOLOGY 5u /* The topology cannot be placed by this scheduler at all. */

#define SAETTA_WHY_BEST_SCORE 1u /* Chosen: it has the best score. */
#define SAETTA_WHY_AFFINITY 2u /* Chosen: near what it talks to. */
#define SAETTA_WHY_KEPT 3u /* Stays where it ran. */
#define SAETTA_WHY_MOVED_REBALANCE 4u /* Moved by a rebalance. */
#define SAETTA_WHY_MOVED_NODE_LOST 5u /* Moved because its node or slot was lost. */
#define SAETTA_WHY_EVICTED 6u /* Freed for a topology; arg is its row. */
#define SAETTA_WHY_CANDIDATE 7u /* Looked at and not chosen: a runner-up with its score. */
#define SAETTA_WHY_NO_SLOT 20u /* No free slot. */
#define SAETTA_WHY_NO_CPU 21u /* Not enough CPU. */
#define SAETTA_WHY_NO_MEMORY 22u /* Not enough memory. */
#define SAETTA_WHY_NO_HEAP 23u /* The worker's memory limit is reached. */
#define SAETTA_WHY_NO_GENERIC 24u /* Not enough of another kind; arg is its row. */
#define SAETTA_WHY_BLACKLISTED 25u /* Blacklisted. */
#define SAETTA_WHY_INCOMPATIBLE 26u /* A component it may not share a worker with; arg is its row. */
#define SAETTA_WHY_COLOCATION 27u /* As many of its component there as may be. */
#define SAETTA_WHY_ISOLATION_QUOTA 28u /* Its topology or its user has no more machines to itself. */
#define SAETTA_WHY_USER_QUOTA 29u /* Its user has no more resources. */
#define SAETTA_WHY_DEADLINE 30u /* Out of time. */
#define SAETTA_WHY_FALLBACK 31u /* Placed by the fallback, since the plugin failed. */
#define SAETTA_WHY_REJECTED 32u /* The plan was refused; arg is the number of the rule. */

#define SAETTA_OK 0 /* Done. */
#define SAETTA_OK_NO_CHANGE 1 /* Done, nothing changed. */
#define SAETTA_E_INTERNAL (-1) /* A bug of the plugin. */
#define SAETTA_E_CONFIG (-2) /* The configuration is wrong. */
#define SAETTA_E_CANCELLED (-3) /* Stopped because should_stop said so. */
#define SAETTA_E_DEADLINE (-4) /* Out of time. */
#define SAETTA_E_UNSUPPORTED (-5) /* The snapshot or the host needs something this plugin does not know. */
#define SAETTA_E_BAD_SNAPSHOT (-6) /* The snapshot breaks the layout rules. */
#define SAETTA_E_PANIC (-7) /* The plugin panicked; the instance is poisoned. */
#define SAETTA_E_NO_MEMORY (-8) /* Out of memory. */

#define SAETTA_LOG_ERROR 1 /* Someone must act now. */
#define SAETTA_LOG_WARN 2 /* Someone must act later. */
#define SAETTA_LOG_INFO 3 /* A state changed. */
#define SAETTA_LOG_DEBUG 4 /* When asked. */
#define SAETTA_LOG_TRACE 5 /* Everything. */
#define SAETTA_LOG_HOST_BUG 6 /* The host broke the contract. */
#define SAETTA_LOG_PLUGIN_BUG 7 /* The plugin found a bug of its own. */

/* Ids of extensions, for get_extension. */
#define SAETTA_EXT_EXPLAIN "saetta.explain/1"
#define SAETTA_EXT_STATS "saetta.stats/1"
#define SAETTA_EXT_CONFIG "saetta.config/1"
#define SAETTA_EXT_STATE "saetta.state/1"
#define SAETTA_EXT_NODE_HEALTH "saetta.node_health/1"

/* Reference into the string table: UTF-8, also NUL-terminated there. */
typedef struct saetta_str {
    uint32_t off; /* from the start of the string table */
    uint32_t len; /* without the NUL */
} saetta_str;

typedef struct saetta_host saetta_host;
typedef struct saetta_create saetta_create;
typedef struct saetta_err saetta_err;
typedef struct saetta_round saetta_round;
typedef struct saetta_plan saetta_plan;
typedef struct saetta_plugin saetta_plugin;
typedef struct saetta_header saetta_header;
typedef struct saetta_dir saetta_dir;
typedef struct saetta_meta saetta_meta;
typedef struct saetta_kind_row saetta_kind_row;
typedef struct saetta_rack saetta_rack;
typedef struct saetta_host_row saetta_host_row;
typedef struct saetta_node_row saetta_node_row;
typedef struct saetta_slot_row saetta_slot_row;
typedef struct saetta_topology_row saetta_topology_row;
typedef struct saetta_component_row saetta_component_row;
typedef struct saetta_edge_row saetta_edge_row;
typedef struct saetta_incompatible_row saetta_incompatible_row;
typedef struct saetta_shared_mem_row saetta_shared_mem_row;
typedef struct saetta_comp_shared_row saetta_comp_shared_row;
typedef struct saetta_executor_row saetta_executor_row;
typedef struct saetta_favored_row saetta_favored_row;
typedef struct saetta_unfavored_row saetta_unfavored_row;
typedef struct saetta_user_row saetta_user_row;
typedef struct saetta_stat_edge_row saetta_stat_edge_row;
typedef struct saetta_core_row saetta_core_row;
typedef struct saetta_slot_core_row saetta_slot_core_row;
typedef struct saetta_out saetta_out;
typedef struct saetta_score_part saetta_score_part;
typedef struct saetta_explanation saetta_explanation;
typedef struct saetta_explain_v1 saetta_explain_v1;
typedef struct saetta_stats_v1 saetta_stats_v1;
typedef struct saetta_config_v1 saetta_config_v1;
typedef struct saetta_state_v1 saetta_state_v1;
typedef struct saetta_health saetta_health;
typedef struct saetta_node_health_v1 saetta_node_health_v1;

/* Writes one log line; text is UTF-8, not NUL-terminated. Thread-safe. */
typedef void (*saetta_log_fn)(void *ctx, int32_t level, const char *target, uint64_t target_len, const char *msg, uint64_t msg_len);
/* Looks up an extension of the host by its id; NULL = not there. Only inside entry and create. */
typedef const void *(*saetta_host_extension_fn)(void *ctx, const char *id, uint64_t id_len);
/* Monotonic nanoseconds; virtual during replay. Thread-safe. */
typedef uint64_t (*saetta_now_fn)(void *ctx);
/* Makes an instance. 0 = done. */
typedef int32_t (*saetta_create_fn)(const saetta_create *args, void **instance, saetta_err *err);
/* Ends an instance. */
typedef void (*saetta_destroy_fn)(void *instance);
/* One round. 0 = done, 1 = done and nothing changed, negative = error and the plan is discarded. */
typedef int32_t (*saetta_schedule_fn)(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err);
/* Looks up an extension of the plugin by its id; NULL = not there. */
typedef const void *(*saetta_plugin_extension_fn)(const char *id, uint64_t id_len);
/* Non-zero when the plugin should return its best plan so far. Cheap. Thread-safe. */
typedef int32_t (*saetta_should_stop_fn)(void *ctx);
/* Hands one reason to the host; ctx is the host's. Only inside a round; everything is copied. */
typedef void (*saetta_explain_fn)(void *ctx, const saetta_explanation *explanation);
/* Writes the JSON schema of the configuration. 0 = done, E_NO_MEMORY = the room is too small, len says what it takes. */
typedef int32_t (*saetta_schema_fn)(saetta_out *out);
/* Writes the configuration in force, defaults filled in, as JSON. Returns as saetta_schema_fn. */
typedef int32_t (*saetta_effective_fn)(void *instance, saetta_out *out);
/* Writes what the instance wants to find again. Called after a round. Returns as saetta_schema_fn. */
typedef int32_t (*saetta_save_fn)(void *instance, saetta_out *out);
/* Gives it back, right after create; also what an older version of the plugin wrote. */
typedef int32_t (*saetta_restore_fn)(void *instance, const uint8_t *bytes, uint64_t len, saetta_err *err);
/* Judges the nodes before the round's scheduler sees them. Returns as saetta_schedule_fn. */
typedef int32_t (*saetta_health_fn)(void *instance, const saetta_round *round, saetta_health *health, saetta_err *err);

/* Host to plugin; lives as long as the process. */
struct saetta_host {
    uint32_t struct_size; /* Bytes the host provides. */
    uint16_t abi_major; /* SAETTA_ABI_MAJOR of the host. */
    uint16_t abi_minor; /* SAETTA_ABI_MINOR of the host. */
    void *ctx; /* Passed back unchanged as the first argument. */
    saetta_log_fn log; /* See saetta_log_fn. */
    saetta_host_extension_fn get_extension; /* See saetta_host_extension_fn. */
    saetta_now_fn now_ns; /* See saetta_now_fn. */
};

/* Arguments of create. Texts are pointer and length, UTF-8, valid until the call returns. */
struct saetta_create {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t reserved; /* 0. */
    const char *config; /* Configuration as JSON text. */
    uint64_t config_len; /* Its bytes. */
    const char *name; /* Name of the instance. */
    uint64_t name_len; /* Its bytes. */
    const char *profile; /* Scheduler profile. */
    uint64_t profile_len; /* Its bytes. */
};

/* Where a failing call says why. Host memory; the plugin writes at most cap bytes of UTF-8, no NUL needed. */
struct saetta_err {
    uint32_t struct_size; /* Bytes the host provides. */
    int32_t code; /* E_*. */
    char *buf; /* Text goes here. */
    uint64_t cap; /* Room in bytes. */
    uint64_t len; /* Bytes written. */
};

/* One round, valid until the call returns. */
struct saetta_round {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t reason; /* REASON_*: why there is a round. */
    uint64_t round_id; /* Rises with each round. */
    uint64_t base_round_id; /* Base for delta hints; 0 = none. */
    uint64_t deadline_ns; /* On the clock of saetta_host.now_ns. */
    uint64_t seed; /* The only permitted randomness. */
    const uint8_t *snap; /* The snapshot: saetta_header first. Read-only; a write is a crash. */
    uint64_t snap_len; /* Its bytes. */
    void *ctx; /* For saetta_round.should_stop. */
    saetta_should_stop_fn should_stop; /* See saetta_should_stop_fn. */
    uint32_t max_moves; /* Running executors that may move; SAETTA_NONE = no limit. */
    uint32_t flags; /* ROUND_* bits. */
};

/* The answer, in host memory, pre-filled with the current placement. Writing nothing keeps everything. */
struct saetta_plan {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t n_execs; /* Length of slot_of_exec: rows of the executor table. */
    uint32_t *slot_of_exec; /* Slot index of each executor, or SAETTA_NONE = not placed. */
    uint32_t n_topologies; /* Length of outcome: rows of the topology table. */
    uint32_t reserved; /* 0. */
    uint32_t *outcome; /* OUT_* of each topology, pre-filled SAETTA_OUT_KEEP. */
    uint32_t *core_of_exec; /* Row of the core table for each executor: one of its slot's cores, or SAETTA_NONE = Saetta chooses. As long as slot_of_exec, pre-filled SAETTA_NONE; NULL = the host takes no cores. Not read for a topology left at SAETTA_OUT_KEEP. */
};

/* Plugin to host: arrives zeroed with the host's struct_size; the plugin writes at most that many bytes. */
struct saetta_plugin {
    uint32_t struct_size; /* Bytes the plugin wrote. */
    uint16_t abi_major; /* SAETTA_ABI_MAJOR of the plugin. */
    uint16_t abi_minor; /* SAETTA_ABI_MINOR of the plugin. */
    uint32_t flags; /* PLUGIN_* bits. */
    uint32_t reserved; /* 0. */
    saetta_create_fn create; /* See saetta_create_fn. */
    saetta_destroy_fn destroy; /* See saetta_destroy_fn. */
    saetta_schedule_fn schedule; /* See saetta_schedule_fn. */
    saetta_plugin_extension_fn get_extension; /* See saetta_plugin_extension_fn; may be NULL. */
};

/* Start of the snapshot. Not a table; it has the same reader because it also grows at the end. */
struct saetta_header {
    uint32_t struct_size; /* Bytes of this header. */
    uint32_t magic; /* SAETTA_SNAPSHOT_MAGIC. */
    uint64_t total_len; /* Bytes of the whole block. */
    uint64_t round_id; /* The round it was made for. */
    uint64_t cluster_epoch; /* Rises when the cluster changes; 0 = not tracked. */
    uint64_t features_compat; /* Bits a reader may ignore. */
    uint64_t features_incompat; /* Bits a reader must know, else SAETTA_E_UNSUPPORTED. */
    uint32_t n_tables; /* Entries of the directory. */
    uint32_t dir_stride; /* Bytes from one entry to the next. */
    uint64_t dir_off; /* Where the directory begins. */
};

/* One entry of the directory. Unknown tables are ignored; a missing table means no rows. */
struct saetta_dir {
    uint32_t table_id; /* TABLE_*. */
    uint32_t stride; /* Bytes from one row to the next. */
    uint64_t count; /* Rows. */
    uint64_t off; /* Where the first row begins, from the start of the block. */
};

/* Facts of the round. */
struct saetta_meta {
    int64_t wall_ms; /* Wall clock, milliseconds since 1970. */
    uint32_t reason; /* REASON_*. */
    uint32_t reserved; /* 0. */
    uint64_t monotonic_ns; /* Monotonic nanoseconds, on the clock of saetta_host.now_ns. */
    int64_t min_worker_cpu; /* Least CPU a worker counts as taking, in thousandths of a percent of a core. */
    uint64_t monitor_period_ms; /* Time between two periodic rounds, milliseconds; 0 = not stated. */
    uint64_t leader_term; /* Rises with each change of the leader; 0 = not stated. */
};

/* One kind of resource. Row SAETTA_RESOURCE_CPU and row SAETTA_RESOURCE_MEMORY always come first, then the others by name. */
struct saetta_kind_row {
    saetta_str name; /* As the configuration calls it. */
};

/* One rack. */
struct saetta_rack {
    saetta_str id; /* Id; empty = not stated. */
    uint32_t first_host; /* First row in the host table. */
    uint32_t n_hosts; /* Rows there. */
};

/* One machine, by the address its workers are reached at. */
struct saetta_host_row {
    saetta_str name; /* Address. */
    uint32_t rack; /* Row in the rack table. */
    uint32_t first_node; /* First row in the node table. */
    uint32_t n_nodes; /* Rows there. */
    uint32_t flags; /* HOST_* bits. */
};

/* One supervisor. */
struct saetta_node_row {
    saetta_str id; /* Id. */
    uint32_t host; /* Row in the host table. */
    uint32_t first_slot; /* First row in the slot table. */
    uint32_t n_slots; /* Rows there. */
    uint32_t flags; /* NODE_* bits. */
    uint64_t uptime_s; /* Since its supervisor started, seconds; 0 = not known. */
};

/* One slot. */
struct saetta_slot_row {
    uint32_t node; /* Row in the node table. */
    uint32_t port; /* Port. */
    uint32_t topology; /* Row of the topology whose worker is here, or SAETTA_NONE. */
    uint32_t flags; /* SLOT_* bits. */
    uint32_t n_cores; /* Cores a worker here gets; 0 where the supervisor is gone. */
    uint32_t share; /* Slots that share a core with this one; 1 = alone. */
};

/* One topology. */
struct saetta_topology_row {
    saetta_str id; /* Id, unique for ever. */
    saetta_str name; /* Name as the operator calls it. */
    saetta_str owner; /* Who submitted it. */
    int64_t launch_ms; /* When, milliseconds since 1970. */
    uint32_t workers_wanted; /* Workers asked for. */
    int32_t priority; /* Smaller is served first when slots are short. */
    uint32_t first_comp; /* First row in the component table. */
    uint32_t n_comps; /* Rows there. */
    uint32_t first_exec; /* First row in the executor table. */
    uint32_t n_execs; /* Rows there. */
    uint32_t flags; /* TOPO_* bits. */
    uint32_t user; /* Row in the user table, or SAETTA_NONE = it has no owner. */
    int64_t max_worker_heap; /* Most on-heap memory one worker may take, bytes; 0 = no limit. */
    uint64_t max_states; /* Most states a searching strategy may look at; 0 = no limit. */
    uint64_t max_ms; /* Most time it may take, milliseconds; 0 = no limit. */
    saetta_str strategy; /* The strategy it asks for; empty = the scheduler's own choice. */
    uint32_t isolate_machines; /* Machines it wants for itself; 0 = none. */
    uint32_t ackers_per_worker; /* Ackers that go with each worker; 0 = not stated. */
};

/* One component. */
struct saetta_component_row {
    saetta_str name; /* Id. */
    uint32_t topology; /* Row in the topology table. */
    uint32_t kind; /* KIND_*. */
    uint32_t first_exec; /* First row in the executor table. */
    uint32_t n_execs; /* Rows there. */
    int64_t on_heap; /* Memory of one executor that counts against saetta_topology_row.max_worker_heap, bytes. */
    int64_t off_heap; /* Its other memory, bytes. Both together are its amount of SAETTA_RESOURCE_MEMORY. */
    uint32_t max_colocation; /* Most executors of it on one node; 0 = no limit. */
    uint32_t flags; /* COMP_* bits. */
};

/* One subscription. */
struct saetta_edge_row {
    uint32_t from; /* Emitting component. */
    uint32_t to; /* Subscribing component. */
    saetta_str stream; /* Name of the stream. */
    uint32_t grouping; /* GROUP_*. */
    uint32_t reserved; /* 0. */
};

/* Two components that may not share a worker. Both directions are stored. */
struct saetta_incompatible_row {
    uint32_t component; /* Row in the component table. */
    uint32_t other; /* The other one. */
};

/* Memory that executors share. It counts once, however many of them are there. */
struct saetta_shared_mem_row {
    saetta_str name; /* Name, unique in the topology. */
    uint32_t topology; /* Row in the topology table. */
    uint32_t reserved; /* 0. */
    int64_t on_heap; /* Bytes once in each worker, counting against saetta_topology_row.max_worker_heap. */
    int64_t off_heap_worker; /* Other bytes once in each worker. */
    int64_t off_heap_node; /* Other bytes once on each node. */
};

/* A component that uses a shared block. */
struct saetta_comp_shared_row {
    uint32_t component; /* Row in the component table. */
    uint32_t block; /* Row in the table of shared memory. */
};

/* One executor. */
struct saetta_executor_row {
    uint32_t topology; /* Row in the topology table. */
    uint32_t component; /* Row in the component table. */
    uint32_t first_task; /* First task. */
    uint32_t last_task; /* Last task, included. */
    uint32_t slot; /* Slot it runs in, or SAETTA_NONE. */
    uint32_t last_slot; /* Slot it ran in before it died, or SAETTA_NONE. */
    int64_t started_ms; /* When it was first placed there, milliseconds since 1970; 0 = not placed. */
    uint32_t core; /* Row of the core it runs on, or SAETTA_NONE. */
    uint32_t reserved; /* 0. */
};

/* A host a topology would rather have. */
struct saetta_favored_row {
    uint32_t topology; /* Row in the topology table. */
    uint32_t host; /* Row in the host table. */
};

/* A host a topology would rather not have. */
struct saetta_unfavored_row {
    uint32_t topology; /* Row in the topology table. */
    uint32_t host; /* Row in the host table. */
};

/* An owner of topologies, or one that the configuration gives a guarantee. */
struct saetta_user_row {
    saetta_str name; /* Name. */
    uint32_t max_isolated_nodes; /* Nodes it may have for itself; 0 = none. */
    uint32_t reserved; /* 0. */
};

/* What was measured on a subscription, over all its executors. Only where the host has SAETTA_EXT_STATS, and only edges that were measured. */
struct saetta_stat_edge_row {
    uint32_t edge; /* Row in the edge table. */
    uint32_t reserved; /* 0. */
    uint64_t tuples_per_s; /* Tuples per second that arrived over it. */
    uint64_t bytes_per_s; /* Their bytes per second. */
};

/* One core that workers may get. */
struct saetta_core_row {
    uint32_t node; /* Row in the node table. */
    uint32_t os_id; /* Number the operating system gives it. */
    uint32_t l3; /* Cores of a node with the same number share their last-level cache. */
    uint32_t numa; /* NUMA node: cores of a node with the same number are equally near to its memory. */
    uint32_t sibling; /* Row of the other thread of the same physical core, or SAETTA_NONE. */
    uint32_t flags; /* CORE_* bits. */
};

/* A core that a worker in a slot gets. Slots of a crowded node share cores (saetta_slot_row.share). */
struct saetta_slot_core_row {
    uint32_t slot; /* Row in the slot table. */
    uint32_t core; /* Row in the core table. */
};

/* Where a call writes bytes. Host memory; where len becomes more than cap, nothing was written and the host may ask again. */
struct saetta_out {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t reserved; /* 0. */
    uint8_t *buf; /* Bytes go here. */
    uint64_t cap; /* Room in bytes. */
    uint64_t len; /* Bytes written, or what it would take. */
};

/* One term of a score. */
struct saetta_score_part {
    const char *name; /* Its name, UTF-8. */
    uint64_t name_len; /* Its bytes. */
    int64_t value; /* In thousandths. */
};

/* Why an executor is in a slot, or in none. Several about one executor: the choice, and what else was looked at. */
struct saetta_explanation {
    uint32_t struct_size; /* Bytes the plugin provides. */
    uint32_t exec; /* Row in the executor table. */
    uint32_t slot; /* Row in the slot table, or SAETTA_NONE = about no slot. */
    uint32_t code; /* WHY_*. */
    uint32_t arg; /* What the code says it is, or SAETTA_NONE. */
    uint32_t n_parts; /* Length of parts, at most SAETTA_SCORE_PARTS_MAX. */
    int64_t score; /* Larger is better, in thousandths. */
    const saetta_score_part *parts; /* What the score is made of; may be NULL. */
    const char *text; /* UTF-8, at most SAETTA_EXPLAIN_TEXT_BYTES_MAX; may be NULL. */
    uint64_t text_len; /* Its bytes. */
};

/* SAETTA_EXT_EXPLAIN. */
struct saetta_explain_v1 {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t reserved; /* 0. */
    saetta_explain_fn explain; /* See saetta_explain_fn. */
};

/* SAETTA_EXT_STATS. That it is there says that rates come in the table of measured edges. */
struct saetta_stats_v1 {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t window_s; /* Over how many seconds rates are averaged. */
};

/* SAETTA_EXT_CONFIG. */
struct saetta_config_v1 {
    uint32_t struct_size; /* Bytes the plugin provides. */
    uint32_t reserved; /* 0. */
    saetta_schema_fn schema; /* See saetta_schema_fn; may be NULL. */
    saetta_effective_fn effective; /* See saetta_effective_fn. */
};

/* SAETTA_EXT_STATE. */
struct saetta_state_v1 {
    uint32_t struct_size; /* Bytes the plugin provides. */
    uint32_t reserved; /* 0. */
    saetta_save_fn save; /* See saetta_save_fn. */
    saetta_restore_fn restore; /* See saetta_restore_fn. */
};

/* The answer of saetta_health_fn, in host memory. */
struct saetta_health {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t n_nodes; /* Length of flags_of_node: rows of the node table. */
    uint32_t *flags_of_node; /* NODE_BLACKLISTED and NODE_GREYLISTED of each node, pre-filled with what the snapshot says; other bits are not read. */
};

/* SAETTA_EXT_NODE_HEALTH. */
struct saetta_node_health_v1 {
    uint32_t struct_size; /* Bytes the plugin provides. */
    uint32_t reserved; /* 0. */
    saetta_health_fn health; /* See saetta_health_fn. */
};
/* Generated: end. */

/* The only exported symbol. The host's table lives as long as the process; `plugin` arrives zeroed with the host's struct_size,
 * and at most that many bytes may be written. */
__attribute__((visibility("default"))) int32_t saetta_scheduler_v1(const saetta_host *host, saetta_plugin *plugin);

/* The manifest, read from the file before any code of it runs. Once per plugin, at file scope, with JSON text:
 * SAETTA_MANIFEST("{\"id\":\"org.acme.numa\",\"version\":\"1.0.0\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0}}");
 * C only (C++ does not let a text fill an array without its NUL); saetta_sched.hpp has SAETTA_EXPORT. */
#define SAETTA_MANIFEST(json)                                                                                                            \
    __attribute__((section(".note.saetta.sched"), used, aligned(4))) static const struct {                                               \
        uint32_t name_len, desc_len, type;                                                                                               \
        char name[12];                                                                                                                   \
        char desc[(sizeof(json) + 2) / 4 * 4];                                                                                           \
    } saetta_manifest = {12, sizeof(json) - 1, 1, "SAETTASCHED", json}

/* The directory entry of a table, or NULL = it has no rows. */
static inline const saetta_dir *saetta_table(const saetta_round *round, uint32_t table_id)
{
    const saetta_header *header = (const saetta_header *)(const void *)round->snap;
    for (uint32_t i = 0; i < header->n_tables; i++) {
        const uint8_t *at = round->snap + header->dir_off + (uint64_t)i * header->dir_stride;
        const saetta_dir *dir = (const saetta_dir *)(const void *)at;
        if (dir->table_id == table_id)
            return dir;
    }
    return (const saetta_dir *)0;
}

/* A table of i64 amounts, one for each resource kind: NODE_TOTAL, NODE_AVAIL, COMP_REQUEST, USER_GUARANTEE. `dir` may be NULL. */
static inline int64_t saetta_amount(const saetta_round *round, const saetta_dir *dir, uint64_t index, uint32_t kind)
{
    if (!dir || index >= dir->count || ((uint64_t)kind + 1) * sizeof(int64_t) > dir->stride)
        return 0;
    return ((const int64_t *)(const void *)(round->snap + dir->off + index * dir->stride))[kind];
}

/* Features of the snapshot this header knows. Another bit set means: do not read it, answer SAETTA_E_UNSUPPORTED. */
#define SAETTA_FEATURES_INCOMPAT_KNOWN UINT64_C(0)

/* What the first lines of schedule ask: SAETTA_OK, or the code to return. */
static inline int32_t saetta_check(const saetta_round *round)
{
    const saetta_header *header = (const saetta_header *)(const void *)round->snap;
    if (round->snap_len < sizeof(saetta_header) || header->magic != SAETTA_SNAPSHOT_MAGIC || header->total_len != round->snap_len)
        return SAETTA_E_BAD_SNAPSHOT;
    return header->features_incompat & ~SAETTA_FEATURES_INCOMPAT_KNOWN ? SAETTA_E_UNSUPPORTED : SAETTA_OK;
}

/* How many rows a table has; `dir` may be NULL. */
static inline uint32_t saetta_count(const saetta_dir *dir)
{
    return dir ? (uint32_t)dir->count : 0;
}

/* Copies a row of a table that has more than `index` rows. What an older host does not have reads as zero, what a newer one has
 * beyond it is left out. Use it as saetta_read(round, dir, i, &row, sizeof row). */
static inline void saetta_read(const saetta_round *round, const saetta_dir *dir, uint64_t index, void *row, uint64_t size)
{
    uint64_t n = dir->stride < size ? dir->stride : size;
    __builtin_memset(row, 0, size);
    __builtin_memcpy(row, round->snap + dir->off + index * dir->stride, n);
}

/* A text of the snapshot: UTF-8, `text.len` bytes, then a NUL. */
static inline const char *saetta_text(const saetta_round *round, saetta_str text)
{
    const saetta_dir *strings = saetta_table(round, SAETTA_TABLE_STRINGS);
    if (!strings || (uint64_t)text.off + text.len >= strings->count)
        return "";
    return (const char *)round->snap + strings->off + text.off;
}

/* Says why a call fails and gives back `code`: `return saetta_fail(err, SAETTA_E_CONFIG, "pools is no object");` */
static inline int32_t saetta_fail(saetta_err *err, int32_t code, const char *text)
{
    uint64_t n = __builtin_strlen(text);
    if (err && err->struct_size >= sizeof *err && err->buf) {
        err->code = code;
        err->len = n < err->cap ? n : err->cap;
        __builtin_memcpy(err->buf, text, err->len);
    }
    return code;
}

/* A row of a table that has more than `index` rows. */
static inline const void *saetta_row(const saetta_round *round, const saetta_dir *dir, uint64_t index)
{
    return round->snap + dir->off + index * dir->stride;
}

#ifdef __cplusplus
}
#endif
#endif
