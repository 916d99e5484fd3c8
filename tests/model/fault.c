/* Whose fault a failure is: a request that fails alone changes nothing for others; an instance that fails good input as
 * well is left for another. */
#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/model.h>

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>

static const weir_status statuses[] = {WEIR_ERR_ENGINE, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_UNSUPPORTED, WEIR_ERR_DRIVER};
enum { STATUSES = sizeof statuses / sizeof statuses[0], ROUNDS = 60 };

/* What its own fault is answered with. */
static weir_status own(weir_status status)
{
    return status == WEIR_ERR_ENGINE ? WEIR_ERR_INVALID : status;
}

static void fail_alone(const char *provider, weir_status status, int times)
{
    b.faults[0] = (fault_plan){provider, WEIR_STAGE_LATER_RUN, status, .times = times, .alone = true};
    b.faults[1] = (fault_plan){provider, WEIR_STAGE_FIRST_RUN, status, .times = times, .alone = true};
}

static void nothing_came_of_it(weir_model *model)
{
    ok(weir_model_health(model));
    assert_int_equal(b.loads, 1);
    assert_int_equal(b.alive, 1);
    assert_string_equal(provider_of(model), "cuda");
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count + record.left_out, 1);
    assert_int_equal(record.attempts[0].status, WEIR_OK);
    assert_int_equal(b.notice_count, 0);
}

/* With other candidates and without, before a first answer and after. */
static void a_request_that_fails_alone(void **state)
{
    (void)state;
    static const char *const providers[] = {"cuda rocm cpu", "cuda"};
    for (size_t i = 0; i < 4 * STATUSES; i++) {
        bed_reset(NULL);
        books before = take_books();
        weir_status status = statuses[i / 4];
        weir_model *model = opened_on(providers[i % 2]);
        weir_outputs out;
        if (i % 4 > 1)
            infer_and_release(model);
        for (int k = 0; k < ROUNDS; k++) {
            fail_alone("cuda", status, k % 5 + 1);
            for (int times = k % 5 + 1; times > 0; times--) {
                b.faults[0].times = b.faults[1].times = 1;
                fails(own(status), infer_once(model, &out));
                detail_names("cuda would not run it");
                b.faults[0].times = b.faults[1].times = 0;
                nothing_came_of_it(model);
            }
            infer_and_release(model);
        }
        ok(weir_model_destroy(model));
        check_books(&before);
    }
}

static weir_status ask(weir_model *model, const char *text, weir_outputs *out)
{
    char kept[40];
    snprintf(kept, sizeof kept, "%s", text);
    weir_setting setting = {"loud", "yes"};
    weir_tensor input = {.struct_size = offsetof(weir_tensor, on_device), /* as of an older header */
                         .name = "text",
                         .type = WEIR_TYPE_TEXT,
                         .rank = 1,
                         .shape = {(int64_t)strlen(kept)},
                         .data = kept,
                         .bytes = strlen(kept)};
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.inputs = &input;
    inference.input_count = 1;
    inference.settings = &setting;
    inference.setting_count = 1;
    *out = WEIR_INIT(weir_outputs);
    weir_status status = weir_model_infer(model, &inference, out);
    memset(kept, '?', sizeof kept); /* whoever needs it later has a copy */
    return status;
}

static void answer_and_release(weir_model *model, const char *text)
{
    weir_outputs out;
    ok(ask(model, text, &out));
    weir_model_release_outputs(model, &out);
}

