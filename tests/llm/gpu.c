/* gpu.c: the engine llm on CUDA: every byte in the account, what a run has given back when it ends, and refusals that leave
 * nothing behind. Runs on the device that WEIR_TEST_DEVICE names, with models that scripts/llm_model.py has written for it:
 *
 *   test-llm-gpu SHARED CONCAT [PAGED]      folders of the shape small, with these caches
 *
 * That tokens are GenAI's own, bench-llm says (scripts/gpu-llm). */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TOKEN_BYTES = 4 * 2 * 4 * 64 * 2 }; /* keys and values of 4 layers, 4 heads of 64, in f16 */
enum { PROMPT = 100, MADE = 24, BUDGETS = 50 };

enum { PAGED = MODELS, FOLDERS };
static const char *folders[FOLDERS];

typedef struct gpu {
    const weir_engine *engine;
    weir_runtime *host, *runtime;
    weir_client *client;
    weir_engine_model *model;
    int32_t prompt[PROMPT];
} gpu;

static const char *device(void)
{
    const char *named = getenv("WEIR_TEST_DEVICE");
    if (!named) {
        print_message("WEIR_TEST_DEVICE names no device\n");
        if (getenv("WEIR_REQUIRE_CUDA"))
            fail_msg("WEIR_REQUIRE_CUDA is set");
        skip();
    }
    return named;
}

/* Kernels compute nothing on the stub of CUDA's libraries: tokens are what was in memory. */
static bool on_stub(void)
{
    return getenv("STUB_CUDA_TOTAL") != NULL;
}

static weir_client *make_client(weir_runtime *runtime, const char *name)
{
    weir_client *made;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = name;
    OK(weir_client_create(runtime, &options, &made));
    return made;
}

static gpu gpu_open(uint64_t budget)
{
    gpu it = {.engine = the_engine()};
    weir_runtime_options of_host = WEIR_INIT(weir_runtime_options), of_device = WEIR_INIT(weir_runtime_options);
    const char *name = device();
    OK(weir_runtime_create("host", &of_host, &it.host));
    of_device.host = it.host;
    of_device.budget = budget;
    OK(weir_runtime_create(name, &of_device, &it.runtime));
    it.client = make_client(it.runtime, "model");
    fill_prompt(it.prompt, PROMPT, 1);
    return it;
}

static weir_status gpu_load(gpu *it, const char *folder, const char *sequences)
{
    const weir_setting settings[] = {{"context", "512"}, {"sequences", sequences}};
    weir_engine_place place = {it->runtime, it->client};
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = folder;
    load.places = &place;
    load.place_count = 1;
    load.settings = settings;
    load.setting_count = 2;
    it->model = NULL;
    return it->engine->load(&load, &it->model);
}

static void nothing_is_left(const gpu *it)
{
    weir_stats host = WEIR_INIT(weir_stats), there = WEIR_INIT(weir_stats);
    assert_int_equal(stats_of_client(it->client).live, 0);
    OK(weir_snapshot(it->runtime, &there, NULL, 0, NULL));
    OK(weir_snapshot(it->host, &host, NULL, 0, NULL));
    assert_int_equal(there.live, 0);
    assert_int_equal(host.live, 0);
}

/* Closing succeeds only when every byte came back. */
static void gpu_close(gpu *it)
{
    if (it->model)
        it->engine->unload(it->model);
    nothing_is_left(it);
    OK(weir_client_destroy(it->client));
    OK(weir_runtime_destroy(it->runtime));
    OK(weir_runtime_destroy(it->host));
}

typedef struct watch {
    const gpu *of;
    int32_t made[MADE];
    size_t count, most;
    uint64_t kv;
} watch;

static bool on_piece(const weir_piece *piece, void *user)
{
    watch *it = user;
    it->kv = stats_of_client(it->of->client).live_class[WEIR_CLASS_KV];
    if (it->count < MADE)
        it->made[it->count++] = on_stub() ? 60 : piece->token;
    return it->count < it->most;
}

static weir_status gpu_run(gpu *it, const int32_t *prompt, size_t count, watch *seen)
{
    static const weir_setting settings[] = {{"tokens", "24"}, {"temperature", "0"}, {"ignore_eos", "1"}};
    weir_tensor input = token_input(prompt, count);
    weir_inference inference = inference_of(&input, settings, 3);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    seen->of = it;
    seen->most = seen->most ? seen->most : MADE + 1;
    weir_status status = it->engine->infer_stream(it->model, &inference, on_piece, seen, &outputs);
    if (status == WEIR_OK)
        it->engine->release_outputs(it->model, &outputs);
    return status;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void the_cache_costs_its_tokens_and_goes_with_the_run(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        gpu it = gpu_open(0);
        watch seen = {0}, again = {0};
        OK(gpu_load(&it, folders[which], "1"));
        assert_int_equal(stats_of_client(it.client).live_class[WEIR_CLASS_KV], 0);
        assert_true(stats_of_client(it.client).live_class[WEIR_CLASS_WEIGHTS] > 0);
        OK(gpu_run(&it, it.prompt, PROMPT, &seen));
        assert_int_equal(seen.count, MADE);
        if (which == SHARED)
            assert_int_equal(seen.kv, TOKEN_BYTES * (PROMPT + MADE));
        else
            assert_in_range(seen.kv, TOKEN_BYTES * (PROMPT + MADE - 1), 2 * TOKEN_BYTES * (PROMPT + MADE) + 16 * 256);
        assert_int_equal(stats_of_client(it.client).live_class[WEIR_CLASS_KV], 0);
        OK(gpu_run(&it, it.prompt, PROMPT, &again));
        assert_memory_equal(seen.made, again.made, sizeof seen.made);
        gpu_close(&it);
    }
}

