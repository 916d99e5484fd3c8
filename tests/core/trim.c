/* Giving memory back: how much goes, what stays and why, in how few calls; what a device without memory has weir trim;
 * and records of blocks, which do not pile up. On the device that WEIR_TEST_DEVICE names, or the host. */
#include "info.h"
#include "core.h"
#include "core/faulty.h"

#include "sim/device/device.h"
#include "memory/mapped/mapped.h"
#include "runtime/runtime.h"

#include <weir/pressure.h>

#include <sys/mman.h>
#include <unistd.h>

enum { BUDGET = 1 << 30, BLOCKS = 64 };

static const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client, *other;
    weir_stream stream;
    bool sim;
} fixture;

static int begin(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->sim = strncmp(device(), "sim", 3) == 0;
    if (f->sim)
        wi_sim_configure(&(wi_sim_options){.seed = 1, .bytes = UINT64_C(2) << 30});
    weir_runtime_options options = {.struct_size = sizeof options,
                                    .budget = strncmp(device(), "cuda", 4) ? BUDGET : BUDGET / 8};
    ok(weir_runtime_create(device(), &options, &f->runtime));
    f->client = open_client(f->runtime, "ann", 0, 0);
    f->other = open_client(f->runtime, "bob", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    *state = f;
    return 0;
}

static int end(void **state)
{
    fixture *f = *state;
    ok(weir_stream_synchronize(f->stream));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->other));
    ok(weir_stream_release(f->stream));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static weir_trim_report trimmed(weir_runtime *runtime, uint64_t keep)
{
    weir_trim_report r = WEIR_INIT(weir_trim_report);
    ok(weir_runtime_trim(runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = keep}, &r));
    return r;
}

/* The report against the book and a walk of its own ---------------------------------------------------------------- */

enum { MOST_SPANS = 8192 };

typedef struct copy {
    struct {
        uint32_t segment;
        weir_span_state state;
        uint64_t bytes;
        const void *block;
    } spans[MOST_SPANS];
    size_t count;
    uint32_t segments;
} copy;

static void copy_span(const weir_segment *segment, const weir_span *span, void *user)
{
    copy *c = user;
    assert_true(c->count < MOST_SPANS);
    c->spans[c->count].segment = segment->number;
    c->spans[c->count].state = span->state;
    c->spans[c->count].bytes = span->bytes;
    c->spans[c->count++].block = span->block.pointer;
    c->segments = segment->number + 1;
}

typedef struct part {
    uint64_t unused, pinned_by_most;
    bool live, waits;
    const void *most;
} part;

static part look_at_segment(const copy *c, uint32_t segment)
{
    part p = {0};
    for (size_t i = 0; i < c->count; i++) {
        if (c->spans[i].segment != segment)
            continue;
        weir_span_state state = c->spans[i].state;
        if (state == WEIR_SPAN_LIVE && c->spans[i].bytes > p.pinned_by_most) {
            p.pinned_by_most = c->spans[i].bytes;
            p.most = c->spans[i].block;
        }
        p.live |= state == WEIR_SPAN_LIVE;
        p.waits |= state == WEIR_SPAN_PENDING || state == WEIR_SPAN_ORDERED || state == WEIR_SPAN_THREAD_CACHED;
        p.unused +=
            state == WEIR_SPAN_FREE || state == WEIR_SPAN_ORDERED || state == WEIR_SPAN_KEPT ? c->spans[i].bytes : 0;
    }
    return p;
}

