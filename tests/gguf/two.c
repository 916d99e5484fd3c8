/* two.c: a model on two devices is two accounts of one model, with the answers that it gives on one. On two GPUs by
 * scripts/gpu-check --devices 2; here over the stub of CUDA's libraries, where kernels compute nothing. */
#include "common.h"

#include <weir/engine.h>

#include <unistd.h>

enum { PROMPT = 300, LAYERS = 6 };
static const model_shape shape = {
    .layers = LAYERS, .width = 256, .heads = 4, .heads_kv = 2, .wide = 512, .context = 4096};
static char path[64];

typedef struct pair {
    const weir_engine *engine;
    weir_runtime *host, *runtime[2];
    weir_client *client[2];
    weir_engine_model *model;
} pair;

/* Skips where there is no second device, also where a GPU is required. */
static pair pair_open(void)
{
    static const char *const devices[] = {"cuda:0", "cuda:1"};
    pair it = {.engine = the_engine()};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    client.name = "model";
    options.budget = 1ull << 30;
    OK(weir_runtime_create("host", &options, &it.host));
    options.budget = 1ull << 29;
    options.host = it.host;
    for (int i = 0; i < 2; i++) {
        weir_status status = weir_runtime_create(devices[i], &options, &it.runtime[i]);
        const char *required = getenv("WEIR_REQUIRE_CUDA");
        bool first_is_required = i == 0 && required && strcmp(required, "1") == 0;
        if (status == WEIR_ERR_NOT_FOUND && !first_is_required) {
            print_message("%s\n", weir_detail());
            skip();
        }
        OK(status);
        OK(weir_client_create(it.runtime[i], &client, &it.client[i]));
    }
    return it;
}

static weir_client_stats account(const pair *it, int which)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    OK(weir_client_info(it->client[which], &stats));
    return stats;
}

static void pair_load(pair *it, int devices)
{
    weir_engine_place places[2] = {{it->runtime[0], it->client[0]}, {it->runtime[1], it->client[1]}};
    weir_setting settings[4] = {{"context", "4096"}, {"threads", "1"}};
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = path;
    load.places = places;
    load.place_count = (size_t)devices;
    load.settings = settings;
    load.setting_count = 2;
    if (getenv("WEIR_LLAMA_CUDA"))
        settings[load.setting_count++] = (weir_setting){"llama_cuda", getenv("WEIR_LLAMA_CUDA")};
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan), quick = WEIR_INIT(weir_engine_plan);
    OK(it->engine->plan(&load, &plan));
    load.quick = true;
    OK(it->engine->plan(&load, &quick));
    load.quick = false;
    assert_int_equal(account(it, 0).live + account(it, 1).live, 0);
    OK(it->engine->load(&load, &it->model));
    weir_client_stats first = account(it, 0);
    assert_int_equal(plan.source[WEIR_CLASS_WEIGHTS], WEIR_PREDICTED_DRY_RUN);
    assert_int_equal(plan.bytes[WEIR_CLASS_WEIGHTS], first.live_class[WEIR_CLASS_WEIGHTS]);
    assert_true(plan.bytes[WEIR_CLASS_SCRATCH] > 0 && plan.whole[WEIR_CLASS_KV] > plan.bytes[WEIR_CLASS_KV]);
    /* What is on the host is as the file has it, on however many devices the rest is. */
    assert_int_equal(plan.host[WEIR_CLASS_WEIGHTS], quick.host[WEIR_CLASS_WEIGHTS]);
    assert_true(plan.host[WEIR_CLASS_WEIGHTS] > 0);
    assert_int_equal(plan.host[WEIR_CLASS_KV], 0);
    if (devices == 1)
        assert_int_equal(plan.bytes[WEIR_CLASS_WEIGHTS], quick.bytes[WEIR_CLASS_WEIGHTS]);
    else
        assert_true(plan.bytes[WEIR_CLASS_WEIGHTS] < quick.bytes[WEIR_CLASS_WEIGHTS]);
}

static void pair_close(pair *it)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(account(it, i).live, 0);
        OK(weir_client_destroy(it->client[i]));
        OK(weir_runtime_destroy(it->runtime[i]));
    }
    OK(weir_runtime_destroy(it->host));
}

