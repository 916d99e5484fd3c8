/* The choice: every verdict, memory, policies, orders, and words that are none. */
#include "choice/fixture.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

/* Verdicts --------------------------------------------------------------------------------------------------------- */

static void what_was_not_asked_for(void **state)
{
    (void)state;
    with_two_cards();
    options.provider = "cuda";
    is_refused(WEIR_VERDICT_NOT_ASKED, "cpu", "cpu", "the provider cuda was asked for");
    options.provider = NULL;
    options.device = "CUDA-1"; /* a key, in any case */
    is_refused(WEIR_VERDICT_NOT_ASKED, "cuda", "cuda-0", "the device CUDA-1 was asked for");
    assert_string_equal(ranking(), "cuda@cuda-1");
    options.device = "cuda:7";
    is_refused(WEIR_VERDICT_NO_DEVICE, "cuda", "", "cuda:7");
    options.device = "GPU-gone";
    is_refused(WEIR_VERDICT_NOT_ASKED, "cuda", "cuda-0", "GPU-gone");
    assert_int_equal(made->accepted, 0);
    assert_non_null(strstr(made->rule, "there is no device GPU-gone; there are cpu, cuda:0 (cuda-0), cuda:1 (cuda-1)"));
    options.device = "host";
    assert_string_equal(ranking(), "cpu@cpu");
    options.engine = "gguf";
    is_refused(WEIR_VERDICT_NOT_ASKED, "cpu", "cpu", "the engine gguf was asked for");
}

static void what_is_not_here(void **state)
{
    (void)state;
    is_refused(WEIR_VERDICT_NO_DEVICE, "cuda", "", "cuda needs a CUDA device");
    assert_int_equal(candidate(made, "gguf", "cpu", "cpu")->verdict, WEIR_VERDICT_OTHER_FORMAT);
    weir_hardware_device *card = machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    static const struct {
        weir_provider_state state;
        weir_verdict verdict;
    } cases[] = {{WEIR_PROVIDER_NOT_BUILT, WEIR_VERDICT_NOT_BUILT},
                 {WEIR_PROVIDER_NOT_LOADABLE, WEIR_VERDICT_NOT_LOADABLE},
                 {WEIR_PROVIDER_NO_LIBRARY, WEIR_VERDICT_NO_ENGINE}};
    for (size_t i = 0; i < 3; i++) {
        doubles[0].states[1] = cases[i].state;
        is_refused(cases[i].verdict, "cuda", "cuda-0", "libmissing.so.1 is not found");
    }
    doubles[0].has[1] = false;
    is_refused(WEIR_VERDICT_NOT_BUILT, "cuda", "cuda-0", "is no provider of the engine onnx");
    doubles[0].has[1] = true;
    doubles[0].states[1] = WEIR_PROVIDER_HERE;
    card->usable = false;
    snprintf(card->remark, sizeof card->remark, "CUDA_VISIBLE_DEVICES hides it");
    is_refused(WEIR_VERDICT_DEVICE_UNUSABLE, "cuda", "cuda-0", "CUDA_VISIBLE_DEVICES hides it");
}

static void an_engine_that_is_not_here(void **state)
{
    (void)state;
    manifest.framework = "llm";
    choose_here();
    assert_int_equal(made->accepted, 0);
    const weir_candidate *c = candidate(made, "llm", "cpu", "cpu");
    assert_int_equal(c->verdict, WEIR_VERDICT_NO_ENGINE);
    assert_non_null(strstr(c->reason, "weir-engine-llm.so"));
    assert_non_null(strstr(made->rule, "llm: the engine llm is not here")); /* no provider is to blame */
    assert_non_null(strstr(made->rule, "weir-engine-llm.so"));
    assert_non_null(strstr(made->rule, "scripts/engines onnxruntime-genai"));
}

static void what_is_too_old(void **state)
{
    (void)state;
    weir_hardware_device *card = machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    card->driver = version("535.129.3");
    card->capability = version("7.5");
    needs()->min_driver_version = version("535.129.4");
    is_refused(WEIR_VERDICT_OLD_DRIVER, "cuda", "cuda-0", "the driver of cuda-0 is 535.129.3");
    needs()->min_driver_version = version("535.129.3");
    needs()->min_compute_capability = version("8");
    is_refused(WEIR_VERDICT_OLD_DEVICE, "cuda", "cuda-0", "is 7.5, and the manifest wants 8");
    needs()->min_compute_capability = version("7.5");
    assert_string_equal(ranking(), "cuda@cuda-0 cpu@cpu");
}

