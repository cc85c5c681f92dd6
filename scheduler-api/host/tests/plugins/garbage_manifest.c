/* Its manifest is no JSON. Caught by manifest. */
#include "saetta_sched.h"

SAETTA_MANIFEST("garbage_manifest 1.0");

int32_t saetta_scheduler_v1(const saetta_host *host, saetta_plugin *plugin)
{
    (void)host, (void)plugin;
    return SAETTA_E_INTERNAL;
}
