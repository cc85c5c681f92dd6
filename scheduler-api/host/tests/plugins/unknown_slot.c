/* Names a slot that does not exist. Caught by no-unknown-slot. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    int32_t code = schedule(instance, round, plan, err);
    if (plan->n_execs > 0)
        plan->slot_of_exec[plan->n_execs - 1] = saetta_count(saetta_table(round, SAETTA_TABLE_SLOTS)) + 70;
    return code;
}
