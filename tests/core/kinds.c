/* Pinned and pageable memory: ordered on the device's streams, counted in the host's ledger. On the device that
 * WEIR_TEST_DEVICE names, or the host, whose memory is of one kind. */
#include "core.h"
#include "core/faulty.h"

#include "driver/sim.h"
#include "runtime/runtime.h"

#include <stdatomic.h>

enum { BUDGET = 8 << 20, HOST_BUDGET = 1 << 20 };

typedef struct fixture {
    weir_runtime *runtime, *host; /* the one whose ledger it is: `runtime` itself, if that is the host's */
    weir_client *client;
    weir_stream stream;
    bool sim; /* no bytes, and its work is done when somebody waits for it */
    gate gate;
} fixture;

static const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

static bool on_host(void)
{
    return strcmp(device(), "host") == 0;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->sim = strncmp(device(), "sim", 3) == 0;
    if (f->sim)
        wi_sim_configure(&(wi_sim_options){.seed = 1});
    weir_runtime_options options = {.size = sizeof options, .budget = BUDGET};
    if (!on_host())
        options.host = f->host = make_runtime(HOST_BUDGET);
    ok(weir_runtime_create(device(), &options, &f->runtime));
    if (on_host())
        f->host = f->runtime;
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    f->gate = (gate)GATE;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->stream));
    check_empty(f->runtime);
    check_empty(f->host);
    ok(weir_client_close(f->client));
    ok(weir_runtime_destroy(f->runtime));
    if (f->host != f->runtime)
        ok(weir_runtime_destroy(f->host));
    free(f);
    return 0;
}

static weir_status take_with(weir_client *client, weir_kind kind, size_t bytes, weir_stream stream, uint32_t flags,
                             void **out)
{
    weir_request request = {.size = sizeof request,
                            .bytes = bytes,
                            .stream = stream,
                            .memory_class = WEIR_ACTIVATIONS,
                            .tag = "staging",
                            .flags = flags,
                            .kind = kind};
    weir_block block = {out, 1};
    weir_status status = weir_alloc_with(client, &request, &block);
    *out = block.pointer;
    return status;
}

static void *take(fixture *f, weir_kind kind, size_t bytes)
{
    void *p;
    ok(take_with(f->client, kind, bytes, f->stream, 0, &p));
    return p;
}

static weir_block_details look(const void *p)
{
    weir_block_details details = {.size = sizeof details};
    ok(weir_block_info(p, &details));
    return details;
}

/* The stream holds what is put on it from here on. */
static void hold_stream(fixture *f)
{
    if (!f->sim)
        ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
}

static void let_go(fixture *f)
{
    open_gate(&f->gate);
    ok(weir_stream_synchronize(f->stream));
}

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
        assert_int_equal(s.clients[0].live_class[WEIR_ACTIVATIONS], 5 * KIB + 256);
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
    fails(WEIR_OUT_OF_MEMORY, take_with(f->client, WEIR_KIND_PINNED, HOST_BUDGET + 1, f->stream, 0, &p));
    assert_null(p);
    weir_refusal refusal = last_refusal();
    assert_int_equal(refusal.cause, WEIR_CAUSE_BUDGET);
    assert_string_equal(refusal.device, "host");
    assert_string_equal(refusal.client, "one");
    assert_int_equal(refusal.requested, HOST_BUDGET + 256);
    assert_int_equal(refusal.limit, HOST_BUDGET);
    detail_names("on host");
    ok(take_with(f->client, WEIR_KIND_PINNED, HOST_BUDGET - 1024, f->stream, 0, &p));
    fails(WEIR_OUT_OF_MEMORY, take_with(f->client, WEIR_KIND_HOST, 1025, f->stream, WEIR_NO_WAIT, &q));
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
        void *q = allocate(neighbour, HOST_BUDGET, WEIR_STREAM_HOST, WEIR_KV);
        fails(WEIR_OUT_OF_MEMORY, take_with(f->client, WEIR_KIND_PINNED, 1, f->stream, 0, &p));
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
    ok(weir_client_close(neighbour));
}

static void the_hosts_runtime_of_the_process(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime_on(device(), BUDGET), *host;
    weir_client *client = open_client(runtime, "staged", 0, 0);
    void *p;
    ok(weir_runtime_get("host", &host));
    snapshot before = take_snapshot(host);
    ok(take_with(client, WEIR_KIND_PINNED, 3000, WEIR_STREAM_HOST, 0, &p));
    snapshot s = take_snapshot(host);
    assert_int_equal(s.device.live - before.device.live, on_host() ? 0 : 3072);
    assert_int_equal(s.count - before.count, on_host() ? 0 : 1);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_close(client));
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
    fails(WEIR_INVALID, weir_runtime_create("host", NULL, &runtime));
    p = take(f, WEIR_KIND_PINNED, 1000);
    ok(weir_option_set("resource", NULL));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
}

