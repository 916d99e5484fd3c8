/* What is wrong with manifests: every problem, with its line and column. */
#include "manifest/manifest.h"
#include <weir/manifest.h>

#define IN(keys)      "{\"model_file\": \"m.onnx\",\n" keys "}"
#define WANTED(keys)  IN("\"hardware_requirements\": {\n" keys "}")
#define PROBLEMS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NONE          ((const char *const[]){NULL})

static int folder_with_model(void **state)
{
    int status = folder_make(state);
    write_model("m.onnx");
    return status;
}

static void what_is_no_json_says_where(void **state)
{
    (void)state;
    has_problems("", PROBLEMS("1:1 no JSON"));
    has_problems("{\"a\": 1,\n  \"b\" 2}", PROBLEMS("2:7 ':' expected near '2'"));
    has_problems("{\"é\": tru}", PROBLEMS("1:9 no JSON"));
    has_problems("{\"a\": \"\xff\"}", PROBLEMS("1:7 byte 0xff"));
    has_problems("{\"a\": 99999999999999999999}", PROBLEMS("1:26 too big integer"));
    has_problems("{\"model_file\": \"m\\u0000\"}", PROBLEMS("1:24 NUL"));
    has_problems("{} {}", PROBLEMS("1:4 end of file expected"));
    has_problems("[1]", PROBLEMS("1:1 is a list"));
    has_problems(" \n 3", PROBLEMS("2:2 is a whole number"));
}

static void keys_are_known_and_once(void **state)
{
    (void)state;
    has_problems(IN("\"hardware_requirement\": {}"), PROBLEMS("2:1 nearest is \"hardware_requirements\""));
    has_problems(IN("\"tunning\": 1, \"é\": 2, \"zzz\": 3"),
                 PROBLEMS("2:1 nearest is \"tuning\"", "2:15 no key \"é\"", "2:23 no key \"zzz\""));
    has_problems(IN("\"min_vram_mb\": 3"), PROBLEMS("2:1 belongs into hardware_requirements"));
    has_problems(WANTED("\"model_file\": \"x\""), PROBLEMS("3:1 outside of hardware_requirements"));
    has_problems(WANTED("\"min_vramm\": 3"), PROBLEMS("3:1 nearest is \"min_vram\""));
    has_problems(IN("\"name\": \"a\", \"n\\u0061me\": 3"), PROBLEMS("2:14 \"name\" is there twice"));
    has_problems(IN("\"hardware_requirements\": 3, \"hardware_requirements\": {\"x\": 1}"),
                 PROBLEMS("2:29 there twice"));
    has_problems("{\"model_file\": \"m.onnx\", \"model_file\": \"m.onnx\"}",
                 PROBLEMS("1:26 \"model_file\" is there twice"));
    has_problems(IN("\"tuning\": {\"a\": 1, \"a\": \"x\"}"), PROBLEMS("2:20 \"a\" is there twice"));
    has_problems(IN("\"metadata\": [{\"a\": 1, \"a\": 2}]"), PROBLEMS("2:23 \"a\" is there twice"));
    has_problems(IN("\"x\\u001b[2J\": 1"), PROBLEMS("2:1 no key \"x?[2J\""));
}

static void values_have_their_types(void **state)
{
    (void)state;
    has_problems("{\"model_file\": 3}", PROBLEMS("1:16 a text"));
    has_problems("{\"model_file\": \"\"}", PROBLEMS("1:16 empty"));
    has_problems("{\"name\": \"x\"}", PROBLEMS("1:1 model_file is missing"));
    has_problems("{\"model_file\": null}", PROBLEMS("1:1 model_file is missing"));
    has_problems(IN("\"version\": 1.0, \"task\": [], \"created_at\": 3"),
                 PROBLEMS("2:12 a text", "2:25 a text", "2:43 a text"));
    has_problems(IN("\"hardware_requirements\": []"), PROBLEMS("2:26 an object"));
    has_problems(IN("\"tuning\": [1]"), PROBLEMS("2:11 an object"));
    has_problems(IN("\"tuning\": {\"a\": {}, \"b\": [1]}"), PROBLEMS("2:17 a is an object", "2:26 b is a list"));
    has_problems(IN("\"cron_jobs\": [{\"at\": \"0 0 * * *\"}]"), PROBLEMS("2:14 cron_jobs"));
    has_problems(WANTED("\"fallback_providers\": \"cpu\""), PROBLEMS("3:23 a list"));
    has_problems(WANTED("\"fallback_providers\": [\n\"cpu\",\n 3]"), PROBLEMS("5:2 a text"));
    has_problems(WANTED("\"optimized_for\": [\"x\", 1]"), PROBLEMS("3:24 a text"));
    has_problems(WANTED("\"allow_cpu\": 1"), PROBLEMS("3:14 \"listed\""));
    has_problems(WANTED("\"allow_cpu\": \"never\""), PROBLEMS("3:14 \"listed\""));
    has_problems(WANTED("\"graph_optimization_level\": 99"), PROBLEMS("3:29 a text"));
}

