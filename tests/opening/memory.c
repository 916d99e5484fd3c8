/* Opening without host memory, at each place where some is asked for: it works all the same, or nothing is left. */
#include "opening/bed.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
char *__wrap_strdup(const char *text);

static _Thread_local long left = -1; /* requests that are met; -1: all */

static bool fails_now(void)
{
    return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(old, bytes);
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : __real_strdup(text);
}

/* A manifest with something of everything that is kept. */
static const weir_manifest *full(wanted *w)
{
    static const weir_setting tuned[] = {{"threads", "4"}};
    w->manifest = *wants(w, "cuda rocm cpu");
    w->manifest.settings = tuned;
    w->manifest.setting_count = 1;
    w->manifest.requirements.graph_optimization_level = "basic";
    return &w->manifest;
}

static void opening_without_memory(void **state)
{
    (void)state;
    wanted w;
    weir_opening_options options = opening_options(NULL);
    books before = take_books();
    long failures = 0;
    bool all_met = false;
    for (long nth = 0; !all_met; nth++) {
        weir_model *model = NULL;
        const weir_manifest *manifest = full(&w);
        left = nth;
        weir_status status = weir_model_open(manifest, &options, &model);
        all_met = left >= 0;
        left = -1;
        failures += status != WEIR_OK;
        if (status == WEIR_OK)
            ok(weir_model_unload(model));
        else
            assert_int_equal(status, WEIR_SYSTEM);
        assert_int_equal(b.alive, 0);
        check_books(&before);
        b.notice_count = 0;
    }
    assert_true(failures >= 5); /* there are such places */
}

/* The same while a request looks for another place: it is answered, or has failed, and the model goes on. */
static void moving_without_memory(void **state)
{
    (void)state;
    wanted w;
    weir_opening_options options = opening_options(NULL);
    books before = take_books();
    bool all_met = false;
    for (long nth = 0; !all_met; nth++) {
        weir_outputs out;
        weir_model *model = open_model(full(&w), &options);
        b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_UNSUPPORTED, .times = -1};
        left = nth;
        weir_status status = infer_once(model, &out);
        all_met = left >= 0;
        left = -1;
        if (status == WEIR_OK)
            weir_model_release_outputs(model, &out);
        b.faults[0].times = 0;
        infer_and_release(model);
        ok(weir_model_unload(model));
        check_books(&before);
        b.notice_count = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(opening_without_memory, bed_reset),
        cmocka_unit_test_setup(moving_without_memory, bed_reset),
    };
    return cmocka_run_group_tests_name("memory", tests, bed_begin, bed_end);
}
