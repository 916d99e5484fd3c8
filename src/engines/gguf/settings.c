/* settings.c: choices by name. One table says what there is, where it goes and what values it takes. */
#include "wg.h"
#include <weir/engine.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct choice {
    const char *key;
    char kind; /* i(nteger), r(eal), b(ool), t(ext, short), l(ong text: a pointer to the caller's) */
    bool of_load;
    size_t at;
    double least, most; /* for a text: `most` bytes with its end */
} choice;

#define LOAD(member) true, offsetof(wg_load_settings, member)
#define RUN(member)  false, offsetof(wg_run_settings, member)

static const choice choices[] = {
    {"threads", 'i', LOAD(threads), 0, 512},
    {"context", 'i', LOAD(context), 0, 1 << 24},
    {"batch", 'i', LOAD(batch), 0, 65536},
    {"mmap", 'b', LOAD(mmap), 0, 1},
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
    {"tokens", 'i', RUN(tokens), 0, INT32_MAX},
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
enum { CHOICES = sizeof choices / sizeof *choices };

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

static weir_status unknown(const char *key, bool loading)
{
    char list[1024] = "";
    size_t used = 0;
    for (size_t i = 0; i < CHOICES; i++)
        if (loading || !choices[i].of_load)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", choices[i].key);
    return weir_fail(WEIR_ERR_INVALID, "the engine gguf knows no setting '%.60s' %s; it knows %s", key,
                     loading ? "at load" : "for a run", list);
}

static bool read_bool(const char *value, bool *out)
{
    static const char *const words[] = {"0", "1", "false", "true", "off", "on", "no", "yes"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    return false;
}

static bool read_number(const choice *it, const char *value, double *real, int64_t *integer)
{
    char *end = NULL;
    errno = 0;
    if (it->kind == 'i') {
        *integer = strtoll(value, &end, 10);
        *real = (double)*integer;
    } else {
        *real = strtod(value, &end);
    }
    return errno == 0 && end != value && !*end && isfinite(*real) && *real >= it->least && *real <= it->most;
}

static bool store(const choice *it, const char *value, void *base)
{
    char *to = (char *)base + it->at;
    double real = 0;
    int64_t integer = 0;
    switch (it->kind) {
    case 'b':
        return read_bool(value, (bool *)(void *)to);
    case 't':
        if (strlen(value) >= (size_t)it->most)
            return false;
        memcpy(to, value, strlen(value) + 1);
        return true;
    case 'l':
        *(const char **)(void *)to = value;
        return true;
    default:
        if (!read_number(it, value, &real, &integer))
            return false;
        memcpy(to, it->kind == 'i' ? (const void *)&integer : (const void *)&real, 8);
        return true;
    }
}

static weir_status take(const weir_setting *setting, wg_load_settings *load, wg_run_settings *run)
{
    if (!setting->key || !setting->value)
        return weir_fail(WEIR_ERR_INVALID, "a setting without key or value was given to the engine gguf");
    for (size_t i = 0; i < CHOICES; i++) {
        const choice *it = &choices[i];
        if (strcmp(setting->key, it->key) != 0)
            continue;
        if (it->of_load && !load)
            return weir_fail(WEIR_ERR_INVALID, "the setting '%s' is one of loading, not of a run", it->key);
        if (store(it, setting->value, it->of_load ? (void *)load : (void *)run))
            return WEIR_OK;
        if (it->kind == 'b')
            return weir_fail(WEIR_ERR_INVALID, "the setting '%s' is 0 or 1, not '%.60s'", it->key, setting->value);
        if (it->kind == 't')
            return weir_fail(WEIR_ERR_INVALID, "the setting '%s' is too long: '%.60s…'", it->key, setting->value);
        return weir_fail(WEIR_ERR_INVALID, "the setting '%s' is a%s number from %g to %g, not '%.60s'", it->key,
                         it->kind == 'i' ? " whole" : "", it->least, it->most, setting->value);
    }
    return unknown(setting->key, load != NULL);
}

static weir_status take_all(const weir_setting *settings, size_t count, wg_load_settings *load, wg_run_settings *run)
{
    weir_status status = WEIR_OK;
    if (count > 0 && !settings)
        return weir_fail(WEIR_ERR_INVALID, "%zu settings are announced, and there are none", count);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = take(&settings[i], load, run);
    return status;
}

weir_status wg_settings_of_load(const weir_setting *settings, size_t count, wg_load_settings *load,
                                wg_run_settings *run)
{
    static const char *const ways[] = {"", "none", "mean", "cls", "last"};
    *load = usual_load;
    *run = usual_run;
    weir_status status = take_all(settings, count, load, run);
    if (status != WEIR_OK)
        return status;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcasecmp(load->pooling, ways[i]) == 0) {
            memcpy(load->pooling, ways[i], strlen(ways[i]) + 1);
            return WEIR_OK;
        }
    return weir_fail(WEIR_ERR_INVALID, "the setting 'pooling' is none, mean, cls or last, not '%s'", load->pooling);
}

weir_status wg_settings_of_run(const weir_setting *settings, size_t count, wg_run_settings *run)
{
    return take_all(settings, count, NULL, run);
}

/* ---- beyond the call --------------------------------------------------------------------------------------------- */

static const char **text_of(const choice *it, wg_run_settings *run)
{
    return it->kind == 'l' ? (const char **)(void *)((char *)run + it->at) : NULL;
}

weir_status wg_settings_keep(wg_run_settings *run)
{
    size_t bytes = 1;
    for (size_t i = 0; i < CHOICES; i++) {
        const char **text = text_of(&choices[i], run);
        bytes += text && *text ? strlen(*text) + 1 : 0;
    }
    char *at = run->kept = malloc(bytes);
    for (size_t i = 0; i < CHOICES; i++) {
        const char **text = text_of(&choices[i], run);
        if (!text || !*text)
            continue;
        if (run->kept) {
            size_t length = strlen(*text) + 1;
            memcpy(at, *text, length);
            *text = at;
            at += length;
        } else {
            *text = NULL;
        }
    }
    return run->kept ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu bytes of settings", bytes);
}

void wg_settings_drop(wg_run_settings *run)
{
    free(run->kept);
    run->kept = NULL;
}

bool wg_settings_words(const wg_load_settings *load, char *out, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < CHOICES && used < capacity; i++) {
        const choice *it = &choices[i];
        const char *from = (const char *)load + it->at;
        /* The library is told by its file. */
        if (!it->of_load || it->at == offsetof(wg_load_settings, llama))
            continue;
        char *to = out + used;
        if (it->kind == 'i')
            used += (size_t)snprintf(to, capacity - used, " %" PRId64, *(const int64_t *)(const void *)from);
        else if (it->kind == 'r')
            used += (size_t)snprintf(to, capacity - used, " %a", *(const double *)(const void *)from);
        else if (it->kind == 'b')
            used += (size_t)snprintf(to, capacity - used, " %d", *(const bool *)(const void *)from);
        else
            used += (size_t)snprintf(to, capacity - used, " '%s'", from);
    }
    return used < capacity;
}
