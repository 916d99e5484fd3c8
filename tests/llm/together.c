/* together.c: several runs of one model at once, decoded together: they answer what they answer alone, and one that is
 * cancelled, refused or slow leaves the others alone. */
#include "answer.h"
#include "folders.h"
#include "text/meetings.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RUNS = 6, LONGEST = 90, MOST = 256 }; /* MOST: a run asks for up to 200 */

static const weir_setting three[] = {{"threads", "1"}, {"sequences", "3"}};
static const size_t lengths[RUNS] = {5, 77, 31, LONGEST, 2, 40}, made[RUNS] = {24, 3, 30, 12, 17, 1};
static const char *const made_words[RUNS] = {"24", "3", "30", "12", "17", "1"};

/* ---- runs on threads of their own -------------------------------------------------------------------------------- */

typedef struct runner {
    const bench *it;
    int which;
    uint64_t id;
    weir_setting settings[6];
    size_t setting_count;
    int32_t prompt[LONGEST];
    weir_tensor input;
    bool streams;
    size_t meets_at, most; /* pieces; 0: never, all */
    meeting *meeting;
    pthread_t thread;

    weir_status status;
    char detail[512], finish[16], text[4096], streamed[4096];
    int32_t pieces[MOST], got[MOST];
    size_t piece_count, count, streamed_bytes;
    pthread_t delivered_on;
    atomic_long number; /* of the thread */
    atomic_bool done;
} runner;

static bool on_piece(const weir_piece *piece, void *user)
{
    runner *it = user;
    it->delivered_on = pthread_self();
    if (piece->index != it->piece_count || it->piece_count == MOST ||
        it->streamed_bytes + piece->bytes >= sizeof it->streamed)
        return false;
    memcpy(it->streamed + it->streamed_bytes, piece->text, piece->bytes);
    it->streamed_bytes += piece->bytes;
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
    const weir_engine *engine = it->it->engine;
    inference.id = it->id;
    atomic_store(&it->number, (long)syscall(SYS_gettid));
    it->status = it->streams ? engine->infer_stream(it->it->model, &inference, on_piece, it, &outputs)
                             : engine->infer(it->it->model, &inference, &outputs);
    if (it->status != WEIR_OK) {
        snprintf(it->detail, sizeof it->detail, "%s", weir_detail());
    } else {
        const weir_tensor *tokens = find_output(&outputs, "tokens"), *finish = find_output(&outputs, "finish_reason");
        const weir_tensor *text = find_output(&outputs, "text");
        it->count = tokens->bytes / sizeof *it->got;
        memcpy(it->got, tokens->data, tokens->bytes <= sizeof it->got ? tokens->bytes : 0);
        snprintf(it->finish, sizeof it->finish, "%.*s", (int)finish->bytes, (const char *)finish->data);
        snprintf(it->text, sizeof it->text, "%.*s", (int)text->bytes, (const char *)text->data);
        release(it->it, &outputs);
    }
    atomic_store(&it->done, true);
    return NULL;
}

static void runner_make(runner *to, const bench *it, int which)
{
    *to = (runner){.it = it, .which = which, .id = 10 + (uint64_t)which, .setting_count = 2};
    to->settings[0] = (weir_setting){"tokens", made_words[which]};
    to->settings[1] = (weir_setting){"temperature", "0"};
    fill_prompt(to->prompt, lengths[which], which);
    to->input = token_input(to->prompt, lengths[which]);
}

static void start(runner *it)
{
    it->input.data = it->prompt;
    assert_int_equal(pthread_create(&it->thread, NULL, run, it), 0);
}

static void start_all(runner *runs, const bench *it, int round)
{
    for (int i = 0; i < RUNS; i++) {
        runner_make(&runs[i], it, (i + round) % RUNS);
        runs[i].streams = (i + round) % 3 != 0;
        start(&runs[i]);
    }
}

/* ---- what they answer alone -------------------------------------------------------------------------------------- */

static runner alone[RUNS];

static void learn(void)
{
    if (alone[0].count > 0)
        return;
    bench it = bench_open(the_model(SHARED));
    for (int i = 0; i < RUNS; i++) {
        runner_make(&alone[i], &it, i);
        run(&alone[i]);
        assert_int_equal(alone[i].status, WEIR_OK);
        assert_int_equal(alone[i].count, made[i]);
    }
    bench_close(&it);
}

