/* The resource segments where its rules cannot be kept, blocks that are resized, and what chance, threads and faults do to it. */
#include "bases_segments.h"

/* Where the rules cannot be kept ----------------------------------------------------------------------------------- */

/* What is wholly free goes back for a segment, and no more of it than is needed. */
static void idle_segments_make_room(void **state)
{
    (void)state;
    fixture f = start(34 * MIB);
    char *small = take(&f, 1000), *large = take(&f, 12 * MIB), *larger = take(&f, 14 * MIB);
    give(&f, small);
    give(&f, large);
    give(&f, larger);
    assert_int_equal(stats_of(f.runtime).held, 28 * MIB);
    char *p = take(&f, 5 * MIB); /* fits in what is there */
    assert_int_equal(script.released, 0);
    give(&f, p);
    p = take(&f, 20 * MIB); /* 6 MiB are left: those go that have been idle for longest, until there is room */
    assert_int_equal(script.asked, 20 * MIB);
    assert_int_equal(script.released, 16 * MIB);
    assert_int_equal(stats_of(f.runtime).held, 32 * MIB);
    give(&f, p);
    end(&f);
}

static void shorter_segments(void **state)
{
    (void)state;
    fixture f = start(12 * MIB + 300 * KIB);
    char *p = take(&f, 5 * MIB);
    assert_int_equal(script.asked, 5 * MIB);
    char *q = take(&f, 7 * MIB + 1000);
    assert_int_equal(script.asked, 7 * MIB + 1024);
    char *r = take(&f, 1000);
    assert_int_equal(script.asked, 256 * KIB); /* half as long, until there is one */
    give(&f, p);
    give(&f, q);
    give(&f, r);
    end(&f);
}

/* A request that free memory of the other kind could serve is served by that. */
static void one_kind_helps_the_other(void **state)
{
    (void)state;
    fixture f = start(22 * MIB);
    char *large = take(&f, 5 * MIB), *one = take(&f, MIB), *two = take(&f, MIB), *small[100];
    assert_int_equal(stats_of(f.runtime).held, 22 * MIB);
    for (int i = 0; i < 100; i++) { /* small ones lie close there, too */
        small[i] = take(&f, 1000);
        assert_ptr_equal(small[i], large + 5 * MIB + 1024 * i);
    }
    assert_int_equal(script.pieces, 2);
    for (int i = 0; i < 100; i++)
        give(&f, small[i]);
    char *rest = take(&f, 15 * MIB);
    give(&f, one);
    char *pin = take(&f, 1);
    give(&f, two);
    char *q = take(&f, MIB + 700 * KIB); /* beside a small one */
    assert_ptr_equal(pin, one);
    assert_ptr_equal(q, one + 512);
    assert_int_equal(bytes_behind(&f, q), 0);
    give(&f, q);
    give(&f, pin);
    give(&f, rest);
    give(&f, large);
    end(&f);
}

static void a_device_that_is_full(void **state)
{
    (void)state;
    void *none;
    fixture f = start(128 * MIB);
    char *idle = take(&f, 12 * MIB);
    give(&f, idle);
    script.longest = 6 * MIB;
    char *p = take(&f, 6 * MIB);
    assert_ptr_equal(p, idle); /* the best fit */
    give(&f, p);
    ok(weir_runtime_trim(f.runtime, NULL, NULL));
    p = take(&f, 5 * MIB);
    assert_int_equal(script.asked, 5 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.two, 7 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &none));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_int_equal(stats_of(f.runtime).held, 5 * MIB);
    assert_int_equal(stats_of(f.runtime).promised, 0);
    script.longest = 0;
    give(&f, p);
    end(&f);
}

