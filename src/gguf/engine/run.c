/* run.c: what every run does: finding its input, being cancelled.
 *
 * All runs of a model, waiting or under way, stand in a list, where a cancel finds them. A context computes one thing
 * at a time: runs of an embedding model wait for one another; those of a model that generates are decoded together (batch.c). */
#include "wg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- runs -------------------------------------------------------------------------------------------------------- */

weir_status wg_health(weir_engine_model *model)
{
    if (atomic_load(&model->broken))
        return weir_fail(WEIR_ERR_ENGINE, "this model failed in the middle of a run and cannot go on; load it again");
    return WEIR_OK;
}

weir_status wg_cancel(weir_engine_model *model, uint64_t id)
{
    return wt_runs_cancel(&model->runs, id, model->cores, NULL, NULL);
}

/* ggml asks after every node of a graph, on the thread that called llama.cpp. */
bool wg_stopped(void *user)
{
    weir_engine_model *model = user;
    wt_run *run = atomic_load(&model->runs.active);
    return run ? atomic_load(&run->stop) : model->batch && wg_batch_stopped(model->batch);
}

weir_status wg_run_failed(weir_engine_model *model, const wg_phase *phase, int code)
{
    if (wg_stopped(model))
        return weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled");
    if (phase->refusal != WEIR_OK)
        return weir_fail(phase->refusal, "%s", phase->detail);
    if (code == 1)
        return weir_fail(WEIR_ERR_INVALID,
                         "there is no room left in the context of %u tokens; the setting 'context' makes it "
                         "larger",
                         model->longest);
    return weir_fail(WEIR_ERR_ENGINE, "llama.cpp failed with code %d: %s", code,
                     wg_log_first_error()[0] ? wg_log_first_error() : "no reason given");
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

weir_status wg_the_inputs(const weir_engine_model *model, const weir_inference *inference, wt_inputs *out)
{
    weir_status status =
        wt_inputs_read(inference, model->input_count, model->library->llama_vocab_n_tokens(model->vocab), out);
    if (status == WEIR_OK && out->prompts == 0 && !out->state)
        status = weir_fail(WEIR_ERR_INVALID, "an input is missing: 'text' or 'tokens'%s",
                           model->embeds ? "" : " or 'messages' or 'state'");
    return status;
}

typedef struct tokenizing {
    const weir_engine_model *model;
    const char *text;
    int32_t bytes, room, got;
    bool marks, special;
    int32_t *tokens;
} tokenizing;

static void tokenize(void *user)
{
    tokenizing *it = user;
    it->got = it->model->library->llama_tokenize(it->model->vocab, it->text, it->bytes, it->tokens, it->room, it->marks,
                                                 it->special);
}

weir_status wg_tokenize(const weir_engine_model *model, const char *text, size_t bytes, bool marks, bool special,
                        int32_t **tokens, size_t *count)
{
    char thrown[512] = "";
    tokenizing it = {.model = model, .text = text, .bytes = (int32_t)bytes, .marks = marks, .special = special};
    it.room = (int32_t)(bytes < INT32_MAX / 2 ? bytes + 16 : bytes);
    *tokens = NULL;
    for (int attempt = 0; attempt < 2; attempt++) {
        free(it.tokens);
        it.tokens = malloc((size_t)it.room * sizeof *it.tokens);
        if (!it.tokens)
            return weir_fail(WEIR_ERR_SYSTEM, "no memory for the tokens of %zu bytes of text", bytes);
        if (!wg_guarded(tokenize, &it, thrown, sizeof thrown)) {
            free(it.tokens);
            return weir_fail(WEIR_ERR_ENGINE, "llama.cpp cannot make tokens of the text: %s", thrown);
        }
        if (it.got >= 0 || it.got == INT32_MIN)
            break;
        it.room = -it.got;
    }
    if (it.got < 0) {
        free(it.tokens);
        return weir_fail(WEIR_ERR_INVALID, "the text of %zu bytes has too many tokens", bytes);
    }
    *tokens = it.tokens;
    *count = (size_t)it.got;
    return WEIR_OK;
}
