/* Calls the host from a thread of its own, and ends it in destroy. Caught by same-thread. */
#define BROKEN_CREATE begin
#define BROKEN_DESTROY end
#include "broken.h"

#include <pthread.h>

static pthread_t thread;

static void *talker(void *arg)
{
    the_host->log(the_host->ctx, SAETTA_LOG_INFO, "x", 1, "hello", 5);
    return arg;
}

static int32_t begin(const saetta_create *args, void **instance, saetta_err *err)
{
    pthread_create(&thread, NULL, talker, NULL);
    return create(args, instance, err);
}

static void end(void *instance)
{
    pthread_join(thread, NULL);
    destroy(instance);
}

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    return schedule(instance, round, plan, err);
}
