/* memory.c: where the bytes of a model go, by class and phase: its weights at load, keys and values of the tokens that there
 * are, and what is back when nothing runs. */
#include "answer.h"
#include "folders.h"
#include "graph.h"

#include <pthread.h>

enum { PROMPT = 40, MADE = 12, SLACK = 64, UNIT = 256 };

static int32_t prompt[PROMPT];

static uint64_t charge(uint64_t bytes)
{
    return (bytes + SLACK + UNIT - 1) / UNIT * UNIT;
}

/* Of so many tokens: keys and values of each layer are a tensor each. */
static uint64_t cache(uint64_t tokens)
{
    return tokens > 0 ? 2 * LAYERS * charge(tokens * KV_HEADS * HEAD * sizeof(float)) : 0;
}

/* ---- at load ----------------------------------------------------------------------------------------------------- */

/* Each matrix that is multiplied by is a block of its own, and nothing else is. The table of embeddings stays where the graph
 * has it, on the heap: ONNX Runtime packs what it multiplies by, and takes the rest as it was read. */
static void test_a_model_that_is_loaded_has_its_weights_alone(void **state)
{
    (void)state;
    uint64_t matrices = VOCABULARY * WIDTH + LAYERS * (2 * WIDTH * WIDTH + 2 * WIDTH * 32 + 3 * WIDTH * 192);
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_on(the_model(which), 1ull << 30, NULL);
        weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
        uint64_t first = 0;
        it.place = (weir_engine_place){it.runtime, it.client};
        it.load.places = &it.place;
        it.load.place_count = 1;
        OK(it.engine->plan(&it.load, &plan));
        assert_int_equal(stats_of(&it).allocations, 0);
        assert_int_equal(plan.bytes[WEIR_CLASS_KV], 2 * TOKEN_OF_CACHE);
        /* For the whole context; without one buffer for both, past and present. */
        assert_int_equal(plan.whole[WEIR_CLASS_KV], (which == SHARED ? 1 : 2) * plan.context * TOKEN_OF_CACHE);
        assert_int_equal(plan.bytes[WEIR_CLASS_WEIGHTS], matrices * sizeof(float));
        for (int i = 0; i < 3; i++) {
            const weir_setting several[] = {{"sequences", "3"}, {"threads", i ? "1" : "2"}};
            OK(bench_load(&it, several, which == SHARED && i == 2 ? 2 : 0));
            weir_client_stats stats = stats_of(&it);
            assert_int_equal(stats.live, stats.live_class[WEIR_CLASS_WEIGHTS]);
            assert_true(stats.live >= matrices * sizeof(float));
            assert_true(stats.live < matrices * sizeof(float) + 30 * UNIT);
            first = first ? first : stats.live;
            assert_int_equal(stats.live, first);
            bench_unload(&it);
            assert_int_equal(stats_of(&it).live, 0);
        }
        print_message("%s: %llu bytes of weights, planned %llu\n", model_names[which], (unsigned long long)first,
                      (unsigned long long)plan.bytes[WEIR_CLASS_WEIGHTS]);
        bench_close(&it);
    }
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

typedef struct planned {
    int which;
    const char *one, *other; /* of genai_config.json */
    weir_setting settings[3];
    size_t count;
    uint64_t first, whole, context; /* tokens of keys and values */
    uint32_t sequences;
} planned;

#define SAME   "\"search\": {", "\"search\": {"
#define BLOCKS "\"search\": {", "\"engine\": {\"dynamic_batching\": {\"block_size\": 100}}, \"search\": {"

static const planned all_planned[] = {
    {SHARED, SAME, {{0}}, 0, 2, 256, 256, 1},
    {SHARED, SAME, {{"context", "100"}}, 1, 2, 100, 100, 1},
    {SHARED, SAME, {{"context", "100"}, {"sequences", "3"}}, 2, 2, 300, 100, 3},
    {CONCAT, SAME, {{"context", "100"}}, 1, 2, 200, 100, 1},
    {SHARED, BLOCKS, {{"context", "200"}}, 1, 200, 0, 200, 1},
    {SHARED, BLOCKS, {{"context", "201"}, {"sequences", "3"}}, 2, 900, 0, 201, 3},
    {CONCAT, BLOCKS, {{"context", "199"}, {"sequences", "2"}, {"batch", "5"}}, 3, 400, 0, 199, 2},
};

