/* ports.c: what inputs must be, and how results are put together and handed out. */
#include "text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A text and its tokens are read by the processor, also where the model is on a device. */
static weir_status text_ports_check_place(const weir_tensor *input)
{
    if (input->struct_size <= offsetof(weir_tensor, on_device) || !input->on_device)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "the input '%s' lies on a device and must be memory of the host's", input->name);
}

weir_status wt_check_bytes(const weir_tensor *input, weir_type type)
{
    size_t bytes = 0;
    if (input->type != type)
        return weir_fail(WEIR_ERR_INVALID, "the input '%s' is of type %s and must be %s", input->name,
                         weir_name_of(WEIR_NAMES_TYPE, input->type), weir_name_of(WEIR_NAMES_TYPE, type));
    if (text_ports_check_place(input) != WEIR_OK)
        return WEIR_ERR_INVALID;
    if (input->rank != 1)
        return weir_fail(WEIR_ERR_INVALID, "the input '%s' has rank %u and must have 1, its bytes", input->name,
                         input->rank);
    weir_status status = weir_tensor_bytes(input->type, input->rank, input->shape, &bytes);
    if (status != WEIR_OK)
        return status;
    bool too_many = type == WEIR_TYPE_TEXT && bytes > INT32_MAX;
    if (bytes != input->bytes || too_many || (bytes > 0 && !input->data))
        return weir_fail(WEIR_ERR_INVALID,
                         "the input '%s' says %zu bytes by its shape and %zu by itself, at most %d are "
                         "taken",
                         input->name, bytes, input->bytes, INT32_MAX);
    if (bytes == 0)
        return weir_fail(WEIR_ERR_INVALID, "the input '%s' is empty", input->name);
    return WEIR_OK;
}

weir_status wt_text_copy(const weir_tensor *input, char **out)
{
    *out = NULL;
    if (memchr(input->data, '\0', input->bytes))
        return weir_fail(WEIR_ERR_INVALID, "the input '%s' has a byte 0 in its text", input->name);
    *out = malloc(input->bytes + 1);
    if (!*out)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu bytes of text", input->bytes);
    memcpy(*out, input->data, input->bytes);
    (*out)[input->bytes] = '\0';
    return WEIR_OK;
}

weir_status wt_check_tokens(const weir_tensor *input, uint32_t rank, int32_t vocabulary, bool padded)
{
    size_t bytes = 0;
    if (input->type != WEIR_TYPE_I32)
        return weir_fail(WEIR_ERR_INVALID, "the input 'tokens' is of type %s and must be i32",
                         weir_name_of(WEIR_NAMES_TYPE, input->type));
    if (text_ports_check_place(input) != WEIR_OK)
        return WEIR_ERR_INVALID;
    if (input->rank == 0 || input->rank > rank)
        return weir_fail(WEIR_ERR_INVALID, "the input 'tokens' has rank %u and must have %s", input->rank,
                         rank == 2 ? "1 or 2" : "1");
    weir_status status = weir_tensor_bytes(input->type, input->rank, input->shape, &bytes);
    if (status != WEIR_OK)
        return status;
    if (bytes != input->bytes || (bytes > 0 && !input->data))
        return weir_fail(WEIR_ERR_INVALID, "the input 'tokens' says %zu bytes by its shape and %zu by itself", bytes,
                         input->bytes);
    if (bytes == 0)
        return weir_fail(WEIR_ERR_INVALID, "the input 'tokens' is empty");
    const int32_t *tokens = input->data;
    bool fills = padded && input->rank == 2;
    for (size_t i = 0; i < bytes / sizeof *tokens; i++)
        if (tokens[i] >= vocabulary || (tokens[i] < 0 && !(fills && tokens[i] == -1)))
            return weir_fail(WEIR_ERR_INVALID, "the input 'tokens' holds %d at place %zu; the vocabulary has 0 to %d%s",
                             tokens[i], i, vocabulary - 1, fills ? ", and -1 fills a row up" : "");
    return WEIR_OK;
}

static weir_status ports_check_inputs(const wt_inputs *in, size_t kinds, int32_t vocabulary)
{
    bool embeds = kinds == WT_EMBEDS;
    weir_status status = in->text ? wt_check_bytes(in->text, WEIR_TYPE_TEXT) : WEIR_OK;
    if (status == WEIR_OK && in->messages)
        status = wt_check_bytes(in->messages, WEIR_TYPE_TEXT);
    if (status == WEIR_OK && in->state)
        status = wt_check_bytes(in->state, WEIR_TYPE_U8);
    return status == WEIR_OK && in->tokens ? wt_check_tokens(in->tokens, embeds ? 2 : 1, vocabulary, embeds) : status;
}