static void the_processor_forbidden(void **state)
{
    (void)state;
    needs()->cpu = WEIR_CPU_LISTED;
    is_refused(WEIR_VERDICT_NO_CPU, "cpu", "cpu", "only where it is listed");
    list_providers("cpu", NULL, 0);
    assert_string_equal(ranking(), "cpu@cpu");
    options.no_cpu = true;
    is_refused(WEIR_VERDICT_NO_CPU, "cpu", "cpu", "forbidden");
    list_providers("openvino", NULL, 0);
    is_refused(WEIR_VERDICT_NO_CPU, "openvino", "cpu", "forbidden");
    options.provider = "cpu";
    is_refused(WEIR_VERDICT_NO_CPU, "cpu", "cpu", "forbidden");
    assert_int_equal(made->accepted, 0);
    options.no_cpu = false;
    needs()->cpu = WEIR_CPU_LISTED;
    assert_string_equal(ranking(), "cpu@cpu"); /* the option names it */
}

static void what_the_engine_refuses(void **state)
{
    (void)state;
    doubles[0].plan = WEIR_ERR_INVALID;
    is_refused(WEIR_VERDICT_BAD_SETTING, "cpu", "cpu", "the double was told to fail");
    static const weir_status fails[] = {WEIR_ERR_CORRUPT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOT_FOUND, WEIR_ERR_ENGINE,
                                        WEIR_ERR_SYSTEM};
    for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
        doubles[0].plan = fails[i];
        is_refused(WEIR_VERDICT_OTHER_FORMAT, "cpu", "cpu", "the double was told to fail");
    }
    assert_false(candidate(made, "onnx", "cpu", "cpu")->predicted);
    /* It is so with every provider: that there is no GPU is not why. */
    const char *why = strstr(made->rule, "Nothing is accepted: onnx: ");
    assert_non_null(why);
    assert_non_null(strstr(why, "the double was told to fail"));
    assert_null(strstr(why, "cuda"));
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

static void predicted_bytes_have_to_fit(void **state)
{
    (void)state;
    weir_hardware_device *card = machine_add(&here, WEIR_HARDWARE_CUDA, 10 * GIB);
    doubles[0].bytes[1] = 9 * GIB;
    assert_string_equal(ranking(), "cuda@cuda-0 cpu@cpu");
    const weir_candidate *c = candidate(made, "onnx", "cuda", "cuda-0");
    assert_true(c->predicted);
    assert_int_equal(c->bytes[WEIR_CLASS_WEIGHTS] + c->bytes[WEIR_CLASS_KV], 9 * GIB);
    assert_int_equal(c->obtainable, 9 * GIB);
    doubles[0].bytes[1]++;
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "cuda", "cuda-0", "what the engine predicts");
    card->free = card->total = 4 * GIB; /* of which the margin is 512 MiB */
    doubles[0].bytes[1] = 3 * GIB + GIB / 2;
    assert_string_equal(ranking(), "cuda@cuda-0 cpu@cpu");
    doubles[0].bytes[1]++;
    assert_string_equal(ranking(), "cpu@cpu");
    doubles[0].bytes[6] = 64 * GIB;
    is_refused(WEIR_VERDICT_LITTLE_MEMORY, "cpu", "cpu", "what the engine predicts");
}

static void without_a_prediction_the_file_counts(void **state)
{
    (void)state;
    weir_obtainable there[] = {{"cpu", 999}, {"cuda-0", 1000}};
    doubles[0].plan = WEIR_ERR_OUT_OF_MEMORY;
    machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    options.obtainable = there;
    options.obtainable_count = 2;
    manifest.model_file = model_file("thousand.onnx", 1000);
    assert_string_equal(ranking(), "cuda@cuda-0");
    assert_non_null(strstr(made->candidates[0].reason, "no prediction is made: the double was told to fail"));
    is_refused(WEIR_VERDICT_LITTLE_MEMORY, "cpu", "cpu", "the size of the file");
}

static void limits_of_the_models_account(void **state)
{
    (void)state;
    machine_add(&here, WEIR_HARDWARE_CUDA, 10 * GIB);
    machine_add(&here, WEIR_HARDWARE_ROCM, 10 * GIB);
    list_providers("cuda", (const char *const[]){"rocm"}, 1);
    needs()->guaranteed = 20 * GIB;
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "cuda", "cuda-0", "what is guaranteed to the model");
    /* Its account is of the host, for weir has no driver for the device. */
    assert_string_equal(ranking(), "rocm@rocm-0 cpu@cpu");
    needs()->guaranteed = 60 * GIB;
    is_refused(WEIR_VERDICT_LITTLE_MEMORY, "rocm", "rocm-0", "what is guaranteed to the model");
    needs()->guaranteed = 0;
    needs()->maximum = GIB;
    doubles[0].bytes[1] = doubles[0].bytes[6] = GIB + 1;
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "cuda", "cuda-0", "raise its maximum");
    is_refused(WEIR_VERDICT_LITTLE_MEMORY, "cpu", "cpu", "raise its maximum");
    needs()->guaranteed = 2 * GIB;
    cannot_choose(WEIR_ERR_INVALID, "guarantees 2 GiB, which is more than its maximum of 1 GiB");
}

