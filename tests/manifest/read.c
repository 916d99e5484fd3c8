/* What good manifests, model files and folders become. */
#include "manifest/manifest.h"
#include <weir/manifest.h>

#define assert_same_version(a, ...)                                                                                    \
    do {                                                                                                               \
        weir_version_number wanted_ = __VA_ARGS__;                                                                     \
        assert_memory_equal(&(a), &wanted_, sizeof wanted_);                                                           \
    } while (0)

/* Every key of weir's and of Kapsl's (its crate kapsl-core), and where it goes. */
static void every_key_has_its_place(void **state)
{
    (void)state;
    write_model("m.onnx");
    write_text(
        "all.json",
        "{\"framework\": \"onnx\", \"model_file\": \"m.onnx\", \"project_name\": \"bert\", \"version\": \"1.0\",\n"
        "\"created_at\": \"2026-01-01T00:00:00Z\", \"metadata\": {\"a\": [1, {\"b\": null}]}, \"cron_jobs\": [],\n"
        "\"format\": \"onnx\", \"model_type\": \"bert\", \"task\": \"embedding\",\n"
        "\"hardware_requirements\": {\"preferred_provider\": \"CUDA\", \"fallback_providers\": [\"openvino\", "
        "\"cpu\"],\n"
        "\"min_memory_mb\": 8192, \"min_vram\": \"1.5GiB\", \"gpu_memory_reservation_mb\": 256,\n"
        "\"gpu_memory_limit\": \"1GiB\", \"gpu_compute_share_milli\": 1000, \"isolation_mode\": \"reserved\",\n"
        "\"min_cuda_version\": \"12.10\", \"min_driver_version\": \"535.129.03\",\n"
        "\"min_compute_capability\": \"7.5\", \"required_precision\": \"fp16\", \"optimized_for\": [\"latency\"],\n"
        "\"graph_optimization_level\": \"all\", \"gpu_device_ids\": [1, 3], \"strategy\": \"Round-Robin\",\n"
        "\"allow_cpu\": \"listed\", \"min_provider_coverage\": 0.95},\n"
        "\"tuning\": {\"threads\": 4, \"memory_pattern\": true, \"prepack\": false, \"temperature\": 0.7,\n"
        "\"cuda.arena\": \"x\"}}");
    weir_manifest *m = read_manifest("all.json");
    assert_string_equal(m->path, "all.json");
    assert_string_equal(m->framework, "onnx");
    assert_string_equal(m->model_file, "m.onnx");
    assert_string_equal(m->name, "bert");
    assert_string_equal(m->version, "1.0");
    const weir_requirements *r = &m->requirements;
    assert_string_equal(r->preferred_provider, "cuda");
    assert_int_equal(r->fallback_count, 2);
    assert_string_equal(r->fallback_providers[0], "openvino");
    assert_string_equal(r->fallback_providers[1], "cpu");
    assert_int_equal(r->min_memory, UINT64_C(8192) * MIB);
    assert_int_equal(r->min_vram, UINT64_C(1536) * MIB);
    assert_int_equal(r->guaranteed, 256 * MIB);
    assert_int_equal(r->maximum, 1024 * MIB);
    assert_same_version(r->min_cuda_version, (weir_version_number){{12, 10}, 2});
    assert_same_version(r->min_driver_version, (weir_version_number){{535, 129, 3}, 3});
    assert_same_version(r->min_compute_capability, (weir_version_number){{7, 5}, 2});
    assert_string_equal(r->graph_optimization_level, "all");
    assert_int_equal(r->device_count, 2);
    assert_int_equal(r->device_ids[1], 3);
    assert_string_equal(r->strategy, "Round-Robin");
    assert_int_equal(r->cpu, WEIR_CPU_LISTED);
    assert_true(r->min_coverage == 0.95);
    static const char *const settings[][2] = {
        {"threads", "4"}, {"memory_pattern", "on"}, {"prepack", "off"}, {"temperature", "0.7"}, {"cuda.arena", "x"}};
    assert_int_equal(m->setting_count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(m->settings[i].key, settings[i][0]);
        assert_string_equal(m->settings[i].value, settings[i][1]);
    }
    weir_manifest_destroy(m);
    weir_manifest_destroy(NULL);
}

