/* Exchanges two executors where a node's name says so. Caught by permuted-names. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    int32_t code = schedule(instance, round, plan, err);
    const saetta_dir *nodes = saetta_table(round, SAETTA_TABLE_NODES);
    if (code != SAETTA_OK || saetta_count(nodes) == 0)
        return code;
    const saetta_node_row *node = saetta_row(round, nodes, 0);
    const saetta_dir *strings = saetta_table(round, SAETTA_TABLE_STRINGS);
    const char *name = (const char *)round->snap + strings->off + node->id.off;
    if (node->id.len > 0 && name[0] % 2 == 0)
        for (uint32_t e = 0; e < plan->n_execs; e++)
            plan->core_of_exec[e] = SAETTA_NONE - 1;
    return code;
}
