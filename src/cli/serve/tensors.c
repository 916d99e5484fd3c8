/* tensors.c: tensors on the wire of the Open Inference Protocol, as numbers in JSON or as bytes behind it. */
#include "serve.h"

#include "base/values.h"
#include "cli/run/tensors.h"
#include "cli/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    weir_type type;
} types[] = {
    {"FP32", WEIR_TYPE_F32},   {"INT64", WEIR_TYPE_I64},  {"INT32", WEIR_TYPE_I32}, {"BYTES", WEIR_TYPE_TEXT},
    {"FP64", WEIR_TYPE_F64},   {"FP16", WEIR_TYPE_F16},   {"BF16", WEIR_TYPE_BF16}, {"BOOL", WEIR_TYPE_BOOL},
    {"INT8", WEIR_TYPE_I8},    {"INT16", WEIR_TYPE_I16},  {"UINT8", WEIR_TYPE_U8},  {"UINT16", WEIR_TYPE_U16},
    {"UINT32", WEIR_TYPE_U32}, {"UINT64", WEIR_TYPE_U64},
};
enum { TYPES = sizeof types / sizeof *types, MOST_INPUTS = 256 };

const char *wire_type(weir_type type)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type == type)
            return types[i].name;
    return NULL;
}

void wire_clear(wire_inputs *all)
{
    for (size_t i = 0; i < all->count; i++) {
        free(all->owned[i]);
        free(all->names[i]);
    }
    free(all->owned);
    free(all->names);
    free(all->list);
    *all = (wire_inputs){0};
}

/* ---- numbers in ---------------------------------------------------------------------------------------------------- */

/* The lower bytes of a number that fits: the machines here are little-endian. */
static bool store_integer(json_int_t n, weir_type type, char *to)
{
    size_t width = wi_type_bytes(type);
    unsigned above = (unsigned)(64 - 8 * width);
    bool fits = type >= WEIR_TYPE_I8 && type <= WEIR_TYPE_I64 ? (json_int_t)((uint64_t)n << above) >> above == n
                : type >= WEIR_TYPE_U8 && type <= WEIR_TYPE_U64
                    ? n >= 0 && (json_int_t)((uint64_t)n << above >> above) == n
                    : false;
    if (fits)
        memcpy(to, &n, width);
    return fits;
}

/* Reads a whole number; 7.0 counts as 7, as some clients write every number with a fraction. Refuses reals beyond 2^53,
 * which may not be the number that was meant. */
static bool tensors_read_whole(const json_t *value, json_int_t *out)
{
    const double most = 9007199254740992.0;
    double real = json_number_value(value);
    bool whole = json_is_real(value) && real >= -most && real <= most && real == floor(real);
    *out = whole ? (json_int_t)real : json_integer_value(value);
    return whole || json_is_integer(value);
}

static bool tensors_store(const json_t *value, weir_type type, char *to)
{
    json_int_t whole;
    if (type == WEIR_TYPE_BOOL) {
        bool truth = json_is_true(value) || json_integer_value(value) == 1;
        if (!json_is_boolean(value) && !(json_is_integer(value) && (json_integer_value(value) & ~(json_int_t)1) == 0))
            return false;
        *to = (char)truth;
        return true;
    }
    if (type == WEIR_TYPE_F32 || type == WEIR_TYPE_F64) {
        double number = json_number_value(value);
        float single = type == WEIR_TYPE_F32 ? (float)number : 0;
        memcpy(to, type == WEIR_TYPE_F32 ? (const void *)&single : &number, wi_type_bytes(type));
        return json_is_number(value) && isfinite(type == WEIR_TYPE_F32 ? (double)single : number);
    }
    return tensors_read_whole(value, &whole) && store_integer(whole, type, to);
}

typedef struct filling {
    weir_type type;
    size_t each, room, at; /* elements */
    char *data;
    FILE *text; /* of BYTES */
} filling;

static bool fill_text(filling *it, const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || (it->room > 1 && strchr(text, '\n')))
        return false;
    fputs(it->at++ ? "\n" : "", it->text);
    return fwrite(text, 1, json_string_length(value), it->text) == json_string_length(value);
}

/* Flat or nested: `data` may be either. */
static bool tensors_fill(filling *it, const json_t *value)
{
    size_t i;
    json_t *one;
    if (json_is_array(value)) {
        json_array_foreach(value, i, one) if (!tensors_fill(it, one)) return false;
        return true;
    }
    if (it->at >= it->room)
        return false;
    if (it->type == WEIR_TYPE_TEXT)
        return fill_text(it, value);
    return tensors_store(value, it->type, it->data + it->each * it->at++);
}

/* ---- an input ------------------------------------------------------------------------------------------------------ */

