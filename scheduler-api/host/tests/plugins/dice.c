/* Puts the first executor elsewhere in every other instance. Caught by deterministic. */
#define BROKEN_CREATE begin
#include "broken.h"

static int32_t begin(const saetta_create *args, void **instance, saetta_err *err)
{
    static char instances[2];
    static int n;
    int32_t code = create(args, instance, err);
    *instance = &instances[n++ % 2];
    return code;
}

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    static void *first;
    int32_t code = schedule(instance, round, plan, err);
    if (!first)
        first = instance;
    if (code == SAETTA_OK && instance != first && plan->n_execs > 0)
        plan->slot_of_exec[0] = plan->slot_of_exec[plan->n_execs - 1];
    return code;
}
