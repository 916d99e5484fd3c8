/* Random traces against a model of what is where: contents stay, blocks do not overlap, the books add up, and nothing is
 * refused that brute force over the addresses can place. */
#include "core.h"

enum { CLIENTS = 4, BLOCKS = 160, STREAMS = 3 };

typedef struct block {
    unsigned char *start;
    uint64_t bytes, charged;
    int client;
    unsigned char pattern;
} block;

typedef struct world {
    weir_runtime *runtime;
    weir_client *clients[CLIENTS];
    weir_stream streams[STREAMS];
    uint64_t budget, random;
    block blocks[BLOCKS];
    size_t count;
    size_t met, fragmented, refused;
} world;

static int by_address(const void *a, const void *b)
{
    const block *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static void check_contents(const block *b)
{
    for (uint64_t i = 0; i < b->bytes; i += 509)
        assert_int_equal(b->start[i], b->pattern);
    assert_int_equal(b->start[b->bytes - 1], b->pattern);
}

static void check_world(world *w)
{
    uint64_t live[CLIENTS] = {0};
    qsort(w->blocks, w->count, sizeof w->blocks[0], by_address);
    for (size_t i = 0; i < w->count; i++) {
        const block *b = &w->blocks[i];
        if (i + 1 < w->count)
            assert_true(b->start + b->charged <= w->blocks[i + 1].start);
        check_contents(b);
        live[b->client] += b->charged;
        weir_block_details d = WEIR_INIT(weir_block_details);
        ok(weir_block_info(b->start + b->bytes - 1, &d));
        assert_ptr_equal(d.block.pointer, b->start);
        assert_int_equal(d.bytes, b->bytes);
        assert_int_equal(d.charged, b->charged);
        assert_ptr_equal(d.client, w->clients[b->client]);
    }
    snapshot s = take_snapshot(w->runtime);
    check_sums(&s);
    assert_int_equal(s.device.pending + s.device.promised, 0);
    for (int c = 0; c < CLIENTS; c++)
        assert_int_equal(s.clients[c].live, live[c]);
}

/* The fewest handles that a block takes between two neighbours, whose outer granules are theirs: every granule that it
 * touches, but for those that a neighbour has already. `after` 0: nothing stands behind. */
static uint64_t fewest_handles(uint64_t before, uint64_t after, uint64_t bytes, uint64_t alignment)
{
    uint64_t starts[2] = {(before + alignment - 1) & ~(alignment - 1), 0}, fewest = UINT64_MAX;
    int count = 1;
    if (after) {
        if (after < bytes || starts[0] + bytes > after)
            return UINT64_MAX;
        starts[count++] = (after - bytes) & ~(alignment - 1);
    }
    for (int i = 0; i < count; i++) {
        if (starts[i] < before)
            continue;
        uint64_t handles = 0;
        for (uint64_t g = starts[i] / GRANULE; g * GRANULE < starts[i] + bytes; g++) {
            bool theirs = (before % GRANULE && g == before / GRANULE) || (after % GRANULE && g == after / GRANULE);
            handles += !theirs;
        }
        if (handles < fewest)
            fewest = handles;
    }
    return fewest;
}

static uint64_t end_of(const block *b)
{
    return (uintptr_t)b->start + b->charged;
}

static void lower(uint64_t *fewest, uint64_t handles)
{
    *fewest = handles < *fewest ? handles : *fewest;
}

/* Whether the request could have been placed: handles that are not under a block, or may still be created, against those
 * that the tightest gap takes. Blocks are sorted; the ranges that they lie in are apart by far more than they are long. */
static bool could_be_placed(const world *w, uint64_t charged, uint64_t alignment)
{
    uint64_t theirs = 0, last = UINT64_MAX, fewest = (charged + GRANULE - 1) / GRANULE; /* somewhere far out */
    for (size_t i = 0; i < w->count; i++) {
        const block *b = &w->blocks[i];
        uint64_t start = (uintptr_t)b->start, end = end_of(b);
        for (uint64_t g = start / GRANULE; g * GRANULE < end; g++)
            if (g != last) {
                theirs++;
                last = g;
            }
        /* The first block of a range may have room in front of it: the range is aligned to 2 MiB, and begins there or before;
         * what could stand wholly in front is no tighter than far out, unless it shares the block's own first handle. */
        bool first = i == 0 || start - end_of(b - 1) > 256 * MIB;
        lower(&fewest, fewest_handles(first ? start & ~(2 * MIB - 1) : end_of(b - 1), start, charged, alignment));
        if (i + 1 == w->count || (uintptr_t)b[1].start - end > 256 * MIB)
            lower(&fewest, fewest_handles(end, 0, charged, alignment));
    }
    return fewest <= w->budget / GRANULE - theirs;
}

static uint64_t live_bytes(const world *w)
{
    uint64_t live = 0;
    for (size_t i = 0; i < w->count; i++)
        live += w->blocks[i].charged;
    return live;
}

static uint64_t some_size(world *w)
{
    switch (next_random(&w->random) % 8) {
    case 0:
        return 1 + next_random(&w->random) % 256;
    case 1:
    case 2:
        return 1 + next_random(&w->random) % GRANULE;
    case 3:
        return GRANULE * (1 + next_random(&w->random) % 6);
    case 4:
        return 1 + next_random(&w->random) % (w->budget / 3);
    default:
        return 1 + next_random(&w->random) % (5 * GRANULE);
    }
}

static void allocate_one(world *w)
{
    if (w->count == BLOCKS)
        return;
    int client = (int)(next_random(&w->random) % CLIENTS);
    bool weights = next_random(&w->random) % 3 == 0;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = some_size(w),
                            .alignment = next_random(&w->random) % 4 ? 0 : (size_t)1 << next_random(&w->random) % 18,
                            .stream = w->streams[next_random(&w->random) % STREAMS],
                            .memory_class = weights ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_KV};
    weir_block made;
    uint64_t charged = (request.bytes + 255) & ~(uint64_t)255;
    uint64_t alignment = request.alignment < 256 ? 256 : request.alignment;
    bool bytes_there = charged <= w->budget - live_bytes(w);
    weir_status status = weir_alloc_with(w->clients[client], &request, &made);
    if (status == WEIR_OK) {
        assert_true(bytes_there && (uintptr_t)made.pointer % alignment == 0);
        unsigned char pattern = (unsigned char)next_random(&w->random);
        memset(made.pointer, pattern, request.bytes);
        w->blocks[w->count++] = (block){made.pointer, request.bytes, charged, client, pattern};
        w->met++;
        return;
    }
    assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, bytes_there ? WEIR_CAUSE_FRAGMENTATION : WEIR_CAUSE_BUDGET);
    w->refused++;
    if (bytes_there) {
        w->fragmented++;
        if (could_be_placed(w, charged, alignment)) {
            print_error("%llu bytes at %llu were refused, but could be placed: %s\n", (unsigned long long)charged,
                        (unsigned long long)alignment, weir_detail());
            assert_true(false);
        }
    }
}

