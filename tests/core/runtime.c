/* The runtimes: found by device, made once, created and destroyed; and what happens at exit. */
#include "info.h"
#include "core.h"
#include <weir/trace.h>

#include <sys/resource.h>
#include <sys/wait.h>

static void devices_that_are_none(void **state)
{
    (void)state;
    static const char *const none[] = {"",           ":",     ":0",  "host:", "host:x", "host:0x", "host:-1",
                                       "host:00000", "hosts", "hos", "Host",  "host ",  "gpu:0",   "host:0:0"};
    weir_runtime *runtime = (weir_runtime *)state;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        fails(WEIR_ERR_INVALID, weir_runtime_get(none[i], NULL, &runtime));
        detail_names("host");
        assert_null(runtime);
        fails(WEIR_ERR_INVALID, weir_runtime_create(none[i], NULL, &runtime));
    }
    fails(WEIR_ERR_NOT_FOUND, weir_runtime_get("host:1", NULL, &runtime));
    fails(WEIR_ERR_NOT_FOUND, weir_runtime_get("host:9999", NULL, &runtime));
    fails(WEIR_ERR_INVALID, weir_runtime_get(NULL, NULL, &runtime));
    fails(WEIR_ERR_INVALID, weir_runtime_get("host", NULL, NULL));
    weir_runtime_options options = {.struct_size = 3};
    fails(WEIR_ERR_INVALID, weir_runtime_get("host", &options, &runtime));
    options = (weir_runtime_options){.struct_size = sizeof options, .resource = "fast"};
    fails(WEIR_ERR_NOT_FOUND, weir_runtime_create("host", &options, &runtime));
    detail_names("fast");
    detail_names("cache");
}

/* Whether this process can be given fewer addresses. */
static void need_limits(void)
{
#if defined __SANITIZE_ADDRESS__ || UNDER_TSAN
    skip(); /* their shadow memory needs all addresses */
#elif defined __has_feature
#if __has_feature(address_sanitizer)
    skip();
#endif
#endif
    if (getenv("WEIR_RANGE"))
        skip(); /* under an emulator, which does not limit addresses */
}

/* With too few addresses nothing can start; with enough of them the next call can. */
static void a_failed_start_leaves_nothing(void **state)
{
    (void)state;
    need_limits();
    struct rlimit old, small;
    weir_runtime *runtime = NULL;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    small = (struct rlimit){(rlim_t)256 << 20, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
    for (int i = 0; i < 50; i++) {
        weir_status status = weir_runtime_get("host", NULL, &runtime);
        assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
        assert_null(runtime);
        detail_names("(WEIR_RANGE), and the process may have 256 MiB (ulimit -v)");
    }
    setrlimit(RLIMIT_AS, &old);
}

/* With some, all ranges are as much smaller as it takes, and the process has as many again as a range. */
static void few_addresses_are_shared_out(void **state)
{
    static const unsigned gib[] = {5, 8, 20, 60, 200, 400, 600, 1500};
    struct rlimit old, small;
    (void)state;
    need_limits();
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    for (size_t i = 0; i < sizeof gib / sizeof *gib; i++) {
        weir_runtime *runtime = NULL;
        small = (struct rlimit){(rlim_t)gib[i] << 30, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
        ok(weir_runtime_create("host", NULL, &runtime));
        weir_client *client = open_client(runtime, "x", 0, 0);
        void *p = allocate(client, 64 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV), *q = malloc(512 << 20);
        assert_non_null(q);
        free(q);
        ok(weir_free(client, p, WEIR_STREAM_HOST));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
        assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    }
}

static void one_runtime_per_device(void **state)
{
    (void)state;
    weir_runtime *first, *again;
    ok(weir_option_set("budget", "24MiB"));
    ok(weir_runtime_get("host", NULL, &first));
    ok(weir_option_set("budget", NULL));
    assert_int_equal(runtime_details(first).budget, 24 * MIB);
    assert_string_equal(runtime_details(first).device, "host");
    assert_int_equal(runtime_details(first).ordinal, 0);
    ok(weir_runtime_get("host:0", NULL, &again));
    assert_ptr_equal(again, first);
    weir_runtime_options options = {.struct_size = sizeof options};
    ok(weir_runtime_get("host", &options, &again));
    assert_ptr_equal(again, first);
    options.budget = 24 * MIB;
    options.resource = "cache";
    ok(weir_runtime_get("host", &options, &again));
    options.budget = 25 * MIB;
    fails(WEIR_ERR_CONFLICT, weir_runtime_get("host", &options, &again));
    assert_null(again);
    detail_names("24 MiB");
    detail_names("25 MiB");
    options = (weir_runtime_options){.struct_size = sizeof options, .resource = "other"};
    fails(WEIR_ERR_NOT_FOUND, weir_runtime_get("host", &options, &again));
    ok(weir_runtime_set_budget(first, 25 * MIB));
    fails(WEIR_ERR_INVALID, weir_runtime_destroy(first));
    weir_runtime_details details = {.struct_size = 0};
    fails(WEIR_ERR_INVALID, weir_runtime_info(first, &details));
    fails(WEIR_ERR_INVALID, weir_runtime_info(first, NULL));
    details.struct_size = sizeof details;
    fails(WEIR_ERR_INVALID, weir_runtime_info(NULL, &details));
    weir_runtime *own = make_runtime(MIB); /* not found by a get, nor mixed up with it */
    ok(weir_runtime_get("host", NULL, &again));
    assert_ptr_equal(again, first);
    ok(weir_runtime_destroy(own));
}

static void destroying(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(4 * MIB);
    weir_stream stream;
    weir_client *client = open_client(runtime, "x", 0, 0);
    fails(WEIR_ERR_INVALID, weir_runtime_destroy(NULL));
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(runtime));
    detail_names("1 open client");
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_client_destroy(client));
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(runtime));
    detail_names("stream");
    ok(weir_stream_release(stream));
    ok(weir_runtime_destroy(runtime));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(stream));
}

