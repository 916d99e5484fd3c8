/* Requests that are stopped while a model moves: wherever one is, a cancel reaches it, and one that does not has missed
 * it. */
#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/model.h>

#include <stdatomic.h>
#include <time.h>

static void *cancel_it(void *user)
{
    request *it = user;
    it->status = weir_model_cancel(it->model, REQUEST);
    return NULL;
}

static void a_cancelled_request_is_not_made_again(void **state)
{
    (void)state;
    books before = take_books();
    request it = {.model = opened_on("cuda rocm")};
    gate loading = GATE;
    pthread_t thread;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_OUT_OF_MEMORY, 1);
    b.inside_load = &loading;
    assert_int_equal(pthread_create(&thread, NULL, make_request, &it), 0);
    wait_for(&loading);
    ok(weir_model_cancel(it.model, REQUEST));
    open_gate(&loading);
    pthread_join(thread, NULL);
    assert_int_equal(it.status, WEIR_ERR_CANCELLED);
    assert_int_equal(b.runs, 1);
    assert_int_equal(b.alive, 1);
    assert_string_equal(provider_of(it.model), "cuda");
    weir_record record = record_of(it.model);
    assert_int_equal(record.attempt_count, 2);
    check_attempt(&record, 1, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_CANCELLED);
    ok(weir_model_destroy(it.model));
    check_books(&before);
}

/* That a request was stopped there is nothing against a candidate. */
static void a_candidate_stays_good_when_a_request_is_cancelled(void **state)
{
    (void)state;
    books before = take_books();
    request it = {.model = opened_on("cuda rocm")};
    gate running = GATE;
    pthread_t thread;
    weir_outputs out;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, -1);
    b.inside_run = &running;
    b.hold_from = 2;
    assert_int_equal(pthread_create(&thread, NULL, make_request, &it), 0);
    wait_for(&running);
    ok(weir_model_cancel(it.model, REQUEST));
    open_gate(&running);
    pthread_join(thread, NULL);
    assert_int_equal(it.status, WEIR_ERR_CANCELLED);
    b.inside_run = NULL;
    assert_string_equal(provider_of(it.model), "cuda");
    ok(infer_once(it.model, &out));
    assert_string_equal(made_on(&out), "rocm");
    weir_model_release_outputs(it.model, &out);
    ok(weir_model_destroy(it.model));
    check_books(&before);
}

/* The cancel looks at the instance before while the request goes on to the next. */
static void a_cancel_reaches_a_request_that_moves_meanwhile(void **state)
{
    (void)state;
    books before = take_books();
    request it = {.model = opened_on("cuda rocm")}, stopper = {.model = it.model};
    gate running = GATE, cancelling = GATE;
    pthread_t thread, second;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, -1);
    b.inside_run = &running;
    b.inside_cancel = &cancelling;
    assert_int_equal(pthread_create(&thread, NULL, make_request, &it), 0);
    wait_for(&running);
    assert_int_equal(pthread_create(&second, NULL, cancel_it, &stopper), 0);
    wait_for(&cancelling);
    b.deaf = true; /* it is not there any more when the engine looks */
    open_gate(&running);
    pthread_join(thread, NULL);
    open_gate(&cancelling);
    pthread_join(second, NULL);
    assert_int_equal(stopper.status, WEIR_OK);
    assert_int_equal(it.status, WEIR_ERR_CANCELLED);
    assert_int_equal(b.runs, 1);
    assert_int_equal(b.alive, 1);
    assert_string_equal(provider_of(it.model), "cuda");
    ok(weir_model_destroy(it.model));
    check_books(&before);
}

/* Nor does it matter that the engine does not know the run yet, or has its answer already. */
static void a_cancelled_request_has_no_answer(void **state)
{
    (void)state;
    books before = take_books();
    request it = {.model = opened_on("cuda rocm")};
    gate running = GATE;
    pthread_t thread;
    b.inside_run = &running;
    b.deaf = true;
    assert_int_equal(pthread_create(&thread, NULL, make_request, &it), 0);
    wait_for(&running);
    fails(WEIR_ERR_NOT_FOUND, weir_model_cancel(it.model, REQUEST + 1));
    int cancels = b.cancels;
    ok(weir_model_cancel(it.model, REQUEST));
    assert_true(b.cancels > cancels + 1); /* the engine was asked more than once */
    open_gate(&running);
    pthread_join(thread, NULL);
    assert_int_equal(it.status, WEIR_ERR_CANCELLED);
    assert_int_equal(b.answers, 1);
    assert_int_equal(b.releases, 1);
    fails(WEIR_ERR_NOT_FOUND, weir_model_cancel(it.model, REQUEST));
    b.inside_run = NULL;
    infer_and_release(it.model);
    ok(weir_model_destroy(it.model));
    check_books(&before);
}

