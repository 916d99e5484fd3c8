/* What the tests of arenas share: a runtime on the device that WEIR_TEST_DEVICE names, and copies that work on all. */
#ifndef TESTS_ARENA_FIXTURE_H
#define TESTS_ARENA_FIXTURE_H

#include "planner/planning.h"
#include <weir/plan.h>
#include <weir/arena.h>
#include "sim/device/device.h"

typedef struct fixture {
    weir_runtime *runtime, *host;
    weir_client *client;
    weir_stream a, b;
} fixture;

static inline const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

static inline bool on_sim(void)
{
    return strncmp(device(), "sim", 3) == 0;
}

static inline int open_fixture(void **state, uint64_t budget, const char *resource)
{
    fixture *f = calloc(1, sizeof *f);
    bool own = strcmp(device(), "host") == 0;
    if (on_sim())
        wi_sim_configure(&(wi_sim_options){.seed = 1});
    f->host = own ? NULL : make_runtime(budget);
    weir_runtime_options options = {
        .struct_size = sizeof options, .budget = budget, .resource = resource, .host = f->host};
    ok(weir_runtime_create(device(), &options, &f->runtime));
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    if (f->host)
        ok(weir_runtime_destroy(f->host));
    free(f);
    return 0;
}

/* What a copy behind a gate reads or writes: out of other memory of the host's the driver copies only when the gate is
 * open, and keeps the thread until then. */
static inline unsigned char *pinned(fixture *f, size_t bytes, int value)
{
    weir_request request = {.struct_size = sizeof request, .bytes = bytes, .kind = WEIR_KIND_PINNED};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    return memset(block.pointer, value, bytes);
}

static inline void free_pinned(fixture *f, void *pointer)
{
    ok(weir_free(f->client, pointer, WEIR_STREAM_HOST));
}

static inline uint64_t live_of(fixture *f)
{
    return take_snapshot(f->runtime).device.live;
}

/* Bytes on the device that follow a seed, and a look whether they still do. */
static inline void pattern(unsigned char *bytes, uint64_t count, uint64_t seed)
{
    uint64_t r = seed * 2654435761u + 1;
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i % 8 ? r >> i % 8 * 8 : next_random(&r));
}

/* The simulated device has no bytes: there, addresses and books alone are looked at. */
static inline bool holds(fixture *f, const void *pointer, const void *wanted, uint64_t bytes)
{
    if (on_sim())
        return true;
    unsigned char *there = malloc(bytes + 1);
    ok(weir_copy(f->runtime, there, pointer, bytes, WEIR_STREAM_HOST));
    bool same = memcmp(there, wanted, bytes) == 0;
    free(there);
    return same;
}

static inline bool holds_pattern(fixture *f, const void *pointer, uint64_t bytes, uint64_t seed)
{
    unsigned char *wanted = malloc(bytes + 1);
    pattern(wanted, bytes, seed);
    bool same = holds(f, pointer, wanted, bytes);
    free(wanted);
    return same;
}

/* A list with one buffer, named, and its plan. */
static inline uint32_t add_named(weir_buffers *list, const char *name, uint64_t begin, uint64_t end, uint64_t bytes,
                                 bool persistent)
{
    weir_buffer b = {.struct_size = sizeof b, .name = name, .begin = begin, .end = end, .bytes = bytes};
    uint32_t index;
    b.persistent = persistent;
    ok(weir_buffers_add(list, &b, &index));
    return index;
}

static inline weir_plan *planned(weir_buffers *list, uint64_t alignment)
{
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, alignment);
    weir_buffers_destroy(list);
    return plan;
}

static inline weir_plan *plan_of_one(uint64_t bytes)
{
    weir_buffers *list = empty_list();
    add(list, 0, 1, bytes);
    return planned(list, 64);
}

static inline weir_arena_tensor look(const weir_arena *arena, uint32_t bucket, uint32_t tensor)
{
    weir_arena_tensor t = {.struct_size = sizeof t};
    ok(weir_arena_tensor_info(arena, bucket, tensor, &t));
    return t;
}

static inline weir_arena_details arena_details(const weir_arena *arena)
{
    weir_arena_details d = {.struct_size = sizeof d};
    ok(weir_arena_info(arena, &d));
    return d;
}

static inline weir_parameters_details store_details(weir_parameters *store)
{
    weir_parameters_details d = {.struct_size = sizeof d};
    ok(weir_parameters_info(store, &d));
    return d;
}

static inline weir_parameter parameter(weir_parameters *store, const char *name)
{
    weir_parameter p = {.struct_size = sizeof p};
    ok(weir_parameter_info(store, name, 0, &p));
    return p;
}

static inline weir_arena *open_arena(fixture *f, weir_arena_options o)
{
    weir_arena *arena;
    o.struct_size = sizeof o;
    ok(weir_arena_create(f->client, &o, &arena));
    return arena;
}

#endif
