/* saetta_sched.h - the scheduler ABI of Saetta in C. The source of truth is scheduler-api/abi; a test compares the two,
 * field by field and constant by constant. First cut: not frozen yet.
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

#define SAETTA_ABI_MAJOR 1
#define SAETTA_ABI_MINOR 0
/* First word of a snapshot: "SSNP". */
#define SAETTA_SNAPSHOT_MAGIC 0x504e5353u
/* No slot, no topology, no limit. */
#define SAETTA_NONE 0xffffffffu


/* Tables of the snapshot. Other ids up to 27 are reserved. */
#define SAETTA_TABLE_META 1u
#define SAETTA_TABLE_STRINGS 2u
#define SAETTA_TABLE_RACKS 4u
#define SAETTA_TABLE_HOSTS 5u
#define SAETTA_TABLE_NODES 6u
#define SAETTA_TABLE_SLOTS 9u
#define SAETTA_TABLE_TOPOLOGIES 10u
#define SAETTA_TABLE_COMPONENTS 11u
#define SAETTA_TABLE_EDGES 13u
#define SAETTA_TABLE_EXECUTORS 17u

#define SAETTA_REASON_PERIODIC 0u /* Safety-net round. */
#define SAETTA_REASON_SUBMIT 1u /* A topology was submitted. */
#define SAETTA_REASON_REBALANCE 2u /* A rebalance was asked for. */
#define SAETTA_REASON_NODE_LOST 3u /* A node was lost. */
#define SAETTA_REASON_NODE_BACK 4u /* A node came. */
#define SAETTA_REASON_DRY_RUN 5u /* Nothing will be committed. */
#define SAETTA_REASON_SHADOW 6u /* Compared with another scheduler, never committed. */
#define SAETTA_REASON_KILL 7u /* A topology was killed. */

#define SAETTA_NODE_GONE 1u /* The node is only known from an assignment: nothing new may be placed there, what runs may stay. */

#define SAETTA_SLOT_ASSIGNABLE 1u /* Executors may be placed here. */
#define SAETTA_SLOT_USED 2u /* A worker is here. */
#define SAETTA_SLOT_PORT_NOT_REPORTED 4u /* Known from an assignment; the supervisor does not report this port (now). */

#define SAETTA_TOPO_SCHEDULE 1u /* The round asks for a decision on this topology. Without it, its rows only say which slots are used. */

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

/* Reference into the string table: UTF-8, also NUL-terminated there. */
typedef struct saetta_str {
    uint32_t off; /* from the start of the string table */
    uint32_t len; /* without the NUL */
} saetta_str;

/* Host to plugin; lives as long as the process. */
typedef struct saetta_host {
    uint32_t struct_size; /* Bytes the host provides. */
    uint16_t abi_major; /* SAETTA_ABI_MAJOR of the host. */
    uint16_t abi_minor; /* SAETTA_ABI_MINOR of the host. */
    void *ctx; /* Passed back unchanged as the first argument. */
    void (*log)(void *ctx, int32_t level, const char *target, uint64_t target_len, const char *msg, uint64_t msg_len); /* Writes one log line; text is UTF-8, not NUL-terminated. Thread-safe. */
    const void *(*get_extension)(void *ctx, const char *id, uint64_t id_len); /* Looks up an extension by its id; NULL = not there. */
    uint64_t (*now_ns)(void *ctx); /* Monotonic nanoseconds; virtual during replay. Thread-safe. */
} saetta_host;

/* Arguments of create. Texts are pointer and length, UTF-8, valid until the call returns. */
typedef struct saetta_create {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t reserved; /* 0. */
    const char *config; /* Configuration as JSON text. */
    uint64_t config_len; /* Its bytes. */
    const char *name; /* Name of the instance. */
    uint64_t name_len; /* Its bytes. */
    const char *profile; /* Scheduler profile. */
    uint64_t profile_len; /* Its bytes. */
} saetta_create;

/* Where a failing call says why. Host memory; the plugin writes at most cap bytes of UTF-8, no NUL needed. */
typedef struct saetta_err {
    uint32_t struct_size; /* Bytes the host provides. */
    int32_t code; /* E_*. */
    char *buf; /* Text goes here. */
    uint64_t cap; /* Room in bytes. */
    uint64_t len; /* Bytes written. */
} saetta_err;

/* One round, valid until the call returns. */
typedef struct saetta_round {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t reason; /* REASON_*: why there is a round. */
    uint64_t round_id; /* Rises with each round. */
    uint64_t base_round_id; /* Base for delta hints; 0 = none. */
    uint64_t deadline_ns; /* On the clock of now_ns. */
    uint64_t seed; /* The only permitted randomness. */
    const uint8_t *snap; /* The snapshot: Header first. Read-only; a write is a crash. */
    uint64_t snap_len; /* Its bytes. */
    void *ctx; /* For should_stop. */
    int32_t (*should_stop)(void *ctx); /* Non-zero when the plugin should return its best plan so far. Cheap. Thread-safe. */
    uint32_t max_moves; /* Running executors that may move; SAETTA_NONE = no limit. */
    uint32_t flags; /* ROUND_* bits. */
} saetta_round;

/* The answer, in host memory, pre-filled with the current placement. Writing nothing keeps everything. */
typedef struct saetta_plan {
    uint32_t struct_size; /* Bytes the host provides. */
    uint32_t n_execs; /* Length of slot_of_exec: rows of the executor table. */
    uint32_t *slot_of_exec; /* Slot index of each executor, or SAETTA_NONE = not placed. */
    uint32_t n_topologies; /* Length of outcome: rows of the topology table. */
    uint32_t reserved; /* 0. */
    uint32_t *outcome; /* OUT_* of each topology, pre-filled SAETTA_OUT_KEEP. */
} saetta_plan;

