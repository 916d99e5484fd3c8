/* model.c: the activations of an ONNX model as buffers. */
#include "plan.h"

#include "cli/text.h"
#include "onnx/file/file.h"
#include "onnx/shapes/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ONNX's number of a type; 0 for NULL, -1 for an unknown name. */
static int32_t type_named(const char *name)
{
    for (int32_t type = 1; name && type < ONNX_TYPE_COUNT; type++)
        if (onnx_type_bits(type) > 0 && strcmp(onnx_type_name(type), name) == 0)
            return type;
    return name ? -1 : 0;
}

static graph_given *convert_args(const plan_shape_arg *list, size_t count)
{
    graph_given *out = text_zeroed(count, sizeof *out);
    for (size_t i = 0; i < count; i++) {
        out[i] = (graph_given){.name = list[i].name, .size = list[i].dims[0], .type = type_named(list[i].type)};
        out[i].shape.rank = list[i].rank;
        memcpy(out[i].shape.dims, list[i].dims, sizeof list[i].dims);
    }
    return out;
}

/* A --dim or --shape that nothing uses is a mistake. */
static weir_status check_all_used(const graph *g)
{
    char names[400];
    for (size_t i = 0; i < g->given->dim_count; i++)
        if (!g->given->dims[i].used) {
            bool some = graph_dim_names(g, names, sizeof names) > 0;
            return weir_fail(WEIR_ERR_INVALID, "%s has no dimension called \"%s\"; %s%s", g->file->name,
                             g->given->dims[i].name, some ? "its inputs have" : "its inputs have fixed sizes",
                             some ? names + 1 : "");
        }
    for (size_t i = 0; i < g->given->shape_count; i++) {
        const char *name = g->given->shapes[i].name;
        if (!g->given->shapes[i].used)
            return weir_fail(WEIR_ERR_INVALID,
                             graph_find(g, (onnx_text){name, strlen(name)}) == GRAPH_NONE
                                 ? "%s has no tensor called \"%s\""
                                 : "%s: the shape of \"%s\" is known without --shape",
                             g->file->name, name);
    }
    return WEIR_OK;
}

static char *shape_text(const graph_value *value)
{
    char *text = text_copy("");
    for (uint32_t i = 0; i < value->shape.rank; i++)
        text_add(&text, "%s%" PRId64, i ? "x" : "", value->shape.dims[i]);
    text_add(&text, "%s%s", value->shape.rank ? " " : "", onnx_type_name(value->type));
    return text;
}

static char *plan_model_clean(onnx_text text)
{
    return text_clean(text.size ? text.text : "", text.size, false);
}

static void set_origins(const graph *g, const graph_memory *memory, plan_source *out)
{
    out->origins = text_zeroed(memory->count, sizeof *out->origins);
    for (uint32_t i = 0; i < memory->count; i++) {
        const graph_value *value = &g->values[memory->values[i]];
        out->origins[i].maker = plan_model_clean(graph_origin(g, memory->values[i]));
        out->origins[i].shape = shape_text(value);
    }
    out->steps = text_zeroed(memory->steps, sizeof *out->steps);
    for (size_t i = 0; i < memory->steps; i++) {
        const graph_node *node = &g->nodes[memory->order[i]];
        out->steps[out->step_count++] = plan_model_clean(node->name.size ? node->name : node->op);
    }
}

/* Appends a remark. */
static void plan_model_remark(plan_source *out, char *more)
{
    if (!out->remark)
        out->remark = text_copy("");
    text_add(&out->remark, "%s%s", out->remark[0] ? "; " : "", more);
    free(more);
}

static void add_remarks(const graph *g, plan_source *out)
{
    if (g->branched > 0)
        plan_model_remark(
            out, text_print("%zu %s branches, each planned by itself: the larger one is in the plan, as one buffer",
                            g->branched, g->branched == 1 ? "node has" : "nodes have"));
    if (g->bodies > 0)
        plan_model_remark(out,
                          text_print("%zu %s a graph inside; the %zu %s there %s not in the plan", g->bodies,
                                     g->bodies == 1 ? "node has" : "nodes have", g->inside,
                                     g->inside == 1 ? "tensor made" : "tensors made", g->inside == 1 ? "is" : "are"));
    if (g->guesses == 0)
        return;
    char *first = plan_model_clean(g->values[g->first_guess].name);
    plan_model_remark(out,
                      text_print("%zu %s another shape than the file says, \"%s\" first: the operators' were taken",
                                 g->guesses, g->guesses == 1 ? "tensor has" : "tensors have", first));
    free(first);
}

static weir_status plan_model_read_graph(const plan_args *args, graph *g, plan_source *out)
{
    graph_memory memory = {.count = 0};
    g->apart = !args->in_place;
    g->alignment = args->align;
    g->effort = args->quick ? 0 : g->effort;
    weir_status status = graph_infer(g);
    if (status == WEIR_OK)
        status = check_all_used(g);
    if (status == WEIR_OK)
        status = graph_memory_make(g, args->in_place, NULL, &memory);
    if (status != WEIR_OK)
        return status;
    out->weights = memory.weights;
    out->weight_count = memory.weight_count;
    out->constants = memory.constants;
    out->inputs = memory.inputs;
    out->outputs = memory.outputs;
    out->views = memory.views;
    out->folded = memory.folded;
    set_origins(g, &memory, out);
    add_remarks(g, out);
    out->buffers = memory.buffers;
    memory.buffers = NULL;
    graph_memory_clear(&memory);
    return WEIR_OK;
}

/* Unknown types are reported first. */
static weir_status plan_model_check(const plan_args *args, const graph_givens *givens, onnx_file *file)
{
    for (size_t i = 0; i < givens->shape_count; i++)
        if (givens->shapes[i].type < 0)
            return weir_fail(WEIR_ERR_INVALID, "--shape %s: there is no type \"%s\"; float, float16 and int64 are some",
                             givens->shapes[i].name, args->shapes[i].type);
    weir_status status = onnx_check(file);
    if (status != WEIR_ERR_CORRUPT || strcasestr(args->file, ".onnx"))
        return status;
    char *why = text_copy(weir_detail());
    weir_fail(WEIR_ERR_CORRUPT, "%s is neither a list of buffers nor a trace, and as a model: %s", args->file, why);
    free(why);
    return status;
}

weir_status plan_source_model(const plan_args *args, plan_source *out)
{
    onnx_file file;
    graph g = {.file = NULL};
    graph_givens givens = {.dim_count = args->dim_count, .shape_count = args->shape_count};
    weir_status status = onnx_file_open(args->file, &file);
    if (status != WEIR_OK)
        return status;
    givens.dims = convert_args(args->dims, args->dim_count);
    givens.shapes = convert_args(args->shapes, args->shape_count);
    status = plan_model_check(args, &givens, &file);
    if (status == WEIR_OK)
        status = graph_read(&file, &givens, &g);
    if (status == WEIR_OK)
        status = plan_model_read_graph(args, &g, out);
    graph_clear(&g);
    free(givens.dims);
    free(givens.shapes);
    onnx_file_close(&file);
    return status;
}
