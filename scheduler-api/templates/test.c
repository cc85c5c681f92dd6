/* A test without a host: one node with two slots, one topology that wants two workers and has three executors. */
#include "saetta_sched.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define N_EXECS 3

/* A snapshot as the host lays it out: header, directory, tables at offsets. */
static struct {
    saetta_header header;
    saetta_dir dir[4]; /* sorted by table id */
    saetta_node_row node;
    saetta_slot_row slots[2];
    saetta_topology_row topology;
    saetta_executor_row execs[N_EXECS];
} snapshot;

static void table(int i, uint32_t id, uint32_t stride, uint64_t count, uint64_t off)
{
    snapshot.dir[i] = (saetta_dir){.table_id = id, .stride = stride, .count = count, .off = off};
}
#define TABLE(i, id, field, n) table(i, id, sizeof(snapshot.field) / (n), n, offsetof(__typeof__(snapshot), field))

static int32_t never_stop(void *ctx)
{
    (void)ctx;
    return 0;
}

static void log_line(void *ctx, int32_t level, const char *target, uint64_t target_len, const char *msg, uint64_t msg_len)
{
    (void)ctx, (void)target, (void)target_len;
    printf("log %d: %.*s\n", level, (int)msg_len, msg);
}

static int failures;
#define CHECK(what)                                                                                                                      \
    do {                                                                                                                                 \
        if (!(what)) {                                                                                                                   \
            printf("test.c:%d: not so: %s\n", __LINE__, #what);                                                                          \
            failures++;                                                                                                                  \
        }                                                                                                                                \
    } while (0)

int main(void)
{
    snapshot.header = (saetta_header){.struct_size = sizeof(saetta_header),
                                      .magic = SAETTA_SNAPSHOT_MAGIC,
                                      .total_len = sizeof snapshot,
                                      .n_tables = 4,
                                      .dir_stride = sizeof(saetta_dir),
                                      .dir_off = offsetof(__typeof__(snapshot), dir)};
    TABLE(0, SAETTA_TABLE_NODES, node, 1);
    TABLE(1, SAETTA_TABLE_SLOTS, slots, 2);
    TABLE(2, SAETTA_TABLE_TOPOLOGIES, topology, 1);
    TABLE(3, SAETTA_TABLE_EXECUTORS, execs, N_EXECS);
    snapshot.node.n_slots = 2;
    for (uint32_t s = 0; s < 2; s++)
        snapshot.slots[s] = (saetta_slot_row){.port = 6700 + s, .topology = SAETTA_NONE, .flags = SAETTA_SLOT_ASSIGNABLE, .n_cores = 1, .share = 1};
    snapshot.topology.workers_wanted = 2;
    snapshot.topology.n_execs = N_EXECS;
    snapshot.topology.flags = SAETTA_TOPO_SCHEDULE | SAETTA_TOPO_NEEDS_SCHEDULING;
    for (uint32_t e = 0; e < N_EXECS; e++)
        snapshot.execs[e] = (saetta_executor_row){
            .first_task = e + 1, .last_task = e + 1, .slot = SAETTA_NONE, .last_slot = SAETTA_NONE, .core = SAETTA_NONE};

    saetta_host host = {.struct_size = sizeof host, .abi_major = SAETTA_ABI_MAJOR, .abi_minor = SAETTA_ABI_MINOR, .log = log_line};
    saetta_plugin plugin = {.struct_size = sizeof plugin};
    CHECK(saetta_scheduler_v1(&host, &plugin) == SAETTA_OK);

    char text[256] = "";
    saetta_err err = {.struct_size = sizeof err, .buf = text, .cap = sizeof text - 1};
    saetta_create args = {.struct_size = sizeof args, .config = "{}", .config_len = 2, .name = "test", .name_len = 4};
    void *instance = NULL;
    CHECK(plugin.create(&args, &instance, &err) == SAETTA_OK);

    uint32_t slot_of_exec[N_EXECS] = {SAETTA_NONE, SAETTA_NONE, SAETTA_NONE}, outcome = SAETTA_OUT_KEEP;
    saetta_round round = {.struct_size = sizeof round,
                          .round_id = 1,
                          .snap = (const uint8_t *)&snapshot,
                          .snap_len = sizeof snapshot,
                          .should_stop = never_stop,
                          .max_moves = SAETTA_NONE};
    saetta_plan plan = {
        .struct_size = sizeof plan, .n_execs = N_EXECS, .slot_of_exec = slot_of_exec, .n_topologies = 1, .outcome = &outcome};
    CHECK(plugin.schedule(instance, &round, &plan, &err) >= SAETTA_OK);
    CHECK(outcome == SAETTA_OUT_SCHEDULED);
    uint32_t n_in_slot[2] = {0, 0};
    for (uint32_t e = 0; e < N_EXECS; e++) {
        CHECK(slot_of_exec[e] < 2);
        if (slot_of_exec[e] < 2)
            n_in_slot[slot_of_exec[e]]++;
    }
    CHECK(n_in_slot[0] > 0 && n_in_slot[1] > 0); /* two workers were wanted */

    plugin.destroy(instance);
    if (failures == 0)
        printf("ok\n");
    else
        printf("%d failures%s%s\n", failures, text[0] ? ": " : "", text);
    return failures != 0;
}