static void a_refusal_tells_what_there_is(void **state)
{
    (void)state;
    void *none;
    fixture f = start(24 * MIB);
    char *p = take(&f, 5 * MIB), *q = take(&f, 5 * MIB);
    give(&f, p); /* 5 free, 5 live, 10 free in one segment, and 4 that the budget leaves */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.one, 11 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &none));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_FRAGMENTATION);
    assert_int_equal(last_refusal().largest, 10 * MIB);
    assert_int_equal(last_refusal().needed, 31 * MIB);
    give(&f, q);
    p = take(&f, 11 * MIB);
    give(&f, p);
    end(&f);
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static void resizing(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    char *p = take(&f, 6 * MIB), *q = take(&f, 2 * MIB);
    memset(p, 7, 6 * MIB);
    ok(weir_resize(f.one, p, 5 * MIB, WEIR_STREAM_HOST)); /* exactly 1 MiB stays behind it */
    assert_int_equal(stats_of(f.runtime).live, 7 * MIB);
    assert_int_equal(bytes_behind(&f, p), MIB);
    fails(WEIR_ERR_NO_ROOM, weir_resize(f.one, p, 6 * MIB + 1, WEIR_STREAM_HOST));
    ok(weir_resize(f.one, p, 6 * MIB, WEIR_STREAM_HOST));
    assert_int_equal(stats_of(f.runtime).live, 8 * MIB);
    ok(weir_resize(f.one, p, 5 * MIB - 512, WEIR_STREAM_HOST)); /* a tail of more */
    assert_int_equal(bytes_behind(&f, p), 0);
    assert_ptr_equal(take(&f, MIB + 512), p + 5 * MIB - 512);
    give(&f, p + 5 * MIB - 512);
    ok(weir_resize(f.one, p, 5 * MIB, WEIR_STREAM_HOST)); /* all of what is free there: 1 MiB is no rest */
    assert_int_equal(bytes_behind(&f, p), MIB);
    ok(weir_resize(f.one, q, 3 * MIB, WEIR_STREAM_HOST));
    assert_int_equal(bytes_behind(&f, q), 0);
    for (uint64_t i = 0; i < 5 * MIB - 512; i += 4096)
        assert_int_equal(p[i], 7);
    give(&f, p);
    give(&f, q);
    assert_int_equal(f.base->first->region.first->bytes, 20 * MIB);
    end(&f);
}

/* What another left behind a block is no more the block's client's to read than what lies elsewhere. */
static void secrets_behind_a_block(void **state)
{
    (void)state;
    fixture f = start(128 * MIB);
    weir_client *secret;
    ok(weir_client_create(f.runtime,
                          &(weir_client_options){
                              .struct_size = sizeof(weir_client_options), .name = "secret", .scrub = WEIR_SCRUB_OTHERS},
                          &secret));
    char *p = allocate(secret, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV), *rest = take(&f, 17 * MIB);
    memset(p, 0x5e, 3 * MIB);
    ok(weir_free(secret, p, WEIR_STREAM_HOST));
    assert_ptr_equal(take(&f, 2 * MIB), p); /* scrubbed, and 1 MiB behind it is not */
    assert_int_equal(bytes_behind(&f, p), MIB);
    assert_int_equal(p[0] | p[2 * MIB - 1], 0);
    assert_int_equal(p[2 * MIB], 0x5e);
    ok(weir_resize(f.one, p, 2 * MIB + 512 * KIB, WEIR_STREAM_HOST));
    assert_int_equal(p[2 * MIB] | p[2 * MIB + 512 * KIB - 1], 0);
    give(&f, p);
    assert_ptr_equal(take(&f, 3 * MIB), p);
    for (uint64_t i = 0; i < 3 * MIB; i++)
        assert_int_equal(p[i], 0);
    give(&f, p);
    give(&f, rest);
    ok(weir_client_destroy(secret));
    end(&f);
}

/* Chance ----------------------------------------------------------------------------------------------------------- */

static uint64_t random_size(uint64_t *seed)
{
    uint64_t most = (uint64_t)1 << (next_random(seed) % 16 + 8);
    return 1 + next_random(seed) % (next_random(seed) % 8 == 0 ? 12 * MIB : most);
}