static void is_as_alone(const runner *it, size_t count)
{
    const runner *expected = &alone[it->which];
    if (it->status != WEIR_OK)
        print_error("run %d: %s\n", it->which, it->detail);
    assert_int_equal(it->status, WEIR_OK);
    assert_int_equal(it->count, count);
    assert_memory_equal(it->got, expected->got, count * sizeof *it->got);
    assert_int_equal(strncmp(it->text, expected->text, strlen(it->text)), 0);
    if (count == expected->count) {
        assert_string_equal(it->text, expected->text);
        assert_string_equal(it->finish, "length");
    }
    if (!it->streams)
        return;
    assert_int_equal(it->piece_count, count);
    assert_memory_equal(it->pieces, expected->got, count * sizeof *it->pieces);
    assert_int_equal(it->streamed_bytes, strlen(it->text));
    assert_memory_equal(it->streamed, it->text, it->streamed_bytes);
    assert_true(pthread_equal(it->delivered_on, it->thread));
}

static bench bench_of_three(void)
{
    learn();
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(bench_load(&it, three, 2));
    return it;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_six_runs_in_three_sequences_answer_as_each_alone(void **state)
{
    (void)state;
    bench it = bench_of_three();
    uint64_t weights = stats_of(&it).live, tokens_in = 0, tokens_out = 0;
    for (int round = 0; round < 8; round++) {
        runner runs[RUNS];
        start_all(runs, &it, round);
        for (int i = 0; i < RUNS; i++) {
            pthread_join(runs[i].thread, NULL);
            is_as_alone(&runs[i], made[runs[i].which]);
            tokens_in += lengths[runs[i].which];
            tokens_out += made[runs[i].which];
        }
        assert_int_equal(stats_of(&it).live, weights);
    }
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(it.engine->metrics(it.model, &metrics));
    assert_int_equal(metrics.runs, 8 * RUNS);
    assert_int_equal(metrics.tokens_in, tokens_in);
    assert_int_equal(metrics.tokens_out, tokens_out);
    assert_int_equal(metrics.failures + metrics.cancelled, 0);
    bench_close(&it);
}

/* One alone, and then two: neither a batch nor its end needs all three. */
static void test_fewer_runs_than_sequences(void **state)
{
    (void)state;
    bench it = bench_of_three();
    for (int count = 1; count < 3; count++) {
        runner runs[2];
        for (int i = 0; i < count; i++) {
            runner_make(&runs[i], &it, i);
            start(&runs[i]);
        }
        for (int i = 0; i < count; i++) {
            pthread_join(runs[i].thread, NULL);
            is_as_alone(&runs[i], made[i]);
        }
    }
    bench_close(&it);
}

/* A run holds its reader until the next one has come, so that both are there at once. */
static void test_a_slow_reader_holds_up_nobody(void **state)
{
    (void)state;
    bench it = bench_of_three();
    meeting end = MEETING(2);
    runner slow, others[RUNS - 1];
    runner_make(&slow, &it, 0);
    slow.streams = true;
    slow.meeting = &end;
    slow.meets_at = 1;
    start(&slow);
    while (come(&end) == 0)
        usleep(1000);
    for (int i = 0; i < RUNS - 1; i++) {
        runner_make(&others[i], &it, i + 1);
        others[i].streams = i != 1;
        start(&others[i]);
    }
    for (int i = 0; i < RUNS - 1; i++) {
        pthread_join(others[i].thread, NULL);
        is_as_alone(&others[i], made[i + 1]);
    }
    assert_false(atomic_load(&slow.done));
    meet(&end);
    pthread_join(slow.thread, NULL);
    is_as_alone(&slow, made[0]);
    assert_false(end.missed);
    bench_close(&it);
}

/* The victim's reader is in its second piece, with others in the engine and in the line. */
static void test_a_cancel_in_the_middle_leaves_the_others_alone(void **state)
{
    (void)state;
    static const int victims[] = {0, 2, 4};
    bench it = bench_of_three();
    uint64_t weights = stats_of(&it).live;
    for (size_t k = 0; k < sizeof victims / sizeof *victims; k++) {
        meeting held = MEETING(2);
        runner runs[RUNS];
        for (int i = 0; i < RUNS; i++) {
            runner_make(&runs[i], &it, i);
            runs[i].streams = true;
            if (i == victims[k]) {
                runs[i].meeting = &held;
                runs[i].meets_at = 2;
            }
            start(&runs[i]);
        }
        while (come(&held) == 0)
            usleep(1000);
        OK(it.engine->cancel(it.model, 10 + (uint64_t)victims[k]));
        meet(&held);
        for (int i = 0; i < RUNS; i++) {
            pthread_join(runs[i].thread, NULL);
            if (i != victims[k])
                is_as_alone(&runs[i], made[i]);
        }
        assert_int_equal(runs[victims[k]].status, WEIR_ERR_CANCELLED);
        assert_words(runs[victims[k]].detail, "the run was cancelled");
        assert_int_equal(stats_of(&it).live, weights);
    }
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(it.engine->metrics(it.model, &metrics));
    assert_int_equal(metrics.cancelled, 3);
    assert_int_equal(metrics.failures, 0);
    assert_int_equal(it.engine->cancel(it.model, 0), WEIR_ERR_NOT_FOUND);
    bench_close(&it);
}

/* Its first piece is held until everything is made, as each step makes a token of both, and its second until the cancel:
 * the call has not ended, and has pieces to hand on. */
static void test_a_cancel_reaches_a_reader_that_is_behind(void **state)
{
    (void)state;
    bench it = bench_of_three();
    meeting first = MEETING(2), second = MEETING(2);
    runner slow, longer;
    runner_make(&slow, &it, 0);
    slow.streams = true;
    slow.meeting = &first;
    slow.meets_at = 1;
    start(&slow);
    while (come(&first) == 0)
        usleep(1000);
    runner_make(&longer, &it, 2);
    start(&longer);
    pthread_join(longer.thread, NULL);
    slow.meeting = &second;
    slow.meets_at = 2;
    meet(&first);
    while (come(&second) == 0)
        usleep(1000);
    OK(it.engine->cancel(it.model, slow.id));
    meet(&second);
    pthread_join(slow.thread, NULL);
    assert_int_equal(slow.status, WEIR_ERR_CANCELLED);
    assert_words(slow.detail, "the run was cancelled");
    assert_int_equal(slow.piece_count, 2);
    assert_int_equal(it.engine->cancel(it.model, slow.id), WEIR_ERR_NOT_FOUND);
    bench_close(&it);
}

/* Runs that come while a batch is decoded wait for its end; one of them is cancelled there, or at its first piece where
 * the batch was over sooner. */
static void test_a_cancel_in_the_line(void **state)
{
    (void)state;
    bench it = bench_of_three();
    meeting held = MEETING(2), caught = MEETING(2);
    runner first, waiting[3];
    runner_make(&first, &it, 2);
    first.streams = true;
    first.meeting = &held;
    first.meets_at = 1;
    first.settings[0].value = "200";
    start(&first);
    while (come(&held) == 0)
        usleep(1000);
    for (int i = 0; i < 3; i++) {
        runner_make(&waiting[i], &it, i);
        waiting[i].id = 20 + (uint64_t)i;
        waiting[i].streams = i == 1;
        waiting[i].meeting = i == 1 ? &caught : NULL;
        waiting[i].meets_at = 1;
        start(&waiting[i]);
    }
    weir_status found = WEIR_ERR_NOT_FOUND;
    while (found == WEIR_ERR_NOT_FOUND)
        found = it.engine->cancel(it.model, 21);
    open_meeting(&caught);
    OK(it.engine->cancel(it.model, first.id));
    meet(&held);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.status, WEIR_ERR_CANCELLED);
    for (int i = 0; i < 3; i++) {
        pthread_join(waiting[i].thread, NULL);
        if (i != 1)
            is_as_alone(&waiting[i], made[i]);
    }
    assert_int_equal(waiting[1].status, WEIR_ERR_CANCELLED);
    bench_close(&it);
}

