/* plan.c: what a plan adds up of what llama.cpp lays out on each device and on the host, and when it goes by the file alone. Both,
 * llama.cpp and what is read of the file, are made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/weir.h>

#include "gguf/engine/wg.h"
#include "gguf/file/layout.h"

enum { CONTEXT = 4096, LAYERS = 6, PAGE = 2 << 20, W = WEIR_CLASS_WEIGHTS, K = WEIR_CLASS_KV, S = WEIR_CLASS_SCRATCH };
enum { A = WEIR_CLASS_ACTIVATIONS };

/* ---- what is made up --------------------------------------------------------------------------------------------- */

static char model_path[64];
static size_t devices;
static wg_load_settings asked;
static int laid_out, dropped;                    /* how often */
static weir_status opens, makes, reads;          /* what these steps answer */
static bool silent;                              /* llama.cpp tells nothing */
static uint64_t bytes[WG_DEVICES][3], in_all[3]; /* weights, cache, computing */
static wg_layout file;
static char library_file[64] = "/nowhere/libllama.so";

static ggml_backend_buffer_type_t type_of(ggml_backend_dev_t device)
{
    return (ggml_backend_buffer_type_t)(void *)device;
}

static wg_library library = {.ggml_backend_dev_buffer_type = type_of};

static const wt_choice choice_list[] = {{"llama", 's', true, offsetof(wg_load_settings, llama), 0, 511},
                                        {"threads", 'i', true, offsetof(wg_load_settings, threads), 0, 1 << 24},
                                        {"context", 'i', true, offsetof(wg_load_settings, context), 0, 1 << 24}};
const wt_choices wg_choices = {.list = choice_list, .count = 3};

bool wg_cache_wanted(const weir_engine_model *model)
{
    return strcmp(model->load.cache_memory, "whole") != 0;
}

bool wg_cache_grows(const weir_engine_model *model)
{
    return strcmp(model->load.cache_memory, "elastic") == 0;
}

bool wg_breakdown(void *function, const struct llama_context *context, ggml_backend_buffer_type_t type,
                  uint64_t *weights, uint64_t *cache, uint64_t *compute)
{
    const uint64_t *of = type ? (const uint64_t *)(const void *)type : in_all;
    (void)function, (void)context;
    *weights = of[0], *cache = of[1], *compute = of[2];
    return !silent;
}

weir_status wg_check_once(const char *path, wg_facts *facts, wg_hyper *hyper)
{
    assert_string_equal(path, model_path);
    (void)facts, (void)hyper;
    return reads == WEIR_OK ? WEIR_OK : weir_fail(reads, "it cannot be read");
}

static wg_asked how;

void wi_gguf_layout_make(const wg_hyper *hyper, const wg_asked *asked_of_it, wg_layout *out)
{
    (void)hyper;
    how = *asked_of_it;
    *out = file;
}

bool wi_gguf_cache_type(const char *name, uint32_t *type)
{
    *type = name[0] ? 8 : 1;
    return true;
}

weir_status wg_library_get(const char *directory, const wg_library **out)
{
    (void)directory;
    snprintf(library.file, sizeof library.file, "%s", library_file);
    *out = &library;
    return opens;
}

int wg_cores(void)
{
    return 2;
}

weir_status wg_read_request(const weir_engine_load *load, bool planning, weir_engine_model *model)
{
    assert_string_equal(load->path, model_path);
    assert_true(planning);
    model->load = asked;
    model->devices.count = devices;
    for (size_t i = 0; i < devices; i++)
        model->devices.list[i] = (ggml_backend_dev_t)(void *)bytes[i];
    return WEIR_OK;
}

weir_status wg_look(const weir_engine_load *load, weir_engine_model *model)
{
    (void)load;
    model->facts.layers = LAYERS;
    model->longest = CONTEXT;
    model->pack = 512;
    return WEIR_OK;
}

weir_status wg_open(weir_engine_model *model)
{
    model->library = &library;
    return opens == WEIR_OK ? WEIR_OK : weir_fail(opens, "no llama.cpp");
}

