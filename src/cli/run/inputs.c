/* inputs.c: what goes into a model: the arguments, and synthetic inputs for the rest. */
#include "tensors.h"
#include <weir/engine.h>

#include "cli/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Arguments -------------------------------------------------------------------------------------------------------- */

static weir_status inputs_read_shape(const char *text, input_arg *out)
{
    out->rank = 0;
    while (*text != '\0') {
        size_t digits = strspn(text, "0123456789");
        char number[24];
        uint64_t extent;
        if (out->rank == WEIR_MAX_RANK)
            return weir_fail(WEIR_ERR_INVALID, "has more than %d dimensions", WEIR_MAX_RANK);
        if (digits == 0 || digits >= sizeof number)
            return weir_fail(WEIR_ERR_INVALID, "is no shape such as shape:2x16");
        memcpy(number, text, digits);
        number[digits] = '\0';
        if (!text_number(number, 0, INT64_MAX, &extent))
            return weir_fail(WEIR_ERR_INVALID, "is no shape such as shape:2x16");
        out->shape[out->rank++] = (int64_t)extent;
        text += digits;
        if (*text == 'x' && text[1] != '\0')
            text++;
        else if (*text != '\0')
            return weir_fail(WEIR_ERR_INVALID, "is no shape such as shape:2x16");
    }
    size_t bytes;
    if (weir_tensor_bytes(WEIR_TYPE_F64, out->rank, out->shape, &bytes) != WEIR_OK)
        return weir_fail(WEIR_ERR_INVALID, "is too large a shape");
    return WEIR_OK;
}

static weir_status inputs_read_lines(const char *path, char **out)
{
    FILE *file;
    uint64_t bytes;
    weir_status status = read_file_open(path, &file, &bytes);
    if (status != WEIR_OK)
        return status;
    char *text = text_grow(NULL, bytes + 1, 1);
    size_t got = fread(text, 1, bytes, file);
    fclose(file);
    text[got] = '\0';
    for (size_t i = 0, length; i < got; i += length)
        if ((length = text_character(text + i, got - i)) == 0 || text[i] == '\0') {
            free(text);
            return weir_fail(WEIR_ERR_CORRUPT, "%s is no UTF-8 text: see byte %zu", path, i);
        }
    while (got > 0 && (text[got - 1] == '\n' || text[got - 1] == '\r'))
        text[--got] = '\0'; /* the end of the last line begins no further line */
    *out = text;
    return WEIR_OK;
}

weir_status input_arg_read(const char *value, input_arg *out)
{
    size_t length = strlen(value);
    out->value = NULL;
    if (strncmp(value, "shape:", 6) == 0) {
        out->kind = INPUT_ARG_SHAPE;
        out->value = text_copy(value);
        return inputs_read_shape(value + 6, out);
    }
    if (value[0] == '@') {
        out->kind = INPUT_ARG_LINES;
        return inputs_read_lines(value + 1, &out->value);
    }
    if (length > 4 && strcmp(value + length - 4, ".npy") == 0) {
        out->kind = INPUT_ARG_ARRAY;
        out->value = text_copy(value);
        return npy_read(value, &out->array);
    }
    out->kind = INPUT_ARG_TEXT;
    out->value = text_copy(value);
    return WEIR_OK;
}

void input_arg_clear(input_arg *arg)
{
    free(arg->name);
    free(arg->word);
    free(arg->value);
    free(arg->array.data);
    *arg = (input_arg){0};
}

/* Inputs of a model ------------------------------------------------------------------------------------------------ */

static const char default_text[] = "The quick brown fox jumps over the lazy dog.";
const int64_t inputs_extents[INPUTS_EXTENTS] = {16,  1,   2,   4,   8,   32,  64,  96,  128, 160,
                                                224, 256, 288, 320, 384, 416, 512, 576, 640, 1024};

char *inputs_names(const weir_model_details *info)
{
    char *all = text_copy(info->input_count == 0 ? "none" : "");
    for (size_t i = 0; i < info->input_count; i++)
        text_add(&all, "%s%s", i > 0 ? ", " : "", info->inputs[i].name);
    return all;
}

/* By its name, or by the whole word where the input's own name has a '=' in it. */
static bool is_for(const input_arg *arg, const char *name)
{
    size_t length = strlen(name);
    return strcmp(arg->name, name) == 0 || (strchr(name, '=') != NULL && arg->word != NULL &&
                                            strncmp(arg->word, name, length) == 0 && arg->word[length] == '=');
}

