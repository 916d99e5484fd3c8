/* Pinned and pageable memory: where it counts, which is the host's ledger. */
#include "kinds.h"
#include <weir/trace.h>

/* Where it counts -------------------------------------------------------------------------------------------------- */

static void charged_in_the_hosts_ledger(void **state)
{
    fixture *f = *state;
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++) {
        snapshot own = take_snapshot(f->runtime);
        unsigned char *p = take(f, (weir_kind)kind, 5 * KIB + 1);
        weir_block_details details = look(p + 100);
        assert_int_equal(details.charged, 5 * KIB + 256);
        assert_true(details.charged * 100 <= (5 * KIB + 1) * 105);
        assert_int_equal(details.kind, on_host() ? WEIR_KIND_DEVICE : kind);
        assert_int_equal(details.offset, 100);
        assert_ptr_equal(details.client, f->client);
        assert_ptr_equal(details.runtime, f->runtime);
        assert_string_equal(details.tag, "staging");
        snapshot s = take_snapshot(f->host);
        check_sums(&s);
        assert_int_equal(s.count, 1);
        assert_string_equal(s.clients[0].name, "one");
        assert_ptr_equal(s.clients[0].client, f->client);
        assert_int_equal(s.clients[0].live, 5 * KIB + 256);
        assert_int_equal(s.clients[0].live_class[WEIR_CLASS_ACTIVATIONS], 5 * KIB + 256);
        assert_int_equal(s.device.live, 5 * KIB + 256);
        if (!on_host()) {
            assert_int_equal(s.device.held, 5 * KIB + 256);
            unchanged(f->runtime, own);
        }
        if (!f->sim)
            memset(p, 1, 5 * KIB + 1);
        ok(weir_free(f->client, p, WEIR_STREAM_HOST));
        s = take_snapshot(f->host);
        assert_int_equal(s.device.live + s.device.pending, 0);
        if (!on_host())
            assert_int_equal(s.device.held, 0);
    }
}

static void the_hosts_budget(void **state)
{
    fixture *f = *state;
    void *p, *q;
    if (on_host())
        return;
    snapshot own = take_snapshot(f->runtime);
    ok(weir_client_set_limits(f->client, 0, 4096)); /* of device memory */
    fails(WEIR_ERR_OUT_OF_MEMORY, take_with(f->client, WEIR_KIND_PINNED, HOST_BUDGET + 1, f->stream, 0, &p));
    assert_null(p);
    weir_refusal refusal = last_refusal();
    assert_int_equal(refusal.cause, WEIR_CAUSE_BUDGET);
    assert_string_equal(refusal.device, "host");
    assert_string_equal(refusal.client, "one");
    assert_int_equal(refusal.requested, HOST_BUDGET + 256);
    assert_int_equal(refusal.limit, HOST_BUDGET);
    detail_names("on host");
    ok(take_with(f->client, WEIR_KIND_PINNED, HOST_BUDGET - 1024, f->stream, 0, &p));
    fails(WEIR_ERR_OUT_OF_MEMORY, take_with(f->client, WEIR_KIND_HOST, 1025, f->stream, WEIR_ALLOC_NO_WAIT, &q));
    assert_int_equal(last_refusal().remaining, 1024);
    ok(take_with(f->client, WEIR_KIND_HOST, 1024, f->stream, 0, &q)); /* to the last byte */
    assert_int_equal(take_snapshot(f->host).device.live, HOST_BUDGET);
    ok(weir_free(f->client, p, f->stream));
    ok(weir_free(f->client, q, f->stream));
    ok(weir_stream_synchronize(f->stream));
    ok(weir_client_set_limits(f->client, 0, 0));
    unchanged(f->runtime, own);
}

