/* checked.c: a file that was found good is read once, and again when it may have changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/weir.h>

#include "gguf/engine/check.h"
#include "writer.h"

static char path[64];
static int opened;
static time_t later; /* by so much the clock is ahead */

static void (*meanwhile)(void); /* called once, when the file has been read */

weir_status __wrap_wi_gguf_file_open(const char *name, wg_file *out);
weir_status __real_wi_gguf_file_open(const char *name, wg_file *out);
weir_status __wrap_wi_gguf_hyper_read(const wg_file *file, wg_hyper *out);
weir_status __real_wi_gguf_hyper_read(const wg_file *file, wg_hyper *out);
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
void *__wrap_malloc(size_t size);
void *__real_malloc(size_t size);

static size_t no_memory_for; /* a request of so many bytes */
static bool cannot_tell;     /* what memory depends on */

void *__wrap_malloc(size_t size)
{
    return size == no_memory_for ? NULL : __real_malloc(size);
}

weir_status __wrap_wi_gguf_file_open(const char *name, wg_file *out)
{
    opened++;
    return __real_wi_gguf_file_open(name, out);
}

weir_status __wrap_wi_gguf_hyper_read(const wg_file *file, wg_hyper *out)
{
    weir_status status = __real_wi_gguf_hyper_read(file, out);
    void (*then)(void) = meanwhile;
    meanwhile = NULL;
    if (then)
        then();
    return cannot_tell ? weir_fail(WEIR_ERR_UNSUPPORTED, "it cannot be told") : status;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int answer = __real_clock_gettime(clock, out);
    out->tv_sec += later;
    return answer;
}

static int begin(void **state)
{
    (void)state;
    opened = 0;
    later = 60;
    no_memory_for = 0;
    cannot_tell = false;
    write_llama(path, &small_shape);
    return 0;
}

static void look(wg_facts *facts, wg_hyper *hyper)
{
    if (wg_check_once(path, facts, hyper) != WEIR_OK)
        fail_msg("%s", weir_detail());
}

static void a_file_is_read_once(void **state)
{
    (void)state;
    wg_facts first, second;
    wg_hyper one, other;
    memset(&first, 0, sizeof first), memset(&second, 0, sizeof second);
    look(&first, NULL); /* what a load asks for is enough for a prediction */
    look(&second, &one);
    look(&second, &other);
    assert_int_equal(opened, 1);
    assert_string_equal(first.architecture, second.architecture);
    assert_int_equal(first.tokens, second.tokens);
    assert_int_equal(first.known, second.known);
    assert_int_equal(second.tokens, 286);
    assert_int_equal(one.layers, 2);
    assert_memory_equal(&one, &other, sizeof one);
}

/* Of the same length, in place and as another file by the same name. */
static void a_file_that_has_changed_is_read_again(void **state)
{
    (void)state;
    wg_facts facts;
    model_shape shape = small_shape;
    look(&facts, NULL);
    shape.replace_u32 = "llama.context_length";
    shape.replacement = 77;
    write_llama(path, &shape);
    look(&facts, NULL);
    assert_int_equal(facts.context, 77);
    shape.replacement = 78;
    unlink(path);
    write_llama(path, &shape);
    look(&facts, NULL);
    assert_int_equal(facts.context, 78);
    assert_int_equal(opened, 3);
    shape.replacement = 0;
    write_llama(path, &shape);
    assert_int_equal(wg_check_once(path, &facts, NULL), WEIR_ERR_CORRUPT);
    assert_int_equal(wg_check_once(path, &facts, NULL), WEIR_ERR_CORRUPT); /* what is wrong is not remembered */
    assert_int_equal(opened, 5);
    unlink(path);
    assert_int_equal(wg_check_once(path, &facts, NULL), WEIR_ERR_NOT_FOUND);
}

static void write_78(void)
{
    model_shape shape = small_shape;
    shape.replace_u32 = "llama.context_length";
    shape.replacement = 78;
    write_llama(path, &shape);
}