/* Freed blocks that the host's guard keeps back are given up before a request is refused. */
static void what_the_hosts_guard_keeps_back(void **state)
{
    (void)state;
    weir_runtime_options options = {.size = sizeof options, .budget = HOST_BUDGET, .resource = "guard(mapped)"};
    weir_runtime *runtime;
    void *p;
    if (on_host())
        return;
    ok(weir_runtime_create("host", &options, &options.host));
    options.budget = BUDGET;
    options.resource = NULL;
    ok(weir_runtime_create(device(), &options, &runtime));
    weir_client *neighbour = open_client(options.host, "neighbour", 0, 0), *client = open_client(runtime, "one", 0, 0);
    ok(weir_free(neighbour, allocate(neighbour, HOST_BUDGET / 2, WEIR_STREAM_HOST, WEIR_KV), WEIR_STREAM_HOST));
    assert_true(take_snapshot(options.host).device.pending >= HOST_BUDGET / 2);
    ok(take_with(client, WEIR_KIND_PINNED, HOST_BUDGET * 3 / 4, WEIR_STREAM_HOST, 0, &p));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_close(client));
    ok(weir_client_close(neighbour));
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
    weir_client_options options = {.size = sizeof options, .name = "second", .guaranteed = HOST_BUDGET};
    void *d = take(f, WEIR_KIND_DEVICE, 1000);
    for (int way = 0; way < 4; way++) {
        void *p = take(f, way % 2 ? WEIR_KIND_PINNED : WEIR_KIND_HOST, HOST_BUDGET / 2);
        f->gate = (gate)GATE;
        hold_stream(f);
        ok(weir_fill(f->runtime, d, 1, 1000, f->stream));
        ok(weir_free(f->client, p, f->stream));
        let_go(f); /* nobody looks at the device's runtime from here on */
        if (way == 0) {
            ok(weir_client_open(f->host, &options, &second));
            ok(weir_client_close(second));
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
    ok(weir_client_close(neighbour));
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
    p.block = allocate(p.client, 1000, p.stream, WEIR_KV);
    return p;
}

static void leave(party *p)
{
    ok(weir_free(p->client, p->block, WEIR_STREAM_HOST));
    ok(weir_stream_release(p->stream));
    ok(weir_client_close(p->client));
}

/* Who may wait gets what is pending with another one that draws from the same budget: of the host's, or another's. */
static void what_is_pending_elsewhere_is_waited_for(void **state)
{
    enum { MOST = HOST_BUDGET / 2 + 256, PARTIES = 3 };
    fixture *f = *state;
    weir_runtime *third;
    weir_runtime_options options = {.size = sizeof options, .budget = BUDGET, .host = f->host};
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
            fails(WEIR_OUT_OF_MEMORY,
                  take_with(wants->client, WEIR_KIND_PINNED, MOST, wants->stream, WEIR_NO_WAIT, &q));
            assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
        }
        if (held)
            assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &f->gate), 0);
        ok(take_with(wants->client, WEIR_KIND_PINNED, MOST, wants->stream, 0, &q));
        if (held)
            pthread_join(opener, NULL);
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
    void *blocks[] = {allocate(neighbour, 1000, WEIR_STREAM_HOST, WEIR_KV), take(f, WEIR_KIND_PINNED, 2000),
                      take(f, WEIR_KIND_HOST, 3000)};
    weir_trace *trace;
    weir_event events[16];
    size_t count, allocated = 0, freed = 0;
    ok(weir_trace_open(f->host, 0, &trace));
    ok(weir_free(neighbour, blocks[0], WEIR_STREAM_HOST));
    ok(weir_free(f->client, blocks[1], WEIR_STREAM_HOST));
    ok(weir_free(f->client, blocks[2], WEIR_STREAM_HOST));
    events[0].size = sizeof events[0];
    ok(weir_trace_read(trace, events, 16, &count));
    for (size_t i = 0; i < count; i++) {
        const weir_event *e = &events[i];
        assert_true(e->action != WEIR_ALLOCATE || e->pointer == blocks[0] || e->pointer == blocks[1] ||
                    e->pointer == blocks[2]);
        allocated += e->action == WEIR_ALLOCATE;
        freed += e->action == WEIR_DEALLOCATE;
        if (e->action == WEIR_ALLOCATE && allocated == 3)
            assert_int_equal(e->live, 1024 + 2048 + 3072);
    }
    assert_int_equal(allocated, 3);
    assert_int_equal(freed, 3);
    weir_trace_close(trace);
    ok(weir_client_close(neighbour));
}