static void check_report(const fixture *f, const weir_trim_report *r, uint64_t held_before)
{
    static copy c;
    c.count = 0;
    ok(weir_layout_walk(f->runtime, copy_span, &c, NULL));
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(held_before - r->released, s.device.held);
    assert_int_equal(r->left, s.device.cached + s.device.spare);
    assert_int_equal(r->left, r->pinned + r->unpassed + r->idle + r->spare + r->busy);
    assert_int_equal(r->pending, s.device.pending);
    uint64_t pinned = 0, unpassed = 0, by_pins = 0, of_pins[WEIR_TRIM_PINS] = {0};
    for (uint32_t segment = 0; segment < c.segments; segment++) {
        part p = look_at_segment(&c, segment);
        pinned += p.live ? p.unused : 0;
        unpassed += !p.live && p.waits ? p.unused : 0;
        for (uint32_t i = 0; i < r->pins; i++)
            of_pins[i] += p.live && p.most == r->pin[i].block.pointer ? p.unused : 0;
    }
    assert_int_equal(r->pinned, pinned);
    assert_int_equal(r->unpassed, unpassed);
    assert_int_equal(r->pins, r->pinning < WEIR_TRIM_PINS ? r->pinning : WEIR_TRIM_PINS);
    for (uint32_t i = 0; i < r->pins; i++) {
        assert_int_equal(r->pin[i].pinned, of_pins[i]);
        assert_true(of_pins[i] > 0 && (i == 0 || r->pin[i].pinned <= r->pin[i - 1].pinned));
        by_pins += r->pin[i].pinned;
    }
    assert_true(r->pins < r->pinning ? by_pins < pinned : by_pins == pinned);
}

static uint64_t held(const fixture *f)
{
    return take_snapshot(f->runtime).device.held;
}

static bool stays(int i)
{
    return i % 5 < 2;
}

static void a_trim_says_what_pins_the_rest(void **state)
{
    fixture *f = *state;
    weir_block blocks[BLOCKS];
    uint64_t random = 2463534242u;
    for (int i = 0; i < BLOCKS; i++) {
        weir_request request = {.struct_size = sizeof request,
                                .bytes = 5 * KIB + next_random(&random) % (stays(i) ? 60 * KIB : MIB),
                                .memory_class = WEIR_CLASS_KV,
                                .tag = stays(i) ? "kept" : NULL};
        ok(weir_alloc_with(i % 2 ? f->client : f->other, &request, &blocks[i]));
    }
    for (int i = 0; i < BLOCKS; i++)
        if (!stays(i))
            ok(weir_free_block(i % 2 ? f->client : f->other, blocks[i], WEIR_STREAM_HOST));
    uint64_t before = held(f);
    weir_trim_report r = trimmed(f->runtime, 0);
    check_report(f, &r, before);
    assert_true(r.pinned > 0 && r.pins > 0);
    assert_int_equal(r.idle + r.unpassed + r.spare + r.busy, 0);
    for (uint32_t i = 0; i < r.pins; i++) {
        weir_block_details d = WEIR_INIT(weir_block_details);
        ok(weir_block_info(r.pin[i].block.pointer, &d));
        assert_int_equal(d.block.generation, r.pin[i].block.generation);
        assert_int_equal(d.charged, r.pin[i].charged);
        assert_ptr_equal(d.client, r.pin[i].client);
        assert_string_equal(client_details((weir_client *)d.client).name, r.pin[i].client_name);
        assert_string_equal(r.pin[i].tag, "kept");
        assert_int_equal(r.pin[i].memory_class, WEIR_CLASS_KV);
    }
    /* Whoever pins the most goes: at least that is to be had. */
    for (int i = 0; i < BLOCKS; i++)
        if (stays(i) && blocks[i].pointer == r.pin[0].block.pointer) {
            ok(weir_free_block(i % 2 ? f->client : f->other, blocks[i], WEIR_STREAM_HOST));
            blocks[i].pointer = NULL;
        }
    before = held(f);
    weir_trim_report next = trimmed(f->runtime, 0);
    check_report(f, &next, before);
    for (int i = 0; i < BLOCKS; i++)
        if (stays(i) && blocks[i].pointer)
            ok(weir_free_block(i % 2 ? f->client : f->other, blocks[i], WEIR_STREAM_HOST));
    weir_trim_report last = WEIR_INIT(weir_trim_report);
    ok(weir_runtime_trim(f->runtime, NULL, &last));
    assert_int_equal(last.left + last.pinning, 0);
    assert_int_equal(held(f), 0);
}

