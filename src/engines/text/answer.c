/* answer.c: the tokens and the text that a run has made, how much of them is decided, and why it ended. */
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

weir_status wt_settle_tokens(int64_t *tokens, size_t prompt, uint64_t room, uint64_t spare, int64_t logprobs,
                             int64_t vocabulary)
{
    /* Without room 1, so that the run is refused below. */
    if (*tokens < 0)
        *tokens = room > prompt ? (int64_t)(room - prompt + spare) : 1;
    uint64_t wanted = (uint64_t)*tokens, needed = prompt + (wanted > spare ? wanted - spare : 0);
    if (logprobs > vocabulary)
        return weir_fail(WEIR_ERR_INVALID, "the setting 'logprobs' is %lld, and the vocabulary has %lld tokens",
                         (long long)logprobs, (long long)vocabulary);
    if (needed <= room)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "a prompt of %zu tokens and %llu new ones do not fit into the context of %llu; ask for fewer "
                     "('tokens') or load with a larger 'context'",
                     prompt, (unsigned long long)wanted, (unsigned long long)room);
}

weir_status wt_answer_make(const char *stop, size_t tokens, size_t alternatives, wt_answer *out)
{
    *out = (wt_answer){.most = tokens, .alternatives = alternatives};
    weir_status status = wt_words_read("stop", stop, &out->stops);
    if (status != WEIR_OK)
        return status;
    out->tokens = calloc(tokens + 1, sizeof *out->tokens);
    out->ends = calloc(tokens + 1, sizeof *out->ends);
    bool whole = out->tokens && out->ends;
    if (alternatives > 0) {
        out->logprobs = calloc(tokens + 1, sizeof *out->logprobs);
        out->top_tokens = calloc((tokens + 1) * alternatives, sizeof *out->top_tokens);
        out->top_logprobs = calloc((tokens + 1) * alternatives, sizeof *out->top_logprobs);
        whole = whole && out->logprobs && out->top_tokens && out->top_logprobs;
    }
    if (whole)
        return WEIR_OK;
    wt_answer_drop(out);
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu tokens", tokens);
}

void wt_answer_drop(wt_answer *answer)
{
    wt_words_drop(&answer->stops);
    free(answer->tokens);
    free(answer->ends);
    free(answer->text);
    free(answer->logprobs);
    free(answer->top_tokens);
    free(answer->top_logprobs);
    *answer = (wt_answer){0};
}

static bool text_answer_add_text(wt_answer *it, const char *text, size_t bytes)
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

static void text_answer_release(wt_answer *it)
{
    size_t decided = it->bytes - wt_words_held(&it->stops, it->text, it->bytes);
    while (it->released < it->count && it->ends[it->released] <= decided)
        it->released++;
}

/* The text ends before `bytes`, and so does that of every token. */
static void clip(wt_answer *it, size_t bytes)
{
    it->bytes = bytes;
    for (size_t i = it->count; i > 0 && it->ends[i - 1] > bytes; i--)
        it->ends[i - 1] = bytes;
}

bool wt_answer_add(wt_answer *it, int32_t token, const char *text, size_t bytes, const float *logits, int32_t width)
{
    size_t at = it->count, before = it->bytes, index = 0;
    if (it->alternatives > 0)
        it->logprobs[at] =
            wt_log_probabilities(logits, width, token, it->alternatives, it->top_tokens + at * it->alternatives,
                                 it->top_logprobs + at * it->alternatives);
    it->tokens[at] = token;
    if (!text_answer_add_text(it, text, bytes))
        return false;
    it->ends[at] = it->bytes;
    it->count++;
    size_t reach = it->stops.longest > 0 ? it->stops.longest - 1 : 0;
    it->stop = wt_words_find(&it->stops, it->text, it->bytes, before > reach ? before - reach : 0, &index);
    if (it->stop) {
        clip(it, index);
        wt_answer_end(it, "stop");
    } else if (it->count == it->most) {
        wt_answer_end(it, "length");
    } else {
        text_answer_release(it);
    }
    return true;
}

void wt_answer_end(wt_answer *it, const char *finish)
{
    it->released = it->count;
    it->finish = finish;
}

void wt_answer_cut(wt_answer *it, size_t count)
{
    it->bytes = wt_answer_begin_of(it, count);
    it->count = it->released = count;
    it->stop = NULL;
}

void wt_answer_stop(wt_answer *it)
{
    wt_answer_cut(it, it->delivered);
    wt_answer_end(it, "cancelled");
}

bool wt_answer_deliver(wt_answer *it, pthread_mutex_t *lock, weir_piece_fn reader, void *user, bool *lost)
{
    size_t index = it->delivered, begins = wt_answer_begin_of(it, index), bytes = it->ends[index] - begins;
    char small[256], *text = bytes <= sizeof small ? small : malloc(bytes);
    *lost = !text;
    if (!text)
        return false;
    if (bytes > 0)
        memcpy(text, it->text + begins, bytes);
    weir_piece piece = {sizeof piece, text, bytes, it->tokens[index], index};
    pthread_mutex_unlock(lock);
    bool more = reader(&piece, user);
    if (text != small)
        free(text);
    pthread_mutex_lock(lock);
    it->delivered++;
    return more;
}

size_t wt_answer_begin_of(const wt_answer *it, size_t token)
{
    return token > 0 ? it->ends[token - 1] : 0;
}

void wt_answer_parts(const wt_answer *it, const int32_t *prompt, wt_parts *parts)
{
    wt_parts_add(parts, "tokens", WEIR_TYPE_I32, it->tokens, it->count);
    wt_parts_add(parts, "text", WEIR_TYPE_TEXT, it->text, it->bytes);
    wt_parts_add(parts, "finish_reason", WEIR_TYPE_TEXT, it->finish, strlen(it->finish));
    wt_parts_add(parts, "prompt_tokens", WEIR_TYPE_I32, prompt, 1);
    if (it->stop)
        wt_parts_add(parts, "stop_word", WEIR_TYPE_TEXT, it->stop->text, it->stop->bytes);
    if (it->alternatives == 0)
        return;
    wt_parts_add(parts, "logprobs", WEIR_TYPE_F32, it->logprobs, it->count);
    wt_parts_add_rows(parts, "top_tokens", WEIR_TYPE_I32, it->top_tokens, it->count, it->alternatives);
    wt_parts_add_rows(parts, "top_logprobs", WEIR_TYPE_F32, it->top_logprobs, it->count, it->alternatives);
}

float wt_log_probabilities(const float *logits, int32_t width, int32_t token, size_t most, int32_t *top_tokens,
                           float *top_values)
{
    double highest = -INFINITY, sum = 0;
    size_t left = 0;
    for (int32_t i = 0; i < width; i++) {
        highest = logits[i] > highest ? logits[i] : highest;
        if (left == most && !(logits[i] > top_values[most - 1]))
            continue;
        size_t index = left < most ? left++ : most - 1;
        for (; index > 0 && logits[i] > top_values[index - 1]; index--) {
            top_values[index] = top_values[index - 1];
            top_tokens[index] = top_tokens[index - 1];
        }
        top_values[index] = logits[i];
        top_tokens[index] = i;
    }
    for (int32_t i = 0; i < width; i++)
        sum += exp((double)logits[i] - highest);
    double whole = highest + log(sum);
    for (size_t i = 0; i < left; i++)
        top_values[i] = (float)(top_values[i] - whole);
    return (float)(logits[token] - whole);
}
