/* Frees that are made final: whatever keeps what has passed from being anyone's is gone through once. */
#include "runtime/runtime.h"

/* This thread's, then all others', then what those have in hand. They may park anew for ever, which is not waited for. */
static void hand_in_parked(weir_runtime *runtime)
{
    enum { MOST = 8 };
    const wi_tcache_hooks *parking = &runtime->ledger.parking;
    for (int i = 0; i < MOST && parking->empty && parking->empty(parking->user) > 0; i++)
        ;
}

weir_status weir_runtime_drain(weir_runtime *runtime, uint64_t *left)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_drain: NULL");
    wi_ledger *ledger = &runtime->ledger;
    uint64_t ordered;
    hand_in_parked(runtime);
    (void)wi_members_pass(ledger, &ordered); /* records what the second one looks at */
    (void)wi_runtime_reap(runtime);
    wi_pending_finish(&runtime->pending);
    wi_members_finish(ledger, &runtime->pending);
    (void)wi_release_kept(runtime->resource);
    (void)wi_members_pass(ledger, &ordered);
    wi_standing now = wi_ledger_look(ledger);
    if (left)
        *left = now.pending - now.kept + ordered;
    return WEIR_OK;
}
