/* Sets a variable in the whole process. Caught by locale-cwd-umask-env-unchanged. */
#define BROKEN_CREATE begin
#include "broken.h"

#include <stdlib.h>

static int32_t begin(const saetta_create *args, void **instance, saetta_err *err)
{
    setenv("TZ", "UTC", 1);
    return create(args, instance, err);
}

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    return schedule(instance, round, plan, err);
}
