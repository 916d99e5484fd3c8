/* rules_window.c: convolutions and pools: a window that moves over the dimensions behind the first two. */
#include "onnx/shapes/rules.h"

#include <inttypes.h>

/* Beyond this nothing is addressed, and sums of a few such numbers do not overflow. */
#define EXTENT_MOST (INT64_C(1) << 40)

typedef struct window {
    uint32_t rank; /* of what it moves over */
    int64_t kernel[GRAPH_MAX_RANK], strides[GRAPH_MAX_RANK], dilations[GRAPH_MAX_RANK], pads[2 * GRAPH_MAX_RANK];
    bool same, ceil; /* padded so that only strides shrink the output; the last window may stand out */
    bool pools;      /* it has no weights */
} window;

/* Reads a list with a number for each dimension; every number is `otherwise` if the list is missing. */
static bool list(step *s, const char *name, uint32_t count, int64_t least, int64_t otherwise, int64_t *out)
{
    int got = graph_ints(s->node, name, out, (int)count);
    for (uint32_t i = 0; got == -1 && i < count; i++)
        out[i] = otherwise;
    if (got != -1 && got != (int)count)
        return step_wrong(s, "its %s are not %u", name, count);
    for (uint32_t i = 0; i < count; i++)
        if (out[i] < least || out[i] > EXTENT_MOST)
            return step_wrong(s, "its %s have %" PRId64, name, out[i]);
    return true;
}

