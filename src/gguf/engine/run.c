/* run.c: what every run does: finding its input, being cancelled.
 *
 * All runs of a model, waiting or under way, stand in a list, where a cancel finds them. A context computes one thing
 * at a time: runs of an embedding model take turns; those of a model that generates are decoded together (batch.c). */
#include "wg.h"
#include <weir/cores.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- runs and turns ---------------------------------------------------------------------------------------------- */

void wg_run_leave(weir_engine_model *model, wg_run *run)
{
    for (wg_run **at = &model->runs; *at; at = &(*at)->next)
        if (*at == run) {
            *at = run->next;
            break;
        }
}

bool wg_run_was_stopped(weir_engine_model *model, wg_run *run)
{
    pthread_mutex_lock(&model->lock);
    wg_run_leave(model, run);
    pthread_mutex_unlock(&model->lock);
    return atomic_load(&run->stop);
}

weir_status wg_run_begin(weir_engine_model *model, wg_run *run, uint64_t id)
{
    *run = (wg_run){.id = id};
    pthread_cond_init(&run->wake, NULL);
    pthread_mutex_lock(&model->lock);
    run->next = model->runs;
    model->runs = run;
    pthread_mutex_unlock(&model->lock);
    if (!atomic_load(&model->broken))
        return WEIR_OK;
    weir_status status =
        weir_fail(WEIR_ERR_ENGINE, "this model failed in the middle of a run and cannot go on; load it again");
    wg_run_end(model, run, status, 0, 0);
    return status;
}

void wg_run_end(weir_engine_model *model, wg_run *run, weir_status status, uint64_t in, uint64_t out)
{
    pthread_mutex_lock(&model->lock);
    wg_run_leave(model, run);
    model->metrics.runs += status == WEIR_OK;
    model->metrics.cancelled += status == WEIR_ERR_CANCELLED;
    model->metrics.failures += status != WEIR_OK && status != WEIR_ERR_CANCELLED;
    model->metrics.tokens_in += in;
    model->metrics.tokens_out += out;
    pthread_mutex_unlock(&model->lock);
    pthread_cond_destroy(&run->wake);
}

weir_status wg_turn_begin(weir_engine_model *model, wg_run *run)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&model->lock);
    while (atomic_load(&model->active) && !atomic_load(&run->stop))
        pthread_cond_wait(&model->turn, &model->lock);
    if (atomic_load(&run->stop))
        status = weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled before it began");
    else if (atomic_load(&model->broken))
        status = weir_fail(WEIR_ERR_ENGINE, "this model failed in the middle of a run and cannot go on; load it again");
    if (status == WEIR_OK)
        atomic_store(&model->active, run);
    pthread_mutex_unlock(&model->lock);
    return status;
}

void wg_turn_end(weir_engine_model *model, double seconds)
{
    pthread_mutex_lock(&model->lock);
    atomic_store(&model->active, NULL);
    model->metrics.busy_seconds += seconds;
    pthread_cond_broadcast(&model->turn);
    pthread_mutex_unlock(&model->lock);
}

double wg_seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

weir_status wg_cancel(weir_engine_model *model, uint64_t id)
{
    bool found = false;
    pthread_mutex_lock(&model->lock);
    for (wg_run *run = model->runs; run; run = run->next)
        if (id == 0 || run->id == id) {
            atomic_store(&run->stop, true);
            pthread_cond_signal(&run->wake);
            found = true;
        }
    pthread_cond_broadcast(&model->turn);
    pthread_mutex_unlock(&model->lock);
    if (found)
        weir_cores_wake(model->cores);
    if (found)
        return WEIR_OK;
    if (id == 0)
        return weir_fail(WEIR_ERR_NOT_FOUND, "no run is under way on this model");
    return weir_fail(WEIR_ERR_NOT_FOUND, "no run %llu is under way on this model", (unsigned long long)id);
}

/* ggml asks after every node of a graph, on the thread that called llama.cpp. */
bool wg_stopped(void *user)
{
    weir_engine_model *model = user;
    wg_run *run = atomic_load(&model->active);
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

static const weir_tensor **gguf_run_place_of(const weir_engine_model *model, const char *name, wg_inputs *in)
{
    const char *const names[] = {"text", "tokens", "messages", "state"};
    const weir_tensor **const places[] = {&in->text, &in->tokens, &in->messages, &in->state};
    for (size_t i = 0; i < model->input_count; i++)
        if (strcmp(name, names[i]) == 0)
            return places[i];
    return NULL;
}

static weir_status gguf_run_check_inputs(const weir_engine_model *model, const wg_inputs *in)
{
    weir_status status = WEIR_OK;
    int prompts = (in->text != NULL) + (in->tokens != NULL) + (in->messages != NULL);
    if (prompts > 1)
        return weir_fail(WEIR_ERR_INVALID, "one input is taken, 'text' or 'tokens'%s, and there are %d",
                         model->embeds ? "" : " or 'messages'", prompts);
    if (prompts == 0 && !in->state)
        return weir_fail(WEIR_ERR_INVALID, "an input is missing: 'text' or 'tokens'%s",
                         model->embeds ? "" : " or 'messages' or 'state'");
    if (in->text)
        status = wt_check_bytes(in->text, WEIR_TYPE_TEXT);
    if (status == WEIR_OK && in->messages)
        status = wt_check_bytes(in->messages, WEIR_TYPE_TEXT);
    if (status == WEIR_OK && in->state)
        status = wt_check_bytes(in->state, WEIR_TYPE_U8);
    if (status != WEIR_OK || !in->tokens)
        return status;
    return wt_check_tokens(in->tokens, model->inputs[1].rank, model->library->llama_vocab_n_tokens(model->vocab),
                           model->embeds);
}

weir_status wg_the_inputs(const weir_engine_model *model, const weir_inference *inference, wg_inputs *out)
{
    *out = (wg_inputs){0};
    if (inference->input_count > 0 && !inference->inputs)
        return weir_fail(WEIR_ERR_INVALID, "%zu inputs are announced, and there are none", inference->input_count);
    const char *at = (const char *)inference->inputs;
    for (size_t i = 0; i < inference->input_count; i++, at += inference->inputs[0].struct_size) {
        const weir_tensor *input = (const weir_tensor *)(const void *)at;
        const char *name = input->name ? input->name : "";
        const weir_tensor **place = gguf_run_place_of(model, name, out);
        if (!place)
            return weir_fail(WEIR_ERR_INVALID, "this model has no input '%.60s'; it takes 'text' or 'tokens'%s", name,
                             model->embeds ? "" : " or 'messages', and 'state'");
        if (*place)
            return weir_fail(WEIR_ERR_INVALID, "the input '%s' is there twice", name);
        *place = input;
    }
    return gguf_run_check_inputs(model, out);
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
