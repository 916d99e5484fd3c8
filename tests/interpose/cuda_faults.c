/* Each allocation of the host's and each call of the driver fails in turn: the module gets an error of CUDA's and
 * goes on, the books stay exact, nothing leaks, of the host's memory either. */
#include "interpose/cuda_rig.h"

static bool refuse_growth(void);
#define HEAP_REFUSES refuse_growth()
#include "core/heap.h"

static bool nothing_grows; /* each realloc of this test's thread fails */

static bool refuse_growth(void)
{
    return (malloc_armed && nothing_grows) || refuse_malloc();
}

/* The scenario ----------------------------------------------------------------------------------------------------- */

enum { BLOCKS = 6, PINNED = 2, STREAMS = 3, INVALID_VALUE = 1, NO_MEMORY = 2 };

static int planned; /* the error that the driver's failure comes as */

static bool fine(const fixture *f, int result)
{
    if (result == 0)
        return true;
    if (result != NO_MEMORY && result != planned)
        fail_msg("error %d (%s)", result, weir_detail());
    assert_true(f->m.cudaGetLastError() == result || result == planned);
    return false;
}

static void capture(const fixture *f, void *stream, void *block)
{
    void *graph = NULL, *within = NULL;
    bool began = stream && fine(f, f->m.cudaStreamBeginCapture(stream, RELAXED));
    bool has = fine(f, f->m.cudaMalloc(&within, 3000));
    if (block)
        assert_int_equal(f->m.cudaFree(block), 0);
    if (began && f->m.cudaStreamEndCapture(stream, &graph) == 0)
        assert_int_equal(f->m.cudaGraphDestroy(graph), 0);
    if (has)
        assert_int_equal(f->m.cudaFree(within), 0);
}

/* What a module does, with what it gets of it; a free never fails. */
static void live(const fixture *f)
{
    void *blocks[BLOCKS] = {NULL}, *pinned[PINNED] = {NULL}, *streams[STREAMS] = {NULL};
    size_t available, total;
    for (size_t i = 0; i < STREAMS; i++)
        if (!fine(f, f->m.cudaStreamCreateWithFlags(&streams[i], NON_BLOCKING)))
            streams[i] = NULL;
    for (size_t i = 0; i < BLOCKS; i++)
        if (fine(f, f->m.cudaMalloc(&blocks[i], 1000 + i * 700000)) && streams[i % STREAMS])
            (void)fine(f, f->m.cudaMemsetAsync(blocks[i], 1, 1000, streams[i % STREAMS]));
    for (size_t i = 0; i < PINNED; i++)
        (void)fine(f, f->m.cudaMallocHost(&pinned[i], 5000));
    (void)fine(f, f->m.cudaMemGetInfo(&available, &total));
    capture(f, streams[0], blocks[0]);
    for (size_t i = 1; i < BLOCKS; i++)
        if (blocks[i])
            assert_int_equal(f->m.cudaFree(blocks[i]), 0);
    for (size_t i = 0; i < PINNED; i++)
        if (pinned[i])
            assert_int_equal(f->m.cudaFreeHost(pinned[i]), 0);
    for (size_t i = 0; i < STREAMS; i++)
        if (streams[i])
            (void)f->m.cudaStreamDestroy(streams[i]);
}

static void check_nothing_is_left(fixture *f)
{
    uint64_t pending;
    (void)f->m.cudaFree(get(f, 100)); /* what could not be freed then is, now */
    ok(weir_runtime_drain(f->runtime[0], &pending));
    assert_int_equal(pending, 0);
    wi_cuda_redirect_stats s = stats(f);
    assert_int_equal(s.device_blocks + s.pinned_blocks + s.waiting + s.streams + s.captured, 0);
    assert_int_equal(account(f->client[0]).live, 0);
    assert_int_equal(pinned_of(f, f->client[0]), 0);
}

/* Has the same failure again and again, until weir has all that it keeps for the next time; what grows on is lost.
 * Whether the failure came. */
static bool settles(bool (*round)(long nth, const char *function), long nth, const char *function)
{
    enum { MOST_ROUNDS = 16, STEADY_ROUNDS = 3 };
    bool hit = false;
    int rounds = 0;
    for (int steady = 0; steady < STEADY_ROUNDS; rounds++) {
        long pieces = heap_pieces;
        if (rounds == MOST_ROUNDS)
            fail_msg("with failure %ld host memory grows on and on", nth);
        hit = round(nth, function);
        steady = heap_pieces > pieces ? 0 : steady + 1;
    }
    return hit;
}

/* The host's memory ------------------------------------------------------------------------------------------------ */

