/* loop.c: the loop in which an allocator does the operations of a plan. Only the loop is timed; everything else is
 * prepared before it. */
#include "replay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The null target: the cost of the loop itself --------------------------------------------------------------------- */

static weir_status allocate_nothing(void *user, const wi_replay_op *op, void **out)
{
    (void)user;
    *out = (void *)op;
    return WEIR_OK;
}

static weir_status release_nothing(void *user, const wi_replay_op *op, void *pointer)
{
    (void)user, (void)op, (void)pointer;
    return WEIR_OK;
}

static weir_status drain_nothing(void *user)
{
    (void)user;
    return WEIR_OK;
}

static weir_status count_nothing(void *user, wi_replay_counts *out)
{
    (void)user;
    *out = (wi_replay_counts){0};
    return WEIR_OK;
}

const wi_replay_target wi_replay_null_target = {.allocate = allocate_nothing,
                                                .allocate_now = allocate_nothing,
                                                .release = release_nothing,
                                                .drain = drain_nothing,
                                                .counts = count_nothing,
                                                .detail = weir_detail};

/* The loop --------------------------------------------------------------------------------------------------------- */

static uint64_t replay_loop_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* A request failed: answers whether the pass goes on. */
static bool replay_loop_goes_on(weir_status status, bool stop, size_t at, wi_replay_pass *pass)
{
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return false;
    if (pass->failures++ == 0)
        pass->first = at;
    return !stop;
}

static weir_status run_plain(const wi_replay_plan *plan, const wi_replay_target *target, void **pointers, bool stop,
                             wi_replay_pass *pass)
{
    const wi_replay_op *end = plan->ops + plan->count;
    weir_status status = WEIR_OK;
    uint64_t start = replay_loop_now();
    for (const wi_replay_op *op = plan->ops; op < end; op++) {
        void **pointer = &pointers[op->slot];
        if (!op->frees) {
            status = target->allocate(target->user, op, pointer);
        } else if (*pointer) {
            status = target->release(target->user, op, *pointer);
            *pointer = NULL;
        }
        if (__builtin_expect(status != WEIR_OK, 0)) {
            *pointer = NULL;
            if (op->frees || !replay_loop_goes_on(status, stop, (size_t)(op - plan->ops), pass))
                break;
            status = WEIR_OK;
        }
    }
    pass->nanoseconds = replay_loop_now() - start;
    return status;
}

/* A request that is refused at once is made again with all gates open, so that it does not wait for work that waits for
 * the host. */
static weir_status allocate_gated(const wi_replay_target *target, const wi_replay_op *op, void **pointer,
                                  wi_replay_pass *pass)
{
    weir_status status = target->allocate_now(target->user, op, pointer);
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return status;
    target->gates->open(target->gates->user);
    pass->waits++;
    return target->allocate(target->user, op, pointer);
}

/* With lag gates, whose time is not counted. */
static weir_status run_gated(const wi_replay_plan *plan, const wi_replay_target *target, void **pointers, bool stop,
                             wi_replay_pass *pass)
{
    const wi_replay_lag_gates *gates = target->gates;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < plan->count && status == WEIR_OK; i++) {
        const wi_replay_op *op = &plan->ops[i];
        void **pointer = &pointers[op->slot];
        gates->reach(gates->user, i);
        uint64_t start = replay_loop_now();
        if (!op->frees) {
            status = allocate_gated(target, op, pointer, pass);
        } else if (*pointer) {
            status = target->release(target->user, op, *pointer);
            *pointer = NULL;
        }
        pass->nanoseconds += replay_loop_now() - start;
        if (status != WEIR_OK)
            *pointer = NULL;
        if (status != WEIR_OK && !op->frees && replay_loop_goes_on(status, stop, i, pass))
            status = WEIR_OK;
        if (status == WEIR_OK)
            status = gates->put(gates->user, op->stream, i);
    }
    gates->rest(gates->user);
    return status;
}

/* What two readings of the clock add to the time between them. */
static uint64_t clock_cost(void)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t start = replay_loop_now(), took = replay_loop_now() - start;
        best = took < best ? took : best;
    }
    return best;
}

/* Passes ----------------------------------------------------------------------------------------------------------- */

/* Frees what the trace leaves live. `all`: the pass did not complete, so any block may be live. */
static weir_status free_left(const wi_replay_plan *plan, const wi_replay_target *target, void **pointers, bool all)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < (all ? plan->count : plan->left_count) && status == WEIR_OK; i++) {
        const wi_replay_op *op = &plan->ops[all ? i : plan->left[i]];
        if (pointers[op->slot])
            status = target->release(target->user, op, pointers[op->slot]);
        pointers[op->slot] = NULL;
    }
    weir_status drained = target->drain(target->user);
    return status == WEIR_OK ? drained : status;
}

static weir_status run_pass(const wi_replay_plan *plan, const wi_replay_target *target, void **pointers, bool stop,
                            wi_replay_pass *pass)
{
    wi_replay_counts before, after;
    const wi_replay_lag_gates *gates = target->gates;
    uint64_t forced = gates ? gates->forced(gates->user) : 0;
    weir_status status = target->counts(target->user, &before);
    if (status != WEIR_OK)
        return status;
    status = (gates ? run_gated : run_plain)(plan, target, pointers, stop, pass);
    bool ended = status == WEIR_OK;
    if (stop && status == WEIR_ERR_OUT_OF_MEMORY)
        status = WEIR_OK;
    if (status == WEIR_OK)
        status = target->drain(target->user);
    if (status == WEIR_OK)
        status = target->counts(target->user, &after);
    if (status == WEIR_OK && target->at_end)
        status = target->at_end(target->at_end_user, target, pointers);
    if (status != WEIR_OK)
        return status;
    pass->driver_calls = after.driver_calls - before.driver_calls;
    pass->moves = after.moves - before.moves;
    for (int i = 0; i < WEIR_RUNG_COUNT; i++)
        pass->ladder[i] = after.ladder[i] - before.ladder[i];
    if (gates) {
        uint64_t clock = clock_cost() * plan->count;
        pass->nanoseconds -= clock < pass->nanoseconds ? clock : pass->nanoseconds;
        pass->waits += gates->forced(gates->user) - forced;
    }
    return free_left(plan, target, pointers, !ended);
}

weir_status wi_replay_loop(const wi_replay_plan *plan, const wi_replay_target *target, bool stop, wi_replay_pass *out)
{
    *out = (wi_replay_pass){0};
    void **pointers = malloc((plan->slots + 1) * sizeof *pointers);
    if (!pointers)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %u blocks of a replay", plan->slots);
    memset(pointers, 0, (plan->slots + 1) * sizeof *pointers); /* touches the pages before the loop does */
    weir_status status = run_pass(plan, target, pointers, stop, out);
    if (status != WEIR_OK && target->detail != weir_detail) /* a detail of another core */
        status = weir_fail(status, "%s", target->detail());
    free(pointers);
    return status;
}
