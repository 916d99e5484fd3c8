/* Treaps against a plain list, and that no order of keys makes a list of one. */
#include "base/maps.h"
#include "core/core.h"

enum { KEYS = 300, MANY = 100000 };

static void add_to(wi_treap_node *node, void *user)
{
    *(uint64_t *)user = *(uint64_t *)user * 31 + node->key;
}

static void a_treap_is_a_map_in_order(void **state)
{
    (void)state;
    static wi_treap_node nodes[KEYS];
    bool there[KEYS] = {false};
    wi_treap t = {.seed = 5};
    uint64_t random = 3;
    size_t count = 0;
    for (int step = 0; step < 20000; step++) {
        size_t k = next_random(&random) % KEYS, floor, above;
        if (there[k])
            wi_treap_remove(&t, &nodes[k]);
        else
            wi_treap_add(&t, &nodes[k], k);
        count += there[k] ? SIZE_MAX : 1;
        there[k] = !there[k];
        assert_int_equal(wi_treap_check(&t), count);
        k = next_random(&random) % KEYS;
        for (floor = k + 1; floor > 0 && !there[floor - 1];)
            floor--;
        for (above = k + 1; above < KEYS && !there[above];)
            above++;
        assert_ptr_equal(wi_treap_floor(&t, k), floor > 0 ? &nodes[floor - 1] : NULL);
        assert_ptr_equal(wi_treap_above(&t, k), above < KEYS ? &nodes[above] : NULL);
        assert_ptr_equal(wi_treap_find(&t, k), there[k] ? &nodes[k] : NULL);
    }
    uint64_t walked = 0, wanted = 0;
    for (size_t k = 0; k < KEYS; k++)
        wanted = there[k] ? wanted * 31 + k : wanted;
    wi_treap_each(&t, add_to, &walked);
    assert_int_equal(walked, wanted);
}

static unsigned height(const wi_treap_node *node)
{
    if (!node)
        return 0;
    unsigned left = height(node->left), right = height(node->right);
    return 1 + (left > right ? left : right);
}

static void ascending_keys_make_no_list(void **state)
{
    (void)state;
    wi_treap_node *nodes = calloc(MANY, sizeof *nodes);
    assert_non_null(nodes);
    wi_treap t = {0};
    for (uint64_t i = 0; i < MANY; i++)
        wi_treap_add(&t, &nodes[i], 4096 * (i + 1));
    assert_in_range(height(t.root), 17, 60); /* about 40 is usual */
    free(nodes);
}

/* Keys whose ranks fall under one seed make a list there, and none under another. */
static void the_seed_decides_the_shape(void **state)
{
    (void)state;
    enum { FEW = 64, TRIES = 200000 };
    static wi_treap_node nodes[FEW];
    wi_treap bad = {0}, good = {.seed = UINT64_C(0x123456789abcdef)};
    uint64_t keys[FEW];
    size_t count = 0;
    for (uint64_t key = 1; key < TRIES && count < FEW; key++) { /* each below all that are there already */
        wi_treap_add(&bad, &nodes[count], key);
        if (bad.root->right || (count > 0 && bad.root != &nodes[count]))
            wi_treap_remove(&bad, &nodes[count]);
        else
            keys[count++] = key;
    }
    assert_in_range(count, 5, FEW);
    assert_int_equal(height(bad.root), count);
    for (size_t i = 0; i < count; i++)
        wi_treap_add(&good, &nodes[i], keys[i]);
    assert_true(height(good.root) < count);
}

static void what_breaks_a_treap_is_found(void **state)
{
    (void)state;
    wi_treap_node nodes[3];
    wi_treap t = {0};
    assert_int_equal(wi_treap_check(&t), 0);
    for (uint64_t i = 0; i < 3; i++)
        wi_treap_add(&t, &nodes[i], 10 * i);
    assert_int_equal(wi_treap_check(&t), 3);
    t.seed = 1; /* other ranks */
    assert_int_equal(wi_treap_check(&t), SIZE_MAX);
    t.seed = 0;
    nodes[1].key = 30;
    assert_int_equal(wi_treap_check(&t), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_treap_is_a_map_in_order),
        cmocka_unit_test(ascending_keys_make_no_list),
        cmocka_unit_test(the_seed_decides_the_shape),
        cmocka_unit_test(what_breaks_a_treap_is_found),
    };
    return cmocka_run_group_tests_name("treap", tests, NULL, NULL);
}
