#include "base/values.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

/* Keywords --------------------------------------------------------------------------------------------------------- */

/* In the order of wi_provider. */
static const char *const providers[WI_PROVIDERS] = {"tensorrt", "cuda",     "rocm", "coreml",
                                                    "directml", "openvino", "cpu"};
static const char *const policies[] = {"fastest", "manifest", "memory"};
static const char *const strategies[] = {"pool", "round-robin",       "data-parallel",   "pipeline",
                                         "auto", "pipeline-parallel", "tensor-parallel", NULL};
static const char *const splits[] = {"split", "layer-split", "row-split", "tensor-split", "sharded", "mesh", NULL};
static const char *const levels[] = {"disable", "0", "basic", "1", "extended", "2", "all", "3", "99", NULL};

const char *wi_provider_name(wi_provider provider)
{
    return providers[provider];
}

const char *wi_policy_name(wi_policy policy)
{
    return policies[policy];
}

weir_status wi_provider_read(const char *what, const char *word, wi_provider *out)
{
    for (int i = 0; i < WI_PROVIDERS; i++)
        if (strcasecmp(word, providers[i]) == 0) {
            *out = (wi_provider)i;
            return WEIR_OK;
        }
    if (strcasecmp(word, "metal") == 0) {
        *out = WI_COREML;
        return WEIR_OK;
    }
    return weir_fail(WEIR_ERR_INVALID,
                     "%s \"%.60s\" is no provider; there are tensorrt, cuda, rocm, coreml (or metal), directml, "
                     "openvino, cpu",
                     what, word);
}

weir_status wi_policy_read(const char *what, const char *word, wi_policy *out)
{
    for (int i = 0; i <= WI_MEMORY; i++)
        if (strcasecmp(word, policies[i]) == 0) {
            *out = (wi_policy)i;
            return WEIR_OK;
        }
    return weir_fail(WEIR_ERR_INVALID, "%s \"%.60s\" is no policy; there are fastest, manifest, memory", what, word);
}

static bool is_one_of(const char *const *list, const char *word)
{
    while (*list && strcasecmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

static weir_status keywords_unknown(const char *what, const char *word, const char *kind, const char *const *list)
{
    char known[256] = "";
    for (; *list; list++) {
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s", length ? ", " : "", *list);
    }
    return weir_fail(WEIR_ERR_INVALID, "%s \"%.60s\" is no %s; there are %s", what, word, kind, known);
}

weir_status wi_strategy_check(const char *what, const char *word)
{
    if (is_one_of(splits, word))
        return weir_fail(WEIR_ERR_INVALID,
                         "%s \"%s\" would split one model over several devices, which weir does not do yet; the others "
                         "(pool, auto and so on) take one device that qualifies",
                         what, word);
    return is_one_of(strategies, word) ? WEIR_OK : keywords_unknown(what, word, "strategy", strategies);
}

weir_status wi_level_check(const char *what, const char *word)
{
    return is_one_of(levels, word) ? WEIR_OK : keywords_unknown(what, word, "level of optimization", levels);
}

bool wi_level_is_all(const char *word)
{
    static const char *const all[] = {"all", "3", "99", NULL};
    return is_one_of(all, word);
}

/* Durations -------------------------------------------------------------------------------------------------------- */

enum { MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR, MOST_DAYS = 36500 };

bool wi_duration_read(const char *text, uint64_t *seconds)
{
    static const struct {
        const char *name;
        uint64_t seconds;
    } units[] = {{"s", 1}, {"m", MINUTE}, {"h", HOUR}, {"d", DAY}};
    const uint64_t most = UINT64_C(1) * MOST_DAYS * DAY;
    char *end = NULL;
    if (!isdigit((unsigned char)*text))
        return false;
    unsigned long long number = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].name) == 0 && number <= most / units[i].seconds) {
            *seconds = number * units[i].seconds;
            return true;
        }
    return false;
}

/* How far apart two words are -------------------------------------------------------------------------------------- */

enum { ROW = 64 };

size_t wi_edit_distance(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    size_t m = strlen(a), n = strlen(b);
    while (m > 0 && n > 0 && a[m - 1] == b[n - 1])
        m--, n--;
    if (n > m) {
        const char *longer = b;
        size_t most = n;
        b = a, n = m;
        a = longer, m = most;
    }
    if (n >= ROW)
        return m;
    size_t row[ROW];
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t substitution = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = substitution < step ? substitution : step;
        }
    }
    return row[n];
}