/* Its tuning, by its names: what the engine onnx has by others, in that engine's bounds. */
static void tuning_by_kapsls_names(void **state)
{
    (void)state;
    static const struct {
        const char *tuning, *settings; /* as KEY=VALUE, in their order */
    } cases[] = {
        {"\"session_buckets\": 8", "buckets=8 "},
        {"\"session_buckets\": 8, \"bucket_dim_granularity\": 32, \"bucket_max_dims\": 2",
         "buckets=8 bucket_granularity=32 bucket_dims=2 "},
        {"\"bucket_max_dims\": 99, \"bucket_dim_granularity\": 0, \"session_buckets\": 1000",
         "bucket_dims=16 bucket_granularity=1 buckets=64 "},
        {"\"session_buckets\": 99999999999999999999999", NULL}, /* no number of JSON's */
        {"\"session_buckets\": \"99999999999999999999999\"", "buckets=64 "},
        /* with one bucket it is nobody's how shapes are put into several */
        {"\"session_buckets\": 0, \"bucket_dim_granularity\": 32", "buckets=1 "},
        {"\"bucket_dim_granularity\": 32, \"bucket_max_dims\": 4, \"threads\": 2", "threads=2 "},
        {"\"buckets\": 4, \"bucket_max_dims\": 4", "buckets=4 bucket_dims=4 "},
        {"\"buckets\": 1, \"bucket_max_dims\": 4", "buckets=1 "},
        {"\"peak_concurrency_hint\": 4, \"memory_pattern\": false", "concurrency=4 memory_pattern=off "},
        {"\"peak_concurrency_hint\": 0", "concurrency=0 "},
        {"\"peak_concurrency_hint\": 1000", "concurrency=256 "},
        {"\"disable_cpu_mem_arena\": true", "cpu_arena=off "},
        {"\"disable_cpu_mem_arena\": \"YES\"", "cpu_arena=off "},
        {"\"threads\": 1, \"disable_cpu_mem_arena\": false, \"prepack\": true", "threads=1 prepack=on "},
    };
    write_model("m.onnx");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300], found[300] = "";
        snprintf(text, sizeof text, "{\"model_file\": \"m.onnx\", \"tuning\": {%s}}", cases[i].tuning);
        write_text("tuned.json", text);
        weir_manifest *m = NULL;
        weir_status status = weir_manifest_read("tuned.json", NULL, &m);
        assert_int_equal(status, cases[i].settings ? WEIR_OK : WEIR_ERR_INVALID);
        for (size_t k = 0; m && k < m->setting_count; k++)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s=%s ", m->settings[k].key,
                     m->settings[k].value);
        assert_string_equal(found, m ? cases[i].settings : "");
        weir_manifest_destroy(m);
    }
    write_text("m.toy", "3 1 2 3"); /* what they mean to another engine is its own */
    write_text("tuned.json", "{\"model_file\": \"m.toy\", \"tuning\": {\"session_buckets\": 8}}");
    weir_manifest *m = read_manifest("tuned.json");
    assert_string_equal(m->settings[0].key, "session_buckets");
    weir_manifest_destroy(m);
}

