/* replay_loop.c: the loop: an allocator does the operations of a plan. Only it is timed, and all that can be is prepared. */
#include "replay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Nobody: what the loop takes by itself ------------------------------------------------------------------------------ */

static weir_status take_nothing(void *user, const wi_replay_op *op, void **out)
{
    (void)user;
    *out = (void *)op;
    return WEIR_OK;
}

static weir_status give_nothing(void *user, const wi_replay_op *op, void *pointer)
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

const wi_replay_target wi_replay_nobody = {.take = take_nothing,
                                           .take_now = take_nothing,
                                           .give = give_nothing,
                                           .drain = drain_nothing,
                                           .counts = count_nothing,
                                           .detail = weir_detail};

/* The loop ----------------------------------------------------------------------------------------------------------- */

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* A request was not met: a failure, or the end. */
static bool goes_on(weir_status status, bool stop, wi_replay_pass *pass)
{
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return false;
    pass->failures++;
    return !stop;
}

static weir_status run_plain(const wi_replay_plan *plan, const wi_replay_target *target, void **pointers, bool stop,
                             wi_replay_pass *pass)
{
    const wi_replay_op *end = plan->ops + plan->count;
    weir_status status = WEIR_OK;
    uint64_t start = now();
    for (const wi_replay_op *op = plan->ops; op < end; op++) {
        void **pointer = &pointers[op->slot];
        if (!op->frees) {
            status = target->take(target->user, op, pointer);
        } else if (*pointer) {
            status = target->give(target->user, op, *pointer);
            *pointer = NULL;
        }
        if (__builtin_expect(status != WEIR_OK, 0)) {
            *pointer = NULL;
            if (op->frees || !goes_on(status, stop, pass))
                break;
            status = WEIR_OK;
        }
    }
    pass->nanoseconds = now() - start;
    return status;
}

/* Refused at once, it is asked for again with all gates open: nothing waits for work that waits for the host. */
static weir_status take_gated(const wi_replay_target *target, const wi_replay_op *op, void **pointer,
                              wi_replay_pass *pass)
{
    weir_status status = target->take_now(target->user, op, pointer);
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return status;
    target->gates->open(target->gates->user);
    pass->waits++;
    return target->take(target->user, op, pointer);
}

/* With gates, whose time is taken apart. */
static weir_status run_gated(const wi_replay_plan *plan, const wi_replay_target *target, void **pointers, bool stop,
                             wi_replay_pass *pass)
{
    const wi_replay_gates *gates = target->gates;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < plan->count && status == WEIR_OK; i++) {
        const wi_replay_op *op = &plan->ops[i];
        void **pointer = &pointers[op->slot];
        gates->reach(gates->user, i);
        uint64_t start = now();
        if (!op->frees) {
            status = take_gated(target, op, pointer, pass);
        } else if (*pointer) {
            status = target->give(target->user, op, *pointer);
            *pointer = NULL;
        }
        pass->nanoseconds += now() - start;
        if (status != WEIR_OK)
            *pointer = NULL;
        if (status != WEIR_OK && !op->frees && goes_on(status, stop, pass))
            status = WEIR_OK;
        if (status == WEIR_OK)
            status = gates->put(gates->user, op->stream, i);
    }
    gates->rest(gates->user);
    return status;
}

/* What two readings of the clock take of a time between them. */
static uint64_t clock_cost(void)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t start = now(), took = now() - start;
        best = took < best ? took : best;
    }
    return best;
}

/* Passes ----------------------------------------------------------------------------------------------------------- */

/* `all`: after a pass that did not come to its end. */
static weir_status free_left(const wi_replay_plan *plan, const wi_replay_target *target, void **pointers, bool all)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < (all ? plan->count : plan->left_count) && status == WEIR_OK; i++) {
        const wi_replay_op *op = &plan->ops[all ? i : plan->left[i]];
        if (pointers[op->slot])
            status = target->give(target->user, op, pointers[op->slot]);
        pointers[op->slot] = NULL;
    }
    weir_status drained = target->drain(target->user);
    return status == WEIR_OK ? drained : status;
}

static weir_status run_pass(const wi_replay_plan *plan, const wi_replay_target *target, void **pointers, bool stop,
                            wi_replay_pass *pass)
{
    wi_replay_counts before, after;
    const wi_replay_gates *gates = target->gates;
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
        status = target->at_end(target->at_end_user, target);
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
    memset(pointers, 0, (plan->slots + 1) * sizeof *pointers); /* written, so that the loop meets no fresh pages */
    weir_status status = run_pass(plan, target, pointers, stop, out);
    if (status != WEIR_OK && target->detail != weir_detail) /* a core of its own has a detail of its own */
        status = weir_fail(status, "%s", target->detail());
    free(pointers);
    return status;
}
