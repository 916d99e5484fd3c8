/* Nodes of a graph become buffers: steps, views, lifetimes. */
#include "planner/buffers.h"
#include "base/internal.h"
#include "base/values.h"

#include <weir/plan.h>

typedef struct builder {
    const weir_node *nodes;
    size_t count, stride;
    weir_node_rules rules;
    weir_buffers *list;
    uint32_t *order; /* by step: the node */
    size_t steps;
    uint64_t *step_of; /* by node: the step in which its result is made */
    bool *elsewhere;   /* by node: it has no storage in the plan */
    uint32_t *roots;   /* by node: the node whose storage it shares as a view, or the node itself */
    bool *is_output;   /* by root: it or a view of it is an output */
} builder;

static weir_status nodes_read_node(const builder *b, size_t i, weir_node *node)
{
    const char *from = (const char *)b->nodes + i * b->stride;
    return wi_copy_in(node, sizeof *node, from, b->stride, "weir_buffers_from_nodes", "weir_node");
}

static weir_node nodes_node_at(const builder *b, size_t i)
{
    weir_node node = {0};
    (void)nodes_read_node(b, i, &node);
    return node;
}

static weir_status nodes_bad(size_t i, const weir_node *node, const char *what)
{
    return weir_fail(WEIR_ERR_INVALID, "node %zu (%.200s): %s", i, node->name ? node->name : "without a name", what);
}

static weir_status check_node(const builder *b, size_t i, const weir_node *node)
{
    if ((unsigned)node->kind >= WEIR_NODE_COUNT)
        return nodes_bad(i, node, "its kind is none");
    if (node->elements < 0)
        return nodes_bad(i, node, "its shape is not known; a plan needs every size");
    if (wi_type_bytes(node->type) == 0)
        return nodes_bad(i, node, "its type is none");
    if (!node->inputs && node->input_count > 0)
        return nodes_bad(i, node, "its inputs are NULL");
    for (size_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] >= i)
            return nodes_bad(i, node, "it reads what only a later node makes");
    if (node->in_place > node->input_count)
        return nodes_bad(i, node, "it may be written over an input that it does not have");
    bool view = node->kind == WEIR_NODE_RESHAPE || node->kind == WEIR_NODE_CAST || node->kind == WEIR_NODE_NARROW;
    if (view && node->input_count == 0)
        return nodes_bad(i, node, "it has no input");
    if (node->kind == WEIR_NODE_FURTHER) {
        weir_node_kind before = i > 0 ? nodes_node_at(b, i - 1).kind : WEIR_NODE_INPUT;
        if (before != WEIR_NODE_COMPUTE && before != WEIR_NODE_FURTHER)
            return nodes_bad(i, node, "a further result stands behind a computation");
    }
    return WEIR_OK;
}

static bool nodes_is_view(const builder *b, const weir_node *node)
{
    if (node->kind == WEIR_NODE_RESHAPE)
        return true;
    if (node->kind == WEIR_NODE_NARROW)
        return !b->rules.uniform;
    if (node->kind != WEIR_NODE_CAST)
        return false;
    weir_node input = nodes_node_at(b, node->inputs[0]);
    bool same_bytes = wi_type_bytes(input.type) == wi_type_bytes(node->type);
    return b->rules.uniform || input.type == node->type || (b->rules.cast_views && same_bytes);
}

static bool nodes_is_given(const weir_node *node)
{
    return node->kind == WEIR_NODE_INPUT || node->kind == WEIR_NODE_PARAMETER || node->kind == WEIR_NODE_CONSTANT;
}

static void find_steps(builder *b)
{
    for (size_t i = 0; i < b->count; i++) {
        weir_node node = nodes_node_at(b, i);
        bool runs = b->rules.uniform
                        ? node.kind != WEIR_NODE_FURTHER
                        : !nodes_is_given(&node) && !nodes_is_view(b, &node) && node.kind != WEIR_NODE_FURTHER;
        if (runs) {
            b->step_of[i] = b->steps;
            b->order[b->steps++] = (uint32_t)i;
        } else if (nodes_is_view(b, &node)) {
            b->step_of[i] = b->step_of[node.inputs[0]];
        } else {
            b->step_of[i] = b->steps > 0 && !nodes_is_given(&node) ? b->steps - 1 : 0;
        }
    }
}

/* Outputs stay when the last step is done, so that not even that may write over them. */
static void find_outputs(builder *b)
{
    for (size_t i = 0; i < b->count; i++) {
        weir_node node = nodes_node_at(b, i);
        b->roots[i] = nodes_is_view(b, &node) ? b->roots[node.inputs[0]] : (uint32_t)i;
        b->is_output[b->roots[i]] |= node.output;
    }
}