static bool read_window(step *s, const graph_value *x, const graph_value *weights, window *w)
{
    if (x->shape.rank < 3)
        return step_wrong(s, "its input has %u dimensions, too few for a window", x->shape.rank);
    w->rank = x->shape.rank - 2;
    w->pools = !weights;
    if (weights && weights->shape.rank != x->shape.rank)
        return step_wrong(s, "its weights have %u dimensions, its input %u", weights->shape.rank, x->shape.rank);
    onnx_text automatic = graph_text(s->node, "auto_pad");
    w->same = onnx_text_is(automatic, "SAME_UPPER") || onnx_text_is(automatic, "SAME_LOWER");
    w->ceil = graph_int(s->node, "ceil_mode", 0) != 0;
    if (!list(s, "kernel_shape", w->rank, 0, 0, w->kernel) || !list(s, "strides", w->rank, 1, 1, w->strides) ||
        !list(s, "dilations", w->rank, 1, 1, w->dilations) || !list(s, "pads", 2 * w->rank, -EXTENT_MOST, 0, w->pads))
        return false;
    for (uint32_t i = 0; i < w->rank; i++) {
        if (weights)
            w->kernel[i] = weights->shape.dims[i + 2];
        if (w->kernel[i] < 1 || x->shape.dims[i + 2] > EXTENT_MOST || w->kernel[i] > EXTENT_MOST ||
            w->dilations[i] > EXTENT_MOST / w->kernel[i])
            return step_wrong(s, "its window is %" PRId64 " long in dimension %u", w->kernel[i], i + 2);
        if (onnx_text_is(automatic, "VALID"))
            w->pads[i] = w->pads[i + w->rank] = 0;
    }
    return true;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

/* How often the window stands in dimension i of `extent`. One that is longer than that by less than a stride stands there once for
 * ONNX Runtime's pools, and by less than two not at all; its convolutions refuse it. */
static int64_t places(const window *w, uint32_t i, int64_t extent)
{
    int64_t stride = w->strides[i];
    if (w->same)
        return divide_up(extent, stride);
    int64_t room = extent + w->pads[i] + w->pads[i + w->rank] - (w->kernel[i] - 1) * w->dilations[i] - 1;
    if (room < 0 && !w->pools)
        return -1;
    int64_t count = (w->ceil ? divide_up(room, stride) : room / stride) + 1;
    /* A window that would begin behind the input and its front padding is none: the standard says so since operator set
     * 22, ONNX Runtime does it for all. */
    return w->ceil && (count - 1) * stride >= extent + w->pads[i] ? count - 1 : count;
}

static bool slide(step *s, const window *w, graph_shape *shape)
{
    for (uint32_t i = 0; i < w->rank; i++) {
        int64_t extent = shape->dims[i + 2];
        shape->dims[i + 2] = places(w, i, extent);
        if (shape->dims[i + 2] < 0)
            return step_wrong(s, "its window of %" PRId64 " does not fit into %" PRId64,
                              (w->kernel[i] - 1) * w->dilations[i] + 1, extent);
    }
    return true;
}

bool rule_conv(step *s)
{
    bool quantized = onnx_text_is(s->node->op, "QLinearConv");
    unsigned at = quantized ? 3 : 1;
    const graph_value *x = step_in(s, 0), *weights = step_in(s, at);
    window w;
    if (!read_window(s, x, weights, &w))
        return false;
    int64_t group = graph_int(s->node, "group", 1), channels = weights->shape.dims[1];
    if (group < 1 || group > EXTENT_MOST || channels > EXTENT_MOST / group || channels * group != x->shape.dims[1])
        return step_wrong(s, "weights for %" PRId64 " channels in %" PRId64 " groups meet %" PRId64 " channels",
                          channels, group, x->shape.dims[1]);
    int32_t type = quantized ? step_in(s, 7)->type : onnx_text_is(s->node->op, "ConvInteger") ? ONNX_INT32 : x->type;
    graph_shape shape = x->shape;
    shape.dims[1] = weights->shape.dims[0];
    return slide(s, &w, &shape) && step_give(s, 0, type, &shape);
}

bool rule_conv_transpose(step *s)
{
    const graph_value *x = step_in(s, 0), *weights = step_in(s, 1);
    window w;
    int64_t more[GRAPH_MAX_RANK], wanted[GRAPH_MAX_RANK], group = graph_int(s->node, "group", 1);
    if (!read_window(s, x, weights, &w) || !list(s, "output_padding", w.rank, 0, 0, more) ||
        !list(s, "output_shape", w.rank, 0, 0, wanted))
        return false;
    if (group < 1 || weights->shape.dims[1] > EXTENT_MOST / group)
        return step_wrong(s, "%" PRId64 " groups", group);
    graph_shape shape = x->shape;
    shape.dims[1] = weights->shape.dims[1] * group;
    for (uint32_t i = 0; i < w.rank; i++) {
        int64_t extent = shape.dims[i + 2], between;
        if (__builtin_mul_overflow(extent - 1, w.strides[i], &between) || between > EXTENT_MOST)
            return step_wrong(s, "it would make more than can be addressed");
        int64_t full = between + more[i] + (w.kernel[i] - 1) * w.dilations[i] + 1;
        shape.dims[i + 2] = wanted[i] ? wanted[i]
                            : w.same  ? extent * w.strides[i]
                                      : full - w.pads[i] - w.pads[i + w.rank];
    }
    return step_give(s, 0, x->type, &shape);
}

bool rule_pool(step *s)
{
    window w;
    if (!read_window(s, step_in(s, 0), NULL, &w))
        return false;
    graph_shape shape = step_in(s, 0)->shape;
    return slide(s, &w, &shape) && step_give(s, 0, step_in(s, 0)->type, &shape) && step_give(s, 1, ONNX_INT64, &shape);
}

bool rule_global_pool(step *s)
{
    graph_shape shape = step_in(s, 0)->shape;
    for (uint32_t i = 2; i < shape.rank; i++)
        shape.dims[i] = 1;
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_roi_align(step *s)
{
    const graph_value *x = step_in(s, 0), *rois = step_in(s, 1);
    if (x->shape.rank != 4 || rois->shape.rank != 2)
        return step_wrong(s, "it needs images of four dimensions and boxes of two");
    graph_shape shape = {4,
                         {rois->shape.dims[0], x->shape.dims[1], graph_int(s->node, "output_height", 1),
                          graph_int(s->node, "output_width", 1)}};
    return step_give(s, 0, x->type, &shape);
}

bool rule_grid_sample(step *s)
{
    const graph_value *x = step_in(s, 0), *grid = step_in(s, 1);
    if (x->shape.rank < 3 || grid->shape.rank != x->shape.rank)
        return step_wrong(s, "its grid does not go with its input");
    graph_shape shape = x->shape;
    for (uint32_t i = 2; i < shape.rank; i++)
        shape.dims[i] = grid->shape.dims[i - 1];
    return step_give(s, 0, x->type, &shape);
}