/* Blocks, tokens, heads, numbers of a head. */
static void write_graph_of_blocks(const char *folder)
{
    static const graph_shape shape = {.layers = LAYERS,
                                      .width = VOCABULARY,
                                      .cache = {-1, -1, KV_HEADS, HEAD},
                                      .rank = 4,
                                      .type = 1,
                                      .logits = "logits"};
    char path[FOLDER_NAME + 16];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    graph_write(path, &shape);
}

/* Every number of it. Blocks are there from the load on, so that they are known to the byte. */
static void test_what_is_planned(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_planned / sizeof *all_planned; i++) {
        const planned *it = &all_planned[i];
        char path[FOLDER_NAME];
        folder_copy(the_model(it->which), path);
        folder_replace(path, "genai_config.json", it->one, it->other);
        bool blocks = it->whole == 0;
        if (blocks)
            write_graph_of_blocks(path);
        weir_engine_load load = WEIR_INIT(weir_engine_load);
        weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
        load.path = path;
        load.settings = it->settings;
        load.setting_count = it->count;
        OK(the_engine()->plan(&load, &plan));
        uint64_t row = it->sequences * VOCABULARY * sizeof(float);
        assert_int_equal(plan.bytes[WEIR_CLASS_KV], it->first * TOKEN_OF_CACHE);
        assert_int_equal(plan.whole[WEIR_CLASS_KV], it->whole * TOKEN_OF_CACHE);
        assert_int_equal(plan.passing[WEIR_CLASS_KV], blocks ? 0 : it->first * TOKEN_OF_CACHE);
        assert_int_equal(plan.exact[WEIR_CLASS_KV], blocks);
        assert_int_equal(plan.bytes[WEIR_CLASS_ACTIVATIONS], row);
        assert_int_equal(plan.passing[WEIR_CLASS_ACTIVATIONS], row);
        assert_int_equal(plan.passing[WEIR_CLASS_WEIGHTS], 0);
        assert_int_equal(plan.context, it->context);
        assert_int_equal(plan.sequences, it->sequences);
        for (int k = 0; k < WEIR_CLASS_MOST; k++) {
            bool known = k == WEIR_CLASS_WEIGHTS || k == WEIR_CLASS_KV || k == WEIR_CLASS_ACTIVATIONS;
            if (!known)
                assert_int_equal(plan.bytes[k], 0);
            if (k != WEIR_CLASS_KV)
                assert_false(plan.exact[k]);
            assert_int_equal(plan.source[k],
                             known || k == WEIR_CLASS_SCRATCH ? WEIR_PREDICTED_METADATA : (weir_prediction_source)0);
            assert_int_equal(plan.host[k], 0);
        }
        folder_drop(path);
    }
}

/* Settings that take other memory have another number, and those that do not have the same. */
static void test_settings_have_a_number(void **state)
{
    (void)state;
    static const weir_setting settings[][2] = {{{"threads", "0"}, {"context", "0"}},
                                               {{"threads", "5"}, {"seed", "3"}},
                                               {{"threads", "0"}, {"context", "9"}},
                                               {{"threads", "0"}, {"batch", "9"}},
                                               {{"threads", "0"}, {"sequences", "9"}}};
    uint64_t numbers[5];
    for (int i = 0; i < 5; i++) {
        weir_engine_load load = WEIR_INIT(weir_engine_load);
        weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
        load.path = the_model(SHARED);
        load.settings = settings[i];
        load.setting_count = 2;
        if (i == 3)
            load.path = the_model(CONCAT);
        OK(the_engine()->plan(&load, &plan));
        numbers[i] = plan.settings;
        assert_true(numbers[i] != 0);
        for (int k = 0; k < i; k++)
            assert_int_equal(numbers[i] == numbers[k], i == 1 && k == 0);
    }
}

