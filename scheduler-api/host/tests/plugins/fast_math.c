/* Built with -ffast-math: its start code changes how the process rounds. Caught by fpu-mode-unchanged. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    return schedule(instance, round, plan, err);
}