/* All at once, by the number that means all. */
static void test_all_are_cancelled(void **state)
{
    (void)state;
    bench it = bench_of_three();
    uint64_t weights = stats_of(&it).live;
    meeting begun = MEETING(2);
    runner runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        runner_make(&runs[i], &it, i);
        runs[i].settings[0].value = "150";
        if (i == 0) {
            runs[i].streams = true;
            runs[i].meeting = &begun;
            runs[i].meets_at = 1;
        }
        start(&runs[i]);
    }
    while (come(&begun) == 0)
        usleep(1000);
    meet(&begun);
    for (int i = 0; i < RUNS; i++)
        while (!atomic_load(&runs[i].done)) {
            (void)it.engine->cancel(it.model, 0);
            usleep(500);
        }
    for (int i = 0; i < RUNS; i++) {
        pthread_join(runs[i].thread, NULL);
        assert_true(runs[i].status == WEIR_ERR_CANCELLED || (runs[i].status == WEIR_OK && runs[i].count == 150));
    }
    assert_int_equal(stats_of(&it).live, weights);
    runner again;
    runner_make(&again, &it, 3);
    start(&again);
    pthread_join(again.thread, NULL);
    is_as_alone(&again, made[3]);
    bench_close(&it);
}

static void test_a_reader_that_wants_no_more_ends_its_run_alone(void **state)
{
    (void)state;
    bench it = bench_of_three();
    runner runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        runner_make(&runs[i], &it, i);
        runs[i].streams = true;
        runs[i].most = i % 2 == 0 ? 5 : 0;
        start(&runs[i]);
    }
    for (int i = 0; i < RUNS; i++) {
        pthread_join(runs[i].thread, NULL);
        is_as_alone(&runs[i], i % 2 == 0 ? 5 : made[i]);
        assert_string_equal(runs[i].finish, i % 2 == 0 ? "cancelled" : "length");
    }
    bench_close(&it);
}