/* One that begins while the cancel looks is not stopped halfway. */
static void a_cancel_of_nothing_leaves_the_engine_alone(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm");
    int cancels = b.cancels;
    fails(WEIR_ERR_NOT_FOUND, weir_model_cancel(model, REQUEST));
    fails(WEIR_ERR_NOT_FOUND, weir_model_cancel(model, 0));
    assert_int_equal(b.cancels, cancels);
    infer_and_release(model);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static bool stop_hearing(const weir_piece *piece, void *user)
{
    pthread_t thread;
    if (piece->index == 1) {
        assert_int_equal(pthread_create(&thread, NULL, cancel_it, user), 0);
        pthread_join(thread, NULL);
    }
    return true;
}

/* What comes in pieces ends with the next one. */
static void a_cancelled_answer_has_no_further_piece(void **state)
{
    (void)state;
    request stopper = {.model = opened_on("cuda rocm")};
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.id = REQUEST;
    weir_outputs out = WEIR_INIT(weir_outputs);
    b.pieces_of_runs = 100;
    b.deaf = true;
    fails(WEIR_ERR_CANCELLED, model_infer_stream(stopper.model, &inference, stop_hearing, &stopper, &out));
    assert_int_equal(stopper.status, WEIR_OK);
    assert_int_equal(b.pieces, 3); /* the third was not wanted any more */
    ok(weir_model_destroy(stopper.model));
}

static void an_engine_that_cannot_cancel(void **state)
{
    (void)state;
    request it = {.model = opened_on("cuda rocm")};
    gate running = GATE;
    pthread_t thread;
    double_onnx.cancel = NULL;
    b.inside_run = &running;
    assert_int_equal(pthread_create(&thread, NULL, make_request, &it), 0);
    wait_for(&running);
    fails(WEIR_ERR_UNSUPPORTED, weir_model_cancel(it.model, REQUEST));
    detail_names("onnx");
    open_gate(&running);
    pthread_join(thread, NULL);
    assert_int_equal(it.status, WEIR_OK); /* a refused call changes nothing */
    weir_model_release_outputs(it.model, &it.out);
    ok(weir_model_destroy(it.model));
}

/* Unloading
 * ---------------------------------------------------------------------------------------------------------- */

typedef struct unloading {
    weir_model *model;
    weir_status status;
    atomic_bool done;
} unloading;

static void *unload_it(void *user)
{
    unloading *it = user;
    it->status = weir_model_destroy(it->model);
    atomic_store(&it->done, true);
    return NULL;
}

/* The run that the cancel is about has ended meanwhile. */
static void unloading_waits_for_a_cancel(void **state)
{
    (void)state;
    books before = take_books();
    unloading it = {.model = opened_on("cuda")};
    request run = {.model = it.model}, stopper = {.model = it.model};
    gate running = GATE, cancelling = GATE;
    pthread_t first, second, third;
    b.inside_run = &running;
    b.inside_cancel = &cancelling;
    assert_int_equal(pthread_create(&first, NULL, make_request, &run), 0);
    wait_for(&running);
    assert_int_equal(pthread_create(&second, NULL, cancel_it, &stopper), 0);
    wait_for(&cancelling);
    open_gate(&running);
    pthread_join(first, NULL);
    assert_int_equal(run.status, WEIR_ERR_CANCELLED);
    assert_int_equal(pthread_create(&third, NULL, unload_it, &it), 0);
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    assert_false(atomic_load(&it.done));
    assert_int_equal(b.unloads, 0);
    open_gate(&cancelling);
    pthread_join(second, NULL);
    pthread_join(third, NULL);
    assert_int_equal(stopper.status, WEIR_OK);
    assert_int_equal(it.status, WEIR_OK);
    check_books(&before);
}

/* At any moment
 * ------------------------------------------------------------------------------------------------------ */

typedef struct shot {
    weir_model *model;
    uint64_t delay_ns;
    atomic_bool armed;
    weir_status status;
} shot;

static void *cancel_later(void *user)
{
    shot *it = user;
    atomic_store(&it->armed, true);
    uint64_t start = now_ns();
    while (now_ns() - start < it->delay_ns)
        continue;
    it->status = weir_model_cancel(it->model, REQUEST);
    return NULL;
}

/* A request goes from one candidate to the next: one that the cancel has found is cancelled, and no other. */
static void cancels_at_any_moment(void **state)
{
    (void)state;
    enum { ROUNDS = UNDER_TSAN ? 100 : 600 };
    uint64_t seed = 11;
    int stopped = 0;
    int rounds = 0; /* a busy machine may let none meet for a while */
    for (; rounds < ROUNDS || (stopped == 0 && rounds < 100 * ROUNDS); rounds++) {
        bed_reset(NULL);
        books before = take_books();
        shot one = {.model = opened_on("cuda rocm"), .delay_ns = (uint64_t)1000 << next_random(&seed) % 11};
        request it = {.model = one.model};
        pthread_t thread;
        bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, -1);
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, &one), 0);
        while (!atomic_load(&one.armed))
            continue;
        make_request(&it);
        pthread_join(thread, NULL);
        assert_true(one.status == WEIR_OK || one.status == WEIR_ERR_NOT_FOUND);
        assert_int_equal(it.status, one.status == WEIR_OK ? WEIR_ERR_CANCELLED : WEIR_OK);
        if (it.status == WEIR_OK)
            weir_model_release_outputs(it.model, &it.out);
        stopped += it.status == WEIR_ERR_CANCELLED;
        assert_int_equal(b.answers, b.releases);
        assert_int_equal(b.alive, 1);
        ok(weir_model_destroy(it.model));
        check_books(&before);
    }
    print_message("%d of %d were stopped\n", stopped, rounds);
    assert_true(stopped > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(a_cancelled_request_is_not_made_again),
        test(a_candidate_stays_good_when_a_request_is_cancelled),
        test(a_cancel_reaches_a_request_that_moves_meanwhile),
        test(a_cancelled_request_has_no_answer),
        test(a_cancel_of_nothing_leaves_the_engine_alone),
        test(a_cancelled_answer_has_no_further_piece),
        test(an_engine_that_cannot_cancel),
        test(unloading_waits_for_a_cancel),
        test(cancels_at_any_moment),
    };
    return cmocka_run_group_tests_name("cancel", tests, bed_begin, bed_end);
}
