/* Graphs of several threads at once, and blocks that are freed while theirs is closed. */
#include "graph.h"

enum { THREADS = 3, BLOCKS = 8 };

typedef struct worker {
    fixture *f;
    int number, wrong;
    void *blocks[BLOCKS]; /* of a graph that another thread closes */
} worker;

/* 1, and said on the thread that has its words, where a call fails. */
static int wrong(weir_status status, const char *what)
{
    if (status == WEIR_OK)
        return 0;
    print_error("%s: %s: %s\n", what, weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    return 1;
}

#define WRONG(call) wrong((call), #call)

static void *capture_often(void *user)
{
    worker *w = user;
    fixture *f = w->f;
    weir_stream stream = WEIR_STREAM_HOST;
    weir_capture_pool *graph = NULL;
    uint64_t random = 77 + (uint64_t)w->number;
    int rounds = UNDER_TSAN ? 30 : 200;
    w->wrong += WRONG(weir_stream_acquire(f->runtime, &stream)) + WRONG(weir_capture_pool_create(f->client, &graph));
    for (int round = 0; round < rounds && !w->wrong; round++) {
        void *blocks[BLOCKS];
        w->wrong += WRONG(weir_capture_begin(stream, graph));
        for (int i = 0; i < BLOCKS; i++)
            w->wrong += WRONG(
                weir_alloc(f->client, 256 + next_random(&random) % (BLOCK / 4), stream, WEIR_CLASS_KV, &blocks[i]));
        for (int i = 0; i < BLOCKS / 2; i++)
            w->wrong += WRONG(weir_free(f->client, blocks[i], stream));
        w->wrong += WRONG(weir_capture_end(stream, graph));
        for (int i = BLOCKS / 2; i < BLOCKS; i++)
            w->wrong += WRONG(weir_free(f->client, blocks[i], stream));
        if (round % 10 == 9)
            w->wrong +=
                WRONG(weir_capture_pool_destroy(graph, stream)) + WRONG(weir_capture_pool_create(f->client, &graph));
    }
    w->wrong += WRONG(weir_capture_pool_destroy(graph, stream)) + WRONG(weir_stream_release(stream));
    return NULL;
}

static void *free_all(void *user)
{
    worker *w = user;
    for (int i = 0; i < BLOCKS; i++)
        w->wrong += WRONG(weir_free(w->f->client, w->blocks[i], w->f->b));
    return NULL;
}

static void several_threads(void **state)
{
    fixture *f = *state;
    worker workers[THREADS];
    pthread_t threads[THREADS], freeing;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = f, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, capture_often, &workers[i]), 0);
    }
    for (int round = 0; round < (UNDER_TSAN ? 20 : 100); round++) { /* frees while it is closed */
        worker w = {.f = f};
        ok(weir_capture_begin(f->a, f->graph));
        for (int i = 0; i < BLOCKS; i++)
            w.blocks[i] = allocate(f->client, BLOCK / 8, f->a, WEIR_CLASS_KV);
        ok(weir_capture_end(f->a, f->graph));
        assert_int_equal(pthread_create(&freeing, NULL, free_all, &w), 0);
        ok(weir_capture_pool_destroy(f->graph, f->a));
        pthread_join(freeing, NULL);
        assert_int_equal(w.wrong, 0);
        ok(weir_capture_pool_create(f->client, &f->graph));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(several_threads, "mapped"),
        CASE(several_threads, "log(mapped)"),
    };
    return cmocka_run_group_tests_name("graphs of threads", tests, NULL, NULL);
}