/* What was read goes with the stamp of before: the file's own is another one by then. */
static void a_file_that_changes_while_it_is_read_is_read_again(void **state)
{
    (void)state;
    wg_facts facts;
    meanwhile = write_78;
    look(&facts, NULL);
    assert_int_not_equal(facts.context, 78);
    look(&facts, NULL);
    assert_int_equal(facts.context, 78);
    assert_int_equal(opened, 2);
}

/* It may be written again without another time. */
static void a_file_written_just_now_is_read_again(void **state)
{
    (void)state;
    wg_facts facts;
    later = 0;
    look(&facts, NULL);
    look(&facts, NULL);
    assert_int_equal(opened, 2);
    later = 60;
    look(&facts, NULL);
    look(&facts, NULL);
    assert_int_equal(opened, 3);
}

/* For a load that is no matter; who asks what it takes is told. Nothing of it is remembered. */
static void what_memory_depends_on_may_be_unknown(void **state)
{
    (void)state;
    wg_facts facts;
    wg_hyper hyper;
    for (int starved = 0; starved < 2; starved++) {
        no_memory_for = starved ? sizeof hyper : 0;
        cannot_tell = !starved;
        opened = 0;
        look(&facts, NULL);
        assert_int_equal(facts.tokens, 286);
        assert_int_equal(wg_check_once(path, &facts, &hyper), starved ? WEIR_ERR_SYSTEM : WEIR_ERR_UNSUPPORTED);
        assert_non_null(strstr(weir_detail(), starved ? "no memory to look at it" : "it cannot be told"));
        assert_int_equal(opened, 2);
    }
    no_memory_for = 0;
    look(&facts, &hyper);
    assert_int_equal(opened, 3);
    assert_int_equal(hyper.layers, 2);
}

/* Whoever asks, and with memory or without. */
static void what_is_wrong_with_a_file_is_told(void **state)
{
    (void)state;
    wg_facts facts;
    wg_hyper hyper;
    model_shape shape = small_shape;
    shape.replace_u32 = "llama.context_length";
    shape.replacement = 0;
    write_llama(path, &shape);
    for (int starved = 0; starved < 2; starved++)
        for (int planned = 0; planned < 2; planned++) {
            no_memory_for = starved ? sizeof hyper : 0;
            assert_int_equal(wg_check_once(path, &facts, planned ? &hyper : NULL), WEIR_ERR_CORRUPT);
            assert_non_null(strstr(weir_detail(), "context_length"));
        }
    no_memory_for = 0;
}

/* More files than are kept: each is right all the same. */
static void many_files(void **state)
{
    enum { FILES = 20 };
    (void)state;
    wg_facts facts;
    char first[sizeof path], name[FILES][sizeof path + 8];
    model_shape shape = small_shape;
    memcpy(first, path, sizeof first);
    shape.replace_u32 = "llama.context_length";
    for (uint32_t i = 0; i < FILES; i++) {
        snprintf(name[i], sizeof name[i], "%s.%u", first, i);
        shape.replacement = 100 + i;
        write_llama(name[i], &shape);
    }
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < FILES; i++) {
            if (wg_check_once(name[i], &facts, NULL) != WEIR_OK)
                fail_msg("%s", weir_detail());
            assert_int_equal(facts.context, 100 + i);
        }
    for (uint32_t i = 0; i < FILES; i++)
        unlink(name[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_file_is_read_once, begin),
        cmocka_unit_test_setup(a_file_that_has_changed_is_read_again, begin),
        cmocka_unit_test_setup(a_file_that_changes_while_it_is_read_is_read_again, begin),
        cmocka_unit_test_setup(a_file_written_just_now_is_read_again, begin),
        cmocka_unit_test_setup(what_memory_depends_on_may_be_unknown, begin),
        cmocka_unit_test_setup(what_is_wrong_with_a_file_is_told, begin),
        cmocka_unit_test_setup(many_files, begin),
    };
    snprintf(path, sizeof path, "/tmp/weir-checked-%d.gguf", (int)getpid());
    int failed = cmocka_run_group_tests_name("checked", tests, NULL, NULL);
    unlink(path);
    return failed;
}
