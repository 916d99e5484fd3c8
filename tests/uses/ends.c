/* Registered streams that end without a word while their work goes on, and whose address the next stream has: on the device that
 * WEIR_TEST_DEVICE names, where that is CUDA's; elsewhere nothing is looked at. What was freed or used in their order is nobody's
 * before that work is done, and everybody's afterwards, whatever is the matter with the next stream. */
#include "info.h"
#include "core.h"

#include <dlfcn.h>
#include <stdatomic.h>

enum { BUDGET = 64 << 20, BLOCK = 8 << 20, CACHED = 100 << 10 };

/* What is the matter with the next stream while it is registered. */
typedef enum trouble { NOTHING, CAPTURED, NO_EVENT } trouble;

static bool on_cuda(void)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    return device && strncmp(device, "cuda", 4) == 0;
}

static void *library(void)
{
    static void *handle;
    if (!handle)
        handle = dlopen("libcuda.so.1", RTLD_NOW);
    return handle;
}

/* A function of the driver library's, and one of the stub's; NULL: it has none. */
static void *cuda(const char *name)
{
    void *function = NULL;
    int found;
    int (*get)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(library(), "cuGetProcAddress_v2");
    return get && get(name, &function, 12030, 0, &found) == 0 ? function : NULL;
}

static uint64_t stub_count(const char *what)
{
    uint64_t (*count)(const char *) = (uint64_t(*)(const char *))dlsym(library(), "stub_count");
    return count ? count(what) : 0;
}

/* The call of that number from now on fails; 0: none does. */
static void stub_fail(const char *function, int nth)
{
    void (*set)(const char *, int, int) = (void (*)(const char *, int, int))dlsym(library(), "stub_fail");
    if (set)
        set(function, nth, 2);
}

#define CUDA(runtime, name, types, ...)                                                                                \
    do {                                                                                                               \
        void *popped_;                                                                                                 \
        assert_int_equal(((int (*)(void *))cuda("cuCtxPushCurrent"))(runtime_details(runtime).native), 0);             \
        assert_int_equal(((int(*) types)cuda(name))(__VA_ARGS__), 0);                                                  \
        assert_int_equal(((int (*)(void **))cuda("cuCtxPopCurrent"))(&popped_), 0);                                    \
    } while (0)

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream old, next, own;
    void *native;
    gate gate;
    uint64_t dead_used, broken;
    weir_status registered;
    atomic_bool over;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (!on_cuda())
        return 0;
    f->gate = (gate)GATE;
    f->runtime = make_runtime_here(BUDGET);
    f->client = open_client(f->runtime, "one", 0, 0);
    f->dead_used = stub_count("dead streams used");
    f->broken = stub_count("captures broken");
    ok(weir_stream_acquire(f->runtime, &f->own));
    CUDA(f->runtime, "cuStreamCreate", (void **, unsigned), &f->native, 1 /* non-blocking */);
    ok(weir_stream_register(f->runtime, f->native, &f->old));
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    if (on_cuda()) {
        ok(weir_stream_unregister(f->next));
        CUDA(f->runtime, "cuStreamDestroy", (void *), f->native);
        ok(weir_stream_release(f->own));
        check_empty(f->runtime);
        ok(weir_client_destroy(f->client));
        ok(weir_runtime_destroy(f->runtime));
        assert_int_equal(stub_count("events"), 0);
        assert_int_equal(stub_count("dead streams used"), f->dead_used);
        assert_int_equal(stub_count("captures broken"), f->broken);
    }
    free(f);
    return 0;
}

/* A refusal for want of an event would be none of another call. */
static void *register_next(void *user)
{
    fixture *f = user;
    f->registered = weir_stream_register(f->runtime, f->native, &f->next);
    if (f->registered == WEIR_ERR_DRIVER)
        f->registered = weir_stream_register(f->runtime, f->native, &f->next);
    atomic_store(&f->over, true);
    return NULL;
}

/* The program ends its stream, and gets another one with the same address, which it may begin to capture before it tells weir. */
static void replace(fixture *f, trouble t)
{
    void *native = f->native;
    CUDA(f->runtime, "cuStreamDestroy", (void *), native);
    CUDA(f->runtime, "cuStreamCreate", (void **, unsigned), &f->native, 1);
    if (f->native != native) /* a driver may do so; then nothing can be said here */
        skip();
    if (t == CAPTURED)
        CUDA(f->runtime, "cuStreamBeginCapture", (void *, int), f->native, 2 /* relaxed */);
    if (t == NO_EVENT)
        stub_fail("cuEventRecord", 1);
}

static void end_trouble(fixture *f, trouble t)
{
    void *graph = NULL;
    if (t == CAPTURED) {
        CUDA(f->runtime, "cuStreamEndCapture", (void *, void **), f->native, &graph);
        CUDA(f->runtime, "cuGraphDestroy", (void *), graph);
    }
}

/* A captured stream cannot be told from the one before, and is refused until the capture has ended, which goes on. */
static void register_now(fixture *f, trouble t)
{
    assert_int_equal(f->registered, t == CAPTURED ? WEIR_ERR_STREAM_MISUSE : WEIR_OK);
    if (t == CAPTURED)
        ok(weir_stream_register(f->runtime, f->native, &f->next));
}

