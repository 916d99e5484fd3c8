/* Graphs of several threads at once, and blocks that are freed while theirs is closed. */
#include "graph.h"

enum { THREADS = 3, BLOCKS = 8 };

typedef struct worker {
    fixture *f;
    int number, wrong;
    void *blocks[BLOCKS]; /* of a graph that another thread closes */
} worker;

static void *capture_often(void *user)
{
    worker *w = user;
    fixture *f = w->f;
    weir_stream stream = WEIR_STREAM_HOST;
    weir_capture_pool *graph = NULL;
    uint64_t random = 77 + (uint64_t)w->number;
    int rounds = UNDER_TSAN ? 30 : 200;
    w->wrong +=
        weir_stream_acquire(f->runtime, &stream) != WEIR_OK || weir_capture_pool_create(f->client, &graph) != WEIR_OK;
    for (int round = 0; round < rounds && !w->wrong; round++) {
        void *blocks[BLOCKS];
        w->wrong += weir_capture_begin(stream, graph) != WEIR_OK;
        for (int i = 0; i < BLOCKS; i++)
            w->wrong += weir_alloc(f->client, 256 + next_random(&random) % (BLOCK / 4), stream, WEIR_CLASS_KV,
                                   &blocks[i]) != WEIR_OK;
        for (int i = 0; i < BLOCKS / 2; i++)
            w->wrong += weir_free(f->client, blocks[i], stream) != WEIR_OK;
        w->wrong += weir_capture_end(stream, graph) != WEIR_OK;
        for (int i = BLOCKS / 2; i < BLOCKS; i++)
            w->wrong += weir_free(f->client, blocks[i], stream) != WEIR_OK;
        if (round % 10 == 9) {
            w->wrong += weir_capture_pool_destroy(graph, stream) != WEIR_OK;
            w->wrong += weir_capture_pool_create(f->client, &graph) != WEIR_OK;
        }
    }
    w->wrong += weir_capture_pool_destroy(graph, stream) != WEIR_OK || weir_stream_release(stream) != WEIR_OK;
    return NULL;
}

static void *free_all(void *user)
{
    worker *w = user;
    for (int i = 0; i < BLOCKS; i++)
        w->wrong += weir_free(w->f->client, w->blocks[i], w->f->b) != WEIR_OK;
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
