/* generate.c: one run that goes on with a text, alone: GenAI's generator, from its prompt to its end. Its keys and values
 * live as long as the run. */
#include "wl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is made ------------------------------------------------------------------------------------------------ */

static weir_status llm_generate_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for the answer");
}

weir_status wl_generation_add(wl_generation *it, const wl_phase *phase, int32_t token, const float *logits)
{
    const wl_library *lib = it->model->library;
    const char *text = "";
    char words[1024] = "";
    if (wl_failed(lib, lib->OgaTokenizerStreamDecode(it->stream, token, &text), words, sizeof words))
        return wl_explain(it->model, phase, words, "make text of a token");
    return wt_answer_add(&it->answer, token, text, strlen(text), logits, (int32_t)it->model->folder.vocabulary)
               ? WEIR_OK
               : llm_generate_no_memory();
}

bool wl_generation_has_pieces(const wl_generation *it)
{
    return it->piece && !it->quit && it->answer.delivered < it->answer.released && !atomic_load(&it->run->stop);
}

void wl_generation_deliver(wl_generation *it)
{
    while (wl_generation_has_pieces(it)) {
        size_t index = it->answer.delivered, begins = wt_answer_begin_of(&it->answer, index);
        weir_piece piece = {sizeof piece, it->answer.text ? it->answer.text + begins : "",
                            it->answer.ends[index] - begins, it->answer.tokens[index], index};
        it->quit = !it->piece(&piece, it->user);
        it->answer.delivered++;
    }
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static bool llm_generate_set_number(const wl_library *lib, oga_generator_params *params, const char *name, double value,
                                    char *text, size_t capacity)
{
    return !wl_failed(lib, lib->OgaGeneratorParamsSetSearchNumber(params, name, value), text, capacity);
}

static bool set_guidance(const wl_library *lib, oga_generator_params *params, const wl_run_settings *settings,
                         char *text, size_t capacity)
{
    const char *kinds[] = {"json_schema", "regex", "lark_grammar"};
    const char *data[] = {settings->json_schema, settings->regex, settings->lark};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (data[i] &&
            wl_failed(lib, lib->OgaGeneratorParamsSetGuidance(params, kinds[i], data[i], false), text, capacity))
            return false;
    return true;
}

/* Where nothing is drawn GenAI looks for the likeliest token, which it does for top_k of 1. */
static bool set_search(const wl_generation *it, oga_generator_params *params, char *text, size_t capacity)
{
    const wl_library *lib = it->model->library;
    const wl_run_settings *s = it->settings;
    double length = (double)(it->prompt.count + (size_t)s->tokens);
    bool draws = s->temperature > 0;
    int64_t wide = s->top_k > 0 && s->top_k < it->model->folder.vocabulary ? s->top_k : it->model->folder.vocabulary;
    return llm_generate_set_number(lib, params, "max_length", length, text, capacity) &&
           llm_generate_set_number(lib, params, "min_length", s->ignore_eos ? length : 0, text, capacity) &&
           llm_generate_set_number(lib, params, "temperature", draws ? s->temperature : 1, text, capacity) &&
           llm_generate_set_number(lib, params, "top_k", draws ? (double)wide : 1, text, capacity) &&
           llm_generate_set_number(lib, params, "top_p", draws ? s->top_p : 1, text, capacity) &&
           llm_generate_set_number(lib, params, "repetition_penalty", s->repeat_penalty, text, capacity) &&
           llm_generate_set_number(lib, params, "no_repeat_ngram_size", (double)s->no_repeat_ngram, text, capacity) &&
           llm_generate_set_number(lib, params, "random_seed", (double)s->seed, text, capacity) &&
           !wl_failed(lib, lib->OgaGeneratorParamsSetSearchBool(params, "do_sample", draws), text, capacity) &&
           set_guidance(lib, params, s, text, capacity);
}

static oga_generator *make_generator(wl_generation *it, char *text, size_t capacity)
{
    const wl_library *lib = it->model->library;
    oga_generator_params *params = NULL;
    oga_generator *made = NULL;
    if (!wl_failed(lib, lib->OgaCreateGeneratorParams(it->model->model, &params), text, capacity) &&
        set_search(it, params, text, capacity) &&
        wl_failed(lib, lib->OgaCreateGenerator(it->model->model, params, &made), text, capacity))
        made = NULL;
    if (params)
        lib->OgaDestroyGeneratorParams(params);
    return made;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* The logits that the next token is chosen by: of one token, in f32. */
static weir_status read_logits(wl_generation *it, const wl_phase *phase, oga_generator *generator, oga_tensor **tensor,
                               const float **out)
{
    const wl_library *lib = it->model->library;
    char text[1024] = "";
    size_t rank = 0;
    int64_t shape[8] = {0};
    int32_t type = 0;
    void *data = NULL;
    *out = NULL;
    bool failed = wl_failed(lib, lib->OgaGenerator_GetLogits(generator, tensor), text, sizeof text) ||
                  wl_failed(lib, lib->OgaTensorGetType(*tensor, &type), text, sizeof text) ||
                  wl_failed(lib, lib->OgaTensorGetShapeRank(*tensor, &rank), text, sizeof text) || rank == 0 ||
                  rank > 8 || wl_failed(lib, lib->OgaTensorGetShape(*tensor, shape, rank), text, sizeof text) ||
                  wl_failed(lib, lib->OgaTensorGetData(*tensor, &data), text, sizeof text);
    if (failed)
        return wl_explain(it->model, phase, text, "give its logits");
    if (type != OGA_FLOAT32 || shape[rank - 1] != it->model->folder.vocabulary)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: its logits are not %lld numbers of f32", it->model->folder.path,
                         (long long)it->model->folder.vocabulary);
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < rank; i++)
        rows *= shape[i];
    *out = (const float *)data + (rows - 1) * it->model->folder.vocabulary;
    return WEIR_OK;
}

