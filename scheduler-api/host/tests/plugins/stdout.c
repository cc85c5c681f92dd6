/* Prints what it does. Caught by no-output. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    printf("round %d\n", (int)round->round_id);
    return schedule(instance, round, plan, err);
}
