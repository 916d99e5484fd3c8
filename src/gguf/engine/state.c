/* state.c: a sequence saved and put back. llama.cpp does not check the bytes of a state, so weir puts a header before
 * them: a fingerprint of the model, the number of bytes, the tokens, and a checksum over header and bytes. */
#include "wg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_VERSION = 1, SAMPLES = 256, SAMPLE = 4096 };
static const char magic[8] = {'w', 'e', 'i', 'r', 's', 'e', 'q', '\n'};

/* ---- which model ------------------------------------------------------------------------------------------------- */

/* The whole of a large file would take seconds; two models that agree in length and in these places are one. */
weir_status wg_fingerprint(weir_engine_model *model, const char *path)
{
    char words[1024] = "";
    unsigned char *piece = malloc(SAMPLE);
    FILE *file = fopen(path, "rbe");
    uint64_t sum = 0, length = 0;
    if (file && fseek(file, 0, SEEK_END) == 0)
        length = (uint64_t)ftell(file);
    for (uint64_t i = 0; piece && file && i < SAMPLES; i++) {
        uint64_t at = length > SAMPLE ? (length - SAMPLE) / (SAMPLES - 1) * i : 0;
        if (fseek(file, (long)at, SEEK_SET) != 0)
            break;
        sum = wt_sum(sum, piece, fread(piece, 1, SAMPLE, file));
    }
    bool whole = piece != NULL, read = whole && file && !ferror(file);
    if (file)
        fclose(file);
    free(piece);
    if (!read)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path,
                         whole ? "cannot be read again" : "no memory to read it again");
    const wg_load_settings *load = &model->load;
    snprintf(words, sizeof words, "%llu bytes, %s, %d sequences, cache %s %s, attention %s, rope %a %a%s",
             (unsigned long long)length, WG_LLAMA_COMMIT, (int)load->sequences, load->cache_k, load->cache_v,
             load->flash_attention, load->rope_frequency_base, load->rope_frequency_scale,
             load->swa_full ? ", whole windows" : "");
    model->fingerprint = wt_sum(sum, words, strlen(words));
    return WEIR_OK;
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static weir_status gguf_state_wrong(const char *why)
{
    return weir_fail(WEIR_ERR_INVALID, "the input 'state' %s", why);
}

static uint64_t gguf_state_sum(const wg_state_head *head, const uint8_t *behind)
{
    uint64_t sum = wt_sum(0, head, offsetof(wg_state_head, sum));
    return wt_sum(sum, behind, head->tokens * sizeof(int32_t) + (size_t)head->bytes);
}

static weir_status check_head(const weir_engine_model *model, const wg_state_head *head, size_t behind)
{
    if (memcmp(head->magic, magic, sizeof magic) != 0)
        return gguf_state_wrong("is no saved sequence of this engine");
    if (head->version != STATE_VERSION)
        return gguf_state_wrong("was saved by another version of this engine");
    if (head->fingerprint != model->fingerprint)
        return gguf_state_wrong(
            "is of another model, or of another cache: 'sequences', 'cache_k', 'cache_v', 'flash_attention', "
            "'swa_full' "
            "and the rope settings must be those of the load that saved it");
    if (head->tokens == 0 || head->computed > head->tokens || head->bytes > behind ||
        head->tokens * sizeof(int32_t) != behind - head->bytes)
        return gguf_state_wrong("is cut off, or longer than it says");
    if (head->tokens > model->longest)
        return weir_fail(WEIR_ERR_INVALID, "the input 'state' stands for %u tokens, and the context holds %u",
                         head->tokens, model->longest);
    return WEIR_OK;
}

static uint32_t gguf_state_number_at(const uint8_t *bytes, size_t at)
{
    uint32_t number;
    memcpy(&number, bytes + at, sizeof number);
    return number;
}

/* llama.cpp's bytes begin with a mark, a sequence, the number of streams, and the cells of each up to the first that
 * has some: no more than there is memory for. */
