/* What happens between two steps of a call: another thread has been there, or is there. The linker leads some of the
 * library's own calls through here, so that it happens every time. */
#include "core.h"
#include <weir/trace.h>
#include "core/faulty.h"

#include "runtime/runtime.h"

#include <stdatomic.h>
#include <unistd.h>

enum { BUDGET = 1 << 20 };

/* In the library's place ------------------------------------------------------------------------------------------- */

static void (*before_look)(void *user); /* once, before the look with this number: */
static unsigned looks_left;
static void *before_look_user;
static wi_base *watched; /* the base whose books change with the ledger's */
static unsigned steps, apart;

static void in_one_step(const wi_ledger *ledger)
{
    if (!watched || watched->resource.ledger != ledger)
        return;
    steps++;
    if (pthread_mutex_trylock(&watched->lock) == 0) {
        apart++;
        pthread_mutex_unlock(&watched->lock);
    }
}

uint64_t __real_wi_pending_reap(wi_pending *pending, const wi_base *base);
uint64_t __wrap_wi_pending_reap(wi_pending *pending, const wi_base *base);
/* Another thread takes all that has passed, and is told how much that was. */
static void look(wi_pending *pending)
{
    void (*fn)(void *) = before_look;
    if (!fn || looks_left-- > 0)
        return;
    before_look = NULL;
    fn(before_look_user);
    (void)__real_wi_pending_reap(pending, NULL);
}

uint64_t __wrap_wi_pending_reap(wi_pending *pending, const wi_base *base)
{
    look(pending);
    return __real_wi_pending_reap(pending, base);
}

bool __real_wi_pending_wait(wi_pending *pending, const wi_base *base, const wi_account *account, uint64_t deadline);
bool __wrap_wi_pending_wait(wi_pending *pending, const wi_base *base, const wi_account *account, uint64_t deadline);
bool __wrap_wi_pending_wait(wi_pending *pending, const wi_base *base, const wi_account *account, uint64_t deadline)
{
    look(pending);
    return __real_wi_pending_wait(pending, base, account, deadline);
}

static void (*after_snapshot)(void *user); /* once */
static void *after_snapshot_user;

void __real_wi_ledger_account_snapshot(wi_ledger *ledger, wi_account *account, weir_client_stats *out);
void __wrap_wi_ledger_account_snapshot(wi_ledger *ledger, wi_account *account, weir_client_stats *out);
void __wrap_wi_ledger_account_snapshot(wi_ledger *ledger, wi_account *account, weir_client_stats *out)
{
    void (*fn)(void *) = after_snapshot;
    after_snapshot = NULL;
    __real_wi_ledger_account_snapshot(ledger, account, out);
    if (fn)
        fn(after_snapshot_user);
}

void __real_wi_ledger_commit(wi_ledger *ledger, const wi_block *block);
void __wrap_wi_ledger_commit(wi_ledger *ledger, const wi_block *block);
void __wrap_wi_ledger_commit(wi_ledger *ledger, const wi_block *block)
{
    in_one_step(ledger);
    __real_wi_ledger_commit(ledger, block);
}

void __real_wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past);
void __wrap_wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past);
void __wrap_wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past)
{
    in_one_step(ledger);
    __real_wi_ledger_retire(ledger, block, stream, past);
}

void __real_wi_ledger_reap(wi_ledger *ledger, const wi_block *block);
void __wrap_wi_ledger_reap(wi_ledger *ledger, const wi_block *block);
void __wrap_wi_ledger_reap(wi_ledger *ledger, const wi_block *block)
{
    in_one_step(ledger);
    __real_wi_ledger_reap(ledger, block);
}

/* What a trace gets is written while the ledger changes, in the step that holds its lock. */
void __real_wi_record_locked(wi_ledger *ledger, weir_event event, const wi_block *block);
void __wrap_wi_record_locked(wi_ledger *ledger, weir_event event, const wi_block *block);
void __wrap_wi_record_locked(wi_ledger *ledger, weir_event event, const wi_block *block)
{
    steps++;
    if (pthread_mutex_trylock(&ledger->lock) == 0) {
        apart++;
        pthread_mutex_unlock(&ledger->lock);
    }
    __real_wi_record_locked(ledger, event, block);
}

/* The fixture ------------------------------------------------------------------------------------------------------ */

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    gate gate;
} fixture;

static fixture start(const char *stack)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = stack};
    fixture f = {.gate = GATE};
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &f.runtime));
    f.client = open_client(f.runtime, "one", 0, 0);
    ok(weir_stream_acquire(f.runtime, &f.stream));
    return f;
}