static bool is_end(const wl_generation *it, int32_t token)
{
    const int32_t *ends = NULL;
    size_t count = 0;
    char text[64];
    if (wl_failed(it->model->library,
                  it->model->library->OgaTokenizerGetEosTokenIds(it->model->tokenizer, &ends, &count), text,
                  sizeof text))
        return false;
    for (size_t i = 0; i < count; i++)
        if (ends[i] == token)
            return true;
    return false;
}

/* Why a step has failed stays, whatever comes of giving its tensor back. */
static weir_status drop_tensor(const wl_library *lib, oga_tensor *tensor, weir_status status)
{
    char why[1024];
    if (!tensor)
        return status;
    snprintf(why, sizeof why, "%s", weir_detail());
    lib->OgaDestroyTensor(tensor);
    return status == WEIR_OK ? WEIR_OK : weir_fail(status, "%s", why);
}

/* The next token; where none is asked for, the logits alone. */
static weir_status llm_generate_step(wl_generation *it, const wl_phase *phase, oga_generator *generator)
{
    const wl_library *lib = it->model->library;
    oga_tensor *tensor = NULL;
    const float *logits = NULL;
    char text[1024] = "";
    weir_status status = WEIR_OK;
    if (it->settings->logprobs > 0 || it->logits)
        status = read_logits(it, phase, generator, &tensor, &logits);
    if (status == WEIR_OK && it->logits && logits)
        memcpy(it->logits, logits, (size_t)it->model->folder.vocabulary * sizeof *logits);
    if (status == WEIR_OK && it->answer.most == 0)
        wt_answer_end(&it->answer, "length");
    else if (status == WEIR_OK && wl_failed(lib, lib->OgaGenerator_GenerateNextToken(generator), text, sizeof text))
        status = wl_explain(it->model, phase, text, "go on with the text");
    if (status == WEIR_OK && !it->answer.finish) {
        size_t count = lib->OgaGenerator_GetSequenceCount(generator, 0);
        int32_t token = count > 0 ? lib->OgaGenerator_GetSequenceData(generator, 0)[count - 1] : -1;
        if (count <= it->prompt.count + it->answer.count || (is_end(it, token) && !it->settings->ignore_eos))
            wt_answer_end(&it->answer, "stop");
        else
            status = wl_generation_add(it, phase, token, logits);
    }
    return drop_tensor(lib, tensor, status);
}

static weir_status cancelled(void)
{
    return weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled");
}

static weir_status llm_generate_decode(wl_generation *it, const wl_phase *phase, oga_generator *generator, bool *leased)
{
    const wl_library *lib = it->model->library;
    char text[1024] = "";
    uint32_t cores;
    if (wt_cores_take(it->model->cores, wt_run_is_stopped, it->run, leased, &cores) == WEIR_ERR_CANCELLED)
        return cancelled();
    if (wl_failed(lib, lib->OgaGenerator_AppendTokens(generator, it->prompt.tokens, it->prompt.count), text,
                  sizeof text))
        return wl_explain(it->model, phase, text, "read the prompt");
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !it->answer.finish && !it->quit) {
        if (atomic_load(&it->run->stop) ||
            wt_cores_take(it->model->cores, wt_run_is_stopped, it->run, leased, &cores) == WEIR_ERR_CANCELLED)
            return cancelled();
        status = llm_generate_step(it, phase, generator);
        if (status != WEIR_OK || !wl_generation_has_pieces(it))
            continue;
        wt_cores_give(it->model->cores, leased);
        wl_generation_deliver(it);
    }
    return status;
}

/* Explains why GenAI refuses to begin a run. The model is sound, so that the cause is the run's guidance, if the run
 * has guidance. */
weir_status wl_generation_refused(const wl_generation *it, const wl_phase *phase, const char *text)
{
    const wl_run_settings *s = it->settings;
    weir_status status = wl_explain(it->model, phase, text, "begin a run");
    return status == WEIR_ERR_ENGINE && (s->json_schema || s->regex || s->lark)
               ? weir_fail(WEIR_ERR_INVALID, "%s: ONNX Runtime GenAI does not take the settings of this run: %s",
                           it->model->folder.path, text)
               : status;
}

static void llm_generate_watch(wl_generation *it, oga_generator *generator)
{
    pthread_mutex_lock(&it->model->runs.lock);
    it->run->computes = generator;
    pthread_mutex_unlock(&it->model->runs.lock);
}

weir_status wl_generate_alone(wl_generation *it)
{
    const wl_library *lib = it->model->library;
    wl_phase phase;
    char text[1024] = "";
    if (it->answer.most == 0 && !it->logits) {
        wt_answer_end(&it->answer, "length");
        return WEIR_OK;
    }
    wl_phase_begin(&phase, WL_RUNNING, it->model->account);
    oga_generator *generator = make_generator(it, text, sizeof text);
    weir_status status = WEIR_OK;
    bool leased = false;
    if (generator) {
        llm_generate_watch(it, generator);
        status = llm_generate_decode(it, &phase, generator, &leased);
        wt_cores_give(it->model->cores, &leased);
        llm_generate_watch(it, NULL);
    } else {
        status = wl_generation_refused(it, &phase, text);
    }
    snprintf(text, sizeof text, "%s", weir_detail()); /* what is given back may have words of its own */
    wl_account_settle(it->model->account);
    if (generator)
        lib->OgaDestroyGenerator(generator);
    wl_phase_end(&phase);
    if (status != WEIR_OK && atomic_load(&it->run->stop))
        return cancelled();
    return status == WEIR_OK ? WEIR_OK : weir_fail(status, "%s", text);
}
