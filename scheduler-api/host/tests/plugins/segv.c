/* Reads memory that is not its own. Caught by survives-a-round. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    *(volatile int *)8 = 1;
    return schedule(instance, round, plan, err);
}