/* ---- of a run ---------------------------------------------------------------------------------------------------- */

typedef struct watcher {
    const bench *it;
    weir_client_stats seen[MADE];
    size_t count;
    size_t stops_at; /* pieces; 0: never */
} watcher;

static bool on_piece(const weir_piece *piece, void *user)
{
    watcher *to = user;
    assert_true(piece->index == to->count && to->count < MADE);
    to->seen[to->count++] = stats_of(to->it);
    return to->stops_at == 0 || to->count < to->stops_at;
}

static void watch(const bench *it, const weir_tensor *input, const weir_setting *settings, size_t count, watcher *to)
{
    weir_inference inference = inference_of(input, settings, count);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    to->it = it;
    to->count = 0;
    OK(it->engine->infer_stream(it->model, &inference, on_piece, to, &outputs));
    assert_int_equal(stats_of(it).live_class[WEIR_CLASS_ACTIVATIONS], 256); /* the results */
    release(it, &outputs);
}

/* A buffer for prompt and answer together, the whole time; or the last step's, and what was there before it. */
static uint64_t cache_at(int which, size_t index)
{
    if (which == SHARED)
        return cache(PROMPT + MADE);
    return cache(PROMPT + index) + (index ? cache(PROMPT + index - 1) : 0);
}

static void test_keys_and_values_take_what_their_tokens_take(void **state)
{
    (void)state;
    const weir_setting settings[] = {GREEDY("12")};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        weir_tensor input = token_input(prompt, PROMPT);
        uint64_t weights = stats_of(&it).live;
        watcher runs[3] = {{.stops_at = 0}};
        for (int i = 0; i < 3; i++) {
            watch(&it, &input, settings, 2, &runs[i]);
            assert_int_equal(runs[i].count, MADE);
            assert_int_equal(stats_of(&it).live, weights);
            for (size_t k = 0; k < MADE; k++) {
                assert_int_equal(runs[i].seen[k].live_class[WEIR_CLASS_WEIGHTS], weights);
                assert_int_equal(runs[i].seen[k].live_class[WEIR_CLASS_KV], cache_at(which, k));
                assert_int_equal(runs[i].seen[k].live_class[WEIR_CLASS_OTHER], 0);
            }
        }
        /* Whatever run it is. */
        for (size_t k = 0; k < MADE; k++)
            assert_memory_equal(runs[2].seen[k].live_class, runs[1].seen[k].live_class,
                                sizeof runs[1].seen[k].live_class);
        const weir_client_stats *first = &runs[2].seen[0], *later = &runs[2].seen[MADE - 1];
        print_message("%s: activations %llu after the prompt, %llu later; scratch %llu; kv %llu, %llu; peak %llu\n",
                      model_names[which], (unsigned long long)first->live_class[WEIR_CLASS_ACTIVATIONS],
                      (unsigned long long)later->live_class[WEIR_CLASS_ACTIVATIONS],
                      (unsigned long long)later->live_class[WEIR_CLASS_SCRATCH],
                      (unsigned long long)first->live_class[WEIR_CLASS_KV],
                      (unsigned long long)later->live_class[WEIR_CLASS_KV], (unsigned long long)stats_of(&it).peak);
        bench_close(&it);
    }
}

