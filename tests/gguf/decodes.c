/* decodes.c: one decode of several runs, held where llama.cpp is called: it is stopped when nobody is left who wants it, and
 * whoever goes to its reader hands the computing on. */
#include "common.h"
#include <weir/engine.h>
#include "plain.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "gguf/engine/wg.h"

enum { RUNS = 3, LENGTH = 6, MADE = 16, BATCH = 32, CONTEXT = 256, END = 2 /* the vocabulary's end token */ };

static char path[64], wide_path[72];
static const weir_setting three[] = {{"threads", "1"}, {"batch", "32"}, {"context", "256"}, {"sequences", "3"}};
static int32_t prompts[RUNS][LENGTH], expected[RUNS][MADE];

static void fill_prompts(void)
{
    for (int which = 0; which < RUNS; which++)
        for (int i = 0; i < LENGTH; i++)
            prompts[which][i] = i == 0 ? 1 : 260 + (i * (3 + 2 * which) + which) % 26;
}

static void learn_what_llama_says(const weir_engine *engine)
{
    plain it = plain_of(engine);
    plain_open(&it, path, false, CONTEXT, BATCH, 1);
    for (int i = 0; i < RUNS; i++)
        plain_greedy(&it, prompts[i], LENGTH, BATCH, END, expected[i], MADE);
    plain_close(&it);
}

/* ---- llama.cpp's call, which is held ------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static __typeof__(&llama_decode) real;
/* With the lock. */
static int wanted;          /* the next decode of at least so many sequences is held; 0: none */
static int held, let_go_of; /* decodes, since the test began */
static int code;            /* what llama.cpp said to the one that was held last */
static int instead;         /* what is said instead to the next one that is held; 0: nothing */

static int sequences_of(const struct llama_batch *tokens)
{
    bool there[RUNS] = {false};
    int count = 0;
    for (int i = 0; i < tokens->n_tokens; i++) {
        count += !there[tokens->seq_id[i][0]];
        there[tokens->seq_id[i][0]] = true;
    }
    return count;
}

static int32_t watched(struct llama_context *context, struct llama_batch tokens)
{
    pthread_mutex_lock(&lock);
    bool mine = wanted > 0 && sequences_of(&tokens) >= wanted;
    if (mine) {
        int number = ++held;
        wanted = 0;
        pthread_cond_broadcast(&change);
        while (let_go_of < number)
            pthread_cond_wait(&change, &lock);
    }
    int said = mine ? instead : 0;
    instead = mine ? 0 : instead;
    pthread_mutex_unlock(&lock);
    int32_t answer = said ? said : real(context, tokens);
    pthread_mutex_lock(&lock);
    code = mine ? answer : code;
    pthread_mutex_unlock(&lock);
    return answer;
}

