/* settings.c: choices by name; those that the engine gguf has, too, mean the same. */
#include "wl.h"

#include <stddef.h>

#define LOAD(member) true, offsetof(wl_load_settings, member)
#define RUN(member)  false, offsetof(wl_run_settings, member)

static const wt_choice list[] = {
    {"threads", 'i', LOAD(threads), 0, 512},
    {"context", 'i', LOAD(context), 0, 1 << 24},
    {"batch", 'i', LOAD(batch), 0, 65536},
    {"sequences", 'i', LOAD(sequences), 1, WL_MOST_SEQUENCES},
    {"tokens", 'i', RUN(tokens), -1, INT32_MAX},
    {"temperature", 'r', RUN(temperature), 0, 1000},
    {"top_k", 'i', RUN(top_k), 0, INT32_MAX},
    {"top_p", 'r', RUN(top_p), 0, 1},
    {"repeat_penalty", 'r', RUN(repeat_penalty), 0.01, 100},
    {"no_repeat_ngram", 'i', RUN(no_repeat_ngram), 0, INT32_MAX},
    {"seed", 'i', RUN(seed), 0, INT32_MAX},
    {"ignore_eos", 'b', RUN(ignore_eos), 0, 1},
    {"stop", 'l', RUN(stop), 0, 0},
    {"chat", 'b', RUN(chat), 0, 1},
    {"chat_template", 'l', RUN(chat_template), 0, 0},
    {"json_schema", 'l', RUN(json_schema), 0, 0},
    {"regex", 'l', RUN(regex), 0, 0},
    {"lark", 'l', RUN(lark), 0, 0},
    {"logprobs", 'i', RUN(logprobs), 0, 1000},
    {"logits", 'b', RUN(logits), 0, 1},
};
const wt_choices wl_choices = {"llm", list, sizeof list / sizeof *list};

static const wl_load_settings usual_load = {.sequences = 1};
static const wl_run_settings usual_run = {.tokens = 32, .top_k = 40, .top_p = 0.95, .repeat_penalty = 1};

static weir_status check_guidance(const wl_run_settings *run)
{
    int count = (run->json_schema != NULL) + (run->regex != NULL) + (run->lark != NULL);
    return count < 2 ? WEIR_OK
                     : weir_fail(WEIR_ERR_INVALID,
                                 "one of the settings 'json_schema', 'regex' and 'lark' is taken, and "
                                 "there are %d",
                                 count);
}

weir_status wl_settings_of_load(const weir_setting *settings, size_t count, wl_load_settings *load,
                                wl_run_settings *run)
{
    *load = usual_load;
    *run = usual_run;
    weir_status status = wt_choices_take(&wl_choices, settings, count, load, run);
    return status == WEIR_OK ? check_guidance(run) : status;
}

/* FNV-1a (Fowler, Noll, Vo) of the words. Threads take no memory of the account's. */
uint64_t wl_settings_number(const wl_load_settings *load)
{
    char words[256];
    uint64_t sum = UINT64_C(14695981039346656037);
    if (!wt_choices_words(&wl_choices, load, offsetof(wl_load_settings, threads), words, sizeof words))
        return 0;
    for (const char *at = words; *at; at++)
        sum = (sum ^ (unsigned char)*at) * UINT64_C(1099511628211);
    return sum | 1;
}

weir_status wl_settings_of_run(const weir_setting *settings, size_t count, wl_run_settings *run)
{
    weir_status status = wt_choices_take(&wl_choices, settings, count, NULL, run);
    return status == WEIR_OK ? check_guidance(run) : status;
}
