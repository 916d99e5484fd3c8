/* memory.c: where the bytes of a model go: classes, the plan, failing allocations, what stays outside. */
#include "common.h"
#include <weir/engine.h>
#include "plain.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

static char llama_path[64], bert_path[64], wide_path[64];

static void run_once(const bench *it, weir_engine_model *model)
{
    weir_tensor input = text_input("a cab. bed 17\nfade");
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(&input, NULL, 0);
    OK(it->engine->infer(model, &inference, &outputs));
    it->engine->release_outputs(model, &outputs);
}

/* ---- plan and classes ------------------------------------------------------------------------------------------- */

/* Of a cache that is whole from the start. */
static void plan_is_charge(const char *path, const weir_setting *given, size_t count)
{
    weir_setting settings[8] = {{"cache_memory", "whole"}};
    for (size_t i = 0; i < count; i++)
        settings[i + 1] = given[i];
    count++;
    bench it = bench_open(path, 1ull << 30);
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    weir_engine_model *model = NULL;
    it.place = (weir_engine_place){it.runtime, it.client};
    it.load.places = &it.place;
    it.load.place_count = 1;
    it.load.settings = settings;
    it.load.setting_count = count;
    OK(it.engine->plan(&it.load, &plan));
    assert_int_equal(stats_of(&it).allocations, 0);
    OK(bench_load(&it, settings, count, &model));
    weir_client_stats stats = stats_of(&it);
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        if (stats.live_class[i] != plan.bytes[i])
            print_error("%s: %s planned %llu, charged %llu\n", path, weir_name_of(WEIR_NAMES_CLASS, i),
                        (unsigned long long)plan.bytes[i], (unsigned long long)stats.live_class[i]);
        assert_int_equal(stats.live_class[i], plan.bytes[i]);
    }
    assert_true(plan.exact[WEIR_CLASS_WEIGHTS] && plan.exact[WEIR_CLASS_KV] && plan.exact[WEIR_CLASS_SCRATCH]);
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        assert_int_equal(plan.source[i], WEIR_PREDICTED_DRY_RUN);
    assert_int_equal(stats.live_class[WEIR_CLASS_OTHER], 0);
    run_once(&it, model);
    assert_int_equal(stats_of(&it).live_class[WEIR_CLASS_WEIGHTS], plan.bytes[WEIR_CLASS_WEIGHTS]);
    assert_int_equal(stats_of(&it).live_class[WEIR_CLASS_KV], plan.bytes[WEIR_CLASS_KV]);
    it.engine->unload(model);
    bench_close(&it);
}

static void test_plan(void **state)
{
    (void)state;
    static const weir_setting wide[] = {{"context", "1024"}, {"batch", "64"}}, pooled[] = {{"pooling", "last"}};
    plan_is_charge(llama_path, NULL, 0);
    plan_is_charge(llama_path, wide, 2);
    plan_is_charge(llama_path, pooled, 1);
    plan_is_charge(bert_path, NULL, 0);
}

