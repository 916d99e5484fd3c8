/* See file.h. One walk over all messages, driven by the tables of schema.c; what a table cannot say is in `look`. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/file/schema.h"
#include "onnx/file/main_graph.h"

/* protobuf refuses more than 100 levels; each subgraph takes three. */
enum { MAX_DEPTH = 96, DEPTH_OF_WEIGHTS = 3 /* of the main graph */ };

typedef struct checker {
    onnx_file *file;
    unsigned depth;
    bool bodies;
} checker;

static weir_status WEIR_PRINTF(3, 4) onnx_file_check_bad(const checker *c, const uint8_t *at, const char *format, ...)
{
    char text[500];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start */
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return weir_fail(WEIR_ERR_CORRUPT, "%s: byte %zu: %s", c->file->name, (size_t)(at - c->file->data), text);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Every name that a graph or function gives to a value. */
typedef struct name {
    onnx_text text;
    enum { INPUT = 1, WEIGHT = 2, RESULT = 4 } what;
} name;

typedef struct names {
    name *list;
    size_t count, capacity;
    bool failed;
} names;

static void onnx_file_check_add_name(names *n, const uint8_t *data, size_t size, int what)
{
    if (size == 0 || n->failed)
        return;
    if (n->count == n->capacity) {
        size_t capacity = n->capacity * 2 + 64;
        name *list = realloc(n->list, capacity * sizeof *list);
        n->failed = !list;
        if (!list)
            return;
        n->list = list;
        n->capacity = capacity;
    }
    n->list[n->count].text = (onnx_text){(const char *)data, size};
    n->list[n->count++].what = what;
}

static int onnx_file_check_by_name(const void *a, const void *b)
{
    const name *x = a, *y = b;
    if (x->text.size != y->text.size)
        return x->text.size < y->text.size ? -1 : 1;
    int order = memcmp(x->text.text, y->text.text, x->text.size);
    return order ? order : (int)x->what - (int)y->what;
}

/* The field `number` of the message, or no text. */
static onnx_text onnx_file_check_text_in(const onnx_field *message, uint32_t number)
{
    EACH_FIELD (field, message->data, message->size)
        if (field.number == number && field.type == PB_WT_STRING)
            return onnx_field_text(&field);
    return (onnx_text){0};
}

static void add_results(names *n, const onnx_field *node)
{
    EACH_FIELD (field, node->data, node->size)
        if (field.number == 2 && field.type == PB_WT_STRING)
            onnx_file_check_add_name(n, field.data, field.size, RESULT);
}

static void collect_names(onnx_message kind, const uint8_t *data, size_t size, names *n)
{
    EACH_FIELD (field, data, size) {
        onnx_text text = {0};
        if (kind == ONNX_FUNCTION) {
            if (field.number == 4)
                onnx_file_check_add_name(n, field.data, field.size, INPUT);
            else if (field.number == 7)
                add_results(n, &field);
            continue;
        }
        if (field.number == 1)
            add_results(n, &field);
        else if (field.number == 5 && (text = onnx_file_check_text_in(&field, 8)).size)
            onnx_file_check_add_name(n, (const uint8_t *)text.text, text.size, WEIGHT);
        else if (field.number == 11 && (text = onnx_file_check_text_in(&field, 1)).size)
            onnx_file_check_add_name(n, (const uint8_t *)text.text, text.size, INPUT);
    }
}

/* A value may be an input and have an initializer as its default; anything else is defined twice. */
static weir_status look_names(const checker *c, onnx_message kind, const uint8_t *data, size_t size)
{
    names n = {0};
    collect_names(kind, data, size, &n);
    weir_status status = WEIR_OK;
    if (n.failed)
        status = weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its names", c->file->name);
    else if (n.count)
        qsort(n.list, n.count, sizeof *n.list, onnx_file_check_by_name);
    for (size_t i = 1; status == WEIR_OK && i < n.count; i++) {
        const name *a = &n.list[i - 1], *b = &n.list[i];
        if (onnx_text_same(a->text, b->text) && !(a->what == INPUT && b->what == WEIGHT))
            status =
                onnx_file_check_bad(c, (const uint8_t *)b->text.text, "\"%.*s\" is defined twice", ONNX_SHOW(b->text));
    }
    free(n.list);
    return status;
}

/* ---- what the tables cannot say ---------------------------------------------------------------------------------- */

/* What one message holds, as far as `look` asks. */
typedef struct summary {
    uint32_t seen; /* bit n: field n is there */
    uint64_t numbers[ONNX_SCHEMA_FIELDS];
    size_t sizes[ONNX_SCHEMA_FIELDS];
} summary;

#define HAS(s, n) ((s)->seen >> (n)&1)

static weir_status look_attribute(const checker *c, const uint8_t *at, const summary *s)
{
    /* The field that holds the value, by AttributeProto.type; a 0 stands for one that may be left out when empty. */
    static const uint8_t holder[] = {0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 0, 22, 0, 14, 0};
    if (!s->sizes[1])
        return onnx_file_check_bad(c, at, "an attribute without a name");
    uint64_t type = s->numbers[20];
    if (type >= sizeof holder)
        return onnx_file_check_bad(c, at, "attribute type %" PRIu64 " is none", type);
    if (holder[type] && !HAS(s, holder[type]) && !s->sizes[21])
        return onnx_file_check_bad(c, at, "an attribute of type %" PRIu64 " without its value", type);
    return WEIR_OK;
}

static weir_status look_model(const checker *c, const uint8_t *at, const summary *s)
{
    if (!HAS(s, 7))
        return onnx_file_check_bad(c, at, "no graph: this is no ONNX model");
    if (s->numbers[1] == 0 || s->numbers[1] > 1000)
        return onnx_file_check_bad(c, at, "IR version %" PRIu64 " is none", s->numbers[1]);
    return HAS(s, 8) ? WEIR_OK : onnx_file_check_bad(c, at, "the model names no operator set");
}

/* The value of a Constant that is no tensor. */
static bool is_constant_text(const uint8_t *data, size_t size, const summary *s)
{
    enum { TEXT = 3, TEXTS = 8 };
    const onnx_field attribute = {.data = data, .size = size};
    if (s->numbers[20] != TEXT && s->numbers[20] != TEXTS)
        return false;
    onnx_text its = onnx_file_check_text_in(&attribute, 1);
    return onnx_text_is(its, "value_string") || onnx_text_is(its, "value_strings");
}

static void onnx_file_check_note_tensor(const checker *c, const onnx_tensor *tensor)
{
    bool two = tensor->type == ONNX_UINT2 || tensor->type == ONNX_INT2;
    c->file->texts |= tensor->type == ONNX_STRING;
    c->file->nested |= tensor->beside && c->depth > DEPTH_OF_WEIGHTS;
    c->file->two_bits |= two && tensor->rank > 1 && tensor->shape[tensor->rank - 1] % 4 != 0;
}

static weir_status onnx_file_check_look(checker *c, onnx_message kind, const uint8_t *data, size_t size,
                                        const summary *s)
{
    onnx_tensor tensor;
    weir_status status;
    switch (kind) {
    case ONNX_MODEL:
        return look_model(c, data, s);
    case ONNX_GRAPH:
    case ONNX_FUNCTION:
        return look_names(c, kind, data, size);
    case ONNX_NODE:
        return s->sizes[4] ? WEIR_OK : onnx_file_check_bad(c, data, "a node without an operator");
    case ONNX_ATTRIBUTE:
        c->file->texts |= is_constant_text(data, size, s);
        c->bodies |= HAS(s, 6) || HAS(s, 11);
        return look_attribute(c, data, s);
    case ONNX_TENSOR:
        status = onnx_tensor_read(c->file, data, size, &tensor);
        if (status == WEIR_OK)
            onnx_file_check_note_tensor(c, &tensor);
        return status;
    case ONNX_SPARSE:
        return HAS(s, 1) && HAS(s, 2) ? WEIR_OK
                                      : onnx_file_check_bad(c, data, "a sparse tensor without values or indices");
    case ONNX_VALUE:
        return s->sizes[1] ? WEIR_OK : onnx_file_check_bad(c, data, "a value without a name");
    case ONNX_TYPE_TENSOR:
        return s->numbers[1] < ONNX_TYPE_COUNT
                   ? WEIR_OK
                   : onnx_file_check_bad(c, data, "element type %" PRIu64 " is none", s->numbers[1]);
    default:
        return WEIR_OK;
    }
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static weir_status onnx_file_check_walk(checker *c, onnx_message kind, const uint8_t *data, size_t size);

/* A list of numbers in one field must end where the field ends. */
static weir_status walk_packed(const checker *c, onnx_kind kind, const onnx_field *field)
{
    if (kind == ONNX_FIX32 || kind == ONNX_FIX64)
        return field->size % (kind == ONNX_FIX32 ? 4 : 8) == 0
                   ? WEIR_OK
                   : onnx_file_check_bad(c, field->begin, "a list of numbers is cut short");
    onnx_wire wire = onnx_wire_of(field->data, field->size);
    int more;
    uint64_t value;
    while ((more = onnx_wire_varint(&wire, &value)) == 1) {
    }
    return more == 0 ? WEIR_OK : onnx_file_check_bad(c, wire.at, "a list of numbers is cut short");
}

static weir_status walk_field(checker *c, onnx_message parent, const onnx_field *field)
{
    static const pb_wire_type_t wires[] = {
        [ONNX_VARINT] = PB_WT_VARINT, [ONNX_FIX32] = PB_WT_32BIT, [ONNX_FIX64] = PB_WT_64BIT,
        [ONNX_TEXT] = PB_WT_STRING,   [ONNX_DATA] = PB_WT_STRING, [ONNX_MESSAGE] = PB_WT_STRING,
    };
    const onnx_schema_field *rule = &onnx_schema[parent][field->number];
    bool number = rule->kind == ONNX_VARINT || rule->kind == ONNX_FIX32 || rule->kind == ONNX_FIX64;
    if (rule->repeated && number && field->type == PB_WT_STRING)
        return walk_packed(c, rule->kind, field);
    if (field->type != wires[rule->kind])
        return onnx_file_check_bad(c, field->begin, "field %u of a %s has the wrong wire type", (unsigned)field->number,
                                   onnx_schema_names[parent]);
    if (rule->kind == ONNX_TEXT && !onnx_text_valid(onnx_field_text(field)))
        return onnx_file_check_bad(c, field->begin, "a text of a %s is not UTF-8", onnx_schema_names[parent]);
    return rule->kind == ONNX_MESSAGE ? onnx_file_check_walk(c, rule->message, field->data, field->size) : WEIR_OK;
}

static weir_status walk_fields(checker *c, onnx_message kind, const uint8_t *data, size_t size, summary *s)
{
    onnx_wire wire = onnx_wire_of(data, size);
    onnx_field field;
    int more;
    while ((more = onnx_wire_next(&wire, &field)) == 1) {
        if (field.number >= ONNX_SCHEMA_FIELDS || onnx_schema[kind][field.number].kind == ONNX_ANY)
            continue; /* a later version's field */
        const onnx_schema_field *rule = &onnx_schema[kind][field.number];
        if (!rule->repeated && HAS(s, field.number))
            return onnx_file_check_bad(c, field.begin, "field %u of a %s appears twice", (unsigned)field.number,
                                       onnx_schema_names[kind]);
        s->seen |= 1u << field.number;
        s->numbers[field.number] = field.value;
        s->sizes[field.number] = field.size;
        weir_status status = walk_field(c, kind, &field);
        if (status != WEIR_OK)
            return status;
        /* The elements of a list of numbers or bytes are not checked further. */
        bool plain_list = rule->repeated && (field.type != PB_WT_STRING || rule->kind == ONNX_DATA);
        if (plain_list && !onnx_wire_skip_alike(&wire, &field)) {
            more = -1;
            break;
        }
    }
    return more == 0 ? WEIR_OK
                     : onnx_file_check_bad(c, wire.at, "a %s is cut short or malformed", onnx_schema_names[kind]);
}

static weir_status onnx_file_check_walk(checker *c, onnx_message kind, const uint8_t *data, size_t size)
{
    if (c->depth == MAX_DEPTH)
        return onnx_file_check_bad(c, data, "more than %d messages inside one another", MAX_DEPTH);
    c->depth++;
    summary s = {0};
    weir_status status = walk_fields(c, kind, data, size, &s);
    if (status == WEIR_OK)
        status = onnx_file_check_look(c, kind, data, size, &s);
    c->depth--;
    return status;
}

weir_status onnx_check(onnx_file *file)
{
    if (file->size > INT32_MAX)
        return weir_fail(WEIR_ERR_CORRUPT,
                         "%s: %zu bytes, and an ONNX file ends below 2 GiB (larger weights lie in files beside it)",
                         file->name, file->size);
    checker c = {.file = file};
    weir_status status = onnx_file_check_walk(&c, ONNX_MODEL, file->data, file->size);
    file->plain = status == WEIR_OK && !c.bodies;
    return status;
}