/* Plugin to host: arrives zeroed with the host's struct_size; the plugin writes at most that many bytes. */
typedef struct saetta_plugin {
    uint32_t struct_size; /* Bytes the plugin wrote. */
    uint16_t abi_major; /* SAETTA_ABI_MAJOR of the plugin. */
    uint16_t abi_minor; /* SAETTA_ABI_MINOR of the plugin. */
    uint32_t flags; /* PLUGIN_* bits. */
    uint32_t reserved; /* 0. */
    int32_t (*create)(const saetta_create *args, void **instance, saetta_err *err); /* Makes an instance. 0 = done. */
    void (*destroy)(void *instance); /* Ends an instance. */
    int32_t (*schedule)(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err); /* One round. 0 = done, 1 = done and nothing changed, negative = error and the plan is discarded. */
    const void *(*get_extension)(const char *id, uint64_t id_len); /* Looks up an extension by its id; NULL = not there. */
} saetta_plugin;

/* Start of the snapshot. Not a table; it has the same reader because it also grows at the end. */
typedef struct saetta_header {
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
} saetta_header;

/* One entry of the directory. Unknown tables are ignored; a missing table means no rows. */
typedef struct saetta_dir {
    uint32_t table_id; /* TABLE_*. */
    uint32_t stride; /* Bytes from one row to the next. */
    uint64_t count; /* Rows. */
    uint64_t off; /* Where the first row begins, from the start of the block. */
} saetta_dir;

/* Facts of the round. */
typedef struct saetta_meta {
    int64_t wall_ms; /* Wall clock, milliseconds since 1970. */
    uint32_t reason; /* REASON_*. */
    uint32_t reserved; /* 0. */
} saetta_meta;

/* One rack. */
typedef struct saetta_rack {
    saetta_str id; /* Id; empty = not stated. */
    uint32_t first_host; /* First row in the host table. */
    uint32_t n_hosts; /* Rows there. */
} saetta_rack;

/* One machine, by the address its workers are reached at. */
typedef struct saetta_host_row {
    saetta_str name; /* Address. */
    uint32_t rack; /* Row in the rack table. */
    uint32_t first_node; /* First row in the node table. */
    uint32_t n_nodes; /* Rows there. */
    uint32_t flags; /* 0 in this version. */
} saetta_host_row;

/* One supervisor. */
typedef struct saetta_node_row {
    saetta_str id; /* Id. */
    uint32_t host; /* Row in the host table. */
    uint32_t first_slot; /* First row in the slot table. */
    uint32_t n_slots; /* Rows there. */
    uint32_t flags; /* NODE_* bits. */
} saetta_node_row;

/* One slot. */
typedef struct saetta_slot_row {
    uint32_t node; /* Row in the node table. */
    uint32_t port; /* Port. */
    uint32_t topology; /* Row of the topology whose worker is here, or SAETTA_NONE. */
    uint32_t flags; /* SLOT_* bits. */
    uint32_t n_cores; /* Cores a worker here gets; 0 where the supervisor is gone. */
    uint32_t share; /* Slots that share a core with this one; 1 = alone. */
} saetta_slot_row;

/* One topology. */
typedef struct saetta_topology_row {
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
    uint32_t reserved; /* 0. */
} saetta_topology_row;

/* One component. */
typedef struct saetta_component_row {
    saetta_str name; /* Id. */
    uint32_t topology; /* Row in the topology table. */
    uint32_t kind; /* KIND_*. */
    uint32_t first_exec; /* First row in the executor table. */
    uint32_t n_execs; /* Rows there. */
} saetta_component_row;

/* One subscription. */
typedef struct saetta_edge_row {
    uint32_t from; /* Emitting component. */
    uint32_t to; /* Subscribing component. */
    saetta_str stream; /* Name of the stream. */
    uint32_t grouping; /* GROUP_*. */
    uint32_t reserved; /* 0. */
} saetta_edge_row;

/* One executor. */
typedef struct saetta_executor_row {
    uint32_t topology; /* Row in the topology table. */
    uint32_t component; /* Row in the component table. */
    uint32_t first_task; /* First task. */
    uint32_t last_task; /* Last task, included. */
    uint32_t slot; /* Slot it runs in, or SAETTA_NONE. */
    uint32_t reserved; /* 0. */
    int64_t started_ms; /* When it was first placed there, milliseconds since 1970; 0 = not placed. */
} saetta_executor_row;

/* The only exported symbol. The host's table lives as long as the process; `plugin` arrives zeroed with the host's struct_size,
 * and at most that many bytes may be written. */
__attribute__((visibility("default"))) int32_t saetta_scheduler_v1(const saetta_host *host, saetta_plugin *plugin);

/* The manifest, read from the file before any code of it runs. Once per plugin, at file scope, with JSON text:
 * SAETTA_MANIFEST("{\"id\":\"org.acme.numa\",\"version\":\"1.0.0\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0}}");
 * C only (C++ does not let a text fill an array without its NUL). */
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

/* A row of a table that has more than `index` rows. */
static inline const void *saetta_row(const saetta_round *round, const saetta_dir *dir, uint64_t index)
{
    return round->snap + dir->off + index * dir->stride;
}

#ifdef __cplusplus
}
#endif
#endif