static void what_has_not_passed_is_told_apart(void **state)
{
    fixture *f = *state;
    if (f->sim || strncmp(device(), "cuda", 4) == 0)
        skip(); /* gates hold streams of the host */
    gate g = GATE;
    void *p = allocate(f->client, 3 * MIB, f->stream, WEIR_CLASS_KV),
         *q = allocate(f->client, 2 * MIB + 512, f->stream, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_free(f->client, p, f->stream));
    free_behind(f->client, q, f->stream);
    uint64_t before = held(f);
    weir_trim_report r = trimmed(f->runtime, 0);
    check_report(f, &r, before);
    assert_true(r.unpassed >= 3 * MIB);
    assert_int_equal(r.pending, 2 * MIB + 512);
    assert_int_equal(r.pinned + r.idle + r.spare, 0);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(trimmed(f->runtime, 0).left, 0);
    assert_int_equal(held(f), 0);
}

static void what_a_thread_keeps_goes_too(void **state)
{
    fixture *f = *state;
    ok(weir_free(f->client, allocate(f->client, 8000, f->stream, WEIR_CLASS_KV), f->stream));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 8192);
    ok(weir_stream_synchronize(f->stream));
    weir_trim_report r = trimmed(f->runtime, 0);
    assert_true(r.released > 0);
    assert_int_equal(r.left, 0);
}

/* How much goes, and in how many calls ----------------------------------------------------------------------------- */