/* Takes all that is free; answers how many blocks. */
static size_t fill(weir_client *client, void **blocks, size_t most)
{
    size_t count = 0;
    for (uint64_t bytes = 1 << 20; bytes >= 4096; bytes /= 4)
        while (count < most &&
               weir_alloc(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, &blocks[count]) == WEIR_OK)
            count++;
    return count;
}

/* An idle model's memory is anybody's, and its next run goes on as if nothing had been. */
static void an_idle_model_gives_way_and_goes_on(void **state)
{
    enum { BUDGET = 48 << 20, BEGUN = 8, MOST = 1000 };
    (void)state;
    gpu it = gpu_open(BUDGET);
    watch whole = {0}, head = {.most = BEGUN}, none = {0}, tail = {0};
    int32_t longer[PROMPT + BEGUN];
    void *blocks[MOST];
    OK(gpu_load(&it, folders[SHARED], "1"));
    OK(gpu_run(&it, it.prompt, PROMPT, &whole));
    OK(gpu_run(&it, it.prompt, PROMPT, &head));
    assert_int_equal(head.count, BEGUN);
    weir_client *other = make_client(it.runtime, "other");
    size_t count = fill(other, blocks, MOST);
    assert_true(stats_of_client(other).live >= BUDGET / 8);
    assert_int_equal(gpu_run(&it, it.prompt, PROMPT, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(none.count, 0);
    while (count > 0)
        OK(weir_free(other, blocks[--count], WEIR_STREAM_HOST));
    memcpy(longer, it.prompt, sizeof it.prompt);
    memcpy(longer + PROMPT, head.made, sizeof(int32_t[BEGUN]));
    OK(gpu_run(&it, longer, PROMPT + BEGUN, &tail));
    assert_memory_equal(tail.made, whole.made + BEGUN, (MADE - BEGUN) * sizeof *whole.made);
    OK(weir_client_destroy(other));
    gpu_close(&it);
}

/* Under budgets from too small for anything to large enough. */
static void a_refusal_is_clean_wherever_it_comes(void **state)
{
    (void)state;
    gpu first = gpu_open(0);
    watch seen = {0};
    OK(gpu_load(&first, folders[SHARED], "1"));
    OK(gpu_run(&first, first.prompt, PROMPT, &seen));
    weir_stats all = WEIR_INIT(weir_stats);
    OK(weir_snapshot(first.runtime, &all, NULL, 0, NULL));
    gpu_close(&first);
    int refused = 0, served = 0;
    for (uint64_t i = 1; i <= BUDGETS; i++) {
        gpu it = gpu_open((all.peak_held * i / (BUDGETS - 4)) | 1);
        watch now = {0};
        weir_status status = gpu_load(&it, folders[SHARED], "1");
        if (status == WEIR_OK)
            status = gpu_run(&it, it.prompt, PROMPT, &now);
        if (status != WEIR_OK) {
            assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
            assert_words(weir_detail(), "model");
        } else {
            assert_memory_equal(seen.made, now.made, sizeof now.made);
        }
        refused += status != WEIR_OK;
        served += status == WEIR_OK;
        gpu_close(&it);
    }
    assert_true(refused >= BUDGETS / 2);
    assert_true(served >= 1);
}

static bool until_cancelled(const weir_piece *piece, void *user)
{
    (void)piece;
    atomic_fetch_add((atomic_int *)user, 1);
    return true;
}

/* A model with a table of blocks has them from the load on; an idle one gives them up, and takes them back. */
static void blocks_of_an_idle_model_are_given_up_and_taken_back(void **state)
{
    enum { BUDGET = 48 << 20, MOST = 1000 };
    (void)state;
    if (!folders[PAGED])
        skip();
    gpu it = gpu_open(BUDGET);
    watch first = {0}, second = {0}, third = {0};
    uint64_t released = 0, all = TOKEN_BYTES * 2 * 512;
    void *blocks[MOST];
    OK(gpu_load(&it, folders[PAGED], "2"));
    assert_int_equal(stats_of_client(it.client).live_class[WEIR_CLASS_KV], all);
    OK(gpu_run(&it, it.prompt, PROMPT, &first));
    assert_int_equal(first.kv, all);
    OK(it.engine->trim(it.model, 0, &released));
    assert_int_equal(released, all);
    assert_int_equal(stats_of_client(it.client).live_class[WEIR_CLASS_KV], 0);
    OK(it.engine->trim(it.model, 0, &released));
    assert_int_equal(released, 0);
    OK(gpu_run(&it, it.prompt, PROMPT, &second));
    assert_int_equal(stats_of_client(it.client).live_class[WEIR_CLASS_KV], all);
    weir_client *other = make_client(it.runtime, "other");
    size_t count = fill(other, blocks, MOST);
    assert_int_equal(stats_of_client(it.client).live_class[WEIR_CLASS_KV], 0);
    while (count > 0)
        OK(weir_free(other, blocks[--count], WEIR_STREAM_HOST));
    OK(gpu_run(&it, it.prompt, PROMPT, &third));
    assert_memory_equal(first.made, second.made, sizeof first.made);
    assert_memory_equal(first.made, third.made, sizeof first.made);
    OK(weir_client_destroy(other));
    gpu_close(&it);
}

typedef struct cancelling {
    gpu *of;
    atomic_int pieces;
    weir_status status;
} cancelling;

static void *run_long(void *user)
{
    static const weir_setting settings[] = {{"tokens", "400"}, {"ignore_eos", "1"}};
    cancelling *it = user;
    weir_tensor input = token_input(it->of->prompt, PROMPT);
    weir_inference inference = inference_of(&input, settings, 2);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    it->status = it->of->engine->infer_stream(it->of->model, &inference, until_cancelled, &it->pieces, &outputs);
    if (it->status == WEIR_OK)
        it->of->engine->release_outputs(it->of->model, &outputs);
    return NULL;
}

static void a_cancelled_run_gives_everything_back(void **state)
{
    (void)state;
    gpu it = gpu_open(0);
    cancelling run = {.of = &it};
    pthread_t thread;
    OK(gpu_load(&it, folders[SHARED], "1"));
    uint64_t before = stats_of_client(it.client).live;
    assert_int_equal(pthread_create(&thread, NULL, run_long, &run), 0);
    while (atomic_load(&run.pieces) < 3)
        ;
    OK(it.engine->cancel(it.model, 0));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(run.status, WEIR_ERR_CANCELLED);
    assert_true(stats_of_client(it.client).live <= before + (1 << 20)); /* what kernels keep for their next run */
    assert_int_equal(stats_of_client(it.client).live_class[WEIR_CLASS_KV], 0);
    gpu_close(&it);
}

typedef struct lane {
    gpu it;
    watch seen;
    weir_status status;
} lane;

static void *run_lane(void *user)
{
    lane *l = user;
    for (int i = 0; i < 4 && l->status == WEIR_OK; i++) {
        l->seen = (watch){0};
        l->status = gpu_run(&l->it, l->it.prompt, PROMPT, &l->seen);
    }
    return NULL;
}

/* Two models of one runtime, each with its own client, from two threads at once. */
static void two_models_are_told_apart(void **state)
{
    (void)state;
    gpu first = gpu_open(0);
    lane lanes[2] = {{.it = first}, {.it = first}};
    watch alone[2] = {{0}, {0}};
    pthread_t threads[2];
    uint64_t weights[2];
    lanes[1].it.client = make_client(first.runtime, "second");
    for (int i = 0; i < 2; i++) {
        OK(gpu_load(&lanes[i].it, folders[i], "1"));
        OK(gpu_run(&lanes[i].it, first.prompt, PROMPT, &alone[i]));
        weights[i] = stats_of_client(lanes[i].it.client).live_class[WEIR_CLASS_WEIGHTS];
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_lane, &lanes[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        OK(lanes[i].status);
        assert_memory_equal(lanes[i].seen.made, alone[i].made, sizeof alone[i].made);
        assert_int_equal(stats_of_client(lanes[i].it.client).live_class[WEIR_CLASS_WEIGHTS], weights[i]);
        assert_int_equal(stats_of_client(lanes[i].it.client).live_class[WEIR_CLASS_KV], 0);
    }
    first.engine->unload(lanes[1].it.model);
    assert_int_equal(stats_of_client(lanes[1].it.client).live, 0);
    OK(weir_client_destroy(lanes[1].it.client));
    first.model = lanes[0].it.model;
    gpu_close(&first);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cache_costs_its_tokens_and_goes_with_the_run),
        cmocka_unit_test(an_idle_model_gives_way_and_goes_on),
        cmocka_unit_test(blocks_of_an_idle_model_are_given_up_and_taken_back),
        cmocka_unit_test(a_refusal_is_clean_wherever_it_comes),
        cmocka_unit_test(a_cancelled_run_gives_everything_back),
        cmocka_unit_test(two_models_are_told_apart),
    };
    if (argc < 3) {
        fprintf(stderr, "usage: %s SHARED CONCAT [PAGED]\n", argv[0]);
        return 2;
    }
    folders[0] = argv[1];
    folders[1] = argv[2];
    folders[PAGED] = argc > 3 ? argv[3] : NULL;

    return cmocka_run_group_tests(tests, NULL, NULL);
}
