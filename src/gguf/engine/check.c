/* check.c: the hyper-parameters. llama.cpp answers many impossible ones with an assertion, which ends the process; each
 * rule here stands for one of those, or for a division by zero. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 512, MOST_EXPERTS = 1024, MOST_HEADS = 65536, MOST_WIDTH = 1 << 24, LONGEST_SUFFIX = 64 };

weir_status wg_bad_key(const wg_file *file, const wg_key *key, const char *what)
{
    if (key->kind == WG_TEXT)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' is '%.60s'%s: %s, at byte %llu", file->path, key->name,
                         key->text, key->text_bytes > 60 ? "…" : "", what, (unsigned long long)key->value_at);
    if (key->kind == WG_ARRAY)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s', %llu elements of %s: %s, at byte %llu", file->path, key->name,
                         (unsigned long long)key->count, wi_gguf_kind_name(key->element), what,
                         (unsigned long long)key->value_at);
    return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' is %s %g: %s, at byte %llu", file->path, key->name,
                     wi_gguf_kind_name(key->kind), key->number, what, (unsigned long long)key->value_at);
}

weir_status wg_bad_tensor(const wg_file *file, const wg_tensor *tensor, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT,
                     "%s: tensor '%s' (%llu × %llu × %llu × %llu of type %u) %s, in its entry at byte %llu", file->path,
                     tensor->name, (unsigned long long)tensor->ne[0], (unsigned long long)tensor->ne[1],
                     (unsigned long long)tensor->ne[2], (unsigned long long)tensor->ne[3], tensor->type, what,
                     (unsigned long long)tensor->at);
}

weir_status wg_no_key(const wg_file *file, const char *name)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' is missing", file->path, name);
}

static const wg_key *gguf_check_own_key(const wg_file *file, const wg_facts *facts, const char *suffix)
{
    char name[sizeof facts->architecture + LONGEST_SUFFIX];
    snprintf(name, sizeof name, "%s.%s", facts->architecture, suffix);
    return wi_gguf_file_key(file, name);
}

/* ---- single values ----------------------------------------------------------------------------------------------- */

/* An integer of the architecture's own. Absent: WEIR_ERR_CORRUPT when `needed`, else *value stays as it is. */
static weir_status gguf_check_number(const wg_file *file, const wg_facts *facts, const char *suffix, bool needed,
                                     uint32_t least, uint32_t most, uint32_t *value)
{
    const wg_key *key = gguf_check_own_key(file, facts, suffix);
    if (!key && needed)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s.%s' is missing", file->path, facts->architecture, suffix);
    if (!key)
        return WEIR_OK;
    if (key->kind != WG_U32)
        return wg_bad_key(file, key, "it must be a u32");
    if (key->integer < least || key->integer > most) {
        char what[80];
        snprintf(what, sizeof what, "it must be %u to %u", least, most);
        return wg_bad_key(file, key, what);
    }
    *value = (uint32_t)key->integer;
    return WEIR_OK;
}

static weir_status gguf_check_real(const wg_file *file, const wg_facts *facts, const char *suffix, bool needed,
                                   double least, double most)
{
    const wg_key *key = gguf_check_own_key(file, facts, suffix);
    if (!key && needed)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s.%s' is missing", file->path, facts->architecture, suffix);
    if (!key)
        return WEIR_OK;
    if (key->kind != WG_F32)
        return wg_bad_key(file, key, "it must be an f32");
    if (!isfinite(key->number) || key->number < least || key->number > most) {
        char what[80];
        snprintf(what, sizeof what, "it must be %g to %g", least, most);
        return wg_bad_key(file, key, what);
    }
    return WEIR_OK;
}

/* Reads a key with a value for every layer, or with one value for all layers, into `each`. Without the key, `each`
 * stays as it is. */
static weir_status gguf_check_per_layer(const wg_file *file, const wg_facts *facts, const char *suffix, uint32_t most,
                                        uint32_t each[MOST_LAYERS])
{
    const wg_key *key = gguf_check_own_key(file, facts, suffix);
    if (!key)
        return WEIR_OK;
    bool array = key->kind == WG_ARRAY;
    uint32_t kind = array ? key->element : key->kind;
    if (kind != WG_U32 && kind != WG_I32)
        return wg_bad_key(file, key, "it must be a u32, or an array of them");
    if (!array) {
        if (key->integer > most)
            return wg_bad_key(file, key, "it is out of all proportion");
        for (uint32_t i = 0; i < facts->layers; i++)
            each[i] = (uint32_t)key->integer;
        return WEIR_OK;
    }
    if (key->count < facts->layers || key->count > MOST_LAYERS)
        return wg_bad_key(file, key, "it must have one element for each layer");
    wg_cursor cursor;
    weir_status status = wi_gguf_cursor_open(file, key->value_at, &cursor);
    if (status == WEIR_OK)
        status = wi_gguf_cursor_read(&cursor, each, 4ull * facts->layers);
    wi_gguf_cursor_close(&cursor);
    for (uint32_t i = 0; status == WEIR_OK && i < facts->layers; i++)
        if (each[i] > most)
            status = wg_bad_key(file, key, "an element is out of all proportion");
    return status;
}