/* Reads the value again behind the name of the input, which is longer than was thought. */
static weir_status read_behind(input_arg *arg, const char *name)
{
    input_arg again = {.option = arg->option, .model = arg->model, .used = true};
    if (strcmp(arg->name, name) == 0)
        return WEIR_OK;
    again.name = text_copy(name);
    again.word = text_copy(arg->word);
    weir_status status = input_arg_read(arg->word + strlen(name) + 1, &again);
    input_arg_clear(arg);
    *arg = again;
    return status;
}

/* The argument for this input: one for this model comes before one for every model. */
static input_arg *find_arg(const weir_port *port, int model, input_arg *args, size_t count)
{
    input_arg *found = NULL;
    for (size_t i = 0; i < count; i++) {
        bool fits = args[i].model == INPUT_ARG_EVERY_MODEL || args[i].model == model;
        if (!fits || !is_for(&args[i], port->name))
            continue;
        args[i].used = true;
        if (found == NULL || args[i].model == model)
            found = &args[i];
    }
    return found;
}

static weir_status inputs_set_text(weir_tensor *tensor, const char *text)
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

/* Writes "name [1, 16], …". */
static void inputs_note_filled(inputs *made)
{
    free(made->filled);
    made->filled = NULL;
    for (size_t i = 0; i < made->count; i++) {
        const weir_tensor *tensor = &made->tensors[i];
        if (!made->open[i])
            continue;
        if (!made->filled)
            made->filled = text_copy("");
        text_add(&made->filled, "%s%s [", made->filled[0] ? ", " : "", tensor->name);
        for (uint32_t k = 0; k < tensor->rank; k++)
            text_add(&made->filled, "%s%" PRId64, k ? ", " : "", tensor->shape[k]);
        text_add(&made->filled, "]");
    }
}

weir_status inputs_refill(inputs *made, size_t index, const int64_t *shape)
{
    weir_tensor *tensor = &made->tensors[index];
    free(tensor->data);
    tensor->data = NULL;
    weir_status status = set_room(tensor, tensor->rank, shape);
    if (status == WEIR_OK)
        numbers_synthesize(tensor->type, tensor->data, tensor->bytes);
    inputs_note_filled(made);
    return status;
}

/* Of open dimensions, the first is usually the batch and the others are lengths. */
static weir_status set_default(weir_tensor *tensor, const weir_port *port, int64_t extent, bool *open)
{
    if (port->type == WEIR_TYPE_TEXT)
        return inputs_set_text(tensor, default_text);
    int64_t shape[WEIR_MAX_RANK];
    bool first = true;
    for (uint32_t i = 0; i < port->rank; i++) {
        shape[i] = port->shape[i] >= 0 ? port->shape[i] : first ? 1 : extent;
        first = first && port->shape[i] >= 0;
    }
    weir_status status = set_room(tensor, port->rank, shape);
    if (status == WEIR_OK)
        numbers_synthesize(tensor->type, tensor->data, tensor->bytes);
    *open = status == WEIR_OK && !first;
    return status;
}

static weir_status set_shape(weir_tensor *tensor, const input_arg *arg)
{
    if (tensor->type == WEIR_TYPE_TEXT)
        return weir_fail(WEIR_ERR_INVALID, "is text, which has no shape to fill: give the text, or @FILE");
    weir_status status = set_room(tensor, arg->rank, arg->shape);
    if (status == WEIR_OK)
        numbers_synthesize(tensor->type, tensor->data, tensor->bytes);
    return status;
}

/* NumPy has no bf16 and no f8: they are stored as unsigned integers of the same width. */
static bool array_fits(weir_type wanted, weir_type stored)
{
    bool byte_float = wanted >= WEIR_TYPE_F8E4M3FN && wanted <= WEIR_TYPE_F8E5M2FNUZ;
    return wanted == stored || (wanted == WEIR_TYPE_BF16 && stored == WEIR_TYPE_U16) ||
           (byte_float && stored == WEIR_TYPE_U8);
}

static weir_status set_array(weir_tensor *tensor, const input_arg *arg)
{
    if (!array_fits(tensor->type, arg->array.type))
        return weir_fail(WEIR_ERR_INVALID, "is %s and %s holds %s", weir_name_of(WEIR_NAMES_TYPE, tensor->type),
                         arg->value, weir_name_of(WEIR_NAMES_TYPE, arg->array.type));
    weir_status status = set_room(tensor, arg->array.rank, arg->array.shape);
    if (status == WEIR_OK && tensor->bytes > 0)
        memcpy(tensor->data, arg->array.data, tensor->bytes);
    return status;
}

