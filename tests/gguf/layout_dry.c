/* layout_dry.c: what is worked out of a file's keys, against what llama.cpp lays out for the same keys without memory: the
 * cache within one percent, and what computing takes as far as an estimate goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <gguf.h>
#include <llama.h>

#include <weir/engine.h>
#include <weir/weir.h>

#include "gguf/file/layout.h"
#include "shapes.h"

static char path[64];

/* Of the plug-in's file border.cpp. */
bool wg_breakdown(void *function, const struct llama_context *context, ggml_backend_buffer_type_t wanted,
                  uint64_t *weights, uint64_t *cache, uint64_t *compute);
bool wg_guarded(void (*fn)(void *user), void *user, char *text, size_t capacity);

#define FUNCTIONS(X)                                                                                                   \
    X(llama_model_init_from_user)                                                                                      \
    X(llama_init_from_model)                                                                                           \
    X(llama_model_default_params)                                                                                      \
    X(llama_context_default_params)                                                                                    \
    X(llama_model_free)                                                                                                \
    X(llama_free) X(llama_log_set) X(gguf_init_from_file) X(gguf_free)

static struct {
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    void *breakdown;
} lib;

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        print_error("%s", text);
}

/* Opened by the engine, so that it is the one that the store has; "" where there is none. */
static bool open_library(void)
{
    const weir_engine *engine = NULL;
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    if (weir_engine_get("gguf", &engine) != WEIR_OK || engine->probe(&probe) != WEIR_OK || !probe.available)
        return false;
    void *handle = dlopen(probe.library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return false;
#define TAKE(name) *(void **)&lib.name = dlsym(handle, #name);
    FUNCTIONS(TAKE)
#undef TAKE
    lib.breakdown = dlsym(handle, "_Z26llama_get_memory_breakdownPK13llama_context");
    lib.llama_log_set(quiet, NULL);
    return lib.breakdown && lib.llama_model_init_from_user;
}

static void no_data(struct ggml_tensor *tensor, void *user)
{
    (void)tensor, (void)user;
}

typedef struct laying {
    const named_shape *shape;
    const wg_asked *asked;
    struct llama_model *model;
    struct llama_context *context;
} laying;

static void lay_out(void *user)
{
    laying *it = user;
    struct gguf_init_params how = {.no_alloc = true};
    struct gguf_context *keys = lib.gguf_init_from_file(path, how);
    struct llama_model_params model = lib.llama_model_default_params();
    struct llama_context_params context = lib.llama_context_default_params();
    ggml_backend_dev_t none = NULL;
    model.devices = &none;
    model.n_gpu_layers = 0;
    model.no_alloc = true;
    it->model = lib.llama_model_init_from_user(keys, no_data, NULL, model);
    lib.gguf_free(keys);
    context.n_seq_max = context.n_outputs_max = it->asked->sequences;
    context.n_ctx = (it->asked->context + 255) / 256 * 256 * it->asked->sequences;
    context.n_batch = context.n_ubatch = it->asked->batch;
    context.type_k = (enum ggml_type)it->asked->type_k;
    context.type_v = (enum ggml_type)it->asked->type_v;
    context.swa_full = it->asked->whole_windows;
    context.flash_attn_type = it->asked->flash ? LLAMA_FLASH_ATTN_TYPE_AUTO : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    if (it->model)
        it->context = lib.llama_init_from_model(it->model, context);
}

static double ratio(uint64_t one, uint64_t other)
{
    return other > 0 ? (double)one / (double)other : one > 0 ? 99 : 1;
}

/* Answers whether both are near enough. */
static bool compare(const named_shape *shape, bool whole_windows)
{
    static wg_hyper hyper;
    wg_file file;
    wg_layout layout;
    uint64_t weights, cache, compute;
    char thrown[512] = "";
    wg_asked asked = {.context = shape->context,
                      .sequences = shape->sequences,
                      .batch = 512,
                      .outputs = shape->sequences,
                      .flash = !shape->without_flash,
                      .whole_windows = whole_windows};
    write_shape(shape, path);
    assert_true(wi_gguf_cache_type(shape->cache, &asked.type_k) && wi_gguf_cache_type(shape->cache, &asked.type_v));
    if (wi_gguf_file_open(path, &file) != WEIR_OK || wi_gguf_hyper_read(&file, &hyper) != WEIR_OK)
        fail_msg("%s", weir_detail());
    wi_gguf_file_close(&file);
    wi_gguf_layout_make(&hyper, &asked, &layout);
    laying it = {shape, &asked, NULL, NULL};
    bool whole = wg_guarded(lay_out, &it, thrown, sizeof thrown);
    bool told = whole && it.context && wg_breakdown(lib.breakdown, it.context, NULL, &weights, &cache, &compute);
    if (it.context)
        lib.llama_free(it.context);
    if (it.model)
        lib.llama_model_free(it.model);
    if (!told) {
        print_error("%s: llama.cpp lays it out not at all: %s\n", shape->name, thrown);
        return false;
    }
    double of_cache = ratio(layout.host.cache, cache), of_compute = ratio(layout.host.compute, compute);
    print_message("%-36s cache %12llu x%.4f  compute %12llu x%.3f\n", shape->name, (unsigned long long)cache, of_cache,
                  (unsigned long long)compute, of_compute);
    return of_cache >= 0.99 && of_cache <= 1.01 && of_compute >= 0.75 && of_compute <= 1.4;
}

static void test_every_shape(void **state)
{
    size_t failed = 0;
    (void)state;
    if (!open_library()) {
        const char *required = getenv("WEIR_REQUIRE_ENGINES");
        if (required && strcmp(required, "1") == 0)
            fail_msg("no llama.cpp, and WEIR_REQUIRE_ENGINES is set: %s", weir_detail());
        skip();
    }
    for (size_t i = 0; i < shape_count; i++)
        failed += !compare(&shapes[i], false) + !compare(&shapes[i], true);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_shape)};
    snprintf(path, sizeof path, "/tmp/weir-layout-dry-%d.gguf", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
