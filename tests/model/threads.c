/* Many requests at once on a model that moves: each is answered once, and the model moves once for all of them. */
#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/model.h>

#include <sched.h>
#include <time.h>

enum { THREADS = 8, RUNS = 40 };

typedef struct worker {
    pthread_t thread;
    weir_model *model;
    unsigned seed;
    int answered, failed;
    bool holds; /* outputs, across the next request */
} worker;

static void *work(void *user)
{
    worker *it = user;
    weir_outputs held = {0};
    for (int i = 0; i < RUNS; i++) {
        weir_outputs out;
        weir_status status = infer_once(it->model, &out);
        it->answered += status == WEIR_OK;
        it->failed += status != WEIR_OK;
        if (held.struct_size)
            weir_model_release_outputs(it->model, &held);
        held.struct_size = 0;
        if (status == WEIR_OK && it->holds)
            held = out;
        else if (status == WEIR_OK)
            weir_model_release_outputs(it->model, &out);
    }
    if (held.struct_size)
        weir_model_release_outputs(it->model, &held);
    return NULL;
}

/* Reads what others change. */
static void *look(void *user)
{
    worker *it = user;
    for (int i = 0; i < RUNS; i++) {
        weir_model_details info = WEIR_INIT(weir_model_details);
        weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
        weir_record record = WEIR_INIT(weir_record);
        weir_client_stats account = WEIR_INIT(weir_client_stats);
        it->answered += weir_model_info(it->model, &info) == WEIR_OK && strlen(info.provider) > 0;
        it->answered += weir_model_metrics(it->model, &metrics) == WEIR_OK;
        it->answered += weir_model_record(it->model, &record) == WEIR_OK && record.attempt_count > 0;
        weir_status there = weir_client_info(weir_model_client(it->model), &account);
        (void)there; /* it may have gone by now */
    }
    return NULL;
}

static void run_all(weir_model *model, worker workers[THREADS + 1])
{
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.model = model, .holds = i % 2};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    workers[THREADS] = (worker){.model = model};
    assert_int_equal(pthread_create(&workers[THREADS].thread, NULL, look, &workers[THREADS]), 0);
    for (int i = 0; i <= THREADS; i++)
        pthread_join(workers[i].thread, NULL);
}

static weir_model *open_three(void)
{
    wanted w;
    weir_opening_options options = opening_options(NULL);
    return open_model(wants(&w, "cuda rocm cpu"), &options);
}

static void check_all_answered(const worker workers[THREADS + 1])
{
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].answered, RUNS);
        assert_int_equal(workers[i].failed, 0);
    }
    assert_int_equal(b.answers, THREADS * RUNS);
    assert_int_equal(b.releases, THREADS * RUNS);
}

/* From some run on everything on cuda fails so. */
static bool sick; /* and says of itself that it is not healthy */

static void all_fail_together(weir_status status)
{
    bed_reset(NULL);
    books before = take_books();
    worker workers[THREADS + 1];
    weir_model *model = open_three();
    weir_outputs first;
    ok(infer_once(model, &first)); /* so that it has answered, whichever thread comes first */
    weir_model_release_outputs(model, &first);
    b.answers = b.releases = 0;
    b.ill = sick;
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, status, -1);
    run_all(model, workers);
    check_all_answered(workers);
    assert_int_equal(b.loads, 2); /* one move for all */
    assert_int_equal(b.alive, 1);
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 2);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_LATER_RUN, status);
    check_attempt(&record, 1, "rocm", WEIR_STAGE_LATER_RUN, WEIR_OK);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void lost_together(void **state)
{
    (void)state;
    all_fail_together(WEIR_ERR_DEVICE_LOST);
}

static void short_of_memory_together(void **state)
{
    (void)state;
    all_fail_together(WEIR_ERR_OUT_OF_MEMORY);
}

static void ill_together(void **state)
{
    (void)state;
    sick = true;
    all_fail_together(WEIR_ERR_ENGINE);
    sick = false;
}

/* One candidate after the other goes, and the last keeps all. */
static void one_after_the_other(void **state)
{
    (void)state;
    books before = take_books();
    worker workers[THREADS + 1];
    weir_model *model = open_three();
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, -1);
    bed_fault("rocm", WEIR_STAGE_LATER_RUN, WEIR_ERR_UNSUPPORTED, -1);
    run_all(model, workers);
    check_all_answered(workers);
    assert_int_equal(b.loads, 3);
    assert_int_equal(b.alive, 1);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Nothing is left: every request fails, none hangs, and nothing is loaded for each of them. */
static void nothing_is_left(void **state)
{
    (void)state;
    books before = take_books();
    worker workers[THREADS + 1];
    weir_model *model = open_three();
    bed_fault("", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, -1);
    run_all(model, workers);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(workers[i].failed, RUNS);
    assert_int_equal(b.loads, 3);
    assert_int_equal(b.alive, 0);
    check_books(&before);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Requests that begin while the model has no place wait for it. */
static void *ask_once(void *user)
{
    worker *it = user;
    weir_outputs out;
    it->answered = infer_once(it->model, &out) == WEIR_OK;
    if (it->answered)
        weir_model_release_outputs(it->model, &out);
    return NULL;
}

static bool reached(gate *g)
{
    pthread_mutex_lock(&g->lock);
    bool answer = g->reached;
    pthread_mutex_unlock(&g->lock);
    return answer;
}

static void waiting_for_a_move(void **state)
{
    (void)state;
    books before = take_books();
    worker workers[THREADS];
    weir_model *model = open_three();
    gate loading = GATE;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    b.inside_load = &loading;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.model = model};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, ask_once, &workers[i]), 0);
        while (i == 0 && !reached(&loading))
            sched_yield();
    }
    fails(WEIR_ERR_BUSY, weir_model_destroy(model));
    open_gate(&loading);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].answered);
    }
    assert_int_equal(b.runs, THREADS + 1);
    assert_int_equal(b.loads, 2);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Who waited in vain is told the same as who looked: every candidate and its reason. */
