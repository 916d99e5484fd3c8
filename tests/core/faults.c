/* A fault at every call: of the driver, and of malloc. Each is answered with a clean status, the books stay exact, nothing
 * leaks, and everything can still be used. */
#include "info.h"
#include "core.h"
#include <weir/trace.h>
#include "trim.h"
#include <weir/adaptor.h>
#include "core/faulty.h"

#define HEAP_REFUSES refuse_malloc()
#include "core/heap.h"

#include "runtime/runtime.h"

/* The scenario ----------------------------------------------------------------------------------------------------- */

enum { BUDGET = 24 * 65536, BLOCKS = 40 };

typedef struct block {
    unsigned char *start;
    size_t bytes;
    weir_client *client;
} block;

typedef struct scenario {
    weir_runtime *runtime;
    weir_client *clients[2];
    weir_stream streams[2];
    block blocks[BLOCKS];
    size_t count;
    bool failed; /* a call has answered with the fault */
} scenario;

static weir_status planned; /* the statuses that a fault may come back as */

static bool done(scenario *s, weir_status status)
{
    if (status == WEIR_OK)
        return true;
    if (status != planned && status != WEIR_ERR_OUT_OF_MEMORY && status != WEIR_ERR_NO_ROOM) {
        print_error("%s (%s)\n", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
        fail();
    }
    s->failed |= status == planned;
    assert_true(strlen(weir_detail()) > 0);
    return false;
}

static void check_books(scenario *s)
{
    bool armed = malloc_armed;
    malloc_armed = false;
    uint64_t live[2] = {0, 0};
    snapshot now = take_snapshot(s->runtime);
    check_sums(&now);
    assert_int_equal(now.device.promised, 0);
    for (size_t i = 0; i < s->count; i++) {
        const block *b = &s->blocks[i];
        for (size_t k = 0; k < b->bytes; k += 1021)
            assert_int_equal(b->start[k], (unsigned char)b->bytes);
        live[b->client == s->clients[1]] += (b->bytes + 255) / 256 * 256;
    }
    for (size_t line = 0; line < now.count; line++)
        assert_int_equal(now.clients[line].live, live[now.clients[line].client == s->clients[1]]);
    assert_int_equal(now.device.held, (uint64_t)fault.handles * GRANULE);
    assert_int_equal(now.device.spare, (uint64_t)(fault.handles - fault.mapped) * GRANULE);
    malloc_armed = armed;
}

static void take_block(scenario *s, int client, size_t bytes, int stream, weir_class memory_class, uint32_t flags)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .stream = stream < 0 ? WEIR_STREAM_HOST : s->streams[stream],
                            .memory_class = memory_class,
                            .tag = "tag",
                            .flags = flags};
    weir_block made = {s, 1};
    if (!s->clients[client] || (stream >= 0 && !s->streams[stream].id))
        return;
    if (done(s, weir_alloc_with(s->clients[client], &request, &made))) {
        if (flags & WEIR_ALLOC_ZEROED) { /* past the fault, if there is one: what is checked here is the fill */
            ok(wi_host_driver.stream_synchronize(NULL, weir_stream_native(request.stream)));
            assert_int_equal(((unsigned char *)made.pointer)[bytes - 1], 0);
        }
        memset(made.pointer, (unsigned char)bytes, bytes);
        s->blocks[s->count++] = (block){made.pointer, bytes, s->clients[client]};
    } else {
        assert_null(made.pointer);
    }
    check_books(s);
}

static void drop_block(scenario *s, size_t i, int stream)
{
    if (i >= s->count || (stream >= 0 && !s->streams[stream].id))
        return;
    block b = s->blocks[i];
    if (done(s, weir_free(b.client, b.start, stream < 0 ? WEIR_STREAM_HOST : s->streams[stream])))
        s->blocks[i] = s->blocks[--s->count];
    check_books(s);
}

