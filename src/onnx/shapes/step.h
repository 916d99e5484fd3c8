/* step.h: one node in the course of inference, as the rules of the operators see it. The rules are asked in the order
 * of the nodes, so that every input has its type and shape already. */
#ifndef WI_ONNX_SHAPES_STEP_H
#define WI_ONNX_SHAPES_STEP_H

#include "onnx/shapes/attributes.h"
#include "onnx/shapes/contents.h"
#include "onnx/shapes/graph.h"

typedef struct step {
    graph *g;
    graph_node *node;
    bool wrong;    /* the node cannot be, whatever the data: `why` says so */
    bool keeps;    /* output 0 is the elements of input 0, also where its shape is not known */
    char why[200]; /* why a rule could not tell a shape */
} step;

/* fold.c: works out the contents of the node's outputs, whose shapes are known, where all that they depend on is known
 * and they are few numbers. */
void graph_fold(step *s);

/* False when a shape does not follow from what is known, or the node is wrong; `why` has been set then. */
typedef bool graph_rule(step *s);

/* The rule of an operator, by its domain and name; NULL: there is none. */
graph_rule *graph_rule_of(const graph_node *node);

/* NULL: left out. */
const graph_value *step_in(const step *s, unsigned i);
graph_value *step_out(const step *s, unsigned i);
bool step_has(const step *s, unsigned i);

/* The contents of an input; NULL: it is left out, or its contents are not known before the model runs. */
const graph_number *step_contents(const step *s, unsigned i);

/* Says why and answers false: that a shape cannot be told, or that the node is wrong. */
#define step_unknown(s, ...) (step_say(s, false, __VA_ARGS__), false)
#define step_wrong(s, ...)   (step_say(s, true, __VA_ARGS__), false)
void step_say(step *s, bool wrong, const char *format, ...) WEIR_PRINTF(3, 4);

/* Gives an output its type and shape; does nothing for an unused output. False: the shape is too large for any
 * memory. */
bool step_give(step *s, unsigned output, int32_t type, const graph_shape *shape);
bool step_give_like(step *s, unsigned output, const graph_value *value); /* type and shape of another */

/* Are these inputs there? Otherwise the node is wrong. */
bool step_need(step *s, unsigned count);

/* An axis from -rank to rank - 1 as one from 0 on. */
bool step_axis(step *s, int64_t axis, uint32_t rank, uint32_t *out);

/* Whole numbers that are an attribute in older operator sets and an input in newer ones (`input` below 0: never one).
 * Answers how many; -1: neither is there; -2: not known, or too many, which has been said. */
int step_ints(step *s, const char *name, int input, int64_t *out, int capacity);

/* Joins two shapes by the rules of broadcasting. */
bool step_broadcast(step *s, graph_shape *into, const graph_shape *more);

/* Elements of a shape, or of part of it; UINT64_MAX: beyond what can be. */
uint64_t graph_elements(const graph_shape *shape, uint32_t from, uint32_t to);

/* Do strides and sums of a few dimensions stay in range? Those of empty shapes are asked of too, leaving out the
 * zeros. */
bool graph_addressable(const graph_shape *shape);

/* For "%s" in messages: "2x3x4", "a single number"; the text is the caller's. */
const char *graph_shape_text(const graph_shape *shape, char *text, size_t capacity);
enum { GRAPH_SHAPE_TEXT = 120 };

#endif
