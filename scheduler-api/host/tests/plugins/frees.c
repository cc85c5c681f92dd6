/* Takes running executors off their slots to begin anew. Caught by frees-nobody. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    (void)instance, (void)err, (void)schedule;
    const saetta_dir *topologies = saetta_table(round, SAETTA_TABLE_TOPOLOGIES);
    for (uint32_t t = 0; t < saetta_count(topologies); t++) {
        const saetta_topology_row *topology = saetta_row(round, topologies, t);
        if (!(topology->flags & SAETTA_TOPO_SCHEDULE))
            continue;
        for (uint32_t e = 0; e < topology->n_execs; e++)
            plan->slot_of_exec[topology->first_exec + e] = SAETTA_NONE;
        plan->outcome[t] = SAETTA_OUT_UNSCHEDULABLE;
    }
    return SAETTA_OK;
}
