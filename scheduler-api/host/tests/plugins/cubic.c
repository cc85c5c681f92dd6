/* Looks at each three of its executors. Caught by monotone-cpu. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    static volatile uint32_t looks;
    uint64_t n = plan->n_execs / 4;
    for (uint64_t i = 0; i < n * n * n; i++)
        looks++;
    return schedule(instance, round, plan, err);
}