/* The logits of all of a prompt are an activation: larger than what a step of one token needs. Scratch is the search's. */
static void test_activations_and_scratch_are_told_apart(void **state)
{
    (void)state;
    const weir_setting settings[] = {GREEDY("12")};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        weir_tensor input = token_input(prompt, PROMPT);
        watcher run = {.stops_at = 0};
        watch(&it, &input, settings, 2, &run);
        uint64_t first = run.seen[0].live_class[WEIR_CLASS_ACTIVATIONS];
        uint64_t later = run.seen[MADE - 1].live_class[WEIR_CLASS_ACTIVATIONS];
        assert_true(first >= PROMPT * VOCABULARY * sizeof(float));
        assert_true(later >= VOCABULARY * sizeof(float) && later < first / 4);
        uint64_t scratch = run.seen[0].live_class[WEIR_CLASS_SCRATCH];
        assert_true(scratch >= (PROMPT + MADE) * sizeof(int32_t) && scratch < 4096);
        assert_int_equal(run.seen[MADE - 1].live_class[WEIR_CLASS_SCRATCH], scratch);
        bench_close(&it);
    }
}

/* However a run ends, its bytes are back. */
static void test_a_run_leaves_nothing(void **state)
{
    (void)state;
    const weir_setting settings[] = {GREEDY("12")}, wrong[] = {GREEDY("12"), {"regex", "(a"}};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        weir_tensor input = token_input(prompt, PROMPT);
        uint64_t weights = stats_of(&it).live;
        weir_outputs outputs;
        watcher stopped = {.stops_at = 3}, whole = {.stops_at = 0};
        watch(&it, &input, settings, 2, &whole);
        uint64_t before = stats_of(&it).allocations;
        watch(&it, &input, settings, 2, &whole);
        uint64_t of_all = stats_of(&it).allocations - before;
        watch(&it, &input, settings, 2, &stopped);
        assert_int_equal(stopped.count, 3);
        assert_true(stats_of(&it).allocations - before - of_all < of_all / 2); /* no more was computed */
        assert_int_equal(stats_of(&it).live, weights);
        assert_int_equal(infer(&it, &input, wrong, 3, &outputs), WEIR_ERR_INVALID);
        assert_int_equal(stats_of(&it).live, weights);
        bench_close(&it);
    }
}

static bool cancel_it(const weir_piece *piece, void *user)
{
    const bench *it = user;
    if (piece->index == 4)
        OK(it->engine->cancel(it->model, 7));
    return true;
}

static void test_a_cancelled_run_leaves_nothing(void **state)
{
    (void)state;
    const weir_setting settings[] = {GREEDY("12")};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        weir_tensor input = token_input(prompt, PROMPT);
        weir_inference inference = inference_of(&input, settings, 2);
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        uint64_t weights = stats_of(&it).live;
        inference.id = 7;
        assert_int_equal(it.engine->infer_stream(it.model, &inference, cancel_it, &it, &outputs), WEIR_ERR_CANCELLED);
        assert_int_equal(stats_of(&it).live, weights);
        watcher whole = {.stops_at = 0};
        watch(&it, &input, settings, 2, &whole);
        assert_int_equal(whole.count, MADE);
        bench_close(&it);
    }
}

/* A load that fails at the last moment: the graph and the tokenizer have been there. */
static void test_a_failed_load_leaves_nothing(void **state)
{
    (void)state;
    char path[FOLDER_NAME];
    folder_copy(the_model(SHARED), path);
    folder_replace(path, "tokenizer_config.json", "\"GPT2Tokenizer\"", "\"NobodysTokenizer\"");
    bench it = bench_on(path, 1ull << 30, NULL);
    assert_int_equal(bench_load(&it, NULL, 0), WEIR_ERR_ENGINE);
    assert_words(weir_detail(), "NobodysTokenizer");
    assert_true(stats_of(&it).allocations > 0);
    assert_int_equal(stats_of(&it).live, 0);
    bench_close(&it);
    folder_drop(path);
}

/* ---- between runs ------------------------------------------------------------------------------------------------ */

/* All that the budget has beside the weights is another's while the model is idle, and the model's again when that is freed:
 * a run that goes on from prompt and answer makes the tokens of one that was not interrupted. */
