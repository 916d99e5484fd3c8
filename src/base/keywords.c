#include "base/keywords.h"

#include <stdio.h>
#include <strings.h>

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

static weir_status unknown(const char *what, const char *word, const char *kind, const char *const *list)
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
    return is_one_of(strategies, word) ? WEIR_OK : unknown(what, word, "strategy", strategies);
}

weir_status wi_level_check(const char *what, const char *word)
{
    return is_one_of(levels, word) ? WEIR_OK : unknown(what, word, "level of optimization", levels);
}

bool wi_level_is_all(const char *word)
{
    static const char *const all[] = {"all", "3", "99", NULL};
    return is_one_of(all, word);
}