/* In the order of streams ------------------------------------------------------------------------------------------ */

static void copies(void **state)
{
    fixture *f = *state;
    enum { BYTES = 100000 };
    if (f->sim)
        return; /* it has no bytes */
    void *on_device = take(f, WEIR_KIND_DEVICE, BYTES);
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++) {
        unsigned char *to = take(f, (weir_kind)kind, BYTES), *from = take(f, (weir_kind)kind, BYTES);
        memset(from, 40 + kind, BYTES);
        memset(to, 0, BYTES);
        ok(weir_copy(f->runtime, on_device, from, BYTES, f->stream));
        ok(weir_copy(f->runtime, to, on_device, BYTES, f->stream));
        ok(weir_free(f->client, from, f->stream));
        ok(weir_stream_synchronize(f->stream));
        for (int i = 0; i < BYTES; i++)
            assert_int_equal(to[i], 40 + kind);
        ok(weir_free(f->client, to, f->stream));
    }
    ok(weir_free(f->client, on_device, f->stream));
}

static void a_free_is_ordered(void **state)
{
    fixture *f = *state;
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++) {
        void *p = take(f, (weir_kind)kind, 3000), *d = take(f, WEIR_KIND_DEVICE, 4000);
        f->gate = (gate)GATE;
        hold_stream(f);
        ok(weir_fill(f->runtime, d, 1, 4000, f->stream));
        ok(weir_free(f->client, p, f->stream));
        snapshot s = take_snapshot(f->host);
        check_sums(&s);
        if (on_host()) { /* its own stream may have them at once */
            assert_int_equal(s.device.ordered, 3072);
        } else {
            assert_int_equal(s.device.pending, 3072);
            assert_int_equal(look(p).state, WEIR_BLOCK_PENDING);
        }
        let_go(f);
        (void)take_snapshot(f->runtime);
        s = take_snapshot(f->host);
        assert_int_equal(unpassed(&s), 0);
        ok(weir_free(f->client, d, WEIR_STREAM_HOST));
    }
}

static void declared_uses(void **state)
{
    fixture *f = *state;
    void *p = take(f, WEIR_KIND_PINNED, 3000), *d = take(f, WEIR_KIND_DEVICE, 3000);
    weir_stream other;
    weir_launch *launch;
    ok(weir_stream_acquire(f->runtime, &other));
    weir_use uses[] = {{{p, 0}, WEIR_READ}, {{d, 0}, WEIR_WRITE}};
    f->gate = (gate)GATE;
    hold_stream(f);
    ok(weir_launch_begin(f->runtime, f->stream, uses, 2, &launch));
    fails(WEIR_BUSY, weir_free(f->client, p, other));
    ok(weir_fill(f->runtime, d, 1, 3000, f->stream));
    ok(weir_launch_end(launch));
    ok(weir_use_record(f->runtime, p, f->stream));
    ok(weir_free(f->client, p, other)); /* ordered behind the use, not only behind its own stream */
    ok(weir_free(f->client, d, other));
    assert_true(take_snapshot(f->host).device.pending >= 3072);
    let_go(f);
    (void)take_snapshot(f->runtime);
    assert_int_equal(take_snapshot(f->host).device.pending, 0);
    ok(weir_stream_release(other));
}

/* The host zeroes what no device has seen, at once: on a captured stream, too. */
static void zeros(void **state)
{
    fixture *f = *state;
    void *p;
    weir_client_options options = {.size = sizeof options, .name = "secret", .scrub = WEIR_SCRUB_OTHERS};
    weir_client *secret;
    if (on_host())
        return;
    ok(weir_client_open(f->runtime, &options, &secret));
    ok(weir_capture_begin(f->stream));
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++)
        for (int scrubs = 0; scrubs < 2; scrubs++) {
            weir_client *client = scrubs ? secret : f->client;
            ok(take_with(f->client, (weir_kind)kind, 3000, WEIR_STREAM_HOST, 0, &p));
            memset(p, 0xa5, 3000);
            ok(weir_free(f->client, p, WEIR_STREAM_HOST));
            ok(take_with(client, (weir_kind)kind, 3000, f->stream, scrubs ? 0 : WEIR_ZEROED, &p));
            for (int i = 0; i < 3000; i++)
                assert_int_equal(((unsigned char *)p)[i], 0);
            ok(weir_free(client, p, WEIR_STREAM_HOST));
        }
    ok(weir_capture_end(f->stream));
    ok(weir_client_close(secret));
}

