/* choices.c: settings by name, written where the engine's table says. */
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static weir_status choices_unknown(const wt_choices *choices, const char *key, bool loading)
{
    char list[1024] = "";
    size_t used = 0;
    for (size_t i = 0; i < choices->count && used < sizeof list; i++)
        if (loading || !choices->list[i].of_load)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", choices->list[i].key);
    return weir_fail(WEIR_ERR_INVALID, "the engine %s knows no setting '%.60s' %s; it knows %s", choices->engine, key,
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

double wt_real(const char *text, char **end)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* no memory of its own */
    double number = plain ? strtod_l(text, end, plain) : strtod(text, end);
    if (plain)
        freelocale(plain);
    return number;
}

static bool choices_read_number(const wt_choice *it, const char *value, double *real, int64_t *integer)
{
    char *end = NULL;
    errno = 0;
    if (it->kind == 'i') {
        *integer = strtoll(value, &end, 10);
        *real = (double)*integer;
    } else {
        *real = wt_real(value, &end);
    }
    return errno == 0 && end != value && !*end && isfinite(*real) && *real >= it->least && *real <= it->most;
}

static bool choices_store(const wt_choice *it, const char *value, void *base)
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
        if (!choices_read_number(it, value, &real, &integer))
            return false;
        memcpy(to, it->kind == 'i' ? (const void *)&integer : (const void *)&real, 8);
        return true;
    }
}

static weir_status choices_take(const wt_choices *choices, const weir_setting *setting, void *load, void *run)
{
    if (!setting->key || !setting->value)
        return weir_fail(WEIR_ERR_INVALID, "a setting without key or value was given to the engine %s",
                         choices->engine);
    for (size_t i = 0; i < choices->count; i++) {
        const wt_choice *it = &choices->list[i];
        if (strcmp(setting->key, it->key) != 0)
            continue;
        if (it->of_load && !load)
            return weir_fail(WEIR_ERR_INVALID, "the setting '%s' is one of loading, not of a run", it->key);
        if (choices_store(it, setting->value, it->of_load ? load : run))
            return WEIR_OK;
        if (it->kind == 'b')
            return weir_fail(WEIR_ERR_INVALID, "the setting '%s' is 0 or 1, not '%.60s'", it->key, setting->value);
        if (it->kind == 't')
            return weir_fail(WEIR_ERR_INVALID, "the setting '%s' is too long: '%.60s…'", it->key, setting->value);
        return it->kind == 'i'
                   ? weir_fail(WEIR_ERR_INVALID, "the setting '%s' is a whole number from %.0f to %.0f, not '%.60s'",
                               it->key, it->least, it->most, setting->value)
                   : weir_fail(WEIR_ERR_INVALID, "the setting '%s' is a number from %g to %g, not '%.60s'", it->key,
                               it->least, it->most, setting->value);
    }
    return choices_unknown(choices, setting->key, load != NULL);
}

weir_status wt_choices_take(const wt_choices *choices, const weir_setting *settings, size_t count, void *load,
                            void *run)
{
    weir_status status = WEIR_OK;
    if (count > 0 && !settings)
        return weir_fail(WEIR_ERR_INVALID, "%zu settings are announced, and there are none", count);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = choices_take(choices, &settings[i], load, run);
    return status;
}

/* ---- beyond the call --------------------------------------------------------------------------------------------- */

static const char **choices_text_of(const wt_choice *it, void *run)
{
    return it->kind == 'l' ? (const char **)(void *)((char *)run + it->at) : NULL;
}

weir_status wt_choices_keep(const wt_choices *choices, void *run, char **copies)
{
    size_t bytes = 1;
    for (size_t i = 0; i < choices->count; i++) {
        const char **text = choices_text_of(&choices->list[i], run);
        bytes += text && *text ? strlen(*text) + 1 : 0;
    }
    char *at = *copies = malloc(bytes);
    for (size_t i = 0; i < choices->count; i++) {
        const char **text = choices_text_of(&choices->list[i], run);
        if (!text || !*text)
            continue;
        if (*copies) {
            size_t length = strlen(*text) + 1;
            memcpy(at, *text, length);
            *text = at;
            at += length;
        } else {
            *text = NULL;
        }
    }
    return *copies ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu bytes of settings", bytes);
}

bool wt_choices_words(const wt_choices *choices, const void *load, size_t except, char *out, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < choices->count && used < capacity; i++) {
        const wt_choice *it = &choices->list[i];
        const char *from = (const char *)load + it->at;
        if (!it->of_load || it->at == except)
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

/* Eight bytes at a time, each mixed into all bits of the sum. */
uint64_t wt_sum(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        uint64_t word = 0;
        size_t step = bytes < sizeof word ? bytes : sizeof word;
        memcpy(&word, at, step);
        sum = (sum ^ word ^ (uint64_t)step << 56) * 0x9E3779B97F4A7C15ull;
        sum ^= sum >> 29;
        at += step;
        bytes -= step;
    }
    return sum;
}
