/* The resource blocks from the inside: its extent, its runs, and the bitmap call that they rest on. */
#include "bases.h"
#include "base/bitmap.h"

enum { BLOCK = 4096, WHOLE = 256 * BLOCK };

static void places_are_taken_where_they_stand(void **state)
{
    (void)state;
    enum { PLACES = 700 };
    wi_bitmap bitmap;
    bool taken[PLACES] = {false};
    uint64_t random = 17;
    assert_true(wi_bitmap_init(&bitmap, PLACES));
    for (int step = 0; step < 20000; step++) {
        uint32_t first = (uint32_t)(next_random(&random) % PLACES);
        uint32_t count = 1 + (uint32_t)(next_random(&random) % (step % 7 ? 40 : 300));
        bool possible = first + count <= PLACES;
        for (uint32_t i = first; possible && i < first + count; i++)
            possible = !taken[i];
        if (taken[first]) {
            wi_bitmap_give_one(&bitmap, first);
            taken[first] = false;
            continue;
        }
        assert_int_equal(wi_bitmap_take_at(&bitmap, first, count), possible);
        for (uint32_t i = first; possible && i < first + count; i++)
            taken[i] = true;
        uint32_t longest = 0;
        for (uint32_t i = 0, run = 0; i < PLACES; i++) {
            run = taken[i] ? 0 : run + 1;
            longest = run > longest ? run : longest;
        }
        if (step % 50 == 0)
            assert_int_equal(wi_bitmap_longest(&bitmap), longest);
    }
    wi_bitmap_destroy(&bitmap);
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one, *two;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    faults_reset(-1);
    f->runtime = make_over(&faulty_driver, "blocks(4KiB, size=1MiB)", 64 * MIB);
    f->one = open_client(f->runtime, "one", 0, 0);
    f->two = open_client(f->runtime, "two", 0, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_client_close(f->one));
    ok(weir_client_close(f->two));
    end_over(f->runtime);
    free(f);
    return 0;
}

static void the_text_form(void **state)
{
    (void)state;
    char text[80];
    static const char *const wrong[] = {"blocks(3000)",
                                        "blocks(64KiB, 32KiB, many=3)",
                                        "blocks(64KiB, 128KiB)",
                                        "blocks(size=1MiB, size=1MiB)",
                                        "blocks(0)",
                                        "blocks(64KiB, size=some)",
                                        "blocks(128)",
                                        "direct(256)",
                                        "async(4KiB)",
                                        "blocks(mapped)"};
    faults_reset(-1);
    weir_runtime *runtime = make_over(&faulty_driver, "blocks( 16KiB , size=3MiB)", 64 * MIB);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * MIB};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weir_runtime *none;
        options.resource = wrong[i];
        fails(WEIR_ERR_INVALID, wi_runtime_create_over(&faulty_driver, 0, &options, &none));
    }
    assert_string_equal(weir_runtime_resource(runtime, text, sizeof text), "budget(blocks(16KiB, size=3MiB))");
    end_over(runtime);
}