static void end(fixture *f)
{
    ok(weir_stream_release(f->stream));
    check_empty(f->runtime);
    if (f->client)
        ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    assert_true(faults_nothing_left());
}

/* Another thread has been there ------------------------------------------------------------------------------------ */

static void let_the_stream_go(void *user)
{
    fixture *f = user;
    open_gate(&f->gate);
    ok(wi_host_driver.stream_synchronize(NULL, weir_stream_native(f->stream)));
}

/* Between the shortage and one of the looks for what has passed, another thread takes all of that: one more try finds it. */
static void what_another_has_reaped_is_found(void **state)
{
    enum { LOOKS = 4 }; /* reaping and waiting by turns */
    (void)state;
    ok(weir_option_set("wait", "20s"));
    for (unsigned look_number = 0; look_number <= LOOKS; look_number++) {
        fixture f = start("mapped");
        void *p = allocate(f.client, BUDGET, f.stream, WEIR_CLASS_KV);
        ok(weir_call(f.runtime, pass_gate, &f.gate, f.stream));
        free_behind(f.client, p, f.stream);
        before_look_user = &f;
        before_look = let_the_stream_go;
        looks_left = look_number % LOOKS;
        if (look_number == LOOKS) /* the first one again */
            ok(take_at_once(f.client, BUDGET, WEIR_STREAM_HOST, &p));
        else
            p = allocate(f.client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_null(before_look);
        ok(weir_free(f.client, p, WEIR_STREAM_HOST));
        end(&f);
    }
    ok(weir_option_set("wait", NULL));
}

/* Another thread is there ------------------------------------------------------------------------------------------ */

typedef struct freeing {
    fixture *f;
    void *pointer;
    weir_status status;
    pthread_t thread, opener;
} freeing;

static void *free_it(void *user)
{
    freeing *other = user;
    other->status = weir_free(other->f->client, other->pointer, WEIR_STREAM_HOST);
    return NULL;
}

/* Another thread frees the block, and the driver keeps it for a while. */
static void begin_freeing(freeing *other)
{
    gate *g = &other->f->gate;
    fault.user = g;
    fault.in_release = pass_gate;
    pthread_create(&other->thread, NULL, free_it, other);
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    pthread_create(&other->opener, NULL, open_gate_later, g);
}

static void end_freeing(freeing *other)
{
    pthread_join(other->opener, NULL);
    pthread_join(other->thread, NULL);
    fault.in_release = NULL;
    assert_int_equal(other->status, WEIR_OK);
}

static void what_another_gives_back_just_now_is_waited_for(void **state)
{
    (void)state;
    fixture f = start("direct");
    freeing other = {.f = &f, .pointer = allocate(f.client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV)};
    void *p;
    begin_freeing(&other);
    ok(take_at_once(f.client, BUDGET, WEIR_STREAM_HOST, &p));
    end_freeing(&other);
    ok(weir_free(f.client, p, WEIR_STREAM_HOST));
    end(&f);
}

static void a_close_waits_for_what_another_gives_back(void **state)
{
    (void)state;
    fixture f = start("direct");
    freeing other = {.f = &f, .pointer = allocate(f.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV)};
    begin_freeing(&other);
    ok(weir_client_destroy(f.client));
    end_freeing(&other);
    f.client = NULL;
    end(&f);
}

/* Who hears of a refused free in the log may allocate there, and does not wait for itself. */
typedef struct listener {
    weir_client *client;
    unsigned calls;
    weir_status status;
} listener;

static void allocate_in_the_log(weir_log_level level, const char *text, void *user)
{
    listener *l = user;
    void *p;
    (void)level;
    (void)text;
    if (l->calls++ == 0)
        l->status = take_at_once(l->client, BUDGET, WEIR_STREAM_HOST, &p);
}

static void the_log_allocates(void **state)
{
    (void)state;
    fixture f = start("direct");
    listener l = {.client = f.client, .status = WEIR_OK};
    void *p = allocate(f.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_log_set(allocate_in_the_log, &l, WEIR_LOG_WARNING));
    fault.fail_at = fault.calls; /* the driver does not take it back */
    ok(weir_free(f.client, p, WEIR_STREAM_HOST));
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    assert_int_equal(l.calls, 1);
    assert_int_equal(l.status, WEIR_ERR_OUT_OF_MEMORY);
    end(&f);
}

static void recover_at_last(weir_log_level level, const char *text, void *user)
{
    (void)level;
    (void)text;
    if (++*(unsigned *)user == 20)
        fault.fail_at = -1;
}

/* Bytes that the driver does not take back are not there, however often one asks: the request is refused at last, and one
 * that may wait does not spend that time on asking. */
static void what_the_driver_refuses_is_no_reason_to_go_on(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        fixture f = start("direct");
        unsigned calls = 0;
        void *p = allocate(f.client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        fault.fail_at = fault.calls;
        fault.stay = true;
        ok(weir_log_set(recover_at_last, &calls, WEIR_LOG_WARNING));
        ok(weir_free(f.client, p, WEIR_STREAM_HOST));
        fails(WEIR_ERR_OUT_OF_MEMORY, waits ? weir_alloc(f.client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p)
                                            : take_at_once(f.client, BUDGET, WEIR_STREAM_HOST, &p));
        ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
        assert_true(calls >= 2 && calls < 20);
        fault.fail_at = -1;
        end(&f);
    }
}

/* Nor is what another client is owed: a close waits for the frees of its own that the device is not past. */
static void a_close_waits_behind_frees_that_are_refused(void **state)
{
    enum { REFUSED = 5 };
    (void)state;
    fixture f = start("direct");
    weir_client *leaving = open_client(f.runtime, "leaving", 0, 0);
    void *p = allocate(leaving, 1000, f.stream, WEIR_CLASS_KV), *refused[REFUSED];
    pthread_t opener;
    for (int i = 0; i < REFUSED; i++)
        refused[i] = allocate(f.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_call(f.runtime, pass_gate, &f.gate, f.stream));
    ok(weir_free(leaving, p, f.stream));
    fault.refused_releases =
        4 * REFUSED; /* each when it is freed, and whenever the close looks but for the last time */
    for (int i = 0; i < REFUSED; i++)
        ok(weir_free(f.client, refused[i], WEIR_STREAM_HOST));
    pthread_create(&opener, NULL, open_gate_later, &f.gate);
    ok(weir_client_destroy(leaving));
    pthread_join(opener, NULL);
    fault.refused_releases = 0;
    end(&f);
}

/* Two who hear of that at the same time do not wait for each other. */
typedef struct meeting {
    weir_client *client;
    void *pointers[2];
    pthread_barrier_t both;
    atomic_int freed, met, refused;
} meeting;

static void allocate_when_both_are_there(weir_log_level level, const char *text, void *user)
{
    meeting *m = user;
    void *p;
    (void)level;
    (void)text;
    if (atomic_fetch_add(&m->met, 1) >= 2)
        return;
    pthread_barrier_wait(&m->both);
    atomic_fetch_add(&m->refused, take_at_once(m->client, BUDGET, WEIR_STREAM_HOST, &p) == WEIR_ERR_OUT_OF_MEMORY);
}

static void *free_one(void *user)
{
    meeting *m = user;
    void *mine = m->pointers[atomic_fetch_add(&m->freed, 1)];
    if (weir_free(m->client, mine, WEIR_STREAM_HOST) != WEIR_OK)
        abort();
    return NULL;
}

static void two_logs_allocate(void **state)
{
    (void)state;
    fixture f = start("direct");
    meeting m = {.client = f.client};
    pthread_t threads[2];
    pthread_barrier_init(&m.both, NULL, 2);
    for (int i = 0; i < 2; i++)
        m.pointers[i] = allocate(f.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_log_set(allocate_when_both_are_there, &m, WEIR_LOG_WARNING));
    fault.refused_releases = 1000;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, free_one, &m);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    fault.refused_releases = 0;
    assert_int_equal(m.refused, 2);
    pthread_barrier_destroy(&m.both);
    end(&f);
}