static void resize_block(scenario *s, size_t i, size_t bytes, int stream)
{
    if (i >= s->count || !s->streams[stream].id)
        return;
    block *b = &s->blocks[i];
    if (done(s, weir_resize(b->client, b->start, bytes, s->streams[stream]))) {
        b->bytes = bytes;
        memset(b->start, (unsigned char)bytes, bytes);
    }
    check_books(s);
}

/* Declares the use of the last blocks. What fails leaves no ticket: every block can be freed afterwards. */
static void use_blocks(scenario *s, size_t count, int stream, weir_access access)
{
    enum { MOST = 3 };
    weir_use uses[MOST];
    weir_launch *launch = NULL;
    if (!s->streams[stream].id)
        return;
    count = count < s->count ? count : s->count;
    for (size_t i = 0; i < count; i++)
        uses[i] = (weir_use){.block = {.pointer = s->blocks[s->count - 1 - i].start}, .access = access};
    if (done(s, weir_launch_begin(s->runtime, s->streams[stream], uses, count, &launch))) {
        if (!done(s, weir_launch_end(launch)))
            weir_launch_abort(launch);
    } else {
        assert_null(launch);
    }
    if (count > 0)
        done(s, weir_use_record(s->runtime, (weir_block){.pointer = uses[0].block.pointer}, s->streams[1 - stream]));
    check_books(s);
}

static void wait_for(scenario *s, int stream)
{
    if (s->streams[stream].id)
        done(s, weir_stream_synchronize(s->streams[stream]));
}

static void run_round(scenario *s)
{
    take_block(s, 0, 3 * GRANULE, 0, WEIR_CLASS_WEIGHTS, 0);
    take_block(s, 1, 1000, -1, WEIR_CLASS_KV, 0);
    take_block(s, 0, 5 * GRANULE + 700, 0, WEIR_CLASS_KV, WEIR_ALLOC_ZEROED);
    take_block(s, 1, 3000, 1, WEIR_CLASS_SCRATCH, 0);
    use_blocks(s, 3, 0, WEIR_ACCESS_READ);
    use_blocks(s, 3, 1, WEIR_ACCESS_READ_WRITE);
    use_blocks(s, 2, 0, WEIR_ACCESS_WRITE);
    drop_block(s, 2, 0);
    take_block(s, 0, 8 * GRANULE, 1, WEIR_CLASS_WEIGHTS, 0);
    resize_block(s, 0, GRANULE, 0);
    take_block(s, 1, 9 * GRANULE, 0, WEIR_CLASS_KV, 0); /* needs what lies free elsewhere */
    resize_block(s, 1, 2000, 1);
    drop_block(s, 0, -1);
    drop_block(s, 0, 1);
    wait_for(s, 0);
    wait_for(s, 1);
    take_block(s, 0, 12 * GRANULE, 0, WEIR_CLASS_WEIGHTS, WEIR_ALLOC_ZEROED);
    resize_block(s, s->count - 1, 14 * GRANULE, 0);
    uint64_t released = 0;
    done(s, trim_keeping(s->runtime, 2 * GRANULE, &released));
    weir_trim_report report = WEIR_INIT(weir_trim_report);
    weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
    done(s, weir_runtime_trim(
                s->runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = GRANULE}, &report));
    if (done(s, weir_layout_walk(s->runtime, NULL, NULL, &totals)))
        assert_int_equal(totals.in_hand, 0);
    check_books(s);
    done(s, weir_runtime_set_budget(s->runtime, BUDGET - GRANULE));
    done(s, weir_runtime_set_budget(s->runtime, BUDGET));
    for (int i = 0; i < 6; i++)
        take_block(s, i % 2, 10000 + 30000 * (size_t)i, i % 2, i % 3 ? WEIR_CLASS_KV : WEIR_CLASS_WEIGHTS, 0);
    for (size_t i = 0; i < s->count; i += 2)
        drop_block(s, i, (int)(i / 2 % 2));
    take_block(s, 1, 6 * GRANULE, 1, WEIR_CLASS_KV, WEIR_ALLOC_NO_WAIT);
    while (s->count > 3) {
        size_t before = s->count;
        drop_block(s, 1, -1);
        if (s->count == before)
            break;
    }
}