/* An engine whose answers come whole is asked with what it has answered: the smallest so far, its settings too. */
static void good_input_is_what_was_answered(void **state)
{
    (void)state;
    char longest[40];
    books before = take_books();
    double_onnx.infer_stream = NULL;
    weir_model *model = opened_on("cuda rocm");
    weir_outputs out;
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    fail_alone("cuda", WEIR_ERR_ENGINE, 1);
    fails(WEIR_ERR_INVALID, ask(model, "first", &out)); /* there is nothing yet but the warm-up */
    assert_int_equal(b.warm_ups, 1);
    answer_and_release(model, longest);
    fail_alone("cuda", WEIR_ERR_ENGINE, 1);
    fails(WEIR_ERR_INVALID, ask(model, "bad", &out));
    char expected[80];
    snprintf(expected, sizeof expected, "text:%s loud=yes ", longest);
    assert_string_equal(b.asked, expected);
    assert_int_equal(b.answers, b.releases);
    assert_int_equal(b.warm_ups, 1);
    infer_and_release(model); /* without any input: it is less than half of that */
    fail_alone("cuda", WEIR_ERR_ENGINE, 1);
    fails(WEIR_ERR_INVALID, ask(model, "bad", &out));
    assert_string_equal(b.asked, "");
    nothing_came_of_it(model);
    assert_int_equal(b.answers, b.releases);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Nor does a refusal of a run of good input hide the one that the caller is told of. */
static void what_is_told_is_the_requests_own(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda rocm");
    weir_outputs out;
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    infer_and_release(model);
    b.scratch = 100 * MIB;
    fails(WEIR_ERR_OUT_OF_MEMORY, infer_once(model, &out));
    detail_names("bert asked for 100 MiB");
    ok(weir_refusal_last(&refusal));
    assert_true(refusal.requested >= 100 * MIB);
    nothing_came_of_it(model);
    b.scratch = 0;
    infer_and_release(model);
    ok(weir_model_destroy(model));
}

/* An instance that fails good input is loaded again; a plain model says that it is not healthy until it answers. */
static void an_instance_that_fails_good_input(void **state)
{
    (void)state;
    books before = take_books();
    double_onnx.infer_stream = NULL;
    double_onnx.health = NULL;
    weir_model *model = opened_on("cuda");
    weir_outputs out;
    answer_and_release(model, "good");
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_ENGINE, .times = 1, .breaks = true};
    fails(WEIR_ERR_ENGINE, ask(model, "poison", &out));
    assert_string_equal(b.asked, "text:good loud=yes ");
    fails(WEIR_ERR_ENGINE, weir_model_health(model));
    detail_names("has answered before");
    answer_and_release(model, "good");
    assert_int_equal(b.loads, 2);
    fails(WEIR_ERR_UNSUPPORTED, weir_model_health(model));
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void a_plain_model(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    weir_model_options options = WEIR_INIT(weir_model_options);
    weir_outputs out;
    books before = take_books();
    options.engine = "onnx";
    options.runtime = b.device;
    ok(weir_model_create(wants(&w, "")->model_file, &options, &model));
    infer_and_release(model);
    for (size_t i = 0; i < STATUSES; i++) {
        fail_alone("", statuses[i], 1);
        fails(own(statuses[i]), infer_once(model, &out));
        ok(weir_model_health(model));
        memset(b.faults, 0, sizeof b.faults);
        b.faults[0] = (fault_plan){"", WEIR_STAGE_LATER_RUN, statuses[i], .times = 1};
        fails(statuses[i], infer_once(model, &out));
        bool sick = statuses[i] == WEIR_ERR_ENGINE || statuses[i] == WEIR_ERR_DRIVER;
        check_status(weir_model_health(model), sick ? statuses[i] : WEIR_OK, "sick", __FILE__, __LINE__);
        infer_and_release(model);
        ok(weir_model_health(model));
    }
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Requests without end that break what answers them, or find it broken: what is done for them becomes rare. */
static void what_is_done_in_vain_becomes_rare(void **state)
{
    (void)state;
    enum { TIMES = 160 };
    books before = take_books();
    weir_model *model = opened_on("cuda");
    weir_outputs out;
    infer_and_release(model);
    b.faults[0] = (fault_plan){"", WEIR_STAGE_LATER_RUN, WEIR_ERR_ENGINE, .times = -1, .breaks = true};
    b.faults[1] = (fault_plan){"", WEIR_STAGE_FIRST_RUN, WEIR_ERR_ENGINE, .times = -1, .breaks = true};
    for (int i = 0; i < TIMES; i++)
        fails(WEIR_ERR_ENGINE, infer_once(model, &out));
    /* The 1st, 2nd, 4th, 8th and each 16th; loaded again for all of these but the 1st. */
    assert_int_equal(b.warm_ups, 4 + TIMES / 16);
    assert_int_equal(b.loads, 1 + 3 + TIMES / 16);
    b.faults[0].times = b.faults[1].times = 0;
    for (int i = 0; i < 16; i++)
        if (infer_once(model, &out) == WEIR_OK)
            weir_model_release_outputs(model, &out);
    infer_and_release(model);
    ok(weir_model_health(model));
    ok(weir_model_destroy(model));
    check_books(&before);
}

static atomic_int waiting; /* threads in pthread_cond_wait */

/* Requests that fail at the same time share a run of good input. */
static void failing_at_once(void **state)
{
    (void)state;
    enum { MANY = 6 };
    request them[MANY];
    pthread_t threads[MANY];
    gate warming = GATE;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm");
    infer_and_release(model);
    fail_alone("cuda", WEIR_ERR_ENGINE, MANY);
    int runs = b.runs;
    b.inside_run = &warming;
    b.holds_warm_ups = true;
    for (int i = 0; i < MANY; i++) {
        them[i] = (request){.model = model};
        assert_int_equal(pthread_create(&threads[i], NULL, make_request, &them[i]), 0);
        if (i == 0)
            wait_for(&warming);
    }
    while (atomic_load(&waiting) < MANY) /* the first one at the gate, all others for its verdict */
        sched_yield();
    open_gate(&warming);
    for (int i = 0; i < MANY; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(them[i].status, WEIR_ERR_INVALID);
    }
    assert_int_equal(b.warm_ups, 1);
    assert_int_equal(b.runs, runs + MANY);
    b.inside_run = NULL;
    nothing_came_of_it(model);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* A good answer between a verdict and the request that waits for it: made here, by the waiting thread itself, when the
 * other request is done. */

static _Thread_local weir_model *answers_meanwhile; /* NULL: this thread's waits are plain */
static gate waits_for_verdict, verdict_is_given;

int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    weir_model *model = answers_meanwhile;
    answers_meanwhile = NULL;
    if (model)
        open_gate(&waits_for_verdict);
    atomic_fetch_add(&waiting, 1);
    int error = __real_pthread_cond_wait(condition, mutex);
    atomic_fetch_sub(&waiting, 1);
    if (!model)
        return error;
    pthread_mutex_unlock(mutex);
    pass_gate(&verdict_is_given);
    infer_and_release(model);
    pthread_mutex_lock(mutex);
    return error;
}

static void *make_waiting_request(void *user)
{
    const request *it = user;
    answers_meanwhile = it->model;
    return make_request(user);
}

/* The answer shows that the instance is well, so that the failure is the request's. */
static void a_good_answer_before_the_verdict_is_read(void **state)
{
    (void)state;
    request first, second;
    pthread_t threads[2];
    gate warming = GATE;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm");
    waits_for_verdict = verdict_is_given = (gate)GATE;
    infer_and_release(model);
    fail_alone("cuda", WEIR_ERR_ENGINE, 2);
    b.inside_run = &warming;
    b.holds_warm_ups = true;
    first = second = (request){.model = model};
    assert_int_equal(pthread_create(&threads[0], NULL, make_request, &first), 0);
    wait_for(&warming);
    assert_int_equal(pthread_create(&threads[1], NULL, make_waiting_request, &second), 0);
    pass_gate(&waits_for_verdict);
    open_gate(&warming);
    pthread_join(threads[0], NULL);
    open_gate(&verdict_is_given);
    pthread_join(threads[1], NULL);
    b.inside_run = NULL;
    assert_int_equal(first.status, WEIR_ERR_INVALID);
    assert_int_equal(second.status, WEIR_ERR_INVALID);
    assert_int_equal(b.warm_ups, 1);
    nothing_came_of_it(model);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* An answer that was on its way when the instance failed does not show that it is well since; the next one does. */
static void an_answer_from_before_the_failure(void **state)
{
    (void)state;
    wanted w;
    request early;
    pthread_t thread;
    gate running = GATE;
    weir_outputs out;
    weir_model_options options = WEIR_INIT(weir_model_options);
    books before = take_books();
    options.engine = "onnx";
    options.runtime = b.device;
    ok(weir_model_create(wants(&w, "")->model_file, &options, &early.model));
    weir_model *model = early.model;
    infer_and_release(model);
    b.inside_run = &running;
    b.hold_from = b.runs + 1;
    assert_int_equal(pthread_create(&thread, NULL, make_request, &early), 0);
    wait_for(&running);
    b.hold_from = INT_MAX;
    b.faults[0] = (fault_plan){"", WEIR_STAGE_LATER_RUN, WEIR_ERR_ENGINE, .times = 1};
    fails(WEIR_ERR_ENGINE, infer_once(model, &out));
    fails(WEIR_ERR_ENGINE, weir_model_health(model));
    open_gate(&running);
    pthread_join(thread, NULL);
    ok(early.status);
    weir_model_release_outputs(model, &early.out);
    fails(WEIR_ERR_ENGINE, weir_model_health(model));
    b.inside_run = NULL;
    infer_and_release(model);
    ok(weir_model_health(model));
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* A cancelled request is judged by nobody. */
static void a_cancelled_request_is_not_judged(void **state)
{
    (void)state;
    request it = {.model = opened_on("cuda rocm")};
    gate running = GATE;
    pthread_t thread;
    infer_and_release(it.model);
    fail_alone("cuda", WEIR_ERR_ENGINE, 1);
    b.inside_run = &running;
    b.deaf = true;
    assert_int_equal(pthread_create(&thread, NULL, make_request, &it), 0);
    wait_for(&running);
    ok(weir_model_cancel(it.model, REQUEST));
    open_gate(&running);
    pthread_join(thread, NULL);
    assert_int_equal(it.status, WEIR_ERR_CANCELLED);
    b.inside_run = NULL;
    assert_int_equal(b.warm_ups, 0);
    nothing_came_of_it(it.model);
    ok(weir_model_destroy(it.model));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(a_request_that_fails_alone),
        test(good_input_is_what_was_answered),
        test(what_is_told_is_the_requests_own),
        test(an_instance_that_fails_good_input),
        test(a_plain_model),
        test(what_is_done_in_vain_becomes_rare),
        test(failing_at_once),
        test(a_good_answer_before_the_verdict_is_read),
        test(an_answer_from_before_the_failure),
        test(a_cancelled_request_is_not_judged),
    };
    return cmocka_run_group_tests_name("fault", tests, bed_begin, bed_end);
}
