/* Opening without host memory, at each place where some is asked for: it works all the same, or nothing is left. And a
 * model that lives for long takes no more of it with every request. */
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/model.h>

#include <stdatomic.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
char *__real_strdup(const char *text);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);

static atomic_long taken;            /* blocks, less those given back */
static _Thread_local long left = -1; /* requests that are met; -1: all */

static bool fails_now(void)
{
    return left >= 0 && left-- == 0;
}

static void *counted(void *block)
{
    atomic_fetch_add(&taken, block != NULL);
    return block;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : counted(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *old, size_t bytes)
{
    if (fails_now())
        return NULL;
    void *block = __real_realloc(old, bytes);
    return old ? block : counted(block);
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : counted(__real_strdup(text));
}

void __wrap_free(void *block)
{
    atomic_fetch_sub(&taken, block != NULL);
    __real_free(block);
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
        weir_status status = weir_model_create_chosen(manifest, &options, &model);
        all_met = left >= 0;
        left = -1;
        failures += status != WEIR_OK;
        if (status == WEIR_OK)
            ok(weir_model_destroy(model));
        else
            assert_int_equal(status, WEIR_ERR_SYSTEM);
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
        b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, .times = -1};
        left = nth;
        weir_status status = infer_once(model, &out);
        all_met = left >= 0;
        left = -1;
        if (status == WEIR_OK)
            weir_model_release_outputs(model, &out);
        b.faults[0].times = 0;
        infer_and_release(model);
        ok(weir_model_destroy(model));
        check_books(&before);
        b.notice_count = 0;
    }
}

/* Requests that end while they are tried elsewhere: of each is known that it was, and nothing of it is left. */
static void requests_without_end(void **state)
{
    (void)state;
    enum { SETTLED = 100, REQUESTS = UNDER_TSAN ? 1000 : 10000 };
    books before = take_books();
    weir_model *model = opened_on("cuda rocm");
    long settled = 0;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, -1);
    bed_fault("rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_CANCELLED, -1);
    for (int i = 0; i < REQUESTS; i++) {
        weir_outputs out;
        b.weights = i == 0 ? 2 * WEIGHTS : i == REQUESTS - 1 ? 3 * WEIGHTS : WEIGHTS; /* to know them by */
        fails(WEIR_ERR_CANCELLED, infer_once(model, &out));
        if (i == SETTLED)
            settled = atomic_load(&taken);
    }
    b.weights = WEIGHTS;
    assert_int_equal(b.loads, REQUESTS + 1);
    assert_int_equal(atomic_load(&taken), settled);
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 3); /* the one that serves; of the others the first and the newest */
    check_attempt(&record, 0, "cuda", WEIR_STAGE_LOAD, WEIR_OK);
    check_attempt(&record, 1, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_CANCELLED);
    check_attempt(&record, 2, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_CANCELLED);
    assert_int_equal(record.attempts[1].bytes, 2 * WEIGHTS);
    assert_int_equal(record.attempts[2].bytes, 3 * WEIGHTS);
    assert_int_equal(record.left_out, REQUESTS - 2);
    weir_record same = record_of(model);
    assert_ptr_equal(same.attempts, record.attempts);
    b.faults[1].status = WEIR_ERR_OUT_OF_MEMORY; /* another reason is listed */
    weir_outputs out;
    fails(WEIR_ERR_UNSUPPORTED, infer_once(model, &out));
    detail_names("rocm would not run it");
    weir_record now = record_of(model);
    assert_int_equal(now.attempt_count, 4);
    check_attempt(&now, 3, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_OUT_OF_MEMORY);
    check_attempt(&record, 2, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_CANCELLED); /* what was handed out stays */
    b.faults[0].times = 0;
    infer_and_release(model);
    check_attempt(&(weir_record){.attempts = record_of(model).attempts, .attempt_count = 4}, 0, "cuda",
                  WEIR_STAGE_FIRST_RUN, WEIR_OK);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* An engine that breaks again and again, and is loaded again each time. */
static void break_and_mend(int rounds, bool tight)
{
    enum { SETTLED = 10 };
    books before = take_books();
    b.weights = tight ? 40 * MIB : WEIGHTS; /* of 64 MiB */
    weir_model *model = opened_on("cuda");
    weir_model_details first = WEIR_INIT(weir_model_details);
    long settled = 0;
    b.ill = true;
    infer_and_release(model);
    ok(weir_model_info(model, &first));
    for (int i = 0; i < rounds; i++) {
        weir_outputs out;
        b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_ENGINE, .times = 1, .breaks = true};
        fails(WEIR_ERR_ENGINE, infer_once(model, &out));
        infer_and_release(model);
        assert_string_equal(provider_of(model), first.provider);
        if (i == SETTLED)
            settled = atomic_load(&taken);
    }
    assert_int_equal(atomic_load(&taken), settled);
    assert_int_equal(b.loads, 1 + (tight ? 2 : 1) * rounds);
    assert_int_equal(record_of(model).attempt_count, tight ? 5 : 3);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void instances_without_end(void **state)
{
    break_and_mend(UNDER_TSAN ? 100 : 1000, false);
    bed_reset(state);
    break_and_mend(100, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(opening_without_memory, bed_reset),
        cmocka_unit_test_setup(moving_without_memory, bed_reset),
        cmocka_unit_test_setup(requests_without_end, bed_reset),
        cmocka_unit_test_setup(instances_without_end, bed_reset),
    };
    return cmocka_run_group_tests_name("memory", tests, bed_begin, bed_end);
}
