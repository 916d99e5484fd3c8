/* sampling.c: how the next token is chosen: llama.cpp's samplers, in the order and by the names of its server. */
#include "wg.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct making {
    const weir_engine_model *model;
    const wg_run_settings *settings;
    const wg_prompt *prompt;
    wg_sampler *out;
    struct llama_logit_bias *biases;
    int32_t bias_count;
    wt_words breakers;
} making;

/* ---- what needs reading ------------------------------------------------------------------------------------------ */

static weir_status wrong_bias(const char *at)
{
    return weir_fail(
        WEIR_ERR_INVALID,
        "the setting 'logit_bias' is a list TOKEN:BIAS,TOKEN:BIAS, and does not go on like that at '%.40s'", at);
}

/* One `TOKEN:BIAS`; a bias of -inf forbids the token. */
static const char *read_bias(const char *at, int32_t most, struct llama_logit_bias *out)
{
    char *end = NULL;
    errno = 0;
    long token = strtol(at, &end, 10);
    if (errno || end == at || *end != ':' || token < 0 || token >= most)
        return NULL;
    const char *value = end + 1;
    double bias = wt_real(value, &end);
    if (end == value || isnan(bias) || bias > 1e6)
        return NULL;
    *out = (struct llama_logit_bias){(int32_t)token, (float)bias};
    return end;
}

static weir_status read_biases(making *it)
{
    const char *at = it->settings->logit_bias;
    int32_t most = it->model->library->llama_vocab_n_tokens(it->model->vocab);
    while (at && *at) {
        while (*at == ' ' || *at == '\n')
            at++;
        if (!*at)
            break;
        const char *end = it->bias_count < most ? read_bias(at, most, &it->biases[it->bias_count]) : NULL;
        if (!end)
            return wrong_bias(at);
        it->bias_count++;
        while (*end == ' ' || *end == '\n')
            end++;
        if (*end && *end != ',')
            return wrong_bias(end);
        at = *end ? end + 1 : end;
    }
    return WEIR_OK;
}

/* Tokens that would end the text get no chance. */
static void forbid_ends(making *it)
{
    const wg_library *lib = it->model->library;
    int32_t all = lib->llama_vocab_n_tokens(it->model->vocab);
    for (int32_t token = 0; it->settings->ignore_eos && token < all; token++)
        if (lib->llama_vocab_is_eog(it->model->vocab, token))
            it->biases[it->bias_count++] = (struct llama_logit_bias){token, -INFINITY};
}

static bool is_one_token(const void *user, const char *text, size_t bytes)
{
    int32_t *tokens = NULL;
    size_t count = 0;
    weir_status status = wg_tokenize(user, text, bytes, false, true, &tokens, &count);
    free(tokens);
    return status == WEIR_OK && count == 1;
}

static weir_status sampling_read_settings(making *it)
{
    size_t all = (size_t)it->model->library->llama_vocab_n_tokens(it->model->vocab);
    const char *grammar = it->settings->grammar;
    it->biases = calloc(all * 2, sizeof *it->biases);
    if (!it->biases)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the biases of %zu tokens", all);
    weir_status status = read_biases(it);
    forbid_ends(it);
    if (status == WEIR_OK)
        status = wt_words_read("dry_sequence_breakers", it->settings->dry_sequence_breakers, &it->breakers);
    if (status != WEIR_OK || !grammar || !grammar[0])
        return status;
    if (it->settings->ignore_eos)
        return weir_fail(WEIR_ERR_INVALID, "a 'grammar' ends its text with the end token, which 'ignore_eos' forbids");
    wg_grammar_tokens tokens = {(int32_t)all, is_one_token, it->model};
    return wg_grammar_check(grammar, &tokens);
}

/* ---- llama.cpp's samplers ---------------------------------------------------------------------------------------- */

/* Returns the number of tokens to look back at: `wanted`, at most the context; -1 means the whole context. */
static int32_t sampling_reach(const weir_engine_model *model, int64_t wanted)
{
    return wanted < 0 || wanted > model->longest ? (int32_t)model->longest : (int32_t)wanted;
}

