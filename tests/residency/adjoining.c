/* Elastic blocks whose addresses adjoin, as a driver may give them: pages of the one that are neighbours of the other's leave
 * and come back with their own. */
#include "residency/residency.h"
#include "core/faulty.h"

#include "runtime/runtime.h"

enum { BLOCKS = 3, PAGES = 4, SMALL = 16 };

static wi_driver tried;
static char *arena; /* the next of the addresses that are handed out one behind the other */
static size_t left;
static bool downwards; /* from its end */

/* Small ranges adjoin; the runtime's own are as they come. */
static weir_status adjoining_reserve(wi_device *device, uint64_t bytes, void **address)
{
    if (bytes > PAGES * GRANULE)
        return faulty_driver.reserve(device, bytes, address);
    if (left < bytes) {
        void *start = NULL;
        weir_status status = faulty_driver.reserve(device, SMALL * PAGES * GRANULE, &start);
        if (status != WEIR_OK)
            return status;
        arena = start;
        left = SMALL * PAGES * GRANULE;
        fault.ranges--; /* what is handed out counts */
    }
    left -= bytes;
    *address = downwards ? arena + left : arena;
    arena += downwards ? 0 : bytes;
    fault.ranges++;
    return WEIR_OK;
}

typedef struct scene {
    weir_runtime *runtime, *host;
    weir_client *model;
    weir_elastic *blocks[BLOCKS];
    char *base[BLOCKS];
} scene;

/* All pages are there; the middle one is of another class. */
static void open_scene(scene *s)
{
    faults_reset(-1);
    tried = faulty_driver;
    tried.reserve = adjoining_reserve;
    left = 0;
    s->host = make_runtime(64 * MIB);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * GRANULE, .host = s->host};
    ok(wi_runtime_create_over(&tried, 0, &options, &s->runtime));
    s->model = open_client(s->runtime, "model", 0, 0);
    for (int i = 0; i < BLOCKS; i++) {
        weir_elastic_options o = {.struct_size = sizeof o,
                                  .bytes = PAGES * GRANULE,
                                  .page = GRANULE,
                                  .memory_class = i == 1 ? WEIR_CLASS_ACTIVATIONS : WEIR_CLASS_KV};
        weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
        ok(weir_elastic_create(s->model, &o, &s->blocks[i]));
        ok(weir_elastic_commit(s->blocks[i], 0, PAGES * GRANULE, WEIR_STREAM_HOST));
        ok(weir_elastic_info(s->blocks[i], &stats));
        s->base[i] = stats.base;
        write_block(s->runtime, s->base[i], PAGES * GRANULE, (uint64_t)i + 1);
        assert_true(i == 0 || s->base[i] - s->base[i - 1] == (downwards ? -1 : 1) * (ptrdiff_t)(PAGES * GRANULE));
    }
}

static void close_scene(scene *s)
{
    for (int i = 0; i < BLOCKS; i++)
        if (s->blocks[i])
            ok(weir_elastic_destroy(s->blocks[i], WEIR_STREAM_HOST));
    check_empty(s->runtime);
    ok(weir_client_destroy(s->model));
    ok(weir_runtime_destroy(s->runtime));
    ok(weir_runtime_destroy(s->host));
    assert_true(faults_nothing_left());
}

/* So many pages of the block are there. */
static void has_pages(const scene *s, int which, size_t count)
{
    weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
    ok(weir_elastic_info(s->blocks[which], &stats));
    assert_int_equal(stats.committed, count * GRANULE);
}

static void leave_and_come_back(const scene *s)
{
    assert_int_equal(suspend(s->model).away, BLOCKS * PAGES * GRANULE);
    for (int i = 0; i < BLOCKS; i++)
        has_pages(s, i, 0);
    ok(weir_client_resume(s->model, WEIR_STREAM_HOST));
    for (int i = 0; i < BLOCKS; i++) {
        has_pages(s, i, PAGES);
        block_holds(s->runtime, s->base[i], PAGES * GRANULE, (uint64_t)i + 1);
    }
}

static void every_block_has_its_own_pages_again(void **state)
{
    (void)state;
    for (int down = 0; down < 2; down++) {
        scene s;
        downwards = down;
        open_scene(&s);
        leave_and_come_back(&s);
        leave_and_come_back(&s);
        close_scene(&s);
    }
    downwards = false;
}

static void what_is_dropped_of_one_is_not_dropped_of_its_neighbours(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    weir_residency r = suspend_with(s.model, (weir_suspend_options){.drop = WEIR_CLASS_BIT(WEIR_CLASS_KV)});
    assert_int_equal(r.dropped, 2 * PAGES * GRANULE);
    assert_int_equal(r.copied, PAGES * GRANULE);
    ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
    for (int i = 0; i < BLOCKS; i++)
        if (i == 1)
            block_holds(s.runtime, s.base[i], PAGES * GRANULE, (uint64_t)i + 1);
        else
            block_holds_zeros(s.runtime, s.base[i], PAGES * GRANULE);
    close_scene(&s);
}

/* While they are away one of three is given back, in part or as a whole, or ended; its neighbours come back. */
static void what_is_given_back_of_one_is_not_given_back_of_its_neighbours(void **state)
{
    (void)state;
    for (int which = 0; which < BLOCKS; which++)
        for (int ends = 0; ends < 2; ends++) {
            scene s;
            open_scene(&s);
            (void)suspend(s.model);
            if (ends) {
                ok(weir_elastic_destroy(s.blocks[which], WEIR_STREAM_HOST));
                s.blocks[which] = NULL;
            } else {
                ok(weir_elastic_release(s.blocks[which], GRANULE, 2 * GRANULE, WEIR_STREAM_HOST));
            }
            size_t gone = ends ? PAGES : 2;
            assert_int_equal(residency(s.model).away, (BLOCKS * PAGES - gone) * GRANULE);
            ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
            for (int i = 0; i < BLOCKS; i++) {
                if (i == which)
                    continue;
                has_pages(&s, i, PAGES);
                block_holds(s.runtime, s.base[i], PAGES * GRANULE, (uint64_t)i + 1);
            }
            if (!ends) {
                has_pages(&s, which, 2);
                block_holds(s.runtime, s.base[which], GRANULE, (uint64_t)which + 1);
            }
            close_scene(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_has_its_own_pages_again),
        cmocka_unit_test(what_is_dropped_of_one_is_not_dropped_of_its_neighbours),
        cmocka_unit_test(what_is_given_back_of_one_is_not_given_back_of_its_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
