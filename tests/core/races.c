/* One block, freed by several threads at once while others shrink it and allocate where it was: one of them frees it, and
 * nobody reads what another thread writes into its record (ThreadSanitizer sees to that). */
#include "info.h"
#include "core.h"
#include <weir/trace.h>

#include <stdatomic.h>

enum { FREERS = 3, BLOCKS = 16, AGAIN = 10, BYTES = 3000 };

typedef struct race {
    weir_client *client, *other;
    weir_stream stream;
    weir_block blocks[BLOCKS];
    _Atomic(void *) addresses[BLOCKS];
    int rounds;
    pthread_barrier_t begin, end;
    atomic_int freed, told, otherwise;
    atomic_bool over;
} race;

static weir_block allocate_block(weir_client *client, weir_stream stream)
{
    weir_request request = {
        .struct_size = sizeof request, .bytes = BYTES, .stream = stream, .memory_class = WEIR_CLASS_SCRATCH};
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    return block;
}

static void allocate_all(race *r)
{
    for (int i = 0; i < BLOCKS; i++) {
        r->blocks[i] = allocate_block(r->client, r->stream);
        atomic_store(&r->addresses[i], r->blocks[i].pointer);
    }
}

static void *free_all(void *user)
{
    race *r = user;
    for (int round = 0; round < r->rounds; round++) {
        pthread_barrier_wait(&r->begin);
        for (int i = 0; i < BLOCKS * AGAIN; i++) {
            weir_status status = weir_free_block(r->client, r->blocks[i % BLOCKS], r->stream);
            bool told = status == WEIR_ERR_DOUBLE_FREE || status == WEIR_ERR_BUSY || status == WEIR_ERR_STALE;
            told |= status == WEIR_ERR_FOREIGN || status == WEIR_ERR_INTERIOR; /* others lie in what was cut off one */
            atomic_int *count = status == WEIR_OK ? &r->freed : told ? &r->told : &r->otherwise;
            atomic_fetch_add(count, 1);
        }
        pthread_barrier_wait(&r->end);
    }
    return NULL;
}

/* Shrinks what others free: by its address alone, which may be another client's by then, or nobody's. */
static void *shrink_all(void *user)
{
    race *r = user;
    while (!atomic_load(&r->over))
        for (int i = 0; i < BLOCKS; i++)
            (void)!weir_resize(r->client, atomic_load(&r->addresses[i]), BYTES / 2, r->stream);
    return NULL;
}

/* Another client's blocks of the same size come to lie where the freed ones were. */
static void *take_and_give(void *user)
{
    race *r = user;
    while (!atomic_load(&r->over)) {
        weir_block blocks[4];
        for (int i = 0; i < 4; i++)
            blocks[i] = allocate_block(r->other, r->stream);
        for (int i = 0; i < 4; i++)
            ok(weir_free_block(r->other, blocks[i], r->stream));
    }
    return NULL;
}

/* What looks from elsewhere meanwhile. */
static void *look_about(void *user)
{
    race *r = user;
    weir_runtime *runtime = client_details(r->client).runtime;
    for (int round = 0; !atomic_load(&r->over); round++) {
        weir_block_details d = WEIR_INIT(weir_block_details);
        ok(weir_block_info(atomic_load(&r->addresses[0]), &d));
        take_snapshot(runtime);
        if (round % 32 == 0) {
            weir_trace *trace; /* which begins with every live block */
            ok(weir_trace_create(
                runtime, &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = 1024}, &trace));
            weir_trace_destroy(trace);
        }
    }
    return NULL;
}

static void race_of(const char *cache, weir_stream on)
{
    setenv("WEIR_THREAD_CACHE", cache, 1);
    weir_runtime *runtime = make_runtime(16 * MIB);
    race r = {.client = open_client(runtime, "one", 0, 0),
              .other = open_client(runtime, "other", 0, 0),
              .stream = on,
              .rounds = getenv("WEIR_SANITIZED") ? 40 : 200};
    pthread_t freers[FREERS], others[3];
    pthread_barrier_init(&r.begin, NULL, FREERS + 1);
    pthread_barrier_init(&r.end, NULL, FREERS + 1);
    for (int i = 0; i < FREERS; i++)
        assert_int_equal(pthread_create(&freers[i], NULL, free_all, &r), 0);
    allocate_all(&r);
    void *(*const roles[])(void *) = {take_and_give, look_about, shrink_all};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&others[i], NULL, roles[i], &r), 0);
    for (int round = 0; round < r.rounds; round++) {
        pthread_barrier_wait(&r.begin);
        pthread_barrier_wait(&r.end);
        for (int i = 0; i < BLOCKS; i++) {
            weir_status status;
            while ((status = weir_free_block(r.client, r.blocks[i], r.stream)) == WEIR_ERR_BUSY)
                ; /* it was being shrunk whenever it was to be freed, and still is */
            atomic_fetch_add(status == WEIR_OK ? &r.freed : &r.told, 1);
        }
        if (round + 1 < r.rounds)
            allocate_all(&r);
    }
    for (int i = 0; i < FREERS; i++)
        pthread_join(freers[i], NULL);
    atomic_store(&r.over, true);
    for (int i = 0; i < 3; i++)
        pthread_join(others[i], NULL);
    assert_int_equal(atomic_load(&r.otherwise), 0);
    assert_int_equal(atomic_load(&r.freed), r.rounds * BLOCKS);
    assert_int_equal(atomic_load(&r.told), r.rounds * BLOCKS * FREERS * AGAIN);
    pthread_barrier_destroy(&r.begin);
    pthread_barrier_destroy(&r.end);
    ok(weir_client_destroy(r.client));
    ok(weir_client_destroy(r.other));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

static void without_thread_caches(void **state)
{
    (void)state;
    race_of("0", WEIR_STREAM_HOST);
}

static void with_thread_caches(void **state)
{
    (void)state;
    race_of("1MiB", WEIR_STREAM_HOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_thread_caches), cmocka_unit_test(with_thread_caches)};
    return cmocka_run_group_tests_name("races", tests, NULL, NULL);
}
