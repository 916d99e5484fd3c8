/* run.c: what every run does: standing in the model's list, where a cancel finds it, taking its turn, handing its results
 * out. */
#include "wl.h"

#include <weir/cores.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double wl_seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- the list of runs -------------------------------------------------------------------------------------------- */

static void enter_list(weir_engine_model *model, wl_run *run, uint64_t id)
{
    *run = (wl_run){.id = id};
    pthread_cond_init(&run->wake, NULL);
    pthread_mutex_lock(&model->lock);
    run->next = model->runs;
    model->runs = run;
    pthread_mutex_unlock(&model->lock);
}

/* Takes the run out of the list, so that no later cancel finds the run. True: a cancel has stopped the run. */
static bool llm_run_was_stopped(weir_engine_model *model, wl_run *run)
{
    pthread_mutex_lock(&model->lock);
    for (wl_run **at = &model->runs; *at; at = &(*at)->next)
        if (*at == run) {
            *at = run->next;
            break;
        }
    pthread_mutex_unlock(&model->lock);
    return atomic_load(&run->stop);
}

static void count_run(weir_engine_model *model, wl_run *run, weir_status status, uint64_t in, uint64_t out)
{
    pthread_mutex_lock(&model->lock);
    model->metrics.runs += status == WEIR_OK;
    model->metrics.cancelled += status == WEIR_ERR_CANCELLED;
    model->metrics.failures += status != WEIR_OK && status != WEIR_ERR_CANCELLED;
    model->metrics.tokens_in += in;
    model->metrics.tokens_out += out;
    pthread_mutex_unlock(&model->lock);
    pthread_cond_destroy(&run->wake);
}

/* A run that computes is told through its generator, which ends what ONNX Runtime does for it between two nodes. */
static void llm_run_stop(const weir_engine_model *model, wl_run *run)
{
    char text[64];
    atomic_store(&run->stop, true);
    if (run->generator)
        wl_failed(model->library,
                  model->library->OgaGenerator_SetRuntimeOption(run->generator, "terminate_session", "1"), text,
                  sizeof text);
    pthread_cond_signal(&run->wake);
}

weir_status wl_cancel(weir_engine_model *model, uint64_t id)
{
    bool found = false;
    pthread_mutex_lock(&model->lock);
    for (wl_run *run = model->runs; run; run = run->next)
        if (id == 0 || run->id == id) {
            llm_run_stop(model, run);
            found = true;
        }
    pthread_cond_broadcast(&model->turn);
    pthread_mutex_unlock(&model->lock);
    wl_batch_wake(model);
    if (found)
        weir_cores_wake(model->cores);
    if (found)
        return WEIR_OK;
    if (id == 0)
        return weir_fail(WEIR_ERR_NOT_FOUND, "no run is under way on this model");
    return weir_fail(WEIR_ERR_NOT_FOUND, "no run %llu is under way on this model", (unsigned long long)id);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static weir_status llm_run_take_turn(weir_engine_model *model, wl_run *run)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&model->lock);
    while (model->active && !atomic_load(&run->stop))
        pthread_cond_wait(&model->turn, &model->lock);
    if (atomic_load(&run->stop))
        status = weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled before it began");
    else
        model->active = run;
    pthread_mutex_unlock(&model->lock);
    return status;
}

static void llm_run_end_turn(weir_engine_model *model, double seconds)
{
    pthread_mutex_lock(&model->lock);
    model->active = NULL;
    model->metrics.busy_seconds += seconds;
    pthread_cond_broadcast(&model->turn);
    pthread_mutex_unlock(&model->lock);
}

static weir_status llm_run_decode(wl_generation *it)
{
    weir_engine_model *model = it->model;
    if (model->batch)
        return wl_batch_run(it);
    weir_status status = llm_run_take_turn(model, it->run);
    if (status != WEIR_OK)
        return status;
    double from = wl_seconds_now();
    status = wl_generate_alone(it);
    llm_run_end_turn(model, wl_seconds_now() - from);
    return status;
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

static weir_status llm_run_check_room(const wl_generation *it)
{
    const wl_run_settings *settings = it->settings;
    /* The last token that is made is handed out, and never computed with; GenAI has a place for it all the same. */
    uint64_t needed = it->prompt.count + (uint64_t)settings->tokens, room = it->model->longest;
    if (settings->logprobs > it->model->folder.vocabulary)
        return weir_fail(WEIR_ERR_INVALID, "the setting 'logprobs' is %lld, and the vocabulary has %lld tokens",
                         (long long)settings->logprobs, (long long)it->model->folder.vocabulary);
    if (needed <= room)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "a prompt of %zu tokens and %lld new ones do not fit into the context of %llu; ask for fewer "
                     "('tokens') or load with a larger 'context'",
                     it->prompt.count, (long long)settings->tokens, (unsigned long long)room);
}