/* Each word for a level, as it is given; a list without providers, asks for none. */
static void words_of_requirements(void **state)
{
    (void)state;
    static const char *const levels[] = {"disable", "0", "basic", "1", "extended", "2", "all", "3", "99"};
    static const char *const lists[] = {"\"fallback_providers\": []",
                                        "\"preferred_provider\": null, \"fallback_providers\": []"};
    char text[200];
    write_model("m.onnx");
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        snprintf(text, sizeof text,
                 "{\"model_file\": \"m.onnx\", \"hardware_requirements\": {\"graph_optimization_level\": \"%s\"}}",
                 levels[i]);
        write_text("level.json", text);
        weir_manifest *m = read_manifest("level.json");
        assert_string_equal(m->requirements.graph_optimization_level, levels[i]);
        weir_manifest_destroy(m);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        snprintf(text, sizeof text, "{\"model_file\": \"m.onnx\", \"hardware_requirements\": {%s}}", lists[i]);
        write_text("list.json", text);
        weir_manifest *m = read_manifest("list.json");
        assert_null(m->requirements.preferred_provider);
        assert_int_equal(m->requirements.fallback_count, 0);
        weir_manifest_destroy(m);
    }
}

static void what_is_not_said_asks_for_nothing(void **state)
{
    (void)state;
    write_model("m.onnx");
    write_text("least.json",
               "\xef\xbb\xbf{\"model_file\": \"m.onnx\", \"hardware_requirements\": {\"preferred_provider\": null,\n"
               "\"fallback_providers\": [], \"device_id\": null, \"gpu_device_ids\": []}, \"tuning\": {\"a\": null}}");
    weir_manifest *m = read_manifest("least.json");
    weir_requirements nothing = {0};
    nothing.fallback_providers = m->requirements.fallback_providers; /* of none */
    assert_memory_equal(&m->requirements, &nothing, sizeof nothing);
    assert_int_equal(m->setting_count, 0);
    assert_null(m->name);
    assert_null(m->version);
    assert_string_equal(m->framework, "onnx");
    weir_manifest_destroy(m);
}

/* D26: sizes are bytes, whoever asks; in Kapsl a host of 16 GiB was one of 16 MB. */
static void sizes_are_bytes_d26(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        uint64_t bytes;
    } sizes[] = {{"min_memory_mb", "0", 0},
                 {"min_memory_mb", "16384", UINT64_C(16) << 30},
                 {"min_memory_mb", "17592186044415", UINT64_MAX - MIB + 1},
                 {"min_memory", "\"16GiB\"", UINT64_C(16) << 30},
                 {"min_memory", "\"16g\"", UINT64_C(16) << 30},
                 {"min_memory", "\"4096\"", 4096}};
    write_model("m.onnx");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"model_file\": \"m.onnx\", \"hardware_requirements\": {\"%s\": %s}}",
                 sizes[i].key, sizes[i].value);
        write_text("size.json", text);
        weir_manifest *m = read_manifest("size.json");
        assert_int_equal(m->requirements.min_memory, sizes[i].bytes);
        weir_manifest_destroy(m);
    }
}

/* Kapsl's two presets, as it writes them. */
static void presets_are_taken(void **state)
{
    (void)state;
    static const char rest[] =
        "\"required_precision\": \"fp32\", \"graph_optimization_level\": \"all\", \"device_id\": 0, "
        "\"strategy\": \"round-robin\", \"isolation_mode\": \"best_effort\", \"min_memory_mb\": null, "
        "\"gpu_compute_share_milli\": null, \"gpu_device_ids\": [], \"optimized_for\": []}}";
    static const char *const presets[] = {"\"cpu\", \"fallback_providers\": []",
                                          "\"cuda\", \"fallback_providers\": [\"cpu\"]"};
    write_model("m.onnx");
    for (size_t i = 0; i < 2; i++) {
        char text[700];
        snprintf(text, sizeof text,
                 "{\"project_name\": \"p\", \"framework\": \"onnx\", \"version\": \"1.0.0\", \"created_at\": \"2026\", "
                 "\"model_file\": \"m.onnx\", \"metadata\": null, \"cron_jobs\": null, \"hardware_requirements\": "
                 "{\"preferred_provider\": %s, %s",
                 presets[i], rest);
        write_text("preset.json", text);
        weir_manifest *m = read_manifest("preset.json");
        assert_int_equal(m->requirements.fallback_count, i);
        assert_string_equal(i ? m->requirements.fallback_providers[0] : m->requirements.preferred_provider, "cpu");
        assert_int_equal(m->requirements.device_count, 1);
        assert_int_equal(m->requirements.device_ids[0], 0);
        weir_manifest_destroy(m);
    }
}