/* One budget for both: what lies free, or is pending and passed, on one side serves the other. */
static void host_and_device_share_it(void **state)
{
    fixture *f = *state;
    void *p;
    if (on_host())
        return;
    weir_client *neighbour = open_client(f->host, "neighbour", 0, 0);
    void *d = take(f, WEIR_KIND_DEVICE, 1000);
    for (int round = 0; round < 3; round++) {
        void *q = allocate(neighbour, HOST_BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        fails(WEIR_ERR_OUT_OF_MEMORY, take_with(f->client, WEIR_KIND_PINNED, 1, f->stream, 0, &p));
        detail_names("neighbour holds 1 MiB");
        ok(weir_free(neighbour, q, WEIR_STREAM_HOST));
        assert_int_equal(take_snapshot(f->host).device.held, HOST_BUDGET); /* cached */
        p = take(f, WEIR_KIND_PINNED, 10 * KIB);
        assert_true(take_snapshot(f->host).device.held > HOST_BUDGET / 2); /* not all of it was given up */
        ok(weir_free(f->client, p, WEIR_STREAM_HOST));
        p = take(f, WEIR_KIND_PINNED, HOST_BUDGET);
        f->gate = (gate)GATE;
        hold_stream(f);
        ok(weir_fill(f->runtime, d, 1, 1000, f->stream));
        ok(weir_free(f->client, p, f->stream));
        assert_int_equal(take_snapshot(f->host).device.pending, HOST_BUDGET);
        let_go(f); /* nobody looks at the device's runtime from here on */
    }
    ok(weir_free(f->client, d, WEIR_STREAM_HOST));
    ok(weir_client_destroy(neighbour));
}

static void the_hosts_runtime_of_the_process(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime_on(device(), BUDGET), *host;
    weir_client *client = open_client(runtime, "staged", 0, 0);
    void *p;
    ok(weir_runtime_get("host", NULL, &host));
    snapshot before = take_snapshot(host);
    ok(take_with(client, WEIR_KIND_PINNED, 3000, WEIR_STREAM_HOST, 0, &p));
    snapshot s = take_snapshot(host);
    assert_int_equal(s.device.live - before.device.live, on_host() ? 0 : 3072);
    assert_int_equal(s.count - before.count, on_host() ? 0 : 1);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    assert_int_equal(take_snapshot(host).count, before.count);
    ok(weir_runtime_destroy(runtime));
}

/* The process's host is not started for a runtime that was given one: here it could not even be made. */
static void a_host_of_ones_own(void **state)
{
    fixture *f = *state;
    void *p;
    if (on_host())
        return;
    ok(weir_option_set("resource", "guard(zone=2GiB, mapped)"));
    weir_runtime *runtime;
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", NULL, &runtime));
    p = take(f, WEIR_KIND_PINNED, 1000);
    ok(weir_option_set("resource", NULL));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
}

/* Freed blocks that the host's guard keeps back are given up before a request is refused. */
static void what_the_hosts_guard_keeps_back(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = HOST_BUDGET, .resource = "guard(mapped)"};
    weir_runtime *runtime;
    void *p;
    if (on_host())
        return;
    ok(weir_runtime_create("host", &options, &options.host));
    options.budget = BUDGET;
    options.resource = NULL;
    ok(weir_runtime_create(device(), &options, &runtime));
    weir_client *neighbour = open_client(options.host, "neighbour", 0, 0), *client = open_client(runtime, "one", 0, 0);
    ok(weir_free(neighbour, allocate(neighbour, HOST_BUDGET / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    assert_true(take_snapshot(options.host).device.pending >= HOST_BUDGET / 2);
    ok(take_with(client, WEIR_KIND_PINNED, HOST_BUDGET * 3 / 4, WEIR_STREAM_HOST, 0, &p));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_client_destroy(neighbour));
    ok(weir_runtime_destroy(runtime));
    ok(weir_runtime_destroy(options.host));
}

/* What the device's runtime has freed and is past counts for the host, whoever asks. */
static void what_is_past_elsewhere_is_in_nobodys_way(void **state)
{
    fixture *f = *state;
    if (on_host())
        return;
    weir_client *neighbour = open_client(f->host, "neighbour", 0, 0), *second;
    weir_client_options options = {.struct_size = sizeof options, .name = "second", .guaranteed = HOST_BUDGET};
    void *d = take(f, WEIR_KIND_DEVICE, 1000);
    for (int way = 0; way < 4; way++) {
        void *p = take(f, way % 2 ? WEIR_KIND_PINNED : WEIR_KIND_HOST, HOST_BUDGET / 2);
        f->gate = (gate)GATE;
        hold_stream(f);
        ok(weir_fill(f->runtime, d, 1, 1000, f->stream));
        ok(weir_free(f->client, p, f->stream));
        let_go(f); /* nobody looks at the device's runtime from here on */
        if (way == 0) {
            ok(weir_client_create(f->host, &options, &second));
            ok(weir_client_destroy(second));
        } else if (way == 1) {
            ok(weir_client_set_limits(neighbour, HOST_BUDGET, 0));
            ok(weir_client_set_limits(neighbour, 0, 0));
        } else if (way == 2) {
            ok(weir_runtime_set_budget(f->host, HOST_BUDGET / 4));
            ok(weir_runtime_set_budget(f->host, HOST_BUDGET));
        } else {
            assert_int_equal(take_snapshot(f->host).device.pending, 0);
        }
    }
    ok(weir_free(f->client, d, WEIR_STREAM_HOST));
    ok(weir_client_destroy(neighbour));
}

/* One of several runtimes whose pinned memory, or own, is the host's. */
typedef struct party {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    void *block; /* of the device's, which the work of its stream is for */
} party;

static party join(weir_runtime *runtime)
{
    party p = {.runtime = runtime, .client = open_client(runtime, "party", 0, 0)};
    ok(weir_stream_acquire(runtime, &p.stream));
    p.block = allocate(p.client, 1000, p.stream, WEIR_CLASS_KV);
    return p;
}

static void leave(party *p)
{
    ok(weir_free(p->client, p->block, WEIR_STREAM_HOST));
    ok(weir_stream_release(p->stream));
    ok(weir_client_destroy(p->client));
}

/* Who may wait gets what is pending with another one that draws from the same budget: of the host's, or another's. */
static void what_is_pending_elsewhere_is_waited_for(void **state)
{
    enum { MOST = HOST_BUDGET / 2 + 256, PARTIES = 3 };
    fixture *f = *state;
    weir_runtime *third;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .host = f->host};
    if (on_host())
        return;
    ok(weir_runtime_create(device(), &options, &third));
    ok(weir_option_set("wait", "20s"));
    party parties[PARTIES] = {join(f->host), join(f->runtime), join(third)};
    for (int i = 0; i < PARTIES * PARTIES; i++) {
        party *has = &parties[i / PARTIES], *wants = &parties[i % PARTIES];
        bool held = has == &parties[0] || !f->sim;
        void *p, *q;
        pthread_t opener;
        f->gate = (gate)GATE;
        ok(take_with(has->client, WEIR_KIND_PINNED, MOST, has->stream, 0, &p));
        if (held)
            ok(weir_call(has->runtime, pass_gate, &f->gate, has->stream));
        ok(weir_fill(has->runtime, has->block, 1, 1000, has->stream));
        ok(weir_free(has->client, p, has->stream));
        if (i > 0) { /* the host's own memory is at once its stream's again */
            fails(WEIR_ERR_OUT_OF_MEMORY,
                  take_with(wants->client, WEIR_KIND_PINNED, MOST, wants->stream, WEIR_ALLOC_NO_WAIT, &q));
            assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
        }
        if (held)
            assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &f->gate), 0);
        ok(take_with(wants->client, WEIR_KIND_PINNED, MOST, wants->stream, 0, &q));
        if (held) {
            pthread_join(opener, NULL);
            ok(weir_stream_synchronize(has->stream)); /* nobody is at the gate any more */
        }
        ok(weir_free(wants->client, q, WEIR_STREAM_HOST));
    }
    ok(weir_option_set("wait", NULL));
    for (int i = 0; i < PARTIES; i++)
        leave(&parties[i]);
    ok(weir_runtime_destroy(third));
}

