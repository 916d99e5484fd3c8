/* Lists from MiniMalloc's CSV, plans saved and loaded, and what is wrong with files that are none. */
#include "info.h"
#include "base/texts.h"
#include "planner/buffers.h"
#include <weir/plan.h>
#include "planner/random.h"

#include <pthread.h>

static weir_status parse(const char *text, weir_buffers **out)
{
    return wi_buffers_parse_csv(text, strlen(text), "the sheet", out);
}

static weir_buffer get(const weir_buffers *list, uint32_t index)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    ok(weir_buffer_info(list, index, &b));
    return b;
}

static void csv_is_read(void **state)
{
    (void)state;
    weir_buffers *list;
    ok(parse("id,size,lower,upper,alignment,gaps,offset\r\nx,4,0,9,2,5-6 2-3,\n\ny, 8 ,1,2,,,16", &list));
    assert_int_equal(list_details(list).count, 2);
    weir_buffer x = get(list, 0), y = get(list, 1);
    assert_string_equal(x.name, "x");
    assert_int_equal(x.alignment, 2);
    assert_int_equal(x.end, 9);
    assert_false(x.fixed);
    assert_int_equal(y.bytes, 8);
    assert_true(y.fixed);
    assert_int_equal(y.offset, 16);
    weir_buffers_destroy(list);
    ok(parse("start,end,size\n3,5,1\n", &list));
    assert_int_equal(get(list, 0).end, 6);
    weir_buffers_destroy(list);
}

/* A list whose one id has so many bytes. */
static void long_name_row(size_t bytes, char *text)
{
    strcpy(text, "id,lower,upper,size\n");
    size_t at = strlen(text);
    for (size_t i = 0; i < bytes; i++)
        text[at + i] = "name"[i % 4];
    strcpy(text + at + bytes, ",0,1,4\n");
}

static void names_of_rows_are_whole(void **state)
{
    (void)state;
    char text[1100], part[] = "id,lower,upper,size\nna\0me,0,1,4";
    weir_buffers *list;
    long_name_row(1023, text);
    ok(parse(text, &list));
    weir_buffer b = get(list, 0);
    assert_int_equal(strlen(b.name), 1023);
    assert_memory_equal(b.name, strchr(text, '\n') + 1, 1023);
    weir_buffers_destroy(list);
    fails(WEIR_ERR_CORRUPT, wi_buffers_parse_csv(part, sizeof part - 1, "the sheet", &list));
    detail_names("line 2");
}