/* What the load would refuse: settings and levels that the model's engine has none of. */
static void tuning_has_a_meaning_for_the_engine(void **state)
{
    (void)state;
    write_text("m.gguf", "GGUF");
    has_problems("{\"model_file\": \"m.gguf\", \"tuning\": {\"threads\": 2,\n \"peak_concurrency_hint\": 2, "
                 "\"session_buckets\": 4}}",
                 PROBLEMS("2:2 peak_concurrency_hint has no meaning for the engine gguf",
                          "2:30 session_buckets has no meaning for the engine gguf"));
    has_problems("{\"model_file\": \"m.gguf\", \"hardware_requirements\": {\n\"graph_optimization_level\": \"Basic\"}}",
                 PROBLEMS("2:29 the engine gguf has no levels"));
    has_problems("{\"model_file\": \"m.gguf\", \"hardware_requirements\": {\"graph_optimization_level\": \"ALL\"}}",
                 NONE);
    assert_int_equal(mkdir("phi", 0700), 0);
    write_text("phi/genai_config.json", "{}");
    has_problems("{\"model_file\": \"phi\", \"tuning\": {\"sequences\": 2,\n \"session_buckets\": 2}}",
                 PROBLEMS("2:2 session_buckets has no meaning for the engine llm"));
    has_problems("{\"model_file\": \"phi\", \"hardware_requirements\": {\n\"graph_optimization_level\": \"basic\"}}",
                 PROBLEMS("2:29 the engine llm has no levels"));
    has_problems(WANTED("\"graph_optimization_level\": \"Basic\", \"allow_cpu\": \"Listed\""), NONE);
    has_problems(
        IN("\"tuning\": {\"session_buckets\": \"many\", \"bucket_max_dims\": 2.5}"),
        PROBLEMS("2:31 session_buckets is \"many\"; it has to be a whole number", "2:58 bucket_max_dims is \"2.5\""));
    has_problems(IN("\"tuning\": {\"session_buckets\": 2, \"bucket_max_dims\": -1}"),
                 PROBLEMS("2:53 bucket_max_dims is \"-1\""));
    has_problems(IN("\"tuning\": {\"disable_cpu_mem_arena\": 2}"), PROBLEMS("2:37 has to be true or false"));
    has_problems(IN("\"tuning\": {\"buckets\": 2, \"session_buckets\": 2}"),
                 PROBLEMS("2:26 session_buckets says again what buckets says"));
}