static void sampling_add(const making *it, struct llama_sampler *sampler)
{
    it->model->library->llama_sampler_chain_add(it->out->chain, sampler);
}

/* What depends on the tokens before; answers whether there is any. */
static bool add_penalties(const making *it)
{
    const wg_library *lib = it->model->library;
    const wg_run_settings *set = it->settings;
    bool repeats = set->repeat_penalty != 1 || set->frequency_penalty != 0 || set->presence_penalty != 0;
    bool dry = set->dry_multiplier > 0;
    if (repeats)
        sampling_add(it, lib->llama_sampler_init_penalties(
                             lib->llama_vocab_n_tokens(it->model->vocab), sampling_reach(it->model, set->repeat_last_n),
                             (float)set->repeat_penalty, (float)set->frequency_penalty, (float)set->presence_penalty));
    if (dry) {
        const char *words[WT_MOST_WORDS];
        for (size_t i = 0; i < it->breakers.count; i++)
            words[i] = it->breakers.list[i].text;
        sampling_add(it, lib->llama_sampler_init_dry(it->model->vocab, (float)set->dry_multiplier, (float)set->dry_base,
                                                     (int32_t)set->dry_allowed_length,
                                                     sampling_reach(it->model, set->dry_penalty_last_n), words,
                                                     it->breakers.count));
    }
    return repeats || dry;
}

static void add_mirostat(const making *it)
{
    const wg_library *lib = it->model->library;
    const wg_run_settings *set = it->settings;
    sampling_add(it, lib->llama_sampler_init_temp((float)set->temperature));
    if (set->mirostat == 1)
        sampling_add(it,
                     lib->llama_sampler_init_mirostat(lib->llama_vocab_n_tokens(it->model->vocab), (uint32_t)set->seed,
                                                      (float)set->mirostat_tau, (float)set->mirostat_eta, 100));
    else
        sampling_add(it, lib->llama_sampler_init_mirostat_v2((uint32_t)set->seed, (float)set->mirostat_tau,
                                                             (float)set->mirostat_eta));
}

static void add_usual(const making *it)
{
    const wg_library *lib = it->model->library;
    const wg_run_settings *set = it->settings;
    if (set->top_n_sigma > 0)
        sampling_add(it, lib->llama_sampler_init_top_n_sigma((float)set->top_n_sigma));
    sampling_add(it, lib->llama_sampler_init_top_k((int32_t)set->top_k));
    if (set->typical_p < 1)
        sampling_add(it, lib->llama_sampler_init_typical((float)set->typical_p, 1));
    sampling_add(it, lib->llama_sampler_init_top_p((float)set->top_p, 1));
    sampling_add(it, lib->llama_sampler_init_min_p((float)set->min_p, 1));
    if (set->xtc_probability > 0)
        sampling_add(it, lib->llama_sampler_init_xtc((float)set->xtc_probability, (float)set->xtc_threshold, 1,
                                                     (uint32_t)set->seed));
    if (set->dynatemp_range > 0)
        sampling_add(it, lib->llama_sampler_init_temp_ext((float)set->temperature, (float)set->dynatemp_range,
                                                          (float)set->dynatemp_exponent));
    else
        sampling_add(it, lib->llama_sampler_init_temp((float)set->temperature));
    sampling_add(it, lib->llama_sampler_init_dist((uint32_t)set->seed));
}

static void sampling_make(void *user)
{
    const making *it = user;
    const wg_library *lib = it->model->library;
    const wg_run_settings *set = it->settings;
    if (set->grammar && set->grammar[0])
        it->out->grammar = lib->llama_sampler_init_grammar(it->model->vocab, set->grammar, "root");
    it->out->chain = lib->llama_sampler_chain_init(lib->llama_sampler_chain_default_params());
    if (it->bias_count > 0)
        sampling_add(it, lib->llama_sampler_init_logit_bias(lib->llama_vocab_n_tokens(it->model->vocab), it->bias_count,
                                                            it->biases));
    bool looks_back = add_penalties(it);
    it->out->likeliest = set->temperature <= 0 && it->bias_count == 0 && !looks_back && !it->out->grammar;
    if (set->temperature <= 0)
        sampling_add(it, lib->llama_sampler_init_greedy());
    else if (set->mirostat > 0)
        add_mirostat(it);
    else
        add_usual(it);
    for (size_t i = 0; looks_back && i < it->prompt->count; i++)
        lib->llama_sampler_accept(it->out->chain, it->prompt->tokens[i]);
}

