/* generate.c: a prompt is gone on with, token by token, by llama.cpp's own samplers. */
#include "wg.h"
#include <weir/engine.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct generation {
    weir_engine_model *model;
    const wg_run_settings *settings;
    wg_run *run;
    weir_piece_fn piece;
    void *user;

    int32_t *prompt;
    size_t prompt_count;
    int32_t *tokens; /* made so far */
    size_t count;
    char *text;
    size_t text_bytes, text_room;

    struct llama_sampler *sampler;
    struct llama_logit_bias *forbidden;
    int code;
    bool no_memory, stopped;
} generation;

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

typedef struct templating {
    const weir_engine_model *model;
    const char *wanted;
    struct llama_chat_message message;
    char *out;
    int32_t room, got;
} templating;

static void apply_template(void *user)
{
    templating *it = user;
    it->got = it->model->library->llama_chat_apply_template(it->wanted, &it->message, 1, true, it->out, it->room);
}

/* The prompt as one message of a user's, in the words that the model was trained on. */
static weir_status in_chat(const weir_engine_model *model, const char *text, size_t bytes, char **out,
                           size_t *out_bytes)
{
    char thrown[512] = "";
    char *content = strndup(text, bytes);
    templating it = {.model = model, .message = {"user", content}};
    it.wanted = model->library->llama_model_chat_template(model->model, NULL);
    weir_status status = WEIR_OK;
    if (!it.wanted)
        status = weir_fail(WEIR_ERR_INVALID, "the setting 'chat' asks for the model's chat template, and it has none");
    for (int attempt = 0; attempt < 2 && status == WEIR_OK; attempt++) {
        free(it.out);
        it.room = attempt ? it.got + 1 : (int32_t)(bytes < INT32_MAX / 4 ? bytes * 2 + 1024 : bytes);
        it.out = malloc((size_t)it.room);
        if (!content || !it.out)
            status = weir_fail(WEIR_ERR_SYSTEM, "no memory for a chat template");
        else if (!wg_guarded(apply_template, &it, thrown, sizeof thrown) || it.got < 0)
            status = weir_fail(WEIR_ERR_UNSUPPORTED, "llama.cpp does not know the model's chat template%s%s",
                               thrown[0] ? ": " : "", thrown);
        else if (it.got <= it.room)
            break;
    }
    free(content);
    if (status != WEIR_OK) {
        free(it.out);
        return status;
    }
    *out = it.out;
    *out_bytes = (size_t)it.got;
    return WEIR_OK;
}

static weir_status read_prompt(generation *it, const weir_inference *inference)
{
    const weir_tensor *input = NULL;
    weir_status status = wg_the_input(it->model, inference, &input);
    if (status != WEIR_OK)
        return status;
    if (input->type == WEIR_TYPE_I32) {
        it->prompt_count = input->bytes / sizeof *it->prompt;
        it->prompt = malloc(input->bytes);
        if (!it->prompt)
            return weir_fail(WEIR_ERR_SYSTEM, "no memory for a prompt of %zu tokens", it->prompt_count);
        memcpy(it->prompt, input->data, input->bytes);
        return WEIR_OK;
    }
    char *chat = NULL;
    const char *text = input->data;
    size_t bytes = input->bytes;
    if (it->settings->chat) {
        status = in_chat(it->model, text, bytes, &chat, &bytes);
        text = chat;
    }
    if (status == WEIR_OK)
        status = wg_tokenize(it->model, text, bytes, it->settings->chat, &it->prompt, &it->prompt_count);
    free(chat);
    if (status == WEIR_OK && it->prompt_count == 0)
        status = weir_fail(WEIR_ERR_INVALID, "the input 'text' has no tokens");
    return status;
}

static weir_status check_room(const generation *it)
{
    uint64_t wanted = (uint64_t)it->settings->tokens, room = it->model->longest;
    /* The last token made is handed out, and never computed with. */
    uint64_t needed = it->prompt_count + (wanted > 0 ? wanted - 1 : 0);
    if (needed <= room)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "a prompt of %zu tokens and %llu new ones do not fit into the context of %llu; ask for "
                     "fewer ('tokens') or load with a larger 'context'",
                     it->prompt_count, (unsigned long long)wanted, (unsigned long long)room);
}

