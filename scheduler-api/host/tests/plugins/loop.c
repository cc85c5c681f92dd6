/* Never returns. Caught by ends-before-deadline. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    static volatile int go_on = 1;
    int32_t code = schedule(instance, round, plan, err);
    while (go_on) {
    }
    return code;
}
