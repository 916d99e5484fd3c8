/* context.c: what a load's settings say about the context: sequences, cells, the types of the cache, attention. */
#include "wg.h"

#include <string.h>
#include <strings.h>

typedef struct named {
    const char *name;
    int value;
} named;

static const named attentions[] = {{"", LLAMA_FLASH_ATTN_TYPE_AUTO},
                                   {"auto", LLAMA_FLASH_ATTN_TYPE_AUTO},
                                   {"on", LLAMA_FLASH_ATTN_TYPE_ENABLED},
                                   {"off", LLAMA_FLASH_ATTN_TYPE_DISABLED}};

static const named cache_memories[] = {{"", 0}, {"whole", 0}, {"elastic", 0}, {"promised", 0}};

static const named *context_find(const named *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}
#define FIND(list, name) context_find(list, sizeof list / sizeof *(list), name)

static weir_status context_check_cache(const char *key, const char *name, uint32_t *type)
{
    if (wi_gguf_cache_type(name, type))
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "the setting '%s' is f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1 or iq4_nl, not '%s'", key, name);
}

static bool is_quantised(uint32_t type)
{
    return type != GGML_TYPE_F32 && type != GGML_TYPE_F16 && type != GGML_TYPE_BF16;
}

weir_status wg_context_check(const wg_load_settings *load, const char *path)
{
    const named *attention = FIND(attentions, load->flash_attention);
    if (!attention)
        return weir_fail(WEIR_ERR_INVALID, "the setting 'flash_attention' is auto, on or off, not '%s'",
                         load->flash_attention);
    if (!FIND(cache_memories, load->cache_memory))
        return weir_fail(WEIR_ERR_INVALID, "the setting 'cache_memory' is elastic, promised or whole, not '%s'",
                         load->cache_memory);
    uint32_t type;
    weir_status status = context_check_cache("cache_k", load->cache_k, &type);
    if (status == WEIR_OK)
        status = context_check_cache("cache_v", load->cache_v, &type);
    if (status != WEIR_OK)
        return status;
    /* Without flash attention values lie transposed in the cache, and a block of a quantised type needs a row. */
    if (attention->value == LLAMA_FLASH_ATTN_TYPE_DISABLED && is_quantised(type))
        return weir_fail(WEIR_ERR_INVALID,
                         "%s: 'cache_v' is %s, which needs flash attention, and 'flash_attention' is off; leave it on, "
                         "or take f32, f16 or bf16",
                         path, load->cache_v);
    return WEIR_OK;
}

/* llama.cpp rounds the cells of a sequence up to these. */
static uint32_t whole_cells(uint32_t tokens)
{
    return (tokens + 255) / 256 * 256;
}

void wg_context_fill(const weir_engine_model *model, struct llama_context_params *params)
{
    const wg_load_settings *load = &model->load;
    params->flash_attn_type = (enum llama_flash_attn_type)FIND(attentions, load->flash_attention)->value;
    uint32_t type_k = GGML_TYPE_F16, type_v = GGML_TYPE_F16; /* both names were checked */
    (void)wi_gguf_cache_type(load->cache_k, &type_k);
    (void)wi_gguf_cache_type(load->cache_v, &type_v);
    params->type_k = (enum ggml_type)type_k;
    params->type_v = (enum ggml_type)type_v;
    params->rope_freq_base = (float)load->rope_frequency_base;
    params->rope_freq_scale = (float)load->rope_frequency_scale;
    params->swa_full = load->swa_full;
    if (model->embeds) {
        /* An encoder takes a whole text at once, so the longest must fit; the cache of a decoder is shared. */
        params->n_ctx = model->longest;
        params->n_batch = params->n_ubatch = model->longest;
        params->n_seq_max = WG_EMBED_SEQUENCES;
        params->kv_unified = true;
        return;
    }
    uint32_t sequences = (uint32_t)load->sequences;
    params->n_ctx = whole_cells(model->longest) * sequences;
    params->n_seq_max = sequences;
    params->kv_unified = false;
    /* Only the last tokens' logits are wanted: a compute buffer with a row for each sequence, not for each token. */
    params->n_outputs_max = sequences;
}
