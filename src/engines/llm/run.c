/* run.c: what every run does: standing in the model's list, where a cancel finds it, waiting for its model, handing its results
 * out. */
#include "wl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run that computes is told through its generator, which ends what ONNX Runtime does for it between two nodes. */
static void llm_run_stop(void *user, wt_run *run)
{
    const weir_engine_model *model = user;
    char text[64];
    if (run->computes)
        wl_failed(model->library,
                  model->library->OgaGenerator_SetRuntimeOption(run->computes, "terminate_session", "1"), text,
                  sizeof text);
}

weir_status wl_cancel(weir_engine_model *model, uint64_t id)
{
    weir_status status = wt_runs_cancel(&model->runs, id, model->cores, llm_run_stop, model);
    wl_batch_wake(model);
    return status;
}

static weir_status llm_run_decode(wl_generation *it)
{
    weir_engine_model *model = it->model;
    if (model->batch)
        return wl_batch_run(it);
    weir_status status = wt_runs_enter(&model->runs, it->run);
    if (status != WEIR_OK)
        return status;
    double from = wt_seconds_now();
    status = wl_generate_alone(it);
    wt_runs_leave(&model->runs, wt_seconds_now() - from);
    return status;
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

static weir_status llm_run_prepare(wl_generation *it, const weir_inference *inference, wl_run_settings *settings)
{
    weir_engine_model *model = it->model;
    const wl_library *lib = model->library;
    char text[512] = "";
    weir_status status = wl_prompt_read(model, inference, settings, &it->prompt);
    /* GenAI has a place for the last token, too, which is never computed with. */
    if (status == WEIR_OK)
        status = wt_settle_tokens(&settings->tokens, it->prompt.count, model->longest, 0, settings->logprobs,
                                  model->folder.vocabulary);
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
    const int32_t prompt = (int32_t)it->prompt.count;
    wt_parts all = {.count = 0};
    wt_answer_parts(&it->answer, &prompt, &all);
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
    if (it->quit && it->answer.delivered < it->answer.count)
        wt_answer_stop(&it->answer);
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
    wt_run run;
    wl_generation it = {.model = model, .settings = &settings, .run = &run, .piece = piece, .user = user};
    weir_status status = wl_settings_of_run(inference->settings, inference->setting_count, &settings);
    if (status != WEIR_OK)
        return status;
    wt_run_begin(&model->runs, &run, inference->id);
    status = llm_run_prepare(&it, inference, &settings);
    if (status == WEIR_OK)
        status = llm_run_decode(&it);
    if (status == WEIR_OK)
        llm_run_end(&it);
    if (wt_run_was_stopped(&model->runs, &run) && status == WEIR_OK)
        status = weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled");
    if (status == WEIR_OK)
        status = llm_run_hand_out(&it, out);
    wt_run_end(&model->runs, &run, status, it.prompt.count, it.answer.count);
    llm_run_drop(&it);
    return status;
}
