/* answer.c: the tokens and the text that a run has made, how much of them is decided, and why it ended. */
#include "text.h"

#include <stdlib.h>
#include <string.h>

weir_status wg_answer_make(const wg_run_settings *settings, wg_answer *out)
{
    size_t most = (size_t)settings->tokens, wide = (size_t)settings->logprobs;
    *out = (wg_answer){.most = most, .alternatives = wide};
    weir_status status = wt_words_read("stop", settings->stop, &out->stops);
    if (status != WEIR_OK)
        return status;
    out->tokens = calloc(most + 1, sizeof *out->tokens);
    out->ends = calloc(most + 1, sizeof *out->ends);
    bool whole = out->tokens && out->ends;
    if (wide > 0) {
        out->logprobs = calloc(most + 1, sizeof *out->logprobs);
        out->top_tokens = calloc((most + 1) * wide, sizeof *out->top_tokens);
        out->top_logprobs = calloc((most + 1) * wide, sizeof *out->top_logprobs);
        whole = whole && out->logprobs && out->top_tokens && out->top_logprobs;
    }
    if (whole)
        return WEIR_OK;
    wg_answer_drop(out);
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu tokens", most);
}

void wg_answer_drop(wg_answer *answer)
{
    wt_words_drop(&answer->stops);
    free(answer->tokens);
    free(answer->ends);
    free(answer->text);
    free(answer->logprobs);
    free(answer->top_tokens);
    free(answer->top_logprobs);
    *answer = (wg_answer){0};
}

static bool add_text(wg_answer *it, const char *text, size_t bytes)
{
    if (it->bytes + bytes > it->room) {
        size_t room = (it->bytes + bytes) * 2 + 64;
        char *grown = realloc(it->text, room);
        if (!grown)
            return false;
        it->text = grown;
        it->room = room;
    }
    if (bytes > 0)
        memcpy(it->text + it->bytes, text, bytes);
    it->bytes += bytes;
    return true;
}

/* The token's piece of text; a vocabulary may hold longer ones than any guess, so the answer's size is believed. */
static bool add_piece(const weir_engine_model *model, wg_answer *it, int32_t token)
{
    const wg_library *lib = model->library;
    char small[256], *text = small;
    int32_t bytes = lib->llama_token_to_piece(model->vocab, token, small, sizeof small, 0, false);
    if (bytes < 0) {
        int32_t room = -bytes;
        text = malloc((size_t)room);
        bytes = text ? lib->llama_token_to_piece(model->vocab, token, text, room, 0, false) : -1;
    }
    bool kept = bytes >= 0 && add_text(it, text, (size_t)bytes);
    if (text != small)
        free(text);
    return kept;
}

static void release(wg_answer *it)
{
    size_t decided = it->bytes - wt_words_held(&it->stops, it->text, it->bytes);
    while (it->released < it->count && it->ends[it->released] <= decided)
        it->released++;
}

/* The text ends before `bytes`, and so does that of every token. */
static void clip(wg_answer *it, size_t bytes)
{
    it->bytes = bytes;
    for (size_t i = it->count; i > 0 && it->ends[i - 1] > bytes; i--)
        it->ends[i - 1] = bytes;
}

bool wg_answer_add(const weir_engine_model *model, wg_answer *it, int32_t token, const float *logits)
{
    size_t at = it->count, before = it->bytes, place = 0;
    if (it->alternatives > 0)
        it->logprobs[at] =
            wg_log_probabilities(logits, model->library->llama_vocab_n_tokens(model->vocab), token, it->alternatives,
                                 it->top_tokens + at * it->alternatives, it->top_logprobs + at * it->alternatives);
    it->tokens[at] = token;
    if (!add_piece(model, it, token))
        return false;
    it->ends[at] = it->bytes;
    it->count++;
    size_t reach = it->stops.longest > 0 ? it->stops.longest - 1 : 0;
    it->stop = wt_words_find(&it->stops, it->text, it->bytes, before > reach ? before - reach : 0, &place);
    if (it->stop) {
        clip(it, place);
        wg_answer_end(it, "stop");
    } else if (it->count == it->most) {
        wg_answer_end(it, "length");
    } else {
        release(it);
    }
    return true;
}

void wg_answer_end(wg_answer *it, const char *finish)
{
    it->released = it->count;
    it->finish = finish;
}

void wg_answer_cut(wg_answer *it, size_t count)
{
    it->bytes = wg_answer_begin_of(it, count);
    it->count = it->released = count;
    it->stop = NULL;
}

size_t wg_answer_begin_of(const wg_answer *it, size_t token)
{
    return token > 0 ? it->ends[token - 1] : 0;
}