/* The trace of the host's runtime begins with all that lives in its ledger, and so knows what is freed later. */
static void a_trace_of_the_host(void **state)
{
    fixture *f = *state;
    weir_client *neighbour = open_client(f->host, "neighbour", 0, 0);
    void *blocks[] = {allocate(neighbour, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV), take(f, WEIR_KIND_PINNED, 2000),
                      take(f, WEIR_KIND_HOST, 3000)};
    weir_trace *trace;
    weir_event events[16];
    size_t count, allocated = 0, freed = 0;
    ok(weir_trace_create(f->host, NULL, &trace));
    ok(weir_free(neighbour, blocks[0], WEIR_STREAM_HOST));
    ok(weir_free(f->client, blocks[1], WEIR_STREAM_HOST));
    ok(weir_free(f->client, blocks[2], WEIR_STREAM_HOST));
    events[0].struct_size = sizeof events[0];
    ok(weir_trace_read(trace, events, 16, &count));
    for (size_t i = 0; i < count; i++) {
        const weir_event *e = &events[i];
        assert_true(e->action != WEIR_ACTION_ALLOCATE || e->pointer == blocks[0] || e->pointer == blocks[1] ||
                    e->pointer == blocks[2]);
        allocated += e->action == WEIR_ACTION_ALLOCATE;
        freed += e->action == WEIR_ACTION_DEALLOCATE;
        if (e->action == WEIR_ACTION_ALLOCATE && allocated == 3)
            assert_int_equal(e->live, 1024 + 2048 + 3072);
    }
    assert_int_equal(allocated, 3);
    assert_int_equal(freed, 3);
    weir_trace_destroy(trace);
    ok(weir_client_destroy(neighbour));
}

int main(void)
{
    setenv("WEIR_THREAD_CACHE", "0", 1); /* what is freed is pending, and no thread cache keeps it */
    const struct CMUnitTest tests[] = {
        CASE(a_host_of_ones_own), /* before anybody starts the process's */
        CASE(charged_in_the_hosts_ledger),
        CASE(the_hosts_budget),
        CASE(host_and_device_share_it),
        CASE(what_is_past_elsewhere_is_in_nobodys_way),
        CASE(what_is_pending_elsewhere_is_waited_for),
        CASE(a_trace_of_the_host),
        cmocka_unit_test(what_the_hosts_guard_keeps_back),
        cmocka_unit_test(the_hosts_runtime_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