static void what_is_no_csv_is_refused_with_its_line(void **state)
{
    (void)state;
    char long_row[1100];
    long_name_row(1024, long_row);
    const struct {
        const char *text, *names;
        weir_status status;
    } bad[] = {
        {"", "header", WEIR_ERR_CORRUPT},
        {"id,lower,upper", "size", WEIR_ERR_CORRUPT},
        {"lower,size", "upper and end", WEIR_ERR_CORRUPT},
        {"lower,upper,end,size", "upper and end", WEIR_ERR_CORRUPT},
        {"lower,upper,size,colour", "colour", WEIR_ERR_CORRUPT},
        {"lower,upper,size,size", "twice", WEIR_ERR_CORRUPT},
        {"lower,upper,size\n0,1,1\n0,1", "line 3", WEIR_ERR_CORRUPT},
        {"lower,upper,size\n0,1,1,1", "more fields", WEIR_ERR_CORRUPT},
        {"lower,upper,size\n0,1,-1", "\"-1\"", WEIR_ERR_CORRUPT},
        {"lower,upper,size\n0,1,18446744073709551616", "64 bits", WEIR_ERR_CORRUPT},
        {"lower,end,size\n0,18446744073709551615,1", "largest", WEIR_ERR_CORRUPT},
        {"lower,upper,size\n\n1,1,1", "line 3", WEIR_ERR_INVALID},
        {"lower,upper,size,gaps\n0,9,1,3", "no gap", WEIR_ERR_CORRUPT},
        {"lower,upper,size,gaps\n0,9,1,3-5 5-6", "steps between", WEIR_ERR_INVALID},
        {"lower,upper,size,gaps\n0,9,1,3-5@0:1", "stays", WEIR_ERR_UNSUPPORTED},
        {long_row, "line 2: the id \"namename", WEIR_ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weir_buffers *list = NULL;
        fails(bad[i].status, parse(bad[i].text, &list));
        detail_names("the sheet");
        detail_names(bad[i].names);
        assert_null(list);
    }
    weir_buffers *list;
    fails(WEIR_ERR_NOT_FOUND, weir_buffers_read_csv("/no/such/file.csv", &list));
}

/* Everything that a list can have. */
static weir_buffers *full_of_everything(void)
{
    weir_buffers *list = empty_list();
    weir_buffer b = WEIR_INIT(weir_buffer);
    b.name = "conv 1%\n";
    b.bytes = 100;
    b.end = 6;
    b.alignment = 32;
    ok(weir_buffers_add(list, &b, NULL));
    (void)add_sharing(list, 1, 3, 20, WEIR_SHARING_VIEW, 0, 10);
    (void)add_sharing(list, 5, 8, 100, WEIR_SHARING_IN_PLACE, 0, 0);
    uint32_t fixed = add(list, 2, 4, 50);
    ok(weir_buffers_pin(list, fixed, 256));
    uint32_t holed = add(list, 0, 8, 30), other = add(list, 3, 4, 30);
    ok(weir_buffers_gap(list, holed, 2, 5));
    ok(weir_buffers_conflict(list, holed, other));
    static const uint32_t order[20] = {4, 2, 3};
    ok(weir_buffers_schedule(list, order, 20));
    return list;
}

static char *content(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    *length = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

static void plans_come_back_from_files(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-plan-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    weir_buffers *list = full_of_everything();
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 16), *back;
    ok(weir_plan_save(plan, path));
    ok(weir_plan_load(path, &back));
    ok(weir_plan_check(back, list));
    for (uint32_t i = 0; i < list_details(list).count; i++) {
        assert_int_equal(offset_of(back, i), offset_of(plan, i));
        assert_int_equal(slot_of(back, i).root, slot_of(plan, i).root);
        assert_string_equal(get(plan_details(back).list, i).name, get(list, i).name);
    }
    weir_plan_details a = summary_of(plan), b = summary_of(back);
    assert_int_equal(a.arena, b.arena);
    assert_int_equal(a.lower_bound, b.lower_bound);
    assert_int_equal(a.unshared, b.unshared);
    assert_int_equal(a.proven, b.proven || b.said_proven);
    assert_int_equal(a.in_place, b.in_place);
    size_t steps;
    assert_int_equal(schedule_of(back, &steps)[1], 2);
    assert_int_equal(steps, 20);
    weir_plan_destroy(back);
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
    unlink(path);
    fails(WEIR_ERR_NOT_FOUND, weir_plan_load(path, &back));
}

typedef struct writer {
    const weir_plan *plan;
    const char *path;
    int failures;
} writer;

static void *save_often(void *user)
{
    writer *w = user;
    for (int i = 0; i < 40; i++)
        w->failures += weir_plan_save(w->plan, w->path) != WEIR_OK;
    return NULL;
}

/* Whoever is last, the file is a whole plan. */
static void threads_may_save_to_one_path(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-plan-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    weir_buffers *list = full_of_everything();
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 16), *back;
    writer writers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        writers[i] = (writer){plan, path, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, save_often, &writers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(writers[i].failures, 0);
    }
    ok(weir_plan_load(path, &back));
    ok(weir_plan_check(back, list));
    weir_plan_destroy(back);
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
    unlink(path);
}

/* Any change of a byte, any end before the end. */
static void changed_plans_are_corrupt(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-plan-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    weir_buffers *list = full_of_everything();
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 16), *back = NULL;
    ok(weir_plan_save(plan, path));
    size_t length;
    char *text = content(path, &length);
    for (size_t i = 0; i < length; i++) {
        text[i] ^= 1;
        fails(WEIR_ERR_CORRUPT, wi_plan_parse(text, length, "a plan", &back));
        text[i] ^= 1;
        fails(WEIR_ERR_CORRUPT, wi_plan_parse(text, i, "a plan", &back));
    }
    assert_null(back);
    ok(wi_plan_parse(text, length, "a plan", &back));
    weir_plan_destroy(back);
    free(text);
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
    unlink(path);
}