/* Numbers fill a scalar, one dimension, or the last dimension if those before it may be 1. */
static weir_status set_numbers(weir_tensor *tensor, const weir_port *port, const char *text)
{
    size_t count = numbers_count(text);
    int64_t shape[WEIR_MAX_RANK];
    if (count == 0)
        return weir_fail(WEIR_ERR_INVALID, "is %s; '%s' is no list of numbers such as 1,2,3",
                         weir_name_of(WEIR_NAMES_TYPE, port->type), text);
    for (uint32_t i = 0; i < port->rank; i++) {
        bool last = i + 1 == port->rank;
        shape[i] = last ? (int64_t)count : 1;
        if (!last && port->shape[i] != -1 && port->shape[i] != 1)
            return weir_fail(WEIR_ERR_INVALID, "has more than one dimension to fill: give it as FILE.npy");
    }
    if (port->rank == 0 && count != 1)
        return weir_fail(WEIR_ERR_INVALID, "is one number, and %zu were given", count);
    weir_status status = set_room(tensor, port->rank, shape);
    return status != WEIR_OK ? status : numbers_read(text, tensor->type, tensor->data);
}

static weir_status set_arg(weir_tensor *tensor, const weir_port *port, const input_arg *arg)
{
    switch (arg->kind) {
    case INPUT_ARG_SHAPE:
        return set_shape(tensor, arg);
    case INPUT_ARG_ARRAY:
        return set_array(tensor, arg);
    case INPUT_ARG_LINES:
        return port->type == WEIR_TYPE_TEXT ? inputs_set_text(tensor, arg->value)
                                            : weir_fail(WEIR_ERR_INVALID, "is %s; lines of a file are for text",
                                                        weir_name_of(WEIR_NAMES_TYPE, port->type));
    case INPUT_ARG_TEXT:
        break;
    }
    return port->type == WEIR_TYPE_TEXT ? inputs_set_text(tensor, arg->value) : set_numbers(tensor, port, arg->value);
}

static weir_status inputs_check_names(const weir_model_details *info, int model, const input_arg *args, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (args[i].model == model && !args[i].used) {
            char *names = inputs_names(info);
            weir_status status =
                weir_fail(WEIR_ERR_NOT_FOUND, "has no input '%s'; its inputs are: %s", args[i].name, names);
            free(names);
            return status;
        }
    return WEIR_OK;
}

/* If all inputs are optional ("text or tokens") and none is given, a run still needs one: the first is filled. */
static bool needs_first(const weir_model_details *info, int model, input_arg *args, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < info->input_count; i++)
        any = any || !info->inputs[i].optional || find_arg(&info->inputs[i], model, args, count) != NULL;
    return !any;
}

weir_status inputs_make(const weir_model_details *info, int model, input_arg *args, size_t arg_count, int64_t extent,
                        inputs *out)
{
    *out = (inputs){0};
    out->tensors = text_zeroed(info->input_count, sizeof *out->tensors);
    out->open = text_zeroed(info->input_count, sizeof *out->open);
    bool wanted = needs_first(info, model, args, arg_count);
    for (size_t i = 0; i < info->input_count; i++) {
        const weir_port *port = &info->inputs[i];
        input_arg *found = find_arg(port, model, args, arg_count);
        if (found == NULL && port->optional && !(i == 0 && wanted))
            continue;
        weir_tensor *tensor = &out->tensors[out->count++];
        *tensor = (weir_tensor){.struct_size = sizeof *tensor, .name = port->name, .type = port->type};
        weir_status status = found != NULL ? read_behind(found, port->name)
                                           : set_default(tensor, port, extent, &out->open[out->count - 1]);
        if (status == WEIR_OK && found != NULL)
            status = set_arg(tensor, port, found);
        if (status != WEIR_OK) {
            char *why = text_copy(weir_detail());
            weir_fail(status, "input %s %s", port->name, why);
            free(why);
            return status;
        }
    }
    inputs_note_filled(out);
    return inputs_check_names(info, model, args, arg_count);
}

void inputs_clear(inputs *made)
{
    for (size_t i = 0; i < made->count; i++)
        free(made->tensors[i].data);
    free(made->tensors);
    free(made->open);
    free(made->filled);
    *made = (inputs){0};
}