static weir_status llm_run_prepare(wl_generation *it, const weir_inference *inference, wl_run_settings *settings)
{
    weir_engine_model *model = it->model;
    const wl_library *lib = model->library;
    char text[512] = "";
    weir_status status = wl_prompt_read(model, inference, settings, &it->prompt);
    /* The default is as many tokens as there is room for; without room 1, so that the check below refuses the run. */
    if (settings->tokens < 0)
        settings->tokens = model->longest > it->prompt.count ? (int64_t)(model->longest - it->prompt.count) : 1;
    if (status == WEIR_OK)
        status = llm_run_check_room(it);
    if (status == WEIR_OK)
        status = wt_answer_make(it->settings->stop, (size_t)it->settings->tokens, (size_t)it->settings->logprobs,
                                &it->answer);
    if (status == WEIR_OK &&
        wl_failed(lib, lib->OgaCreateTokenizerStream(model->tokenizer, &it->stream), text, sizeof text))
        status = weir_fail(WEIR_ERR_ENGINE, "%s: ONNX Runtime GenAI cannot make texts: %s", model->folder.path, text);
    if (status == WEIR_OK && it->settings->logits) {
        it->logits = calloc((size_t)model->folder.vocabulary, sizeof *it->logits);
        status = it->logits ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no memory for the logits");
    }
    return status;
}

static weir_status llm_run_hand_out(wl_generation *it, weir_outputs *out)
{
    const wt_answer *made = &it->answer;
    const int32_t prompt = (int32_t)it->prompt.count;
    wt_parts all = {.count = 0};
    wt_parts_add(&all, "tokens", WEIR_TYPE_I32, made->tokens, made->count);
    wt_parts_add(&all, "text", WEIR_TYPE_TEXT, made->text, made->bytes);
    wt_parts_add(&all, "finish_reason", WEIR_TYPE_TEXT, made->finish, strlen(made->finish));
    wt_parts_add(&all, "prompt_tokens", WEIR_TYPE_I32, &prompt, 1);
    if (made->stop)
        wt_parts_add(&all, "stop_word", WEIR_TYPE_TEXT, made->stop->text, made->stop->bytes);
    if (made->alternatives > 0) {
        wt_parts_add(&all, "logprobs", WEIR_TYPE_F32, made->logprobs, made->count);
        wt_parts_add_rows(&all, "top_tokens", WEIR_TYPE_I32, made->top_tokens, made->count, made->alternatives);
        wt_parts_add_rows(&all, "top_logprobs", WEIR_TYPE_F32, made->top_logprobs, made->count, made->alternatives);
    }
    if (it->logits)
        wt_parts_add(&all, "logits", WEIR_TYPE_F32, it->logits, (size_t)it->model->folder.vocabulary);
    return wt_hand_out(wl_account_client(it->model->account), it->model->cuda ? WEIR_KIND_HOST : WEIR_KIND_DEVICE, &all,
                       out);
}

/* Decides the held-back text, and cuts off tokens that the reader does not want: the reader may refuse only now, after
 * more tokens were made while the reader was at work. */
static void llm_run_end(wl_generation *it)
{
    if (!it->answer.finish)
        wt_answer_end(&it->answer, it->quit ? "cancelled" : "length");
    wl_generation_deliver(it);
    if (it->quit && it->delivered < it->answer.count) {
        wt_answer_cut(&it->answer, it->delivered);
        wt_answer_end(&it->answer, "cancelled");
    }
}

static void llm_run_drop(wl_generation *it)
{
    if (it->stream)
        it->model->library->OgaDestroyTokenizerStream(it->stream);
    free(it->prompt.tokens);
    wt_answer_drop(&it->answer);
    free(it->logits);
}

weir_status wl_run_model(weir_engine_model *model, const weir_inference *inference, weir_piece_fn piece, void *user,
                         weir_outputs *out)
{
    wl_run_settings settings = model->defaults;
    wl_run run;
    wl_generation it = {.model = model, .settings = &settings, .run = &run, .piece = piece, .user = user};
    weir_status status = wl_settings_of_run(inference->settings, inference->setting_count, &settings);
    if (status != WEIR_OK)
        return status;
    enter_list(model, &run, inference->id);
    status = llm_run_prepare(&it, inference, &settings);
    if (status == WEIR_OK)
        status = llm_run_decode(&it);
    if (status == WEIR_OK)
        llm_run_end(&it);
    if (llm_run_was_stopped(model, &run) && status == WEIR_OK)
        status = weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled");
    if (status == WEIR_OK)
        status = llm_run_hand_out(&it, out);
    count_run(model, &run, status, it.prompt.count, it.answer.count);
    llm_run_drop(&it);
    return status;
}
