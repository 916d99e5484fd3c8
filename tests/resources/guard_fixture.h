/* A runtime under a guard, and what it reports. */
#ifndef GUARD_FIXTURE_H
#define GUARD_FIXTURE_H

#include "resources/guard.h"
#include <weir/guard.h>

#include <stdatomic.h>

enum { BUDGET = 8 << 20, MOST = 300 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream a, b;
} fixture;

static char logged[8][600];
static atomic_int logged_count;

static inline void listen(weir_log_level level, const char *text, void *user)
{
    (void)level, (void)user;
    int at = atomic_fetch_add(&logged_count, 1);
    if (at < 8)
        snprintf(logged[at], sizeof logged[at], "%s", text);
}

static inline void set_up_with(void **state, const char *resource)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_with(resource, BUDGET);
    f->client = open_client(f->runtime, "bert", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    atomic_store(&logged_count, 0);
    ok(weir_log_set(listen, NULL, WEIR_LOG_WARNING));
    *state = f;
}

static inline int set_up(void **state)
{
    set_up_with(state, "guard(mapped)");
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    ok(weir_client_destroy(f->client));
    check_empty(f->runtime);
    ok(weir_runtime_destroy(f->runtime));
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    free(f);
    return 0;
}

static inline weir_block make(fixture *f, size_t bytes, weir_stream stream, const char *tag)
{
    weir_request request = {
        .struct_size = sizeof request, .bytes = bytes, .stream = stream, .memory_class = WEIR_CLASS_KV, .tag = tag};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    return block;
}

/* Writes `count` bytes, at once. */
static inline void write_at(fixture *f, weir_block block, int64_t offset, uint8_t value, size_t count)
{
    ok(weir_fill(f->runtime, (char *)block.pointer + offset, value, count, WEIR_STREAM_HOST));
}

static inline void check_bytes(fixture *f, const void *from, uint8_t value, size_t count)
{
    uint8_t *copy = malloc(count);
    ok(weir_copy(f->runtime, copy, from, count, WEIR_STREAM_HOST));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(copy[i], value);
    free(copy);
}

static inline size_t count_reports(fixture *f)
{
    size_t count;
    ok(weir_guard_reports(f->runtime, NULL, 0, &count));
    return count;
}

/* The reports are exactly so many; the last of them. */
static inline weir_guard_report last_report(fixture *f, size_t wanted)
{
    static weir_guard_report reports[MOST];
    size_t count;
    reports[0].struct_size = sizeof reports[0];
    ok(weir_guard_reports(f->runtime, reports, MOST, &count));
    assert_int_equal(count, wanted);
    return reports[wanted - 1];
}

static inline void check_report(const weir_guard_report *r, weir_guard_kind kind, weir_block block, size_t bytes,
                                int64_t offset, uint64_t damaged)
{
    assert_int_equal(r->kind, kind);
    assert_ptr_equal(r->block.pointer, block.pointer);
    assert_int_equal(r->block.generation, block.generation);
    assert_int_equal(r->bytes, bytes);
    assert_int_equal(r->offset, offset);
    assert_int_equal(r->damaged, damaged);
    assert_int_equal(r->memory_class, WEIR_CLASS_KV);
    assert_string_equal(r->client, "bert");
}

static inline uint64_t pending(fixture *f)
{
    return take_snapshot(f->runtime).device.pending;
}

static inline void trim(fixture *f)
{
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
}

static inline int set_up_small(void **state)
{
    set_up_with(state, "guard(quarantine=64KiB, mapped)");
    return 0;
}
static inline int set_up_without(void **state)
{
    set_up_with(state, "guard(quarantine=0, mapped)");
    return 0;
}
static inline int set_up_around(void **state)
{
    set_up_with(state, "guard(budget(mapped))");
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define CASE_IN(name, setup)                                                                                           \
    {                                                                                                                  \
#name " (" #setup ")", name, setup, tear_down, NULL                                                            \
    }

#endif