/* D30: an empty name was a provider, one that is not known was passed over, a negative device became a huge one. */
static void words_and_ranges_d30(void **state)
{
    (void)state;
    has_problems(IN("\"framework\": \"safetensors\""), PROBLEMS("2:14 there are onnx, gguf, llm"));
    has_problems(WANTED("\"preferred_provider\": \"cudaa\""),
                 PROBLEMS("3:23 \"cudaa\" is no provider; there are tensorrt"));
    has_problems(WANTED("\"fallback_providers\": [\"cpu\", \"\"]"),
                 PROBLEMS("3:31 \"\" is no provider; there are tensorrt"));
    has_problems(WANTED("\"strategy\": \"all\""), PROBLEMS("3:13 round-robin"));
    has_problems(WANTED("\"strategy\": \"layer-split\""), PROBLEMS("3:13 does not do yet"));
    has_problems(WANTED("\"graph_optimization_level\": \"most\""), PROBLEMS("3:29 basic"));
    has_problems(WANTED("\"required_precision\": \"int3\""), PROBLEMS("3:23 the nearest is int8"));
    has_problems(WANTED("\"device_id\": -1"), PROBLEMS("3:14 no device -1"));
    has_problems(WANTED("\"device_id\": 2147483648"), PROBLEMS("3:14 no device 2147483648"));
    has_problems(WANTED("\"device_id\": 1.0"), PROBLEMS("3:14 a whole number"));
    has_problems(WANTED("\"gpu_device_ids\": [0, 1, 0]"), PROBLEMS("3:26 device 0 is there twice"));
    has_problems(WANTED("\"min_provider_coverage\": 1.01"), PROBLEMS("3:26 0 to 1"));
    has_problems(WANTED("\"min_provider_coverage\": -0.1"), PROBLEMS("3:26 0 to 1"));
}

static void sizes_say_their_unit(void **state)
{
    (void)state;
    has_problems(WANTED("\"min_vram_mb\": -1"), PROBLEMS("3:16 is -1"));
    has_problems(WANTED("\"min_vram_mb\": 17592186044416"), PROBLEMS("3:16 to 17592186044415"));
    has_problems(WANTED("\"min_vram_mb\": \"1GiB\""), PROBLEMS("3:16 whole number of MiB"));
    has_problems(WANTED("\"min_vram_mb\": 0.5"), PROBLEMS("3:16 whole number of MiB"));
    has_problems(WANTED("\"min_vram\": 8"), PROBLEMS("3:13 \"8GiB\""));
    has_problems(WANTED("\"min_vram\": \"lots\""), PROBLEMS("3:13 \"lots\" is no size"));
    has_problems(WANTED("\"min_vram\": \"1GiB\", \"min_vram_mb\": 1024"), PROBLEMS("3:21 again what min_vram says"));
    has_problems(WANTED("\"gpu_memory_limit_mb\": 3, \"gpu_memory_limit\": \"3MiB\""), PROBLEMS("3:27 again"));
}

/* D27: versions are no numbers and no texts to be compared letter by letter. */
static void versions_are_texts_d27(void **state)
{
    (void)state;
    has_problems(WANTED("\"min_cuda_version\": 12.10"),
                 PROBLEMS("3:21 is a text, \"12.10\": as a number, 12.10 would be 12.1"));
    has_problems(WANTED("\"min_cuda_version\": 13"), PROBLEMS("3:21 \"13\""));
    has_problems(WANTED("\"min_driver_version\": \"new\""), PROBLEMS("3:23 \"new\" is no version"));
    has_problems(WANTED("\"min_compute_capability\": [7, 5]"), PROBLEMS("3:27 a text with a version"));
}

static void what_weir_cannot_do_is_refused(void **state)
{
    (void)state;
    has_problems(WANTED("\"gpu_compute_share_milli\": 500"), PROBLEMS("3:28 only 1000"));
    has_problems(WANTED("\"gpu_compute_share_milli\": 1001"), PROBLEMS("3:28 only 1000"));
    has_problems(WANTED("\"gpu_compute_share_milli\": \"all\""), PROBLEMS("3:28 a whole number"));
    has_problems(WANTED("\"isolation_mode\": \"hard\""), PROBLEMS("3:19 \"hard\" cannot be had"));
    has_problems(WANTED("\"isolation_mode\": \"reserved\""), PROBLEMS("3:19 wants gpu_memory_reservation_mb"));
    has_problems(WANTED("\"isolation_mode\": \"best_effort\", \"gpu_compute_share_milli\": 1000"), NONE);
    has_problems(WANTED("\"isolation_mode\": \"reserved\", \"gpu_memory_reservation_mb\": 0"),
                 PROBLEMS("3:19 wants gpu_memory_reservation_mb"));
    has_problems(WANTED("\"isolation_mode\": \"reserved\", \"gpu_memory_reservation_mb\": 1"), NONE);
    has_problems(WANTED("\"isolation_mode\": \"soft\""), PROBLEMS("3:19 best_effort, reserved, hard"));
}

