/* Nothing is refused that could be served, and what is served breaks nothing: random traces on a device of a few dozen
 * handles. After each refusal brute force over the addresses is asked whether the request could have been met; after each
 * step the books are added up, and blocks hold what was written to them wherever their memory has been moved from.
 *
 * WEIR_TRACES: how many traces; WEIR_TRACE_FROM: the number of the first. */
#include "info.h"
#include "core/core.h"
#include "trim.h"
#include "core/could.h"
#include "core/toy.h"
#include "runtime/runtime.h"

enum { CLIENTS = 3, BLOCKS = 64, USUAL_TRACES = 1500 };

typedef struct block {
    char *start;
    uint64_t bytes, charged;
    int client;
    uint32_t id;
    toy_death uses; /* that its free waits for */
} block;

typedef struct world {
    weir_runtime *runtime;
    wi_mapped *mapped;
    weir_client *clients[CLIENTS];
    int client_count, stream_count; /* streams[0] is the host's */
    weir_stream streams[TOY_STREAMS];
    unsigned numbers[TOY_STREAMS]; /* the toy's */
    uint64_t granule, random;
    block blocks[BLOCKS];
    size_t count;
    uint32_t ids;
    bool faults;
} world;

/* What happened in all traces. */
static struct {
    uint64_t requests, refused, by_ledger, after_faults, grown, not_grown, lowered, false_refusals;
} sum;

static uint64_t trace_number;

static uint64_t below(world *w, uint64_t n)
{
    return next_random(&w->random) % n;
}

/* Handles of several lengths although the budget is small; the linker leads the library through here. */
static uint64_t handle_lengths, handle_random;
uint64_t __real_wi_map_plan_chunk(const wi_mapped *mapped, unsigned region, uint64_t fresh);
uint64_t __wrap_wi_map_plan_chunk(const wi_mapped *mapped, unsigned region, uint64_t fresh);
uint64_t __wrap_wi_map_plan_chunk(const wi_mapped *mapped, unsigned region, uint64_t fresh)
{
    return handle_lengths ? 1 + next_random(&handle_random) % handle_lengths
                          : __real_wi_map_plan_chunk(mapped, region, fresh);
}

/* The books -------------------------------------------------------------------------------------------------------- */

static uint64_t live_of(const world *w, int client)
{
    uint64_t live = 0;
    for (size_t i = 0; i < w->count; i++)
        live += w->blocks[i].client == client ? w->blocks[i].charged : 0;
    return live;
}

/* Bytes that are the device's to give to the client, and that its maximum leaves, with `pending` counted or not. */
static bool may_have(const world *w, int client, uint64_t bytes, bool waits)
{
    snapshot s = take_snapshot(w->runtime);
    uint64_t committed = 0;
    for (int c = 0; c < w->client_count; c++) {
        uint64_t used = live_of(w, c) + (waits ? 0 : s.clients[c].pending) + (c == client ? bytes : 0);
        if (c == client && used > s.clients[c].maximum)
            return false;
        committed += used > s.clients[c].guaranteed ? used : s.clients[c].guaranteed;
    }
    return committed <= s.device.budget;
}

static void check_books(const world *w)
{
    snapshot s = take_snapshot(w->runtime);
    check_sums(&s);
    uint64_t committed = 0;
    for (int c = 0; c < w->client_count; c++) {
        assert_int_equal(s.clients[c].live, live_of(w, c));
        uint64_t used = s.clients[c].live + s.clients[c].pending + s.clients[c].thread_cached;
        committed += used > s.clients[c].guaranteed ? used : s.clients[c].guaranteed;
    }
    assert_true(committed <= s.device.budget);
    assert_int_equal(s.device.held, the_toy.used * w->granule);
    assert_int_equal(s.device.promised, 0);
    if (the_toy.wrong)
        fail_msg("%s", the_toy.wrong);
}

static void check_unit(const block *b, uint64_t offset)
{
    const toy_unit *unit = toy_unit_at(b->start + offset);
    assert_non_null(unit);
    assert_int_equal(unit->owner, b->id);
    assert_int_equal(unit->word, b->id * 2654435761u + (uint32_t)(offset / UNIT));
}

static void check_block(const block *b, bool all)
{
    for (uint64_t offset = 0; all && offset < b->charged; offset += UNIT)
        check_unit(b, offset);
    check_unit(b, 0);
    check_unit(b, b->charged - UNIT);
}