static void shared_memory_counts_once(void **state)
{
    (void)state;
    machine_begin(&here, 16 * GIB);
    weir_hardware_device *card = machine_add(&here, WEIR_HARDWARE_CUDA, 16 * GIB);
    card->shares_host = true;
    needs()->min_memory = 8 * GIB;
    needs()->min_vram = 8 * GIB;
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "cuda", "cuda-0", "which are the same memory");
    card->shares_host = false;
    assert_string_equal(ranking(), "cuda@cuda-0 cpu@cpu");
    card->shares_host = true;
    needs()->min_memory = 0;
    assert_string_equal(ranking(), "cuda@cuda-0 cpu@cpu");
    here.devices[0].free = 4 * GIB; /* what the card says is free is not, if the host's is not */
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "cuda", "cuda-0", "3.5 GiB can be had");
}

static void bytes_that_nobody_knows(void **state)
{
    (void)state;
    machine_add(&here, WEIR_HARDWARE_ROCM, 0)->free = WEIR_BYTES_UNKNOWN;
    assert_string_equal(ranking(), "rocm@rocm-0 cpu@cpu");
    needs()->min_vram = 1;
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "rocm", "rocm-0", "nobody can tell");
    here.devices[0].free = WEIR_BYTES_UNKNOWN;
    assert_string_equal(ranking(), "cpu@cpu");
    needs()->min_memory = 1;
    is_refused(WEIR_VERDICT_LITTLE_MEMORY, "cpu", "cpu", "nobody can tell");
}

/* Policies and orders ---------------------------------------------------------------------------------------------- */

static void all_kinds(void)
{
    machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    machine_add(&here, WEIR_HARDWARE_ROCM, 8 * GIB);
    machine_add(&here, WEIR_HARDWARE_METAL, 8 * GIB);
    machine_add(&here, WEIR_HARDWARE_DIRECTML, 8 * GIB);
}

static void the_default_order(void **state)
{
    (void)state;
    all_kinds();
    assert_string_equal(ranking(), "cuda@cuda-0 rocm@rocm-0 coreml@metal-0 directml@directml-0 cpu@cpu");
    assert_string_equal(made->policy, "fastest");
    assert_non_null(strstr(made->rule, "Chosen: onnx with cuda on cuda:0"));
}

static void an_order_of_ones_own(void **state)
{
    (void)state;
    all_kinds();
    options.order = "rocm, tensorrt cpu,cuda";
    assert_string_equal(ranking(), "rocm@rocm-0 tensorrt@cuda-0 cpu@cpu cuda@cuda-0");
    options.order = "metal";
    assert_string_equal(ranking(), "coreml@metal-0 cpu@cpu");
    list_providers("directml", NULL, 0); /* the manifest's names come before any order */
    assert_string_equal(ranking(), "directml@directml-0 cpu@cpu");
}

static void options_of_the_library(void **state)
{
    (void)state;
    all_kinds();
    ok(weir_option_set("providers", "directml"));
    assert_string_equal(ranking(), "directml@directml-0 cpu@cpu");
    ok(weir_option_set("providers", "directml nvidia"));
    cannot_choose(WEIR_ERR_INVALID, "the order of providers: \"nvidia\" is no provider; there are tensorrt, cuda");
    ok(weir_option_set("providers", NULL));
    ok(weir_option_set("policy", "Manifest"));
    assert_string_equal(ranking(), "cpu@cpu");
    assert_string_equal(made->policy, "manifest");
    fails(WEIR_ERR_INVALID, weir_option_set("policy", "best"));
    detail_names("fastest, manifest, memory");
    ok(weir_option_set("policy", NULL));
    setenv("WEIR_POLICY", "best", 1);
    cannot_choose(WEIR_ERR_INVALID, "WEIR_POLICY");
    unsetenv("WEIR_POLICY");
}

