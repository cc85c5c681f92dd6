/* 64 KiB a round are never freed. Caught by no-leak. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    char *volatile kept = malloc(64 << 10);
    if (kept)
        memset(kept, 1, 64 << 10);
    return schedule(instance, round, plan, err);
}
