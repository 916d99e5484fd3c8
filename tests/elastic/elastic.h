/* What the tests of elastic blocks share: on the device that WEIR_TEST_DEVICE names, or the host. Sizes are counted in
 * pages of the device's granule. Memory is read and written by copies of the driver's. */
#ifndef TESTS_ELASTIC_H
#define TESTS_ELASTIC_H

#include "core/core.h"

#include <weir/elastic.h>
#include <weir/pressure.h>

enum { BUDGET_PAGES = 16, MOST_PAGE = 4 << 20 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client, *other;
    weir_stream stream;
    size_t page;
    gate gate;
    unsigned char *bytes; /* of a page, for looks */
} fixture;

static inline weir_elastic_stats stats_of(weir_elastic *e)
{
    weir_elastic_stats s = WEIR_INIT(weir_elastic_stats);
    ok(weir_elastic_info(e, &s));
    return s;
}

static inline weir_status try_create(weir_client *client, size_t bytes, bool promised, weir_elastic **out)
{
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = bytes, .tag = "cache", .promised = promised};
    return weir_elastic_create(client, &o, out);
}

/* Of so many pages. */
static inline weir_elastic *create(fixture *f, size_t pages, bool promised)
{
    weir_elastic *e;
    ok(try_create(f->client, pages * f->page, promised, &e));
    return e;
}

static inline size_t find_page(weir_runtime *runtime)
{
    weir_client *client = open_client(runtime, "probe", 0, 0);
    weir_elastic *e;
    ok(try_create(client, 1, false, &e));
    size_t page = stats_of(e).page;
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    return page;
}

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    weir_runtime *probe = make_runtime_here(64 * MIB);
    f->page = find_page(probe);
    ok(weir_runtime_destroy(probe));
    f->runtime = make_runtime_here(BUDGET_PAGES * f->page);
    f->client = open_client(f->runtime, "one", 0, 0);
    f->other = open_client(f->runtime, "other", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    f->gate = (gate)GATE;
    f->bytes = malloc(MOST_PAGE);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->stream));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->other));
    ok(weir_runtime_destroy(f->runtime));
    free(f->bytes);
    free(f);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static inline weir_status try_commit(fixture *f, weir_elastic *e, size_t first, size_t count, weir_stream stream)
{
    return weir_elastic_commit(e, first * f->page, count * f->page, stream);
}
static inline void commit(fixture *f, weir_elastic *e, size_t first, size_t count)
{
    ok(try_commit(f, e, first, count, WEIR_STREAM_HOST));
}
static inline void release(fixture *f, weir_elastic *e, size_t first, size_t count, weir_stream stream)
{
    ok(weir_elastic_release(e, first * f->page, count * f->page, stream));
}

static inline char *page_at(fixture *f, weir_elastic *e, size_t index)
{
    return (char *)stats_of(e).base + index * f->page;
}

static inline void write_page(fixture *f, weir_elastic *e, size_t index, uint8_t value)
{
    ok(weir_fill(f->runtime, page_at(f, e, index), value, f->page, WEIR_STREAM_HOST));
}

/* Every byte of the page. */
static inline void page_holds(fixture *f, weir_elastic *e, size_t index, uint8_t value)
{
    memset(f->bytes, value + 1, f->page);
    ok(weir_copy(f->runtime, f->bytes, page_at(f, e, index), f->page, WEIR_STREAM_HOST));
    for (size_t i = 0; i < f->page; i++)
        if (f->bytes[i] != value)
            fail_msg("byte %zu of page %zu is %u, not %u", i, index, f->bytes[i], value);
}

/* The stream holds what is put on it from here on. */
static inline void hold_stream(fixture *f)
{
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
}
static inline void let_go(fixture *f)
{
    open_gate(&f->gate);
    ok(weir_stream_synchronize(f->stream));
    f->gate = (gate)GATE;
}

/* The pages of an elastic block, and what they cost: nothing else is held. */
static inline void pages_are(fixture *f, weir_elastic *e, size_t live, size_t pending)
{
    weir_elastic_stats s = stats_of(e);
    assert_int_equal(s.committed, live * f->page);
    assert_int_equal(s.pending, pending * f->page);
}

#endif