static void the_cheapest_that_fits(void **state)
{
    (void)state;
    static const char *const fallbacks[] = {"rocm", "directml"};
    all_kinds();
    list_providers("cuda", fallbacks, 2);
    options.policy = "memory";
    doubles[0].bytes[1] = 3 * GIB;
    doubles[0].bytes[2] = 2 * GIB;
    doubles[0].bytes[4] = 9 * GIB;
    doubles[0].bytes[6] = 1;
    assert_string_equal(ranking(), "rocm@rocm-0 cuda@cuda-0 cpu@cpu"); /* the processor stays the last resort */
    options.order = "cpu cuda rocm";
    list_providers(NULL, NULL, 0);
    assert_string_equal(ranking(), "cpu@cpu rocm@rocm-0 cuda@cuda-0"); /* but where it is given a place */
}

static void the_manifest_alone(void **state)
{
    (void)state;
    static const char *const fallbacks[] = {"rocm"};
    all_kinds();
    list_providers("directml", fallbacks, 1);
    options.policy = "manifest";
    assert_string_equal(ranking(), "directml@directml-0 rocm@rocm-0 cpu@cpu");
    needs()->cpu = WEIR_CPU_FORBIDDEN;
    assert_string_equal(ranking(), "directml@directml-0 rocm@rocm-0");
}

static void the_last_resort_is_told(void **state)
{
    (void)state;
    machine_add(&here, WEIR_HARDWARE_CUDA, GIB);
    doubles[0].bytes[1] = 2 * GIB;
    assert_string_equal(ranking(), "cpu@cpu");
    assert_non_null(strstr(made->candidates[0].reason, "the processor is the last resort"));
    assert_non_null(strstr(made->rule, "as the last resort: "));
    assert_non_null(strstr(made->rule, "onnx with cuda on cuda:0: insufficient VRAM"));
}

/* What cannot be here at all, or was left out by a word, is no reason to take the processor; but it was listed. */
static void what_was_listed_is_told_as_listed(void **state)
{
    (void)state;
    static const char *const fallbacks[] = {"directml"};
    list_providers("coreml", fallbacks, 1);
    assert_string_equal(ranking(), "cpu@cpu");
    assert_null(strstr(made->rule, "nothing else was listed"));
    assert_non_null(strstr(made->rule, "as the last resort: onnx with coreml: coreml needs a Metal device"));
    assert_non_null(strstr(made->rule, "; onnx with directml: "));
    assert_null(strstr(made->rule, "gguf")); /* which does not take the file, whoever was listed */
    with_two_cards();
    list_providers("cuda", NULL, 0);
    options.device = "host";
    assert_string_equal(ranking(), "cpu@cpu");
    assert_null(strstr(made->rule, "nothing else was listed"));
    assert_non_null(strstr(made->rule, "onnx with cuda on cuda:0: the device host was asked for"));
    options.device = NULL;
    options.policy = "manifest";
    list_providers(NULL, NULL, 0);
    assert_string_equal(ranking(), "cpu@cpu");
    assert_non_null(strstr(made->rule, "as the last resort: nothing else was listed"));
}

static void files_by_name_and_by_content(void **state)
{
    (void)state;
    manifest.model_file = model_file("model.GGUF", 10);
    choose_here();
    assert_string_equal(made->candidates[0].engine, "gguf");
    manifest.model_file = model_file("unnamed", 10);
    choose_here();
    assert_int_equal(made->accepted, 0);
    FILE *file = fopen(manifest.model_file, "w");
    assert_non_null(file);
    fputs("GGUF", file);
    assert_int_equal(fclose(file), 0);
    choose_here();
    assert_string_equal(made->candidates[0].engine, "gguf");
    manifest.framework = "onnx"; /* whoever says so has it tried */
    choose_here();
    assert_string_equal(made->candidates[0].engine, "onnx");
}

static void folders_by_what_is_in_them(void **state)
{
    (void)state;
    static const char config[] = "/genai_config.json";
    char path[128];
    const char *folder = model_folder("phi.gguf", 10);
    snprintf(path, sizeof path, "%s/", folder);
    const char *const names[] = {folder, path, model_file("phi.gguf/../phi.gguf/genai_config.json", 10)};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        manifest.model_file = names[i];
        choose_here();
        assert_int_equal(candidate(made, "llm", "cpu", "cpu")->verdict, WEIR_VERDICT_NO_ENGINE);
        assert_int_equal(candidate(made, "gguf", "cpu", "cpu")->verdict, WEIR_VERDICT_OTHER_FORMAT);
        assert_int_equal(candidate(made, "onnx", "cpu", "cpu")->verdict, WEIR_VERDICT_OTHER_FORMAT);
    }
    snprintf(path, sizeof path, "%s%s", folder, config);
    assert_int_equal(unlink(path), 0);
    manifest.model_file = folder;
    choose_here();
    assert_int_equal(candidate(made, "llm", "cpu", "cpu")->verdict, WEIR_VERDICT_OTHER_FORMAT);
    assert_int_equal(candidate(made, "gguf", "cpu", "cpu")->verdict, WEIR_VERDICT_OTHER_FORMAT);
}

