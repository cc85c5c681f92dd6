/* Starts a thread when an instance is made and never ends it. Caught by no-threads. */
#include "broken.h"

#include <pthread.h>
#include <unistd.h>

static void *sleeper(void *arg)
{
    for (;;)
        pause();
    return arg;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, sleeper, NULL);
}

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    return schedule(instance, round, plan, err);
}