/* Elements of the shape; false: it is none. */
static bool tensors_read_shape(const json_t *shape, weir_tensor *tensor, size_t *elements)
{
    size_t i;
    json_t *one;
    *elements = 1;
    if (!json_is_array(shape) || json_array_size(shape) > WEIR_MAX_RANK)
        return false;
    tensor->rank = (uint32_t)json_array_size(shape);
    json_array_foreach(shape, i, one)
    {
        json_int_t extent = json_is_integer(one) ? json_integer_value(one) : -1;
        if (extent < 0 || (extent > 0 && *elements > ((size_t)1 << 40) / (size_t)extent))
            return false;
        tensor->shape[i] = extent;
        *elements *= (size_t)extent;
    }
    return true;
}

/* A text of weir's is one tensor of bytes, in which several texts stand line by line. */
static bool tensors_take_text(filling *it, const char *binary, size_t bytes, const json_t *data, weir_tensor *tensor,
                              void **owned)
{
    char *text = NULL;
    size_t length = 0;
    bool good = true;
    it->text = text_stream(&text, &length);
    if (data) {
        good = tensors_fill(it, data) && it->at == it->room;
    } else {
        for (size_t at = 0; at < bytes && good; it->at++) {
            uint32_t next = 0;
            good = bytes - at >= 4;
            if (good)
                memcpy(&next, binary + at, 4);
            good = good && next <= bytes - at - 4 && !(it->room > 1 && memchr(binary + at + 4, '\n', next));
            if (good) {
                fputs(it->at ? "\n" : "", it->text);
                fwrite(binary + at + 4, 1, next, it->text);
                at += 4 + (size_t)next;
            }
        }
        good = good && it->at == it->room;
    }
    fclose(it->text);
    *owned = text;
    tensor->data = text;
    tensor->bytes = length;
    tensor->rank = 1;
    tensor->shape[0] = (int64_t)length;
    return good;
}

static bool take_data(filling *it, const char *binary, size_t bytes, const json_t *data, weir_tensor *tensor,
                      void **owned)
{
    if (it->type == WEIR_TYPE_TEXT)
        return tensors_take_text(it, binary, bytes, data, tensor, owned);
    if (!data && bytes != it->room * it->each)
        return false;
    if (data && (it->type == WEIR_TYPE_F16 || it->type == WEIR_TYPE_BF16 || it->room > MOST_INPUTS * (size_t)65536))
        return false;
    tensor->bytes = it->room * it->each;
    *owned = it->data = text_zeroed(tensor->bytes, 1);
    tensor->data = it->data;
    if (!data) {
        memcpy(it->data, binary, bytes); /* aligned, which what lies behind a JSON is not */
        return true;
    }
    return tensors_fill(it, data) && it->at == it->room;
}

/* The bytes of a tensor in shared memory are as those behind the JSON. */
static bool take_shared(ws_request *request, shared_regions *regions, filling *it, const json_t *parameters,
                        weir_tensor *tensor, void **owned, bool *good)
{
    char *data;
    size_t bytes;
    weir_status status = shared_read(regions, parameters, &data, &bytes);
    if (status != WEIR_OK) {
        answer_failure(request, status);
        return false;
    }
    *good = take_data(it, data, bytes, NULL, tensor, owned);
    free(data);
    return true;
}

/* Answers how many of the binary bytes are the input's; -1: refused. */
static json_int_t tensors_read_one(ws_request *request, shared_regions *regions, const json_t *input,
                                   const char *binary, size_t bytes, wire_inputs *out)
{
    const char *name = json_string_value(json_object_get(input, "name"));
    const char *type = json_string_value(json_object_get(input, "datatype"));
    const json_t *data = json_object_get(input, "data");
    const json_t *parameters = json_object_get(input, "parameters");
    const json_t *size = json_object_get(parameters, "binary_data_size");
    bool shared = shared_is_meant(parameters), good = false;
    weir_tensor tensor = WEIR_INIT(weir_tensor);
    filling it = {0};
    for (size_t i = 0; i < TYPES && type; i++)
        if (strcmp(types[i].name, type) == 0)
            it.type = types[i].type;
    it.each = wi_type_bytes(it.type);
    json_int_t length = json_is_integer(size) ? json_integer_value(size) : data || shared ? 0 : -1;
    if (!name || it.type == WEIR_TYPE_NONE || length < 0 || (uint64_t)length > bytes || !!data + !!size + shared != 1 ||
        !tensors_read_shape(json_object_get(input, "shape"), &tensor, &it.room)) {
        answer_wrong(request,
                     "an input needs name, shape, a datatype (%s …), and either data or binary_data_size: '%.60s'",
                     types[0].name, name ? name : "");
        return -1;
    }
    out->names[out->count] = text_copy(name);
    tensor.name = out->names[out->count];
    tensor.type = it.type;
    void **owned = &out->owned[out->count];
    bool answered = shared && !take_shared(request, regions, &it, parameters, &tensor, owned, &good);
    if (!shared)
        good = take_data(&it, binary, (size_t)length, data, &tensor, owned);
    out->list[out->count++] = tensor;
    if (answered)
        return -1;
    if (good)
        return length;
    answer_wrong(request, "the data of the input '%.60s' are not what its shape and datatype %s say%s", name, type,
                 it.type == WEIR_TYPE_F16 || it.type == WEIR_TYPE_BF16 ? "; this type is taken as binary data alone"
                                                                       : "");
    return -1;
}

