/* See slices.h. */
#include "onnx_shapes/slices.h"

#include <inttypes.h>

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Negative places count from the end; what lies beyond is cut off. */
static void cut(int64_t extent, int64_t begin, int64_t end, int64_t by, int64_t *first, int64_t *count)
{
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? extent : extent - 1;
    begin = clamp(begin < 0 ? begin + extent : begin, extent > 0 ? 0 : low, high);
    end = clamp(end < 0 ? (end < -extent ? low : end + extent) : end, low, high);
    int64_t span = by > 0 ? end - begin : begin - end;
    uint64_t step_by = by > 0 ? (uint64_t)by : 0 - (uint64_t)by;
    *first = begin;
    *count = span <= 0 ? 0 : (int64_t)(((uint64_t)span - 1) / step_by) + 1;
}

bool graph_slices_read(step *s, graph_slices *out)
{
    int64_t begins[GRAPH_MAX_RANK], ends[GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK], by[GRAPH_MAX_RANK];
    const graph_shape *shape = &step_in(s, 0)->shape;
    int count = step_ints(s, "starts", 1, begins, GRAPH_MAX_RANK);
    int other = count == -2 ? -2 : step_ints(s, "ends", 2, ends, GRAPH_MAX_RANK);
    int named = other == -2 ? -2 : step_ints(s, "axes", 3, axes, GRAPH_MAX_RANK);
    int steps = named == -2 ? -2 : step_ints(s, NULL, 4, by, GRAPH_MAX_RANK);
    if (steps == -2)
        return false;
    if (count < 0 || count != other || (named >= 0 && named != count) || (steps >= 0 && steps != count) ||
        (uint32_t)count > shape->rank)
        return step_wrong(s, "its starts, ends, axes and steps are not as many");
    out->rank = shape->rank;
    for (uint32_t i = 0; i < shape->rank; i++) {
        out->begin[i] = 0;
        out->by[i] = 1;
        out->count[i] = shape->dims[i];
    }
    for (int i = 0; i < count; i++) {
        uint32_t axis = (uint32_t)i;
        if (named >= 0 && !step_axis(s, axes[i], shape->rank, &axis))
            return false;
        int64_t stride = steps >= 0 ? by[i] : 1;
        if (stride == 0)
            return step_wrong(s, "its step %d is 0", i);
        out->by[axis] = stride;
        cut(shape->dims[axis], begins[i], ends[i], stride, &out->begin[axis], &out->count[axis]);
    }
    return true;
}
