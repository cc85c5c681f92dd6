/* @NAME@: a scheduler plugin of Saetta.
 *
 * Before: nimbus packed the cluster into round->snap. After: plan->slot_of_exec says where each executor runs.
 * The rule to begin with: what runs stays; each topology takes free slots up to the workers it wants; an executor without a slot
 * goes to the worker of its topology that holds fewest. Change choose_worker and claim_workers to yours.
 */
#include "saetta_sched.h"

#include <stdlib.h>

SAETTA_MANIFEST("{\"id\":\"@NAME@\",\"version\":\"0.1.0\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0},\"built\":\"c\"}");

/* What schedule remembers of a slot. */
typedef struct worker {
    uint32_t topology;   /* row of the topology that has the slot by the plan so far, or SAETTA_NONE */
    uint32_t n_execs;    /* executors of it there, by the plan so far */
    uint32_t assignable; /* whether something new may be placed there */
} worker;

/* Gives a topology free slots until it has the workers it wants, at most n_new more. */
static void claim_workers(worker *workers, uint32_t n_slots, uint32_t topology, uint32_t wanted, uint32_t n_new)
{
    uint32_t n_workers = 0;
    for (uint32_t s = 0; s < n_slots; s++)
        n_workers += workers[s].topology == topology;
    for (uint32_t s = 0; s < n_slots && n_workers < wanted && n_new > 0; s++) {
        if (workers[s].topology == SAETTA_NONE && workers[s].assignable) {
            workers[s].topology = topology;
            n_workers++;
            n_new--;
        }
    }
}

/* The topology's worker that holds fewest executors, or SAETTA_NONE. */
static uint32_t choose_worker(const worker *workers, uint32_t n_slots, uint32_t topology)
{
    uint32_t best = SAETTA_NONE;
    for (uint32_t s = 0; s < n_slots; s++) {
        if (workers[s].topology == topology && workers[s].assignable && (best == SAETTA_NONE || workers[s].n_execs < workers[best].n_execs))
            best = s;
    }
    return best;
}

static void place_topology(saetta_plan *plan, worker *workers, uint32_t n_slots, uint32_t t, const saetta_topology_row *topology)
{
    uint32_t end = topology->first_exec + topology->n_execs, unplaced = 0, placed_now = 0;
    for (uint32_t e = topology->first_exec; e < end; e++) {
        if (plan->slot_of_exec[e] == SAETTA_NONE)
            unplaced++;
        else
            workers[plan->slot_of_exec[e]].n_execs++;
    }
    if (unplaced == 0)
        return;
    claim_workers(workers, n_slots, t, topology->workers_wanted, unplaced);
    for (uint32_t e = topology->first_exec; e < end; e++) {
        if (plan->slot_of_exec[e] != SAETTA_NONE)
            continue;
        uint32_t s = choose_worker(workers, n_slots, t);
        if (s == SAETTA_NONE)
            break;
        plan->slot_of_exec[e] = s;
        workers[s].n_execs++;
        placed_now++;
    }
    if (placed_now == unplaced)
        plan->outcome[t] = SAETTA_OUT_SCHEDULED;
    else
        plan->outcome[t] = unplaced - placed_now == topology->n_execs ? SAETTA_OUT_UNSCHEDULABLE : SAETTA_OUT_PARTIAL;
}

static int32_t schedule(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    (void)instance;
    int32_t code = saetta_check(round);
    if (code != SAETTA_OK)
        return saetta_fail(err, code, "the snapshot is none this plugin understands; build it against the host's header");
    const saetta_dir *slots = saetta_table(round, SAETTA_TABLE_SLOTS);
    const saetta_dir *topologies = saetta_table(round, SAETTA_TABLE_TOPOLOGIES);
    uint32_t n_slots = saetta_count(slots), n_topologies = saetta_count(topologies);

    worker *workers = calloc((size_t)n_slots + 1, sizeof *workers);
    if (!workers)
        return saetta_fail(err, SAETTA_E_NO_MEMORY, "out of memory");
    for (uint32_t s = 0; s < n_slots; s++) {
        saetta_slot_row slot;
        saetta_read(round, slots, s, &slot, sizeof slot);
        workers[s].topology = slot.topology;
        workers[s].assignable = slot.flags & SAETTA_SLOT_ASSIGNABLE;
    }
    for (uint32_t t = 0; t < n_topologies && !round->should_stop(round->ctx); t++) {
        saetta_topology_row topology;
        saetta_read(round, topologies, t, &topology, sizeof topology);
        if (topology.flags & SAETTA_TOPO_SCHEDULE)
            place_topology(plan, workers, n_slots, t, &topology);
    }
    free(workers);
    return SAETTA_OK;
}

/* An instance has nothing to remember between rounds. */
static char the_instance;

static int32_t create(const saetta_create *args, void **instance, saetta_err *err)
{
    (void)args;
    (void)err;
    *instance = &the_instance;
    return SAETTA_OK;
}

static void destroy(void *instance)
{
    (void)instance;
}

static const void *get_extension(const char *id, uint64_t id_len)
{
    (void)id;
    (void)id_len;
    return NULL;
}

int32_t saetta_scheduler_v1(const saetta_host *host, saetta_plugin *plugin)
{
    if (host->struct_size < sizeof *host)
        return SAETTA_E_UNSUPPORTED;
    saetta_plugin mine = {0};
    mine.struct_size = plugin->struct_size < sizeof mine ? plugin->struct_size : (uint32_t)sizeof mine;
    mine.abi_major = SAETTA_ABI_MAJOR;
    mine.abi_minor = SAETTA_ABI_MINOR;
    mine.create = create;
    mine.destroy = destroy;
    mine.schedule = schedule;
    mine.get_extension = get_extension;
    __builtin_memcpy(plugin, &mine, mine.struct_size);
    return SAETTA_OK;
}