/* `bytes` of idle memory. */
static void make_idle(const fixture *f, uint64_t bytes)
{
    ok(weir_free(f->client, allocate(f->client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
}

static uint64_t largest_handle(const fixture *f)
{
    const wi_mapped *m = (const wi_mapped *)f->runtime->resource->base;
    uint64_t most = 0;
    for (const wi_chunk *b = m->shared.idle.first; b; b = b->next)
        most = b->count > most ? b->count : most;
    return most * m->granule;
}

static void no_more_goes_than_must(void **state)
{
    fixture *f = *state;
    make_idle(f, 100 * MIB);
    uint64_t handle = largest_handle(f);
    for (uint64_t keep = 90 * MIB + 1; keep > 10 * MIB; keep -= 7 * MIB + 333) {
        weir_trim_report r = trimmed(f->runtime, keep);
        assert_true(r.left <= keep && r.left + handle > keep);
        assert_int_equal(r.idle, r.left);
    }
    weir_trim_report r = trimmed(f->runtime, UINT64_MAX);
    assert_int_equal(r.released, 0);
}

static void neighbours_go_in_one_call(void **state)
{
    fixture *f = *state;
    make_idle(f, 100 * MIB);
    snapshot before = take_snapshot(f->runtime);
    assert_true(before.device.created >= 8);
    weir_trim_report r = trimmed(f->runtime, 0);
    assert_int_equal(r.left, 0);
    uint64_t calls = take_snapshot(f->runtime).device.driver_calls - before.device.driver_calls;
    /* Unmapping and destroying: two calls for up to 64, and as many for a last one of another length. */
    assert_true(calls <= 2 * ((before.device.created + 63) / 64 + 1));
}

static void a_refusal_of_the_driver_loses_nothing(void **state)
{
    (void)state;
    faults_reset(-1);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * MIB};
    weir_runtime *runtime;
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    void *p = allocate(client, 10 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    snapshot before = take_snapshot(runtime);
    faults_reset(0); /* counts as given out stay with the runtime below, which is ended in order */
    fault.stay = true;
    weir_trim_report r = trimmed(runtime, 0);
    assert_int_equal(r.released, 0);
    assert_int_equal(r.idle, before.device.held);
    assert_int_equal(take_snapshot(runtime).device.cached, before.device.cached);
    fault.fail_at = -1;
    r = trimmed(runtime, 0);
    assert_int_equal(r.released, before.device.held);
    assert_int_equal(r.left, 0);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Shedding --------------------------------------------------------------------------------------------------------- */

static void idle_memory_is_trimmed_but_for_a_little(void **state)
{
    fixture *f = *state;
    if (strncmp(device(), "cuda", 4) == 0)
        skip(); /* the stub's device is small */
    void *below = allocate(f->client, 150 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV),
         *live = allocate(f->client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    void *above = allocate(f->client, 150 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(f->client, below, WEIR_STREAM_HOST));
    ok(weir_free(f->client, above, WEIR_STREAM_HOST));
    uint64_t handle = largest_handle(f), before = held(f);
    weir_trim_report r = WEIR_INIT(weir_trim_report);
    ok(weir_runtime_trim(f->runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .idle_only = true},
                         &r));
    check_report(f, &r, before);
    assert_true(r.idle <= WEIR_IDLE_KEPT && r.idle + handle > WEIR_IDLE_KEPT);
    ok(weir_runtime_trim(f->runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .idle_only = true},
                         &r));
    assert_int_equal(r.released, 0);
    ok(weir_free(f->client, live, WEIR_STREAM_HOST));
}

static void a_lower_budget_trims(void **state)
{
    fixture *f = *state;
    if (strncmp(device(), "cuda", 4) == 0)
        skip();
    make_idle(f, 300 * MIB);
    ok(weir_runtime_set_budget(f->runtime, BUDGET + MIB));
    assert_true(held(f) >= 300 * MIB);
    ok(weir_runtime_set_budget(f->runtime, BUDGET - MIB));
    assert_true(held(f) <= WEIR_IDLE_KEPT);
    make_idle(f, 300 * MIB);
    ok(weir_runtime_set_budget(f->runtime, MIB));
    assert_true(held(f) <= MIB);
}

/* The budget allows 1 GiB; the device has 320 MiB. */
typedef struct small_device {
    weir_runtime *runtime;
    weir_client *client;
} small_device;

static small_device make_small_device(void)
{
    small_device d;
    faults_reset(-1);
    fault.limit = (long)(320 * MIB / GRANULE);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &d.runtime));
    d.client = open_client(d.runtime, "one", 0, 0);
    return d;
}

static void end_small_device(small_device *d)
{
    check_empty(d->runtime);
    ok(weir_client_destroy(d->client));
    ok(weir_runtime_destroy(d->runtime));
    assert_true(faults_nothing_left());
}

static void a_full_device_is_made_do_with(void **state)
{
    (void)state;
    small_device d = make_small_device();
    void *low = allocate(d.client, 200 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV),
         *live = allocate(d.client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    void *high = allocate(d.client, 100 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(d.client, low, WEIR_STREAM_HOST));
    ok(weir_free(d.client, high, WEIR_STREAM_HOST));
    /* No run is as long, and the device has no more: what is idle moves, and what is left of it goes back. */
    void *p = allocate(d.client, 210 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    snapshot s = take_snapshot(d.runtime);
    assert_true(s.device.held <= 211 * MIB + WEIR_IDLE_KEPT + 4 * MIB);
    ok(weir_free(d.client, p, WEIR_STREAM_HOST));
    ok(weir_free(d.client, live, WEIR_STREAM_HOST));
    end_small_device(&d);
}

static void a_request_that_the_device_refuses_trims(void **state)
{
    (void)state;
    small_device d = make_small_device();
    void *p = allocate(d.client, 300 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(d.client, p, WEIR_STREAM_HOST));
    assert_true(take_snapshot(d.runtime).device.held >= 300 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(d.client, 330 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_true(take_snapshot(d.runtime).device.held <= WEIR_IDLE_KEPT);
    p = allocate(d.client, 300 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(d.client, p, WEIR_STREAM_HOST));
    assert_true(take_snapshot(d.runtime).device.held >= 300 * MIB); /* once is enough */
    end_small_device(&d);
}

/* Records of blocks ------------------------------------------------------------------------------------------------ */

static uint64_t extents_of(const wi_mapped *m)
{
    uint64_t count = 0;
    for (int region_number = 0; region_number < WI_REGIONS; region_number++)
        for (const wi_extent *e = m->regions[region_number].first; e; e = e->next)
            count++;
    return count;
}

static void records_are_bounded_by_what_there_is(void **state)
{
    fixture *f = *state;
    enum { SLOTS = 128 };
    const wi_mapped *m = (const wi_mapped *)f->runtime->resource->base;
    const wi_extent_pool *pool = &m->shared.pool;
    void *held_here[SLOTS] = {0};
    uint64_t random = 88172645463325252u, most = 0, cycles = getenv("WEIR_TEST_LONG") ? 1000000 : 20000;
    for (uint64_t i = 0; i < cycles; i++) { /* a split, or a merge with what is beside it */
        uint64_t r = next_random(&random);
        void **p = &held_here[r % SLOTS];
        if (*p)
            ok(weir_free(f->client, *p, WEIR_STREAM_HOST));
        void *next = *p ? NULL : allocate(f->client, 1 + (r >> 20) % (256 * KIB), WEIR_STREAM_HOST, WEIR_CLASS_KV);
        *p = next;
        if (i % 4096 == 0)
            most = extents_of(m) > most ? extents_of(m) : most;
    }
    uint64_t records = pool->chunk_count * WI_EXTENT_SLAB;
    assert_int_equal(records - pool->unused_count, extents_of(m));
    assert_true(most <= 3 * SLOTS + 64);
    assert_true(records <= 2 * WI_EXTENT_SLAB);
    for (int i = 0; i < SLOTS; i++)
        if (held_here[i])
            ok(weir_free(f->client, held_here[i], WEIR_STREAM_HOST));
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    assert_int_equal(extents_of(m), WI_REGIONS); /* a hole each */
    assert_int_equal(pool->chunk_count * WI_EXTENT_SLAB - pool->unused_count, WI_REGIONS);
}

/* Pages of the tables that tell which block begins where. */
static uint64_t resident_pages(const wi_mapped *m)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), count = 0;
    for (int number = 0; number < WI_REGIONS; number++) {
        const wi_region *region = &m->regions[number];
        uint64_t bytes = region->bytes / WI_UNIT * sizeof *region->slots;
        unsigned char *there = calloc(1, bytes / page + 1);
        assert_int_equal(mincore(region->slots, bytes, there), 0);
        for (uint64_t i = 0; i < bytes / page; i++)
            count += there[i] & 1;
        free(there);
    }
    return count;
}

/* A table of addresses that have no memory any more goes back, but not what it says of a block between them. */
static void tables_follow_the_memory(void **state)
{
    fixture *f = *state;
    enum { MANY = 200, STAYS = 100 };
    const wi_mapped *m = (const wi_mapped *)f->runtime->resource->base;
    void *blocks[MANY];
    if (strncmp(device(), "cuda", 4) == 0) /* where the budget is too small for that */
        skip();
    for (int i = 0; i < MANY; i++)
        blocks[i] = allocate(f->client, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    uint64_t most = resident_pages(m);
    assert_true(most >= MANY);
    for (int i = 0; i < MANY; i++)
        if (i != STAYS)
            ok(weir_free(f->client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    assert_true(resident_pages(m) < most / 2);
    ok(weir_block_info(blocks[STAYS], &(weir_block_details){.struct_size = sizeof(weir_block_details)}));
    ok(weir_free(f->client, blocks[STAYS], WEIR_STREAM_HOST));
}

static void what_is_wrong_is_refused(void **state)
{
    fixture *f = *state;
    weir_trim_report r = {0};
    fails(WEIR_ERR_INVALID, weir_runtime_trim(NULL, NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_runtime_trim(f->runtime, NULL, &r));
    fails(WEIR_ERR_INVALID, weir_runtime_trim(NULL, NULL, NULL));
    fails(WEIR_ERR_INVALID,
          weir_runtime_trim(f->runtime,
                            &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .idle_only = true}, &r));
    ok(weir_runtime_trim(f->runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .idle_only = true},
                         NULL));
}

#define with(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with(a_trim_says_what_pins_the_rest),
        with(what_has_not_passed_is_told_apart),
        with(what_a_thread_keeps_goes_too),
        with(no_more_goes_than_must),
        with(neighbours_go_in_one_call),
        cmocka_unit_test(a_refusal_of_the_driver_loses_nothing),
        with(idle_memory_is_trimmed_but_for_a_little),
        with(a_lower_budget_trims),
        cmocka_unit_test(a_full_device_is_made_do_with),
        cmocka_unit_test(a_request_that_the_device_refuses_trims),
        with(records_are_bounded_by_what_there_is),
        with(tables_follow_the_memory),
        with(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