static const char *const cache_types[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"};
enum { CACHE_TYPES = sizeof cache_types / sizeof *cache_types };

static void test_plans_tell_the_sequences_and_the_types_of_the_cache(void **state)
{
    (void)state;
    static const weir_setting several[] = {{"sequences", "4"}}, many[] = {{"sequences", "7"}, {"context", "300"}};
    static const weir_setting plain_attention[] = {{"sequences", "3"}, {"flash_attention", "off"}, {"cache_k", "q8_0"}};
    plan_is_charge(wide_path, several, 1);
    plan_is_charge(wide_path, many, 2);
    plan_is_charge(wide_path, plain_attention, 3);
    /* Every type, as that of keys beside another one of values. */
    for (int k = 0; k < CACHE_TYPES; k++) {
        const weir_setting types[] = {
            {"cache_k", cache_types[k]}, {"cache_v", cache_types[(k + 4) % CACHE_TYPES]}, {"sequences", "2"}};
        plan_is_charge(wide_path, types, 3);
    }
    /* Embedding models that are decoders have a cache, too. */
    const weir_setting pooled[] = {{"cache_k", "q4_0"}, {"cache_v", "q8_0"}, {"pooling", "last"}};
    plan_is_charge(wide_path, pooled, 3);
}

static void test_the_plan_of_an_elastic_cache_is_what_a_first_run_needs(void **state)
{
    (void)state;
    static const weir_setting few[] = {{"context", "4096"}, {"cache_memory", "elastic"}};
    static const weir_setting promised[] = {{"context", "4096"}, {"cache_memory", "promised"}};
    bench it = bench_open(wide_path, 1ull << 28);
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    it.load.settings = few;
    it.load.setting_count = 2;
    OK(it.engine->plan(&it.load, &plan));
    assert_int_equal(plan.bytes[WEIR_CLASS_KV], 256 * 2 * 2 * 64 * 2); /* of 2 layers, with 64 keys and values a cell */
    assert_false(plan.exact[WEIR_CLASS_KV]);
    it.load.settings = promised;
    OK(it.engine->plan(&it.load, &plan));
    assert_int_equal(plan.bytes[WEIR_CLASS_KV], 4096 * 2 * 2 * 64 * 2);
    assert_true(plan.exact[WEIR_CLASS_KV]);
    bench_close(&it);
}

/* 4 sequences of 256 cells; 2 layers with 2 heads of 32 keys and values each. */
static void test_a_cache_takes_what_its_types_take(void **state)
{
    (void)state;
    static const weir_setting four[] = {
        {"sequences", "4"}, {"cache_k", "q8_0"}, {"cache_v", "q4_0"}, {"cache_memory", "whole"}};
    bench it = bench_open(wide_path, 1ull << 28);
    weir_engine_model *model = NULL;
    OK(bench_load(&it, four, 4, &model));
    assert_int_equal(stats_of(&it).live_class[WEIR_CLASS_KV], 4 * 256 * 2 * 2 * (34 + 18));
    assert_int_equal(stats_of(&it).live_class[WEIR_CLASS_ACTIVATIONS], (4 * 286 * 4 + 255) / 256 * 256);
    it.engine->unload(model);
    /* Each has the whole context, rounded up. */
    static const weir_setting wide[] = {{"sequences", "3"}, {"context", "300"}, {"cache_memory", "whole"}};
    OK(bench_load(&it, wide, 3, &model));
    assert_int_equal(stats_of(&it).live_class[WEIR_CLASS_KV], 3 * 512 * 2 * 2 * (64 + 64));
    it.engine->unload(model);
    bench_close(&it);
}

static void test_wrong_caches_are_refused_before_llama_cpp_is_asked(void **state)
{
    (void)state;
    static const struct {
        weir_setting settings[2];
        const char *words;
    } wrong[] = {
        {{{"cache_v", "q8_0"}, {"flash_attention", "off"}}, "needs flash attention"},
        {{{"cache_v", "iq4_nl"}, {"flash_attention", "OFF"}}, "needs flash attention"},
        {{{"cache_k", "q2_k"}, {"threads", "1"}}, "'cache_k' is f32"},
        {{{"cache_v", "int8"}, {"threads", "1"}}, "'cache_v' is f32"},
        {{{"flash_attention", "maybe"}, {"threads", "1"}}, "auto, on or off"},
        {{{"sequences", "0"}, {"threads", "1"}}, "from 1 to 256"},
        {{{"sequences", "257"}, {"threads", "1"}}, "from 1 to 256"},
        {{{"rope_frequency_base", "-1"}, {"threads", "1"}}, "rope_frequency_base"},
    };
    bench it = bench_open(wide_path, 1ull << 28);
    weir_engine_model *model = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(bench_load(&it, wrong[i].settings, 2, &model), WEIR_ERR_INVALID);
        if (!strstr(weir_detail(), wrong[i].words))
            print_error("'%s' is not in: %s\n", wrong[i].words, weir_detail());
        assert_non_null(strstr(weir_detail(), wrong[i].words));
    }
    /* Heads of 8 are no whole blocks of 32: llama.cpp's own words. */
    const weir_setting narrow = {"cache_k", "q4_0"};
    it.load.path = llama_path;
    assert_int_not_equal(bench_load(&it, &narrow, 1, &model), WEIR_OK);
    assert_non_null(strstr(weir_detail(), "block size"));
    bench_close(&it);
}

