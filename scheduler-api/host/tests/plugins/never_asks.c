/* Takes more than a second and never looks at should_stop. Caught by polls-should-stop. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    uint64_t until = the_host->now_ns(the_host->ctx) + 1100000000;
    while (the_host->now_ns(the_host->ctx) < until)
        ;
    return schedule(instance, round, plan, err);
}