static void free_one(world *w)
{
    if (w->count == 0)
        return;
    size_t i = next_random(&w->random) % w->count;
    weir_stream stream = w->streams[next_random(&w->random) % STREAMS];
    ok(weir_free(w->clients[w->blocks[i].client], w->blocks[i].start, stream));
    w->blocks[i] = w->blocks[--w->count];
}

/* Growth is refused only where the next block, the budget or the handles end it. */
static void resize_one(world *w)
{
    if (w->count == 0)
        return;
    size_t i = next_random(&w->random) % w->count;
    block *b = &w->blocks[i];
    uint64_t bytes = next_random(&w->random) % 2 ? 1 + next_random(&w->random) % b->bytes
                                                 : b->bytes + next_random(&w->random) % (2 * GRANULE);
    uint64_t charged = (bytes + 255) & ~(uint64_t)255, more = charged > b->charged ? charged - b->charged : 0;
    weir_status status =
        weir_resize(w->clients[b->client], b->start, bytes, w->streams[next_random(&w->random) % STREAMS]);
    uint64_t end = (uintptr_t)b->start + b->charged;
    const block *next = i + 1 < w->count ? &w->blocks[i + 1] : NULL;
    bool room = !next || end + more <= (uintptr_t)next->start;
    if (status == WEIR_OK) {
        assert_true(more == 0 || room);
        b->bytes = bytes;
        b->charged = charged;
        memset(b->start, b->pattern, bytes);
    } else if (status == WEIR_ERR_NO_ROOM) {
        assert_false(room);
    } else {
        assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
        if (room && more <= w->budget - live_bytes(w)) {
            uint64_t theirs = 0, last = UINT64_MAX, needed = 0;
            for (size_t k = 0; k < w->count; k++)
                for (uint64_t g = (uintptr_t)w->blocks[k].start / GRANULE;
                     g * GRANULE < (uintptr_t)w->blocks[k].start + w->blocks[k].charged; g++)
                    if (g != last) {
                        theirs++;
                        last = g;
                    }
            for (uint64_t g = (end + GRANULE - 1) / GRANULE; g * GRANULE < end + more; g++)
                needed += !next || g != (uintptr_t)next->start / GRANULE;
            assert_true(needed > w->budget / GRANULE - theirs);
        }
    }
}