/* [from, to) of the block is its own now, on the stream with that number. */
static void occupy(const block *b, uint64_t from, uint64_t to, unsigned number)
{
    for (uint64_t offset = from; offset < to; offset += UNIT) {
        toy_unit *unit = toy_unit_at(b->start + offset);
        assert_non_null(unit);
        assert_int_equal(unit->owner, 0);
        assert_true(toy_is_behind(unit->death, number));
        unit->owner = b->id;
        unit->word = b->id * 2654435761u + (uint32_t)(offset / UNIT);
    }
}

/* What the former owners of its bytes left behind, the block's own work may have had to wait for, too. */
static void vacate(const block *b, uint64_t from, toy_death death)
{
    uint32_t before = 0, number = toy_note_death(death);
    for (uint64_t offset = from; offset < b->charged; offset += UNIT) {
        toy_unit *unit = toy_unit_at(b->start + offset);
        check_unit(b, offset);
        if (unit->death != before)
            number = toy_note_death(toy_both(death, unit->death));
        before = unit->death;
        *unit = (toy_unit){.death = number};
    }
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

static void refused_falsely(const char *what, const question *q)
{
    if (sum.false_refusals++ < 10)
        print_error("trace %llu: %s of %llu bytes at %llu%s was refused, but could be served: %s\n",
                    (unsigned long long)trace_number, what, (unsigned long long)q->bytes,
                    (unsigned long long)q->alignment, q->waits ? "" : ", without waiting,", weir_detail());
}

/* What an idle stream has had freed on it is anyone's, once somebody was refused. */
static void nothing_is_kept_for_idle_streams(const world *w)
{
    for (int region_number = 0; region_number < WI_REGIONS; region_number++)
        for (const wi_extent *e = w->mapped->regions[region_number].first; e; e = e->next)
            if (e->kind == WI_FREE && e->stream_list && e->stream_list->stream.id)
                assert_false(toy_is_idle(toy_stream(weir_stream_native(e->stream_list->stream))));
}

static void judge(world *w, const block *b, const question *q)
{
    sum.refused++;
    if (the_toy.failed)
        sum.after_faults++;
    else if (!may_have(w, b->client, q->bytes, q->waits))
        sum.by_ledger++;
    else {
        nothing_is_kept_for_idle_streams(w);
        if (could_place(w->mapped, q))
            refused_falsely("an allocation", q);
    }
}

static uint64_t some_size(world *w)
{
    uint64_t budget = runtime_details(w->runtime).budget, granule = w->granule;
    switch (below(w, 8)) {
    case 0:
        return 1 + below(w, 4 * UNIT);
    case 1:
    case 2:
        return 1 + below(w, 3 * granule);
    case 3:
        return granule * (1 + below(w, 8)) - below(w, 2) * UNIT;
    case 4:
        return 1 + below(w, budget);
    case 5:
        return 1 + below(w, budget / 2);
    default:
        return 1 + below(w, 8 * granule);
    }
}

/* What another thread could do while this one is in the driver with its memory: streams go on, which somebody finds out. */
static void others_work(void *user)
{
    world *w = user;
    if (w->stream_count == 1 || below(w, 3))
        return;
    toy_go_on(w->numbers[1 + below(w, (uint64_t)w->stream_count - 1)], below(w, 2) ? 2 : UINT64_MAX);
    ok(weir_runtime_trim(w->runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = UINT64_MAX},
                         NULL));
}

static void inject(world *w)
{
    the_toy.failed = false;
    the_toy.fail_in = w->faults && below(w, 4) == 0 ? (long)below(w, 6) : -1;
}

static void allocate_one(world *w)
{
    if (w->count == BLOCKS)
        return;
    int s = (int)below(w, (uint64_t)w->stream_count);
    bool waits = below(w, 2);
    block b = {.client = (int)below(w, (uint64_t)w->client_count), .id = ++w->ids, .bytes = some_size(w)};
    weir_request request = {.struct_size = sizeof request,
                            .bytes = b.bytes,
                            .alignment = below(w, 4) ? 0 : (size_t)256 << below(w, 8),
                            .stream = w->streams[s],
                            .memory_class = below(w, 4) ? WEIR_CLASS_ACTIVATIONS : WEIR_CLASS_WEIGHTS,
                            .flags = waits ? 0 : WEIR_ALLOC_NO_WAIT};
    b.charged = (b.bytes + UNIT - 1) & ~(uint64_t)(UNIT - 1);
    weir_block made;
    sum.requests++;
    inject(w);
    weir_status status = weir_alloc_with(w->clients[b.client], &request, &made);
    if (status != WEIR_OK) {
        assert_true(status == WEIR_ERR_OUT_OF_MEMORY || the_toy.failed);
        judge(w, &b,
              &(question){b.charged, request.alignment ? request.alignment : UNIT, request.stream, waits,
                          runtime_details(w->runtime).budget});
        return;
    }
    b.start = made.pointer;
    assert_int_equal((uintptr_t)b.start % (request.alignment ? request.alignment : UNIT), 0);
    occupy(&b, 0, b.charged, w->numbers[s]);
    w->blocks[w->count++] = b;
}