/* Words ------------------------------------------------------------------------------------------------------------ */

static void words_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char **word, *value, *text;
    } cases[] = {
        {&options.engine, "torch", "engine \"torch\" is no engine; there are gguf, llm, onnx"},
        {&options.provider, "gpu",
         "provider \"gpu\" is no provider; there are tensorrt, cuda, rocm, coreml (or metal)"},
        {&options.policy, "slow", "policy \"slow\" is no policy; there are fastest, manifest, memory"},
        {&options.order, "cuda,gpu", "\"gpu\" is no provider"},
        {&manifest.requirements.preferred_provider, "nvidia", "preferred provider \"nvidia\" is no provider"},
        {&manifest.requirements.strategy, "best", "there are pool, round-robin, data-parallel, pipeline, auto"},
        {&manifest.requirements.strategy, "tensor-split", "would split one model over several devices"},
        {&manifest.requirements.graph_optimization_level, "4", "there are disable, 0, basic, 1, extended, 2, all"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        *cases[i].word = cases[i].value;
        cannot_choose(WEIR_ERR_INVALID, cases[i].text);
        *cases[i].word = NULL;
    }
    list_providers(NULL, (const char *const[]){"cuda", "gpu"}, 2);
    cannot_choose(WEIR_ERR_INVALID, "fallback provider \"gpu\"");
    list_providers(NULL, NULL, 0);
    needs()->min_coverage = 1.5;
    cannot_choose(WEIR_ERR_INVALID, "min_coverage");
    needs()->min_coverage = 0;
    manifest.model_file = "/nowhere/at.all";
    cannot_choose(WEIR_ERR_NOT_FOUND, "/nowhere/at.all");
    manifest.model_file = NULL;
    cannot_choose(WEIR_ERR_INVALID, "no model file");
    fails(WEIR_ERR_INVALID, weir_choice_create(&manifest, &options, NULL));
    manifest.struct_size = 0;
    cannot_choose(WEIR_ERR_INVALID, "size");
}

static void verdicts_have_names(void **state)
{
    (void)state;
    assert_string_equal(weir_name_of(WEIR_NAMES_VERDICT, WEIR_VERDICT_ACCEPTED), "ACCEPTED");
    assert_string_equal(weir_name_of(WEIR_NAMES_VERDICT, WEIR_VERDICT_LITTLE_VRAM), "LITTLE_VRAM");
    assert_string_equal(weir_name_of(WEIR_NAMES_VERDICT, WEIR_VERDICT_BAD_SETTING), "BAD_SETTING");
    assert_string_equal(weir_name_of(WEIR_NAMES_VERDICT, WEIR_VERDICT_COUNT), "?");
    weir_choice_destroy(NULL);
}

/* Each engine is asked once for a provider's bytes, and not at all where something else stands in the way. */
static void engines_are_asked_once(void **state)
{
    (void)state;
    with_two_cards();
    choose_here();
    assert_int_equal(doubles[0].plans, 2);
    assert_int_equal(doubles[0].asked, 1);
    assert_int_equal(doubles[1].plans + doubles[1].asked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_not_asked_for),       TEST(what_is_not_here),
        TEST(an_engine_that_is_not_here),   TEST(what_is_too_old),
        TEST(the_processor_forbidden),      TEST(what_the_engine_refuses),
        TEST(predicted_bytes_have_to_fit),  TEST(without_a_prediction_the_file_counts),
        TEST(limits_of_the_models_account), TEST(shared_memory_counts_once),
        TEST(bytes_that_nobody_knows),      TEST(the_default_order),
        TEST(an_order_of_ones_own),         TEST(options_of_the_library),
        TEST(the_cheapest_that_fits),       TEST(the_manifest_alone),
        TEST(the_last_resort_is_told),      TEST(what_was_listed_is_told_as_listed),
        TEST(files_by_name_and_by_content), TEST(folders_by_what_is_in_them),
        TEST(words_that_are_none),          TEST(verdicts_have_names),
        TEST(engines_are_asked_once),
    };
    doubles_register();
    model = model_file("model.onnx", 100);
    return cmocka_run_group_tests_name("choice", tests, NULL, NULL);
}