/* It comes back when everything is made, and still has what it wanted. */
static void test_a_slow_reader_that_wants_no_more_ends_its_run_where_it_is(void **state)
{
    (void)state;
    bench it = bench_of_three();
    meeting end = MEETING(2);
    runner slow, other;
    runner_make(&slow, &it, 0);
    slow.streams = true;
    slow.meeting = &end;
    slow.meets_at = 1;
    slow.most = 4;
    start(&slow);
    while (come(&end) == 0)
        usleep(1000);
    runner_make(&other, &it, 1); /* a batch later */
    start(&other);
    pthread_join(other.thread, NULL);
    meet(&end);
    pthread_join(slow.thread, NULL);
    is_as_alone(&slow, 4);
    assert_string_equal(slow.finish, "cancelled");
    bench_close(&it);
}

/* ---- their settings ---------------------------------------------------------------------------------------------- */

/* Each has ways of its own to choose, and a text of its own to end at. */
static void test_runs_together_have_settings_of_their_own(void **state)
{
    (void)state;
    static const weir_setting ways[RUNS][3] = {
        {{"temperature", "0"}, {"repeat_penalty", "1.7"}, {"top_k", "40"}},
        {{"temperature", "0"}, {"regex", "(yes|no)[0-9]{3}"}, {"top_k", "40"}},
        {{"temperature", "0"}, {"stop", "a"}, {"top_k", "40"}},
        {{"temperature", "0"}, {"no_repeat_ngram", "1"}, {"top_k", "40"}},
        {{"temperature", "0"}, {"json_schema", "{\"enum\":[\"memory\",\"page\"]}"}, {"top_k", "40"}},
        {{"temperature", "1"}, {"top_k", "1"}, {"top_p", "0.5"}},
    };
    bench it = bench_open(the_model(SHARED)), several = bench_of_three();
    runner expected[RUNS], runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        runner_make(&expected[i], &it, i);
        expected[i].settings[0].value = "20";
        memcpy(expected[i].settings + 1, ways[i], sizeof ways[i]);
        expected[i].setting_count = 4;
        runs[i] = expected[i];
        runs[i].it = &several;
        expected[i].input.data = expected[i].prompt;
        run(&expected[i]);
        start(&runs[i]);
    }
    for (int i = 0; i < RUNS; i++) {
        pthread_join(runs[i].thread, NULL);
        if (runs[i].status != WEIR_OK)
            print_error("run %d: %s\n", i, runs[i].detail);
        assert_int_equal(runs[i].status, WEIR_OK);
        assert_string_equal(runs[i].text, expected[i].text);
        assert_int_equal(runs[i].count, expected[i].count);
        assert_memory_equal(runs[i].got, expected[i].got, runs[i].count * sizeof *runs[i].got);
        assert_string_equal(runs[i].finish, expected[i].finish);
    }
    bench_close(&several);
    bench_close(&it);
}

