/* Looks at the snapshot of the round before. Caught by no-snapshot-kept. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    static const uint8_t *last;
    static volatile uint8_t seen;
    if (last)
        seen = *last;
    (void)seen;
    last = round->snap;
    return schedule(instance, round, plan, err);
}