static void test_plan_of_store(void **state)
{
    (void)state;
    char path[512];
    if (store_model("tiny-llama.gguf", path, sizeof path))
        plan_is_charge(path, NULL, 0);
    if (store_model("minilm.gguf", path, sizeof path))
        plan_is_charge(path, NULL, 0);
}

/* Every class has the size it must have by the model's shape. */
static void test_classes(void **state)
{
    (void)state;
    static const weir_setting whole[] = {{"cache_memory", "whole"}};
    bench it = bench_open(llama_path, 1ull << 28);
    weir_engine_model *model = NULL;
    OK(bench_load(&it, whole, 1, &model));
    weir_client_stats stats = stats_of(&it);
    /* context 128 becomes 256 cells; f16 keys and values of 2 heads of 8 in 2 layers */
    assert_int_equal(stats.live_class[WEIR_CLASS_KV], 256 * 2 * 2 * 2 * 8 * 2);
    assert_int_equal(stats.live_class[WEIR_CLASS_ACTIVATIONS], (286 * 4 + 255) / 256 * 256);
    assert_true(stats.live_class[WEIR_CLASS_WEIGHTS] >=
                (2 * 286 * 32 + 2 * (3 * 32 * 64 + 2 * 32 * 32 + 2 * 32 * 16)) * sizeof(float));
    assert_true(stats.live_class[WEIR_CLASS_SCRATCH] > 0);
    it.engine->unload(model);
    bench_close(&it);
}

/* ---- failing allocations ---------------------------------------------------------------------------------------- */

static void set_maximum(const bench *it, uint64_t maximum)
{
    OK(weir_client_set_limits(it->client, 0, maximum));
}

static void every_allocation_fails(const char *path, const weir_setting *settings, size_t count)
{
    bench it = bench_open(path, 1ull << 28);
    weir_client_options named = WEIR_INIT(weir_client_options);
    weir_client *neighbour = NULL;
    weir_engine_model *other = NULL, *model = NULL;
    named.name = "neighbour";
    OK(weir_client_create(it.runtime, &named, &neighbour));
    weir_engine_place place = {it.runtime, neighbour};
    weir_engine_load load = it.load;
    load.path = llama_path;
    load.places = &place;
    load.place_count = 1;
    OK(it.engine->load(&load, &other));
    OK(bench_load(&it, settings, count, &model));
    uint64_t whole = stats_of(&it).live;
    it.engine->unload(model);

    int refused = 0;
    for (uint64_t maximum = 256; maximum < whole; maximum += whole / 24 / 256 * 256 + 256) {
        set_maximum(&it, maximum);
        assert_int_equal(bench_load(&it, settings, count, &model), WEIR_ERR_OUT_OF_MEMORY);
        assert_non_null(strstr(weir_detail(), "model"));
        weir_refusal refusal = WEIR_INIT(weir_refusal);
        OK(weir_refusal_last(&refusal));
        assert_int_equal(refusal.cause, WEIR_CAUSE_MAXIMUM);
        assert_string_equal(refusal.client, "model");
        assert_int_equal(stats_of(&it).live, 0);
        refused++;
    }
    assert_true(refused > 10);
    run_once(&it, other);
    it.engine->unload(other);
    set_maximum(&it, whole);
    OK(bench_load(&it, settings, count, &model));

    /* Nothing is left for the results of a run. */
    weir_tensor input = text_input("a cab. bed 17\nfade");
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(&input, NULL, 0);
    assert_int_equal(it.engine->infer(model, &inference, &outputs), WEIR_ERR_OUT_OF_MEMORY);
    assert_true(stats_of(&it).live <= whole); /* an output buffer that could not grow is gone until the next run */
    set_maximum(&it, 0);
    run_once(&it, model);
    it.engine->unload(model);
    OK(weir_client_destroy(neighbour));
    bench_close(&it);
}

