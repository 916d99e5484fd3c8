/* generate.c: one run that goes on with a text: its parts are made, it is decoded, and its results are handed out. */
#include "wg.h"

#include <stdlib.h>
#include <string.h>

static weir_status make_logits(wg_generation *it)
{
    if (!it->settings->logits)
        return WEIR_OK;
    it->logits = calloc((size_t)it->model->library->llama_vocab_n_tokens(it->model->vocab), sizeof *it->logits);
    return it->logits ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no memory for the logits");
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* The texts of the likeliest tokens, without gaps, and the end of every text. */
typedef struct top_texts {
    char *text;
    size_t bytes, room;
    int32_t *ends;
    size_t count;
} top_texts;

static bool add_top(const weir_engine_model *model, top_texts *it, int32_t token)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        int32_t got = model->library->llama_token_to_piece(model->vocab, token, it->text ? it->text + it->bytes : NULL,
                                                           (int32_t)(it->room - it->bytes), 0, true);
        if (got >= 0) {
            it->bytes += (size_t)got;
            it->ends[it->count++] = (int32_t)it->bytes;
            return true;
        }
        size_t room = (it->bytes + (size_t)-got) * 2 + 256;
        char *grown = room < INT32_MAX ? realloc(it->text, room) : NULL;
        if (!grown)
            return false;
        it->text = grown;
        it->room = room;
    }
    return false;
}

static weir_status make_top_texts(const wg_generation *it, top_texts *out)
{
    size_t count = it->answer.count * it->answer.alternatives;
    out->ends = malloc((count + 1) * sizeof *out->ends);
    bool whole = out->ends != NULL;
    for (size_t i = 0; i < count && whole; i++)
        whole = add_top(it->model, out, it->answer.top_tokens[i]);
    return whole ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no memory for the texts of %zu tokens", count);
}

static weir_status gguf_generate_hand_out(wg_generation *it, weir_outputs *out)
{
    const wt_answer *made = &it->answer;
    const int32_t prompt = (int32_t)it->prompt.count;
    top_texts tops = {.text = NULL};
    wt_parts all = {.count = 0};
    weir_status status = made->alternatives > 0 ? make_top_texts(it, &tops) : WEIR_OK;
    wt_answer_parts(made, &prompt, &all);
    if (made->alternatives > 0) {
        wt_parts_add(&all, "top_texts", WEIR_TYPE_TEXT, tops.text, tops.bytes);
        wt_parts_add_rows(&all, "top_text_ends", WEIR_TYPE_I32, tops.ends, tops.count / made->alternatives,
                          made->alternatives);
    }
    if (it->logits)
        wt_parts_add(&all, "logits", WEIR_TYPE_F32, it->logits,
                     (size_t)it->model->library->llama_vocab_n_tokens(it->model->vocab));
    if (it->saved) {
        size_t count = 0;
        const int32_t *tokens = wg_state_tokens(it->saved, &count);
        wt_parts_add(&all, "state", WEIR_TYPE_U8, it->saved, it->saved_bytes);
        wt_parts_add(&all, "state_tokens", WEIR_TYPE_I32, tokens, count);
    }
    if (status == WEIR_OK)
        status = wt_hand_out(it->model->devices.host, it->model->devices.kind, &all, out);
    free(tops.text);
    free(tops.ends);
    return status;
}

weir_status wg_generate(weir_engine_model *model, const weir_inference *inference, const wg_run_settings *settings,
                        wt_run *run, weir_piece_fn piece, void *user, weir_outputs *out, uint64_t *tokens_in,
                        uint64_t *tokens_out)
{
    wg_generation *it = calloc(1, sizeof *it);
    if (!it)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a run");
    *it = (wg_generation){.model = model, .run = run, .piece = piece, .user = user};
    it->in_step = piece && (settings->logits || settings->state);
    wg_run_settings own = *settings;
    it->settings = &own;
    weir_status status = wg_prompt_read(model, inference, settings, &it->prompt);
    if (status == WEIR_OK) /* the last token made is handed out, and never computed with */
        status = wt_settle_tokens(&own.tokens, it->prompt.count, model->longest, 1, settings->logprobs,
                                  model->library->llama_vocab_n_tokens(model->vocab));
    if (status == WEIR_OK)
        status = wt_answer_make(settings->stop, (size_t)own.tokens, (size_t)settings->logprobs, &it->answer);
    if (status == WEIR_OK)
        status = make_logits(it);
    if (status == WEIR_OK)
        status = wg_sampler_make(model, settings, &it->prompt, &it->sampler);
    if (status == WEIR_OK)
        status = wg_batch_run(it);
    if (status == WEIR_OK)
        status = gguf_generate_hand_out(it, out);
    *tokens_in = it->prompt.count - it->prompt.restored;
    *tokens_out = it->answer.count;
    wg_sampler_drop(model, &it->sampler);
    wg_prompt_drop(&it->prompt);
    wt_answer_drop(&it->answer);
    free(it->logits);
    free(it->saved);
    free(it);
    return status;
}
