/* plan_colour.c: which colour a tensor has: by what makes it, or, where that is not known, by its size. */
#include "picture.h"

#include <string.h>

enum { PRODUCT, MOVE, EACH, NORM, REDUCE, REST, WINDOW, INPUT }; /* BAD: a red that nothing here deserves */

static const char *const of_models[PICTURE_COLOURS] = {
    [INPUT] = "input",        [WINDOW] = "convolution or pool", [PRODUCT] = "product or attention",
    [NORM] = "normalisation", [EACH] = "element by element",    [MOVE] = "moved or put together",
    [REDUCE] = "reduction",   [REST] = "other operators",
};
static const char *const of_lists[PICTURE_COLOURS] = {"up to 1 % of the arena", "up to 5 %", "up to 20 %", "more"};

/* By a part of the operator's name; the first that is found. */
static const struct {
    const char *part;
    unsigned colour;
} operators[] = {
    {"input", INPUT},    {"Conv", WINDOW},       {"Pool", WINDOW},  {"MatMul", PRODUCT}, {"Gemm", PRODUCT},
    {"Einsum", PRODUCT}, {"Attention", PRODUCT}, {"LSTM", PRODUCT}, {"GRU", PRODUCT},    {"Norm", NORM},
    {"oftmax", NORM},    {"LRN", NORM},          {"Arg", REDUCE},   {"Reduce", REDUCE},  {"Transpose", MOVE},
    {"Concat", MOVE},    {"Slice", MOVE},        {"Split", MOVE},   {"Gather", MOVE},    {"Scatter", MOVE},
    {"Expand", MOVE},    {"Tile", MOVE},         {"Pad", MOVE},     {"Resize", MOVE},    {"Upsample", MOVE},
    {"Space", MOVE},     {"Reshape", MOVE},      {"queeze", MOVE},  {"Flatten", MOVE},   {"Add", EACH},
    {"Sub", EACH},       {"Mul", EACH},          {"Div", EACH},     {"Pow", EACH},       {"Sqrt", EACH},
    {"elu", EACH},       {"ELU", EACH},          {"Relu", EACH},    {"anh", EACH},       {"igmoid", EACH},
    {"Erf", EACH},       {"Clip", EACH},         {"Cast", EACH},    {"Where", EACH},     {"Exp", EACH},
    {"Log", EACH},       {"Equal", EACH},        {"Less", EACH},    {"Greater", EACH},   {"Not", EACH},
    {"wish", EACH},      {"Max", EACH},          {"Min", EACH},     {"Neg", EACH},       {"Abs", EACH},
    {"And", EACH},
};

static unsigned colour_of_operator(const char *name)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strstr(name, operators[i].part))
            return operators[i].colour;
    return REST;
}

static unsigned colour_of_class(const char *name)
{
    for (unsigned i = 0; i < WEIR_CLASS_COUNT; i++)
        if (strcmp(name, weir_class_name((weir_class)i)) == 0)
            return i;
    return REST;
}

static unsigned colour_of_size(const picture *p, uint64_t length)
{
    double part = p->arena ? (double)length / (double)p->arena : 0;
    return part <= .01 ? 0 : part <= .05 ? 1 : part <= .2 ? 2 : 3;
}

/* Whether what makes a tensor is known, of all or of none. */
static bool by_maker(const plan_source *from)
{
    return from->origins && (from->kind == PLAN_MODEL || from->kind == PLAN_TRACE);
}

unsigned picture_colour(const picture *p, size_t i)
{
    const plan_source *from = p->answer->source;
    const char *maker = by_maker(from) ? from->origins[p->storages[i].buffer].maker : NULL;
    if (!maker)
        return colour_of_size(p, p->storages[i].length);
    return from->kind == PLAN_MODEL ? colour_of_operator(maker) : colour_of_class(maker);
}

const char *picture_colour_name(const picture *p, unsigned colour)
{
    const plan_source *from = p->answer->source;
    const char *name = !by_maker(from)             ? of_lists[colour]
                       : from->kind == PLAN_MODEL  ? of_models[colour]
                       : colour < WEIR_CLASS_COUNT ? weir_class_name((weir_class)colour)
                                                   : NULL;
    return name ? name : "other";
}
