/* Ignores a signal in the whole process. Caught by signal-dispositions-unchanged. */
#include "broken.h"

#include <signal.h>

__attribute__((constructor)) static void begin(void)
{
    signal(SIGUSR1, SIG_IGN);
}

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    return schedule(instance, round, plan, err);
}
