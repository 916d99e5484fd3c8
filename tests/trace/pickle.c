/* Pickles: what plain data becomes, and what is refused; whatever the bytes, nothing runs and nothing is overrun. */
#include "../core/core.h"

#include "trace/readers.h"

static char path[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/weir-pickle-%d", (int)getpid());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove(path);
}

static weir_status load(const char *bytes, size_t count, pickle **out)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    return pickle_load(path, out);
}

#define LOAD(text, out)     load(text, sizeof text - 1, out)
#define REFUSED(what, text) refused(what, text, sizeof text - 1)

static void refused(weir_status wanted, const char *bytes, size_t count)
{
    pickle *p = NULL;
    fails(wanted, load(bytes, count, &p));
    assert_null(p);
}

static void check_number(pickle *p, uint64_t place, uint64_t wanted)
{
    assert_true(pickle_number(pickle_item(p, pickle_root(p), place), 12345) == wanted);
}

static void test_numbers(void **state)
{
    pickle *p;
    (void)state;
    ok(LOAD("\x80\x02](K\xffM\xff\xffJ\xff\xff\xff\x7fJ\xff\xff\xff\xff\x8a\x00\x8a\x06\x01\x00\x00\x00\x00\x7f"
            "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00\x88\x89NI17\nI01\nL-3L\nL18446744073709551615L\ne.",
            &p));
    static const uint64_t wanted[] = {
        255, 65535, 0x7fffffff, 12345, 0, UINT64_C(0x7f0000000001), UINT64_MAX, 1, 0, 12345, 17, 1, 12345, UINT64_MAX};
    for (uint64_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        check_number(p, i, wanted[i]);
    assert_null(pickle_item(p, pickle_root(p), sizeof wanted / sizeof wanted[0]));
    pickle_free(p);
}

static void test_containers(void **state)
{
    pickle *p;
    (void)state;
    ok(LOAD("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
            "a\x94K\x01h\x01K\x02\x8c\x01"
            "bK\x03K\x04\x86u.",
            &p));
    assert_int_equal(pickle_number(pickle_get(p, pickle_root(p), "a"), 0), 2); /* the last one of a name */
    const pickle_value *pair = pickle_get(p, pickle_root(p), "b");
    assert_int_equal(pickle_number(pickle_item(p, pair, 1), 0), 4);
    assert_null(pickle_get(p, pickle_root(p), "c"));
    assert_null(pickle_get(p, pair, "a"));
    assert_null(pickle_item(p, pickle_root(p), 0));
    assert_false(pickle_is(pair, "b"));
    pickle_free(p);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    REFUSED(WEIR_ERR_UNSUPPORTED, "\x80\x02"
                                  "cos\nsystem\n.");
    REFUSED(WEIR_ERR_UNSUPPORTED, "\x80\x04\x93.");
    REFUSED(WEIR_ERR_UNSUPPORTED, "\x80\x02NR.");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x06N.");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02NN.");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02N(.");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02]h\x00.");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02]r\xff\xff\xff\x7f.");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02X\xff\xff\xff\xffN.");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01.");
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02](Nae.");  /* what lies below a mark is out of reach */
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02(Nd.");    /* a key without a value */
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02}(NNNu."); /* and there */
    REFUSED(WEIR_ERR_CORRUPT, "\x80\x02]NNs.");   /* a pair for a list */
}

/* A list whose items are all the same one can be looked at only so often. */
static void test_steps(void **state)
{
    pickle *p;
    uint64_t looks = 0;
    (void)state;
    ok(LOAD("\x80\x02]q\x00(h\x00h\x00h\x00h\x00"
            "e.",
            &p));
    const pickle_value *list = pickle_root(p);
    while (list && looks < 1u << 22) {
        list = pickle_item(p, list, looks % 4);
        looks++;
    }
    assert_null(list);
    assert_true(pickle_spent(p));
    assert_in_range(looks, 1000, 1u << 18);
    pickle_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_containers),
                                       cmocka_unit_test(test_what_is_refused), cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
