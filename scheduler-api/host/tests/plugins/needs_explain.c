/* Takes it for granted that the host has an extension. Caught by host-without-extensions. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    static volatile uint32_t size;
    const saetta_explain_v1 *explain = the_host->get_extension(the_host->ctx, "saetta.explain/1", 16);
    size = explain->struct_size;
    (void)size;
    return schedule(instance, round, plan, err);
}
