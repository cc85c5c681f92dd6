/* Crashes for a negative number in its configuration. Caught by config-fuzz. */
#define BROKEN_CREATE begin
#include "broken.h"

static int32_t begin(const saetta_create *args, void **instance, saetta_err *err)
{
    if (memmem(args->config, args->config_len, ":-1", 3))
        *(volatile int *)8 = 1;
    return create(args, instance, err);
}

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    return schedule(instance, round, plan, err);
}
