/* The plugin of the C template with one fault: a file defines `broken`, which takes the place of its schedule. */
#define saetta_scheduler_v1 good_entry
#define _GNU_SOURCE
#include "../../../templates/c/scheduler.c"
#undef saetta_scheduler_v1

#include <stdio.h>
#include <string.h>

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err);
#ifdef BROKEN_CREATE
static int32_t BROKEN_CREATE(const saetta_create *args, void **instance, saetta_err *err);
#endif

#ifdef BROKEN_DESTROY
static void BROKEN_DESTROY(void *instance);
#endif

/* Of the last entry; not every file looks at it. */
__attribute__((unused)) static const saetta_host *the_host;

__attribute__((visibility("default"))) int32_t saetta_scheduler_v1(const saetta_host *host, saetta_plugin *plugin)
{
    uint32_t room = plugin->struct_size;
    the_host = host;
    int32_t code = good_entry(host, plugin);
    if (code == SAETTA_OK && room >= sizeof *plugin)
        plugin->schedule = broken;
#ifdef BROKEN_CREATE
    if (code == SAETTA_OK && room >= sizeof *plugin)
        plugin->create = BROKEN_CREATE;
#endif
#ifdef BROKEN_DESTROY
    if (code == SAETTA_OK && room >= sizeof *plugin)
        plugin->destroy = BROKEN_DESTROY;
#endif
    return code;
}
