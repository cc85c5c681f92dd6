/* Told to stop, it leaves what it had begun. Caught by partial-result-on-cancel. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    if (round->should_stop(round->ctx) && plan->n_execs > 0) {
        plan->slot_of_exec[0] = SAETTA_NONE - 1;
        return SAETTA_OK;
    }
    return schedule(instance, round, plan, err);
}