static void precision_is_a_compute_capability(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        weir_version_number least;
    } cases[] = {{"\"required_precision\": \"fp32\"", {{0}, 0}},
                 {"\"required_precision\": \"FP16\"", {{5, 3}, 2}},
                 {"\"required_precision\": \"int8\"", {{6, 1}, 2}},
                 {"\"required_precision\": \"bfloat16\"", {{8, 0}, 2}},
                 {"\"required_precision\": \"fp8\"", {{8, 9}, 2}},
                 {"\"required_precision\": \"fp16\", \"min_compute_capability\": \"5.0\"", {{5, 3}, 2}},
                 {"\"required_precision\": \"fp16\", \"min_compute_capability\": \"10.0\"", {{10, 0}, 2}}};
    write_model("m.onnx");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"model_file\": \"m.onnx\", \"hardware_requirements\": {%s}}", cases[i].keys);
        write_text("precision.json", text);
        weir_manifest *m = read_manifest("precision.json");
        assert_same_version(m->requirements.min_compute_capability, cases[i].least);
        weir_manifest_destroy(m);
    }
}

/* Relative to the manifest, not to where the program runs. */
static void a_model_is_found_from_its_manifest(void **state)
{
    (void)state;
    assert_int_equal(mkdir("deep", 0700), 0);
    assert_int_equal(mkdir("deep/er", 0700), 0);
    write_model("deep/m.onnx");
    write_text("deep/er/x.json", "{\"model_file\": \"../m.onnx\"}");
    weir_manifest *m = read_manifest("deep/er/x.json");
    assert_string_equal(m->model_file, "deep/er/../m.onnx");
    weir_manifest_destroy(m);

    char text[200], wanted[100];
    snprintf(wanted, sizeof wanted, "%s/deep/m.onnx", folder);
    snprintf(text, sizeof text, "{\"model_file\": \"%s\"}", wanted);
    write_text("absolute.manifest", text); /* a manifest by its first byte */
    m = read_manifest("absolute.manifest");
    assert_string_equal(m->model_file, wanted);
    weir_manifest_destroy(m);
}

