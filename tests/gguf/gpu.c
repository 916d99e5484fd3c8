/* gpu.c: the gguf engine on CUDA, beside the same llama.cpp by itself in another process: the same tokens and logits, and
 * every byte in the accounts. Runs on the device WEIR_TEST_DEVICE names, with the library for CUDA that is in the
 * store or in the folder WEIR_LLAMA_CUDA.
 *
 *   test-gguf-gpu                                          the tests
 *   test-gguf-gpu --plain FILE LAYERS FA K V CONTEXT PROMPT   llama.cpp by itself: tokens, and a checksum of the logits */
#include "rig.h"
#include "plain.h"

#include <weir/engine.h>

#include <math.h>
#include <pthread.h>
#include <unistd.h>

/* A cell takes 1 KiB of keys in a layer: pages of 2 MiB have 2048 of them. */
static const model_shape wide_shape = {
    .layers = 3, .width = 512, .heads = 4, .heads_kv = 4, .wide = 512, .context = 8192};
static char llama_path[64], bert_path[64], wide_path[64], self[512];

static const variant variants[] = {
    {"-1", "auto", "f16", "f16"}, {"0", "auto", "f16", "f16"},  {"2", "auto", "f16", "f16"},
    {"-1", "off", "f16", "f16"},  {"-1", "on", "q8_0", "q8_0"}, {"-1", "off", "q8_0", "f16"},
    {"-1", "on", "bf16", "bf16"}, {"3", "off", "f32", "f32"},   {"-1", "on", "q4_0", "q4_0"},
    {"-1", "on", "q8_0", "q4_0"}, {"2", "on", "q5_1", "q5_1"},  {"-1", "auto", "f32", "f32"},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* ---- llama.cpp by itself ----------------------------------------------------------------------------------------- */

static enum ggml_type type_called(const char *name)
{
    static const struct {
        const char *name;
        enum ggml_type type;
    } all[] = {{"f32", GGML_TYPE_F32},   {"f16", GGML_TYPE_F16},   {"bf16", GGML_TYPE_BF16},
               {"q8_0", GGML_TYPE_Q8_0}, {"q4_0", GGML_TYPE_Q4_0}, {"q5_1", GGML_TYPE_Q5_1}};
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
    int32_t prompt[MOST_PROMPT], made[MADE];
    int count = atoi(words[6]);
    plain_need(count > 0 && count <= MOST_PROMPT, "the prompt");
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
    fill_prompt(prompt, count, 0);
    plain_greedy(&it, prompt, count, BATCH, END, made, MADE);
    for (int i = 0; i < MADE; i++)
        printf("%d ", made[i]);
    size_t width = (size_t)it.llama_vocab_n_tokens(it.vocab) * sizeof(float);
    printf("%llx\n", (unsigned long long)checksum(it.llama_get_logits_ith(it.context, -1), width));
    plain_close(&it);
    return 0;
}

/* What it says besides is told where there is no answer. */
static void ask_plain_of(const char *path, const variant *v, const char *context, int prompt, char *line,
                         size_t capacity)
{
    char command[1400], words[64], last[512] = "";
    snprintf(words, sizeof words, "/tmp/weir-gpu-%d.words", (int)getpid());
    snprintf(command, sizeof command, "WEIR_LOG=error '%s' --plain '%s' %s %s %s %s %s %d 2>%s", self, path, v->layers,
             v->attention, v->k, v->v, context, prompt, words);
    FILE *pipe = popen(command, "re");
    assert_non_null(pipe);
    bool answered = fgets(line, (int)capacity, pipe) != NULL;
    bool ended = pclose(pipe) == 0;
    FILE *said = answered && ended ? NULL : fopen(words, "re");
    while (said && fgets(last, sizeof last, said))
        print_error("%s", last);
    if (said)
        fclose(said);
    unlink(words);
    assert_true(answered && ended);
}

static void ask_plain(const variant *v, const char *context, char *line, size_t capacity)
{
    ask_plain_of(llama_path, v, context, PROMPT, line, capacity);
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
    assert_int_equal(info.shares[0].parts, gpu_shape.layers);
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

/* ---- caches ------------------------------------------------------------------------------------------------------- */

enum { LONG = 3000, PAGE = 2 << 20 };

static rig wide_open(const variant *v, const char *memory, const char *sequences)
{
    weir_setting settings[SETTINGS + 2];
    rig its = rig_open(wide_path, 1ull << 30);
    size_t count = settings_of(v, "8192", settings);
    settings[count++] = (weir_setting){"cache_memory", memory};
    settings[count++] = (weir_setting){"sequences", sequences};
    OK(bench_load(&its.it, settings, count, &its.model));
    return its;
}

static uint64_t kv_of(const rig *its)
{
    return stats_of(&its->it).live_class[WEIR_CLASS_KV];
}

static void close_loaded(rig *its)
{
    its->it.engine->unload(its->model);
    rig_close(its);
}

/* A context of several pages, all of it on the device or a part: of the host's layers it is whole. */
static void test_a_cache_gives_the_same_answers_however_its_memory_comes(void **state)
{
    static const char *const memories[] = {"whole", "elastic", "promised"};
    static const variant some[] = {
        {"-1", "auto", "f16", "f16"}, {"2", "on", "q8_0", "q8_0"}, {"3", "auto", "f16", "f16"}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char alone[1024], ours[1024];
        print_message("layers %s, flash attention %s, %s\n", some[i].layers, some[i].attention, some[i].k);
        ask_plain_of(wide_path, &some[i], "8192", LONG, alone, sizeof alone);
        for (int k = 0; k < 3; k++) {
            rig its = wide_open(&some[i], memories[k], "1");
            uint64_t loaded = kv_of(&its);
            ask_weir_long(&its, 0, LONG, ours, sizeof ours);
            same(ours, alone);
            ask_weir_long(&its, 0, LONG, ours, sizeof ours);
            same(ours, alone);
            assert_true(k == 0 ? kv_of(&its) == loaded : kv_of(&its) < (uint64_t)wide_shape.layers * 16 * PAGE);
            close_loaded(&its);
        }
    }
}

static bool count_kv(const weir_piece *piece, void *user)
{
    uint64_t *seen = user;
    (void)piece;
    seen[0] = kv_of((const rig *)(uintptr_t)seen[1]) > seen[0] ? kv_of((const rig *)(uintptr_t)seen[1]) : seen[0];
    return true;
}

/* 2048 cells are a page of each of six tensors. */
static void test_an_elastic_cache_on_the_device_has_the_pages_of_its_cells(void **state)
{
    static const int prompts[] = {100, 2000, 2050, 5000};
    (void)state;
    rig its = wide_open(&variants[0], "elastic", "1");
    assert_int_equal(kv_of(&its), 2 * wide_shape.layers * PAGE); /* scratch has been measured */
    for (int i = 0; i < 4; i++) {
        static const weir_setting settings[] = {{"tokens", "3"}, {"temperature", "0"}, {"ignore_eos", "1"}};
        int32_t prompt[MOST_PROMPT];
        uint64_t seen[2] = {0, (uint64_t)(uintptr_t)&its}, cells = (uint64_t)prompts[i] + 2;
        fill_prompt(prompt, prompts[i], i);
        weir_tensor input = token_input(prompt, 0, prompts[i]);
        weir_inference inference = inference_of(&input, settings, 3);
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        OK(its.it.engine->infer_stream(its.model, &inference, count_kv, seen, &outputs));
        its.it.engine->release_outputs(its.model, &outputs);
        assert_int_equal(seen[0], (cells + 2047) / 2048 * 2 * wide_shape.layers * PAGE);
        assert_int_equal(kv_of(&its), 2 * wide_shape.layers * PAGE); /* the first page of each rests */
    }
    close_loaded(&its);
}

static void test_a_neighbour_gets_the_pages_of_a_model_at_rest(void **state)
{
    (void)state;
    char before[1024], after[1024];
    void *block;
    weir_client *other;
    weir_client_options named = WEIR_INIT(weir_client_options);
    named.name = "other";
    rig its = wide_open(&variants[0], "elastic", "1");
    OK(weir_client_create(its.it.runtime, &named, &other));
    ask_weir_long(&its, 0, LONG, before, sizeof before);
    assert_int_equal(kv_of(&its), 2 * wide_shape.layers * PAGE);
    /* More than there is: it is refused in the end, after everybody was asked. */
    assert_int_equal(weir_alloc(other, 1u << 30, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(kv_of(&its), 0);
    ask_weir_long(&its, 0, LONG, after, sizeof after);
    same(before, after);
    OK(weir_client_destroy(other));
    close_loaded(&its);
}

/* Each pair computes, where the device has no kernel for it on the host, or is refused in words. */
static void test_no_pair_of_cache_types_ends_the_process(void **state)
{
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q5_1", "iq4_nl"};
    enum { TYPES = sizeof types / sizeof *types };
    (void)state;
    int refused = 0, answered = 0;
    for (int i = 0; i < TYPES * TYPES; i++) {
        char line[1024];
        weir_setting settings[SETTINGS];
        variant v = {"-1", i % 2 ? "on" : "auto", types[i / TYPES], types[i % TYPES]};
        rig its = rig_open(llama_path, 1ull << 30);
        weir_status status = bench_load(&its.it, settings, settings_of(&v, "512", settings), &its.model);
        if (status == WEIR_OK) {
            ask_weir(&its, 0, line, sizeof line);
            its.it.engine->unload(its.model);
            answered++;
        } else {
            print_message("%s/%s: %s\n", v.k, v.v, weir_detail());
            assert_true(status == WEIR_ERR_UNSUPPORTED || status == WEIR_ERR_ENGINE);
            refused++;
        }
        rig_close(&its);
    }
    print_message("%d pairs answer, %d are refused\n", answered, refused);
    assert_true(answered > 4);
}

/* ---- sequences ---------------------------------------------------------------------------------------------------- */

static int tokens_in(const char *line, int32_t *tokens)
{
    int count = 0;
    for (char *end; count < MADE; line = end, count++) {
        tokens[count] = (int32_t)strtol(line, &end, 10);
        if (end == line || *end != ' ')
            break;
    }
    return count;
}

/* Kernels add up in another order in a larger batch: where tokens begin to differ, the two are as likely as one another. */
static void same_but_for_ties(const rig *its, int seed, const char *alone, const char *together)
{
    static const weir_setting settings[] = {{"tokens", "1"}, {"temperature", "0"}, {"logprobs", "2"}};
    int32_t one[PROMPT + MADE], other[MADE];
    fill_prompt(one, PROMPT, seed);
    int count = tokens_in(alone, one + PROMPT), place = 0;
    if (getenv("STUB_CUDA_TOTAL"))
        return;
    assert_int_equal(tokens_in(together, other), count);
    while (place < count && one[PROMPT + place] == other[place])
        place++;
    if (place == count)
        return;
    weir_tensor input = token_input(one, 0, PROMPT + place);
    weir_inference inference = inference_of(&input, settings, 3);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    OK(its->it.engine->infer(its->model, &inference, &outputs));
    const int32_t *best = output_named(&outputs, "top_tokens")->data;
    const float *likely = output_named(&outputs, "top_logprobs")->data;
    print_message("at token %d: %d or %d, by %g\n", place, best[0], best[1], (double)(likely[0] - likely[1]));
    assert_true(likely[0] - likely[1] < 0.05f);
    assert_true(other[place] == best[0] || other[place] == best[1]);
    its->it.engine->release_outputs(its->model, &outputs);
}

static void test_sequences_together_make_the_tokens_that_they_make_alone(void **state)
{
    enum { THREADS = 4 };
    (void)state;
    pthread_t threads[THREADS];
    chat chats[THREADS];
    char alone[THREADS][1024];
    rig its = wide_open(&variants[0], "elastic", "4");
    for (int i = 0; i < THREADS; i++)
        ask_weir(&its, i, alone[i], sizeof alone[i]);
    for (int i = 0; i < THREADS; i++) {
        chats[i] = (chat){&its, i, ""};
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &chats[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        same_but_for_ties(&its, i, alone[i], chats[i].line);
    }
    close_loaded(&its);
}

/* ---- states, grammars --------------------------------------------------------------------------------------------- */

/* Runs with these tensors; the answer's tokens, and its state in malloc memory where `saved` is. */
static int answer(const rig *its, const weir_tensor *inputs, size_t count, const char *made, int32_t *tokens,
                  weir_tensor *saved)
{
    const weir_setting settings[] = {
        {"tokens", made}, {"temperature", "0"}, {"ignore_eos", "1"}, {"state", saved ? "1" : "0"}};
    weir_inference inference = inference_of(inputs, settings, 4);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    inference.input_count = count;
    OK(its->it.engine->infer(its->model, &inference, &outputs));
    const weir_tensor *out = output_named(&outputs, "tokens");
    int got = (int)(out->bytes / sizeof *tokens);
    memcpy(tokens, out->data, out->bytes);
    if (saved) {
        *saved = *output_named(&outputs, "state");
        void *copy = malloc(saved->bytes);
        memcpy(copy, saved->data, saved->bytes);
        saved->data = copy;
    }
    its->it.engine->release_outputs(its->model, &outputs);
    return got;
}

/* Also one that was saved where the model ran on the host: llama.cpp's numbers differ there, and the cells do not. */
static void test_a_saved_state_goes_on_on_the_device(void **state)
{
    (void)state;
    int32_t prompt[PROMPT], whole[MADE], first[MADE], rest[MADE];
    weir_tensor saved, from_host;
    static const weir_setting on_host[] = {{"context", "512"},          {"batch", "128"},   {"threads", "2"},
                                           {"flash_attention", "auto"}, {"cache_k", "f16"}, {"cache_v", "f16"}};
    fill_prompt(prompt, PROMPT, 3);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    rig its = rig_open(llama_path, 1ull << 30);
    rig_load(&its, &variants[0], "512");
    assert_int_equal(answer(&its, &input, 1, "24", whole, NULL), 24);
    assert_int_equal(answer(&its, &input, 1, "10", first, &saved), 10);
    assert_int_equal(answer(&its, &saved, 1, "14", rest, NULL), 14);
    if (!getenv("STUB_CUDA_TOTAL")) {
        assert_memory_equal(whole, first, 10 * sizeof *whole);
        assert_memory_equal(whole + 10, rest, 14 * sizeof *whole);
    }
    free(saved.data);
    rig host = {.it = bench_open(llama_path, 1ull << 30)};
    OK(bench_load(&host.it, on_host, 6, &host.model));
    assert_int_equal(answer(&host, &input, 1, "10", first, &from_host), 10);
    assert_int_equal(answer(&its, &from_host, 1, "14", rest, NULL), 14);
    free(from_host.data);
    host.it.engine->unload(host.model);
    bench_close(&host.it);
    close_loaded(&its);
}

static void test_grammars_and_log_probabilities_work_on_the_device(void **state)
{
    static const weir_setting settings[] = {
        {"tokens", "12"}, {"temperature", "0"}, {"grammar", "root ::= \"yes\" | \"no\""}, {"logprobs", "3"}};
    (void)state;
    weir_tensor input = text_input("a cab");
    weir_inference inference = inference_of(&input, settings, 4);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    rig its = rig_open(llama_path, 1ull << 30);
    rig_load(&its, &variants[0], "512");
    OK(its.it.engine->infer(its.model, &inference, &outputs));
    const weir_tensor *text = output_named(&outputs, "text"), *best = output_named(&outputs, "top_logprobs");
    assert_true((text->bytes == 3 && memcmp(text->data, "yes", 3) == 0) ||
                (text->bytes == 2 && memcmp(text->data, "no", 2) == 0));
    for (size_t i = 0; !getenv("STUB_CUDA_TOTAL") && i < best->bytes / sizeof(float); i++) {
        const float *at = (const float *)best->data + i;
        assert_true(*at <= 0 && (i % 3 == 0 || at[0] <= at[-1]));
    }
    its.it.engine->release_outputs(its.model, &outputs);
    close_loaded(&its);
}

/* ---- lives -------------------------------------------------------------------------------------------------------- */

static void test_twenty_loads_leave_nothing(void **state)
{
    (void)state;
    char line[1024];
    rig its = rig_open(llama_path, 1ull << 30);
    weir_stats before = WEIR_INIT(weir_stats), after = WEIR_INIT(weir_stats);
    size_t clients, clients_after;
    OK(weir_snapshot(its.it.runtime, &before, NULL, 0, &clients));
    for (int i = 0; i < 20; i++) {
        rig_load(&its, &variants[i % 3], "512");
        if (i % 5 == 0)
            ask_weir(&its, 0, line, sizeof line);
        its.it.engine->unload(its.model);
        assert_int_equal(stats_of(&its.it).live, 0);
        assert_int_equal(host_account(&its).live, 0);
        OK(weir_snapshot(its.it.runtime, &after, NULL, 0, &clients_after));
        assert_int_equal(clients_after, clients); /* the redirect's own has gone with it */
    }
    rig_close(&its);
}

static void test_another_runtime_of_the_device_waits_for_the_models_of_the_first(void **state)
{
    (void)state;
    char line[1024];
    weir_setting settings[SETTINGS];
    size_t count = settings_of(&variants[0], "512", settings);
    rig its = rig_open(llama_path, 1ull << 28), other = rig_open(llama_path, 1ull << 28);
    rig_load(&its, &variants[0], "512");
    assert_int_equal(bench_load(&other.it, settings, count, &other.model), WEIR_ERR_BUSY);
    assert_non_null(strstr(weir_detail(), "another runtime"));
    ask_weir(&its, 0, line, sizeof line);
    its.it.engine->unload(its.model);
    OK(bench_load(&other.it, settings, count, &other.model));
    ask_weir(&other, 0, line, sizeof line);
    other.it.engine->unload(other.model);
    rig_close(&other);
    rig_close(&its);
}

static int write_models(void **state)
{
    (void)state;
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-gpu-%d.gguf", (int)getpid());
    snprintf(bert_path, sizeof bert_path, "/tmp/weir-gpu-bert-%d.gguf", (int)getpid());
    write_llama(llama_path, &gpu_shape);
    write_bert(bert_path, &small_shape);
    snprintf(wide_path, sizeof wide_path, "/tmp/weir-gpu-wide-%d.gguf", (int)getpid());
    write_llama(wide_path, &wide_shape);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    unlink(llama_path);
    unlink(bert_path);
    unlink(wide_path);
    return 0;
}

int main(int count, char **words)
{
    if (count == 9 && strcmp(words[1], "--plain") == 0)
        return run_plain(words + 2);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_those_of_llama_cpp_by_itself),
        cmocka_unit_test(test_every_byte_is_in_the_accounts),
        cmocka_unit_test(test_what_is_refused_leaves_nothing_behind),
        cmocka_unit_test(test_two_models_on_four_threads_answer_as_alone),
        cmocka_unit_test(test_an_encoder_gives_the_hosts_vectors),
        cmocka_unit_test(test_a_cache_gives_the_same_answers_however_its_memory_comes),
        cmocka_unit_test(test_an_elastic_cache_on_the_device_has_the_pages_of_its_cells),
        cmocka_unit_test(test_a_neighbour_gets_the_pages_of_a_model_at_rest),
        cmocka_unit_test(test_no_pair_of_cache_types_ends_the_process),
        cmocka_unit_test(test_sequences_together_make_the_tokens_that_they_make_alone),
        cmocka_unit_test(test_a_saved_state_goes_on_on_the_device),
        cmocka_unit_test(test_grammars_and_log_probabilities_work_on_the_device),
        cmocka_unit_test(test_twenty_loads_leave_nothing),
        cmocka_unit_test(test_another_runtime_of_the_device_waits_for_the_models_of_the_first),
    };
    if (count > 1)
        cmocka_set_test_filter(words[1]);
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