/* A pool of 1024; then none, and never another one. */
static void streams_run_out(void **state)
{
    (void)state;
    enum { MOST = 1024 };
    weir_runtime *runtime = make_runtime(MIB);
    static weir_stream streams[MOST];
    weir_stream more;
    for (int i = 0; i < MOST; i++) {
        ok(weir_stream_acquire(runtime, &streams[i]));
        assert_true(streams[i].id != 0);
        assert_true(i == 0 || streams[i].id != streams[i - 1].id);
    }
    fails(WEIR_ERR_BUSY, weir_stream_acquire(runtime, &more));
    detail_names("1024");
    assert_int_equal(more.id, 0);
    ok(weir_stream_release(streams[500]));
    ok(weir_stream_acquire(runtime, &more));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(streams[500]));
    streams[500] = more;
    for (int i = 0; i < MOST; i++)
        ok(weir_stream_release(streams[i]));
    ok(weir_runtime_destroy(runtime));
}

static void records_of_closed_clients_serve_again(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(4 * MIB);
    weir_client *first = open_client(runtime, "first", MIB, 2 * MIB);
    void *p = allocate(first, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(first, p, WEIR_STREAM_HOST));
    ok(weir_client_note_outside(first, 5, "x"));
    ok(weir_client_destroy(first));
    for (int i = 0; i < 64; i++) {
        weir_client *c = open_client(runtime, "next", 0, 0);
        assert_ptr_not_equal(c, first); /* a late call finds a closed client, not somebody else's */
        fails(WEIR_ERR_INVALID, weir_client_destroy(first));
        ok(weir_client_destroy(c));
    }
    for (int i = 0; i < 200; i++) {
        weir_client *c = open_client(runtime, "next", 0, 0);
        snapshot s = take_snapshot(runtime);
        assert_int_equal(s.count, 1);
        assert_int_equal(s.clients[0].peak + s.clients[0].allocations + s.clients[0].outside, 0);
        assert_int_equal(s.clients[0].maximum, 4 * MIB);
        ok(weir_client_destroy(c));
    }
    ok(weir_runtime_destroy(runtime));
}

static void snapshots_in_the_order_of_opening(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(4 * MIB);
    weir_client *clients[5];
    static const char *const names[] = {"e", "d", "c", "b", "a"};
    for (int i = 0; i < 5; i++)
        clients[i] = open_client(runtime, names[i], 0, 0);
    ok(weir_client_destroy(clients[1]));
    clients[1] = open_client(runtime, "again", 0, 0);
    static const char *const order[] = {"e", "c", "b", "a", "again"};
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_client_stats lines[5];
    size_t count = 0;
    memset(lines, 0x77, sizeof lines);
    lines[0].struct_size = sizeof lines[0];
    ok(weir_snapshot(runtime, &stats, lines, 3, &count)); /* as many as there is room for */
    assert_int_equal(count, 5);
    assert_int_equal(lines[3].struct_size, 0x7777777777777777);
    ok(weir_snapshot(runtime, &stats, lines, 5, NULL));
    for (int i = 0; i < 5; i++) {
        assert_string_equal(lines[i].name, order[i]);
        assert_int_equal(lines[i].struct_size, sizeof lines[0]);
    }
    ok(weir_snapshot(runtime, &stats, NULL, 0, &count));
    assert_int_equal(count, 5);
    for (int i = 0; i < 5; i++)
        ok(weir_client_destroy(clients[i]));
    ok(weir_runtime_destroy(runtime));
}

/* Exit with live blocks, acquired streams, queued work and a trace. */
static void leave_everything(void)
{
    weir_runtime *runtime;
    weir_stream stream;
    static weir_trace *trace; /* still there at exit, and no leak */
    static gate g = GATE;
    if (weir_option_set("budget", "8m") || weir_runtime_get("host", NULL, &runtime))
        _exit(3);
    weir_client *client = open_client(runtime, "x", 0, 0);
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_trace_create(runtime, NULL, &trace));
    void *p = allocate(client, MIB, stream, WEIR_CLASS_KV), *q = allocate(client, MIB, stream, WEIR_CLASS_KV);
    ok(weir_call(runtime, pass_gate, &g, stream));
    ok(weir_fill(runtime, p, 1, MIB, stream));
    ok(weir_free(client, q, stream));
}

/* The children are started before the first runtime, by main. */
static int end_of_child;

static void exit_with_everything_live(void **state)
{
    (void)state;
    assert_true(WIFEXITED(end_of_child));
    assert_int_equal(WEXITSTATUS(end_of_child), 7);
}

int main(void)
{
    pid_t child = fork();
    if (child == 0) {
        leave_everything();
        exit(7);
    }
    waitpid(child, &end_of_child, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_with_everything_live),
        cmocka_unit_test(devices_that_are_none),
        cmocka_unit_test(a_failed_start_leaves_nothing),
        cmocka_unit_test(few_addresses_are_shared_out),
        cmocka_unit_test(one_runtime_per_device),
        cmocka_unit_test(destroying),
        cmocka_unit_test(streams_run_out),
        cmocka_unit_test(records_of_closed_clients_serve_again),
        cmocka_unit_test(snapshots_in_the_order_of_opening),
    };
    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