/* What is charged, found and told of runs. */
static void runs_and_charges(void **state)
{
    fixture *f = *state;
    char *p = allocate(f->one, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV),
         *q = allocate(f->two, BLOCK + 1, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    weir_stats s = stats_of(f->runtime);
    assert_int_equal(s.live, 3 * BLOCK);
    assert_int_equal(s.held, WHOLE);
    assert_int_equal(s.cached, WHOLE - 3 * BLOCK);
    assert_ptr_equal(q, p + BLOCK);
    assert_int_equal(details_of(q + 2 * BLOCK - 1).charged, 2 * BLOCK);
    assert_int_equal(details_of(q + 2 * BLOCK - 1).offset, 2 * BLOCK - 1);
    assert_int_equal(details_of(q + 2 * BLOCK).state, WEIR_BLOCK_FREE);
    fails(WEIR_ERR_INTERIOR, weir_free(f->two, q + BLOCK, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_free(f->two, q + 2 * BLOCK, WEIR_STREAM_HOST));
    fails(WEIR_ERR_NO_ROOM, weir_resize(f->one, p, BLOCK + 1, WEIR_STREAM_HOST));
    detail_names("two");
    ok(weir_resize(f->two, q, 10 * BLOCK, WEIR_STREAM_HOST));
    assert_int_equal(details_of(q + 9 * BLOCK).charged, 10 * BLOCK);
    ok(weir_resize(f->two, q, 2 * BLOCK + 1, WEIR_STREAM_HOST)); /* whole blocks alone are given back */
    assert_int_equal(details_of(q).charged, 3 * BLOCK);
    assert_int_equal(details_of(q + 3 * BLOCK).state, WEIR_BLOCK_FREE);
    fails(WEIR_ERR_NO_ROOM, weir_resize(f->two, q, 256 * BLOCK, WEIR_STREAM_HOST));
    detail_names("ends");
    ok(weir_resize(f->two, q, 255 * BLOCK, WEIR_STREAM_HOST));
    ok(weir_free(f->two, q, WEIR_STREAM_HOST));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->two, q, WEIR_STREAM_HOST));
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    p = allocate(f->one, 4 * BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    fails(WEIR_ERR_INTERIOR, weir_free(f->one, q, WEIR_STREAM_HOST)); /* it serves again */
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN,
          weir_free(f->one, q, WEIR_STREAM_HOST)); /* what is remembered is the block that served last */
}

static void alignments_beyond_a_block(void **state)
{
    fixture *f = *state;
    weir_block blocks[8];
    char *small[8];
    for (size_t i = 0; i < 8; i++) {
        small[i] = allocate(f->one, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        weir_request request = {
            .struct_size = sizeof request, .bytes = 3 * BLOCK, .alignment = i < 4 ? 16 * BLOCK : 256 << i};
        ok(weir_alloc_with(f->one, &request, &blocks[i]));
        assert_int_equal((uintptr_t)blocks[i].pointer % request.alignment, 0);
        assert_int_equal(details_of(blocks[i].pointer).charged, 3 * BLOCK);
    }
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .alignment = WHOLE};
    weir_block none;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &none)); /* the only such place is taken */
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_FRAGMENTATION);
    for (size_t i = 0; i < 8; i++) {
        ok(weir_free(f->one, small[i], WEIR_STREAM_HOST));
        ok(weir_free_block(f->one, blocks[i], WEIR_STREAM_HOST));
    }
}

/* Runs against a model of places: none is given twice, and a refusal tells the longest run. */
static void runs_against_a_model(void **state)
{
    fixture *f = *state;
    enum { MOST = 60 };
    struct {
        char *start;
        uint32_t blocks;
    } runs[MOST] = {{NULL, 0}};
    bool used[WHOLE / BLOCK] = {false};
    char *base = allocate(f->one, WHOLE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(f->one, base, WEIR_STREAM_HOST));
    uint64_t random = 5, total = 0, refused = 0;
    for (int step = 0; step < 20000; step++) {
        size_t i = next_random(&random) % MOST;
        uint32_t blocks = 1 + (uint32_t)(next_random(&random) % 30), longest = 0;
        if (runs[i].start && step % 3) {
            blocks = runs[i].blocks;
            ok(weir_free(f->one, runs[i].start, WEIR_STREAM_HOST));
            memset(used + (runs[i].start - base) / BLOCK, 0, blocks);
            runs[i].start = NULL;
            total -= blocks;
            continue;
        }
        if (runs[i].start) {
            size_t first = (size_t)(runs[i].start - base) / BLOCK, end = first + runs[i].blocks;
            bool fits = first + blocks <= WHOLE / BLOCK;
            for (size_t k = end; fits && k < first + blocks; k++)
                fits = !used[k];
            weir_status status = weir_resize(f->one, runs[i].start, blocks * (size_t)BLOCK, WEIR_STREAM_HOST);
            assert_int_equal(status, fits ? WEIR_OK : WEIR_ERR_NO_ROOM);
            if (!fits)
                continue;
            memset(used + first, 0, runs[i].blocks);
            memset(used + first, 1, blocks);
            total += blocks - (uint64_t)runs[i].blocks;
            runs[i].blocks = blocks;
            continue;
        }
        void *p;
        weir_status status = weir_alloc(f->one, blocks * (size_t)BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p);
        for (size_t k = 0, run = 0; k < WHOLE / BLOCK; k++) {
            run = used[k] ? 0 : run + 1;
            longest = run > longest ? (uint32_t)run : longest;
        }
        assert_int_equal(status, blocks <= longest ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY);
        if (status != WEIR_OK) {
            assert_int_equal(last_refusal().largest, (uint64_t)longest * BLOCK);
            refused++;
            continue;
        }
        size_t first = (size_t)((char *)p - base) / BLOCK;
        for (size_t k = first; k < first + blocks; k++) {
            assert_false(used[k]);
            used[k] = true;
        }
        runs[i].start = p;
        runs[i].blocks = blocks;
        total += blocks;
        assert_int_equal(stats_of(f->runtime).live, total * BLOCK);
    }
    assert_true(refused > 50);
    for (size_t i = 0; i < MOST; i++)
        ok(weir_free(f->one, runs[i].start, WEIR_STREAM_HOST));
}

