/* The index of addresses that drivers choose, against a model that knows of each address whose it is. */
#include "core.h"
#include "memory/space/chunks.h"

enum { SPACE = 16384, RANGES = 300, ORIGIN = 1000 };

typedef struct model {
    wi_index index;
    wi_range ranges[RANGES];
    bool in[RANGES];
    uint16_t owner[SPACE]; /* 1 + the number of a range */
    bool freed[SPACE];     /* at any time */
} model;

static unsigned lowest_in(const model *m, unsigned start, unsigned end)
{
    for (unsigned at = start; at < end && at < SPACE; at++)
        if (m->owner[at])
            return m->owner[at];
    return 0;
}

static void set_owner(model *m, const wi_range *range, uint16_t owner)
{
    for (uintptr_t at = range->start; at < range->end; at++)
        m->owner[at - ORIGIN] = owner;
}

static void insert(model *m, unsigned number, unsigned start, unsigned end)
{
    if (end > SPACE || lowest_in(m, start, end))
        return;
    m->ranges[number] = (wi_range){.start = ORIGIN + start, .end = ORIGIN + end};
    wi_index_insert(&m->index, &m->ranges[number]);
    set_owner(m, &m->ranges[number], (uint16_t)(number + 1));
    m->in[number] = true;
}

static void take_out(model *m, unsigned number)
{
    wi_index_remove(&m->index, &m->ranges[number]);
    set_owner(m, &m->ranges[number], 0);
    m->in[number] = false;
    wi_index_freed(&m->index, m->ranges[number].start);
    m->freed[m->ranges[number].start - ORIGIN] = true;
}

typedef struct walk {
    const model *m;
    uintptr_t end;
    size_t count;
} walk;

static void visit(wi_range *range, void *user)
{
    walk *w = user;
    assert_true(range->start >= w->end);
    assert_true(w->m->in[range - w->m->ranges]);
    w->end = range->end;
    w->count++;
}

static void check_walk(const model *m)
{
    walk w = {.m = m};
    size_t there = 0;
    wi_index_each(&m->index, visit, &w);
    for (unsigned i = 0; i < RANGES; i++)
        there += m->in[i];
    assert_int_equal(w.count, there);
    assert_int_equal(m->index.count, there);
}

static void against_a_model(void **state)
{
    (void)state;
    model *m = calloc(1, sizeof *m);
    uint64_t random = 4711;
    for (int step = 0; step < 100000; step++) {
        unsigned number = (unsigned)(next_random(&random) % RANGES), start = (unsigned)(next_random(&random) % SPACE);
        unsigned end = start + 1 + (unsigned)(next_random(&random) % 100);
        if (m->in[number])
            take_out(m, number);
        else
            insert(m, number, start, end);
        start = (unsigned)(next_random(&random) % SPACE);
        end = start + 1 + (unsigned)(next_random(&random) % (step % 2 ? 1 : 60));
        const wi_range *found = wi_index_find(&m->index, ORIGIN + start, ORIGIN + end);
        unsigned wanted = lowest_in(m, start, end);
        assert_ptr_equal(found, wanted ? &m->ranges[wanted - 1] : NULL);
        if (step < 900) /* while the ring forgets nothing */
            assert_int_equal(wi_index_was_freed(&m->index, ORIGIN + start), m->freed[start] && !m->owner[start]);
        wi_index_check(&m->index);
        if (step % 1000 == 0)
            check_walk(m);
    }
    check_walk(m);
    free(m);
}

static unsigned height(const wi_treap_node *tree)
{
    if (!tree)
        return 0;
    unsigned left = height(tree->left), right = height(tree->right);
    return 1 + (left > right ? left : right);
}

/* Addresses that come in order, as allocators give them, must not make a list of the tree. */
static void ascending_addresses_make_no_list(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    static wi_index index;
    wi_range *ranges = calloc(MANY, sizeof *ranges);
    for (uintptr_t i = 0; i < MANY; i++) {
        ranges[i] = (wi_range){.start = 4096 * (i + 1), .end = 4096 * (i + 1) + 256};
        wi_index_insert(&index, &ranges[i]);
    }
    assert_in_range(height(index.ranges.root), 17, 60); /* about 40 is usual */
    free(ranges);
}

static void the_last_frees_are_remembered(void **state)
{
    (void)state;
    static wi_index index;
    assert_false(wi_index_was_freed(&index, 0));
    for (uintptr_t i = 1; i <= WI_FREED_KEPT + 10; i++)
        wi_index_freed(&index, i * 256);
    assert_false(wi_index_was_freed(&index, 10 * 256));
    assert_true(wi_index_was_freed(&index, 11 * 256));
    assert_true(wi_index_was_freed(&index, (WI_FREED_KEPT + 10) * 256));
    assert_false(wi_index_was_freed(&index, 11 * 256 + 1));
    wi_range range = {.start = 20 * 256, .end = 22 * 256};
    wi_index_insert(&index, &range);
    assert_false(wi_index_was_freed(&index, 20 * 256));
    assert_false(wi_index_was_freed(&index, 21 * 256));
    assert_true(wi_index_was_freed(&index, 22 * 256));
    wi_index_freed(&index, 21 * 256); /* it is another's */
    assert_false(wi_index_was_freed(&index, 21 * 256));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_a_model),
        cmocka_unit_test(ascending_addresses_make_no_list),
        cmocka_unit_test(the_last_frees_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