static void run_trace(uint64_t budget, uint64_t seed, int steps)
{
    world *w = calloc(1, sizeof *w);
    w->budget = budget;
    w->random = seed;
    w->runtime = make_runtime(budget);
    for (int c = 0; c < CLIENTS; c++)
        w->clients[c] = open_client(w->runtime, "client", 0, 0);
    for (int s = 1; s < STREAMS; s++) /* the first is the host's */
        ok(weir_stream_acquire(w->runtime, &w->streams[s]));
    for (int step = 0; step < steps; step++) {
        uint64_t what = next_random(&w->random) % 100;
        if (what < 55)
            allocate_one(w);
        else if (what < 80)
            free_one(w);
        else if (what < 97)
            resize_one(w);
        else
            ok(weir_runtime_trim(w->runtime,
                                 &(weir_trim_options){.struct_size = sizeof(weir_trim_options),
                                                      .keep = next_random(&w->random) % budget},
                                 NULL));
        check_world(w);
    }
    assert_true(w->met > (size_t)steps / 10 && w->refused > 0);
    print_message("budget %llu: %zu met, %zu refused, %zu of them in pieces\n", (unsigned long long)budget, w->met,
                  w->refused, w->fragmented);
    while (w->count)
        free_one(w);
    check_empty(w->runtime);
    ok(weir_runtime_trim(w->runtime, NULL, NULL));
    assert_int_equal(take_snapshot(w->runtime).device.held, 0);
    for (int c = 0; c < CLIENTS; c++)
        ok(weir_client_destroy(w->clients[c]));
    for (int s = 1; s < STREAMS; s++)
        ok(weir_stream_release(w->streams[s]));
    ok(weir_runtime_destroy(w->runtime));
    free(w);
}

static void tight_budgets(void **state)
{
    (void)state;
    run_trace(12 * GRANULE, 1, 1500);
    run_trace(12 * GRANULE + 1000, 2, 1500); /* no multiple of a handle */
    run_trace(40 * GRANULE, 3, 1500);
}

static void wider_budgets(void **state)
{
    (void)state;
    run_trace(100 * GRANULE + 256, 4, 1000);
    run_trace(300 * GRANULE, 5, 700);
}

