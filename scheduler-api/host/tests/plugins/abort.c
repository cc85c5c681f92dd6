/* An assertion fails. Caught by survives-a-round. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    schedule(instance, round, plan, err);
    abort();
}