/* ---- samplers ---------------------------------------------------------------------------------------------------- */

/* Tokens that would end the text get no chance. */
static struct llama_sampler *without_ends(generation *it)
{
    const wg_library *lib = it->model->library;
    int32_t all = lib->llama_vocab_n_tokens(it->model->vocab), count = 0;
    it->forbidden = calloc((size_t)all, sizeof *it->forbidden);
    if (!it->forbidden)
        return NULL;
    for (int32_t token = 0; token < all; token++)
        if (lib->llama_vocab_is_eog(it->model->vocab, token))
            it->forbidden[count++] = (struct llama_logit_bias){token, -INFINITY};
    return lib->llama_sampler_init_logit_bias(all, count, it->forbidden);
}

static void make_sampler(generation *it)
{
    const wg_library *lib = it->model->library;
    const wg_run_settings *set = it->settings;
    it->sampler = lib->llama_sampler_chain_init(lib->llama_sampler_chain_default_params());
    if (set->ignore_eos) {
        struct llama_sampler *ends = without_ends(it);
        if (!ends)
            it->no_memory = true;
        else
            lib->llama_sampler_chain_add(it->sampler, ends);
    }
    if (set->repeat_penalty != 1)
        lib->llama_sampler_chain_add(it->sampler,
                                     lib->llama_sampler_init_penalties(lib->llama_vocab_n_tokens(it->model->vocab), 64,
                                                                       (float)set->repeat_penalty, 0, 0));
    if (set->temperature <= 0) {
        lib->llama_sampler_chain_add(it->sampler, lib->llama_sampler_init_greedy());
        return;
    }
    lib->llama_sampler_chain_add(it->sampler, lib->llama_sampler_init_top_k((int32_t)set->top_k));
    lib->llama_sampler_chain_add(it->sampler, lib->llama_sampler_init_top_p((float)set->top_p, 1));
    lib->llama_sampler_chain_add(it->sampler, lib->llama_sampler_init_min_p((float)set->min_p, 1));
    lib->llama_sampler_chain_add(it->sampler, lib->llama_sampler_init_temp((float)set->temperature));
    lib->llama_sampler_chain_add(it->sampler, lib->llama_sampler_init_dist((uint32_t)set->seed));
}

/* ---- token by token ---------------------------------------------------------------------------------------------- */

static void read_in(generation *it)
{
    const wg_library *lib = it->model->library;
    lib->llama_memory_clear(lib->llama_get_memory(it->model->context), false);
    for (size_t at = 0; at < it->prompt_count && it->code == 0;) {
        size_t step = it->prompt_count - at < it->model->pack ? it->prompt_count - at : it->model->pack;
        it->code = lib->llama_decode(it->model->context, lib->llama_batch_get_one(it->prompt + at, (int32_t)step));
        at += step;
    }
}

static bool keep_text(generation *it, const char *text, size_t bytes)
{
    if (it->text_bytes + bytes > it->text_room) {
        size_t room = (it->text_bytes + bytes) * 2 + 64;
        char *grown = realloc(it->text, room);
        if (!grown)
            return false;
        it->text = grown;
        it->text_room = room;
    }
    if (bytes > 0)
        memcpy(it->text + it->text_bytes, text, bytes);
    it->text_bytes += bytes;
    return true;
}

/* The token's piece of text; a vocabulary may hold longer ones than any guess, so the answer's size is believed. */
static bool take_piece(generation *it, int32_t token)
{
    const wg_library *lib = it->model->library;
    char small[256], *text = small;
    int32_t bytes = lib->llama_token_to_piece(it->model->vocab, token, small, sizeof small, 0, false);
    if (bytes < 0) {
        int32_t room = -bytes;
        text = malloc((size_t)room);
        bytes = text ? lib->llama_token_to_piece(it->model->vocab, token, text, room, 0, false) : -1;
    }
    bool kept = bytes >= 0 && keep_text(it, text, (size_t)bytes);
    if (kept && it->piece) {
        weir_piece piece = {sizeof piece, text, (size_t)bytes, token, it->count - 1};
        it->stopped = !it->piece(&piece, it->user);
    }
    if (text != small)
        free(text);
    return kept;
}

