/* What the tests of suspended models share: models of the store, a request for each, and what they answer. On the host, whose
 * memory the test can read. */
#ifndef TESTS_RESIDENCY_MODELS_H
#define TESTS_RESIDENCY_MODELS_H

#include "core/core.h"

#include <weir/engine.h>
#include <weir/model.h>
#include <weir/pressure.h>
#include <weir/residency.h>

/* A model of the store. */
typedef struct sample {
    const char *name, *engine;
    bool generates, has_ids; /* asked with a text; asked with numbers of words */
    const weir_setting *load;
    size_t load_count;
} sample;

#define STORED(file) WEIR_TEST_STORE "/models/" file

static inline bool is_stored(const char *path)
{
    return access(path, R_OK) == 0;
}

static inline weir_model *load_sample(weir_runtime *runtime, const sample *it)
{
    char path[512];
    weir_model *model = NULL;
    weir_model_options options = WEIR_INIT(weir_model_options);
    snprintf(path, sizeof path, "%s/%s", STORED(""), it->name);
    options.runtime = runtime;
    options.settings = it->load;
    options.setting_count = it->load_count;
    ok(weir_model_create(path, &options, &model));
    return model;
}

/* The request number `seed`; the same number, the same request. */
static inline weir_status ask_sample(weir_model *model, const sample *it, unsigned seed, weir_outputs *out)
{
    enum { WORDS = 24 };
    static const char *const texts[] = {"once upon a time", "the river falls", "a dam"};
    static const weir_setting few[] = {{"tokens", "6"}, {"temperature", "0"}};
    static const char *const names[] = {"input_ids", "attention_mask", "token_type_ids"};
    int64_t numbers[3][WORDS];
    weir_tensor inputs[3];
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.inputs = inputs;
    inference.input_count = it->has_ids ? 3 : 1;
    for (size_t i = 0; i < WORDS; i++) {
        numbers[0][i] = (int64_t)(1000 + (i * 7919 + seed * 104729) % 20000);
        numbers[1][i] = 1;
        numbers[2][i] = 0;
    }
    for (size_t i = 0; i < 3; i++)
        inputs[i] = (weir_tensor){.struct_size = sizeof inputs[i],
                                  .name = names[i],
                                  .type = WEIR_TYPE_I64,
                                  .rank = 2,
                                  .shape = {1, WORDS},
                                  .data = numbers[i],
                                  .bytes = sizeof numbers[i]};
    if (!it->has_ids) {
        const char *text = texts[seed % 3];
        inputs[0] = (weir_tensor){.struct_size = sizeof inputs[0],
                                  .name = "text",
                                  .type = WEIR_TYPE_TEXT,
                                  .rank = 1,
                                  .shape = {(int64_t)strlen(text)},
                                  .data = (void *)text,
                                  .bytes = strlen(text)};
    }
    if (it->generates) {
        inference.settings = few;
        inference.setting_count = 2;
    }
    *out = (weir_outputs)WEIR_INIT(weir_outputs);
    return weir_model_infer(model, &inference, out);
}

/* All outputs of a request, one behind the other. */
typedef struct answer {
    unsigned char *bytes;
    size_t count;
} answer;

static inline answer answer_of(weir_model *model, const sample *it, unsigned seed)
{
    weir_outputs out;
    answer a = {0};
    ok(ask_sample(model, it, seed, &out));
    assert_true(out.count > 0);
    for (size_t i = 0; i < out.count; i++) {
        a.bytes = realloc(a.bytes, a.count + out.tensors[i].bytes + 1);
        if (out.tensors[i].bytes > 0)
            memcpy(a.bytes + a.count, out.tensors[i].data, out.tensors[i].bytes);
        a.count += out.tensors[i].bytes;
    }
    assert_true(a.count > 0);
    weir_model_release_outputs(model, &out);
    return a;
}

static inline void same_answer(weir_model *model, const sample *it, unsigned seed, const answer *wanted)
{
    answer now = answer_of(model, it, seed);
    assert_int_equal(now.count, wanted->count);
    assert_memory_equal(now.bytes, wanted->bytes, now.count);
    free(now.bytes);
}

static inline weir_residency suspend_model(weir_model *model, weir_model_suspend_options options)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    options.struct_size = sizeof options;
    ok(weir_model_suspend(model, &options, &receipt));
    return receipt;
}

static inline weir_model_presence presence_of(weir_model *model)
{
    weir_model_presence now = WEIR_INIT(weir_model_presence);
    ok(weir_model_residency(model, &now));
    return now;
}

#endif
