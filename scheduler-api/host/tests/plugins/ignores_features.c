/* Reads whatever comes, also a snapshot of features it cannot know. Caught by unknown-incompat-bit. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    (void)instance, (void)round, (void)plan, (void)err, (void)schedule;
    return SAETTA_OK_NO_CHANGE;
}