/* The seed of the load is that of every run. */
static void test_draws_of_runs_together_have_the_seed_of_the_load(void **state)
{
    (void)state;
    const weir_setting seeded[] = {{"threads", "1"}, {"sequences", "3"}, {"seed", "7"}};
    const weir_setting draws[] = {{"tokens", "20"}, {"temperature", "1.2"}},
                       same[] = {{"tokens", "20"}, {"temperature", "1.2"}, {"seed", "7"}};
    const weir_setting other[] = {{"tokens", "20"}, {"temperature", "1.2"}, {"seed", "8"}};
    const weir_setting greedy[] = {GREEDY("20"), {"seed", "8"}};
    int32_t prompt[9];
    fill_prompt(prompt, 9, 2);
    bench it = bench_open(the_model(SHARED)), several = bench_on(the_model(SHARED), 1ull << 30, NULL);
    weir_tensor input = token_input(prompt, 9);
    weir_outputs outputs;
    OK(bench_load(&several, seeded, 3));
    answer *expected = answer_of(&it, &input, same, 3), *got = answer_of(&several, &input, draws, 2);
    answer *named = answer_of(&several, &input, same, 3);
    assert_same_answer(got, expected);
    assert_same_answer(named, expected);
    assert_int_equal(infer(&several, &input, other, 3, &outputs), WEIR_ERR_UNSUPPORTED);
    assert_words(weir_detail(), "take the seed of its load, 7");
    OK(infer(&several, &input, greedy, 3, &outputs));
    release(&several, &outputs);
    answer_drop(named);
    answer_drop(got);
    answer_drop(expected);
    bench_close(&several);
    bench_close(&it);
}

static void test_what_runs_together_cannot_have_is_refused_by_name(void **state)
{
    (void)state;
    const weir_setting logprobs[] = {{"logprobs", "1"}}, logits[] = {{"logits", "1"}}, bad[] = {{"regex", "(a"}};
    bench it = bench_of_three();
    weir_tensor input = text_input("abc");
    weir_outputs outputs;
    assert_int_equal(infer(&it, &input, logprobs, 1, &outputs), WEIR_ERR_UNSUPPORTED);
    assert_words(weir_detail(), "'logprobs' and 'logits'");
    assert_int_equal(infer(&it, &input, logits, 1, &outputs), WEIR_ERR_UNSUPPORTED);
    assert_words(weir_detail(), "sequences=1");
    assert_int_equal(infer(&it, &input, bad, 1, &outputs), WEIR_ERR_INVALID);
    assert_words(weir_detail(), "does not take the settings");
    runner again;
    runner_make(&again, &it, 3);
    start(&again);
    pthread_join(again.thread, NULL);
    is_as_alone(&again, made[3]);
    bench_close(&it);
}

/* An end token that one of them makes ends that one. */
static void test_an_end_token_ends_one_of_them(void **state)
{
    (void)state;
    char path[FOLDER_NAME], line[64];
    learn();
    const runner *whole = &alone[2];
    size_t place = 4;
    while (memchr(whole->got, whole->got[place], place * sizeof *whole->got))
        place++;
    size_t first = 0;
    while (whole->got[first] != whole->got[place])
        first++;
    folder_copy(the_model(SHARED), path);
    snprintf(line, sizeof line, "\"eos_token_id\": %d", whole->got[place]);
    folder_replace(path, "genai_config.json", "\"eos_token_id\": 1", line);
    bench it = bench_on(path, 1ull << 30, NULL), one = bench_open(path);
    OK(bench_load(&it, three, 2));
    runner runs[RUNS], expected[RUNS];
    for (int on = 0; on < 2; on++) {
        for (int i = 0; i < RUNS; i++) {
            runner_make(&runs[i], &it, i);
            runs[i].settings[2] = (weir_setting){"ignore_eos", on ? "1" : "0"};
            runs[i].setting_count = 3;
            expected[i] = runs[i];
            expected[i].it = &one;
            expected[i].input.data = expected[i].prompt;
            run(&expected[i]);
            start(&runs[i]);
        }
        for (int i = 0; i < RUNS; i++) {
            pthread_join(runs[i].thread, NULL);
            assert_int_equal(runs[i].status, WEIR_OK);
            assert_int_equal(runs[i].count, expected[i].count);
            assert_memory_equal(runs[i].got, expected[i].got, runs[i].count * sizeof *runs[i].got);
            assert_string_equal(runs[i].finish, expected[i].finish);
            assert_string_equal(runs[i].text, expected[i].text);
        }
        assert_int_equal(runs[2].count, on ? made[2] : first);
        assert_string_equal(runs[2].finish, on ? "length" : "stop");
    }
    bench_close(&one);
    bench_close(&it);
    folder_drop(path);
}