/* While a client is being closed --------------------------------------------------------------------------------- */

typedef struct leaving {
    weir_client *client;
    void *block;
    bool gives_back;
} leaving;

static void take_behind_the_look(void *user)
{
    leaving *l = user;
    l->block = allocate(l->client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
}

static void meet_a_close(void *user)
{
    leaving *l = user;
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    weir_reservation *reservation;
    void *p;
    ok(weir_client_info(l->client, &stats));
    assert_int_equal(stats.blocks, 1);
    fails(WEIR_ERR_INVALID, weir_alloc(l->client, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    fails(WEIR_ERR_INVALID, weir_reservation_create(l->client, 1, 0, &reservation));
    fails(WEIR_ERR_INVALID, weir_client_destroy(l->client));
    detail_names("being closed");
    if (l->gives_back)
        ok(weir_free(l->client, l->block, WEIR_STREAM_HOST));
}

/* Another thread takes a block when the close has looked already, and meets it again while it waits. */
static void a_close_is_no_hindrance_to_frees(void **state)
{
    (void)state;
    fixture f = start("mapped");
    for (int gives_back = 0; gives_back < 2; gives_back++) {
        leaving l = {.client = open_client(f.runtime, "leaving", 0, 0), .gives_back = gives_back};
        after_snapshot_user = before_look_user = &l;
        after_snapshot = take_behind_the_look;
        before_look = meet_a_close;
        looks_left = 0;
        if (!gives_back) {
            fails(WEIR_ERR_BUSY, weir_client_destroy(l.client));
            ok(weir_free(l.client, l.block, WEIR_STREAM_HOST));
            ok(weir_free(l.client, allocate(l.client, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
        }
        ok(weir_client_destroy(l.client));
        assert_null(before_look);
        fails(WEIR_ERR_INVALID, weir_free(l.client, l.block, WEIR_STREAM_HOST));
    }
    end(&f);
}

/* While a runtime goes --------------------------------------------------------------------------------------------- */

typedef struct going {
    weir_runtime *runtime;
    pthread_t thread;
    atomic_bool gone;
} going;

static void *destroy_it(void *user)
{
    going *g = user;
    weir_status status = weir_runtime_destroy(g->runtime);
    atomic_store(&g->gone, true);
    return status == WEIR_OK ? NULL : g;
}

static void destroy_meanwhile(void *user)
{
    going *g = user;
    pthread_create(&g->thread, NULL, destroy_it, g);
    usleep(20000);
    assert_false(atomic_load(&g->gone));
}

/* The host looks at what another runtime has of its memory: that one is not gone before the look is over. */
static void a_runtime_that_is_looked_at_stays(void **state)
{
    (void)state;
    weir_runtime *host = make_runtime(BUDGET);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .host = host};
    weir_request request = {.struct_size = sizeof request, .bytes = 1000, .kind = WEIR_KIND_PINNED};
    weir_block block;
    going g = {0};
    void *failed;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &g.runtime));
    weir_client *client = open_client(g.runtime, "one", 0, 0);
    ok(weir_alloc_with(client, &request, &block));
    ok(weir_free_block(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    before_look_user = &g;
    before_look = destroy_meanwhile;
    looks_left = 1; /* the host looks at its own first */
    (void)take_snapshot(host);
    assert_null(before_look);
    pthread_join(g.thread, &failed);
    assert_null(failed);
    ok(weir_runtime_destroy(host));
    assert_true(faults_nothing_left());
}

/* One step --------------------------------------------------------------------------------------------------------- */

static void use_blocks(fixture *f)
{
    void *p = allocate(f->client, 100000, f->stream, WEIR_CLASS_KV), *q;
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    ok(weir_resize(f->client, p, 50000, f->stream));
    ok(weir_free(f->client, p, f->stream));
    ok(take_at_once(f->client, 1000, WEIR_STREAM_HOST, &q));
    ok(weir_free(f->client, q, WEIR_STREAM_HOST));
    open_gate(&f->gate);
    ok(weir_stream_synchronize(f->stream));
    (void)take_snapshot(f->runtime);
}

/* Whoever looks sees both books before a change or both after it. */
static void both_books_change_in_one_step(void **state)
{
    (void)state;
    static const char *const stacks[] = {"mapped", "segments", "direct", "async"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        fixture f = start(stacks[i]);
        weir_trace *trace;
        ok(weir_trace_create(f.runtime,
                             &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = 64}, &trace));
        steps = apart = 0;
        watched = f.runtime->resource->base;
        use_blocks(&f);
        watched = NULL;
        assert_true(steps >= 12); /* two blocks and a tail, each step in the ledger and in the trace */
        assert_int_equal(apart, 0);
        weir_trace_destroy(trace);
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_another_has_reaped_is_found),
        cmocka_unit_test(what_another_gives_back_just_now_is_waited_for),
        cmocka_unit_test(a_close_waits_for_what_another_gives_back),
        cmocka_unit_test(the_log_allocates),
        cmocka_unit_test(what_the_driver_refuses_is_no_reason_to_go_on),
        cmocka_unit_test(a_close_waits_behind_frees_that_are_refused),
        cmocka_unit_test(two_logs_allocate),
        cmocka_unit_test(a_close_is_no_hindrance_to_frees),
        cmocka_unit_test(a_runtime_that_is_looked_at_stays),
        cmocka_unit_test(both_books_change_in_one_step),
    };
    return cmocka_run_group_tests_name("ladder", tests, NULL, NULL);
}