weir_status wg_make_model(weir_engine_model *model, const weir_engine_load *load, wg_phase *phase, bool no_alloc)
{
    (void)model, (void)load, (void)phase;
    assert_true(no_alloc);
    laid_out++;
    return makes == WEIR_OK ? WEIR_OK : weir_fail(makes, "no such model");
}

weir_status wg_make_context(weir_engine_model *model, wg_phase *phase)
{
    (void)model;
    phase->planned_output = 777;
    return WEIR_OK;
}

void wg_drop(weir_engine_model *model)
{
    (void)model;
    dropped++;
}

static int begin(void **state)
{
    (void)state;
    devices = 0;
    asked = (wg_load_settings){.gpu_layers = -1, .sequences = 2, .cache_memory = "whole"};
    laid_out = dropped = 0;
    opens = makes = reads = WEIR_OK;
    silent = false;
    for (uint64_t i = 0; i < WG_DEVICES; i++)
        for (uint64_t k = 0; k < 3; k++)
            bytes[i][k] = 10000 * (i + 1) + 1000 * k;
    in_all[0] = 1000000, in_all[1] = 2000000, in_all[2] = 3000000;
    file = (wg_layout){{.weights = 5000, .cache = 6000, .compute = 7000, .outputs = 8000, .fixed = 600},
                       {.weights = 256, .cache = 0, .compute = 257, .outputs = 1, .fixed = 0},
                       0,
                       0};
    /* Another file each time, of which nothing is remembered. */
    FILE *to = fopen(model_path, "ab");
    assert_non_null(to);
    fputc('x', to);
    return fclose(to);
}

static weir_engine_plan plan(bool quick, const char *provider, size_t places)
{
    weir_engine_plan out = WEIR_INIT(weir_engine_plan);
    weir_engine_load load = {.struct_size = sizeof load, .path = model_path, .provider = provider, .quick = quick};
    load.place_count = places;
    if (wg_plan(&load, &out) != WEIR_OK)
        fail_msg("%s", weir_detail());
    return out;
}

