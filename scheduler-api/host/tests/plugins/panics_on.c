/* Says that it panicked, and goes on in the next round. Caught by poison-after-panic. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    static int rounds;
    if (rounds++ == 0)
        return saetta_fail(err, SAETTA_E_PANIC, "panicked");
    return schedule(instance, round, plan, err);
}