static void run_scenario(scenario *s)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    if (!done(s, wi_runtime_create_over(&faulty_driver, 1, &options, &s->runtime)))
        return;
    for (int i = 0; i < 2; i++) {
        weir_client_options o = {.struct_size = sizeof o, .name = i ? "first" : "second", .guaranteed = 4 * GRANULE};
        done(s, weir_client_create(s->runtime, &o, &s->clients[i]));
        done(s, weir_stream_acquire(s->runtime, &s->streams[i]));
    }
    weir_trace *trace = NULL;
    done(s, weir_trace_create(
                s->runtime, &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = 64}, &trace));
    for (int round = 0; round < 5; round++)
        run_round(s);
    if (s->streams[1].id && done(s, weir_stream_release(s->streams[1])))
        s->streams[1] = WEIR_STREAM_HOST;
    check_books(s);
    weir_trace_destroy(trace);
}

/* With no more faults: everything is still there, all of the budget can be had, and all of it is given back. */
static void end_scenario(scenario *s)
{
    malloc_armed = false;
    fault.fail_at = -1;
    if (!s->runtime) {
        assert_true(faults_nothing_left());
        return;
    }
    for (int i = 0; i < 2; i++)
        if (!s->clients[i])
            s->clients[i] = open_client(s->runtime, "late", 0, 0);
    if (!s->streams[0].id)
        ok(weir_stream_acquire(s->runtime, &s->streams[0]));
    while (s->count)
        drop_block(s, 0, 0);
    wait_for(s, 0);
    if (s->streams[1].id)
        ok(weir_stream_release(s->streams[1]));
    ok(weir_client_destroy(s->clients[1]));
    s->clients[1] = NULL;
    take_block(s, 0, BUDGET, 0, WEIR_CLASS_KV, 0);
    assert_int_equal(s->count, 1);
    drop_block(s, 0, -1);
    take_block(s, 0, BUDGET, 0, WEIR_CLASS_WEIGHTS, 0);
    assert_int_equal(s->count, 1);
    drop_block(s, 0, -1);
    ok(weir_runtime_trim(s->runtime, NULL, NULL));
    assert_int_equal(take_snapshot(s->runtime).device.held, 0);
    ok(weir_client_destroy(s->clients[0]));
    ok(weir_stream_release(s->streams[0]));
    ok(weir_runtime_destroy(s->runtime));
    assert_true(faults_nothing_left());
}

static void without_a_fault(void **state)
{
    (void)state;
    scenario s = {0};
    faults_reset(-1);
    planned = WEIR_OK;
    run_scenario(&s);
    assert_int_equal(s.failed, false);
    end_scenario(&s);
}

static void a_fault_at_every_driver_call(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST, WEIR_ERR_OUT_OF_MEMORY};
    for (size_t k = 0; k < sizeof statuses / sizeof statuses[0]; k++) {
        long n = 0, answered = 0;
        for (;; n += UNDER_TSAN ? 11 : 1) {
            scenario s = {0};
            faults_reset(n);
            fault.status = planned = statuses[k];
            run_scenario(&s);
            bool reached = fault.calls > n;
            answered += s.failed;
            end_scenario(&s);
            if (!reached)
                break;
        }
        print_message("%ld driver calls, each failing once with %s; %ld seen by the caller\n", n,
                      weir_name_of(WEIR_NAMES_STATUS, statuses[k]), answered);
        assert_true(n > 40 && (UNDER_TSAN || answered > n / 4));
    }
}

