/* weir/plan_nodes.h: buffers from the nodes of a graph, in the order in which they run.
 *
 * Each node's result is one buffer; a node runs in the step of its number among those that do (further results of a
 * node have its step). Which results share storage:
 *   - a reshape, a cast to the same type and a slice of the first axis are views of their input, and take no step's work;
 *   - a cast to another type has storage of its own, unless `cast_views` is asked for and the size is the same;
 *   - a computation may name one input over which it can write.
 * Inputs, parameters and constants of the graph and what is marked as an output live as told in weir_node_kind. */
#ifndef WEIR_PLAN_NODES_H
#define WEIR_PLAN_NODES_H

#include <weir/plan.h>

WEIR_BEGIN

typedef enum weir_node_kind {
    WEIR_NODE_COMPUTE = 0,
    WEIR_NODE_INPUT = 1, /* live in all steps, as parameters and constants are */
    WEIR_NODE_PARAMETER = 2,
    WEIR_NODE_CONSTANT = 3,
    WEIR_NODE_RESHAPE = 4,
    WEIR_NODE_CAST = 5,
    WEIR_NODE_NARROW = 6,  /* `elements` of the first input, from `start` on */
    WEIR_NODE_FURTHER = 7, /* another result of the computation just before */
    WEIR_NODE_COUNT = 8
} weir_node_kind;

typedef struct weir_node {
    size_t struct_size;
    const char *name; /* as weir_buffer.name */
    weir_node_kind kind;
    weir_type type;
    int64_t elements; /* -1 is a shape that is not known, which no plan can have: WEIR_ERR_INVALID */
    uint64_t start;   /* of a narrow: elements of the input before it */
    const uint32_t *inputs;
    size_t input_count;
    uint32_t in_place; /* which of `inputs` it may be written over, counted from 1; 0: none */
    bool output;       /* of the graph: live until the end, and never written over */
    bool elsewhere;    /* the caller has memory for it: it gets no storage here, and views of it neither */
} weir_node;

typedef struct weir_node_rules {
    size_t struct_size;
    bool cast_views; /* a cast to a type of the same size is a view */
    /* As the planner that this one descends from: every result takes four bytes an element, whatever its type; every
     * reshape and every cast shares its first input's slot, whatever the size; a narrow has a slot of its own. Planned with
     * WEIR_PLAN_BUMP and an alignment of 16, slots are byte for byte where that planner puts them; what has no bytes has
     * no place. */
    bool uniform;
} weir_node_rules;

/* Makes the list of buffers of `count` nodes; buffer i is node i's result. Its schedule has, for each step, the number of
 * the node that runs then; with `uniform`, every node has a step, views and inputs too. `nodes[0].size` is the stride.
 * `rules` NULL: none of them. Errors, naming the node: WEIR_ERR_INVALID for an input that is not an earlier node, so that
 * nothing runs before what it reads, for a view without an input, with other elements or beyond its bytes, a shape that is
 * not known, a type that is none, a further result without a computation before it, bytes beyond 64 bits. WEIR_ERR_SYSTEM
 * without host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_from_nodes(const weir_node *nodes, size_t count,
                                                            const weir_node_rules *rules, weir_buffers **out);

WEIR_END
#endif
