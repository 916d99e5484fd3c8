/* gpu.c: the gguf engine on CUDA, beside the same llama.cpp by itself in another process: the same tokens and logits, and
 * every byte in the accounts. Runs on the device WEIR_TEST_DEVICE names, with the library for CUDA that is in the
 * store or in the folder WEIR_LLAMA_CUDA.
 *
 *   test-gguf-gpu                                          the tests
 *   test-gguf-gpu --plain FILE LAYERS FA K V CONTEXT       llama.cpp by itself: tokens, and a checksum of the logits */
#include "common.h"
#include "plain.h"

#include <weir/engine.h>

#include <math.h>
#include <pthread.h>
#include <unistd.h>

enum { PROMPT = 40, MADE = 24, CONTEXT = 512, BATCH = 128 };

static const model_shape shape = {.layers = 4, .width = 256, .heads = 4, .heads_kv = 2, .wide = 512, .context = 4096};
static char llama_path[64], bert_path[64], self[512];

typedef struct variant {
    const char *layers, *attention, *k, *v;
} variant;

static const variant variants[] = {
    {"-1", "auto", "f16", "f16"}, {"0", "auto", "f16", "f16"},  {"2", "auto", "f16", "f16"},
    {"-1", "off", "f16", "f16"},  {"-1", "on", "q8_0", "q8_0"}, {"-1", "off", "q8_0", "f16"},
    {"-1", "on", "bf16", "bf16"}, {"3", "off", "f32", "f32"},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Over the stub of CUDA kernels compute nothing. */
static void same(const char *one, const char *other)
{
    if (!getenv("STUB_CUDA_TOTAL"))
        assert_string_equal(one, other);
}

static void fill_prompt(int32_t *tokens, int count, int seed)
{
    for (int i = 0; i < count; i++)
        tokens[i] = 3 + (i * 7 + seed * 13) % 200;
}

static uint64_t checksum(const void *data, size_t length)
{
    const unsigned char *at = data;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

/* ---- llama.cpp by itself ----------------------------------------------------------------------------------------- */

static enum ggml_type type_called(const char *name)
{
    static const struct {
        const char *name;
        enum ggml_type type;
    } all[] = {{"f32", GGML_TYPE_F32}, {"f16", GGML_TYPE_F16}, {"bf16", GGML_TYPE_BF16}, {"q8_0", GGML_TYPE_Q8_0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].type;
    plain_need(false, name);
    return GGML_TYPE_F16;
}

static ggml_backend_dev_t plain_device(void)
{
    char path[600];
    snprintf(path, sizeof path, "%s/lib/libggml-cuda.so", getenv("WEIR_LLAMA_CUDA"));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    plain_need(handle != NULL, dlerror());
    ggml_backend_reg_t (*reg)(void);
    __typeof__(&ggml_backend_reg_dev_get) get;
    *(void **)&reg = dlsym(handle, "ggml_backend_cuda_reg");
    *(void **)&get = dlsym(handle, "ggml_backend_reg_dev_get");
    return get(reg(), 0);
}

static int run_plain(char **words)
{
    plain it = plain_of(the_engine());
    ggml_backend_dev_t devices[2] = {plain_device(), NULL};
    struct llama_model_params model = it.llama_model_default_params();
    struct llama_context_params params = it.llama_context_default_params();
    int32_t prompt[PROMPT], made[MADE];
    model.load_mode = LLAMA_LOAD_MODE_NONE;
    model.devices = devices;
    model.n_gpu_layers = atoi(words[1]);
    it.model = it.llama_model_load_from_file(words[0], model);
    plain_need(it.model != NULL, "loading");
    it.vocab = it.llama_model_get_vocab(it.model);
    params.n_ctx = (uint32_t)atoi(words[5]);
    params.n_batch = params.n_ubatch = BATCH;
    params.n_threads = params.n_threads_batch = 2;
    params.n_outputs_max = 1;
    params.flash_attn_type = strcmp(words[2], "on") == 0    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                             : strcmp(words[2], "off") == 0 ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                            : LLAMA_FLASH_ATTN_TYPE_AUTO;
    params.type_k = type_called(words[3]);
    params.type_v = type_called(words[4]);
    it.context = it.llama_init_from_model(it.model, params);
    plain_need(it.context != NULL, "making a context");
    fill_prompt(prompt, PROMPT, 0);
    plain_greedy(&it, prompt, PROMPT, BATCH, -1, made, MADE);
    for (int i = 0; i < MADE; i++)
        printf("%d ", made[i]);
    size_t width = (size_t)it.llama_vocab_n_tokens(it.vocab) * sizeof(float);
    printf("%llx\n", (unsigned long long)checksum(it.llama_get_logits_ith(it.context, -1), width));
    plain_close(&it);
    return 0;
}

static void ask_plain(const variant *v, const char *context, char *line, size_t capacity)
{
    char command[1400];
    snprintf(command, sizeof command, "'%s' --plain '%s' %s %s %s %s %s 2>/dev/null", self, llama_path, v->layers,
             v->attention, v->k, v->v, context);
    FILE *pipe = popen(command, "re");
    assert_non_null(pipe);
    assert_non_null(fgets(line, (int)capacity, pipe));
    assert_int_equal(pclose(pipe), 0);
}

/* ---- through weir ------------------------------------------------------------------------------------------------ */

typedef struct rig {
    bench it;
    weir_runtime *host;
    weir_engine_model *model;
} rig;

static rig rig_open(const char *path, uint64_t budget)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    rig its = {.it = {.engine = the_engine(), .load = WEIR_INIT(weir_engine_load)}};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    client.name = "model";
    options.budget = 1ull << 30;
    OK(weir_runtime_create("host", &options, &its.host));
    options.budget = budget;
    options.host = its.host;
    OK(weir_runtime_create(device ? device : "cuda:0", &options, &its.it.runtime));
    OK(weir_client_create(its.it.runtime, &client, &its.it.client));
    its.it.load.path = path;
    return its;
}

static weir_client_stats host_account(const rig *its)
{
    weir_stats all = WEIR_INIT(weir_stats);
    weir_client_stats clients[8] = {WEIR_INIT(weir_client_stats)}, none = WEIR_INIT(weir_client_stats);
    size_t count = 0;
    OK(weir_snapshot(its->host, &all, clients, 8, &count));
    for (size_t i = 0; i < count; i++)
        if (strcmp(clients[i].name, "model") == 0)
            return clients[i];
    return none;
}

/* Only when every byte came back, on the device and on the host. */
static void rig_close(rig *its)
{
    assert_int_equal(host_account(its).live, 0);
    bench_close(&its->it);
    OK(weir_runtime_destroy(its->host));
}

static size_t settings_of(const variant *v, const char *context, weir_setting *out)
{
    size_t count = 0;
    out[count++] = (weir_setting){"gpu_layers", v->layers};
    out[count++] = (weir_setting){"flash_attention", v->attention};
    out[count++] = (weir_setting){"cache_k", v->k};
    out[count++] = (weir_setting){"cache_v", v->v};
    out[count++] = (weir_setting){"context", context};
    out[count++] = (weir_setting){"batch", "128"};
    out[count++] = (weir_setting){"threads", "2"};
    if (getenv("WEIR_LLAMA_CUDA"))
        out[count++] = (weir_setting){"llama_cuda", getenv("WEIR_LLAMA_CUDA")};
    return count;
}
enum { SETTINGS = 12 };

static void rig_load(rig *its, const variant *v, const char *context)
{
    weir_setting settings[SETTINGS];
    size_t count = settings_of(v, context, settings);
    OK(bench_load(&its->it, settings, count, &its->model));
}

/* Tokens and the logits' checksum as run_plain prints them. */
static void ask_weir(const rig *its, int seed, char *line, size_t capacity)
{
    static const weir_setting settings[] = {
        {"tokens", "24"}, {"temperature", "0"}, {"ignore_eos", "0"}, {"logits", "1"}};
    int32_t prompt[PROMPT];
    fill_prompt(prompt, PROMPT, seed);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    weir_inference inference = inference_of(&input, settings, 4);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    OK(its->it.engine->infer(its->model, &inference, &outputs));
    const weir_tensor *tokens = output_named(&outputs, "tokens"), *logits = output_named(&outputs, "logits");
    size_t used = 0;
    for (size_t i = 0; i < tokens->bytes / sizeof(int32_t); i++)
        used += (size_t)snprintf(line + used, capacity - used, "%d ", ((const int32_t *)tokens->data)[i]);
    snprintf(line + used, capacity - used, "%llx\n", (unsigned long long)checksum(logits->data, logits->bytes));
    its->it.engine->release_outputs(its->model, &outputs);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_answers_are_those_of_llama_cpp_by_itself(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        char alone[1024] = "", ours[1024] = "", again[1024] = "";
        rig its = rig_open(llama_path, 1ull << 30);
        ask_plain(&variants[i], "512", alone, sizeof alone);
        rig_load(&its, &variants[i], "512");
        ask_weir(&its, 0, ours, sizeof ours);
        ask_weir(&its, 0, again, sizeof again);
        print_message("layers %s, flash attention %s, %s/%s: %s", variants[i].layers, variants[i].attention,
                      variants[i].k, variants[i].v, ours);
        same(ours, alone);
        same(again, alone);
        its.it.engine->unload(its.model);
        rig_close(&its);
    }
}

static void test_every_byte_is_in_the_accounts(void **state)
{
    (void)state;
    char line[1024];
    rig its = rig_open(llama_path, 1ull << 30);
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    weir_setting settings[SETTINGS];
    its.it.load.settings = settings;
    its.it.load.setting_count = settings_of(&variants[0], "512", settings);
    its.it.place = (weir_engine_place){its.it.runtime, its.it.client};
    its.it.load.places = &its.it.place;
    its.it.load.place_count = 1;
    OK(its.it.engine->plan(&its.it.load, &plan));
    assert_int_equal(stats_of(&its.it).allocations, 0);
    rig_load(&its, &variants[0], "512");
    weir_client_stats loaded = stats_of(&its.it);
    assert_int_equal(loaded.live_class[WEIR_CLASS_WEIGHTS], plan.bytes[WEIR_CLASS_WEIGHTS]);
    assert_true(loaded.live_class[WEIR_CLASS_SCRATCH] >= plan.bytes[WEIR_CLASS_SCRATCH]);
    assert_int_equal(loaded.live_class[WEIR_CLASS_OTHER], 0);
    assert_true(host_account(&its).live > 0);
    ask_weir(&its, 0, line, sizeof line);
    assert_int_equal(stats_of(&its.it).live_class[WEIR_CLASS_WEIGHTS], plan.bytes[WEIR_CLASS_WEIGHTS]);
    weir_model_details info = WEIR_INIT(weir_model_details);
    OK(its.it.engine->info(its.model, &info));
    assert_string_equal(info.provider, "cuda");
    assert_string_equal(info.shares[0].provider, "cuda");
    assert_int_equal(info.shares[0].parts, shape.layers);
    its.it.engine->unload(its.model);
    rig_close(&its);
}

static void test_what_is_refused_leaves_nothing_behind(void **state)
{
    (void)state;
    weir_setting settings[SETTINGS];
    size_t count = settings_of(&variants[0], "512", settings);
    rig its = rig_open(llama_path, 1ull << 30);
    OK(bench_load(&its.it, settings, count, &its.model));
    uint64_t whole = stats_of(&its.it).live;
    its.it.engine->unload(its.model);
    int refused = 0;
    for (int part = 1; part < 50; part++) {
        OK(weir_client_set_limits(its.it.client, 0, whole * (uint64_t)part / 50 / 256 * 256));
        assert_int_equal(bench_load(&its.it, settings, count, &its.model), WEIR_ERR_OUT_OF_MEMORY);
        assert_non_null(strstr(weir_detail(), "model"));
        refused++;
        assert_int_equal(stats_of(&its.it).live + host_account(&its).live, 0);
    }
    assert_int_equal(refused, 49);
    OK(weir_client_set_limits(its.it.client, 0, 0));
    char alone[1024], ours[1024];
    ask_plain(&variants[0], "512", alone, sizeof alone);
    rig_load(&its, &variants[0], "512");
    ask_weir(&its, 0, ours, sizeof ours);
    same(ours, alone);
    its.it.engine->unload(its.model);
    rig_close(&its);
}

typedef struct chat {
    const rig *its;
    int seed;
    char line[1024];
} chat;

static void *talk(void *user)
{
    chat *it = user;
    for (int i = 0; i < 3; i++)
        ask_weir(it->its, it->seed, it->line, sizeof it->line);
    return NULL;
}

static void test_two_models_on_four_threads_answer_as_alone(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    chat chats[THREADS];
    char alone[2][1024];
    rig its = rig_open(llama_path, 1ull << 30), other = {.it = its.it};
    weir_client_options named = WEIR_INIT(weir_client_options);
    named.name = "other";
    OK(weir_client_create(its.it.runtime, &named, &other.it.client));
    rig_load(&its, &variants[0], "512");
    rig_load(&other, &variants[3], "512");
    ask_weir(&its, 1, alone[0], sizeof alone[0]);
    ask_weir(&other, 1, alone[1], sizeof alone[1]);
    for (int i = 0; i < THREADS; i++) {
        chats[i] = (chat){i % 2 ? &other : &its, 1, ""};
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &chats[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        same(chats[i].line, alone[i % 2]);
    }
    its.it.engine->unload(its.model);
    other.it.engine->unload(other.model);
    assert_int_equal(stats_of(&other.it).live, 0);
    OK(weir_client_destroy(other.it.client));
    rig_close(&its);
}

static void test_an_encoder_gives_the_hosts_vectors(void **state)
{
    (void)state;
    float on_host[64];
    weir_tensor input = text_input("a cab. bed 17\nfade");
    fixture host = fixture_open(bert_path, NULL, 0);
    weir_outputs outputs;
    OK(infer(&host, &input, NULL, 0, &outputs));
    const weir_tensor *vectors = output_named(&outputs, "embeddings");
    size_t count = vectors->bytes / sizeof(float);
    assert_true(count <= 64);
    memcpy(on_host, vectors->data, vectors->bytes);
    release(&host, &outputs);
    fixture_close(&host);
    rig its = rig_open(bert_path, 1ull << 30);
    const weir_setting settings[] = {{"llama_cuda", getenv("WEIR_LLAMA_CUDA")}};
    OK(bench_load(&its.it, settings, settings[0].value ? 1 : 0, &its.model));
    fixture device = {its.it, its.model};
    OK(infer(&device, &input, NULL, 0, &outputs));
    vectors = output_named(&outputs, "embeddings");
    for (size_t i = 0; i < count; i++)
        assert_true(getenv("STUB_CUDA_TOTAL") || fabsf(((const float *)vectors->data)[i] - on_host[i]) < 1e-2f);
    release(&device, &outputs);
    its.it.engine->unload(its.model);
    rig_close(&its);
}

static int write_models(void **state)
{
    (void)state;
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-gpu-%d.gguf", (int)getpid());
    snprintf(bert_path, sizeof bert_path, "/tmp/weir-gpu-bert-%d.gguf", (int)getpid());
    write_llama(llama_path, &shape);
    write_bert(bert_path, &small_shape);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    unlink(llama_path);
    unlink(bert_path);
    return 0;
}

int main(int count, char **words)
{
    if (count == 8 && strcmp(words[1], "--plain") == 0)
        return run_plain(words + 2);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_those_of_llama_cpp_by_itself),
        cmocka_unit_test(test_every_byte_is_in_the_accounts),
        cmocka_unit_test(test_what_is_refused_leaves_nothing_behind),
        cmocka_unit_test(test_two_models_on_four_threads_answer_as_alone),
        cmocka_unit_test(test_an_encoder_gives_the_hosts_vectors),
    };
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