/* What is held goes on; the next decode of so many sequences is held (0: none). */
static void let_go(int next)
{
    pthread_mutex_lock(&lock);
    wanted = next;
    let_go_of = held;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static void until_held(void)
{
    pthread_mutex_lock(&lock);
    while (held == let_go_of)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

static fixture open_watched_of(const char *which, const weir_setting *settings, size_t count)
{
    fixture its = fixture_open(which, settings, count);
    wg_library *library = (wg_library *)(uintptr_t)its.model->library;
    real = library->llama_decode == watched ? real : library->llama_decode;
    library->llama_decode = watched;
    return its;
}

static fixture open_watched(void)
{
    fixture its = open_watched_of(path, three, 4);
    learn_what_llama_says(its.it.engine);
    return its;
}

static void close_watched(fixture *its)
{
    ((wg_library *)(uintptr_t)its->model->library)->llama_decode = real;
    fixture_close(its);
}

/* ---- runs --------------------------------------------------------------------------------------------------------- */

typedef struct asker {
    const fixture *its;
    uint64_t id;
    weir_tensor input;
    bool reads; /* it has a reader, who is held with the first piece, */
    bool waits; /* and does not go on meanwhile */
    pthread_t thread;
    weir_status status;
    char detail[256];
    int32_t made[MADE];
    size_t made_count;
} asker;

static int readers; /* that are held; with the lock, and so is the next */
static bool readers_leave;

static bool on_piece(const weir_piece *piece, void *user)
{
    (void)user;
    pthread_mutex_lock(&lock);
    readers += piece->index == 0;
    pthread_cond_broadcast(&change);
    while (!readers_leave)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return true;
}

static void *ask(void *user)
{
    static const weir_setting greedy[] = {{"tokens", "16"}, {"ignore_eos", "1"}, {"temperature", "0"}, {"logits", "1"}};
    asker *it = user;
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(&it->input, greedy, it->waits ? 4 : 3);
    inference.id = it->id;
    const weir_engine *engine = it->its->it.engine;
    it->status = it->reads ? engine->infer_stream(it->its->model, &inference, on_piece, it, &outputs)
                           : engine->infer(it->its->model, &inference, &outputs);
    if (it->status != WEIR_OK) {
        snprintf(it->detail, sizeof it->detail, "%s", weir_detail());
        return NULL;
    }
    const weir_tensor *made = output_named(&outputs, "tokens");
    it->made_count = made->bytes / sizeof *it->made;
    memcpy(it->made, made->data, made->bytes);
    release(it->its, &outputs);
    return NULL;
}

static void start_reading(asker *it, const fixture *its, int which, bool reads)
{
    *it = (asker){
        .its = its, .reads = reads, .id = 10 + (uint64_t)which, .input = token_input(prompts[which], 0, LENGTH)};
    assert_int_equal(pthread_create(&it->thread, NULL, ask, it), 0);
}

static void begin_with(asker *it, const fixture *its, int which, const int32_t *tokens, int64_t count)
{
    *it = (asker){.its = its, .id = 10 + (uint64_t)which, .input = token_input(tokens, 0, count)};
    assert_int_equal(pthread_create(&it->thread, NULL, ask, it), 0);
}

static void start(asker *it, const fixture *its, int which)
{
    start_reading(it, its, which, false);
}

/* So many threads wait in the model: each has come to the line, and somebody else computes. */
static void until_waiting(weir_engine_model *model, int count)
{
    for (int waiting = 0; waiting < count;) {
        usleep(500);
        waiting = 0;
        pthread_mutex_lock(&model->runs.lock);
        for (const wt_run *run = model->runs.first; run; run = run->next)
            waiting += run->sleeps;
        pthread_mutex_unlock(&model->runs.lock);
    }
}

/* The first one's decode is held until the others are in the line; then one with tokens of all three is. */
static void hold_three_in_a_decode(const fixture *its, asker *all)
{
    let_go(1);
    for (int i = 0; i < RUNS; i++) {
        start(&all[i], its, i);
        if (i == 0)
            until_held();
        else
            until_waiting(its->model, i);
    }
    let_go(RUNS);
    until_held();
}

static void join_all(asker *all)
{
    for (int i = 0; i < RUNS; i++)
        pthread_join(all[i].thread, NULL);
}

static void has_what_llama_says(const asker *it, int which)
{
    if (it->status != WEIR_OK)
        print_error("run %d: %s\n", which, it->detail);
    assert_int_equal(it->status, WEIR_OK);
    assert_int_equal(it->made_count, MADE);
    assert_memory_equal(it->made, expected[which], sizeof expected[which]);
}

/* ---- tests -------------------------------------------------------------------------------------------------------- */

/* Whichever of three is cancelled while llama.cpp computes for all: it computes on, and the others have their tokens. */
static void test_a_decode_of_several_is_not_stopped_for_one(void **state)
{
    (void)state;
    fixture its = open_watched();
    for (int victim = 0; victim < RUNS; victim++) {
        asker all[RUNS];
        hold_three_in_a_decode(&its, all);
        weir_status found = its.it.engine->cancel(its.model, all[victim].id);
        let_go(0);
        join_all(all);
        OK(found);
        assert_int_equal(code, 0);
        for (int i = 0; i < RUNS; i++)
            if (i == victim)
                assert_int_equal(all[i].status, WEIR_ERR_CANCELLED);
            else
                has_what_llama_says(&all[i], i);
    }
    OK(its.it.engine->health(its.model));
    close_watched(&its);
}

/* Nor for two of them, which come one after the other. */
static void test_a_decode_is_not_stopped_while_one_is_left(void **state)
{
    (void)state;
    fixture its = open_watched();
    for (int left = 0; left < RUNS; left++) {
        asker all[RUNS];
        hold_three_in_a_decode(&its, all);
        for (int i = 0; i < RUNS; i++)
            if (i != left)
                OK(its.it.engine->cancel(its.model, all[i].id));
        let_go(0);
        join_all(all);
        assert_int_equal(code, 0);
        for (int i = 0; i < RUNS; i++)
            if (i == left)
                has_what_llama_says(&all[i], i);
            else
                assert_int_equal(all[i].status, WEIR_ERR_CANCELLED);
    }
    close_watched(&its);
}

/* With the last of them it is: llama.cpp says that it was told to end. The next run finds nothing of it. */
static void test_a_decode_that_nobody_wants_is_stopped(void **state)
{
    (void)state;
    fixture its = open_watched();
    asker all[RUNS], again;
    hold_three_in_a_decode(&its, all);
    OK(its.it.engine->cancel(its.model, 0));
    let_go(0);
    join_all(all);
    assert_int_equal(code, 2);
    for (int i = 0; i < RUNS; i++) {
        assert_int_equal(all[i].status, WEIR_ERR_CANCELLED);
        assert_string_equal(all[i].detail, "the run was cancelled");
    }
    start(&again, &its, 1);
    pthread_join(again.thread, NULL);
    has_what_llama_says(&again, 1);
    close_watched(&its);
}

/* However small a batch is to be, a token of each fits into it. */
static void test_a_step_has_room_for_every_sequence(void **state)
{
    (void)state;
    static const weir_setting narrow[] = {{"threads", "1"}, {"context", "256"}, {"batch", "1"}, {"sequences", "3"}};
    fixture its = open_watched_of(path, narrow, 4);
    asker all[RUNS];
    assert_int_equal(its.model->step, RUNS);
    hold_three_in_a_decode(&its, all);
    let_go(0);
    join_all(all);
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(all[i].status, WEIR_OK);
    close_watched(&its);
}

static bool (*remove_cells)(llama_memory_t memory, llama_seq_id sequence, llama_pos from, llama_pos to);
static void (*end_it)(const char *file, int line, const char *format, ...); /* ggml's assertion, which throws */
static int throws_for; /* a removal of this sequence throws; -1: none does */

static bool throwing(llama_memory_t memory, llama_seq_id sequence, llama_pos from, llama_pos to)
{
    if (sequence == throws_for)
        end_it("decodes.c", 1, "thrown on purpose");
    return remove_cells(memory, sequence, from, to);
}

/* A decode that fails fails all that are in it, each in words; and no other words, though one of them makes things worse when it
 * leaves. */
static void test_a_decode_that_fails_is_told_to_each_of_its_runs(void **state)
{
    (void)state;
    for (int worse = -1; worse < RUNS; worse++) {
        fixture its = open_watched();
        wg_library *library = (wg_library *)(uintptr_t)its.model->library;
        asker all[RUNS], again;
        remove_cells = library->llama_memory_seq_rm;
        *(void **)&end_it = dlsym(library->handle, "ggml_abort");
        throws_for = -1;
        library->llama_memory_seq_rm = throwing;
        hold_three_in_a_decode(&its, all);
        throws_for = worse;
        instead = -3;
        let_go(0);
        join_all(all);
        throws_for = -1;
        for (int i = 0; i < RUNS; i++) {
            assert_int_equal(all[i].status, WEIR_ERR_ENGINE);
            if (!strstr(all[i].detail, i == worse ? "thrown on purpose" : "failed with code -3"))
                print_error("run %d: %s\n", i, all[i].detail);
            assert_non_null(strstr(all[i].detail, i == worse ? "thrown on purpose" : "failed with code -3"));
        }
        start(&again, &its, 1);
        pthread_join(again.thread, NULL);
        if (worse < 0)
            has_what_llama_says(&again, 1);
        else
            assert_int_equal(again.status, WEIR_ERR_ENGINE); /* nobody knows what is in the context */
        library->llama_memory_seq_rm = remove_cells;
        close_watched(&its);
    }
}

/* All runs under way are told of a model that a run has broken, even runs that were with their readers then. */
static void test_a_model_that_broke_says_so_to_each_run_under_way(void **state)
{
    (void)state;
    fixture its = open_watched();
    wg_library *library = (wg_library *)(uintptr_t)its.model->library;
    asker all[RUNS];
    remove_cells = library->llama_memory_seq_rm;
    *(void **)&end_it = dlsym(library->handle, "ggml_abort");
    throws_for = 1;
    library->llama_memory_seq_rm = throwing;
    readers = 0;
    readers_leave = false;
    let_go(1);
    for (int i = 0; i < RUNS; i++) {
        all[i] = (asker){.its = &its,
                         .reads = i != 1,
                         .waits = true,
                         .id = 10 + (uint64_t)i,
                         .input = token_input(prompts[i], 0, LENGTH)};
        assert_int_equal(pthread_create(&all[i].thread, NULL, ask, &all[i]), 0);
        if (i == 0)
            until_held();
        else
            until_waiting(its.model, i);
    }
    let_go(0);
    pthread_join(all[1].thread, NULL);
    pthread_mutex_lock(&lock);
    readers_leave = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < RUNS; i++) {
        if (i != 1)
            pthread_join(all[i].thread, NULL);
        assert_int_equal(all[i].status, WEIR_ERR_ENGINE);
        assert_non_null(strstr(all[i].detail, i == 1 ? "thrown on purpose" : "cannot go on; load it again"));
    }
    throws_for = -1;
    assert_int_equal(its.it.engine->health(its.model), WEIR_ERR_ENGINE);
    library->llama_memory_seq_rm = remove_cells;
    close_watched(&its);
}

/* Both need their next page in the same step, and there is none to be had: the first one fails, and the second goes on with what
 * that one has left. */
static void test_a_run_that_cannot_grow_leaves_its_pages_to_the_others(void **state)
{
    (void)state;
    enum { PAGE = 65536, TENSORS = 4, CELLS = 256, SHORT = CELLS - 6, PAIR = 2 };
    static const weir_setting two[] = {
        {"threads", "1"}, {"batch", "512"}, {"context", "512"}, {"sequences", "2"}, {"cache_memory", "elastic"}};
    static int32_t texts[PAIR][SHORT + 1];
    asker alone[PAIR], all[PAIR];
    fixture its = open_watched_of(wide_path, two, 5);
    for (int i = 0; i < PAIR; i++) {
        for (int k = 0; k < SHORT + 1; k++)
            texts[i][k] = k == 0 ? 1 : 260 + (k * (3 + 2 * i) + i) % 26;
        begin_with(&alone[i], &its, i, texts[i], SHORT + i);
        pthread_join(alone[i].thread, NULL);
        assert_int_equal(alone[i].status, WEIR_OK);
    }
    let_go(1);
    begin_with(&all[0], &its, 0, texts[0], SHORT);
    until_held();
    begin_with(&all[1], &its, 1, texts[1], SHORT + 1); /* its prompt is read when the first one has a token more */
    until_waiting(its.model, 1);
    let_go(PAIR);
    until_held();
    /* One of the first one's tensors has its next page already. */
    assert_int_equal(stats_of(&its.it).live_class[WEIR_CLASS_KV], (PAIR * TENSORS + 1) * PAGE);
    OK(weir_client_set_limits(its.it.client, 0, stats_of(&its.it).live + PAGE / 2));
    let_go(0);
    for (int i = 0; i < PAIR; i++)
        pthread_join(all[i].thread, NULL);
    assert_int_equal(all[0].status, WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(all[0].detail, "(kv)"));
    if (all[1].status != WEIR_OK)
        print_error("%s\n", all[1].detail);
    assert_int_equal(all[1].status, WEIR_OK);
    assert_int_equal(all[1].made_count, MADE);
    assert_memory_equal(all[1].made, alone[1].made, sizeof alone[1].made);
    close_watched(&its);
}

/* The first one and the last are with their readers, after a step of each one's own thread: the last to come hands the computing
 * on to the one that sleeps, though it is itself the newest. */
static void test_who_goes_to_its_reader_hands_the_computing_on(void **state)
{
    (void)state;
    fixture its = open_watched();
    asker all[RUNS];
    readers = 0;
    readers_leave = false;
    let_go(1);
    for (int i = 0; i < RUNS; i++) {
        start_reading(&all[i], &its, i, i != 1);
        if (i == 0)
            until_held();
        else
            until_waiting(its.model, i);
    }
    let_go(0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    bool ended = pthread_timedjoin_np(all[1].thread, NULL, &until) == 0;
    pthread_mutex_lock(&lock);
    while (ended && readers < 2 && pthread_cond_timedwait(&change, &lock, &until) == 0)
        ; /* the last one's own thread has its step by now, and need not have run yet */
    int held_readers = readers;
    readers_leave = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < RUNS; i++)
        if (i != 1 || !ended)
            pthread_join(all[i].thread, NULL);
    assert_true(ended);
    assert_int_equal(held_readers, 2);
    for (int i = 0; i < RUNS; i++)
        has_what_llama_says(&all[i], i);
    close_watched(&its);
}

int main(void)
{
    model_shape shape = {.layers = 2, .width = 64, .heads = 4, .heads_kv = 2, .wide = 128, .context = CONTEXT};
    snprintf(path, sizeof path, "/tmp/weir-decodes-%d.gguf", (int)getpid());
    write_llama(path, &shape);
    /* Keys of a layer take 256 bytes a cell, and so do values, so that a page of 64 KiB holds 256 cells. */
    snprintf(wide_path, sizeof wide_path, "%s-wide", path);
    shape.width = 256;
    shape.context = 512;
    write_llama(wide_path, &shape);
    fill_prompts();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_has_room_for_every_sequence),
        cmocka_unit_test(test_a_decode_of_several_is_not_stopped_for_one),
        cmocka_unit_test(test_a_decode_is_not_stopped_while_one_is_left),
        cmocka_unit_test(test_a_decode_that_nobody_wants_is_stopped),
        cmocka_unit_test(test_a_decode_that_fails_is_told_to_each_of_its_runs),
        cmocka_unit_test(test_a_model_that_broke_says_so_to_each_run_under_way),
        cmocka_unit_test(test_a_run_that_cannot_grow_leaves_its_pages_to_the_others),
        cmocka_unit_test(test_who_goes_to_its_reader_hands_the_computing_on),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(wide_path);
    return failed;
}
