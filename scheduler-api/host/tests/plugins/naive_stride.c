/* Takes the executor table for an array of its own struct. Caught by stride. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    int32_t code = schedule(instance, round, plan, err);
    const saetta_dir *dir = saetta_table(round, SAETTA_TABLE_EXECUTORS);
    const saetta_executor_row *execs = (const saetta_executor_row *)(const void *)(round->snap + (dir ? dir->off : 0));
    for (uint32_t e = 0; e < plan->n_execs; e++) {
        if (execs[e].slot != SAETTA_NONE)
            plan->slot_of_exec[e] = execs[e].slot;
    }
    return code;
}