static void keys_do_not_contradict(void **state)
{
    (void)state;
    has_problems(IN("\"name\": \"a\", \"project_name\": \"b\""), PROBLEMS("2:14 project_name says again"));
    has_problems(WANTED("\"gpu_device_ids\": [0], \"device_id\": 0"), PROBLEMS("3:24 device_id says again"));
    has_problems(WANTED("\"gpu_memory_reservation_mb\": 2, \"gpu_memory_limit\": \"1MiB\""),
                 PROBLEMS("3:30 gpu_memory_reservation_mb is more than gpu_memory_limit"));
    has_problems(WANTED("\"allow_cpu\": false, \"fallback_providers\": [\"CPU\"]"), PROBLEMS("3:14 keep one"));
    has_problems(WANTED("\"allow_cpu\": true, \"preferred_provider\": \"cpu\""), NONE);
    has_problems(IN("\"framework\": \"gguf\", \"format\": \"gguf\""),
                 PROBLEMS("2:14 a model for \"onnx\"", "2:32 in the format \"onnx\""));
    has_problems(IN("\"framework\": \"llm\""), PROBLEMS("2:14 a folder with genai_config.json"));
    assert_int_equal(mkdir("phi", 0700), 0);
    write_text("phi/genai_config.json", "{}");
    has_problems("{\"model_file\": \"phi/\",\n\"framework\": \"onnx\", \"format\": \"onnx\"}",
                 PROBLEMS("2:14 a model for \"llm\"", "2:32 in the format \"genai\""));
}

static void the_model_is_there(void **state)
{
    (void)state;
    write_text("x.safetensors", "x");
    write_text("other.json", "{}");
    has_problems("{\"model_file\": \"gone.onnx\"}", PROBLEMS("1:16 there is no \"gone.onnx\"; a relative path begins"));
    assert_int_equal(symlink("round.onnx", "round.onnx"), 0);
    has_problems("{\"model_file\": \"round.onnx\"}", PROBLEMS("1:16 cannot look at \"round.onnx\": Too many levels"));
    has_problems("{\"model_file\": \"x.safetensors\"}", PROBLEMS("1:16 safetensors"));
    has_problems("{\"model_file\": \"other.json\"}", PROBLEMS("1:16 no model"));
    has_problems("{\"model_file\": \".\"}", PROBLEMS("1:16 genai_config.json"));
}

static void all_of_them_are_found(void **state)
{
    (void)state;
    has_problems("{\"nam\": 1, \"framework\": \"x\",\r\n\t\"hardware_requirements\": {\"min_memory_mb\": -1,\n\n"
                 "  \"strategy\": \"\", \"min_memory\": \"1\"}, \"version\": {}}",
                 PROBLEMS("1:1 model_file is missing", "1:2 nearest is \"name\"", "1:25 no framework", "2:45 is -1",
                          "4:15 is no strategy", "4:19 again", "4:50 a text"));
}

static void a_byte_of_zero_is_found(void **state)
{
    (void)state;
    static const char text[] = "{\"model_file\": \"m.onnx\",\n \"tuning\": {\"threads\": 1\0002}}";
    write_bytes("zero.json", text, sizeof text - 1);
    weir_manifest_problems *list = check_path("zero.json");
    assert_int_equal(list->count, 1);
    assert_int_equal(list->problems[0].line, 2);
    assert_int_equal(list->problems[0].column, 25);
    weir_manifest_problems_destroy(list);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_with_model, folder_remove)
    const struct CMUnitTest tests[] = {
        TEST(what_is_no_json_says_where),
        TEST(a_byte_of_zero_is_found),
        TEST(keys_are_known_and_once),
        TEST(values_have_their_types),
        TEST(tuning_has_a_meaning_for_the_engine),
        TEST(words_and_ranges_d30),
        TEST(sizes_say_their_unit),
        TEST(versions_are_texts_d27),
        TEST(what_weir_cannot_do_is_refused),
        TEST(keys_do_not_contradict),
        TEST(the_model_is_there),
        TEST(all_of_them_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