bool wire_read(ws_request *request, shared_regions *regions, const json_t *head, const char *binary, size_t bytes,
               wire_inputs *out)
{
    const json_t *list = json_object_get(head, "inputs");
    size_t count = json_array_size(list), used = 0;
    *out = (wire_inputs){0};
    if (count == 0 || count > MOST_INPUTS) {
        answer_wrong(request, "'inputs' is an array of 1 to %d inputs", MOST_INPUTS);
        return false;
    }
    out->list = text_zeroed(count, sizeof *out->list);
    out->owned = text_zeroed(count, sizeof *out->owned);
    out->names = text_zeroed(count, sizeof *out->names);
    for (size_t i = 0; i < count; i++) {
        json_int_t took = tensors_read_one(request, regions, json_array_get(list, i), binary + used, bytes - used, out);
        if (took < 0)
            return false;
        used += (size_t)took;
    }
    if (used == bytes)
        return true;
    answer_wrong(request, "%zu bytes of binary data belong to no input", bytes - used);
    return false;
}

/* ---- results ------------------------------------------------------------------------------------------------------- */

static bool tensors_is_real(const weir_tensor *tensor)
{
    return tensor->type >= WEIR_TYPE_F32 && tensor->type <= WEIR_TYPE_BF16;
}

bool wire_find_not_finite(const weir_tensor *tensor, size_t *at)
{
    size_t count = tensors_is_real(tensor) ? tensor->bytes / wi_type_bytes(tensor->type) : 0;
    for (*at = 0; *at < count && isfinite(numbers_real(tensor->type, tensor->data, *at)); ++*at)
        ;
    return *at < count;
}

/* Above 2^63 - 1, where jansson's whole numbers end, a number is told as the nearest double. */
static json_t *tensors_number(const weir_tensor *tensor, size_t at)
{
    uint64_t whole = 0;
    size_t width = wi_type_bytes(tensor->type);
    unsigned above = (unsigned)(64 - 8 * width);
    if (tensors_is_real(tensor))
        return json_real(numbers_real(tensor->type, tensor->data, at));
    memcpy(&whole, (const char *)tensor->data + at * width, width);
    if (tensor->type == WEIR_TYPE_BOOL)
        return json_boolean(whole);
    if (tensor->type >= WEIR_TYPE_I8 && tensor->type <= WEIR_TYPE_I64)
        return json_integer((json_int_t)(whole << above) >> above);
    return whole > INT64_MAX ? json_real((double)whole) : json_integer((json_int_t)whole);
}

static json_t *data_json(const weir_tensor *tensor)
{
    json_t *data = json_array();
    size_t each = wi_type_bytes(tensor->type);
    if (tensor->type == WEIR_TYPE_TEXT) {
        json_array_append_new(data, text_json_bytes(tensor->data, tensor->bytes));
        return data;
    }
    for (size_t at = 0; each && at < tensor->bytes / each; at++)
        json_array_append_new(data, tensors_number(tensor, at));
    return data;
}

static json_t *shape_json(const weir_tensor *tensor)
{
    json_t *shape = json_array();
    if (tensor->type == WEIR_TYPE_TEXT) {
        json_array_append_new(shape, json_integer(1));
        return shape;
    }
    for (uint32_t i = 0; i < tensor->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    return shape;
}

static const json_t *asked_for(const json_t *head, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(head, "outputs"), i,
                       one) if (strcmp(name, json_string_value(json_object_get(one, "name"))
                                                 ? json_string_value(json_object_get(one, "name"))
                                                 : "") == 0) return one;
    return NULL;
}

/* Whether the request's list of outputs is one, of names that the run has answered; else it is answered so. */
static bool check_asked(ws_request *request, const json_t *head, const weir_outputs *out)
{
    const json_t *list = json_object_get(head, "outputs"), *one;
    size_t i, k;
    if (list && !json_is_array(list)) {
        answer_wrong(request, "'outputs' is an array of outputs, each with a name");
        return false;
    }
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        for (k = 0; name && k < out->count && strcmp(name, out->tensors[k].name) != 0; k++)
            ;
        if (name && k < out->count)
            continue;
        answer_wrong(request, "the model has no output '%.60s'", name ? name : "");
        return false;
    }
    return true;
}