/* Lines of buffers behind the head, with the sum that belongs to them. */
static weir_status parse_plan(const char *lines, weir_plan **out)
{
    char text[1000];
    int length = snprintf(text, sizeof text, "%s\n%s", WI_PLAN_FIRST_LINE, lines);
    length += snprintf(text + length, sizeof text - (size_t)length, "sum %016llx\n",
                       (unsigned long long)wi_fnv1a(text, (size_t)length));
    return wi_plan_parse(text, (size_t)length, "a plan", out);
}

/* bytes, begin, end, alignment, kind, persistent, fixed, offset, sharing, of, view offset; place, root, name */
static void plans_beyond_63_bits_are_corrupt(void **state)
{
    (void)state;
    static const char two_kinds[] = "plan 2 1 0\nbuffer 8 0 1 0 0 0 0 0 0 0 0 9223372036854775000 0 =a\n"
                                    "buffer 8 0 1 0 1 0 0 0 0 0 0 9223372036854775000 1 =b\n";
    static const char *const bad[] = {
        "plan 1 1 0\nbuffer 9223372036854775808 0 1 0 0 0 0 0 0 0 0 0 0 =a\n",
        "plan 1 1 0\nbuffer 64 0 1 0 0 0 0 0 0 0 0 9223372036854775800 0 =a\n",
        "plan 1 1 0\nbuffer 64 0 1 0 0 0 0 0 0 0 0 18446744073709551600 0 =a\n",
        "plan 1 1 0\nbuffer 0 0 1 0 0 0 0 0 0 0 0 64 0 =a\n",
        "plan 1 64 0\nbuffer 1 0 1 0 0 0 0 0 0 0 0 9223372036854775744 0 =a\n",
        two_kinds,
    };
    weir_plan *plan = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fails(WEIR_ERR_CORRUPT, parse_plan(bad[i], &plan));
        assert_null(plan);
    }
    ok(parse_plan("plan 1 1 1\nbuffer 8 0 1 0 0 0 0 0 0 0 0 9223372036854775799 0 =a\n", &plan));
    assert_int_equal(summary_of(plan).arena, INT64_MAX);
    assert_false(summary_of(plan).proven);
    assert_true(summary_of(plan).said_proven);
    weir_plan_destroy(plan);
    ok(parse_plan("plan 1 1 0\nbuffer 8 0 1 0 0 0 0 0 0 0 0 0 0 =a\n", &plan));
    assert_true(summary_of(plan).proven); /* the bound is reached, whatever the file says */
    assert_false(summary_of(plan).said_proven);
    weir_plan_destroy(plan);
}

static void plans_do_not_serve_other_lists(void **state)
{
    (void)state;
    weir_buffers *list = empty_list(), *other = empty_list();
    (void)add(list, 0, 2, 10);
    (void)add(list, 2, 4, 10);
    (void)add(other, 0, 3, 10);
    (void)add(other, 2, 4, 10);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    fails(WEIR_ERR_CORRUPT, weir_plan_check(plan, other));
    detail_names("b0 and b1 share bytes");
    detail_names("step 2");
    ok(weir_buffers_conflict(list, 0, 1));
    fails(WEIR_ERR_CORRUPT, weir_plan_check(plan, list));
    detail_names("conflict");
    static const uint32_t order[] = {0, 1, 2, 3};
    ok(weir_buffers_schedule(list, order, 4));
    fails(WEIR_ERR_CORRUPT, weir_plan_check(plan, list));
    detail_names("schedule");
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
    weir_buffers_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_is_read),
        cmocka_unit_test(names_of_rows_are_whole),
        cmocka_unit_test(what_is_no_csv_is_refused_with_its_line),
        cmocka_unit_test(plans_come_back_from_files),
        cmocka_unit_test(threads_may_save_to_one_path),
        cmocka_unit_test(changed_plans_are_corrupt),
        cmocka_unit_test(plans_beyond_63_bits_are_corrupt),
        cmocka_unit_test(plans_do_not_serve_other_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