/* ---- groups of them ---------------------------------------------------------------------------------------------- */

static weir_status architecture(const wg_file *file, wg_facts *facts)
{
    const wg_key *key = wi_gguf_file_key(file, "general.architecture");
    weir_status whole = wi_gguf_file_whole(file);
    if (whole != WEIR_OK)
        return whole;
    if (!key)
        return wg_no_key(file, "general.architecture");
    if (key->kind != WG_TEXT || key->text_bytes == 0 || key->text_bytes >= sizeof facts->architecture ||
        strspn(key->text, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != key->text_bytes)
        return wg_bad_key(file, key, "it must be a short name in small letters");
    snprintf(facts->architecture, sizeof facts->architecture, "%s", key->text);
    facts->known = strcmp(facts->architecture, "llama") == 0 || strcmp(facts->architecture, "bert") == 0;
    const wg_key *kind = wi_gguf_file_key(file, "general.type");
    if (kind && kind->kind == WG_TEXT && strcmp(kind->text, "model") != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: is no model but '%.60s'", file->path, kind->text);
    return WEIR_OK;
}

/* The assertions about experts in llama_model::load_hparams. */
static weir_status experts(const wg_file *file, const wg_facts *facts)
{
    uint32_t count = 0, groups = 0, groups_used = 0, used[MOST_LAYERS] = {0}, most = 0;
    weir_status status = gguf_check_number(file, facts, "expert_count", false, 0, MOST_EXPERTS, &count);
    if (status == WEIR_OK)
        status = gguf_check_number(file, facts, "expert_group_count", false, 0, count, &groups);
    if (status == WEIR_OK)
        status = gguf_check_number(file, facts, "expert_group_used_count", false, 0, MOST_EXPERTS, &groups_used);
    if (status == WEIR_OK)
        status = gguf_check_per_layer(file, facts, "expert_used_count", count, used);
    if (status != WEIR_OK)
        return status;
    for (uint32_t i = 0; i < facts->layers; i++)
        most = used[i] > most ? used[i] : most;
    bool sane = count == 0 || (most > 0 && groups < count);
    if (groups > 1)
        sane = sane && count % groups == 0 && groups_used > 0 && groups_used < groups;
    if (!sane)
        return weir_fail(WEIR_ERR_CORRUPT,
                         "%s: keys '%s.expert_*' contradict one another: %u experts in %u groups, %u and "
                         "%u groups used",
                         file->path, facts->architecture, count, groups, most, groups_used);
    return WEIR_OK;
}

static weir_status rope(const wg_file *file, const wg_facts *facts)
{
    static const char *const kinds[] = {"none", "linear", "yarn", "longrope"};
    const wg_key *key = gguf_check_own_key(file, facts, "rope.scaling.type");
    bool found = !key;
    for (size_t i = 0; key && key->kind == WG_TEXT && i < sizeof kinds / sizeof *kinds; i++)
        found = found || strcmp(key->text, kinds[i]) == 0;
    if (!found)
        return wg_bad_key(file, key, "it must be none, linear, yarn or longrope");
    weir_status status = gguf_check_real(file, facts, "rope.freq_base", false, 1e-6, 1e12);
    if (status == WEIR_OK)
        status = gguf_check_real(file, facts, "rope.scaling.factor", false, 0, 1e6);
    if (status == WEIR_OK)
        status = gguf_check_real(file, facts, "rope.scale_linear", false, 0, 1e6);
    if (status == WEIR_OK)
        status = gguf_check_real(file, facts, "rope.scaling.attn_factor", false, 0, 1e6);
    return status;
}

/* Heads divide one another; with `whole` they also divide the width, unless the head size is given by itself. */
static weir_status heads(const wg_file *file, const wg_facts *facts, bool rotates)
{
    uint32_t count[MOST_LAYERS] = {0}, kv[MOST_LAYERS];
    weir_status status = gguf_check_per_layer(file, facts, "attention.head_count", MOST_HEADS, count);
    memcpy(kv, count, sizeof kv);
    if (status == WEIR_OK)
        status = gguf_check_per_layer(file, facts, "attention.head_count_kv", MOST_HEADS, kv);
    for (uint32_t i = 0; status == WEIR_OK && i < facts->layers; i++)
        if (count[i] == 0 || kv[i] == 0 || kv[i] > count[i] || count[i] % kv[i] != 0)
            status = weir_fail(WEIR_ERR_CORRUPT,
                               "%s: keys '%s.attention.head_count' and 'head_count_kv' say %u and %u for "
                               "layer %u; both must be there, and the second divide the first",
                               file->path, facts->architecture, count[i], kv[i], i);
    uint32_t key_length = 0, value_length = 0, rotated = 0;
    if (status == WEIR_OK && count[0] != 0) {
        key_length = value_length = facts->width / count[0];
        if (!gguf_check_own_key(file, facts, "attention.key_length") && facts->width % count[0] != 0)
            status = weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s.embedding_length' is %u, which %u heads do not divide",
                               file->path, facts->architecture, facts->width, count[0]);
    }
    if (status == WEIR_OK)
        status = gguf_check_number(file, facts, "attention.key_length", false, 1, MOST_WIDTH, &key_length);
    if (status == WEIR_OK)
        status = gguf_check_number(file, facts, "attention.value_length", false, 1, MOST_WIDTH, &value_length);
    rotated = key_length;
    if (status == WEIR_OK)
        status = gguf_check_number(file, facts, "rope.dimension_count", false, 1, MOST_WIDTH, &rotated);
    if (status != WEIR_OK)
        return status;
    if (key_length != value_length || (rotates && (rotated != key_length || rotated % 2 != 0)))
        return weir_fail(WEIR_ERR_CORRUPT,
                         "%s: '%s' with heads of %u (keys) and %u (values) of which %u are rotated cannot "
                         "be computed: all three must be the same even number",
                         file->path, facts->architecture, key_length, value_length, rotated);
    return WEIR_OK;
}

static weir_status pooling(const wg_file *file, wg_facts *facts)
{
    facts->pooling = -1;
    const wg_key *key = gguf_check_own_key(file, facts, "pooling_type");
    if (!key)
        return WEIR_OK;
    if (key->kind != WG_U32 || key->integer > 4)
        return wg_bad_key(file, key, "it must be a u32 of 0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank)");
    facts->pooling = (int)key->integer;
    return WEIR_OK;
}

static weir_status common(const wg_file *file, wg_facts *facts)
{
    uint32_t extra = 0, wide[MOST_LAYERS] = {0};
    weir_status status = gguf_check_number(file, facts, "block_count", true, 1, MOST_LAYERS, &facts->layers);
    if (status == WEIR_OK)
        status = gguf_check_number(file, facts, "context_length", true, 1, INT32_MAX, &facts->context);
    if (status == WEIR_OK)
        status = gguf_check_number(file, facts, "embedding_length", true, 1, MOST_WIDTH, &facts->width);
    if (status == WEIR_OK)
        status = gguf_check_number(file, facts, "nextn_predict_layers", false, 0, facts->layers - 1, &extra);
    if (status == WEIR_OK)
        status = gguf_check_per_layer(file, facts, "feed_forward_length", MOST_WIDTH, wide);
    if (status == WEIR_OK)
        status = experts(file, facts);
    if (status == WEIR_OK)
        status = rope(file, facts);
    return status == WEIR_OK ? pooling(file, facts) : status;
}

static weir_status own_rules(const wg_file *file, const wg_facts *facts)
{
    bool bert = strcmp(facts->architecture, "bert") == 0;
    weir_status status = gguf_check_real(file, facts, "attention.layer_norm_epsilon", bert, 0, 1);
    if (status == WEIR_OK)
        status = gguf_check_real(file, facts, "attention.layer_norm_rms_epsilon", !bert, 0, 1);
    if (status == WEIR_OK)
        status = heads(file, facts, !bert);
    const wg_key *causal = gguf_check_own_key(file, facts, "attention.causal");
    if (status == WEIR_OK && causal && causal->kind != WG_BOOL)
        status = wg_bad_key(file, causal, "it must be a bool");
    /* A causal bert has no cache to look back into, and a llama that sees ahead has one too few: both end in
     * assertions. */
    if (status == WEIR_OK && causal && (causal->integer != 0) == bert)
        status = wg_bad_key(file, causal, bert ? "a bert sees its whole text" : "a llama sees only what came before");
    if (status == WEIR_OK && bert && !causal)
        status = weir_fail(WEIR_ERR_CORRUPT, "%s: key 'bert.attention.causal' is missing", file->path);
    return status == WEIR_OK ? wg_check_tensors(file, facts) : status;
}

weir_status wg_check_file(const wg_file *file, wg_facts *out)
{
    weir_status status = architecture(file, out);
    if (status == WEIR_OK)
        status = common(file, out);
    if (status == WEIR_OK)
        status = wg_check_vocabulary(file, out);
    if (status == WEIR_OK && file->tensor_count == 0)
        status = weir_fail(WEIR_ERR_CORRUPT, "%s: holds no tensors: a vocabulary only", file->path);
    return status == WEIR_OK && out->known ? own_rules(file, out) : status;
}