static weir_status measure_view(const builder *b, size_t i, const weir_node *node, weir_buffer *out)
{
    const wi_buffer *under = &b->list->items[node->inputs[0]];
    uint64_t each = wi_type_bytes(node->type);
    out->sharing = WEIR_SHARING_VIEW;
    out->of = node->inputs[0];
    if (b->rules.uniform) { /* the slot of the input, as it is */
        out->bytes = under->bytes;
        return WEIR_OK;
    }
    if (node->kind == WEIR_NODE_NARROW) {
        if (__builtin_mul_overflow(node->start, each, &out->view_offset))
            return nodes_bad(i, node, "it begins beyond 64 bits");
    } else if (node->elements != nodes_node_at(b, node->inputs[0]).elements) {
        return nodes_bad(i, node, "it has another number of elements than what it is a view of");
    }
    if (b->elsewhere[node->inputs[0]])
        out->bytes = out->view_offset = 0;
    return WEIR_OK;
}

static weir_status nodes_add_node(builder *b, size_t i)
{
    weir_node node = nodes_node_at(b, i);
    weir_status status = WEIR_OK;
    weir_buffer buffer = {
        .struct_size = sizeof buffer, .name = node.name, .begin = b->step_of[i], .end = b->step_of[i] + 1};
    uint64_t each = b->rules.uniform ? 4 : wi_type_bytes(node.type);
    if (__builtin_mul_overflow((uint64_t)node.elements, each, &buffer.bytes))
        return nodes_bad(i, &node, "its bytes are beyond 64 bits");
    buffer.persistent = nodes_is_given(&node);
    b->elsewhere[i] = node.elsewhere;
    if (nodes_is_view(b, &node)) {
        status = measure_view(b, i, &node, &buffer);
        b->elsewhere[i] = b->elsewhere[node.inputs[0]];
    } else if (node.elsewhere) {
        buffer.bytes = 0;
    } else if (node.in_place > 0 && !b->is_output[b->roots[node.inputs[node.in_place - 1]]]) {
        buffer.sharing = WEIR_SHARING_IN_PLACE;
        buffer.of = node.inputs[node.in_place - 1];
    }
    if (status == WEIR_OK)
        status = weir_buffers_add(b->list, &buffer, NULL);
    for (size_t k = 0; k < node.input_count && status == WEIR_OK && !nodes_is_view(b, &node); k++)
        status = wi_buffers_use(b->list, node.inputs[k], b->step_of[i]);
    if (status == WEIR_OK && node.output && b->steps > 0)
        status = wi_buffers_use(b->list, (uint32_t)i, b->steps - 1);
    return status;
}

static weir_status build(builder *b)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < b->count && status == WEIR_OK; i++) {
        weir_node node;
        status = nodes_read_node(b, i, &node);
        if (status == WEIR_OK)
            status = check_node(b, i, &node);
    }
    if (status != WEIR_OK)
        return status;
    find_steps(b);
    find_outputs(b);
    for (size_t i = 0; i < b->count && status == WEIR_OK; i++)
        status = nodes_add_node(b, i);
    return status == WEIR_OK && b->steps > 0 ? weir_buffers_schedule(b->list, b->order, b->steps) : status;
}

weir_status weir_buffers_from_nodes(const weir_node *nodes, size_t count, const weir_node_rules *rules,
                                    weir_buffers **out)
{
    if ((!nodes && count > 0) || !out || count > WEIR_BUFFERS_MAX)
        return weir_fail(WEIR_ERR_INVALID, "weir_buffers_from_nodes: NULL, or too many nodes");
    builder b = {.nodes = nodes, .count = count, .stride = count ? nodes[0].struct_size : sizeof *nodes};
    weir_status status = WI_COPY_OPTIONS_IN(weir_node_rules, &b.rules, rules, "weir_buffers_from_nodes");
    if (status != WEIR_OK)
        return status;
    b.order = calloc(count + 1, sizeof *b.order);
    b.step_of = calloc(count + 1, sizeof *b.step_of);
    b.elsewhere = calloc(count + 1, sizeof *b.elsewhere);
    b.roots = calloc(count + 1, sizeof *b.roots);
    b.is_output = calloc(count + 1, sizeof *b.is_output);
    status = weir_buffers_create(&b.list);
    if (status == WEIR_OK)
        status = b.order && b.step_of && b.elsewhere && b.roots && b.is_output
                     ? build(&b)
                     : weir_fail(WEIR_ERR_SYSTEM, "buffers of a graph: no host memory");
    void *const all[] = {b.order, b.step_of, b.elsewhere, b.roots, b.is_output};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    if (status == WEIR_OK)
        *out = b.list;
    else
        weir_buffers_destroy(b.list);
    return status;
}
