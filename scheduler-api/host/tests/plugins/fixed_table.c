/* Has room for 65,536 executors. Caught by max-size. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    if (plan->n_execs > 65536)
        return saetta_fail(err, SAETTA_E_INTERNAL, "too many executors");
    return schedule(instance, round, plan, err);
}
