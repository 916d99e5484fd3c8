/* Lists that grow. */
#include "base/internal.h"
#include "core/core.h"

static void lists_grow_and_keep_their_items(void **state)
{
    (void)state;
    uint64_t *list = NULL;
    size_t room = 0;
    for (size_t i = 0; i < 1000; i++) {
        assert_true(wi_make_room(&list, i, &room, sizeof *list));
        assert_true(i < room);
        list[i] = 3 * i;
    }
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(list[i], 3 * i);
    free(list);
}

/* The check of races has a list, or two, for every block of a trace. */
static void short_lists_are_small(void **state)
{
    (void)state;
    char *list = NULL;
    size_t room = 0;
    assert_true(wi_make_room(&list, 0, &room, 1));
    assert_in_range(room, 1, 4);
    free(list);
}

static void without_memory_nothing_changes(void **state)
{
    (void)state;
    char *list = NULL, *before;
    size_t room = 0;
    volatile size_t too_much = SIZE_MAX / 32;
    const char *sanitized = getenv("WEIR_SANITIZED");
    if (sanitized && strcmp(sanitized, "tsan") == 0) /* which ends the process instead of having no memory */
        skip();
    assert_true(wi_make_room(&list, 0, &room, 1));
    before = list;
    size_t had = room;
    assert_false(wi_make_room(&list, room, &room, too_much));
    assert_ptr_equal(list, before);
    assert_int_equal(room, had);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_grow_and_keep_their_items),
        cmocka_unit_test(short_lists_are_small),
        cmocka_unit_test(without_memory_nothing_changes),
    };
    return cmocka_run_group_tests_name("lists that grow", tests, NULL, NULL);
}