static bool as_binary(const json_t *head, const json_t *output, weir_type type)
{
    const json_t *own = json_object_get(json_object_get(output, "parameters"), "binary_data");
    const json_t *all = json_object_get(json_object_get(head, "parameters"), "binary_data_output");
    return own ? json_is_true(own) : json_is_true(all) || type == WEIR_TYPE_F16 || type == WEIR_TYPE_BF16;
}

/* Appends it to the list, and its bytes to `binary`. */
static void put_one(json_t *list, FILE *binary, const weir_tensor *tensor, bool bytes)
{
    json_t *one = json_pack("{s:o, s:s, s:o}", "name", text_json(tensor->name), "datatype", wire_type(tensor->type),
                            "shape", shape_json(tensor));
    size_t length = tensor->bytes;
    if (bytes && tensor->type == WEIR_TYPE_TEXT) {
        uint32_t text = (uint32_t)tensor->bytes;
        fwrite(&text, sizeof text, 1, binary);
        length += sizeof text;
    }
    if (bytes) {
        json_object_set_new(one, "parameters", json_pack("{s:I}", "binary_data_size", (json_int_t)length));
        if (tensor->bytes)
            fwrite(tensor->data, 1, tensor->bytes, binary);
    } else {
        json_object_set_new(one, "data", data_json(tensor));
    }
    json_array_append_new(list, one);
}

/* Appends the tensor as bytes or as numbers; fails where JSON has no form for a number. */
static weir_status put_here(json_t *list, FILE *binary, const char *model, const weir_tensor *tensor, bool bytes)
{
    size_t at;
    if (!bytes && wire_find_not_finite(tensor, &at))
        return weir_fail(WEIR_ERR_ENGINE,
                         "the model '%s' gave a number that is not finite at position %zu of the output '%s', and JSON "
                         "has no form for it; ask for the output with binary_data",
                         model, at, tensor->name);
    put_one(list, binary, tensor, bytes);
    return WEIR_OK;
}

/* Writes it where the client wants it, and appends where that is. */
static weir_status put_shared(json_t *list, shared_regions *regions, const json_t *parameters,
                              const weir_tensor *tensor)
{
    char *bytes = NULL;
    size_t length = 0;
    json_t *one = json_array();
    FILE *file = text_stream(&bytes, &length);
    put_one(one, file, tensor, true);
    fclose(file);
    weir_status status = shared_write(regions, parameters, bytes, length);
    json_t *entry = json_array_get(one, 0), *told = json_deep_copy(parameters);
    json_object_set_new(told, "shared_memory_byte_size", text_json_count(length));
    json_object_set_new(entry, "parameters", told);
    json_array_append(list, entry);
    json_decref(one);
    free(bytes);
    return status;
}

static void tensors_send(ws_request *request, json_t *object, const char *binary, size_t bytes)
{
    char number_text[24], *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    size_t head = text ? strlen(text) : 0;
    if (!text || bytes == 0) {
        ws_answer_own(request, text ? 200 : 500, "application/json", text, head);
        return;
    }
    text = text_grow(text, head + bytes, 1);
    memcpy(text + head, binary, bytes);
    snprintf(number_text, sizeof number_text, "%zu", head);
    ws_add_header(request, "Inference-Header-Content-Length", number_text);
    ws_answer_own(request, 200, "application/octet-stream", text, head + bytes);
}

void wire_answer(ws_request *request, shared_regions *regions, const json_t *head, const char *model,
                 const weir_outputs *out)
{
    char *binary = NULL;
    size_t bytes = 0;
    weir_status status = WEIR_OK;
    if (!check_asked(request, head, out))
        return;
    FILE *file = text_stream(&binary, &bytes);
    json_t *list = json_array();
    bool all = json_array_size(json_object_get(head, "outputs")) == 0;
    for (size_t i = 0; i < out->count && status == WEIR_OK; i++) {
        const weir_tensor *tensor = &out->tensors[i];
        const json_t *output = asked_for(head, tensor->name), *parameters = json_object_get(output, "parameters");
        if ((!all && !output) || !wire_type(tensor->type) || tensor->on_device)
            continue;
        if (shared_is_meant(parameters))
            status = put_shared(list, regions, parameters, tensor);
        else
            status = put_here(list, file, model, tensor, as_binary(head, output, tensor->type));
    }
    fclose(file);
    if (status != WEIR_OK) {
        json_decref(list);
        free(binary);
        answer_failure(request, status);
        return;
    }
    json_t *object =
        json_pack("{s:o, s:s, s:o}", "model_name", text_json(model), "model_version", "1", "outputs", list);
    if (json_object_get(head, "id"))
        json_object_set(object, "id", json_object_get(head, "id"));
    tensors_send(request, object, binary, bytes);
    free(binary);
}
