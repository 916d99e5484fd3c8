/* together.c: several runs of one model at once, each in a sequence of its own: they are decoded together, answer what
 * they answer alone, and one that is cancelled, refused or slow leaves the others alone. */
#include "common.h"
#include <weir/engine.h>
#include "plain.h"
#include "text/meetings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 4, MADE = 24, BATCH = 32, LONGEST = 150, END = 2 /* the vocabulary's end token */ };

static char path[64];
static const weir_setting four[] = {{"threads", "1"}, {"batch", "32"}, {"context", "256"}, {"sequences", "4"}};
static const weir_setting one[] = {{"threads", "1"}, {"batch", "32"}, {"context", "256"}, {"sequences", "1"}};
static const weir_setting greedy[] = {{"tokens", "24"}, {"ignore_eos", "1"}, {"temperature", "0"}};

/* The prompts are of different lengths, some longer than a step takes. */
static int prompt_of(int which, int32_t *out)
{
    static const int lengths[RUNS] = {5, 77, 31, LONGEST};
    for (int i = 0; i < lengths[which]; i++)
        out[i] = i == 0 ? 1 : 260 + (i * (3 + 2 * which) + which) % 26;
    return lengths[which];
}

static int32_t expected[RUNS][MADE];

static void learn_what_llama_says(const weir_engine *engine)
{
    int32_t prompt[LONGEST];
    plain it = plain_of(engine);
    plain_open(&it, path, false, 256, BATCH, 1);
    for (int i = 0; i < RUNS; i++) {
        int length = prompt_of(i, prompt);
        plain_greedy(&it, prompt, length, BATCH, END, expected[i], MADE);
    }
    plain_close(&it);
}

/* ---- runs on threads of their own ------------------------------------------------------------------------------- */

typedef struct runner {
    const fixture *its;
    int which;
    uint64_t id;
    const weir_setting *settings;
    size_t setting_count;
    int32_t prompt[LONGEST];
    weir_tensor input;
    bool streams;
    uint64_t meets_at, most; /* pieces; 0: never, all */
    meeting *meeting;
    pthread_t thread;
    atomic_long number; /* of the thread */

    weir_status status;
    char detail[512];
    int32_t pieces[MADE], made[MADE];
    uint64_t piece_count, made_count;
    pthread_t delivered_on;
    char finish[16];
    uint64_t *order, place; /* a counter, and what it was at the first piece */
} runner;

static bool on_piece(const weir_piece *piece, void *user)
{
    runner *it = user;
    if (piece->index == 0 && it->order)
        it->place = __atomic_add_fetch(it->order, 1, __ATOMIC_SEQ_CST);
    it->delivered_on = pthread_self();
    if (piece->index != it->piece_count)
        return false;
    it->pieces[it->piece_count++] = piece->token;
    if (it->meeting && it->piece_count == it->meets_at)
        meet(it->meeting);
    return it->most == 0 || it->piece_count < it->most;
}

static void *run(void *user)
{
    runner *it = user;
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(&it->input, it->settings, it->setting_count);
    const weir_engine *engine = it->its->it.engine;
    inference.id = it->id;
    it->number = (long)syscall(SYS_gettid);
    it->status = it->streams ? engine->infer_stream(it->its->model, &inference, on_piece, it, &outputs)
                             : engine->infer(it->its->model, &inference, &outputs);
    if (it->status != WEIR_OK) {
        snprintf(it->detail, sizeof it->detail, "%s", weir_detail());
        return NULL;
    }
    const weir_tensor *tokens = output_named(&outputs, "tokens"), *finish = output_named(&outputs, "finish_reason");
    it->made_count = tokens->bytes / sizeof *it->made;
    memcpy(it->made, tokens->data, tokens->bytes);
    snprintf(it->finish, sizeof it->finish, "%.*s", (int)finish->bytes, (const char *)finish->data);
    engine->release_outputs(it->its->model, &outputs);
    return NULL;
}

static runner runner_of(const fixture *its, int which)
{
    runner it = {.its = its, .which = which, .id = 10 + (uint64_t)which, .settings = greedy, .setting_count = 3};
    return it;
}