static void models_stand_for_themselves(void **state)
{
    (void)state;
    assert_int_equal(mkdir("phi", 0700), 0);
    write_text("phi/genai_config.json", "{}");
    write_model("phi/model.onnx");
    write_model("m.onnx");
    write_model("renamed");
    write_bytes("m.GGUF", "GGUF\3\0\0\0", 8);
    write_bytes("blob", "GGUF\3\0\0\0", 8);
    write_text("other.toy", "3 0.5 1 2");
    static const struct {
        const char *path, *framework, *model;
    } models[] = {{"m.onnx", "onnx", "m.onnx"},
                  {"renamed", "onnx", "renamed"},
                  {"m.GGUF", "gguf", "m.GGUF"},
                  {"blob", "gguf", "blob"},
                  {"phi", "llm", "phi"},
                  {"phi/", "llm", "phi/"},
                  {"phi/genai_config.json", "llm", "phi"},
                  {"phi/model.onnx", "onnx", "phi/model.onnx"},
                  {"other.toy", NULL, "other.toy"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        weir_manifest *m = read_manifest(models[i].path);
        assert_string_equal(m->path, models[i].path);
        assert_string_equal(m->model_file, models[i].model);
        if (models[i].framework)
            assert_string_equal(m->framework, models[i].framework);
        else
            assert_null(m->framework);
        weir_manifest_destroy(m);
        weir_manifest_problems *list = check_path(models[i].path);
        assert_int_equal(list->count, 0);
        weir_manifest_problems_destroy(list);
    }
}

static void a_folder_for_genai_is_the_model(void **state)
{
    (void)state;
    assert_int_equal(mkdir("phi", 0700), 0);
    write_text("phi/genai_config.json", "{}");
    write_model("phi/model.onnx");
    static const char *const manifests[][3] = {
        {"a.json", "{\"model_file\": \"phi\"}", "phi"},
        {"b.json", "{\"framework\": \"LLM\", \"model_file\": \"phi/model.onnx\", \"format\": \"genai\"}", "phi"},
        {"phi/c.json", "{\"framework\": \"llm\", \"model_file\": \"model.onnx\"}", "phi"},
        {"d.json", "{\"framework\": \"llm\", \"model_file\": \"phi/genai_config.json\"}", "phi"}};
    for (size_t i = 0; i < sizeof manifests / sizeof *manifests; i++) {
        write_text(manifests[i][0], manifests[i][1]);
        weir_manifest *m = read_manifest(manifests[i][0]);
        assert_string_equal(m->framework, "llm");
        assert_string_equal(m->model_file, manifests[i][2]);
        weir_manifest_destroy(m);
    }
}

static void what_is_no_model_is_refused_by_name(void **state)
{
    (void)state;
    assert_int_equal(mkdir("empty", 0700), 0);
    assert_int_equal(mkfifo("pipe.json", 0600), 0);
    write_bytes("torch.bin", "PK\3\4....", 8);
    write_bytes("weights", "\x40\0\0\0\0\0\0\0{\"__metadata__\"", 20);
    static const char *const refused[][2] = {{"a.safetensors", "safetensors"},
                                             {"b.pt", "PyTorch"},
                                             {"c.tflite", "TensorFlow"},
                                             {"d.plan", "TensorRT"},
                                             {"e.ort", ".onnx"},
                                             {"torch.bin", "PyTorch"},
                                             {"weights", "safetensors"},
                                             {"empty", "genai_config.json"},
                                             {"pipe.json", "neither a file"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        weir_manifest *m = (weir_manifest *)&folder;
        weir_manifest_problems *list = (weir_manifest_problems *)&folder;
        if (i < 5)
            write_text(refused[i][0], "x");
        fails(WEIR_ERR_UNSUPPORTED, weir_manifest_read(refused[i][0], NULL, &m));
        detail_names(refused[i][0]);
        detail_names(refused[i][1]);
        assert_ptr_equal(m, &folder);
        fails(WEIR_ERR_UNSUPPORTED, weir_manifest_check(refused[i][0], NULL, &list));
        assert_ptr_equal(list, &folder);
    }
    weir_manifest *m;
    fails(WEIR_ERR_NOT_FOUND, weir_manifest_read("nowhere.json", NULL, &m));
    detail_names("nowhere.json");
    assert_int_equal(symlink("loop.json", "loop.json"), 0);
    fails(WEIR_ERR_SYSTEM, weir_manifest_read("loop.json", NULL, &m)); /* something is there */
    detail_names("loop.json: Too many levels of symbolic links");
    fails(WEIR_ERR_INVALID, weir_manifest_read("", NULL, &m));
    fails(WEIR_ERR_INVALID, weir_manifest_read(NULL, NULL, &m));
    fails(WEIR_ERR_INVALID, weir_manifest_read("a.json", NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_manifest_read("a.json", &(weir_manifest_options){0}, &m));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_make, folder_remove)
    const struct CMUnitTest tests[] = {
        TEST(every_key_has_its_place),
        TEST(tuning_by_kapsls_names),
        TEST(words_of_requirements),
        TEST(what_is_not_said_asks_for_nothing),
        TEST(sizes_are_bytes_d26),
        TEST(presets_are_taken),
        TEST(precision_is_a_compute_capability),
        TEST(a_model_is_found_from_its_manifest),
        TEST(models_stand_for_themselves),
        TEST(a_folder_for_genai_is_the_model),
        TEST(what_is_no_model_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