/* Resizing, closing, misuse ------------------------------------------------------------------------------------------ */

static void resizing(void **state)
{
    fixture *f = *state;
    void *p = take(f, WEIR_KIND_PINNED, 3000);
    ok(weir_resize(f->client, p, 3072, f->stream));
    ok(weir_resize(f->client, p, 1000, f->stream));
    ok(weir_stream_synchronize(f->stream));
    (void)take_snapshot(f->runtime);
    assert_int_equal(take_snapshot(f->host).device.live, 1024);
    assert_int_equal(look(p).bytes, 1000);
    if (!on_host())
        fails(WEIR_NO_ROOM, weir_resize(f->client, p, 4000, f->stream));
    ok(weir_free(f->client, p, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

static void closing_a_client(void **state)
{
    fixture *f = *state;
    weir_client *client = open_client(f->runtime, "leaving", 0, 0);
    void *p;
    size_t before = take_snapshot(f->host).count;
    ok(take_with(client, WEIR_KIND_PINNED, 3000, f->stream, 0, &p));
    fails(WEIR_BUSY, weir_client_close(client));
    detail_names("leaving has 1 blocks of 3 KiB");
    detail_names("staging");
    if (!on_host())
        detail_names("in the memory of host");
    f->gate = (gate)GATE;
    hold_stream(f);
    ok(weir_free(client, p, f->stream));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, open_gate_later, &f->gate), 0);
    ok(weir_client_close(client)); /* waits for the free */
    pthread_join(thread, NULL);
    assert_int_equal(take_snapshot(f->host).count, on_host() ? before - 1 : before);
    fails(WEIR_INVALID, take_with(client, WEIR_KIND_PINNED, 1, f->stream, 0, &p));
}

static void calls_that_are_wrong(void **state)
{
    fixture *f = *state;
    weir_client *other = open_client(f->runtime, "other", 0, 0);
    char *p = take(f, WEIR_KIND_PINNED, 3000);
    void *q;
    weir_reservation *reservation;
    ok(weir_reserve(f->client, 4096, 0, &reservation));
    snapshot before = take_snapshot(f->host);
    fails(WEIR_INTERIOR, weir_free(f->client, p + 8, f->stream));
    fails(WEIR_FOREIGN, weir_free(other, p, f->stream));
    fails(WEIR_INVALID, take_with(f->client, WEIR_KIND_COUNT, 1, f->stream, 0, &q));
    weir_request request = {.size = sizeof request, .bytes = 1, .reservation = reservation, .kind = WEIR_KIND_HOST};
    weir_block block;
    if (!on_host())
        fails(WEIR_INVALID, weir_alloc_with(f->client, &request, &block));
    unchanged(f->host, before);
    ok(weir_reservation_release(reservation));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    fails(WEIR_DOUBLE_FREE, weir_free(f->client, p, WEIR_STREAM_HOST));
    ok(weir_client_close(other));
}

static void hosts_that_are_none(void **state)
{
    fixture *f = *state;
    weir_runtime *runtime = f->host, *host = make_runtime(HOST_BUDGET);
    weir_runtime_options options = {.size = sizeof options, .budget = BUDGET, .host = host};
    fails(WEIR_INVALID, weir_runtime_create("host", &options, &runtime));
    assert_null(runtime);
    fails(WEIR_INVALID, weir_runtime_get_with(device(), &options, &runtime));
    if (!on_host()) {
        options.host = f->runtime;
        fails(WEIR_INVALID, weir_runtime_create(device(), &options, &runtime));
        fails(WEIR_BUSY, weir_runtime_destroy(f->host));
        detail_names("is the host of 1 others");
    }
    ok(weir_runtime_destroy(host));
}

/* Failures and threads ----------------------------------------------------------------------------------------------- */

static void a_driver_that_fails(void **state)
{
    (void)state;
    weir_runtime *runtime, *host = make_runtime(HOST_BUDGET);
    weir_runtime_options options = {.size = sizeof options, .budget = BUDGET, .host = host};
    void *p;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++) {
        fault.fail_at = fault.calls;
        fails(WEIR_DRIVER, take_with(client, (weir_kind)kind, 3000, WEIR_STREAM_HOST, 0, &p));
        fault.fail_at = -1;
        snapshot s = take_snapshot(host);
        check_sums(&s);
        assert_int_equal(s.device.live + s.device.promised + s.device.held, 0);
        ok(take_with(client, (weir_kind)kind, 3000, WEIR_STREAM_HOST, 0, &p));
        fault.fail_at = fault.calls; /* what the driver does not take back stays pending, and is tried again */
        ok(weir_free(client, p, WEIR_STREAM_HOST));
        fault.fail_at = -1;
        assert_int_equal(look(p).state, WEIR_BLOCK_PENDING);
        s = take_snapshot(host);
        assert_int_equal(s.device.pending + s.device.held, 0);
        assert_int_equal(take_snapshot(runtime).device.failed_frees, kind);
    }
    ok(weir_client_close(client));
    ok(weir_runtime_destroy(runtime));
    ok(weir_runtime_destroy(host));
    assert_true(faults_nothing_left());
}

