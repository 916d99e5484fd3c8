/* The numbers of a refusal are true: under the limit that it needs the request is met, and they are those of a moment at which
 * it could not be. */
#include "core.h"

#include "memory/ledger/ledger.h"

#include <weir/elastic.h>

enum { BUDGET = 24 << 20 };

static const char *const stacks[] = {"mapped", "segments", "guard(mapped)"};
enum { STACKS = sizeof stacks / sizeof stacks[0] };

/* What happens once, when a request has found no room and tells so. */
static void (*meanwhile)(void *user);
static void *meanwhile_user;

weir_status __real_wi_ledger_claim_or_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                             const wi_shortage *shortage);
weir_status __wrap_wi_ledger_claim_or_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                             const wi_shortage *shortage);

weir_status __wrap_wi_ledger_claim_or_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                             const wi_shortage *shortage)
{
    void (*fn)(void *user) = meanwhile;
    meanwhile = NULL;
    if (fn)
        fn(meanwhile_user);
    return __real_wi_ledger_claim_or_refuse(ledger, account, request, shortage);
}

weir_status __real_wi_ledger_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                    const wi_shortage *shortage);
weir_status __wrap_wi_ledger_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                    const wi_shortage *shortage);

static void (*at_refusal)(void *user); /* the same, when a base has found no place */

weir_status __wrap_wi_ledger_refuse(wi_ledger *ledger, wi_account *account, const wi_request *request,
                                    const wi_shortage *shortage)
{
    void (*fn)(void *user) = at_refusal;
    at_refusal = NULL;
    if (fn)
        fn(meanwhile_user);
    return __real_wi_ledger_refuse(ledger, account, request, shortage);
}

static weir_runtime *make(const char *stack)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = stack};
    weir_runtime *runtime;
    ok(weir_runtime_create("host", &options, &runtime));
    return runtime;
}

static weir_elastic *make_elastic(weir_client *client)
{
    weir_elastic_options options = {.struct_size = sizeof options, .bytes = 2 * BUDGET};
    weir_elastic *elastic;
    ok(weir_elastic_create(client, &options, &elastic));
    return elastic;
}

/* Live blocks hold more than they are charged, and idle memory makes way. */
static void an_elastic_commit_needs_what_is_held(void **state)
{
    (void)state;
    for (int k = 0; k < STACKS; k++) {
        weir_runtime *runtime = make(stacks[k]);
        weir_client *client = open_client(runtime, "one", 0, 0);
        void *idle = allocate(client, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        void *small = allocate(client, 100 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_free(client, idle, WEIR_STREAM_HOST));
        weir_elastic *e = make_elastic(client);
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_elastic_commit(e, 0, BUDGET, WEIR_STREAM_HOST));
        weir_refusal r = last_refusal();
        assert_int_equal(r.cause, WEIR_CAUSE_BUDGET);
        assert_true(r.remaining < r.requested && r.needed > r.limit && r.needed < BUDGET + 6 * MIB);
        ok(weir_runtime_set_budget(runtime, r.needed - 1));
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_elastic_commit(e, 0, BUDGET, WEIR_STREAM_HOST));
        ok(weir_runtime_set_budget(runtime, r.needed));
        ok(weir_elastic_commit(e, 0, BUDGET, WEIR_STREAM_HOST));
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        ok(weir_free(client, small, WEIR_STREAM_HOST));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
    }
}

/* A segment is a multiple of its rounding behind what an alignment skips. */
static void an_aligned_request_needs_whole_segments(void **state)
{
    (void)state;
    for (size_t alignment = UNIT; alignment <= 2 * MIB; alignment *= 2) {
        weir_runtime *runtime = make("segments");
        weir_client *client = open_client(runtime, "one", 0, 0);
        weir_request request = {.struct_size = sizeof request,
                                .bytes = 14 * MIB + 1000,
                                .alignment = alignment,
                                .stream = WEIR_STREAM_HOST};
        weir_block block;
        void *live = allocate(client, 11 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(client, &request, &block));
        uint64_t needed = last_refusal().needed;
        ok(weir_runtime_set_budget(runtime, needed));
        ok(weir_alloc_with(client, &request, &block));
        assert_int_equal((uintptr_t)block.pointer % alignment, 0);
        ok(weir_free(client, block.pointer, WEIR_STREAM_HOST));
        ok(weir_free(client, live, WEIR_STREAM_HOST));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
    }
}