/* From some call on nothing works: every call still ends, and the books stay exact. */
static void a_driver_that_stays_broken(void **state)
{
    (void)state;
    ok(weir_option_set("wait", "1ms"));
    for (long n = 0; n < 100; n += UNDER_TSAN ? 11 : 1) {
        scenario s = {0};
        faults_reset(n);
        fault.stay = true;
        planned = WEIR_ERR_DRIVER;
        run_scenario(&s);
        assert_true(s.failed);
        end_scenario(&s);
    }
    ok(weir_option_set("wait", NULL));
}

static void malloc_fails_at_every_call(void **state)
{
    (void)state;
    long n = 0, answered = 0;
    for (;; n += UNDER_TSAN ? 5 : 1) {
        scenario s = {0};
        faults_reset(-1);
        planned = WEIR_ERR_SYSTEM;
        mallocs = 0;
        malloc_fails_at = n;
        malloc_armed = true;
        run_scenario(&s);
        malloc_armed = false;
        answered += s.failed;
        bool reached = mallocs > n;
        end_scenario(&s);
        if (!reached)
            break;
    }
    assert_true(n > 20 && (UNDER_TSAN || answered > n / 3));
    print_message("%ld allocations on the heap, each failing once; %ld seen by the caller\n", n, answered);
}

static void sees_nothing(void *state, const weir_adaptor_block *of)
{
    (void)state, (void)of;
}

/* Each resource that a stack may have, and each request for host memory of its making. */
static void malloc_fails_while_a_stack_is_made(void **state)
{
    static const char *const stacks[] = {
        "mapped",      "direct",        "async",        "segments",
        "log(direct)", "guard(direct)", "seen(direct)", "guard(log(budget(seen(segments))))"};
    static const weir_adaptor_table seen = {.struct_size = sizeof seen, .name = "seen", .freed = sees_nothing};
    (void)state;
    ok(weir_adaptor_register(&seen));
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        bool reached = true;
        for (malloc_fails_at = 0; reached; malloc_fails_at++) {
            weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = stacks[i]};
            weir_runtime *runtime = NULL;
            faults_reset(-1);
            mallocs = 0;
            malloc_armed = true;
            weir_status status = wi_runtime_create_over(&faulty_driver, 0, &options, &runtime);
            malloc_armed = false;
            reached = mallocs > malloc_fails_at;
            if (status == WEIR_OK)
                ok(weir_runtime_destroy(runtime));
            else
                assert_int_equal(status, WEIR_ERR_SYSTEM);
        }
        assert_true(malloc_fails_at > 3);
    }
}