static void ask(const pair *it, char *text, size_t capacity)
{
    static const weir_setting settings[] = {{"tokens", "30"}, {"temperature", "0"}, {"logits", "1"}};
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 3 + i * 7 % 200;
    weir_tensor input = token_input(prompt, 0, PROMPT);
    weir_inference inference = inference_of(&input, settings, 3);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    OK(it->engine->infer(it->model, &inference, &outputs));
    const weir_tensor *tokens = output_named(&outputs, "tokens"), *logits = output_named(&outputs, "logits");
    size_t used = 0;
    for (size_t i = 0; i < tokens->bytes / 4; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%d ", ((const int32_t *)tokens->data)[i]);
    for (size_t i = 0; i < 16; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%08x ", ((const uint32_t *)logits->data)[i]);
    it->engine->release_outputs(it->model, &outputs);
}

static void test_a_model_on_two_devices_is_two_accounts(void **state)
{
    (void)state;
    char one[1024], two[1024];
    pair it = pair_open();
    pair_load(&it, 1);
    uint64_t all = account(&it, 0).live_class[WEIR_CLASS_WEIGHTS];
    assert_int_equal(account(&it, 1).live, 0);
    ask(&it, one, sizeof one);
    uint64_t cells = account(&it, 0).live_class[WEIR_CLASS_KV];
    assert_true(cells > 0);
    it.engine->unload(it.model);
    pair_load(&it, 2);
    weir_client_stats first = account(&it, 0), second = account(&it, 1);
    assert_true(first.live_class[WEIR_CLASS_WEIGHTS] > 0 && second.live_class[WEIR_CLASS_WEIGHTS] > 0);
    assert_int_equal(first.live_class[WEIR_CLASS_WEIGHTS] + second.live_class[WEIR_CLASS_WEIGHTS], all);
    ask(&it, two, sizeof two);
    first = account(&it, 0);
    second = account(&it, 1);
    assert_true(first.live_class[WEIR_CLASS_KV] > 0 && second.live_class[WEIR_CLASS_KV] > 0);
    assert_true(first.live_class[WEIR_CLASS_SCRATCH] > 0 && second.live_class[WEIR_CLASS_SCRATCH] > 0);
    if (!getenv("STUB_CUDA_TOTAL"))
        assert_string_equal(one, two);
    it.engine->unload(it.model);
    pair_close(&it);
}

/* llama.cpp spreads layers by what each device has left, which is what its account has left. */
static void test_a_device_with_less_gets_less_or_refuses_and_leaves_nothing(void **state)
{
    (void)state;
    pair it = pair_open();
    pair_load(&it, 2);
    uint64_t whole = account(&it, 1).live;
    it.engine->unload(it.model);
    for (int part = 1; part < 8; part++) {
        weir_engine_place places[2] = {{it.runtime[0], it.client[0]}, {it.runtime[1], it.client[1]}};
        weir_setting settings[] = {{"context", "4096"}, {"llama_cuda", getenv("WEIR_LLAMA_CUDA")}};
        weir_engine_load load = WEIR_INIT(weir_engine_load);
        load.path = path;
        load.places = places;
        load.place_count = 2;
        load.settings = settings;
        load.setting_count = settings[1].value ? 2 : 1;
        uint64_t limit = whole * (uint64_t)part / 8 / 256 * 256;
        OK(weir_client_set_limits(it.client[1], 0, limit));
        weir_status status = it.engine->load(&load, &it.model);
        assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
        assert_true(account(&it, 1).live <= limit);
        if (status == WEIR_OK)
            it.engine->unload(it.model);
        assert_int_equal(account(&it, 0).live + account(&it, 1).live, 0);
    }
    OK(weir_client_set_limits(it.client[1], 0, 0));
    pair_close(&it);
}

static int write_model(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/weir-two-%d.gguf", (int)getpid());
    write_llama(path, &shape);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_on_two_devices_is_two_accounts),
        cmocka_unit_test(test_a_device_with_less_gets_less_or_refuses_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