static void *ask_in_vain(void *user)
{
    worker *it = user;
    weir_outputs out;
    it->answered = infer_once(it->model, &out) == WEIR_OK;
    it->failed = !strstr(weir_detail(), "cuda would not run it") || !strstr(weir_detail(), "rocm would not load it");
    return NULL;
}

static void waiting_in_vain(void **state)
{
    (void)state;
    wanted w;
    worker workers[2];
    gate loading = GATE;
    const struct timespec little = {.tv_nsec = 20 * 1000 * 1000};
    weir_opening_options options = opening_options(NULL);
    (void)wants(&w, "cuda rocm");
    w.manifest.requirements.cpu = WEIR_CPU_FORBIDDEN;
    weir_model *model = open_model(&w.manifest, &options);
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, -1);
    bed_fault("rocm", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    b.inside_load = &loading;
    for (int i = 0; i < 2; i++) {
        workers[i] = (worker){.model = model};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, ask_in_vain, &workers[i]), 0);
        while (i == 0 && !reached(&loading))
            sched_yield();
    }
    do
        fails(WEIR_ERR_BUSY, weir_model_destroy(model));
    while (!strstr(weir_detail(), "2 runs"));
    nanosleep(&little, NULL);
    open_gate(&loading);
    for (int i = 0; i < 2; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_false(workers[i].answered);
        assert_false(workers[i].failed);
    }
    assert_int_equal(b.loads, 2);
    ok(weir_model_destroy(model));
}

/* Any faults at all ------------------------------------------------------------------------------------------------ */

typedef struct heard {
    int pieces;
    const char *from;
    bool mixed; /* pieces of several answers, or after one that had ended */
} heard;

static bool hear(const weir_piece *piece, void *user)
{
    heard *it = user;
    const char *provider = "";
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        if (strcmp(provider_names[i], piece->text) == 0)
            provider = provider_names[i];
    it->mixed |= piece->index != (uint64_t)it->pieces || (it->from && it->from != provider);
    it->from = provider;
    it->pieces++;
    return true;
}

enum { PIECES = 4, REQUESTS = 15 };

static void *stream(void *user)
{
    worker *it = user;
    for (int i = 0; i < REQUESTS; i++) {
        heard answer = {0};
        weir_inference inference = WEIR_INIT(weir_inference);
        weir_outputs out = WEIR_INIT(weir_outputs);
        weir_status status = model_infer_stream(it->model, &inference, hear, &answer, &out);
        it->failed += answer.mixed;
        if (status == WEIR_OK) {
            it->failed += answer.pieces != PIECES || strcmp(made_on(&out), answer.from) != 0;
            it->answered++;
            weir_model_release_outputs(it->model, &out);
        }
    }
    return NULL;
}

static void make_faults(uint64_t *seed)
{
    static const weir_status statuses[] = {WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_UNSUPPORTED, WEIR_ERR_DEVICE_LOST,
                                           WEIR_ERR_ENGINE,        WEIR_ERR_DRIVER,      WEIR_ERR_INVALID};
    static const char *const of[] = {"cuda", "rocm", "openvino", "cpu", ""};
    pthread_mutex_lock(&b.lock);
    for (int i = 0; i < MOST_FAULTS; i++)
        b.faults[i] = (fault_plan){.provider = of[next_random(seed) % 5],
                                   .stage = (weir_stage)(WEIR_STAGE_LOAD + next_random(seed) % 3),
                                   .status = statuses[next_random(seed) % 6],
                                   .times = (int)(next_random(seed) % 8) - 1,
                                   .pieces = (int)(next_random(seed) % 3)};
    b.ill = next_random(seed) % 2;
    pthread_mutex_unlock(&b.lock);
}

static void any_faults(void **state)
{
    (void)state;
    enum { ROUNDS = UNDER_TSAN ? 30 : 300 };
    uint64_t seed = 7;
    int answered = 0, moved = 0;
    for (int round = 0; round < ROUNDS; round++) {
        worker workers[THREADS];
        wanted w;
        bed_reset(NULL);
        books before = take_books();
        weir_opening_options options = opening_options(NULL);
        weir_model *model = open_model(wants(&w, "cuda rocm openvino cpu"), &options);
        b.pieces_of_runs = PIECES;
        make_faults(&seed);
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){.model = model};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, stream, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(workers[i].thread, NULL);
            assert_int_equal(workers[i].failed, 0);
            answered += workers[i].answered;
        }
        moved += b.loads > 1;
        assert_int_equal(b.answers, b.releases);
        assert_true(b.alive <= 1);
        ok(weir_model_destroy(model));
        assert_int_equal(b.alive, 0);
        check_books(&before);
    }
    assert_true(answered > ROUNDS * THREADS * REQUESTS / 4 && moved > ROUNDS / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(lost_together),   test(short_of_memory_together), test(ill_together),    test(one_after_the_other),
        test(nothing_is_left), test(waiting_for_a_move),       test(waiting_in_vain), test(any_faults),
    };
    return cmocka_run_group_tests_name("threads", tests, bed_begin, bed_end);
}
