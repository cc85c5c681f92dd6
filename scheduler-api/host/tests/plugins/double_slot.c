/* Puts all executors that have no slot into the first slot that somebody has, else into the first one. Caught by no-double-slot. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    (void)instance, (void)err, (void)schedule;
    const saetta_dir *slots = saetta_table(round, SAETTA_TABLE_SLOTS);
    const saetta_dir *topologies = saetta_table(round, SAETTA_TABLE_TOPOLOGIES);
    uint32_t slot = 0;
    for (uint32_t s = saetta_count(slots); s-- > 0;)
        if (((const saetta_slot_row *)saetta_row(round, slots, s))->topology != SAETTA_NONE)
            slot = s;
    for (uint32_t t = 0; t < saetta_count(topologies) && saetta_count(slots) > 0; t++) {
        const saetta_topology_row *topology = saetta_row(round, topologies, t);
        for (uint32_t e = topology->first_exec; e < topology->first_exec + topology->n_execs; e++) {
            if ((topology->flags & SAETTA_TOPO_SCHEDULE) && plan->slot_of_exec[e] == SAETTA_NONE) {
                plan->slot_of_exec[e] = slot;
                plan->outcome[t] = SAETTA_OUT_SCHEDULED;
            }
        }
    }
    return SAETTA_OK;
}
