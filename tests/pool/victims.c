/* The cheapest set of victims: against all sets, with random candidates of the kinds that pools have. */
#include "pool/victims.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t seed = 88172645463325252u;
static uint64_t roll(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

typedef struct truth {
    bool found;
    uint64_t cost;
} truth;

/* All sets, by all ways. */
static void all_sets(const wp_candidate *c, uint32_t count, uint64_t need, int64_t host, uint64_t cost, truth *t)
{
    if (count == 0) {
        if (need == 0 && host >= 0 && (!t->found || cost < t->cost))
            *t = (truth){true, cost};
        return;
    }
    all_sets(c + 1, count - 1, need, host, cost, t);
    for (uint32_t w = 0; w < c->count; w++) {
        const wp_way *way = &c->ways[w];
        all_sets(c + 1, count - 1, way->frees < need ? need - way->frees : 0, host - way->host, cost + way->cost, t);
    }
}

/* kind 0: any; 1: costs proportional to bytes; 2: all alike; 3: some free nothing or cost nothing. */
static void make(wp_candidate *c, uint32_t count, uint32_t kind, bool two_ways)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = kind == 2 ? 5 : 1 + roll(100), cost = kind == 1 ? bytes * 7 : 1 + roll(1000);
        if (kind == 3 && roll(3) == 0)
            bytes = 0;
        if (kind == 3 && roll(3) == 0)
            cost = 0;
        c[i] = (wp_candidate){.model = i, .count = 1};
        c[i].ways[0] = (wp_way){bytes, roll(4) ? 0 : -(int64_t)roll(50), kind == 2 ? 9 : cost};
        if (two_ways && roll(2)) {
            c[i].ways[1] = c[i].ways[0];
            c[i].ways[0] = (wp_way){bytes - bytes / 8, (int64_t)roll(60), c[i].ways[1].cost / (1 + roll(4))};
            c[i].count = 2;
        }
    }
}

static void check(const wp_candidate *c, uint32_t count, uint64_t need, uint64_t host, const uint8_t *chosen,
                  wp_set set)
{
    uint64_t frees = 0, cost = 0;
    int64_t takes = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(chosen[i] <= c[i].count);
        if (!chosen[i])
            continue;
        frees += c[i].ways[chosen[i] - 1].frees;
        cost += c[i].ways[chosen[i] - 1].cost;
        takes += c[i].ways[chosen[i] - 1].host;
    }
    assert_true(!set.found || (frees >= need && takes <= (int64_t)host && cost == set.cost && set.bound <= set.cost));
    assert_true(set.found || (frees == 0 && cost == 0));
}

static void the_cheapest_of_all_sets_is_found(void **state)
{
    (void)state;
    wp_solver *solver = wp_solver_create();
    for (uint32_t round = 0; round < 3000; round++) {
        wp_candidate c[WP_EXACT];
        uint8_t chosen[WP_EXACT], again[WP_EXACT];
        bool two_ways = round % 2;
        uint32_t count = (uint32_t)roll(two_ways ? 9 : 13);
        if (round % 100 == 0)
            count = two_ways ? 10 : WP_EXACT;
        make(c, count, (uint32_t)roll(4), two_ways);
        uint64_t need = 1 + roll(60 * (count + 1)), host = roll(3) ? roll(150) : 1000;
        truth t = {0};
        all_sets(c, count, need, (int64_t)host, 0, &t);
        wp_set set = wp_victims(solver, c, count, need, host, chosen);
        assert_int_equal(set.found, t.found);
        check(c, count, need, host, chosen, set);
        assert_true(!t.found || set.cost == t.cost);
        assert_true(!t.found || set.bound == t.cost);
        (void)wp_victims(solver, c, count, need, host, again);
        assert_memory_equal(chosen, again, count);
    }
    wp_solver_destroy(solver);
}

static void greedy_is_between_its_bound_and_twice_the_cheapest(void **state)
{
    (void)state;
    wp_solver *solver = wp_solver_create();
    for (uint32_t round = 0; round < 3000; round++) {
        wp_candidate c[WP_EXACT];
        uint8_t chosen[WP_EXACT];
        uint32_t count = (uint32_t)roll(12);
        bool two_ways = round % 2;
        make(c, two_ways &&count > 8 ? count = 8 : count, (uint32_t)roll(4), two_ways);
        uint64_t need = 1 + roll(60 * (count + 1)), host = two_ways ? 100 : 10000;
        truth t = {0};
        all_sets(c, count, need, (int64_t)host, 0, &t);
        wp_set set = wp_victims_greedy(solver, c, count, need, host, chosen);
        check(c, count, need, host, chosen, set);
        assert_true(!set.found || (t.found && set.bound <= t.cost && t.cost <= set.cost));
        assert_true(two_ways || (set.found == t.found && set.cost <= 2 * t.cost));
    }
    wp_solver_destroy(solver);
}

static void a_hundred_candidates_have_a_set_near_the_bound(void **state)
{
    (void)state;
    enum { MANY = 100 };
    wp_solver *solver = wp_solver_create();
    for (uint32_t round = 0; round < 200; round++) {
        wp_candidate c[MANY];
        uint8_t chosen[MANY];
        make(c, MANY, round % 2, false);
        uint64_t need = 1 + roll(3000);
        wp_set set = wp_victims(solver, c, MANY, need, 1000, chosen);
        check(c, MANY, need, 1000, chosen, set);
        assert_true(set.found && set.cost <= 2 * set.bound + 1000);
    }
    wp_solver_destroy(solver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cheapest_of_all_sets_is_found),
        cmocka_unit_test(greedy_is_between_its_bound_and_twice_the_cheapest),
        cmocka_unit_test(a_hundred_candidates_have_a_set_near_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