enum { THREADS = 4, ROUNDS = UNDER_TSAN ? 100 : 500 };

static void *take_and_free(void *user)
{
    fixture *f = user;
    for (int i = 0; i < ROUNDS; i++) {
        void *p;
        weir_kind kind = (weir_kind)(i % WEIR_KIND_COUNT);
        if (take_with(f->client, kind, 1000 + (size_t)i, f->stream, 0, &p) != WEIR_OK)
            abort();
        if (weir_free(f->client, p, i % 2 ? f->stream : WEIR_STREAM_HOST) != WEIR_OK)
            abort();
    }
    return NULL;
}

static void several_threads(void **state)
{
    fixture *f = *state;
    pthread_t threads[THREADS];
    if (f->sim)
        return; /* its world is one thread's */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_free, f), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ok(weir_stream_synchronize(f->stream));
    (void)take_snapshot(f->runtime);
    snapshot s = take_snapshot(f->host);
    check_sums(&s);
    assert_int_equal(s.device.live + s.device.pending + s.device.promised, 0);
    assert_true(s.device.allocations >= THREADS * ROUNDS / 3);
}

typedef struct coming_and_going {
    weir_runtime *host;
    atomic_bool over;
} coming_and_going;

static void *look_at_all(void *user)
{
    coming_and_going *c = user;
    weir_client *client = open_client(c->host, "looking", 0, 0);
    while (!atomic_load(&c->over)) {
        void *p;
        weir_trace *trace;
        if (weir_alloc(client, HOST_BUDGET, WEIR_STREAM_HOST, WEIR_KV, &p) == WEIR_OK)
            ok(weir_free(client, p, WEIR_STREAM_HOST));
        if (weir_trace_open(c->host, 0, &trace) == WEIR_OK)
            weir_trace_close(trace);
    }
    ok(weir_client_close(client));
    return NULL;
}

/* A runtime that goes is not lost to those who look at what it has of the host's. */
static void runtimes_that_come_and_go(void **state)
{
    enum { TIMES = UNDER_TSAN ? 20 : 100 };
    fixture *f = *state;
    pthread_t threads[2];
    coming_and_going c = {.host = f->host};
    weir_runtime_options options = {.size = sizeof options, .budget = BUDGET, .host = f->host};
    if (f->sim || on_host())
        return;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, look_at_all, &c), 0);
    for (int i = 0; i < TIMES; i++) {
        weir_runtime *runtime;
        void *p;
        ok(weir_runtime_create(device(), &options, &runtime));
        weir_client *client = open_client(runtime, "passing", 0, 0);
        for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++)
            if (take_with(client, (weir_kind)kind, 1000, WEIR_STREAM_HOST, 0, &p) == WEIR_OK)
                ok(weir_free(client, p, WEIR_STREAM_HOST));
        ok(weir_client_close(client));
        ok(weir_runtime_destroy(runtime));
    }
    atomic_store(&c.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    setenv("WEIR_FRONT", "0", 1); /* what is freed is pending, and not parked; front.c tests that */
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
        CASE(copies),
        CASE(a_free_is_ordered),
        CASE(declared_uses),
        CASE(zeros),
        CASE(resizing),
        CASE(closing_a_client),
        CASE(calls_that_are_wrong),
        CASE(hosts_that_are_none),
        cmocka_unit_test(a_driver_that_fails),
        CASE(several_threads),
        CASE(runtimes_that_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