static void test_what_an_idle_model_does_not_need_is_anothers(void **state)
{
    (void)state;
    const weir_setting whole[] = {GREEDY("24")}, half[] = {GREEDY("12")};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_on(the_model(which), 1u << 20, "budget(direct)");
        weir_client_options options = WEIR_INIT(weir_client_options);
        weir_client *other;
        void *block;
        weir_outputs outputs;
        int32_t longer[PROMPT + MADE];
        options.name = "other";
        OK(weir_client_create(it.runtime, &options, &other));
        OK(bench_load(&it, one_thread, 1));
        weir_tensor input = token_input(prompt, PROMPT);
        answer *all = answer_of(&it, &input, whole, 2), *begun = answer_of(&it, &input, half, 2);
        assert_int_equal(stats_of(&it).live_class[WEIR_CLASS_KV], 0);
        uint64_t left = (1u << 20) - stats_of(&it).live;
        OK(weir_alloc(other, left, WEIR_STREAM_HOST, WEIR_CLASS_KV, &block));
        assert_int_equal(stats_of_client(other).live, left);
        assert_int_equal(infer(&it, &input, half, 2, &outputs), WEIR_ERR_OUT_OF_MEMORY);
        assert_words(weir_detail(), "model");
        assert_words(weir_detail(), "other");
        OK(weir_free(other, block, WEIR_STREAM_HOST));
        memcpy(longer, prompt, sizeof prompt);
        memcpy(longer + PROMPT, begun->tokens, MADE * sizeof *longer);
        input = token_input(longer, PROMPT + MADE);
        answer *rest = answer_of(&it, &input, half, 2);
        assert_memory_equal(begun->tokens, all->tokens, MADE * sizeof *longer);
        assert_memory_equal(rest->tokens, all->tokens + MADE, MADE * sizeof *longer);
        answer_drop(rest);
        answer_drop(begun);
        answer_drop(all);
        OK(weir_client_destroy(other));
        bench_close(&it);
    }
}

/* ---- several models ---------------------------------------------------------------------------------------------- */

enum { SEVERAL = 4, THREADS = 8, ROUNDS = 6, ACCOUNTS = 3 };
/* Two of the models are one client's. */
static const int account_of[SEVERAL] = {0, 1, 2, 2}, kind_of[SEVERAL] = {SHARED, CONCAT, SHARED, CONCAT};

typedef struct user {
    const weir_engine *engine;
    weir_engine_model *model;
    int32_t prompt[PROMPT], expected[MADE];
    int wrong;
} user;

static weir_status ask(user *it, int32_t *made)
{
    const weir_setting settings[] = {GREEDY("12")};
    weir_tensor input = token_input(it->prompt, PROMPT);
    weir_inference inference = inference_of(&input, settings, 2);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_status status = it->engine->infer(it->model, &inference, &outputs);
    if (status != WEIR_OK)
        return status;
    const weir_tensor *tokens = find_output(&outputs, "tokens");
    memset(made, 0, MADE * sizeof *made);
    memcpy(made, tokens->data, tokens->bytes);
    it->engine->release_outputs(it->model, &outputs);
    return WEIR_OK;
}

static void *use(void *given)
{
    user *it = given;
    int32_t made[MADE];
    for (int i = 0; i < ROUNDS; i++)
        it->wrong += ask(it, made) != WEIR_OK || memcmp(made, it->expected, sizeof made) != 0;
    return NULL;
}

/* What a model of the kind takes in a runtime of its own, with what each prompt is answered with. */
static uint64_t learn(int kind, user *users, int first)
{
    bench it = bench_open(the_model(kind));
    for (int i = first; i < THREADS; i += SEVERAL) {
        users[i].engine = it.engine;
        users[i].model = it.model;
        fill_prompt(users[i].prompt, PROMPT, i);
        OK(ask(&users[i], users[i].expected));
    }
    uint64_t weights = stats_of(&it).live;
    bench_close(&it);
    return weights;
}

