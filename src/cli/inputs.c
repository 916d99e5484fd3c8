#include "inputs.h"

#include "fill.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char default_text[] = "The quick brown fox jumps over the lazy dog.";
enum { DEFAULT_EXTENT = 16 };

char *inputs_names(const weir_model_info *info)
{
    char *all = text_copy(info->input_count == 0 ? "none" : "");
    for (size_t i = 0; i < info->input_count; i++) {
        char *more = text_print("%s%s%s", all, i > 0 ? ", " : "", info->inputs[i].name);
        free(all);
        all = more;
    }
    return all;
}

/* What was given for this input: for this model rather than for every one. */
static given_input *find_given(const weir_port *port, int model, given_input *given, size_t count)
{
    given_input *found = NULL;
    for (size_t i = 0; i < count; i++) {
        bool fits = given[i].model == GIVEN_EVERY_MODEL || given[i].model == model;
        if (!fits || strcmp(given[i].name, port->name) != 0)
            continue;
        given[i].used = true;
        if (found == NULL || given[i].model == model)
            found = &given[i];
    }
    return found;
}

static weir_status set_text(weir_tensor *tensor, const char *text)
{
    tensor->rank = 1;
    tensor->bytes = strlen(text);
    tensor->shape[0] = (int64_t)tensor->bytes;
    tensor->data = text_copy(text);
    return WEIR_OK;
}

static weir_status set_room(weir_tensor *tensor, uint32_t rank, const int64_t *shape)
{
    if (weir_tensor_bytes(tensor->type, rank, shape, &tensor->bytes) != WEIR_OK)
        return WEIR_ERR_INVALID;
    tensor->rank = rank;
    if (rank > 0)
        memcpy(tensor->shape, shape, rank * sizeof *shape);
    tensor->data = malloc(tensor->bytes == 0 ? 1 : tensor->bytes);
    return tensor->data != NULL ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no memory for its %zu bytes", tensor->bytes);
}

/* The first open dimension is usually the batch, the others lengths. */
static weir_status set_default(weir_tensor *tensor, const weir_port *port)
{
    if (port->type == WEIR_TYPE_TEXT)
        return set_text(tensor, default_text);
    int64_t shape[WEIR_MAX_RANK];
    bool first = true;
    for (uint32_t i = 0; i < port->rank; i++) {
        shape[i] = port->shape[i] >= 0 ? port->shape[i] : first ? 1 : DEFAULT_EXTENT;
        first = first && port->shape[i] >= 0;
    }
    weir_status status = set_room(tensor, port->rank, shape);
    if (status == WEIR_OK)
        fill_pattern(tensor->type, tensor->data, tensor->bytes);
    return status;
}

static weir_status set_shape(weir_tensor *tensor, const given_input *given)
{
    if (tensor->type == WEIR_TYPE_TEXT)
        return weir_fail(WEIR_ERR_INVALID, "is text, which has no shape to fill: give the text, or @FILE");
    weir_status status = set_room(tensor, given->rank, given->shape);
    if (status == WEIR_OK)
        fill_pattern(tensor->type, tensor->data, tensor->bytes);
    return status;
}

/* NumPy has no bf16 and no f8: those come as unsigned numbers of the same width. */
static bool array_fits(weir_type wanted, weir_type stored)
{
    bool byte_float = wanted >= WEIR_TYPE_F8E4M3FN && wanted <= WEIR_TYPE_F8E5M2FNUZ;
    return wanted == stored || (wanted == WEIR_TYPE_BF16 && stored == WEIR_TYPE_U16) ||
           (byte_float && stored == WEIR_TYPE_U8);
}

static weir_status set_array(weir_tensor *tensor, const given_input *given)
{
    if (!array_fits(tensor->type, given->array.type))
        return weir_fail(WEIR_ERR_INVALID, "is %s and %s holds %s", weir_type_name(tensor->type), given->value,
                         weir_type_name(given->array.type));
    weir_status status = set_room(tensor, given->array.rank, given->array.shape);
    if (status == WEIR_OK && tensor->bytes > 0)
        memcpy(tensor->data, given->array.data, tensor->bytes);
    return status;
}