/* The next owner of a run gets zeros where a client asks for it, whoever of several had its places. */
static void places_know_whose_they_were(void **state)
{
    fixture *f = *state;
    weir_client_options o = {.struct_size = sizeof o, .name = "secret", .scrub = WEIR_SCRUB_OTHERS};
    weir_client *secret;
    ok(weir_client_open(f->runtime, &o, &secret));
    unsigned char *a = allocate(f->one, WHOLE / 4, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    unsigned char *b = allocate(secret, WHOLE / 4, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    unsigned char *c = allocate(f->one, WHOLE / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    memset(a, 1, WHOLE);
    ok(weir_free(f->one, a, WEIR_STREAM_HOST));
    ok(weir_free(secret, b, WEIR_STREAM_HOST));
    ok(weir_free(f->one, c, WEIR_STREAM_HOST));
    a = allocate(f->one, WHOLE / 4, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* its own bytes: as it left them */
    assert_int_equal(a[0], 1);
    assert_int_equal(a[WHOLE / 4 - 1], 1);
    ok(weir_resize(f->one, a, WHOLE / 4 + BLOCK, WEIR_STREAM_HOST)); /* the first of the other's */
    assert_int_equal(a[WHOLE / 4 - 1], 1);
    assert_int_equal(a[WHOLE / 4], 0);
    ok(weir_free(f->one, a, WEIR_STREAM_HOST));
    a = allocate(f->one, WHOLE, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* some of it the other's */
    for (size_t i = 0; i < WHOLE; i += 509)
        assert_int_equal(a[i], 0);
    ok(weir_free(f->one, a, WEIR_STREAM_HOST));
    ok(weir_client_close(secret));
}

/* A tail is free when the device is past all uses of the whole. */
static void a_tail_has_the_uses_of_the_whole(void **state)
{
    fixture *f = *state;
    weir_stream stream;
    weir_launch *launch;
    gate g = GATE;
    ok(weir_stream_acquire(f->runtime, &stream));
    void *p = allocate(f->one, 10 * BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    weir_use use = {.block = details_of(p).block, .access = WEIR_ACCESS_READ};
    ok(weir_launch_begin(f->runtime, stream, &use, 1, &launch));
    ok(weir_call(f->runtime, pass_gate, &g, stream));
    ok(weir_launch_end(launch));
    ok(weir_resize(f->one, p, 4 * BLOCK, WEIR_STREAM_HOST));
    assert_int_equal(stats_of(f->runtime).pending, 6 * BLOCK);
    fails(WEIR_ERR_NO_ROOM, weir_resize(f->one, p, 5 * BLOCK, WEIR_STREAM_HOST));
    open_gate(&g);
    ok(weir_stream_release(stream));
    assert_int_equal(stats_of(f->runtime).pending, 0);
    ok(weir_resize(f->one, p, 5 * BLOCK, WEIR_STREAM_HOST));
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
}

/* The extent ------------------------------------------------------------------------------------------------------- */

static void the_extent_is_what_the_budget_leaves(void **state)
{
    (void)state;
    faults_reset(-1);
    weir_runtime *runtime = make_over(&faulty_driver, "blocks", 8 * GRANULE + 100);
    weir_client *client = open_client(runtime, "x", 0, 0);
    assert_int_equal(stats_of(runtime).held, 0);
    void *p = allocate(client, 8 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV), *q;
    assert_int_equal(stats_of(runtime).held, 8 * GRANULE);
    assert_int_equal(stats_of(runtime).driver_calls, 1);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_runtime_set_budget(runtime, 4 * GRANULE)); /* empty, it can be given back */
    p = allocate(client, 4 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_int_equal(stats_of(runtime).held, 4 * GRANULE);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_runtime_set_budget(runtime, 32 * GRANULE));
    p = allocate(client, 20 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* and be taken anew */
    assert_int_equal(stats_of(runtime).held, 32 * GRANULE);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 33 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    ok(weir_client_close(client));
    end_over(runtime);
}

static void a_smaller_device_gives_a_smaller_extent(void **state)
{
    (void)state;
    faults_reset(-1);
    fault.limit = 10;
    weir_runtime *runtime = make_over(&faulty_driver, "blocks", 64 * GRANULE);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p = allocate(client, 8 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV), *q;
    assert_int_equal(stats_of(runtime).held, 8 * GRANULE);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    assert_int_equal(last_refusal().largest, 0);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    fault.limit = 1;
    ok(weir_runtime_trim(runtime, 0, NULL));
    fault.limit = 0;
    fault.fail_at = fault.calls;
    fault.status = WEIR_ERR_OUT_OF_MEMORY;
    fault.stay = true;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_int_equal(stats_of(runtime).held, 0);
    fault.fail_at = -1;
    ok(weir_client_close(client));
    end_over(runtime);
}

typedef struct first {
    weir_client *client;
    void *block;
} first;

static void *allocate_first(void *user)
{
    first *f = user;
    return weir_alloc(f->client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV, &f->block) == WEIR_OK ? NULL : user;
}

static weir_status create_slowly(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    nanosleep(&(struct timespec){.tv_nsec = 3 * 1000 * 1000}, NULL);
    return faulty_driver.create(device, bytes, count, handles);
}

static void many_may_be_the_first(void **state)
{
    (void)state;
    wi_driver slow = faulty_driver;
    slow.create = create_slowly;
    for (int round = 0; round < 10; round++) {
        faults_reset(-1);
        weir_runtime *runtime = make_over(&slow, "blocks", 16 * GRANULE);
        first f[4];
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            f[i] = (first){.client = open_client(runtime, "x", 0, 0)};
            assert_int_equal(pthread_create(&threads[i], NULL, allocate_first, &f[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            void *failed;
            pthread_join(threads[i], &failed);
            assert_null(failed);
        }
        assert_int_equal(stats_of(runtime).held, 16 * GRANULE);
        assert_int_equal(fault.handles, 16);
        for (int i = 0; i < 4; i++) {
            ok(weir_free(f[i].client, f[i].block, WEIR_STREAM_HOST));
            ok(weir_client_close(f[i].client));
        }
        end_over(runtime);
    }
}

static void faults_lose_nothing(void **state)
{
    (void)state;
    a_fault_at_every_call("blocks", WEIR_ERR_DRIVER);
    a_fault_at_every_call("blocks(4KiB)", WEIR_ERR_OUT_OF_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_taken_where_they_stand),
        cmocka_unit_test(the_text_form),
        cmocka_unit_test_setup_teardown(runs_and_charges, set_up, tear_down),
        cmocka_unit_test_setup_teardown(alignments_beyond_a_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(runs_against_a_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(places_know_whose_they_were, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_tail_has_the_uses_of_the_whole, set_up, tear_down),
        cmocka_unit_test(the_extent_is_what_the_budget_leaves),
        cmocka_unit_test(a_smaller_device_gives_a_smaller_extent),
        cmocka_unit_test(many_may_be_the_first),
        cmocka_unit_test(faults_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