static void start(runner *it)
{
    it->input = token_input(it->prompt, 0, prompt_of(it->which, it->prompt));
    assert_int_equal(pthread_create(&it->thread, NULL, run, it), 0);
}

static void has_what_llama_says(const runner *it, uint64_t count)
{
    if (it->status != WEIR_OK)
        print_error("run %d: %s\n", it->which, it->detail);
    assert_int_equal(it->status, WEIR_OK);
    assert_int_equal(it->made_count, count);
    assert_memory_equal(it->made, expected[it->which], count * sizeof *it->made);
    if (!it->streams)
        return;
    assert_int_equal(it->piece_count, count);
    assert_memory_equal(it->pieces, expected[it->which], count * sizeof *it->pieces);
    assert_true(pthread_equal(it->delivered_on, it->thread));
}

/* Its thread sleeps: in the line, as nothing else of a run's makes it wait here. */
static void wait_until_it_sleeps(const runner *it)
{
    char file[64], state = 0;
    for (int seen = 0; seen < 5;) {
        usleep(2000);
        snprintf(file, sizeof file, "/proc/self/task/%ld/stat", atomic_load(&it->number));
        FILE *stat = it->number ? fopen(file, "r") : NULL;
        if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (stat)
            fclose(stat);
        seen = state == 'S' ? seen + 1 : 0;
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

static void test_four_runs_at_once_make_the_tokens_of_each_alone(void **state)
{
    (void)state;
    fixture its = fixture_open(path, four, 4);
    learn_what_llama_says(its.it.engine);
    for (int round = 0; round < 10; round++) {
        runner runs[RUNS];
        for (int i = 0; i < RUNS; i++) {
            runs[i] = runner_of(&its, (i + round) % RUNS);
            runs[i].streams = (i + round) % 3 != 0;
            start(&runs[i]);
        }
        for (int i = 0; i < RUNS; i++) {
            pthread_join(runs[i].thread, NULL);
            has_what_llama_says(&runs[i], MADE);
            assert_string_equal(runs[i].finish, "length");
        }
    }
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(its.it.engine->metrics(its.model, &metrics));
    assert_int_equal(metrics.runs, 40);
    assert_int_equal(metrics.tokens_out, 40 * MADE);
    assert_int_equal(metrics.tokens_in, 10 * (5 + 77 + 31 + LONGEST));
    fixture_close(&its);
}

/* None of them could come to its third piece if they took turns. */
static void test_four_runs_are_under_way_at_once(void **state)
{
    (void)state;
    fixture its = fixture_open(path, four, 4);
    meeting third = MEETING(RUNS);
    runner runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        runs[i] = runner_of(&its, i);
        runs[i].streams = true;
        runs[i].meeting = &third;
        runs[i].meets_at = 3;
        start(&runs[i]);
    }
    for (int i = 0; i < RUNS; i++) {
        pthread_join(runs[i].thread, NULL);
        has_what_llama_says(&runs[i], MADE);
    }
    assert_false(third.missed);
    fixture_close(&its);
}

/* One run has a token in every step in which the other's prompt of 150 is read: five, of 31 tokens each. */
static void test_a_long_prompt_does_not_hold_up_who_generates(void **state)
{
    (void)state;
    static const weir_setting one_token[] = {{"tokens", "1"}, {"ignore_eos", "1"}, {"temperature", "0"}};
    fixture its = fixture_open(path, four, 4);
    meeting end = MEETING(2);
    runner generates = runner_of(&its, 0), reads = runner_of(&its, 3);
    generates.streams = true;
    generates.meeting = &end;
    generates.meets_at = 1;
    reads.settings = one_token;
    start(&generates);
    while (come(&end) == 0)
        usleep(1000);
    /* Its thread is with its reader, so that only the other one's computes, and nobody behind it. */
    start(&reads);
    pthread_join(reads.thread, NULL);
    has_what_llama_says(&reads, 1);
    OK(its.it.engine->cancel(its.model, generates.id));
    meet(&end);
    pthread_join(generates.thread, NULL);
    assert_int_equal(generates.status, WEIR_ERR_CANCELLED);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(its.it.engine->metrics(its.model, &metrics));
    assert_int_equal(metrics.tokens_out, 1 + 1 + 5);
    fixture_close(&its);
}

/* A reader that does not come back holds up nobody: the others are computed by one another's threads. */
static void test_a_slow_reader_holds_up_nobody(void **state)
{
    (void)state;
    fixture its = fixture_open(path, four, 4);
    meeting end = MEETING(2);
    for (int lock_step = 0; lock_step < 2; lock_step++) {
        static const weir_setting with_logits[] = {
            {"tokens", "24"}, {"ignore_eos", "1"}, {"temperature", "0"}, {"logits", "1"}};
        runner slow = runner_of(&its, 0), others[RUNS - 1];
        slow.streams = true;
        slow.meeting = &end;
        slow.meets_at = 1;
        slow.settings = lock_step ? with_logits : greedy;
        slow.setting_count = lock_step ? 4 : 3;
        end.come = 0;
        start(&slow);
        for (int i = 0; i < RUNS - 1; i++) {
            others[i] = runner_of(&its, i + 1);
            others[i].streams = i != 1;
            start(&others[i]);
        }
        for (int i = 0; i < RUNS - 1; i++) {
            pthread_join(others[i].thread, NULL);
            has_what_llama_says(&others[i], MADE);
        }
        meet(&end);
        pthread_join(slow.thread, NULL);
        has_what_llama_says(&slow, MADE);
        assert_false(end.missed);
    }
    fixture_close(&its);
}

static void test_a_cancel_in_the_middle_leaves_the_others_alone(void **state)
{
    (void)state;
    fixture its = fixture_open(path, four, 4);
    for (int victim = 0; victim < RUNS; victim++) {
        meeting before = MEETING(RUNS + 1);
        runner runs[RUNS];
        for (int i = 0; i < RUNS; i++) {
            static const weir_setting with_logits[] = {
                {"tokens", "24"}, {"ignore_eos", "1"}, {"temperature", "0"}, {"logits", "1"}};
            runs[i] = runner_of(&its, i);
            runs[i].streams = true;
            runs[i].meeting = &before;
            runs[i].meets_at = 2;
            if (i == victim) { /* waits for its reader, so that it cannot be at its end */
                runs[i].settings = with_logits;
                runs[i].setting_count = 4;
            }
            start(&runs[i]);
        }
        /* The victim's reader is in its second piece, or on its way: it has 22 to go when the cancel comes. */
        while (come(&before) < RUNS)
            usleep(1000);
        OK(its.it.engine->cancel(its.model, 10 + (uint64_t)victim));
        meet(&before);
        for (int i = 0; i < RUNS; i++) {
            pthread_join(runs[i].thread, NULL);
            if (i != victim)
                has_what_llama_says(&runs[i], MADE);
        }
        assert_int_equal(runs[victim].status, WEIR_ERR_CANCELLED);
        assert_int_equal(runs[victim].piece_count, 2);
    }
    OK(its.it.engine->health(its.model));
    runner again = runner_of(&its, 1);
    start(&again);
    pthread_join(again.thread, NULL);
    has_what_llama_says(&again, MADE);
    fixture_close(&its);
}

static void test_a_reader_that_wants_no_more_ends_its_run_alone(void **state)
{
    (void)state;
    fixture its = fixture_open(path, four, 4);
    runner runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        runs[i] = runner_of(&its, i);
        runs[i].streams = true;
        runs[i].most = i % 2 ? 7 : 0;
        start(&runs[i]);
    }
    for (int i = 0; i < RUNS; i++) {
        pthread_join(runs[i].thread, NULL);
        has_what_llama_says(&runs[i], i % 2 ? 7 : MADE);
        assert_string_equal(runs[i].finish, i % 2 ? "cancelled" : "length");
    }
    fixture_close(&its);
}

