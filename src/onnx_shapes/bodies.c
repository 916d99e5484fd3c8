/* bodies.c: names in a body that are none of its own are values of the graph around it: a name means one thing in a model. */
#include "onnx_shapes/bodies.h"

/* Field numbers: NodeProto, AttributeProto, GraphProto, ValueInfoProto. */
enum {
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_BODY = 6,
    ATTRIBUTE_BODIES = 11,
    GRAPH_NODE = 1,
    GRAPH_OUTPUT = 12,
    VALUE_NAME = 1
};

typedef void teller(void *user, onnx_text name);

static onnx_text text_of(const onnx_field *field)
{
    return (onnx_text){(const char *)field->data, field->size};
}

static void open_text(onnx_wire *wire, onnx_text text)
{
    onnx_wire_open(wire, (const uint8_t *)text.text, text.size);
}

static void each_body(onnx_text node, void (*tell)(onnx_text body, teller *teller, void *user), teller *told,
                      void *user)
{
    onnx_wire wire, inner;
    open_text(&wire, node);
    for (onnx_field field, part; onnx_wire_next(&wire, &field) == 1;) {
        onnx_wire_open(&inner, field.data, field.number == NODE_ATTRIBUTE ? field.size : 0);
        while (onnx_wire_next(&inner, &part) == 1)
            if (part.number == ATTRIBUTE_BODY || part.number == ATTRIBUTE_BODIES)
                tell(text_of(&part), told, user);
    }
}

/* Tells every name that the body reads, its own ones too: what its nodes take, and what it hands out. */
static void each_name(onnx_text body, teller *tell, void *user)
{
    onnx_wire wire, inner;
    open_text(&wire, body);
    for (onnx_field field, part; onnx_wire_next(&wire, &field) == 1;) {
        uint32_t wanted = field.number == GRAPH_NODE ? NODE_INPUT : field.number == GRAPH_OUTPUT ? VALUE_NAME : 0;
        onnx_wire_open(&inner, field.data, wanted ? field.size : 0);
        while (onnx_wire_next(&inner, &part) == 1)
            if (part.number == wanted)
                tell(user, text_of(&part));
        if (field.number == GRAPH_NODE)
            each_body(text_of(&field), each_name, tell, user);
    }
}

static void count_name(void *user, onnx_text name)
{
    (void)name;
    ++*(size_t *)user;
}

size_t graph_bodies_count(onnx_text node)
{
    size_t count = 0;
    each_body(node, each_name, count_name, &count);
    return count;
}

typedef struct captures {
    const graph *g;
    uint32_t *out, count;
} captures;

static void capture(void *user, onnx_text name)
{
    captures *c = user;
    uint32_t id = name.size ? graph_find(c->g, name) : GRAPH_NONE;
    if (id != GRAPH_NONE)
        c->out[c->count++] = id;
}

uint32_t graph_bodies_read(const graph *g, onnx_text node, uint32_t *out)
{
    captures c = {.g = g};
    c.out = out;
    each_body(node, each_name, capture, &c);
    return c.count;
}

static void count_made(onnx_text body, teller *told, void *user)
{
    onnx_wire wire, inner;
    open_text(&wire, body);
    for (onnx_field field, part; onnx_wire_next(&wire, &field) == 1;) {
        if (field.number != GRAPH_NODE)
            continue;
        onnx_wire_open(&inner, field.data, field.size);
        while (onnx_wire_next(&inner, &part) == 1)
            *(size_t *)user += part.number == NODE_OUTPUT && part.size > 0;
        each_body(text_of(&field), count_made, told, user);
    }
}

size_t graph_bodies_made(onnx_text node)
{
    size_t count = 0;
    each_body(node, count_made, NULL, &count);
    return count;
}

static void note_body(onnx_text body, teller *told, void *user)
{
    (void)body;
    (void)told;
    *(bool *)user = true;
}

bool graph_has_body(onnx_text node)
{
    bool has = false;
    each_body(node, note_body, NULL, &has);
    return has;
}
