/* A request for which memory is free is claimed, placed and published in one step; what needs more takes more steps. */
#include "core.h"
#include "core/faulty.h"
#include "runtime/runtime.h"

enum { BUDGET = 16 << 20, BYTES = 40000, CHARGED = 40192 };

static struct {
    unsigned claims, commits, placed, refused;
} steps;

bool __real_wi_ledger_claim(wi_ledger *ledger, wi_account *account, uint64_t bytes, bool *could);
bool __wrap_wi_ledger_claim(wi_ledger *ledger, wi_account *account, uint64_t bytes, bool *could);
bool __wrap_wi_ledger_claim(wi_ledger *ledger, wi_account *account, uint64_t bytes, bool *could)
{
    steps.claims++;
    return __real_wi_ledger_claim(ledger, account, bytes, could);
}

void __real_wi_ledger_commit(wi_ledger *ledger, wi_block *block);
void __wrap_wi_ledger_commit(wi_ledger *ledger, wi_block *block);
void __wrap_wi_ledger_commit(wi_ledger *ledger, wi_block *block)
{
    steps.commits++;
    __real_wi_ledger_commit(ledger, block);
}

typedef wi_block *make_fn(void *user);
bool __real_wi_ledger_place(wi_ledger *ledger, wi_account *account, uint64_t bytes, make_fn *make, void *user);
bool __wrap_wi_ledger_place(wi_ledger *ledger, wi_account *account, uint64_t bytes, make_fn *make, void *user);
bool __wrap_wi_ledger_place(wi_ledger *ledger, wi_account *account, uint64_t bytes, make_fn *make, void *user)
{
    bool placed = __real_wi_ledger_place(ledger, account, bytes, make, user);
    *(placed ? &steps.placed : &steps.refused) += 1;
    return placed;
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client, *secret;
    weir_stream stream;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime_here(BUDGET);
    f->client = open_client(f->runtime, "one", 0, 2 * CHARGED);
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "secret";
    options.scrub = WEIR_SCRUB_OTHERS;
    ok(weir_client_create(f->runtime, &options, &f->secret));
    ok(weir_stream_acquire(f->runtime, &f->stream));
    ok(weir_free(f->client, allocate(f->client, BYTES, f->stream, WEIR_CLASS_KV), f->stream)); /* memory is there */
    memset(&steps, 0, sizeof steps);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_synchronize(f->stream));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->secret));
    ok(weir_stream_release(f->stream));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static void took(unsigned placed, unsigned claims, unsigned commits)
{
    assert_int_equal(steps.placed, placed);
    assert_int_equal(steps.claims, claims);
    assert_int_equal(steps.commits, commits);
}

static void memory_that_is_free(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->client, BYTES, f->stream, WEIR_CLASS_KV);
    took(1, 0, 0);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, CHARGED);
    assert_int_equal(s.device.promised, 0);
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(p, &d));
    assert_int_equal(d.state, WEIR_BLOCK_LIVE);
    ok(weir_free(f->client, p, f->stream));
}

static void zeros_that_are_asked_for(void **state)
{
    fixture *f = *state;
    weir_request request = WEIR_INIT(weir_request);
    weir_block block;
    request.bytes = BYTES;
    request.stream = f->stream;
    request.flags = WEIR_ALLOC_ZEROED;
    ok(weir_alloc_with(f->client, &request, &block));
    took(0, 1, 1);
    ok(weir_free_block(f->client, block, f->stream));
}

static void what_another_client_keeps_secret(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->secret, BYTES, f->stream, WEIR_CLASS_KV); /* with what the first one had there */
    took(0, 1, 1);
    ok(weir_stream_synchronize(f->stream)); /* zeros are queued there */
    memset(p, 0x55, BYTES);
    ok(weir_free(f->secret, p, f->stream));
    p = allocate(f->client, BYTES, f->stream, WEIR_CLASS_KV);
    took(0, 2, 2);
    ok(weir_stream_synchronize(f->stream));
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(((unsigned char *)p)[i], 0);
    ok(weir_free(f->client, p, f->stream));
}

/* The limits hold, and the refusal is the one that the claim explains. */
static void more_than_the_client_may_have(void **state)
{
    fixture *f = *state;
    weir_request request = WEIR_INIT(weir_request);
    void *p[2];
    weir_block none;
    for (int i = 0; i < 2; i++)
        p[i] = allocate(f->client, BYTES, f->stream, WEIR_CLASS_KV);
    uint64_t free_before = take_snapshot(f->runtime).device.cached;
    memset(&steps, 0, sizeof steps);
    request.bytes = BYTES;
    request.stream = f->stream;
    request.flags = WEIR_ALLOC_NO_WAIT;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &request, &none));
    assert_int_equal(steps.placed, 0);
    assert_int_equal(steps.refused, 1);
    assert_true(steps.claims > 0);
    assert_int_equal(take_snapshot(f->runtime).device.cached, free_before);
    for (int i = 0; i < 2; i++)
        ok(weir_free(f->client, p[i], f->stream));
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(memory_that_is_free),
        test(zeros_that_are_asked_for),
        test(what_another_client_keeps_secret),
        test(more_than_the_client_may_have),
    };
    setenv("WEIR_THREAD_CACHE", "0", 1); /* every request comes to the base */
    return cmocka_run_group_tests_name("one-step", tests, NULL, NULL);
}