/* One sequence is held; the runs that come meanwhile get it in the order in which they came. */
static void test_more_runs_than_sequences_wait_in_order(void **state)
{
    (void)state;
    static const weir_setting held[] = {{"tokens", "24"}, {"ignore_eos", "1"}, {"temperature", "0"}, {"logits", "1"}};
    fixture its = fixture_open(path, one, 4);
    meeting free_it = MEETING(2);
    uint64_t order = 0;
    runner first = runner_of(&its, 0), waiting[RUNS];
    first.streams = true;
    first.settings = held;
    first.setting_count = 4;
    first.meeting = &free_it;
    first.meets_at = 1;
    start(&first);
    while (come(&free_it) == 0)
        usleep(1000);
    for (int i = 0; i < RUNS; i++) {
        waiting[i] = runner_of(&its, i);
        waiting[i].id = 20 + (uint64_t)i;
        waiting[i].streams = true;
        waiting[i].settings = held; /* goes on when its reader has what there is: the first pieces come in order, too */
        waiting[i].setting_count = 4;
        waiting[i].order = &order;
        start(&waiting[i]);
        wait_until_it_sleeps(&waiting[i]);
    }
    OK(its.it.engine->cancel(its.model, 21));
    pthread_join(waiting[1].thread, NULL);
    assert_int_equal(waiting[1].status, WEIR_ERR_CANCELLED);
    assert_non_null(strstr(waiting[1].detail, "before it began"));
    meet(&free_it);
    pthread_join(first.thread, NULL);
    has_what_llama_says(&first, MADE);
    for (int i = 0; i < RUNS; i++) {
        if (i == 1)
            continue;
        pthread_join(waiting[i].thread, NULL);
        has_what_llama_says(&waiting[i], MADE);
        assert_int_equal(waiting[i].place, i == 0 ? 1 : i);
    }
    fixture_close(&its);
}