/* The device has less than the budget would allow: what lies free is used first, then the refusal says so. */
static void a_device_smaller_than_the_budget(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * GRANULE};
    weir_runtime *runtime;
    faults_reset(-1);
    fault.limit = 10;
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    assert_string_equal(runtime_details(runtime).device, "faulty:0");
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *w = allocate(client, 6 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *k = allocate(client, 4 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV), *p;
    snapshot before = take_snapshot(runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    weir_refusal r = last_refusal();
    assert_true(r.cause == WEIR_CAUSE_OTHER_PROCESS || r.cause == WEIR_CAUSE_DEVICE);
    detail_names("x asked for");
    snapshot after = take_snapshot(runtime);
    assert_int_equal(after.device.live, before.device.live);
    assert_int_equal(after.device.held, before.device.held);
    ok(weir_free(client, w, WEIR_STREAM_HOST));
    p = allocate(client, 6 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* from under the other side's free memory */
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_free(client, k, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

/* Handles that a failed request leaves over are spare: kept as far as asked for, and used before new ones. */
static void spare_handles(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_runtime *runtime;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p;
    fault.fail_at = fault.calls + 1; /* after the create comes the map */
    fails(WEIR_ERR_DRIVER, weir_alloc(client, 9 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_int_equal(take_snapshot(runtime).device.spare, 9 * GRANULE);
    uint64_t released = 0;
    ok(trim_keeping(runtime, 5 * GRANULE + 1, &released));
    assert_int_equal(released, 4 * GRANULE);
    assert_int_equal(take_snapshot(runtime).device.spare, 5 * GRANULE);
    p = allocate(client, 4 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    assert_int_equal(take_snapshot(runtime).device.held, 5 * GRANULE);
    assert_int_equal(fault.handles, 5);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

static void *trim_all(void *user)
{
    uint64_t released = 0;
    return trim_keeping(user, 0, &released) == WEIR_OK ? NULL : user;
}

/* What another thread has in the driver just now is no shortage: it is waited for. */
static void memory_in_the_driver_is_waited_for(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_runtime *runtime;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "x", 0, 0);
    gate g = GATE;
    pthread_t trimmer, opener;
    for (int grown = 0; grown < 2; grown++) {
        void *p = allocate(client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_resize(client, p, GRANULE, WEIR_STREAM_HOST));
        if (!grown)
            ok(weir_free(client, p, WEIR_STREAM_HOST));
        g = (gate)GATE;
        fault.in_destroy = pass_gate;
        fault.user = &g;
        pthread_create(&trimmer, NULL, trim_all, runtime);
        pthread_mutex_lock(&g.lock);
        while (!g.reached)
            pthread_cond_wait(&g.changed, &g.lock);
        pthread_mutex_unlock(&g.lock);
        pthread_create(&opener, NULL, open_gate_later, &g);
        if (grown)
            ok(weir_resize(client, p, BUDGET, WEIR_STREAM_HOST));
        else
            p = allocate(client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        void *failed;
        pthread_join(opener, NULL);
        pthread_join(trimmer, &failed);
        assert_null(failed);
        fault.in_destroy = NULL;
        ok(weir_free(client, p, WEIR_STREAM_HOST));
    }
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

static void sleep_a_little(void *user)
{
    (void)user;
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
}

static void destroying_waits_for_work_on_its_memory(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_runtime *runtime;
    weir_stream stream;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "x", 0, 0);
    ok(weir_stream_acquire(runtime, &stream));
    unsigned char *p = allocate(client, BUDGET, stream, WEIR_CLASS_KV);
    void *native = weir_stream_native(stream);
    assert_non_null(native);
    ok(weir_free(client, p, stream));
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    /* Work that came to the stream as it was being released: it still finds the memory. */
    ok(wi_host_driver.call(NULL, sleep_a_little, NULL, native));
    ok(wi_host_driver.fill(NULL, p, 1, BUDGET, native));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

static void *use_all_of_it(void *user)
{
    for (int i = 0; i < 200; i++) {
        uint64_t released = 0;
        void *p;
        if (weir_alloc(user, 2 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p) != WEIR_OK ||
            weir_free(user, p, WEIR_STREAM_HOST) != WEIR_OK ||
            trim_keeping(client_details(user).runtime, 0, &released) != WEIR_OK)
            return user;
    }
    return NULL;
}

/* What the driver counts is right whoever calls it. */
static void the_faulty_driver_serves_many_threads(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_runtime *runtime;
    pthread_t threads[4];
    faults_reset(-1);
    fault.limit = 10;
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "x", 0, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_all_of_it, client), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(take_snapshot(runtime).device.held, (uint64_t)fault.handles * GRANULE);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_fault),
        cmocka_unit_test(a_fault_at_every_driver_call),
        cmocka_unit_test(a_driver_that_stays_broken),
        cmocka_unit_test(malloc_fails_at_every_call),
        cmocka_unit_test(malloc_fails_while_a_stack_is_made),
        cmocka_unit_test(a_device_smaller_than_the_budget),
        cmocka_unit_test(spare_handles),
        cmocka_unit_test(memory_in_the_driver_is_waited_for),
        cmocka_unit_test(destroying_waits_for_work_on_its_memory),
        cmocka_unit_test(the_faulty_driver_serves_many_threads),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