static void test_failing_llama(void **state)
{
    (void)state;
    static const weir_setting several[] = {{"sequences", "4"}};
    every_allocation_fails(llama_path, NULL, 0);
    every_allocation_fails(llama_path, several, 1);
}

static void test_failing_bert(void **state)
{
    (void)state;
    every_allocation_fails(bert_path, NULL, 0);
}

/* More texts at once than at load need a larger output buffer; without it the run fails and the next one works. */
static void test_growing_output_fails(void **state)
{
    (void)state;
    bench it = bench_open(bert_path, 1ull << 28);
    weir_engine_model *model = NULL;
    OK(bench_load(&it, NULL, 0, &model));
    set_maximum(&it, stats_of(&it).live + 1024);
    weir_tensor input = text_input("abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz");
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(&input, NULL, 0);
    assert_int_equal(it.engine->infer(model, &inference, &outputs), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_detail(), "model"));
    OK(it.engine->health(model));
    set_maximum(&it, 0);
    OK(it.engine->infer(model, &inference, &outputs));
    it.engine->release_outputs(model, &outputs);
    it.engine->unload(model);
    bench_close(&it);
}

/* ---- outside ---------------------------------------------------------------------------------------------------- */

static bool is_weirs(unsigned long address)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    return weir_block_info((const void *)address, &details) == WEIR_OK;
}

/* Touched anonymous memory, without the mappings that weir's blocks lie in. */
static uint64_t anonymous_outside(void)
{
    char line[512];
    unsigned long first = 0, last = 0;
    uint64_t sum = 0, kib = 0;
    malloc_trim(0);
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
            continue;
        else if (sscanf(line, "Anonymous: %lu kB", &kib) == 1 && kib > 0 && !is_weirs(first) && !is_weirs(last - 1))
            sum += kib * 1024;
    fclose(maps);
    return sum;
}

static uint64_t outside_of(const char *path, uint64_t *weights)
{
    bench it = bench_open(path, 1ull << 30);
    weir_engine_model *model = NULL;
    uint64_t before = anonymous_outside();
    OK(bench_load(&it, NULL, 0, &model));
    run_once(&it, model);
    uint64_t after = anonymous_outside();
    *weights = stats_of(&it).live_class[WEIR_CLASS_WEIGHTS];
    it.engine->unload(model);
    bench_close(&it);
    return after > before ? after - before : 0;
}

static void test_outside(void **state)
{
    (void)state;
    char path[512];
    uint64_t weights = 0, outside = 0;
    /* A sanitizer's shadow memory is anonymous memory too. */
    if (getenv("WEIR_SANITIZED") || !store_model("minilm.gguf", path, sizeof path))
        skip();
    the_engine();
    outside = outside_of(path, &weights);
    print_message("minilm.gguf: outside %.1f MB, weights %.1f MB\n", (double)outside / 1e6, (double)weights / 1e6);
    assert_true(outside * 10 < weights);
    if (!store_model("tiny-llama.gguf", path, sizeof path))
        return;
    outside = outside_of(path, &weights);
    print_message("tiny-llama.gguf: outside %.1f MB, weights %.1f MB\n", (double)outside / 1e6, (double)weights / 1e6);
    assert_true(outside < weights / 3);
}

/* A thread that is not at work for a model of ours gets ggml's own memory. */
static void test_others_keep_theirs(void **state)
{
    (void)state;
    bench it = bench_open(llama_path, 1ull << 28);
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    weir_engine_model *model = NULL;
    OK(it.engine->probe(&probe));
    OK(bench_load(&it, NULL, 0, &model));
    uint64_t allocations = stats_of(&it).allocations;
    plain other = plain_library(probe.library);
    plain_open(&other, llama_path, false, 128, 128, 1);
    plain_close(&other);
    assert_int_equal(stats_of(&it).allocations, allocations);
    it.engine->unload(model);
    bench_close(&it);
}