static void go_on(generation *it)
{
    const wg_library *lib = it->model->library;
    size_t wanted = (size_t)it->settings->tokens;
    while (it->count < wanted && !it->stopped && !atomic_load(&it->run->stop)) {
        int32_t token = lib->llama_sampler_sample(it->sampler, it->model->context, -1);
        if (!it->settings->ignore_eos && lib->llama_vocab_is_eog(it->model->vocab, token))
            return;
        it->tokens[it->count++] = token;
        if (!take_piece(it, token)) {
            it->no_memory = true;
            return;
        }
        if (it->count == wanted || it->stopped)
            return;
        it->code = lib->llama_decode(it->model->context, lib->llama_batch_get_one(&it->tokens[it->count - 1], 1));
        if (it->code != 0)
            return;
    }
}

static void generate(void *user)
{
    generation *it = user;
    make_sampler(it);
    if (!it->no_memory)
        read_in(it);
    if (!it->no_memory && it->code == 0)
        go_on(it);
}

static weir_status run_it(generation *it)
{
    char thrown[512] = "";
    wg_phase phase;
    it->tokens = malloc(((size_t)it->settings->tokens + 1) * sizeof *it->tokens);
    if (!it->tokens)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %lld tokens", (long long)it->settings->tokens);
    wg_log_forget();
    wg_phase_begin(&phase, WG_RUNNING, it->model);
    bool whole = wg_guarded(generate, it, thrown, sizeof thrown);
    wg_phase_end(&phase);
    if (!whole) {
        atomic_store(&it->model->broken, true);
        return weir_fail(WEIR_ERR_ENGINE, "llama.cpp failed in the middle of a run: %s", thrown);
    }
    if (it->no_memory)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the text made so far");
    if (it->code != 0 || atomic_load(&it->run->stop))
        return wg_run_failed(it->model, &phase, it->code);
    return WEIR_OK;
}

static weir_status hand_out(generation *it, weir_outputs *out)
{
    const wg_library *lib = it->model->library;
    wg_part parts[3] = {
        {"tokens", WEIR_TYPE_I32, 1, {(int64_t)it->count}, it->tokens, it->count * sizeof *it->tokens},
        {"text", WEIR_TYPE_TEXT, 1, {(int64_t)it->text_bytes}, it->text, it->text_bytes},
    };
    if (!it->settings->logits)
        return wg_hand_out(it->model, parts, 2, out);
    int32_t width = lib->llama_vocab_n_tokens(it->model->vocab);
    const float *logits = lib->llama_get_logits_ith(it->model->context, -1);
    if (!logits)
        return weir_fail(WEIR_ERR_ENGINE, "llama.cpp has no logits after the run");
    parts[2] = (wg_part){"logits", WEIR_TYPE_F32, 1, {width}, logits, (size_t)width * sizeof *logits};
    return wg_hand_out(it->model, parts, 3, out);
}

weir_status wg_generate(weir_engine_model *model, const weir_inference *inference, const wg_run_settings *settings,
                        wg_run *run, weir_piece_fn piece, void *user, weir_outputs *out, uint64_t *tokens_in,
                        uint64_t *tokens_out)
{
    generation it = {.model = model, .settings = settings, .run = run, .piece = piece, .user = user};
    weir_status status = read_prompt(&it, inference);
    if (status == WEIR_OK)
        status = check_room(&it);
    if (status == WEIR_OK)
        status = run_it(&it);
    if (status == WEIR_OK)
        status = hand_out(&it, out);
    *tokens_in = it.prompt_count;
    *tokens_out = it.count;
    if (it.sampler)
        model->library->llama_sampler_free(it.sampler);
    free(it.forbidden);
    free(it.prompt);
    free(it.tokens);
    free(it.text);
    return status;
}