/* Takes all that the host can have at once; whether bytes of any of the blocks are among it. */
static bool anything_given_out(fixture *f, void *const *blocks, size_t count, uint64_t bytes)
{
    enum { MOST = BUDGET / CACHED };
    static weir_block got[MOST];
    weir_request request = {
        .struct_size = sizeof request, .bytes = bytes, .memory_class = WEIR_CLASS_KV, .flags = WEIR_ALLOC_NO_WAIT};
    bool found = false;
    size_t n = 0;
    while (n < MOST && weir_alloc_with(f->client, &request, &got[n]) == WEIR_OK)
        n++;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < count; k++)
            found |= (char *)got[i].pointer < (char *)blocks[k] + bytes &&
                     (char *)blocks[k] < (char *)got[i].pointer + bytes;
        ok(weir_free_block(f->client, got[i], WEIR_STREAM_HOST));
    }
    return found;
}

static void declare(fixture *f, void *pointer, weir_stream stream)
{
    weir_launch *launch;
    weir_use use = {{pointer, 0}, WEIR_ACCESS_WRITE};
    ok(weir_launch_begin(f->runtime, stream, &use, 1, &launch));
    ok(weir_launch_end(launch));
}

/* Nothing is live and no work is anywhere: all of the budget is anyone's, and goes back when it is asked for. */
static void all_can_be_had(fixture *f)
{
    weir_trim_report report = {.struct_size = sizeof report};
    ok(weir_stream_synchronize(f->own));
    ok(weir_runtime_trim(f->runtime, NULL, &report));
    for (int i = 0; i < 1000 && report.left > 0; i++) { /* the work of a stream that is gone comes to its end unseen */
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        ok(weir_runtime_trim(f->runtime, NULL, &report));
    }
    assert_int_equal(report.unpassed, 0);
    assert_int_equal(report.left, 0);
    ok(weir_free(f->client, allocate(f->client, BUDGET, f->own, WEIR_CLASS_KV), f->own));
    ok(weir_stream_synchronize(f->own));
}

/* The registration may wait for the old stream's work; it may not give anything out. */
static void check_order(fixture *f, void *const *blocks, size_t count, uint64_t bytes, trouble t)
{
    pthread_t thread;
    replace(f, t);
    assert_int_equal(pthread_create(&thread, NULL, register_next, f), 0);
    for (int i = 0; i < 200 && !atomic_load(&f->over); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    stub_fail("cuEventRecord", 0);
    bool early = anything_given_out(f, blocks, count, bytes);
    end_trouble(f, t);
    open_gate(&f->gate);
    pthread_join(thread, NULL);
    register_now(f, t);
    assert_int_not_equal(f->old.id, f->next.id);
    if (early)
        fail_msg("bytes are given out that the work of the stream that ended may still use");
    all_can_be_had(f);
}

static void in_order(void **state, trouble t)
{
    fixture *f = *state;
    if (!on_cuda())
        skip();
    void *p[] = {allocate(f->client, BLOCK, f->old, WEIR_CLASS_KV)};
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->old));
    ok(weir_free(f->client, p[0], f->old));
    check_order(f, p, 1, BLOCK, t);
}

static void behind_uses(void **state, trouble t)
{
    fixture *f = *state;
    if (!on_cuda())
        skip();
    void *p[] = {allocate(f->client, BLOCK, f->old, WEIR_CLASS_KV), allocate(f->client, BLOCK, f->own, WEIR_CLASS_KV)};
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->old));
    declare(f, p[0], f->old);
    declare(f, p[1], f->old);
    ok(weir_free(f->client, p[0], f->old));
    ok(weir_free(f->client, p[1], WEIR_STREAM_HOST));
    check_order(f, p, 2, BLOCK, t);
}

static void thread_cached(void **state, trouble t)
{
    fixture *f = *state;
    if (!on_cuda())
        skip();
    void *p[] = {allocate(f->client, CACHED, f->old, WEIR_CLASS_KV)};
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->old));
    ok(weir_free(f->client, p[0], f->old));
    check_order(f, p, 1, CACHED, t);
}

/* Live blocks that were used there, and are freed when the stream is gone. */
static void freed_later(void **state, trouble t)
{
    fixture *f = *state;
    if (!on_cuda())
        skip();
    void *p[] = {allocate(f->client, BLOCK, f->own, WEIR_CLASS_KV)};
    pthread_t thread;
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->old));
    declare(f, p[0], f->old);
    replace(f, t);
    assert_int_equal(pthread_create(&thread, NULL, register_next, f), 0);
    for (int i = 0; i < 200 && !atomic_load(&f->over); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    stub_fail("cuEventRecord", 0);
    ok(weir_free(f->client, p[0], f->own));
    bool early = anything_given_out(f, p, 1, BLOCK);
    end_trouble(f, t);
    open_gate(&f->gate);
    pthread_join(thread, NULL);
    register_now(f, t);
    assert_false(early);
    all_can_be_had(f);
}

#define EACH(what)                                                                                                     \
    static void what##_and_another_follows(void **state)                                                               \
    {                                                                                                                  \
        what(state, NOTHING);                                                                                          \
    }                                                                                                                  \
    static void what##_and_a_captured_one_follows(void **state)                                                        \
    {                                                                                                                  \
        what(state, CAPTURED);                                                                                         \
    }                                                                                                                  \
    static void what##_and_no_event_is_recorded(void **state)                                                          \
    {                                                                                                                  \
        what(state, NO_EVENT);                                                                                         \
    }
EACH(in_order)
EACH(behind_uses)
EACH(thread_cached)
EACH(freed_later)

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define CASES(what)                                                                                                    \
    CASE(what##_and_another_follows), CASE(what##_and_a_captured_one_follows), CASE(what##_and_no_event_is_recorded)

int main(void)
{
    const struct CMUnitTest tests[] = {CASES(in_order), CASES(behind_uses), CASES(thread_cached), CASES(freed_later)};
    return cmocka_run_group_tests_name("ends", tests, NULL, NULL);
}