/* The output buffer has a row for every sequence from the load on; the results of a run are the first that may fail. */
static void test_a_refused_result_fails_its_run_alone(void **state)
{
    (void)state;
    fixture its = fixture_open(path, four, 4);
    runner runs[RUNS];
    OK(weir_client_set_limits(its.it.client, 0, stats_of(&its.it).live));
    for (int i = 0; i < RUNS; i++) {
        runs[i] = runner_of(&its, i);
        start(&runs[i]);
    }
    for (int i = 0; i < RUNS; i++) {
        pthread_join(runs[i].thread, NULL);
        assert_int_equal(runs[i].status, WEIR_ERR_OUT_OF_MEMORY);
        assert_non_null(strstr(runs[i].detail, "model"));
    }
    OK(weir_client_set_limits(its.it.client, 0, 0));
    OK(its.it.engine->health(its.model));
    for (int i = 0; i < RUNS; i++)
        start(&runs[i]);
    for (int i = 0; i < RUNS; i++) {
        pthread_join(runs[i].thread, NULL);
        has_what_llama_says(&runs[i], MADE);
    }
    fixture_close(&its);
}

static void test_a_step_has_room_for_every_sequence(void **state)
{
    (void)state;
    static const weir_setting narrow[] = {{"threads", "1"}, {"batch", "1"}, {"context", "256"}, {"sequences", "4"}};
    fixture its = fixture_open(path, narrow, 4);
    runner runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        runs[i] = runner_of(&its, i);
        start(&runs[i]);
    }
    for (int i = 0; i < RUNS; i++) {
        pthread_join(runs[i].thread, NULL);
        has_what_llama_says(&runs[i], MADE);
    }
    fixture_close(&its);
}

int main(void)
{
    model_shape shape = {.layers = 2, .width = 64, .heads = 4, .heads_kv = 2, .wide = 128, .context = 256};
    snprintf(path, sizeof path, "/tmp/weir-together-%d.gguf", (int)getpid());
    write_llama(path, &shape);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_four_runs_at_once_make_the_tokens_of_each_alone),
        cmocka_unit_test(test_four_runs_are_under_way_at_once),
        cmocka_unit_test(test_a_long_prompt_does_not_hold_up_who_generates),
        cmocka_unit_test(test_a_slow_reader_holds_up_nobody),
        cmocka_unit_test(test_a_cancel_in_the_middle_leaves_the_others_alone),
        cmocka_unit_test(test_a_reader_that_wants_no_more_ends_its_run_alone),
        cmocka_unit_test(test_more_runs_than_sequences_wait_in_order),
        cmocka_unit_test(test_a_refused_result_fails_its_run_alone),
        cmocka_unit_test(test_a_step_has_room_for_every_sequence),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