typedef struct other {
    weir_client *client;
    void *pointer;
} other;

static void free_it(void *user)
{
    other *o = user;
    ok(weir_free(o->client, o->pointer, WEIR_STREAM_HOST));
}

/* It is not refused with numbers that allow it. */
static void what_comes_to_fit_is_met(void **state)
{
    (void)state;
    for (int k = 0; k < STACKS; k++) {
        weir_runtime *runtime = make(stacks[k]);
        weir_client *client = open_client(runtime, "one", 0, 0);
        other o = {.client = open_client(runtime, "other", 0, 0)};
        void *p;
        o.pointer = allocate(o.client, 16 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        meanwhile_user = &o;
        meanwhile = free_it;
        ok(weir_alloc(client, 16 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
        assert_null(meanwhile);
        assert_int_equal(client_details(client).live >= 16 * MIB, 1);
        ok(weir_free(client, p, WEIR_STREAM_HOST));
        check_empty(runtime);
        ok(weir_client_destroy(o.client));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
    }
}

/* All that is free is in pieces of half a granule, which cannot be moved together. */
typedef struct pieces {
    weir_runtime *runtime;
    weir_client *client, *other;
    void *at[BUDGET / (32 << 10)];
    size_t from; /* those from there on are the other's */
    uint64_t taken;
} pieces;

static void make_pieces(pieces *p, const char *stack)
{
    const size_t piece = 32 * KIB;
    p->runtime = make(stack);
    p->client = open_client(p->runtime, "one", 0, 0);
    p->other = open_client(p->runtime, "other", 0, 0);
    size_t count = 0;
    while (count < BUDGET / piece && weir_alloc(count % 2 ? p->other : p->client, piece, WEIR_STREAM_HOST,
                                                WEIR_CLASS_WEIGHTS, &p->at[count]) == WEIR_OK)
        count++;
    for (size_t i = 0; i < count; i += 2)
        ok(weir_free(p->client, p->at[i], WEIR_STREAM_HOST));
    p->from = count;
}

static void end_pieces(pieces *p)
{
    for (size_t i = 1; i < p->from; i += 2)
        if (p->at[i])
            ok(weir_free(p->other, p->at[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(p->other));
    ok(weir_client_destroy(p->client));
    ok(weir_runtime_destroy(p->runtime));
}

static void free_pieces(void *user)
{
    pieces *p = user;
    for (size_t i = 1; i < p->from; i += 2) {
        ok(weir_free(p->other, p->at[i], WEIR_STREAM_HOST));
        p->at[i] = NULL;
    }
}

static void take_pieces(void *user)
{
    pieces *p = user;
    for (size_t i = 0; i < p->from; i += 2)
        ok(weir_alloc(p->other, 32 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &p->at[i]));
    p->taken = p->from;
}

/* What others free, or take, when a request has found no place is in none of its numbers. */
static void the_numbers_are_those_of_one_moment(void **state)
{
    (void)state;
    static void (*const acts[])(void *user) = {free_pieces, take_pieces};
    for (int k = 0; k < 2; k++)
        for (int act = 0; act < 2; act++) {
            pieces p = {0};
            void *block;
            make_pieces(&p, stacks[k]);
            snapshot before = take_snapshot(p.runtime);
            uint64_t live = before.device.live, left = BUDGET - live;
            meanwhile_user = &p;
            at_refusal = acts[act];
            fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(p.client, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block));
            assert_null(at_refusal);
            weir_refusal r = last_refusal();
            assert_int_equal(r.cause, WEIR_CAUSE_FRAGMENTATION);
            assert_int_equal(r.requested, 6 * MIB);
            assert_int_equal(r.current, 0);
            assert_int_equal(r.remaining, left);
            assert_true(r.largest < r.requested && r.remaining >= r.requested);
            assert_string_equal(r.holders[0].client, "other");
            assert_int_equal(r.holders[0].bytes, live);
            assert_string_equal(r.holders[1].client, "");
            for (size_t i = 0; i < p.taken; i += 2)
                ok(weir_free(p.other, p.at[i], WEIR_STREAM_HOST));
            end_pieces(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_elastic_commit_needs_what_is_held),
        cmocka_unit_test(an_aligned_request_needs_whole_segments),
        cmocka_unit_test(what_comes_to_fit_is_met),
        cmocka_unit_test(the_numbers_are_those_of_one_moment),
    };
    return cmocka_run_group_tests_name("refused", tests, NULL, NULL);
}