/* What one side leaves free serves the other, and what was cached for one serves all. */
static void all_of_the_budget_can_be_had(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(8 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *blocks[128];
    for (int round = 0; round < 4; round++) {
        weir_class memory_class = round % 2 ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH;
        uint64_t size = 64 * KIB << round;
        size_t count = 8 * MIB / size;
        for (size_t i = 0; i < count; i++)
            blocks[i] = allocate(client, size, WEIR_STREAM_HOST, memory_class);
        for (size_t i = 0; i < count; i++)
            ok(weir_free(client, blocks[(i * 37) % count], WEIR_STREAM_HOST));
    }
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Of several free pieces the smallest that will do, down to the exact one, without a call of the driver. */
static void the_best_of_the_free_pieces(void **state)
{
    (void)state;
    enum { PIECES = 6 };
    static const uint64_t units[PIECES] = {45, 33, 37, 34, 36, 35};
    static const struct {
        uint64_t scale, more;
    } rounds[] = {{256, 0}, {1024, 0}, {4096, 0}, {256, 992}}; /* in the last they share a bin, whatever the bins are */
    for (size_t round = 0; round < sizeof rounds / sizeof rounds[0]; round++) {
        uint64_t scale = rounds[round].scale, more = rounds[round].more;
        weir_runtime *runtime = make_runtime(8 * MIB);
        weir_client *client = open_client(runtime, "x", 0, 0);
        void *pieces[PIECES], *between[PIECES];
        for (int i = 0; i < PIECES; i++) {
            pieces[i] = allocate(client, (units[i] + more) * scale, WEIR_STREAM_HOST, WEIR_CLASS_KV);
            between[i] =
                allocate(client, round == 0 ? 256 : 20 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* of their side */
        }
        for (int i = 0; i < PIECES; i++)
            ok(weir_free(client, pieces[i], WEIR_STREAM_HOST));
        uint64_t calls = take_snapshot(runtime).device.driver_calls;
        for (int i = 0; i < PIECES; i++) {
            void *exact = allocate(client, (units[i] + more) * scale, WEIR_STREAM_HOST, WEIR_CLASS_KV);
            assert_ptr_equal(exact, pieces[i]);
            ok(weir_free(client, exact, WEIR_STREAM_HOST));
        }
        void *best = allocate(client, (units[1] + more) * scale - scale / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_ptr_equal(best, pieces[1]);
        void *second = allocate(client, (units[1] + more) * scale - scale / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_ptr_equal(second, pieces[3]);
        assert_int_equal(take_snapshot(runtime).device.driver_calls, calls);
        ok(weir_free(client, best, WEIR_STREAM_HOST));
        ok(weir_free(client, second, WEIR_STREAM_HOST));
        for (int i = 0; i < PIECES; i++)
            ok(weir_free(client, between[i], WEIR_STREAM_HOST));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
    }
}

/* A block that fits only where it shares the handle of the block behind it. */
static void the_right_end_of_a_gap(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(5 * GRANULE);
    weir_client *client = open_client(runtime, "x", 0, 0);
    char *a = allocate(client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    char *gap = allocate(client, 2 * GRANULE + GRANULE / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    char *b = allocate(client, GRANULE / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(b, gap + 2 * GRANULE + GRANULE / 2);
    ok(weir_free(client, gap, WEIR_STREAM_HOST));
    char *w = allocate(client, 2 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS); /* one handle is left */
    char *p = allocate(client, GRANULE + GRANULE / 4, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_true(p + GRANULE + GRANULE / 4 <= b && p > a);
    memset(p, 1, GRANULE + GRANULE / 4);
    void *all[] = {a, b, w, p};
    for (int i = 0; i < 4; i++)
        ok(weir_free(client, all[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Memory that was made for one long block is cut up, and what every second of 64 short ones frees is had as one again: handles that
 * are as long as the long block allows would be shared by neighbours, and stay with the one that lives. */
static void every_second_of_many_makes_room_for_one(void **state)
{
    (void)state;
    enum { PIECES = 64, TAKEN = 30 };
    weir_runtime *runtime = make_runtime(16 * MIB + PIECES * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *first = allocate(client, 16 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), *pieces[PIECES];
    ok(weir_free(client, allocate(client, TAKEN * MIB, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS), WEIR_STREAM_HOST));
    for (int i = 0; i < PIECES; i++)
        pieces[i] = allocate(client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    for (int i = 0; i < PIECES; i += 2)
        ok(weir_free(client, pieces[i], WEIR_STREAM_HOST));
    ok(weir_free(client, allocate(client, TAKEN * MIB, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS), WEIR_STREAM_HOST));
    for (int i = 1; i < PIECES; i += 2)
        ok(weir_free(client, pieces[i], WEIR_STREAM_HOST));
    ok(weir_free(client, first, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Two streams by turns, for which handles would have to be moved each time: rather a little more is held in the end. */
static void what_would_be_moved_forever_is_made(void **state)
{
    (void)state;
    enum { TURNS = 600, VALUES = 3 };
    static const size_t sizes[VALUES] = {147 * KIB, 588 * KIB, 344 * KIB};
    weir_runtime *runtime = make_runtime(4096 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *weights = allocate(client, 32 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    weir_stream streams[2];
    uint64_t moved = 0;
    for (int i = 0; i < 2; i++)
        ok(weir_stream_acquire(runtime, &streams[i]));
    for (int i = 0; i < TURNS; i++) {
        weir_stream stream = streams[i % 2];
        void *input = allocate(client, sizes[0], stream, WEIR_CLASS_ACTIVATIONS);
        void *values = allocate(client, sizes[1], stream, WEIR_CLASS_ACTIVATIONS);
        for (int kernel = 0; kernel < 2; kernel++)
            ok(weir_free(client, allocate(client, sizes[2], stream, WEIR_CLASS_ACTIVATIONS), stream));
        void *answer = allocate(client, 3200, stream, WEIR_CLASS_ACTIVATIONS);
        ok(weir_free(client, values, stream));
        ok(weir_free(client, input, stream));
        ok(weir_free(client, answer, stream));
        ok(weir_stream_synchronize(stream));
        if (i == TURNS / 2)
            moved = take_snapshot(runtime).device.moved;
    }
    weir_stats last = take_snapshot(runtime).device;
    assert_true(moved > 0);
    assert_int_equal(last.moved, moved);
    assert_true(last.held < 3 * (sizes[0] + sizes[1] + sizes[2]) / 2);
    ok(weir_free(client, weights, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    for (int i = 0; i < 2; i++)
        ok(weir_stream_release(streams[i]));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    setenv("WEIR_THREAD_CACHE", "0", 1); /* what is freed is pending, and no thread cache keeps it */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_the_free_pieces),
        cmocka_unit_test(the_right_end_of_a_gap),
        cmocka_unit_test(all_of_the_budget_can_be_had),
        cmocka_unit_test(every_second_of_many_makes_room_for_one),
        cmocka_unit_test(what_would_be_moved_forever_is_made),
        cmocka_unit_test(tight_budgets),
        cmocka_unit_test(wider_budgets),
    };
    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