weir_status wg_sampler_make(const weir_engine_model *model, const wg_run_settings *settings, const wg_prompt *prompt,
                            wg_sampler *out)
{
    char thrown[512] = "";
    making it = {.model = model, .settings = settings, .prompt = prompt, .out = out};
    *out = (wg_sampler){0};
    weir_status status = sampling_read_settings(&it);
    wg_log_forget();
    bool wants_grammar = settings->grammar && settings->grammar[0];
    if (status == WEIR_OK && !wg_guarded(sampling_make, &it, thrown, sizeof thrown))
        status = weir_fail(WEIR_ERR_ENGINE, "llama.cpp cannot make the samplers: %s", thrown);
    else if (status == WEIR_OK && wants_grammar && !out->grammar)
        status = weir_fail(WEIR_ERR_INVALID, "the setting 'grammar': llama.cpp refuses it: %s",
                           wg_log_first_error()[0] ? wg_log_first_error() : "no reason given");
    free(it.biases);
    wt_words_drop(&it.breakers);
    return status;
}

void wg_sampler_drop(const weir_engine_model *model, wg_sampler *sampler)
{
    if (sampler->chain)
        model->library->llama_sampler_free(sampler->chain);
    if (sampler->grammar)
        model->library->llama_sampler_free(sampler->grammar);
    *sampler = (wg_sampler){0};
}

/* ---- one token --------------------------------------------------------------------------------------------------- */

static llama_token_data_array all_candidates(const float *logits, int32_t width, llama_token_data *room)
{
    for (int32_t token = 0; token < width; token++)
        room[token] = (llama_token_data){token, logits[token], 0};
    return (llama_token_data_array){room, (size_t)width, -1, false};
}

static const llama_token_data *sampling_chosen(const llama_token_data_array *from)
{
    return from->selected >= 0 ? &from->data[from->selected] : NULL;
}

/* As llama.cpp's greedy sampler: the first of equals. */
static int32_t likeliest(const float *logits, int32_t width)
{
    int32_t best = 0;
    for (int32_t token = 1; token < width; token++)
        if (logits[token] > logits[best])
            best = token;
    return best;
}

/* Few tokens are wrong by the grammar, and to ask it about one is quick. Only if the one chosen without it is wrong, it
 * is asked about all, and the choice is made again. */
int32_t wg_sampler_take(const weir_engine_model *model, const wg_sampler *sampler, const float *logits,
                        llama_token_data *room)
{
    const wg_library *lib = model->library;
    int32_t width = lib->llama_vocab_n_tokens(model->vocab);
    if (sampler->likeliest)
        return likeliest(logits, width);
    llama_token_data_array list = all_candidates(logits, width, room);
    lib->llama_sampler_apply(sampler->chain, &list);
    const llama_token_data *one = sampling_chosen(&list);
    if (!one || isinf(one->logit))
        return -1;
    int32_t token = one->id;
    if (sampler->grammar) {
        llama_token_data only = {token, 1, 0};
        llama_token_data_array asked = {&only, 1, -1, false};
        lib->llama_sampler_apply(sampler->grammar, &asked);
        if (isinf(only.logit)) {
            list = all_candidates(logits, width, room);
            lib->llama_sampler_apply(sampler->grammar, &list);
            lib->llama_sampler_apply(sampler->chain, &list);
            one = sampling_chosen(&list);
            if (!one || isinf(one->logit))
                return -1;
            token = one->id;
        }
        lib->llama_sampler_accept(sampler->grammar, token);
    }
    lib->llama_sampler_accept(sampler->chain, token);
    return token;
}