static void free_one(world *w)
{
    size_t i = below(w, w->count);
    block b = w->blocks[i];
    int s = (int)below(w, (uint64_t)w->stream_count);
    check_block(&b, true);
    if (s > 0)
        b.uses.points[w->numbers[s]] = toy_queue(w->numbers[s]);
    vacate(&b, 0, b.uses);
    the_toy.fail_in = -1;
    ok(weir_free(w->clients[b.client], b.start, w->streams[s]));
    w->blocks[i] = w->blocks[--w->count];
}

static void use_one(world *w)
{
    block *b = &w->blocks[below(w, w->count)];
    int s = 1 + (int)below(w, (uint64_t)w->stream_count - 1);
    b->uses.points[w->numbers[s]] = toy_queue(w->numbers[s]);
    ok(weir_use_record(w->runtime, (weir_block){.pointer = b->start}, w->streams[s]));
}

static void shrink_one(world *w, block *b, int s)
{
    uint64_t bytes = 1 + below(w, b->bytes), charged = (bytes + UNIT - 1) & ~(uint64_t)(UNIT - 1);
    toy_death death = b->uses;
    if (w->numbers[s]) /* not without a stream */
        death.points[w->numbers[s]] = toy_queue(w->numbers[s]);
    vacate(b, charged, death);
    ok(weir_resize(w->clients[b->client], b->start, bytes, w->streams[s]));
    b->bytes = bytes;
    b->charged = charged;
}

static void grow_one(world *w, block *b, int s)
{
    uint64_t bytes = b->bytes + 1 + below(w, 6 * w->granule), charged = (bytes + UNIT - 1) & ~(uint64_t)(UNIT - 1);
    const question q = {charged - b->charged, UNIT, WEIR_STREAM_HOST, false, runtime_details(w->runtime).budget};
    inject(w);
    weir_status status = weir_resize(w->clients[b->client], b->start, bytes, w->streams[s]);
    if (status == WEIR_OK) {
        sum.grown++;
        occupy(b, b->charged, charged, 0);
        b->bytes = bytes;
        b->charged = charged;
        return;
    }
    sum.not_grown++;
    assert_true(status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_NO_ROOM || the_toy.failed);
    if (!the_toy.failed && may_have(w, b->client, q.bytes, false) && could_extend(w->mapped, &q, b->start + b->charged))
        refused_falsely("a growth", &q);
}

static void resize_one(world *w)
{
    block *b = &w->blocks[below(w, w->count)];
    int s = (int)below(w, (uint64_t)w->stream_count);
    the_toy.fail_in = -1;
    if (below(w, 2))
        shrink_one(w, b, s);
    else
        grow_one(w, b, s);
}

static void trim_one(world *w)
{
    uint64_t keep = below(w, 2) ? 0 : below(w, 16) * w->granule, released;
    the_toy.fail_in = -1;
    ok(trim_keeping(w->runtime, keep, &released));
    bool idle = take_snapshot(w->runtime).device.pending == 0;
    for (int s = 1; s < w->stream_count; s++)
        idle = idle && toy_is_idle(w->numbers[s]);
    if (keep == 0 && idle)
        assert_int_equal(the_toy.used, could_not_be_moved(w->mapped, &(question){.waits = false}));
}

static void limit_one(world *w)
{
    uint64_t budget = runtime_details(w->runtime).budget, guaranteed = below(w, 3) ? 0 : below(w, budget / 2);
    uint64_t maximum = below(w, 3) ? 0 : guaranteed + below(w, budget);
    the_toy.fail_in = -1;
    if (below(w, 3)) {
        (void)!weir_client_set_limits(w->clients[below(w, (uint64_t)w->client_count)], guaranteed, maximum);
        return;
    }
    uint64_t wanted = (16 + below(w, 48)) * w->granule + below(w, 3) * UNIT;
    the_toy.budget = wanted > budget ? wanted : budget;
    if (weir_runtime_set_budget(w->runtime, wanted) == WEIR_OK)
        sum.lowered += wanted < budget;
    the_toy.budget = runtime_details(w->runtime).budget;
    assert_true(the_toy.used * w->granule <= the_toy.budget);
}

