/* Copy memory: what is cut lies in no two places, what is given back can be cut again, and the ledger has all of it back. */
#include "core/core.h"
#include "runtime/copies.h"

#include <stdlib.h>
#include <string.h>

enum { CUTS = 64, STEPS = 4000 };

typedef struct cut {
    unsigned char *at;
    uint64_t bytes;
    unsigned char mark;
} cut;

static void holds_its_mark(const cut *c)
{
    for (uint64_t i = 0; i < c->bytes; i += c->bytes - 1)
        assert_int_equal(c->at[i], c->mark);
}

static uint64_t charged(weir_runtime *runtime)
{
    return take_snapshot(runtime).device.live;
}

/* One slab for all that is expected; in the middle, at both ends and between two gaps a gap is one with its neighbours. */
static void gaps_join(void **state)
{
    (void)state;
    enum { EACH = 64 << 10, COUNT = 6 };
    static const int order[COUNT] = {1, 3, 2, 5, 0, 4};
    weir_runtime *runtime = make_runtime(64 << 20);
    weir_client *client = open_client(runtime, "one", 0, 0);
    wi_copy_memory memory = {0};
    void *at[COUNT], *all;
    for (int i = 0; i < COUNT; i++)
        wi_copy_memory_expect(&memory, EACH);
    for (int i = 0; i < COUNT; i++)
        ok(wi_copy_memory_cut(&memory, client, EACH, &at[i]));
    assert_int_equal(memory.held, COUNT * EACH);
    assert_int_equal(memory.expected_first, memory.expected_count);
    wi_copy_memory_expect_none(&memory);
    for (int i = 0; i < COUNT - 1; i++)
        wi_copy_memory_return(&memory, client, at[order[i]], EACH);
    ok(wi_copy_memory_cut(&memory, client, 4 * EACH, &all)); /* what was 0 to 3 */
    assert_ptr_equal(all, at[0]);
    assert_int_equal(memory.held, COUNT * EACH);
    wi_copy_memory_return(&memory, client, all, 4 * EACH);
    wi_copy_memory_return(&memory, client, at[4], EACH);
    assert_int_equal(memory.held, 0);
    assert_null(memory.slabs);
    check_empty(runtime);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void nothing_lies_in_two_places(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(64 << 20);
    weir_client *client = open_client(runtime, "one", 0, 0);
    wi_copy_memory memory = {0};
    cut cuts[CUTS] = {{0}};
    uint64_t random = 7, live = 0;
    for (int step = 0; step < STEPS; step++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        cut *c = &cuts[(random >> 33) % CUTS];
        if (c->at) {
            holds_its_mark(c);
            wi_copy_memory_return(&memory, client, c->at, c->bytes);
            live -= c->bytes;
            *c = (cut){0};
        } else {
            *c = (cut){NULL, 2 + (random >> 40) % 50000, (unsigned char)step};
            for (uint64_t more = (random >> 20) % 3; more > 0; more--)
                wi_copy_memory_expect(&memory, c->bytes);
            ok(wi_copy_memory_cut(&memory, client, c->bytes, (void **)&c->at));
            memset(c->at, c->mark, c->bytes);
            live += c->bytes;
        }
        assert_true(memory.held >= live);
        assert_int_equal(charged(runtime), memory.held);
    }
    for (int i = 0; i < CUTS; i++)
        if (cuts[i].at)
            wi_copy_memory_return(&memory, client, cuts[i].at, cuts[i].bytes);
    assert_int_equal(memory.held, 0);
    wi_copy_memory_expect_none(&memory);
    check_empty(runtime);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_join),
        cmocka_unit_test(nothing_lies_in_two_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
