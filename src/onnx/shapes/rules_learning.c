/* The rules of ai.onnx.ml: trees, linear models, machines of support vectors, and what prepares their inputs. */
#include "onnx/shapes/rules.h"

#include <inttypes.h>

/* How many rows there are: one vector is one row. */
static int64_t rules_learning_rows_of(const graph_shape *shape)
{
    return shape->rank > 1 ? shape->dims[0] : 1;
}

/* Gives a label for each row, and a score for each row and class: two scores if no classes are listed. Labels that are
 * texts have no fixed size, and take no memory of a plan's. */
bool rule_classes(step *s)
{
    int64_t rows = rules_learning_rows_of(&step_in(s, 0)->shape), texts = graph_length(s->node, "classlabels_strings");
    int64_t count = graph_length(s->node, "classlabels_int64s");
    count = count ? count : graph_length(s->node, "classlabels_ints");
    count = count ? count : texts ? texts : 2;
    return step_give(s, 1, ONNX_FLOAT, &(graph_shape){2, {rows, count}}) &&
           (texts ? step_unknown(s, "its labels are texts") : step_give(s, 0, ONNX_INT64, &(graph_shape){1, {rows}}));
}

/* Gives a value for each row and target. */
bool rule_targets(step *s)
{
    const graph_value *x = step_in(s, 0);
    bool svm = onnx_text_is(s->node->op, "SVMRegressor");
    int64_t targets =
        svm ? 1 : graph_int(s->node, onnx_text_is(s->node->op, "LinearRegressor") ? "targets" : "n_targets", 1);
    int32_t type = x->type == ONNX_DOUBLE && onnx_text_is(s->node->op, "TreeEnsemble") ? ONNX_DOUBLE : ONNX_FLOAT;
    return step_give(s, 0, type, &(graph_shape){2, {rules_learning_rows_of(&x->shape), targets}});
}

bool rule_same_float(step *s)
{
    return step_give(s, 0, ONNX_FLOAT, &step_in(s, 0)->shape);
}

bool rule_label_encoder(step *s)
{
    static const struct {
        const char *values;
        int32_t type;
    } kinds[] = {{"values_int64s", ONNX_INT64}, {"values_floats", ONNX_FLOAT}, {"classes_strings", ONNX_INT64}};
    onnx_text proto;
    onnx_tensor tensor;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (graph_length(s->node, kinds[i].values) > 0)
            return step_give(s, 0, step_in(s, 0)->type == ONNX_STRING || i < 2 ? kinds[i].type : ONNX_STRING,
                             &step_in(s, 0)->shape);
    if (graph_tensor(s->node, "values_tensor", &proto) &&
        onnx_tensor_read(s->g->file, (const uint8_t *)proto.text, proto.size, &tensor) == WEIR_OK)
        return step_give(s, 0, tensor.type, &step_in(s, 0)->shape);
    return step_unknown(s, "it makes texts");
}

bool rule_array_features(step *s)
{
    graph_shape shape = step_in(s, 0)->shape;
    if (shape.rank == 0)
        return step_wrong(s, "its input has no dimension");
    if (shape.rank == 1)
        shape = (graph_shape){2, {1}};
    shape.dims[shape.rank - 1] = (int64_t)step_in(s, 1)->elements;
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_feature_vector(step *s)
{
    int64_t width = 0;
    for (unsigned i = 0; i < s->node->input_count; i++) {
        const graph_shape *x = &step_in(s, i)->shape;
        if (__builtin_add_overflow(width, x->rank ? x->dims[x->rank - 1] : 1, &width))
            return step_wrong(s, "its inputs are too wide");
    }
    return step_give(s, 0, ONNX_FLOAT, &(graph_shape){2, {rules_learning_rows_of(&step_in(s, 0)->shape), width}});
}

bool rule_categories(step *s)
{
    graph_shape shape = step_in(s, 0)->shape;
    int64_t whole = graph_length(s->node, "cats_int64s");
    if (shape.rank == GRAPH_MAX_RANK)
        return step_wrong(s, "its input has too many dimensions");
    shape.dims[shape.rank++] = whole ? whole : graph_length(s->node, "cats_strings");
    return step_give(s, 0, ONNX_FLOAT, &shape);
}
