/* settings.c: the settings, with their members, values and defaults. */
#include "wg.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#define LOAD(member) true, offsetof(wg_load_settings, member)
#define RUN(member)  false, offsetof(wg_run_settings, member)

static const wt_choice list[] = {
    {"threads", 'i', LOAD(threads), 0, 512},
    {"context", 'i', LOAD(context), 0, 1 << 24},
    {"batch", 'i', LOAD(batch), 0, 65536},
    {"mmap", 'b', LOAD(mmap), 0, 1},
    {"direct", 'b', LOAD(direct), 0, 1},
    {"gpu_layers", 'i', LOAD(gpu_layers), -1, 1 << 20},
    {"llama_cuda", 't', LOAD(llama_cuda), 0, sizeof(((wg_load_settings *)0)->llama_cuda)},
    {"pooling", 't', LOAD(pooling), 0, sizeof(((wg_load_settings *)0)->pooling)},
    {"llama", 't', LOAD(llama), 0, sizeof(((wg_load_settings *)0)->llama)},
    {"sequences", 'i', LOAD(sequences), 1, WG_MOST_SEQUENCES},
    {"flash_attention", 't', LOAD(flash_attention), 0, sizeof(((wg_load_settings *)0)->flash_attention)},
    {"cache_k", 't', LOAD(cache_k), 0, sizeof(((wg_load_settings *)0)->cache_k)},
    {"cache_v", 't', LOAD(cache_v), 0, sizeof(((wg_load_settings *)0)->cache_v)},
    {"cache_memory", 't', LOAD(cache_memory), 0, sizeof(((wg_load_settings *)0)->cache_memory)},
    {"rope_frequency_base", 'r', LOAD(rope_frequency_base), 0, 1e12},
    {"rope_frequency_scale", 'r', LOAD(rope_frequency_scale), 0, 1000},
    {"swa_full", 'b', LOAD(swa_full), 0, 1},
    {"tokens", 'i', RUN(tokens), -1, INT32_MAX},
    {"temperature", 'r', RUN(temperature), 0, 1000},
    {"top_k", 'i', RUN(top_k), 0, INT32_MAX},
    {"top_p", 'r', RUN(top_p), 0, 1},
    {"min_p", 'r', RUN(min_p), 0, 1},
    {"typical_p", 'r', RUN(typical_p), 0, 1},
    {"top_n_sigma", 'r', RUN(top_n_sigma), -1, 1000},
    {"dynatemp_range", 'r', RUN(dynatemp_range), 0, 1000},
    {"dynatemp_exponent", 'r', RUN(dynatemp_exponent), 0, 1000},
    {"xtc_probability", 'r', RUN(xtc_probability), 0, 1},
    {"xtc_threshold", 'r', RUN(xtc_threshold), 0, 1},
    {"mirostat", 'i', RUN(mirostat), 0, 2},
    {"mirostat_tau", 'r', RUN(mirostat_tau), 0, 1000},
    {"mirostat_eta", 'r', RUN(mirostat_eta), 0, 1000},
    {"repeat_penalty", 'r', RUN(repeat_penalty), 0.01, 100},
    {"repeat_last_n", 'i', RUN(repeat_last_n), -1, INT32_MAX},
    {"frequency_penalty", 'r', RUN(frequency_penalty), -100, 100},
    {"presence_penalty", 'r', RUN(presence_penalty), -100, 100},
    {"dry_multiplier", 'r', RUN(dry_multiplier), 0, 1000},
    {"dry_base", 'r', RUN(dry_base), 1, 1000},
    {"dry_allowed_length", 'i', RUN(dry_allowed_length), 0, INT32_MAX},
    {"dry_penalty_last_n", 'i', RUN(dry_penalty_last_n), -1, INT32_MAX},
    {"dry_sequence_breakers", 'l', RUN(dry_sequence_breakers), 0, 0},
    {"logit_bias", 'l', RUN(logit_bias), 0, 0},
    {"grammar", 'l', RUN(grammar), 0, 0},
    {"stop", 'l', RUN(stop), 0, 0},
    {"seed", 'i', RUN(seed), 0, UINT32_MAX},
    {"ignore_eos", 'b', RUN(ignore_eos), 0, 1},
    {"chat", 'b', RUN(chat), 0, 1},
    {"chat_template", 'l', RUN(chat_template), 0, 0},
    {"logprobs", 'i', RUN(logprobs), 0, 1000},
    {"logits", 'b', RUN(logits), 0, 1},
    {"state", 'b', RUN(state), 0, 1},
    {"normalize", 'b', RUN(normalize), 0, 1},
    {"truncate", 'b', RUN(truncate), 0, 1},
};
const wt_choices wg_choices = {"gguf", list, sizeof list / sizeof *list};

static const wg_load_settings usual_load = {.gpu_layers = -1, .sequences = 1};
static const wg_run_settings usual_run = {
    .tokens = 32,
    .top_k = 40,
    .top_p = 0.95,
    .min_p = 0.05,
    .typical_p = 1,
    .dynatemp_exponent = 1,
    .xtc_threshold = 0.1,
    .mirostat_tau = 5,
    .mirostat_eta = 0.1,
    .repeat_penalty = 1,
    .repeat_last_n = 64,
    .dry_base = 1.75,
    .dry_allowed_length = 2,
    .dry_penalty_last_n = -1,
    .dry_sequence_breakers = "\\n\n:\n\"\n*",
    .normalize = true,
};

weir_status wg_settings_of_load(const weir_setting *settings, size_t count, wg_load_settings *load,
                                wg_run_settings *run)
{
    static const char *const ways[] = {"", "none", "mean", "cls", "last"};
    *load = usual_load;
    *run = usual_run;
    weir_status status = wt_choices_take(&wg_choices, settings, count, load, run);
    if (status != WEIR_OK)
        return status;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcasecmp(load->pooling, ways[i]) == 0) {
            memcpy(load->pooling, ways[i], strlen(ways[i]) + 1);
            return WEIR_OK;
        }
    return weir_fail(WEIR_ERR_INVALID, "the setting 'pooling' is none, mean, cls or last, not '%s'", load->pooling);
}
