/* Gives its state back when a round fails, and again at the end. Caught by destroy-after-error. */
#define BROKEN_CREATE begin
#define BROKEN_DESTROY end
#include "broken.h"

static void *volatile state;

static int32_t begin(const saetta_create *args, void **instance, saetta_err *err)
{
    state = malloc(100);
    return create(args, instance, err);
}

static void end(void *instance)
{
    free(state);
    destroy(instance);
}

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    int32_t code = schedule(instance, round, plan, err);
    if (code != SAETTA_OK)
        free(state);
    return code;
}