/* Numbers for a scalar, for one dimension, or for the last one where those before it may be 1. */
static weir_status set_numbers(weir_tensor *tensor, const weir_port *port, const char *text)
{
    size_t count = fill_count(text);
    int64_t shape[WEIR_MAX_RANK];
    if (count == 0)
        return weir_fail(WEIR_ERR_INVALID, "is %s; '%s' is no list of numbers such as 1,2,3",
                         weir_type_name(port->type), text);
    for (uint32_t i = 0; i < port->rank; i++) {
        bool last = i + 1 == port->rank;
        shape[i] = last ? (int64_t)count : 1;
        if (!last && port->shape[i] != -1 && port->shape[i] != 1)
            return weir_fail(WEIR_ERR_INVALID, "has more than one dimension to fill: give it as FILE.npy");
    }
    if (port->rank == 0 && count != 1)
        return weir_fail(WEIR_ERR_INVALID, "is one number, and %zu were given", count);
    weir_status status = set_room(tensor, port->rank, shape);
    return status != WEIR_OK ? status : fill_numbers(text, tensor->type, tensor->data);
}

static weir_status set_given(weir_tensor *tensor, const weir_port *port, const given_input *given)
{
    switch (given->kind) {
    case GIVEN_SHAPE:
        return set_shape(tensor, given);
    case GIVEN_ARRAY:
        return set_array(tensor, given);
    case GIVEN_LINES:
        return port->type == WEIR_TYPE_TEXT
                   ? set_text(tensor, given->value)
                   : weir_fail(WEIR_ERR_INVALID, "is %s; lines of a file are for text", weir_type_name(port->type));
    case GIVEN_TEXT:
        break;
    }
    return port->type == WEIR_TYPE_TEXT ? set_text(tensor, given->value) : set_numbers(tensor, port, given->value);
}

static weir_status check_own(const weir_model_info *info, int model, const given_input *given, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (given[i].model == model && !given[i].used) {
            char *names = inputs_names(info);
            weir_status status =
                weir_fail(WEIR_ERR_NOT_FOUND, "has no input '%s'; its inputs are: %s", given[i].name, names);
            free(names);
            return status;
        }
    return WEIR_OK;
}

/* Where all inputs may be left out ("text or tokens") and none was given, a run still needs one: the first. */
static bool nothing_else(const weir_model_info *info, int model, given_input *given, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < info->input_count; i++)
        any = any || !info->inputs[i].optional || find_given(&info->inputs[i], model, given, count) != NULL;
    return !any;
}

weir_status inputs_make(const weir_model_info *info, int model, given_input *given, size_t given_count, inputs *out)
{
    out->count = 0;
    out->tensors = text_zeroed(info->input_count, sizeof *out->tensors);
    bool wanted = nothing_else(info, model, given, given_count);
    for (size_t i = 0; i < info->input_count; i++) {
        const weir_port *port = &info->inputs[i];
        const given_input *found = find_given(port, model, given, given_count);
        if (found == NULL && port->optional && !(i == 0 && wanted))
            continue;
        weir_tensor *tensor = &out->tensors[out->count++];
        *tensor = (weir_tensor){.struct_size = sizeof *tensor, .name = port->name, .type = port->type};
        weir_status status = found != NULL ? set_given(tensor, port, found) : set_default(tensor, port);
        if (status != WEIR_OK) {
            char *why = text_copy(weir_detail());
            weir_fail(status, "input %s %s", port->name, why);
            free(why);
            return status;
        }
    }
    return check_own(info, model, given, given_count);
}

void inputs_clear(inputs *made)
{
    for (size_t i = 0; i < made->count; i++)
        free(made->tensors[i].data);
    free(made->tensors);
    *made = (inputs){0};
}
