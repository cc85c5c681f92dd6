/* Refuses a configuration without a word. Caught by odd-config. */
#define BROKEN_CREATE mute
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    return schedule(instance, round, plan, err);
}

static int32_t mute(const saetta_create *args, void **instance, saetta_err *err)
{
    if (args->config_len != 2)
        return SAETTA_E_CONFIG;
    return create(args, instance, err);
}
