/* A table with one place for each grouping of today. Caught by unknown-enum-values. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    static volatile uint32_t seen[16];
    const saetta_dir *edges = saetta_table(round, SAETTA_TABLE_EDGES);
    for (uint32_t i = 0; i < saetta_count(edges); i++) {
        const saetta_edge_row *edge = saetta_row(round, edges, i);
        seen[edge->grouping]++;
    }
    return schedule(instance, round, plan, err);
}