/* No two blocks have a byte in common, what is held is what the driver gave, and all of it goes back. */
static void random_blocks(void **state)
{
    enum { BLOCKS = 64, STEPS = 4000 };
    (void)state;
    fixture f = start(96 * MIB);
    struct {
        unsigned char *start;
        uint64_t bytes;
        weir_stream stream;
    } blocks[BLOCKS] = {0};
    uint64_t seed = 42, refused = 0;
    for (int i = 0; i < STEPS; i++) {
        uint64_t k = next_random(&seed) % BLOCKS;
        unsigned char mark = (unsigned char)(k + 1);
        if (blocks[k].start) {
            assert_true(blocks[k].start[0] == mark && blocks[k].start[blocks[k].bytes - 1] == mark);
            ok(weir_free(f.one, blocks[k].start, blocks[k].stream));
            blocks[k].start = NULL;
            continue;
        }
        void *p;
        blocks[k].bytes = random_size(&seed);
        blocks[k].stream = next_random(&seed) % 2 ? f.a : f.b;
        if (weir_alloc(f.one, blocks[k].bytes, blocks[k].stream, WEIR_CLASS_KV, &p) == WEIR_OK) {
            blocks[k].start = p;
            memset(p, mark, 1);
            memset(blocks[k].start + blocks[k].bytes - 1, mark, 1);
        } else {
            refused++;
        }
        if (i % 500 == 499)
            ok(weir_runtime_trim(
                f.runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = (uint64_t)i * 4096},
                NULL));
        assert_int_equal(stats_of(f.runtime).held, f.base->held);
    }
    print_message("%llu of %d requests were refused, %llu pieces of the driver's\n", (unsigned long long)refused,
                  STEPS / 2, (unsigned long long)script.pieces);
    for (int k = 0; k < BLOCKS; k++)
        if (blocks[k].start)
            ok(weir_free(f.one, blocks[k].start, blocks[k].stream));
    ok(weir_stream_synchronize(f.a));
    ok(weir_stream_synchronize(f.b));
    ok(weir_runtime_trim(f.runtime, NULL, NULL));
    assert_int_equal(stats_of(f.runtime).held, 0);
    end(&f);
}

/* Threads want more than there is, so that segments come and go under them all the time. */
typedef struct worker {
    const fixture *f;
    uint64_t seed, served;
    bool damaged;
} worker;

static void *work(void *user)
{
    enum { OWN = 4, ROUNDS = 300 };
    worker *w = user;
    unsigned char *blocks[OWN] = {0}, mark = (unsigned char)w->seed;
    uint64_t bytes[OWN] = {0};
    for (int i = 0; i < ROUNDS + OWN; i++) {
        uint64_t k = (uint64_t)i % OWN;
        weir_stream stream = next_random(&w->seed) % 2 ? w->f->a : w->f->b;
        if (blocks[k]) {
            w->damaged |= blocks[k][0] != mark || blocks[k][bytes[k] - 1] != mark;
            w->damaged |= weir_free(w->f->one, blocks[k], stream) != WEIR_OK;
            blocks[k] = NULL;
        }
        void *p;
        bytes[k] = random_size(&w->seed);
        if (i < ROUNDS && weir_alloc(w->f->one, bytes[k], stream, WEIR_CLASS_KV, &p) == WEIR_OK) {
            w->served++;
            blocks[k] = p;
            blocks[k][0] = blocks[k][bytes[k] - 1] = mark;
        }
        if (i % 16 == 15 && weir_runtime_trim(w->f->runtime, NULL, NULL) != WEIR_OK)
            w->damaged = true;
    }
    return NULL;
}

static void threads(void **state)
{
    enum { THREADS = 4 };
    (void)state;
    fixture f = start(24 * MIB);
    worker workers[THREADS];
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = &f, .seed = 11 + (uint64_t)i};
        assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        assert_false(workers[i].damaged);
        assert_true(workers[i].served > 50);
    }
    ok(weir_stream_synchronize(f.a));
    ok(weir_stream_synchronize(f.b));
    ok(weir_runtime_trim(f.runtime, NULL, NULL));
    assert_int_equal(stats_of(f.runtime).held, 0);
    assert_int_equal(records(&f), 0);
    end(&f);
}

static void faults_lose_nothing(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_ERR_DRIVER, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DEVICE_LOST};
    for (int i = 0; i < 3; i++)
        a_fault_at_every_call("segments", statuses[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_segments_make_room),
        cmocka_unit_test(shorter_segments),
        cmocka_unit_test(one_kind_helps_the_other),
        cmocka_unit_test(a_device_that_is_full),
        cmocka_unit_test(a_refusal_tells_what_there_is),
        cmocka_unit_test(resizing),
        cmocka_unit_test(secrets_behind_a_block),
        cmocka_unit_test(random_blocks),
        cmocka_unit_test(threads),
        cmocka_unit_test(faults_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