static void are(const uint64_t *of, uint64_t weights, uint64_t cache, uint64_t scratch, uint64_t outputs)
{
    assert_int_equal(of[W], weights);
    assert_int_equal(of[K], cache);
    assert_int_equal(of[S], scratch);
    assert_int_equal(of[A], outputs);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* The first device's, and on the host what is on none. */
static void what_is_laid_out_is_told_by_place(void **state)
{
    (void)state;
    for (devices = 0; devices <= 2; devices++) {
        weir_engine_plan out = plan(false, NULL, devices ? devices : 1);
        assert_int_equal(laid_out, (int)devices + 1);
        assert_int_equal(dropped, (int)devices + 1);
        assert_int_equal(out.source[W], WEIR_PREDICTED_DRY_RUN);
        assert_int_equal(out.layers, LAYERS + 1);
        assert_int_equal(out.layers_on_device, devices ? LAYERS + 1 : 0);
        assert_int_equal(out.context, CONTEXT);
        assert_int_equal(out.sequences, 2);
        if (devices == 0) {
            are(out.bytes, 1000000, 2000000, 3000000, 777);
            are(out.host, 0, 0, 0, 0);
        } else {
            uint64_t on = devices == 1 ? 10000 : 30000, more = devices == 1 ? 1000 : 2000;
            are(out.bytes, 10000, 11000, 12000, 0);
            are(out.host, 1000000 - on, 2000000 - on - more, 3000000 - on - 2 * more, 777);
        }
        for (int i = 0; i < WEIR_CLASS_COUNT; i++)
            assert_int_equal(out.exact[i], i != S || devices == 0);
        assert_int_equal(out.whole[K], 0);
    }
    /* Not less than nothing. */
    in_all[0] = 25000, in_all[1] = 20000, in_all[2] = 5;
    asked.gpu_layers = 3;
    devices = 2;
    asked.context = 1;
    weir_engine_plan out = plan(false, NULL, 2);
    are(out.host, 0, 0, 0, 777);
    assert_int_equal(out.layers_on_device, 3);
}

static void by_the_file(const weir_engine_plan *out, bool device)
{
    assert_int_equal(out->source[W], WEIR_PREDICTED_METADATA);
    assert_false(out->exact[W] || out->exact[A] || out->exact[S] || out->exact[K]);
    if (device) {
        are(out->bytes, 5120, 6144, 7168, 8000);
        are(out->host, 256, 0, 512, 1);
    } else {
        are(out->bytes, 256, 0, 512, 1);
        are(out->host, 0, 0, 0, 0);
    }
    assert_int_equal(out->layers_on_device, device ? LAYERS + 1 : 0);
    assert_int_equal(how.context, CONTEXT);
    assert_int_equal(how.sequences, 2);
    assert_int_equal(how.batch, 512);
    assert_int_equal(how.outputs, 2);
    assert_int_equal(how.device_layers, device ? UINT32_MAX : 0);
}

/* Where that is asked for, where there is no device to lay it out on, and where llama.cpp is not here. */
static void by_the_file_alone(void **state)
{
    (void)state;
    for (devices = 0; devices < 2; devices++) {
        weir_engine_plan out = plan(true, NULL, 1);
        by_the_file(&out, devices > 0);
    }
    devices = 0;
    weir_engine_plan out = plan(false, "CUDA", 0);
    by_the_file(&out, true);
    out = plan(true, "cuda", 0);
    by_the_file(&out, true);
    assert_int_equal(laid_out, 0);
    assert_int_equal(dropped, 0);
    opens = WEIR_ERR_NOT_FOUND;
    out = plan(false, "cpu", 0);
    by_the_file(&out, false);
    assert_int_equal(laid_out, 0);
    assert_int_equal(dropped, 1);
    opens = WEIR_OK;
    out = plan(false, "cpu", 0);
    assert_int_equal(out.source[W], WEIR_PREDICTED_DRY_RUN);
    assert_int_equal(laid_out, 1);
}

/* Of a cache that grows the first run has 256 cells and what is there from the start, which the file tells; a promise is of whole
 * pages. */
static void a_cache_is_planned_as_it_comes(void **state)
{
    (void)state;
    devices = 1;
    bytes[0][1] = 3 * PAGE + 600;
    strcpy(asked.cache_memory, "elastic");
    weir_engine_plan out = plan(false, NULL, 1);
    assert_int_equal(out.whole[K], 4 * PAGE);
    assert_int_equal(out.bytes[K], 600 + 3 * PAGE / (2 * CONTEXT) * 256);
    assert_false(out.exact[K]);
    assert_true(out.exact[W]);
    strcpy(asked.cache_memory, "promised");
    for (uint64_t more = 0; more < 3; more++) { /* a whole page, or a byte of the next one */
        bytes[0][1] = 3 * PAGE + more;
        asked.context = 10 + (int64_t)more;
        out = plan(false, NULL, 1);
        assert_int_equal(out.bytes[K], more == 0 ? 3 * PAGE : 4 * PAGE);
    }
    bytes[0][1] = 3 * PAGE + 600;
    asked.context = 1;
    out = plan(false, NULL, 1);
    assert_int_equal(out.whole[K], 0);
    assert_int_equal(out.bytes[K], 4 * PAGE);
    assert_true(out.exact[K]);
    strcpy(asked.cache_memory, "elastic");
    file.device.fixed = 3 * PAGE + 600; /* nothing of it grows */
    asked.context = 2;
    out = plan(false, NULL, 1);
    assert_int_equal(out.whole[K], 0);
    assert_int_equal(out.bytes[K], 4 * PAGE);
    reads = WEIR_ERR_CORRUPT; /* then nothing is known to be there from the start */
    asked.context = 3;
    out = plan(false, NULL, 1);
    assert_int_equal(out.whole[K], 4 * PAGE);
    assert_int_equal(out.bytes[K], (3 * PAGE + 600) / (2 * CONTEXT) * 256);
}

/* Once for each of what it depends on; of the newest eight. */
static void what_was_laid_out_is_remembered(void **state)
{
    enum { PLACES = 8 };
    (void)state;
    weir_engine_plan first = plan(false, NULL, 1), again = plan(false, NULL, 1);
    assert_int_equal(laid_out, 1);
    assert_memory_equal(&first, &again, sizeof first);
    asked.context = 99;
    again = plan(false, NULL, 1);
    assert_int_equal(laid_out, 2);
    assert_int_not_equal(again.settings, first.settings);
    devices = 1;
    again = plan(false, NULL, 1);
    assert_int_equal(laid_out, 3);
    strcpy(library_file, "/nowhere/other.so");
    again = plan(false, NULL, 1);
    assert_int_equal(laid_out, 4);
    asked.threads = 7; /* which llama.cpp lays out for, and no number of the settings counts */
    weir_engine_plan threads = plan(false, NULL, 1);
    assert_int_equal(laid_out, 5);
    assert_int_equal(threads.settings, again.settings);
    for (int i = 0; i < 2 * PLACES; i++) {
        asked.context = 200 + i % PLACES;
        again = plan(false, NULL, 1);
        assert_int_equal(laid_out, 6 + (i < PLACES ? i : PLACES - 1));
    }
    asked.context = 99;
    again = plan(false, NULL, 1);
    assert_int_equal(laid_out, 6 + PLACES);
    asked.context = 201;
    again = plan(false, NULL, 1);
    assert_int_equal(laid_out, 6 + PLACES);
    asked.context = 200; /* the oldest had to go */
    again = plan(false, NULL, 1);
    assert_int_equal(laid_out, 7 + PLACES);
    strcpy(library_file, "/nowhere/libllama.so");
}

static void is_refused(weir_status status, const char *words)
{
    weir_engine_plan out = WEIR_INIT(weir_engine_plan);
    weir_engine_load load = {.struct_size = sizeof load, .path = model_path, .place_count = 1};
    assert_int_equal(wg_plan(&load, &out), status);
    if (!strstr(weir_detail(), words))
        fail_msg("'%s' is not in: %s", words, weir_detail());
    assert_int_equal(out.context, 0);
}

/* And nothing of it is remembered. */
static void a_plan_that_fails_says_why(void **state)
{
    (void)state;
    devices = 1;
    makes = WEIR_ERR_ENGINE;
    is_refused(WEIR_ERR_ENGINE, "no such model");
    makes = WEIR_OK;
    silent = true;
    is_refused(WEIR_ERR_ENGINE, "llama.cpp does not tell what a '' takes");
    silent = false;
    opens = WEIR_ERR_UNSUPPORTED;
    is_refused(WEIR_ERR_UNSUPPORTED, "no llama.cpp");
    opens = WEIR_ERR_NOT_FOUND;
    reads = WEIR_ERR_CORRUPT;
    is_refused(WEIR_ERR_CORRUPT, "it cannot be read");
    assert_int_equal(dropped, 4);
    opens = reads = WEIR_OK;
    (void)plan(false, NULL, 1);
    assert_int_equal(laid_out, 3);
}

/* A caller whose structure is shorter gets what it has room for. */
static void an_older_caller_gets_its_part(void **state)
{
    (void)state;
    weir_engine_plan out = WEIR_INIT(weir_engine_plan);
    weir_engine_load load = {.struct_size = offsetof(weir_engine_load, provider), .path = model_path, .quick = true};
    load.place_count = 1;
    out.struct_size = offsetof(weir_engine_plan, passing);
    assert_int_equal(wg_plan(&load, &out), WEIR_OK);
    assert_int_equal(out.struct_size, offsetof(weir_engine_plan, passing));
    are(out.bytes, 1000000, 2000000, 3000000, 777); /* it does not know `quick` */
    assert_int_equal(out.context, 0);
    assert_int_equal(out.settings, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_laid_out_is_told_by_place, begin),
        cmocka_unit_test_setup(by_the_file_alone, begin),
        cmocka_unit_test_setup(a_cache_is_planned_as_it_comes, begin),
        cmocka_unit_test_setup(what_was_laid_out_is_remembered, begin),
        cmocka_unit_test_setup(a_plan_that_fails_says_why, begin),
        cmocka_unit_test_setup(an_older_caller_gets_its_part, begin),
    };
    snprintf(model_path, sizeof model_path, "/tmp/weir-planned-%d.gguf", (int)getpid());
    int failed = cmocka_run_group_tests_name("planned", tests, NULL, NULL);
    unlink(model_path);
    return failed;
}
