/* Moves an executor in each round. Caught by idempotent. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    int32_t code = schedule(instance, round, plan, err);
    const saetta_dir *topologies = saetta_table(round, SAETTA_TABLE_TOPOLOGIES);
    for (uint32_t t = 0; t < saetta_count(topologies); t++) {
        const saetta_topology_row *topology = saetta_row(round, topologies, t);
        uint32_t *slots = plan->slot_of_exec + topology->first_exec;
        if (topology->n_execs < 2 || !(topology->flags & SAETTA_TOPO_SCHEDULE) || slots[0] == slots[1])
            continue;
        uint32_t first = slots[0];
        slots[0] = slots[1];
        slots[1] = first;
        if (plan->outcome[t] == SAETTA_OUT_KEEP)
            plan->outcome[t] = SAETTA_OUT_SCHEDULED;
    }
    return code;
}
