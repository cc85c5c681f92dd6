/* Keeps its notes in the snapshot. Caught by snapshot-not-written. */
#include "broken.h"

static int32_t broken(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)
{
    const saetta_dir *dir = saetta_table(round, SAETTA_TABLE_SLOTS);
    if (saetta_count(dir) > 0)
        ((saetta_slot_row *)(uintptr_t)saetta_row(round, dir, 0))->flags |= 1u << 30;
    return schedule(instance, round, plan, err);
}
