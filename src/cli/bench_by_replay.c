/* bench_by_replay.c: an allocator of the bench as that of a replay. Its streams are made known to a runtime that serves for
 * that alone, so that gates can be put on them. */
#include "bench_by.h"

#include <weir/weir.h>

#include <stdio.h>
#include <string.h>

enum { STREAMS = 64 };

static struct {
    const bench_peer *by;
    weir_runtime *helper; /* NULL without gates */
    wi_replay_gates *gates;
    weir_stream known[STREAMS];
    uint64_t streams[STREAMS];
    uint16_t count;
    char detail[256];
} world;

static const char *detail(void)
{
    return world.detail;
}

static weir_status fail(weir_status status, const char *what)
{
    snprintf(world.detail, sizeof world.detail, "%s: %s", world.by->name, what);
    return status;
}

/* What the loop calls ------------------------------------------------------------------------------------------------ */

static weir_status take_now(void *user, const wi_replay_op *op, void **out)
{
    const bench_peer *by = user;
    *out = by->allocate(by->self, op->bytes, world.streams[op->stream]);
    return __builtin_expect(*out != NULL, 1) ? WEIR_OK : fail(WEIR_ERR_OUT_OF_MEMORY, "it refused a block");
}

static weir_status take(void *user, const wi_replay_op *op, void **out)
{
    const bench_peer *by = user;
    weir_status status = take_now(user, op, out);
    if (__builtin_expect(status != WEIR_OK, 0) && by->retry && by->retry(by->self))
        status = take_now(user, op, out);
    return status;
}

static weir_status give(void *user, const wi_replay_op *op, void *pointer)
{
    const bench_peer *by = user;
    return by->release(by->self, pointer, op->bytes, world.streams[op->stream])
               ? WEIR_OK
               : fail(WEIR_ERR_DRIVER, "it did not take a block back");
}

static weir_status drain(void *user)
{
    const bench_peer *by = user;
    if (by->synchronize)
        by->synchronize(by->self);
    return WEIR_OK;
}

static weir_status counts(void *user, wi_replay_counts *out)
{
    const bench_peer *by = user;
    *out = (wi_replay_counts){.peak_held = by->peak_held(by->self)};
    return WEIR_OK;
}

/* Begun and ended ---------------------------------------------------------------------------------------------------- */

static weir_status end(void)
{
    const bench_peer *by = world.by;
    if (world.gates)
        wi_replay_gates_end(world.gates);
    world.gates = NULL;
    for (uint16_t i = 0; i < world.count; i++)
        if (world.known[i].id)
            (void)!weir_stream_unregister(world.known[i]);
    if (world.helper)
        (void)!weir_runtime_destroy(world.helper);
    world.helper = NULL;
    bench_leave_thread(by);
    by->end(by->self);
    return WEIR_OK;
}

/* The streams as the gates want them. */
static weir_status gate(const wi_replay_world *how)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = UINT64_C(64) << 20, .resource = "direct"};
    weir_status status = weir_runtime_create(how->device, &options, &world.helper);
    for (uint16_t i = 0; i < how->streams && status == WEIR_OK; i++) {
        const bench_peer *by = world.by;
        void *native = by->native ? by->native(by->self, world.streams[i]) : (void *)(uintptr_t)world.streams[i];
        status = weir_stream_register(world.helper, native, &world.known[i]);
    }
    if (status == WEIR_OK)
        status = wi_replay_gates_make(how, world.helper, world.known, &world.gates);
    return status == WEIR_OK ? status : fail(status, weir_detail());
}

static weir_status open_world(const wi_replay_world *how, wi_replay_target *out)
{
    const bench_peer *by = world.by;
    world.count = 0;
    memset(world.known, 0, sizeof world.known);
    if (how->streams > STREAMS)
        return fail(WEIR_ERR_UNSUPPORTED, "there are not so many streams here");
    const char *failure = by->begin(by->self, how->budget);
    if (failure)
        return fail(WEIR_ERR_DRIVER, failure);
    bench_enter_thread(by);
    for (; world.count < how->streams && !failure; world.count++)
        failure = by->stream(by->self, world.count, &world.streams[world.count]);
    weir_status status = failure ? fail(WEIR_ERR_DRIVER, failure) : how->lag ? gate(how) : WEIR_OK;
    if (status != WEIR_OK) {
        (void)end();
        return status;
    }
    *out = (wi_replay_target){.user = (void *)by,
                              .take = take,
                              .take_now = take_now,
                              .give = give,
                              .drain = drain,
                              .counts = counts,
                              .detail = detail,
                              .gates = world.gates};
    return WEIR_OK;
}

static weir_status close_world(wi_replay_target *target)
{
    *target = (wi_replay_target){0};
    return end();
}

const wi_replay_maker *bench_by_replay(const bench_peer *by)
{
    static const wi_replay_maker maker = {open_world, close_world, detail};
    world.by = by;
    return &maker;
}