static bool live_without_an_allocation(long nth, const char *function)
{
    (void)function;
    fixture f = begin(32 * MIB);
    mallocs = 0;
    malloc_fails_at = nth;
    malloc_armed = true;
    live(&f);
    malloc_armed = false;
    bool hit = mallocs > nth;
    check_nothing_is_left(&f);
    end(&f);
    return hit;
}

static void each_allocation_of_the_hosts_may_fail_while_a_module_works(void **state)
{
    (void)state;
    long nth = 0;
    while (settles(live_without_an_allocation, nth, NULL))
        nth++;
    assert_true(nth >= 10);
}

/* Without a place for its record, weir forgets a stream that it has just learnt of: tried more often than weir can know streams. */
static void a_stream_without_a_place_is_not_known_to_weir(void **state)
{
    enum { PLACES = 16, MOST_STREAMS = 1024 };
    (void)state;
    fixture f = begin(32 * MIB);
    static void *others[MOST_STREAMS + 1]; /* have the addresses of the streams that came to nothing */
    void *streams[PLACES], *none;
    for (size_t i = 1; i < PLACES; i++) /* the first place is the default stream's */
        streams[i] = make_stream(&f);
    for (int i = 0; i <= MOST_STREAMS; i++) {
        malloc_armed = nothing_grows = true;
        int result = f.m.cudaStreamCreateWithFlags(&none, NON_BLOCKING);
        malloc_armed = nothing_grows = false;
        assert_int_equal(result, NO_MEMORY);
        assert_int_equal(f.m.cudaGetLastError(), NO_MEMORY);
        assert_null(none);
        assert_int_equal(f.real.cudaStreamCreateWithFlags(&others[i], NON_BLOCKING), 0);
    }
    assert_int_equal(stats(&f).streams, PLACES - 1);
    streams[0] = make_stream(&f);
    assert_int_equal(stats(&f).streams, PLACES);
    for (size_t i = 0; i < PLACES; i++)
        assert_int_equal(f.m.cudaStreamDestroy(streams[i]), 0);
    for (int i = 0; i <= MOST_STREAMS; i++)
        assert_int_equal(f.real.cudaStreamDestroy(others[i]), 0);
    end(&f);
}

static bool begin_without_an_allocation(long nth, const char *function)
{
    (void)function;
    fixture f = prepare(32 * MIB, 1, NULL);
    mallocs = 0;
    malloc_fails_at = nth;
    malloc_armed = true;
    weir_status status = redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_OTHER});
    malloc_armed = false;
    bool hit = mallocs > nth;
    if (hit && status != WEIR_OK) {
        fails(WEIR_ERR_SYSTEM, status);
        assert_null(f.redirect);
        void *block = get(&f, 100); /* CUDA's */
        assert_int_equal(control.stub_count("allocations"), 1);
        assert_int_equal(f.m.cudaFree(block), 0);
    } else {
        ok(status);
    }
    end(&f);
    return hit;
}

static void each_allocation_of_the_hosts_may_fail_while_a_redirect_begins(void **state)
{
    (void)state;
    long nth = 0;
    while (settles(begin_without_an_allocation, nth, NULL))
        nth++;
    assert_true(nth >= 5);
}

/* The driver ------------------------------------------------------------------------------------------------------- */

static bool live_without_a_call(long nth, const char *function)
{
    fixture f = begin(32 * MIB);
    uint64_t before = control.stub_count(function);
    control.stub_fail(function, (int)nth, NO_MEMORY);
    live(&f);
    bool hit = control.stub_count(function) - before >= (uint64_t)nth;
    control.stub_fail(function, 0, 0);
    (void)f.m.cudaGetLastError();
    check_nothing_is_left(&f);
    end(&f);
    return hit;
}

static void each_call_of_the_driver_may_fail_while_a_module_works(void **state)
{
    static const char *const functions[] = {"cuMemCreate",   "cuMemMap",       "cuMemSetAccess",      "cuMemHostAlloc",
                                            "cuEventCreate", "cuEventRecord",  "cuStreamCreate",      "cuStreamGetId",
                                            "cuMemGetInfo",  "cuStreamGetCtx", "cuStreamBeginCapture"};
    (void)state;
    planned = NO_MEMORY;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        for (long nth = 1; nth < 12 && settles(live_without_a_call, nth, functions[i]);)
            nth++;
    planned = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_of_the_hosts_may_fail_while_a_module_works),
        cmocka_unit_test(a_stream_without_a_place_is_not_known_to_weir),
        cmocka_unit_test(each_allocation_of_the_hosts_may_fail_while_a_redirect_begins),
        cmocka_unit_test(each_call_of_the_driver_may_fail_while_a_module_works),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}