static void go_on(world *w)
{
    unsigned number = w->numbers[1 + below(w, (uint64_t)w->stream_count - 1)];
    if (below(w, 2))
        (void)toy_queue(number);
    toy_go_on(number, below(w, 3) ? below(w, 6) : UINT64_MAX);
}

static void step(world *w)
{
    uint64_t what = below(w, 100);
    if (what < 45 || w->count == 0)
        allocate_one(w);
    else if (what < 72)
        free_one(w);
    else if (what < 82)
        resize_one(w);
    else if (what < 84)
        trim_one(w);
    else if (what < 86)
        limit_one(w);
    else if (w->stream_count > 1 && what < 90)
        use_one(w);
    else if (w->stream_count > 1)
        go_on(w);
}

/* Traces ----------------------------------------------------------------------------------------------------------- */

static void begin(world *w, uint64_t seed)
{
    static const uint64_t granules[] = {1, 2, 4, 4, 4, 8, 8, 16};
    *w = (world){.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    (void)below(w, 2);
    w->granule = granules[below(w, 8)] * KIB;
    uint64_t budget = (20 + below(w, 41)) * w->granule + (below(w, 4) ? 0 : below(w, w->granule / UNIT) * UNIT);
    uint64_t capacity = below(w, 5) ? 1000 : 10 + below(w, 40);
    toy_reset(w->granule, capacity, budget);
    w->faults = below(w, 6) == 0;
    the_toy.meanwhile = below(w, 4) ? NULL : others_work;
    the_toy.user = w;
    handle_lengths = below(w, 4) ? 1 + below(w, 8) : 0;
    handle_random = seed + 1;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget, .resource = "mapped"};
    ok(wi_runtime_create_over(&toy_driver, 0, &options, &w->runtime));
    w->mapped = (wi_mapped *)w->runtime->resource->base;
    w->client_count = 1 + (int)below(w, CLIENTS);
    for (int c = 0; c < w->client_count; c++) {
        uint64_t guaranteed = below(w, 3) ? 0 : below(w, budget / 4);
        w->clients[c] = open_client(w->runtime, "client", guaranteed, below(w, 3) ? 0 : guaranteed + below(w, budget));
    }
    w->stream_count = 1 + (int)below(w, TOY_STREAMS);
    for (int s = 1; s < w->stream_count; s++) {
        ok(weir_stream_acquire(w->runtime, &w->streams[s]));
        w->numbers[s] = toy_stream(weir_stream_native(w->streams[s]));
    }
}

static void end(world *w)
{
    the_toy.meanwhile = NULL;
    the_toy.fail_in = -1;
    while (w->count)
        free_one(w);
    for (int s = 1; s < w->stream_count; s++)
        ok(weir_stream_release(w->streams[s]));
    ok(weir_runtime_trim(w->runtime, NULL, NULL));
    assert_int_equal(the_toy.used, 0);
    for (int c = 0; c < w->client_count; c++)
        ok(weir_client_destroy(w->clients[c]));
    ok(weir_runtime_destroy(w->runtime));
    assert_int_equal(the_toy.devices + the_toy.ranges + the_toy.mapped, 0);
}

static void run_trace(uint64_t seed)
{
    static world w;
    begin(&w, seed);
    uint64_t steps = 20 + below(&w, 100);
    for (uint64_t i = 0; i < steps; i++) {
        step(&w);
        check_books(&w);
        for (size_t k = 0; k < w.count; k++)
            check_block(&w.blocks[k], i + 1 == steps);
    }
    end(&w);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void nothing_is_refused_that_could_be_served(void **state)
{
    (void)state;
    uint64_t first = from_environment("WEIR_TRACE_FROM", 1), traces = from_environment("WEIR_TRACES", USUAL_TRACES);
    ok(weir_option_set("wait", "60s"));
    for (trace_number = first; trace_number < first + traces; trace_number++)
        run_trace(trace_number);
    print_message("%llu traces, %llu requests, %llu refused: %llu for the books, %llu after faults, %llu falsely; "
                  "%llu blocks grew, %llu did not; %llu budgets lowered\n",
                  (unsigned long long)traces, (unsigned long long)sum.requests, (unsigned long long)sum.refused,
                  (unsigned long long)sum.by_ledger, (unsigned long long)sum.after_faults,
                  (unsigned long long)sum.false_refusals, (unsigned long long)sum.grown,
                  (unsigned long long)sum.not_grown, (unsigned long long)sum.lowered);
    assert_int_equal(sum.false_refusals, 0);
    assert_true(traces < USUAL_TRACES || sum.refused - sum.by_ledger - sum.after_faults > sum.requests / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_refused_that_could_be_served),
    };
    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