static void check_accounts(weir_client *const *clients, const uint64_t *alone)
{
    for (int i = 0; i < ACCOUNTS; i++) {
        uint64_t expected = 0;
        for (int k = 0; k < SEVERAL; k++)
            expected += account_of[k] == i ? alone[k] : 0;
        weir_client_stats stats = stats_of_client(clients[i]);
        assert_int_equal(stats.live, expected);
        assert_int_equal(stats.live_class[WEIR_CLASS_WEIGHTS], expected);
    }
}

static void test_four_models_from_eight_threads(void **state)
{
    (void)state;
    static user users[THREADS];
    weir_engine_model *models[SEVERAL];
    weir_client *clients[ACCOUNTS];
    pthread_t threads[THREADS];
    uint64_t alone[SEVERAL];
    memset(users, 0, sizeof users);
    for (int i = 0; i < SEVERAL; i++)
        alone[i] = learn(kind_of[i], users, i);
    bench it = bench_on(NULL, 1ull << 30, NULL);
    for (int i = 0; i < ACCOUNTS; i++) {
        weir_client_options options = WEIR_INIT(weir_client_options);
        options.name = i == 0 ? "first" : i == 1 ? "second" : "third";
        OK(weir_client_create(it.runtime, &options, &clients[i]));
    }
    for (int i = 0; i < SEVERAL; i++) {
        weir_engine_place place = {it.runtime, clients[account_of[i]]};
        weir_engine_load load = it.load;
        load.path = the_model(kind_of[i]);
        load.places = &place;
        load.place_count = 1;
        OK(it.engine->load(&load, &models[i]));
    }
    check_accounts(clients, alone);
    for (int i = 0; i < THREADS; i++) {
        users[i].model = models[i % SEVERAL];
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].wrong, 0);
    }
    check_accounts(clients, alone);
    /* One of the two that are one client's goes, and the other one's bytes stay. */
    it.engine->unload(models[2]);
    alone[2] = 0;
    check_accounts(clients, alone);
    it.engine->unload(models[0]);
    alone[0] = 0;
    check_accounts(clients, alone);
    it.engine->unload(models[3]);
    it.engine->unload(models[1]);
    for (int i = 0; i < ACCOUNTS; i++) {
        assert_int_equal(stats_of_client(clients[i]).live, 0);
        OK(weir_client_destroy(clients[i]));
    }
    bench_close(&it);
}

/* Models are loaded and unloaded while others run. */
static void *come_and_go(void *given)
{
    user *it = given;
    for (int i = 0; i < 3; i++) {
        bench own = bench_open(the_model(i % MODELS));
        it->wrong += stats_of(&own).live == 0;
        bench_close(&own);
    }
    return NULL;
}

static void test_models_come_and_go_while_others_run(void **state)
{
    (void)state;
    user users[THREADS] = {{.wrong = 0}};
    pthread_t threads[4];
    learn(SHARED, users, 0);
    bench it = bench_open(the_model(SHARED));
    uint64_t weights = stats_of(&it).live;
    for (int i = 0; i < 4; i++) {
        if (i == 1)
            users[1] = users[0];
        users[i].model = it.model;
        assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? use : come_and_go, &users[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].wrong, 0);
    }
    assert_int_equal(stats_of(&it).live, weights);
    bench_close(&it);
}

int main(void)
{
    fill_prompt(prompt, PROMPT, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_that_is_loaded_has_its_weights_alone),
        cmocka_unit_test(test_what_is_planned),
        cmocka_unit_test(test_settings_have_a_number),
        cmocka_unit_test(test_keys_and_values_take_what_their_tokens_take),
        cmocka_unit_test(test_activations_and_scratch_are_told_apart),
        cmocka_unit_test(test_a_run_leaves_nothing),
        cmocka_unit_test(test_a_cancelled_run_leaves_nothing),
        cmocka_unit_test(test_a_failed_load_leaves_nothing),
        cmocka_unit_test(test_what_an_idle_model_does_not_need_is_anothers),
        cmocka_unit_test(test_four_models_from_eight_threads),
        cmocka_unit_test(test_models_come_and_go_while_others_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