/* With `mmap` the weights stay in the file's pages, and the remarks say so. */
static void test_mapped(void **state)
{
    (void)state;
    bench it = bench_open(llama_path, 1ull << 28);
    weir_engine_model *model = NULL;
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_setting mapped = {"mmap", "1"};
    OK(bench_load(&it, &mapped, 1, &model));
    OK(it.engine->info(model, &info));
    assert_int_equal(stats_of(&it).live_class[WEIR_CLASS_WEIGHTS], 0);
    assert_non_null(strstr(info.remarks, "mapped"));
    run_once(&it, model);
    it.engine->unload(model);
    bench_close(&it);
}

static void count_past_the_cache(weir_log_level level, const char *text, void *user)
{
    unsigned long long *given = user;
    (void)level;
    (void)sscanf(text, "gguf: %llu of", given);
}

/* Loads the file, which is not in the page cache then, and answers how many bytes came past the cache. */
static unsigned long long load_cold(const char *path, bool direct, bool drops, char *answer, size_t capacity)
{
    unsigned long long given = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0 && fsync(file) == 0);
    if (drops)
        assert_int_equal(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
    OK(weir_log_set(count_past_the_cache, &given, WEIR_LOG_DEBUG));
    bench it = bench_open(path, 1ull << 28);
    weir_engine_model *model = NULL;
    const weir_setting setting = {"direct", direct ? "1" : "0"};
    OK(bench_load(&it, &setting, 1, &model));
    weir_tensor input = text_input("a cab. bed 17\nfade");
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(&input, NULL, 0);
    OK(it.engine->infer(model, &inference, &outputs));
    assert_true(outputs.tensors[0].bytes > 0 && outputs.tensors[0].bytes <= capacity);
    memset(answer, 0, capacity);
    memcpy(answer, outputs.tensors[0].data, outputs.tensors[0].bytes);
    it.engine->release_outputs(model, &outputs);
    it.engine->unload(model);
    bench_close(&it);
    OK(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
    close(file);
    return given;
}

/* Long enough that what is read of its head brings not all of it into the cache. */
static bool copy_of_store(const char *name, char *out, size_t capacity)
{
    char path[512];
    static char piece[1 << 16];
    if (!store_model(name, path, sizeof path))
        return false;
    snprintf(out, capacity, "weir-cold-%d.gguf", (int)getpid());
    int from = open(path, O_RDONLY | O_CLOEXEC), to = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(from >= 0 && to >= 0);
    for (ssize_t got; (got = read(from, piece, sizeof piece)) > 0;)
        assert_int_equal(write(to, piece, (size_t)got), got);
    close(from);
    close(to);
    return true;
}

/* Where the test's files lie in memory alone, or cannot be read so, all loads are through the cache. */
static void test_weights_past_the_page_cache(void **state)
{
    (void)state;
    static char usual[1 << 16], direct[1 << 16];
    char path[64];
    if (!copy_of_store("minilm.gguf", path, sizeof path))
        return;
    assert_int_equal(load_cold(path, false, true, usual, sizeof usual), 0);
    unsigned long long given = load_cold(path, true, true, direct, sizeof direct);
    assert_memory_equal(usual, direct, sizeof usual);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    assert_true(file < 0 || given > (1 << 20));
    if (file >= 0)
        close(file);
    assert_int_equal(load_cold(path, false, true, usual, sizeof usual), 0); /* which brings it all there */
    assert_int_equal(load_cold(path, true, false, direct, sizeof direct), 0);
    assert_memory_equal(usual, direct, sizeof usual);
    unlink(path);
}

/* By the file alone, and laid out by llama.cpp; the rest of it is what the load takes. */
static void test_a_plan_of_mapped_weights_has_none(void **state)
{
    static const weir_setting mapped[] = {{"mmap", "1"}, {"cache_memory", "whole"}};
    const char *const paths[] = {llama_path, bert_path};
    (void)state;
    for (int i = 0; i < 2; i++) {
        bench it = bench_open(paths[i], 1ull << 28);
        weir_engine_model *model = NULL;
        OK(bench_load(&it, mapped, 2, &model));
        weir_client_stats stats = stats_of(&it);
        it.engine->unload(model);
        for (int quick = 0; quick < 2; quick++) {
            weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
            it.load.quick = quick;
            OK(it.engine->plan(&it.load, &plan));
            assert_int_equal(plan.bytes[WEIR_CLASS_WEIGHTS], 0);
            assert_false(plan.exact[WEIR_CLASS_WEIGHTS]);
            for (int k = 0; k < WEIR_CLASS_COUNT && !quick; k++)
                assert_int_equal(plan.bytes[k], stats.live_class[k]);
            for (int k = 0; k < WEIR_CLASS_COUNT; k++)
                assert_int_equal(plan.source[k], quick ? WEIR_PREDICTED_METADATA : WEIR_PREDICTED_DRY_RUN);
        }
        bench_close(&it);
    }
}

/* Settings that take other memory have another number, and those that do not have the same. */
static void test_settings_have_a_number(void **state)
{
    static const weir_setting settings[][2] = {
        {{"threads", "1"}, {"context", "64"}},     {{"threads", "2"}, {"context", "64"}},
        {{"temperature", "1"}, {"context", "64"}}, {{"threads", "1"}, {"context", "65"}},
        {{"batch", "7"}, {"context", "64"}},       {{"sequences", "2"}, {"context", "64"}},
        {{"cache_k", "f32"}, {"context", "64"}}};
    enum { ALL = sizeof settings / sizeof *settings, SAME = 3 };
    uint64_t numbers[ALL];
    (void)state;
    for (int i = 0; i < ALL; i++) {
        weir_engine_load load = WEIR_INIT(weir_engine_load);
        weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
        load.path = llama_path;
        load.settings = settings[i];
        load.setting_count = 2;
        load.quick = true;
        OK(the_engine()->plan(&load, &plan));
        numbers[i] = plan.settings;
        assert_true(numbers[i] != 0);
        for (int k = 0; k < i; k++)
            assert_int_equal(numbers[i] == numbers[k], i < SAME);
    }
}

int main(void)
{
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-memory-%d-l.gguf", (int)getpid());
    snprintf(bert_path, sizeof bert_path, "/tmp/weir-memory-%d-b.gguf", (int)getpid());
    write_llama(llama_path, &small_shape);
    write_bert(bert_path, &small_shape);
    /* Heads of 32, as many as a block of the quantised types has values. */
    model_shape wide = {.layers = 2, .width = 64, .heads = 2, .heads_kv = 2, .wide = 64, .context = 256};
    snprintf(wide_path, sizeof wide_path, "/tmp/weir-memory-%d-w.gguf", (int)getpid());
    write_llama(wide_path, &wide);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plans_tell_the_sequences_and_the_types_of_the_cache),
        cmocka_unit_test(test_a_cache_takes_what_its_types_take),
        cmocka_unit_test(test_the_plan_of_an_elastic_cache_is_what_a_first_run_needs),
        cmocka_unit_test(test_wrong_caches_are_refused_before_llama_cpp_is_asked),
        cmocka_unit_test(test_plan_of_store),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_failing_llama),
        cmocka_unit_test(test_failing_bert),
        cmocka_unit_test(test_growing_output_fails),
        cmocka_unit_test(test_others_keep_theirs),
        cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_weights_past_the_page_cache),
        cmocka_unit_test(test_a_plan_of_mapped_weights_has_none),
        cmocka_unit_test(test_settings_have_a_number),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(llama_path);
    unlink(bert_path);
    unlink(wide_path);
    return failed;
}
