/* step.c: what all rules share. */
#include "onnx_shapes/step.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const graph_value *step_in(const step *s, unsigned i)
{
    return step_has(s, i) ? &s->g->values[s->node->inputs[i]] : NULL;
}

graph_value *step_out(const step *s, unsigned i)
{
    bool there = i < s->node->output_count && s->node->outputs[i] != GRAPH_NONE;
    return there ? &s->g->values[s->node->outputs[i]] : NULL;
}

bool step_has(const step *s, unsigned i)
{
    return i < s->node->input_count && s->node->inputs[i] != GRAPH_NONE;
}

const graph_number *step_contents(const step *s, unsigned i)
{
    return step_has(s, i) ? graph_contents(s->g, s->node->inputs[i]) : NULL;
}

void step_say(step *s, bool wrong, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->why, sizeof s->why, format, arguments);
    va_end(arguments);
    s->wrong = wrong;
}

uint64_t graph_elements(const graph_shape *shape, uint32_t from, uint32_t to)
{
    uint64_t elements = 1;
    for (uint32_t i = from; i < to; i++)
        if (shape->dims[i] == 0)
            return 0;
    for (uint32_t i = from; i < to; i++)
        if (__builtin_mul_overflow(elements, (uint64_t)shape->dims[i], &elements))
            return UINT64_MAX;
    return elements;
}

bool graph_addressable(const graph_shape *shape)
{
    uint64_t places = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] != 0 &&
            (__builtin_mul_overflow(places, (uint64_t)shape->dims[i], &places) || places > (uint64_t)INT64_MAX / 16))
            return false;
    return true;
}

const char *graph_shape_text(const graph_shape *shape, char *text, size_t capacity)
{
    size_t at = 0;
    snprintf(text, capacity, "a single number");
    for (uint32_t i = 0; i < shape->rank && at < capacity; i++)
        at += (size_t)snprintf(text + at, capacity - at, shape->dims[i] < 0 ? "%s?" : "%s%" PRId64, i ? "x" : "",
                               shape->dims[i]);
    return text;
}

bool step_give(step *s, unsigned output, int32_t type, const graph_shape *shape)
{
    graph_value *value = step_out(s, output);
    char text[GRAPH_SHAPE_TEXT];
    if (!value)
        return true;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 0)
            return step_wrong(s, "it would make %s", graph_shape_text(shape, text, sizeof text));
    if (onnx_type_bits(type) == 0)
        return step_unknown(s, "elements of type %s have no fixed size", onnx_type_name(type));
    if (!graph_addressable(shape))
        return step_wrong(s, "it would make %s, more than can be addressed",
                          graph_shape_text(shape, text, sizeof text));
    value->type = type;
    value->shape = *shape;
    value->elements = graph_elements(shape, 0, shape->rank);
    value->bytes = (value->elements * onnx_type_bits(type) + 7) / 8;
    value->shaped = true;
    return true;
}

bool step_give_like(step *s, unsigned output, const graph_value *value)
{
    return step_give(s, output, value->type, &value->shape);
}

bool step_need(step *s, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (!step_has(s, i))
            return step_wrong(s, "its input %u is missing", i);
    return true;
}

bool step_axis(step *s, int64_t axis, uint32_t rank, uint32_t *out)
{
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return step_wrong(s, "its axis %" PRId64 " is none of %u", axis, rank);
    *out = (uint32_t)(axis < 0 ? axis + rank : axis);
    return true;
}

static int ints_of_input(step *s, int input, int64_t *out, int capacity)
{
    const graph_value *value = step_in(s, (unsigned)input);
    const graph_number *numbers = step_contents(s, (unsigned)input);
    if (!numbers) {
        step_say(s, false, "it follows from what is in \"%.*s\", which only a run knows", ONNX_SHOW(value->name));
        return -2;
    }
    if (value->elements > (uint64_t)capacity) {
        step_say(s, true, "\"%.*s\" has %" PRIu64 " numbers, more than can be", ONNX_SHOW(value->name),
                 value->elements);
        return -2;
    }
    for (uint64_t i = 0; i < value->elements; i++)
        if (!graph_whole(value->type, numbers[i], &out[i])) {
            step_say(s, true, "\"%.*s\" has a number that is none", ONNX_SHOW(value->name));
            return -2;
        }
    return (int)value->elements;
}

int step_ints(step *s, const char *name, int input, int64_t *out, int capacity)
{
    if (input >= 0 && step_has(s, (unsigned)input))
        return ints_of_input(s, input, out, capacity);
    int count = name ? graph_ints(s->node, name, out, capacity) : -1;
    if (count == -2)
        step_say(s, true, "its %s are more than %d", name, capacity);
    return count;
}

bool step_broadcast(step *s, graph_shape *into, const graph_shape *more)
{
    char one[GRAPH_SHAPE_TEXT], other[GRAPH_SHAPE_TEXT];
    graph_shape a = *into, b = *more;
    into->rank = a.rank > b.rank ? a.rank : b.rank;
    for (uint32_t i = 0; i < into->rank; i++) {
        int64_t x = i < a.rank ? a.dims[a.rank - 1 - i] : 1, y = i < b.rank ? b.dims[b.rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1)
            return step_wrong(s, "%s and %s do not go together", graph_shape_text(&a, one, sizeof one),
                              graph_shape_text(&b, other, sizeof other));
        into->dims[into->rank - 1 - i] = x == 1 ? y : x;
    }
    return true;
}