weir_status wt_inputs_read(const weir_inference *inference, size_t kinds, int32_t vocabulary, wt_inputs *out)
{
    static const char *const names[] = {"text", "tokens", "messages", "state"};
    const char *more = kinds == WT_EMBEDS ? "" : kinds == WT_CHATS ? " or 'messages'" : " or 'messages', and 'state'";
    const weir_tensor **const places[] = {&out->text, &out->tokens, &out->messages, &out->state};
    *out = (wt_inputs){0};
    if (inference->input_count > 0 && !inference->inputs)
        return weir_fail(WEIR_ERR_INVALID, "%zu inputs are announced, and there are none", inference->input_count);
    const char *at = (const char *)inference->inputs;
    for (size_t i = 0; i < inference->input_count; i++, at += inference->inputs[0].struct_size) {
        const weir_tensor *input = (const weir_tensor *)(const void *)at;
        const char *name = input->name ? input->name : "";
        size_t kind = 0;
        while (kind < kinds && strcmp(name, names[kind]) != 0)
            kind++;
        if (kind == kinds)
            return weir_fail(WEIR_ERR_INVALID, "this model has no input '%.60s'; it takes 'text' or 'tokens'%s", name,
                             more);
        if (*places[kind])
            return weir_fail(WEIR_ERR_INVALID, "the input '%s' is there twice", name);
        *places[kind] = input;
    }
    out->prompts = (out->text != NULL) + (out->tokens != NULL) + (out->messages != NULL);
    if (out->prompts > 1)
        return weir_fail(WEIR_ERR_INVALID, "one input is taken, 'text' or 'tokens'%s, and there are %d",
                         kinds > WT_EMBEDS ? " or 'messages'" : "", out->prompts);
    return ports_check_inputs(out, kinds, vocabulary);
}

/* ---- what there is -------------------------------------------------------------------------------------------------- */

const weir_port wt_prompt_ports[] = {
    {"text", WEIR_TYPE_TEXT, 1, {-1}, true},
    {"tokens", WEIR_TYPE_I32, 1, {-1}, true},
    {"messages", WEIR_TYPE_TEXT, 1, {-1}, true},
};

const weir_port wt_answer_ports[] = {
    {"tokens", WEIR_TYPE_I32, 1, {-1}, false},         {"text", WEIR_TYPE_TEXT, 1, {-1}, false},
    {"finish_reason", WEIR_TYPE_TEXT, 1, {-1}, false}, {"prompt_tokens", WEIR_TYPE_I32, 1, {-1}, false},
    {"stop_word", WEIR_TYPE_TEXT, 1, {-1}, true},      {"logprobs", WEIR_TYPE_F32, 1, {-1}, true},
    {"top_tokens", WEIR_TYPE_I32, 2, {-1, -1}, true},  {"top_logprobs", WEIR_TYPE_F32, 2, {-1, -1}, true},
};

/* ---- results ----------------------------------------------------------------------------------------------------- */

void wt_parts_add(wt_parts *parts, const char *name, weir_type type, const void *data, size_t count)
{
    size_t width = type == WEIR_TYPE_TEXT || type == WEIR_TYPE_U8 ? 1 : 4;
    parts->list[parts->count++] = (wt_part){name, type, 1, {(int64_t)count}, data, count * width};
}

void wt_parts_add_rows(wt_parts *parts, const char *name, weir_type type, const void *data, size_t rows, size_t columns)
{
    wt_parts_add(parts, name, type, data, rows * columns);
    wt_part *it = &parts->list[parts->count - 1];
    it->rank = 2;
    it->shape[0] = (int64_t)rows;
    it->shape[1] = (int64_t)columns;
}

/* What engine_data points at: the tensors, and the client's block behind their data. */
typedef struct handed {
    weir_block block;
    weir_tensor tensors[WT_PARTS];
} handed;

static size_t room_of(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

weir_status wt_hand_out(weir_client *client, weir_kind kind, const wt_parts *parts, weir_outputs *out)
{
    size_t total = 0;
    handed *it = calloc(1, sizeof *it);
    if (!it)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the list of results");
    for (size_t i = 0; i < parts->count; i++)
        total += room_of(parts->list[i].bytes);
    weir_request request = WEIR_INIT(weir_request);
    request.bytes = total;
    request.memory_class = WEIR_CLASS_ACTIVATIONS;
    request.tag = "results";
    request.kind = kind;
    weir_status status = weir_alloc_with(client, &request, &it->block);
    if (status != WEIR_OK) {
        free(it);
        return status;
    }
    char *data = it->block.pointer;
    for (size_t i = 0; i < parts->count; i++) {
        const wt_part *part = &parts->list[i];
        weir_tensor tensor = {.struct_size = sizeof tensor,
                              .name = part->name,
                              .type = part->type,
                              .rank = part->rank,
                              .data = part->bytes ? data : NULL,
                              .bytes = part->bytes};
        memcpy(tensor.shape, part->shape, sizeof part->shape);
        if (part->bytes && data && part->data)
            memcpy(data, part->data, part->bytes);
        data = data ? data + room_of(part->bytes) : NULL;
        it->tensors[i] = tensor;
    }
    out->tensors = it->tensors;
    out->count = parts->count;
    out->engine_data = it;
    return WEIR_OK;
}

weir_status wt_release_outputs(weir_client *client, weir_outputs *outputs)
{
    handed *it = outputs->engine_data;
    weir_status status = it ? weir_free_block(client, it->block, WEIR_STREAM_HOST) : WEIR_OK;
    free(it);
    outputs->tensors = NULL;
    outputs->count = 0;
    outputs->engine_data = NULL;
    return status;
}
