/* An exception leaves it: it calls no guard. Caught by survives-a-round. */
#define saetta_scheduler_v1 good_entry
#include "../../../templates/cpp/scheduler.cpp"
#undef saetta_scheduler_v1

static int32_t broken(void *, const saetta_round *, saetta_plan *, saetta_err *)
{
    throw std::runtime_error("nobody catches this");
}

extern "C" __attribute__((visibility("default"))) int32_t saetta_scheduler_v1(const saetta_host *host, saetta_plugin *plugin)
{
    uint32_t room = plugin->struct_size;
    int32_t code = good_entry(host, plugin);
    if (code == SAETTA_OK && room >= sizeof *plugin)
        plugin->schedule = broken;
    return code;
}