/* Where keys and values are appended, a batch of prompts of different lengths has gaps between them. */
static void test_a_model_whose_cache_is_appended_is_refused(void **state)
{
    (void)state;
    bench it = bench_on(the_model(CONCAT), 1ull << 30, NULL);
    assert_int_equal(bench_load(&it, three, 2), WEIR_ERR_UNSUPPORTED);
    assert_words(weir_detail(), "the setting 'sequences' is 3, and runs of this model are not decoded together");
    assert_int_equal(stats_of(&it).allocations, 0);
    bench_close(&it);
}

/* A model that has not run, and one between its runs. */
static void test_unloading(void **state)
{
    (void)state;
    learn();
    for (int i = 0; i < 6; i++) {
        bench it = bench_of_three();
        if (i % 2) {
            runner runs[RUNS];
            start_all(runs, &it, i);
            for (int k = 0; k < RUNS; k++)
                pthread_join(runs[k].thread, NULL);
        }
        bench_unload(&it);
        assert_int_equal(stats_of(&it).live, 0);
        bench_close(&it);
    }
}

/* ---- one at a time ----------------------------------------------------------------------------------------------- */

/* Of a model with one sequence: whoever waits for its turn has computed nothing, and can be cancelled there. */
static void test_runs_in_turn(void **state)
{
    (void)state;
    learn();
    bench it = bench_open(the_model(SHARED));
    meeting held = MEETING(2);
    runner first, waiting[2];
    runner_make(&first, &it, 2);
    first.streams = true;
    first.meeting = &held;
    first.meets_at = 1;
    start(&first);
    while (come(&held) == 0)
        usleep(1000);
    uint64_t live = stats_of(&it).live;
    for (int i = 0; i < 2; i++) {
        runner_make(&waiting[i], &it, i);
        waiting[i].streams = true;
        start(&waiting[i]);
        until_asleep(&waiting[i].number);
    }
    OK(it.engine->cancel(it.model, waiting[0].id));
    pthread_join(waiting[0].thread, NULL); /* while the first is held */
    assert_int_equal(waiting[0].status, WEIR_ERR_CANCELLED);
    assert_words(waiting[0].detail, "before it began");
    assert_int_equal(waiting[1].piece_count, 0);
    assert_int_equal(stats_of(&it).live, live);
    meet(&held);
    pthread_join(first.thread, NULL);
    pthread_join(waiting[1].thread, NULL);
    is_as_alone(&first, made[2]);
    is_as_alone(&waiting[1], made[1]);
    bench_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_six_runs_in_three_sequences_answer_as_each_alone),
        cmocka_unit_test(test_fewer_runs_than_sequences),
        cmocka_unit_test(test_a_slow_reader_holds_up_nobody),
        cmocka_unit_test(test_a_cancel_in_the_middle_leaves_the_others_alone),
        cmocka_unit_test(test_a_cancel_reaches_a_reader_that_is_behind),
        cmocka_unit_test(test_a_cancel_in_the_line),
        cmocka_unit_test(test_all_are_cancelled),
        cmocka_unit_test(test_a_reader_that_wants_no_more_ends_its_run_alone),
        cmocka_unit_test(test_a_slow_reader_that_wants_no_more_ends_its_run_where_it_is),
        cmocka_unit_test(test_runs_together_have_settings_of_their_own),
        cmocka_unit_test(test_draws_of_runs_together_have_the_seed_of_the_load),
        cmocka_unit_test(test_what_runs_together_cannot_have_is_refused_by_name),
        cmocka_unit_test(test_an_end_token_ends_one_of_them),
        cmocka_unit_test(test_a_model_whose_cache_is_appended_is_refused),
        cmocka_unit_test(test_unloading),
        cmocka_unit_test(test_runs_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