static bool has_more_cells(const weir_engine_model *model, const wg_prompt *it)
{
    enum { STREAMS = 8, CELLS = 12 };
    if (it->saved_bytes < CELLS || gguf_state_number_at(it->saved, STREAMS) != (uint32_t)model->load.sequences)
        return false;
    for (size_t at = CELLS, i = 0; i < (size_t)model->load.sequences && at + 4 <= it->saved_bytes; i++, at += 4)
        if (gguf_state_number_at(it->saved, at) > 0)
            return gguf_state_number_at(it->saved, at) > it->restored;
    return false;
}

weir_status wg_state_open(const weir_engine_model *model, const weir_tensor *saved, wg_prompt *out)
{
    wg_state_head head;
    const uint8_t *behind = (const uint8_t *)saved->data + sizeof head;
    if (saved->bytes < sizeof head)
        return gguf_state_wrong("is cut off");
    memcpy(&head, saved->data, sizeof head);
    weir_status status = check_head(model, &head, saved->bytes - sizeof head);
    if (status != WEIR_OK)
        return status;
    if (head.sum != gguf_state_sum(&head, behind))
        return gguf_state_wrong("has been changed: its sum is wrong");
    int32_t most = model->library->llama_vocab_n_tokens(model->vocab);
    out->tokens = malloc(head.tokens * sizeof *out->tokens);
    if (!out->tokens)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a state of %u tokens", head.tokens);
    memcpy(out->tokens, behind, head.tokens * sizeof *out->tokens);
    out->count = head.tokens;
    for (size_t i = 0; i < out->count; i++)
        if (out->tokens[i] < 0 || out->tokens[i] >= most) {
            wg_prompt_drop(out);
            return gguf_state_wrong("has tokens that the vocabulary has not");
        }
    out->restored = head.computed;
    out->saved = behind + head.tokens * sizeof *out->tokens;
    out->saved_bytes = (size_t)head.bytes;
    if (has_more_cells(model, out)) {
        wg_prompt_drop(out);
        return gguf_state_wrong("has more cells than tokens");
    }
    return WEIR_OK;
}

const int32_t *wg_state_tokens(const uint8_t *saved, size_t *count)
{
    wg_state_head head;
    memcpy(&head, saved, sizeof head);
    *count = head.tokens;
    return (const int32_t *)(const void *)(saved + sizeof head);
}

/* ---- llama.cpp's part -------------------------------------------------------------------------------------------- */

bool wg_state_restore(wg_generation *it)
{
    const wg_library *lib = it->model->library;
    const wg_prompt *from = &it->prompt;
    llama_memory_t memory = lib->llama_get_memory(it->model->context);
    if (from->restored == 0)
        return true;
    size_t read = lib->llama_state_seq_set_data(it->model->context, from->saved, from->saved_bytes, it->sequence);
    return read == from->saved_bytes && lib->llama_memory_seq_pos_min(memory, it->sequence) >= 0 &&
           lib->llama_memory_seq_pos_max(memory, it->sequence) == (llama_pos)from->restored - 1;
}

weir_status wg_state_save(wg_generation *it)
{
    const wg_library *lib = it->model->library;
    size_t count = wg_token_count(it), bytes = 0;
    if (it->computed > 0)
        bytes = lib->llama_state_seq_get_size(it->model->context, it->sequence);
    wg_state_head head = {.version = STATE_VERSION,
                          .tokens = (uint32_t)count,
                          .computed = (uint32_t)it->computed,
                          .fingerprint = it->model->fingerprint,
                          .bytes = bytes};
    memcpy(head.magic, magic, sizeof magic);
    size_t begins = sizeof head + count * sizeof(int32_t);
    it->saved = malloc(begins + bytes);
    if (!it->saved)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a state of %zu bytes", bytes);
    for (size_t i = 0; i < count; i++) {
        int32_t token = wg_token_at(it, i);
        memcpy(it->saved + sizeof head + i * sizeof token, &token, sizeof token);
    }
    if (bytes > 0 &&
        lib->llama_state_seq_get_data(it->model->context, it->saved + begins, bytes, it->sequence) != bytes)
        return weir_fail(WEIR_ERR_ENGINE, "llama.cpp does not give the state of a sequence");
    head.sum = gguf_state_sum(&head, it->saved + sizeof head);
    memcpy(it->saved, &head, sizeof head);
    it->saved_bytes = begins + bytes;
    return WEIR_OK;
}
