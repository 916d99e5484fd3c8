/* check_tensors.c: the tensors that `llama` and `bert` compute with. llama.cpp itself compares shapes by name and
 * throws (a clean error); it does not ask whether a type can take part in the operation, and aborts in the middle of a
 * run. */
#include "check.h"

#include <stdio.h>
#include <string.h>

enum { TYPE_F32 = 0 };

/* What a matrix may be made of: every type with a product on the CPU. Leaves out whole numbers, f64 and the formats
 * that only activations take (q8_1, q8_K). */
static bool multiplies(uint32_t type)
{
    return !(type == 9 || type == 15 || (type >= 24 && type <= 28));
}

static bool check_tensors_ends_with(const char *text, const char *end)
{
    size_t all = strlen(text), part = strlen(end);
    return all >= part && strcmp(text + all - part, end) == 0;
}

/* Everything that is added or scaled by must be f32; everything that is multiplied, a type that can be. */
static weir_status check_tensors_type_of(const wg_file *file, const wg_tensor *tensor)
{
    bool plain = tensor->dims == 1 || check_tensors_ends_with(tensor->name, ".bias") ||
                 strcmp(tensor->name, "token_types.weight") == 0 || strstr(tensor->name, "norm") ||
                 strncmp(tensor->name, "rope_", 5) == 0;
    if (plain && tensor->type != TYPE_F32)
        return wg_bad_tensor(file, tensor, "must be of type f32 (0), or no sum with it can be formed");
    if (!multiplies(tensor->type))
        return wg_bad_tensor(file, tensor, "is of a type that no product is defined for");
    return WEIR_OK;
}

static weir_status shape(const wg_file *file, const char *name, uint64_t first, uint64_t second)
{
    const wg_tensor *tensor = wi_gguf_file_tensor(file, name);
    char what[96];
    if (!tensor)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: tensor '%s' is missing", file->path, name);
    if (tensor->ne[0] == first && tensor->ne[1] == second && tensor->ne[2] == 1 && tensor->ne[3] == 1)
        return WEIR_OK;
    snprintf(what, sizeof what, "should be %llu × %llu", (unsigned long long)first, (unsigned long long)second);
    return wg_bad_tensor(file, tensor, what);
}

static weir_status layers(const wg_file *file, const wg_facts *facts, const char *const *names)
{
    weir_status status = WEIR_OK;
    char name[WG_NAME_BYTES];
    for (uint32_t i = 0; i < facts->layers && status == WEIR_OK; i++)
        for (const char *const *each = names; *each && status == WEIR_OK; each++) {
            snprintf(name, sizeof name, "blk.%u.%s", i, *each);
            status = shape(file, name, facts->width, 1);
        }
    return status;
}

weir_status wg_check_tensors(const wg_file *file, const wg_facts *facts)
{
    static const char *const llama_norms[] = {"attn_norm.weight", "ffn_norm.weight", NULL};
    static const char *const bert_norms[] = {"attn_output_norm.weight", "layer_output_norm.weight", NULL};
    bool bert = strcmp(facts->architecture, "bert") == 0;
    weir_status status = shape(file, "token_embd.weight", facts->width, facts->tokens);
    if (status == WEIR_OK)
        status = shape(file, bert ? "token_embd_norm.weight" : "output_norm.weight", facts->width, 1);
    if (status == WEIR_OK && bert)
        status = shape(file, "position_embd.weight", facts->width, facts->context);
    if (status == WEIR_OK)
        status = layers(file, facts, bert ? bert_norms : llama_norms);
    for (size_t i = 0; i < file->tensor_count && status == WEIR_OK; i++)
        status = check_tensors_type_of(file, &file->tensors[i]);
    return status;
}
