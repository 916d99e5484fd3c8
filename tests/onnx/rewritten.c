/* How a graph is seen before it runs: which nodes ONNX Runtime makes of others and in which order they run, which dimensions it
 * knows, and which numbers follow. A part of foreseen.c's program, which needs no ONNX Runtime for it. */
#include "common.h"

#include "onnx/engine/rewrite.h"
#include "onnx/shapes/graph.h"
#include "written.h"

static void read_written(const char *text, onnx_file *file, graph *g)
{
    static char names[][2] = {"n", "p", "m", "k", "s"};
    static const int64_t sizes[] = {5, 5, 7, 3, 4};
    graph_given list[sizeof sizes / sizeof *sizes];
    static graph_givens givens = {.dim_count = sizeof sizes / sizeof *sizes};
    givens.dims = list;
    for (size_t i = 0; i < givens.dim_count; i++)
        list[i] = (graph_given){.name = names[i], .size = sizes[i]};
    assert_ok(onnx_file_open(written(text), file));
    assert_ok(graph_read(file, &givens, g));
    assert_ok(graph_infer(g));
}

typedef struct drawing {
    char text[1024];
    size_t size;
} drawing;

static void WEIR_PRINTF(2, 3) draw(drawing *to, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    to->size += (size_t)vsnprintf(to->text + to->size, sizeof to->text - to->size, format, arguments);
    va_end(arguments);
    assert_true(to->size < sizeof to->text);
}

static void draw_values(drawing *to, const graph *g, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == GRAPH_NONE)
            draw(to, "%s-", i ? " " : "");
        else
            draw(to, "%s%.*s", i ? " " : "", ONNX_SHOW(g->values[ids[i]].name));
}

/* Whether a dimension of an input is open in the file. */
static bool has_names(const graph *g)
{
    bool has = false;
    for (size_t i = 0; i < g->value_count; i++) {
        onnx_text names[GRAPH_MAX_RANK] = {{0}};
        bool numbers[GRAPH_MAX_RANK] = {false};
        uint32_t count = g->values[i].input ? graph_said_names(&g->values[i], names, numbers) : 0;
        for (uint32_t k = 0; k < count; k++)
            has |= names[k].size > 0;
    }
    return has;
}

/* "Gemm x w b > y; ..." of the nodes that run, in the order in which they do. */
static drawing as_it_runs(const char *text, int level, bool cuda)
{
    onnx_file file;
    graph g;
    rewrite fused;
    drawing out = {.size = 0};
    read_written(text, &file, &g);
    uint32_t *known = onnx_known(&g), *order = calloc(3 * g.node_count + 2, sizeof *order);
    assert_true(known && order);
    bool open = has_names(&g);
    assert_true(onnx_fuse(&g, open ? known : NULL, level, cuda, &fused) && onnx_order(&fused.g, order));
    for (size_t i = 0; i < fused.g.node_count; i++) {
        const graph_node *node = &fused.g.nodes[order[i]];
        if (node->folded)
            continue;
        draw(&out, "%s%.*s ", out.size ? "; " : "", ONNX_SHOW(node->op));
        draw_values(&out, &fused.g, node->inputs, node->input_count);
        draw(&out, " > ");
        draw_values(&out, &fused.g, node->outputs, node->output_count);
    }
    free(order);
    free(known);
    rewrite_clear(&fused);
    graph_clear(&g);
    onnx_file_close(&file);
    return out;
}

typedef struct run_case {
    int level; /* of optimization; 10 more: on a GPU */
    const char *text, *wanted;
} run_case;

#define FILTERS  "in x f32 1 3 4 4; weight w f32 4 3 1 1; "
#define PRODUCED "in x f32 n 4; weight w f32 4 6; "
#define BYTES                                                                                                          \
    "in x u8 5 4; weight q f32; weight z u8; weight w u8 4 6; DequantizeLinear x q z > a; DequantizeLinear w q z > "   \
    "b; "
#define WHOLE      "in x f32 n 4; weight w u8 4 6; weight u u8; weight q f32; "
#define TO_BYTES   "DynamicQuantizeLinear x > a t z; MatMulInteger a w z u > c; Cast c > d | to=1; Mul t q > e; "
#define NUMBERS    "weight r f32 = 19; weight o f32 = 16; weight h f32 = 12; "
#define GELU       "Erf a > b; Add b o > c; Mul x c > d; Mul d h > y; out y f32"
#define CUBED      "Mul e q > f; Add x f > g; Mul g r > i; Tanh i > j; Add j o > l; Mul x l > u; Mul u h > y; out y f32"
#define OF_LAYER   "in x f32 n 3 8; weight c f32 8; weight d f32 8; weight t f32 = 24; weight e f32 = 9; "
#define CENTRED    "ReduceMean x - > a | keepdims=1; Sub x a > b; "
#define DEVIATION  "ReduceMean f - > g | keepdims=1; Add g e > h; Sqrt h > i; "
#define DIVIDED    "Div b i > j; Mul j c > l; Add l d > y; out y f32"
#define CUT        "weight o i64 1 = 0; weight h i64 1 = 3; weight e i64 1 = 8; weight a i64 1 = 1; Exp x > v; "
#define TWO_PARTS  "Slice v o h a > b; Slice v h e a > c; Neg b > y; Neg c > z; out y f32; out z f32"
#define PICKED     "Exp x > v; Gather v o > b | axis=1; Gather v i > c | axis=1; Neg b > y; Neg c > z; out y f32; out z f32"
#define BENT       "Exp b > y; out y f32"
#define SUMMED(of) "in x f32 n 8; weight v f32 " of "; Add x v > s; "
#define QUANTIZED  "in x f32 n 4; weight q f32; weight z u8; "
#define BOTH       "Concat a b > y | axis=1; out y u8"

enum { GPU = 10 };

/* Nodes that run, in their order: every pattern of the optimizer's, and graphs that lack a part of one. */
static void nodes_run_as_they_are_joined(void **state)
{
    (void)state;
    static const run_case cases[] = {
        {2,
         FILTERS "weight a f32 4; weight b f32 4; weight m f32 4; weight v f32 4; Conv x w > c; BatchNormalization c a "
                 "b m v > y; out y f32",
         "Conv x w a b m v > y"},
        {2,
         FILTERS "in a f32 4; weight b f32 4; weight m f32 4; weight v f32 4; Conv x w > c; BatchNormalization c a b m "
                 "v > y; out y f32",
         "Conv x w > c; BatchNormalization c a b m v > y"},
        {2, FILTERS "weight f f32 4 1 1; weight g f32 1 4 1 1; Conv x w > c; Mul c f > d; Add g d > y; out y f32",
         "Conv x w f g > y"},
        {2, FILTERS "weight f f32 1 1 1; Conv x w > c; Mul c f > y; out y f32", "Conv x w > c; Mul c f > y"},
        {2, FILTERS "weight f f32 4; Conv x w > c; Mul c f > y; out y f32", "Conv x w > c; Mul c f > y"},
        {2, FILTERS "weight f f32 1 4 1; Conv x w > c; Mul c f > y; out y f32", "Conv x w > c; Mul c f > y"},
        {2, FILTERS "in f f32 4 1 1; Conv x w > c; Mul c f > y; out y f32", "Conv x w > c; Mul c f > y"},
        {2, FILTERS "weight f f32 4 1 1; Conv x w > c; Mul c f > y; out y f32; out c f32", "Conv x w > c; Mul c f > y"},
        {2, "in x f32 1 3 4 4; in w f32 4 3 1 1; weight f f32 4 1 1; Conv x w > c; Mul c f > y; out y f32",
         "Conv x w > c; Mul c f > y"},
        {0, FILTERS "weight f f32 4 1 1; Conv x w > c; Mul c f > y; out y f32", "Conv x w > c; Mul c f > y"},
        {1, FILTERS "weight f f32 4 1 1; Conv x w > c; Mul c f > d; Relu d > y; out y f32",
         "Conv x w f > d; Relu d > y"},
        {2, FILTERS "Conv x w > c; Relu c > y; out y f32", "Conv x w > y"},
        {2, FILTERS "Conv x w > c; Exp c > y; out y f32", "Conv x w > c; Exp c > y"},
        {2, FILTERS "Conv x w > c; Relu c > y; out y f32; out c f32", "Conv x w > c; Relu c > y"},
        {2, FILTERS "weight l f32 = 9; weight h f32 = 16; Conv x w > c; Clip c l h > y; out y f32", "Conv x w l h > y"},
        {2, FILTERS "weight l f32 = 9; in h f32; Conv x w > c; Clip c l h > y; out y f32",
         "Conv x w > c; Clip c l h > y"},
        {2, PRODUCED "weight b f32 6; MatMul x w > c; Add b c > d; Relu d > y; out y f32", "Gemm x w b > y"},
        {1, PRODUCED "weight b f32 6; MatMul x w > c; Add b c > d; Relu d > y; out y f32",
         "Gemm x w b > d; Relu d > y"},
        {0, PRODUCED "weight b f32 6; MatMul x w > c; Add b c > y; out y f32", "MatMul x w > c; Add b c > y"},
        {2, PRODUCED "weight b f32 1; MatMul x w > c; Add c b > y; out y f32", "MatMul x w > c; Add c b > y"},
        {2, PRODUCED "weight b f32 1 6; MatMul x w > c; Add c b > y; out y f32", "Gemm x w b > y"},
        {2, PRODUCED "weight b f32 1 1; MatMul x w > c; Add c b > y; out y f32", "Gemm x w b > y"},
        {2, PRODUCED "in b f32 n 1; MatMul x w > c; Add c b > y; out y f32", "Gemm x w b > y"},
        {2, "in x f32 1 4; weight w f32 4 6; weight b f32 3 6; MatMul x w > c; Add c b > y; out y f32",
         "MatMul x w > c; Add c b > y"},
        {2, "in x f32 n 4; weight w f32 4 1; weight b f32 1 6; MatMul x w > c; Add c b > y; out y f32",
         "MatMul x w > c; Add c b > y"},
        {2, PRODUCED "MatMul x w > c; Add c c > y; out y f32", "MatMul x w > c; Add c c > y"},
        {2, "in x f32 2 3 4; weight w f32 4 6; weight b f32 6; MatMul x w > c; Add c b > y; out y f32",
         "MatMul x w b > y"},
        {2, "in x f32 n 3 4; weight w f32 4 6; weight b f32 6; MatMul x w > c; Add c b > y; out y f32",
         "MatMul x w > c; Add c b > y"},
        {2, "in x f32 2 3 4; weight w f32 2 4 6; weight b f32 6; MatMul x w > c; Add c b > y; out y f32",
         "MatMul x w > c; Add c b > y"},
        {2, "in x f32 2 3 4; weight w f32 4 6; weight b f32 1 6; MatMul x w > c; Add c b > y; out y f32",
         "MatMul x w > c; Add c b > y"},
        {2, "in x f32 4; weight w f32 4 6; weight b f32 6; MatMul x w > c; Add c b > y; out y f32",
         "MatMul x w > c; Add c b > y"},
        {2, PRODUCED "weight b f32 6; MatMul x w > c; Add c b > y; out y f32; out c f32",
         "MatMul x w > c; Add c b > y"},
        {2, PRODUCED "weight b f32 6; MatMul x w > c; Sub c b > y; out y f32", "MatMul x w > c; Sub c b > y"},
        {12, PRODUCED "weight b f32 6; MatMul x w > c; Add c b > y; out y f32", "MatMul x w > c; Add c b > y"},
        {2, PRODUCED "weight b f32 6; Gemm x w b > c; Exp c > y; out y f32", "Gemm x w b > c; Exp c > y"},
        {2, PRODUCED "weight b f32 6; Gemm x w b > c; Tanh c > y; out y f32; out c f32", "Gemm x w b > c; Tanh c > y"},
        {2, PRODUCED "weight b f32 6; Gemm x w b > c; Elu c > y; out y f32", "Gemm x w b > y"},
        {2, BYTES "MatMul a b > y; out y f32", "MatMul x w > y"},
        {2, BYTES "MatMul a b > c; QuantizeLinear c q z > y; out y u8", "MatMul x w q z > y"},
        {2,
         "in x u8 5 4; weight q f32; weight w u8 4 6; DequantizeLinear x q - > a; DequantizeLinear w q - > b; "
         "MatMul a b > y; out y f32",
         "MatMul x w > y"},
        {2,
         "in x u8 5 4; weight q f32; weight z u8; weight w f32 4 6; DequantizeLinear x q z > a; MatMul a w > y; out y "
         "f32",
         "DequantizeLinear x q z > a; MatMul a w > y"},
        {12, BYTES "MatMul a b > y; Exp a > e; out y f32; out e f32",
         "MatMul x w > y; DequantizeLinear x q z > a; Exp a > e"},
        {1, BYTES "MatMul a b > y; out y f32",
         "DequantizeLinear w q z > b; DequantizeLinear x q z > a; MatMul a b > y"},
        {2,
         "in x u8 1 3 4 4; weight q f32; weight z u8; weight w u8 2 3 1 1; DequantizeLinear x q z > a; "
         "DequantizeLinear w q z > b; Conv a b > y; out y f32",
         "Conv x w > y"},
        {2, WHOLE TO_BYTES "Mul d e > y; out y f32", "DynamicQuantizeMatMul x w u q > y"},
        {2, WHOLE "weight b f32 6; " TO_BYTES "Mul d e > f; Add f b > y; out y f32",
         "DynamicQuantizeMatMul x w u q b > y"},
        {2, WHOLE "weight b f32 1 6; " TO_BYTES "Mul d e > f; Add f b > y; out y f32",
         "DynamicQuantizeMatMul x w u q > f; Add f b > y"},
        {2, WHOLE "in b f32 6; " TO_BYTES "Mul d e > f; Add f b > y; out y f32",
         "DynamicQuantizeMatMul x w u q > f; Add f b > y"},
        {2, WHOLE TO_BYTES "Mul d e > y; out y f32; out a u8",
         "DynamicQuantizeLinear x > a t z; MatMulIntegerToFloat a w z u t q > y"},
        {2, WHOLE TO_BYTES "Mul d e > y; Exp t > r; out y f32; out r f32",
         "DynamicQuantizeLinear x > a t z; MatMulIntegerToFloat a w z u t q > y; Exp t > r"},
        {2, WHOLE TO_BYTES "Mul d e > y; Exp e > r; out y f32; out r f32",
         "DynamicQuantizeLinear x > a t z; Mul t q > e; MatMulIntegerToFloat a w z u e > y; Exp e > r"},
        {2,
         "in x f32 n 4; in o u8 n 4; weight w u8 4 6; weight u u8; weight q f32; DynamicQuantizeLinear x > a t z; "
         "MatMulInteger o w z u > c; Cast c > d | to=1; Mul t q > e; Mul d e > y; out y f32",
         "DynamicQuantizeLinear x > a t z; Mul t q > e; MatMulInteger o w z u > c; Cast c > d; Mul d e > y"},
        {2,
         WHOLE "DynamicQuantizeLinear x > a t z; MatMulInteger a w z u > c; Cast c > d | to=1; Mul d t > y; out y f32",
         "DynamicQuantizeLinear x > a t z; MatMulInteger a w z u > c; Cast c > d; Mul d t > y"},
        {2, "in x f32 n 8; " NUMBERS "Div x r > a; " GELU, "Gelu o x r h > y"},
        {2, "in x f32 n 8; " NUMBERS "Div x r > a; Erf a > b; Add b o > c; Mul x h > d; Mul d c > y; out y f32",
         "Gelu o x h r > y"},
        {2,
         "in x f32 n 8; weight v f32 8; " NUMBERS
         "Add x v > s; Div s r > a; Erf a > b; Add b o > c; Mul s c > d; Mul d h > y; out y f32",
         "Add x v > s; Gelu o s r h > y"},
        {2,
         "in x f32 n 8; weight v f32 1 8; " NUMBERS
         "Add x v > s; Div s r > a; Erf a > b; Add b o > c; Mul s c > d; Mul d h > y; out y f32",
         "Add x v > s; Gelu o s r h > y"},
        /* written as one: the sum before it goes into it, unless somebody else reads that, too, or it is of no vector */
        {2, SUMMED("8") "Neg s > z; com.microsoft:Gelu z > y; out y f32", "Add x v > s; Neg s > z; Gelu z > y"},
        {2, SUMMED("8") "com.microsoft:Gelu s > y; out y f32", "BiasGelu x v > y"},
        {2, SUMMED("8") "com.microsoft:Gelu s > y; Neg s > z; out y f32; out z f32",
         "Add x v > s; Neg s > z; Gelu s > y"},
        {2, SUMMED("8") "com.microsoft:Gelu s > y; out y f32; out s f32", "Add x v > s; Gelu s > y"},
        {2, SUMMED("1 8") "com.microsoft:Gelu s > y; out y f32", "Add x v > s; Gelu s > y"},
        {2, "in x f32 n 8; in v f32 8; Add x v > s; com.microsoft:Gelu s > y; out y f32", "Add x v > s; Gelu s > y"},
        {1, SUMMED("8") "com.microsoft:Gelu s > y; out y f32", "Add x v > s; Gelu s > y"},
        {2, "in x f32 n 8; weight r f32 8; weight o f32 = 16; weight h f32 = 12; Div x r > a; " GELU,
         "Div x r > a; Erf a > b; Add b o > c; Mul x c > d; Mul d h > y"},
        {2, "in x f32 n 8; weight r f32 = 19; weight o f32 8; weight h f32 = 12; Div x r > a; " GELU,
         "Div x r > a; Erf a > b; Add b o > c; Mul x c > d; Mul d h > y"},
        {2, "in x f32 n 8; weight r f32 = 19; weight o f32 = 16; weight h f32 8; Div x r > a; " GELU,
         "Div x r > a; Erf a > b; Add b o > c; Mul x c > d; Mul d h > y"},
        {2,
         "in x f32 n 8; in z f32 n 8; " NUMBERS
         "Div x r > a; Erf a > b; Add b o > c; Mul z c > d; Mul d h > y; out y f32",
         "Div x r > a; Erf a > b; Add b o > c; Mul z c > d; Mul d h > y"},
        {2, "in x f32 n 8; " NUMBERS "Div x r > a; " GELU "; out a f32",
         "Div x r > a; Erf a > b; Add b o > c; Mul x c > d; Mul d h > y"},
        {2, "in x f32 n 8; " NUMBERS "Div x r > a; " GELU "; out b f32",
         "Div x r > a; Erf a > b; Add b o > c; Mul x c > d; Mul d h > y"},
        {2, "in x f32 n 8; " NUMBERS "Div x r > a; " GELU "; out d f32",
         "Div x r > a; Erf a > b; Add b o > c; Mul x c > d; Mul d h > y"},
        {2, "in x f32 n 8; " NUMBERS "Mul x r > a; " GELU,
         "Mul x r > a; Erf a > b; Add b o > c; Mul x c > d; Mul d h > y"},
        {1, "in x f32 n 8; " NUMBERS "Div x r > a; " GELU,
         "Div x r > a; Erf a > b; Add b o > c; Mul x c > d; Mul d h > y"},
        {2, "in x f32 n 8; weight t f32 = 32; weight q f32 = 9; " NUMBERS "Pow x t > e; " CUBED,
         "FastGelu o x r q t h > y"},
        {2, "in x f32 n 8; weight t f32 = 32; weight q f32 = 9; " NUMBERS "Pow x t > e; " CUBED "; out f f32",
         "Pow x t > e; Mul e q > f; Add x f > g; Mul g r > i; Tanh i > j; Add j o > l; Mul x l > u; Mul u h > y"},
        {2, "in x f32 n 8; weight t f32 = 32; weight q f32 = 9; " NUMBERS "Exp x > e; " CUBED,
         "Exp x > e; Mul e q > f; Add x f > g; Mul g r > i; Tanh i > j; Add j o > l; Mul x l > u; Mul u h > y"},
        {2, "in x f32 n 8; Sigmoid x > a; Mul x a > y; out y f32", "QuickGelu x > y"},
        {2, "in x f32 n 8; weight q f32 = 9; Mul x q > s; Sigmoid s > a; Mul a x > y; out y f32", "QuickGelu x q > y"},
        {2, "in x f32 n 8; weight q f32 8; Mul x q > s; Sigmoid s > a; Mul a x > y; out y f32",
         "Mul x q > s; Sigmoid s > a; Mul a x > y"},
        {2, "in x f32 n 8; weight q f32 = 9; Mul x q > s; Sigmoid s > a; Mul a x > y; out y f32; out s f32",
         "Mul x q > s; Sigmoid s > a; Mul a x > y"},
        {2, "in x f32 n 8; in z f32 n 8; Sigmoid x > a; Mul z a > y; out y f32", "Sigmoid x > a; Mul z a > y"},
        {2, "in x f32 n 8; Sigmoid x > a; Mul x a > y; out y f32; out a f32", "Sigmoid x > a; Mul x a > y"},
        {2, OF_LAYER CENTRED "Pow b t > f; " DEVIATION DIVIDED, "LayerNormalization t x e c d > y"},
        {2,
         OF_LAYER CENTRED "Pow b t > f; " DEVIATION
                          "Reciprocal i > o; Mul b o > j; Mul j c > l; Add l d > y; out y f32",
         "LayerNormalization t x e c d > y"},
        {2,
         "in x f32 n 3 8; weight c f32 8; weight d f32 8; weight u f32 = 16; weight t f32 = 24; weight e f32 = "
         "9; " CENTRED "Pow b t > f; " DEVIATION "Div u i > o; Mul o b > j; Mul j c > l; Add l d > y; out y f32",
         "LayerNormalization t x e u c d > y"},
        {2,
         "in x f32 n 3 8; in c f32 8; weight d f32 8; weight t f32 = 24; weight e f32 = 9; " CENTRED
         "Pow b t > f; " DEVIATION DIVIDED,
         "ReduceMean x - > a; Sub x a > b; Pow b t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div b i > j; Mul "
         "j c > l; Add l d > y"},
        {2,
         "in x f32 n 3 8; weight c f32 8; in d f32 8; weight t f32 = 24; weight e f32 = 9; " CENTRED
         "Pow b t > f; " DEVIATION DIVIDED,
         "ReduceMean x - > a; Sub x a > b; Pow b t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div b i > j; Mul "
         "j c > l; Add l d > y"},
        {2,
         "in x f32 n 3 8; weight c f32 8; weight d f32 8; weight t f32 8; weight e f32 = 9; " CENTRED
         "Pow b t > f; " DEVIATION DIVIDED,
         "ReduceMean x - > a; Sub x a > b; Pow b t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div b i > j; Mul "
         "j c > l; Add l d > y"},
        {2, OF_LAYER CENTRED "Pow b t > f; " DEVIATION DIVIDED "; out a f32",
         "ReduceMean x - > a; Sub x a > b; Pow b t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div b i > j; Mul "
         "j c > l; Add l d > y"},
        {2, OF_LAYER CENTRED "Pow b t > f; " DEVIATION DIVIDED "; out b f32",
         "ReduceMean x - > a; Sub x a > b; Pow b t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div b i > j; Mul "
         "j c > l; Add l d > y"},
        {2,
         "in x f32 n 3 8; in z f32 n 3 8; weight c f32 8; weight d f32 8; weight t f32 = 24; weight e f32 = 9; "
         "ReduceMean z - > a | keepdims=1; Sub x a > b; Pow b t > f; " DEVIATION DIVIDED,
         "ReduceMean z - > a; Sub x a > b; Pow b t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div b i > j; Mul "
         "j c > l; Add l d > y"},
        {2, OF_LAYER CENTRED "Pow b t > f; " DEVIATION DIVIDED "; out j f32",
         "ReduceMean x - > a; Sub x a > b; Pow b t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div b i > j; Mul "
         "j c > l; Add l d > y"},
        {2, OF_LAYER CENTRED "Pow b t > f; " DEVIATION DIVIDED "; out l f32",
         "ReduceMean x - > a; Sub x a > b; Pow b t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div b i > j; Mul "
         "j c > l; Add l d > y"},
        {2,
         "in x f32 n 3 8; weight c f32 8; weight t f32 = 24; weight e f32 = 9; Pow x t > f; " DEVIATION
         "Div x i > j; Mul j c > y; out y f32",
         "SimplifiedLayerNormalization x t e c > y"},
        {2,
         "in x f32 n 3 8; in c f32 8; weight t f32 = 24; weight e f32 = 9; Pow x t > f; " DEVIATION
         "Div x i > j; Mul j c > y; out y f32",
         "Pow x t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div x i > j; Mul j c > y"},
        {2,
         "in x f32 n 3 8; weight c f32 8; weight t f32 = 24; weight e f32 = 9; Pow x t > f; " DEVIATION
         "Div i x > j; Mul j c > y; out y f32",
         "Pow x t > f; ReduceMean f - > g; Add g e > h; Sqrt h > i; Div i x > j; Mul j c > y"},
        {2,
         "in x f32 n 3 8; in z f32 n 3 8; weight c f32 8; weight d f32 8; weight t f32 = 24; weight e f32 = 9; Add x z "
         "> q; ReduceMean q - > a | keepdims=1; Sub q a > b; Pow b t > f; " DEVIATION DIVIDED,
         "Add x z > q; LayerNormalization t q e c d > y"},
        {2,
         "in x f32 n 3 8; in z f32 n 3 8; weight v f32 8; weight c f32 8; weight d f32 8; weight t f32 = 24; weight e "
         "f32 = 9; Add x v > w; Add w z > q; ReduceMean q - > a | keepdims=1; Sub q a > b; Pow b t > f; " DEVIATION
             DIVIDED,
         "Add x v > w; Add w z > q; LayerNormalization t q e c d > y"},
        {2,
         "in x f32 n 3 8; in z f32 n 3 8; weight v f32 8; weight c f32 8; weight d f32 8; Add x v > w; Add z w > q; "
         "LayerNormalization q c d > y; out y f32",
         "SkipLayerNormalization c d z x v > y"},
        {2,
         "in x f32 n 3 8; in z f32 n 3 8; weight c f32 8; weight d f32 8; Add x z > q; LayerNormalization q c d > y; "
         "out y f32; out q f32",
         "Add x z > q; LayerNormalization q c d > y"},
        {2,
         "in x f32 n 3 8; in z f32 3 8; weight c f32 8; weight d f32 8; Add x z > q; LayerNormalization q c d > y; out "
         "y f32",
         "Add x z > q; LayerNormalization q c d > y"},
        {2,
         "in x f32 n 3 8; in z f32 1 3 8; weight c f32 8; weight d f32 8; Add x z > q; LayerNormalization q c d > y; "
         "out y f32",
         "Add x z > q; LayerNormalization q c d > y"},
        {2,
         "in x f32 n 8; in z f32 n 8; weight c f32 8; weight d f32 8; Add x z > q; LayerNormalization q c d > y; out y "
         "f32",
         "Add x z > q; LayerNormalization q c d > y"},
        {2,
         "in x f32 4 3 8; weight z f32 4 3 8; weight c f32 8; weight d f32 8; Add x z > q; LayerNormalization q c d > "
         "y; out y f32",
         "Add x z > q; LayerNormalization q c d > y"},
        {2, "in x f32 n 8; " CUT "Slice v o h a > y; Slice v h e a > z; out y f32; out z f32",
         "Exp x > v; Slice v h e a > z; Slice v o h a > y"},
        {2, "in x f32 n 8; " CUT TWO_PARTS, "Exp x > v; Split v > b c; Neg c > z; Neg b > y"},
        {2,
         "in x f32 n 8; weight o i64 1 = 0; weight h i64 1 = 3; weight e i64 1 = -1; weight a i64 1 = 1; Exp x > "
         "v; " TWO_PARTS,
         "Exp x > v; Slice v h e a > c; Neg c > z; Slice v o h a > b; Neg b > y"},
        {2,
         "in x f32 n 8; weight o i64 1 = 0; weight h i64 1 = -3; weight e i64 1 = 99; weight a i64 1 = -1; Exp x > "
         "v; " TWO_PARTS,
         "Exp x > v; Split v > b c; Neg c > z; Neg b > y"},
        {2,
         "in x f32 n 8; weight o i64 1 = 0; weight h i64 1 = 4; weight e i64 1 = 8; weight a i64 1 = 1; weight t i64 1 "
         "= 2; weight u i64 1 = 1; Exp x > v; Slice v o h a t > b; Slice v h e a u > c; Neg b > y; Neg c > z; out y "
         "f32; out z f32",
         "Exp x > v; Slice v h e a u > c; Neg c > z; Slice v o h a t > b; Neg b > y"},
        {2,
         "in x f32 n 8; weight o i64 1 = 0; weight h i64 1 = 4; weight e i64 1 = 8; weight a i64 1 = 1; weight u i64 1 "
         "= 1; Exp x > v; Slice v o h a u > b; Slice v h e a u > c; Neg b > y; Neg c > z; out y f32; out z f32",
         "Exp x > v; Split v > b c; Neg c > z; Neg b > y"},
        {2,
         "in x f32 8 n; weight o i64 1 = 0; weight h i64 1 = 4; weight e i64 1 = 8; weight a i64 1 = 1; weight i i64 1 "
         "= 0; Exp x > v; Slice v o h a > b; Slice v h e i > c; Neg b > y; Neg c > z; out y f32; out z f32",
         "Exp x > v; Slice v h e i > c; Neg c > z; Slice v o h a > b; Neg b > y"},
        {2,
         "in x f32 n 8; weight o i64 1 = 0; weight h i64 1 = 3; weight e i64 1 = 5; weight a i64 1 = 0; Exp x > "
         "v; " TWO_PARTS,
         "Exp x > v; Slice v h e a > c; Neg c > z; Slice v o h a > b; Neg b > y"},
        {2,
         "in x f32 5 8; weight o i64 1 = 0; weight h i64 1 = 3; weight e i64 1 = 5; weight a i64 1 = 0; Exp x > "
         "v; " TWO_PARTS,
         "Exp x > v; Split v > b c; Neg c > z; Neg b > y"},
        {2,
         "in x f32 n 8; " CUT
         "Slice v o h a > b; Slice v h e a > c; Neg b > y; Neg c > z; Neg v > w; out y f32; out z f32; out w f32",
         "Exp x > v; Neg v > w; Slice v h e a > c; Neg c > z; Slice v o h a > b; Neg b > y"},
        {2,
         "in x f32 n 8; " CUT
         "Slice v o h a > b; Strange > ; Slice v h e a > c; Neg b > y; Neg c > z; out y f32; out z f32",
         "Exp x > v; Split v > b c; Neg c > z; Neg b > y; Strange  > "}, /* also beside a node that reads nothing */
        {2, "in x f32 n 2; weight o i64 = 0; weight i i64 = 1; " PICKED,
         "Exp x > v; Split v > b c; Neg c > z; Neg b > y"},
        {2, "in x f32 n 2; weight o i64 1 = 0; weight i i64 1 = 1; " PICKED,
         "Exp x > v; Gather v i > c; Neg c > z; Gather v o > b; Neg b > y"},
        {2, "in x f32 n 3; weight o i64 = 0; weight i i64 = 1; " PICKED,
         "Exp x > v; Gather v i > c; Neg c > z; Gather v o > b; Neg b > y"},
        {1, "in x f32 n 2; weight o i64 = 0; weight i i64 = 1; " PICKED,
         "Exp x > v; Gather v i > c; Neg c > z; Gather v o > b; Neg b > y"},
        {2, "in x f32 n 4; in z f32 6 4; Transpose z > t | perm=1,0; MatMul x t > y; out y f32", "FusedMatMul x z > y"},
        {2, "in x f32 n 4; in z f32 6 4; Transpose z > t | perm=1,0; MatMul x t > y; Neg t > w; out y f32; out w f32",
         "FusedMatMul x z > y; Transpose z > t; Neg t > w"},
        {2, "in x f32 n 4; in z f32 6 4; Transpose z > t; MatMul x t > y; out y f32",
         "Transpose z > t; MatMul x t > y"},
        {2,
         "in x f32 n 3 4; in z f32 3 n 6; Transpose z > t | perm=1,0,2; Transpose x > r | perm=0,2,1; MatMul r t > y; "
         "out y f32",
         "FusedMatMul x z > y"},
        {2, "in x f32 n 4 3; in z f32 6 5 3; Transpose z > t | perm=1,2,0; MatMul x t > y; out y f32",
         "Transpose z > t; MatMul x t > y"},
        {2, "in x f32 n 4 3; in z f32 3 6 5; Transpose z > t | perm=2,0,1; MatMul x t > y; out y f32",
         "Transpose z > t; MatMul x t > y"},
        {2, "in x f32 n 4 3; in z f32 6 3 5; Transpose z > t | perm=2,1,0; MatMul x t > y; out y f32",
         "Transpose z > t; MatMul x t > y"},
        {2, "in x f32 n 4; in z f32 4 6; Transpose z > t | perm=0,1; MatMul x t > y; out y f32",
         "Transpose z > t; MatMul x t > y"},
        {2, "in x f32 2 n 4 3; in z f32 2 5 6 3; Transpose z > t | perm=0,1,3,2; MatMul x t > y; out y f32",
         "FusedMatMul x z > y"},
        {2, "in x f32 2 2 n 4 3; in z f32 2 2 5 6 3; Transpose z > t | perm=1,0,2,4,3; MatMul x t > y; out y f32",
         "Transpose z > t; MatMul x t > y"},
        {2, "in x f32 2 n 4 3; in z f32 5 2 6 3; Transpose z > t | perm=1,0,3,2; MatMul x t > y; out y f32",
         "Transpose z > t; MatMul x t > y"},
        {2, "in x f32 2 n 4 3; in z f32 5 2 3 6; Transpose z > t | perm=1,0,2,3; MatMul x t > y; out y f32",
         "Transpose z > t; MatMul x t > y"},
        {2, "in x f32 4; in z f32 4 6; Transpose x > t | perm=0,; MatMul t z > y; out y f32",
         "Transpose x > t; MatMul t z > y"},
        {2, "in x u8 5 4; in z u8 6 4; Transpose z > t | perm=1,0; MatMulInteger x t > y; out y i32",
         "Transpose z > t; MatMulInteger x t > y"},
        {2, "in x f32 n 4; in z f32 4 6; weight q f32 = 9; MatMul x z > c; Mul c q > y; out y f32",
         "FusedMatMul x z q > y"},
        {2, "in x f32 n 4; in z f32 4 6; weight q f32 = 9; MatMul x z > c; Div q c > y; out y f32",
         "FusedMatMul x z q > y"},
        {2,
         "in x f32 n 4; in z f32 4 6; weight q f32 = 9; Mul x q > s; Div z q > t; MatMul s t > c; Mul c q > y; out y "
         "f32",
         "FusedMatMul x q z > y"},
        {2, "in x f32 n 4; in z f32 4 6; weight q f32 = 9; Mul q x > s; MatMul s z > y; out y f32",
         "Mul q x > s; MatMul s z > y"},
        {2, "in x f32 n 4; in z f32 4 6; weight q f32 = 9; Mul x q > s; MatMul s z > y; out y f32; out s f32",
         "Mul x q > s; MatMul s z > y"},
        {2, "in x f32 n 4; in z f32 4 6; weight q f32 6; MatMul x z > c; Mul c q > y; out y f32",
         "MatMul x z > c; Mul c q > y"},
        {2,
         "in x f32 n 4; in z f32 6 4; weight q f32 = 9; Transpose z > t | perm=1,0; MatMul x t > c; Mul c q > y; out y "
         "f32",
         "FusedMatMul x z q > y"},
        {2,
         "in x f32 n 4; in z f32 6 4; weight q f32 = 9; Mul z q > r; Transpose r > t | perm=1,0; MatMul x t > y; out y "
         "f32",
         "FusedMatMul x z q > y"},
        {2,
         "in x f32 n 4; in z f32 6 4; weight q f32 = 9; Mul z q > r; Transpose r > t | perm=1,0; MatMul x t > y; Neg t "
         "> w; "
         "out y f32; out w f32",
         "Mul z q > r; FusedMatMul x r > y; Transpose r > t; Neg t > w"},
        {2, "in x f32 n 4; HardSwish x > y; out y f32", "HardSigmoid x > y; Mul x y > y"},
        {0, "in x f32 n 4; HardSwish x > y; out y f32", "HardSigmoid x > y; Mul x y > y"},
        {2, "in x f32 n 4; Exp x > a; Exp x > b; Add a b > y; out y f32", "Exp x > a; Add a a > y"},
        {2, "in x f32 n 4; Softmax x > a | axis=0; Softmax x > b | axis=1; Add a b > y; out y f32",
         "Softmax x > b; Softmax x > a; Add a b > y"},
        {2, "in x f32 n 4; Softmax x > a | axis=1; Softmax x > b | axis=1; Add a b > y; out y f32",
         "Softmax x > a; Add a a > y"},
        {2, "in x f32 n 4; Exp x > a; Exp x > y; Neg a > z; out y f32; out z f32", "Exp x > a; Neg a > z; Exp x > y"},
        /* who differs in nothing but the domain, or in how much goes in or out, is another one */
        {2, QUANTIZED "QuantizeLinear x q z > a; com.microsoft:QuantizeLinear x q z > b; " BOTH,
         "QuantizeLinear x q z > b; QuantizeLinear x q z > a; Concat a b > y"},
        {2, QUANTIZED "com.microsoft:QuantizeLinear x q z > a; com.microsoft:QuantizeLinear x q z > b; " BOTH,
         "QuantizeLinear x q z > a; Concat a a > y"},
        {2, QUANTIZED "QuantizeLinear x q > a; QuantizeLinear x q z > b; " BOTH,
         "QuantizeLinear x q z > b; QuantizeLinear x q > a; Concat a b > y"},
        {2,
         "in x f32 1 3 4 4; MaxPool x > a | kernel_shape=2,2; MaxPool x > b i | kernel_shape=2,2; Add a b > y; out y "
         "f32",
         "MaxPool x > b i; MaxPool x > a; Add a b > y"},
        {0, "in x f32 n 4; Exp x > a; Exp x > b; Add a b > y; out y f32", "Exp x > b; Exp x > a; Add a b > y"},
        {2, "in x f32 n 4; weight o f32 = 16; Exp x > a; Mul a o > b; " BENT, "Exp x > a; Exp a > y"},
        {2, "in x f32 n 4; weight o f32 = 16; Exp x > a; Div a o > b; " BENT, "Exp x > a; Exp a > y"},
        {2, "in x f32 n 4; weight o f32 = 16; Exp x > a; Div o a > b; " BENT, "Exp x > a; Div o a > b; Exp b > y"},
        {2, "in x f32 n 4; weight o f32 = 8; Exp x > a; Add o a > b; " BENT, "Exp x > a; Exp a > y"},
        {2, "in x f32 n 4; weight o f32 = 8; Exp x > a; Sub o a > b; " BENT, "Exp x > a; Sub o a > b; Exp b > y"},
        {2, "in x f32 n 4; weight o f32 = 8; Exp x > a; Sub a o > b; " BENT, "Exp x > a; Exp a > y"},
        {2, "in x f32 n 4; weight o f32 = 9; Exp x > a; Mul a o > b; " BENT, "Exp x > a; Mul a o > b; Exp b > y"},
        {2, "in x f32 n 4; weight o f32 1 1 = 16; Exp x > a; Mul a o > b; " BENT, "Exp x > a; Exp a > y"},
        {2, "in x f32 n 4; weight o f32 1 1 1 = 16; Exp x > a; Mul a o > b; " BENT,
         "Exp x > a; Mul a o > b; Exp b > y"},
        {2, "in x f32 n 4; Exp x > a; Identity a > b; " BENT, "Exp x > a; Exp a > y"},
        {2, "in x f32 n 4; Exp x > a; Dropout a > b; " BENT, "Exp x > a; Dropout a > b; Exp b > y"},
        {2,
         "in x f32 n 4; weight o i64 1 = 0; weight e i64 1 = 9223372036854775807; Exp x > a; Slice a o e o > b; " BENT,
         "Exp x > a; Exp a > y"},
        {2, "in x f32 n 4; weight o i64 1 = 0; weight e i64 1 = 99; Exp x > a; Slice a o e o > b; " BENT,
         "Exp x > a; Slice a o e o > b; Exp b > y"},
        {2,
         "in x f32 n 4; weight i i64 1 = 1; weight o i64 1 = 0; weight e i64 1 = 9223372036854775807; Exp x > a; Slice "
         "a i e o > b; " BENT,
         "Exp x > a; Slice a i e o > b; Exp b > y"},
        {2, "in x f32 n 4; weight o i64 = 0; Shape x > t; Gather t o > g; Exp x > y; Neg g > z; out y f32; out z i64",
         "Shape x > t; Gather t o > g; Neg g > z; Exp x > y"},
        {2, "in x f32 5 4; weight o i64 = 0; Shape x > t; Gather t o > g; Exp x > y; Neg g > z; out y f32; out z i64",
         "Exp x > y"},
        {2,
         "in x f32 5 4; in u f32 n 4; weight o i64 = 0; Exp x > a; Shape a > t; Gather t o > g; Exp a > y; Neg g > z; "
         "Neg "
         "u > w; out y f32; out z i64; out w f32",
         "Neg u > w; Exp x > a; Exp a > y"}, /* whatever makes what is measured */
        {12, "in x f32 n 4; weight o i64 = 0; Shape x > t; Gather t o > g; Exp x > y; Neg g > z; out y f32; out z i64",
         "Exp x > y"},
        {2, "in x f32 n 4; Exp x > a; Neg x > b; Abs b > c; Add c a > y; out y f32",
         "Neg x > b; Abs b > c; Exp x > a; Add c a > y"},
        {2, "in x f32 n 4; Neg x > b; Abs b > c; Exp x > a; Add a c > y; out y f32",
         "Exp x > a; Neg x > b; Abs b > c; Add a c > y"},
        {2, "in x f32 n 4; Exp x > y; Neg x > z; Abs x > w; out y f32; out z f32; out w f32",
         "Abs x > w; Neg x > z; Exp x > y"},
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        drawing is = as_it_runs(cases[i].text, cases[i].level % GPU, cases[i].level >= GPU);
        if (strcmp(is.text, cases[i].wanted) == 0)
            continue;
        print_error("%d %s: \"%s\" instead of \"%s\"\n", cases[i].level, cases[i].text, is.text, cases[i].wanted);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

/* Of y: '#' for a number in the file, the name that it is, or '?'. */
static drawing as_it_is_known(const char *text)
{
    onnx_file file;
    graph g;
    drawing out = {.size = 0};
    read_written(text, &file, &g);
    uint32_t *known = onnx_known(&g), y = graph_find(&g, (onnx_text){"y", 1});
    assert_true(known && y != GRAPH_NONE);
    for (uint32_t d = 0; d < g.values[y].shape.rank; d++) {
        uint32_t is = known[(size_t)y * GRAPH_MAX_RANK + d];
        char letter = is == ONNX_NUMBER ? '#' : '?';
        for (size_t i = 0; is > ONNX_NUMBER && i < g.value_count; i++) {
            onnx_text names[GRAPH_MAX_RANK] = {{0}};
            bool numbers[GRAPH_MAX_RANK] = {false};
            uint32_t count = g.values[i].input ? graph_said_names(&g.values[i], names, numbers) : 0;
            for (uint32_t k = 0; k < count; k++)
                letter = names[k].size && known[i * GRAPH_MAX_RANK + k] == is ? *names[k].text : letter;
        }
        draw(&out, "%c", letter);
    }
    free(known);
    graph_clear(&g);
    onnx_file_close(&file);
    return out;
}

/* The numbers of y that follow before a run; "?": none do. */
static drawing as_it_follows(const char *text)
{
    onnx_file file;
    graph g;
    drawing out = {.size = 0};
    read_written(text, &file, &g);
    uint32_t y = graph_find(&g, (onnx_text){"y", 1});
    assert_true(y != GRAPH_NONE);
    const graph_number *numbers = graph_contents(&g, y);
    for (uint64_t i = 0; numbers && i < g.values[y].elements; i++)
        if (graph_real(g.values[y].type))
            draw(&out, "%s%g", i ? " " : "", numbers[i].f);
        else
            draw(&out, "%s%lld", i ? " " : "", (long long)numbers[i].i);
    if (!numbers)
        draw(&out, "?");
    graph_clear(&g);
    onnx_file_close(&file);
    return out;
}

typedef struct drawn_case {
    const char *text, *wanted;
} drawn_case;

static void draw_all(const drawn_case *cases, size_t count, drawing (*drawn)(const char *text))
{
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        drawing is = drawn(cases[i].text);
        if (strcmp(is.text, cases[i].wanted) == 0)
            continue;
        print_error("%s: \"%s\" instead of \"%s\"\n", cases[i].text, is.text, cases[i].wanted);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

#define DRAW(cases, drawn) draw_all(cases, sizeof(cases) / sizeof *(cases), drawn)

/* Before a run a dimension is a number, or an open one of an input by its name, as it passes through the operators. */
static void dimensions_are_known_by_their_names(void **state)
{
    (void)state;
    static const drawn_case cases[] = {
        {"in x f32 n 4; Relu x > y; out y f32", "n#"},
        {"in x f32 n m 4; Softmax x > y; out y f32", "nm#"},
        {"in x f32 n m; EyeLike x > y; out y f32", "??"}, /* of which there is no rule */
        {"in x f32 n m; Strange x > y; out y f32 n m", "nm"},
        {"in x f32 n m; Strange x > y; out y f32 n 7", "n#"},
        {"in x f32 n m; Strange x > y; out y f32 5 7", "##"},
        /* repeated along dimensions of 1 */
        {"in x f32 n 4; in z f32 n 4; Add x z > y; out y f32", "n#"},
        {"in x f32 1 4; in z f32 n 4; Add x z > y; out y f32", "n#"},
        {"in x f32 n 4; in z f32 5 4; Add x z > y; out y f32", "##"},
        {"in x f32 5 4; in z f32 n 4; Add x z > y; out y f32", "##"},
        {"in x f32 n 4; in z f32 p 4; Add x z > y; out y f32", "?#"},
        {"in x f32 n 4; in z f32 m n 4; Add x z > y; out y f32", "mn#"},
        {"in x f32 m n 4; in z f32 4; Mul x z > y; out y f32", "mn#"},
        {"in c f32 n 1; in z f32 1 m; Less c z > q; in x f32 1 1; Where q x z > y; out y f32", "nm"},
        /* products */
        {"in x f32 n 4; in z f32 4 m; MatMul x z > y; out y f32", "nm"},
        {"in x f32 k n 4; in z f32 k 4 m; MatMul x z > y; out y f32", "knm"},
        {"in x f32 k n 4; in z f32 4 m; MatMul x z > y; out y f32", "knm"},
        {"in x f32 n 4; in z f32 k 4 m; MatMul x z > y; out y f32", "knm"},
        {"in x f32 k n 4; weight v f32 4; MatMul x v > y; out y f32", "kn"},
        {"in x f32 n 4; weight v f32 4; MatMul x v > y; out y f32", "n"},
        {"weight v f32 4; in x f32 k 4 m; MatMul v x > y; out y f32", "km"},
        {"weight v f32 4; in x f32 4 m; MatMul v x > y; out y f32", "m"},
        {"in x f32 n 4; in z f32 m 4; Gemm x z > y | transB=1; out y f32", "nm"},
        {"in x f32 4 n; in z f32 4 m; Gemm x z > y | transA=1; out y f32", "nm"},
        {"in x u8 n 4; in z u8 4 m; MatMulInteger x z > y; out y i32", "nm"},
        /* windows */
        {"in x f32 n 3 8 8; weight w f32 4 3 3 3; Conv x w > y; out y f32", "n###"},
        {"in x f32 n 3 m 8; weight w f32 4 3 3 3; Conv x w > y; out y f32", "n#?#"},
        {"in x f32 n m 8 8; weight w f32 4 7 3 3; Conv x w > y; out y f32", "n###"},
        {"in x f32 n m 8 8; MaxPool x > y | kernel_shape=2,2; out y f32", "nm##"},
        {"in x f32 n m k k; GlobalAveragePool x > y; out y f32", "nm##"},
        {"in x f32 n m k k; GlobalMaxPool x > y; out y f32", "nm##"},
        /* parts */
        {"in x f32 n 8; weight b i64 1 = 0; weight e i64 1 = 3; weight a i64 1 = 1; Slice x b e a > y; out y f32",
         "n#"},
        {"in x f32 n m; weight b i64 1 = 0; weight e i64 1 = 3; weight a i64 1 = 1; Slice x b e a > y; out y f32",
         "n?"},
        {"in x f32 n m; weight b i64 1 = 0; weight e i64 1 = 9; weight a i64 1 = 1; Slice x b e a > y; out y f32",
         "nm"},
        {"in x f32 n 8; Split x > y z | axis=1 num_outputs=2; out y f32; out z f32", "n#"},
        {"in x f32 n s; Split x > z y | axis=1 num_outputs=2; out y f32; out z f32", "n?"},
        {"in x f32 n m; weight p i64 4 = 0 0 0 1; Pad x p > y; out y f32", "n?"},
        /* put together */
        {"in x f32 n 4; in z f32 n 4; Concat x z > y | axis=1; out y f32", "n#"},
        {"in x f32 n 4; in z f32 n 4; Concat x z > y | axis=0; out y f32", "?#"},
        {"in x f32 n 4; in z f32 5 4; Concat x z > y | axis=1; out y f32", "##"},
        {"in x f32 5 4; in z f32 n 4; Concat x z > y | axis=1; out y f32", "##"},
        {"in x f32 n 4; in z f32 p 4; Concat x z > y | axis=1; out y f32", "?#"},
        {"in x f32 n 4; in z f32 3 4; Concat x z > y | axis=0; out y f32", "?#"},
        {"in x f32 n 4; Concat x > y | axis=0; out y f32", "n#"},
        /* picked */
        {"in x f32 n 4 m; in i i64 k; Gather x i > y | axis=1; out y f32", "nkm"},
        {"in x f32 n 4 m; in i i64 k; Gather x i > y; out y f32", "k#m"},
        {"in x f32 n 4 m; in i i64 k 2; Gather x i > y | axis=1; out y f32", "nk#m"},
        {"in x f32 n 4 m; weight i i64 = 1; Gather x i > y | axis=1; out y f32", "nm"},
        {"in x f32 n 4 m; in i i64 k; Gather x i > y | axis=2; out y f32", "n#k"},
        /* turned, and with dimensions of 1 */
        {"in x f32 n 4 m; Transpose x > y | perm=0,2,1; out y f32", "nm#"},
        {"in x f32 n 4 m; Transpose x > y | perm=1,2,0; out y f32", "#mn"},
        {"in x f32 n 4 m; Transpose x > y; out y f32", "m#n"},
        {"in x f32 n m; weight a i64 1 = 1; Unsqueeze x a > y; out y f32", "n#m"},
        {"in x f32 n m; weight a i64 1 = 0; Unsqueeze x a > y; out y f32", "#nm"},
        {"in x f32 n m; weight a i64 1 = 2; Unsqueeze x a > y; out y f32", "nm#"},
        {"in x f32 n 1 m; weight a i64 1 = 1; Squeeze x a > y; out y f32", "nm"},
        {"in x f32 1 n m; weight a i64 1 = 0; Squeeze x a > y; out y f32", "nm"},
        /* reduced */
        {"in x f32 n 4 m; weight a i64 1 = 1; ReduceMean x a > y; out y f32", "n#m"},
        {"in x f32 n 4 m; weight a i64 1 = 2; ReduceMax x a > y; out y f32", "n##"},
        {"in x f32 n 4 m; weight a i64 1 = 1; ReduceSum x a > y | keepdims=0; out y f32", "nm"},
        {"in x f32 n 4 m; weight a i64 1 = 0; ReduceSum x a > y | keepdims=0; out y f32", "#m"},
        {"in x f32 n m; ArgMax x > y | axis=1; out y i64", "n#"},
        /* reshaped */
        {"in x f32 n 4; weight s i64 3 = 0 2 2; Reshape x s > y; out y f32", "n##"},
        {"in x f32 n 4; weight s i64 2 = 5 4; Reshape x s > y; out y f32", "##"},
        {"in x f32 n 4 6; weight s i64 2 = 0 -1; Reshape x s > y; out y f32", "n#"},
        {"in x f32 n 4 m; weight s i64 2 = 0 -1; Reshape x s > y; out y f32", "n?"},
        {"in x f32 n 4; weight s i64 1 = -1; Reshape x s > y; out y f32", "?"},
        {"in x f32 n m 4; weight z i64 1 = 0; weight f i64 1 = 4; weight o i64 1 = -1; Shape x > t; Gather t z > a; "
         "Concat a o f > s | axis=0; Reshape x s > y; out y f32",
         "n?#"},
        {"in x f32 n 6 4; weight z i64 1 = 0; weight f i64 1 = 4; weight o i64 1 = -1; Shape x > t; Gather t z > a; "
         "Concat a o f > s | axis=0; Reshape x s > y; out y f32",
         "n##"},
        /* recurrent */
        {"in x f32 s n 32; weight w f32 1 60 32; weight r f32 1 60 15; LSTM x w r > y | hidden_size=15; out y f32",
         "s#n#"},
        {"in x f32 s n 32; weight w f32 1 60 32; weight r f32 1 60 15; LSTM x w r > z y | hidden_size=15; out y f32; "
         "out z f32",
         "#n#"},
        /* shapes out of numbers */
        {"in x f32 n m; Shape x > y; out y i64", "#"},
        {"in x f32 5 7; EyeLike x > y; out y f32", "##"},
        {"in x f32 1 4; weight t i64 2 = 5 4; Expand x t > y; out y f32", "##"},
        {"in x f32 1 4; in z f32 n 4; Shape z > t; Expand x t > y; out y f32", "??"},
        {"in z f32 n 4; Shape z > t; ConstantOfShape t > y; out y f32", "??"},
        {"weight t i64 2 = 5 4; ConstantOfShape t > y; out y f32", "##"},
    };
    DRAW(cases, as_it_is_known);
}

#define SIX   "weight a i64 2 3 = 1 2 3 4 5 6; "
#define EIGHT "weight a i64 2 2 2 = 1 2 3 4 5 6 7 8; "
#define TWO   "weight a i64 2 1 = 1 2; weight b i64 3 = 10 20 30; "
#define SIGNS "weight a i64 4 = -7 7 -7 7; weight b i64 4 = 2 -2 -2 2; "
#define THREE "weight a i64 3 = 1 2 3; weight b i64 3 = 2 2 2; "
#define TRUE_ "weight a bool 4 = 0 0 1 1; weight b bool 4 = 0 1 0 1; "

/* The arithmetic that models do with shapes; floats of a weight are an eighth of what is written, less 1. */
static void contents_follow(void **state)
{
    (void)state;
    static const drawn_case cases[] = {
        {TWO "Add a b > y; out y i64", "11 21 31 12 22 32"},
        {TWO "Sub a b > y; out y i64", "-9 -19 -29 -8 -18 -28"},
        {TWO "Mul a b > y; out y i64", "10 20 30 20 40 60"},
        {SIGNS "Div a b > y; out y i64", "-3 -3 3 3"},
        {SIGNS "Mod a b > y; out y i64", "1 -1 -1 1"},
        {SIGNS "Mod a b > y | fmod=1; out y i64", "-1 1 -1 1"},
        {SIGNS "Min a b > y; out y i64", "-7 -2 -7 2"},
        {SIGNS "Max a b > y; out y i64", "2 7 -2 7"},
        {"weight a i64 3 = 2 3 -2; weight b i64 3 = 10 0 3; Pow a b > y; out y i64", "1024 1 -8"},
        {"weight a i64 1 = 2; weight b i64 1 = -1; Pow a b > y; out y i64", "?"},
        {"weight a i64 1 = 2; weight b i64 1 = 0; Div a b > y; out y i64", "?"},
        {"weight a i64 1 = 2; weight b i64 1 = 0; Mod a b > y; out y i64", "?"},
        {"weight a f32 2 = 24 40; weight b f32 2 = 24 16; Div a b > y; out y f32", "1 4"},
        {"weight a f32 2 = 24 40; weight b f32 2 = 24 16; Sub a b > y; out y f32", "0 3"},
        {THREE "Equal a b > y; out y bool", "0 1 0"},
        {THREE "Less a b > y; out y bool", "1 0 0"},
        {THREE "Greater a b > y; out y bool", "0 0 1"},
        {THREE "LessOrEqual a b > y; out y bool", "1 1 0"},
        {THREE "GreaterOrEqual a b > y; out y bool", "0 1 1"},
        {TRUE_ "And a b > y; out y bool", "0 0 0 1"},
        {TRUE_ "Or a b > y; out y bool", "0 1 1 1"},
        {TRUE_ "Xor a b > y; out y bool", "0 1 1 0"},
        {TRUE_ "Not a > y; out y bool", "1 1 0 0"},
        {"weight a i64 3 = -2 0 3; Neg a > y; out y i64", "2 0 -3"},
        {"weight a i64 3 = -2 0 3; Abs a > y; out y i64", "2 0 3"},
        {"weight a i64 3 = -2 0 3; Sign a > y; out y i64", "-1 0 1"},
        {"weight a f32 3 = 12 20 28; Floor a > y; out y f32", "0 1 2"},
        {"weight a f32 3 = 12 20 28; Ceil a > y; out y f32", "1 2 3"},
        {"weight a f32 3 = 12 20 28; Round a > y; out y f32", "0 2 2"},
        {"weight a f32 2 = 24 40; Reciprocal a > y; out y f32", "0.5 0.25"},
        {"weight a f32 2 = 40 80; Sqrt a > y; out y f32", "2 3"},
        {"weight c bool 2 1 = 1 0; weight a i64 3 = 1 2 3; weight b i64 1 = 9; Where c a b > y; out y i64",
         "1 2 3 9 9 9"},
        {"weight a i64 4 = -5 0 5 9; weight l i64 = -1; weight h i64 = 6; Clip a l h > y; out y i64", "-1 0 5 6"},
        {"weight a i64 4 = -5 0 5 9; weight h i64 = 6; Clip a - h > y; out y i64", "-5 0 5 6"},
        {"weight a i64 4 = -5 0 5 9; weight l i64 = -1; Clip a l > y; out y i64", "-1 0 5 9"},
        {SIX "weight i i64 2 = 2 -3; Gather a i > y | axis=1; out y i64", "3 1 6 4"},
        {SIX "weight i i64 2 = 1 0; Gather a i > y; out y i64", "4 5 6 1 2 3"},
        {SIX "weight i i64 = 1; Gather a i > y | axis=1; out y i64", "2 5"},
        {SIX "weight i i64 1 = 3; Gather a i > y | axis=1; out y i64", "?"},
        {SIX "weight i i64 1 = -4; Gather a i > y | axis=1; out y i64", "?"},
        {SIX "weight b i64 1 = 2; weight e i64 1 = -9; weight x i64 1 = 1; weight t i64 1 = -1; Slice a b e x t > y; "
             "out y i64",
         "3 2 1 6 5 4"},
        {SIX "weight b i64 1 = 0; weight e i64 1 = 9; weight x i64 1 = 1; weight t i64 1 = 2; Slice a b e x t > y; out "
             "y i64",
         "1 3 4 6"},
        {SIX "weight b i64 1 = 1; weight e i64 1 = 2; Slice a b e > y; out y i64", "4 5 6"},
        {SIX "weight b i64 2 = 1 -2; weight e i64 2 = 2 3; Slice a b e > y; out y i64", "5 6"},
        {"weight a i64 2 1 = 1 2; weight c i64 2 2 = 3 4 5 6; Concat a c > y | axis=1; out y i64", "1 3 4 2 5 6"},
        {"weight a i64 1 2 = 1 2; weight c i64 2 2 = 3 4 5 6; Concat a c a > y | axis=0; out y i64", "1 2 3 4 5 6 1 2"},
        {"weight a i64 2 4 = 1 2 3 4 5 6 7 8; Split a > x y | axis=1 num_outputs=2; out y i64; out x i64", "3 4 7 8"},
        {"weight a i64 5 = 1 2 3 4 5; Split a > x z y | num_outputs=3; out y i64; out x i64; out z i64", "5"},
        {"weight a i64 5 = 1 2 3 4 5; weight s i64 2 = 1 4; Split a s > x y; out y i64; out x i64", "2 3 4 5"},
        {SIX "Transpose a > y | perm=1,0; out y i64", "1 4 2 5 3 6"},
        {SIX "Transpose a > y; out y i64", "1 4 2 5 3 6"},
        {EIGHT "Transpose a > y | perm=2,0,1; out y i64", "1 3 5 7 2 4 6 8"},
        {"weight a i64 2 1 = 1 2; weight s i64 2 = 2 3; Expand a s > y; out y i64", "1 1 1 2 2 2"},
        {"weight a i64 2 2 = 1 2 3 4; weight s i64 2 = 1 2; Tile a s > y; out y i64", "1 2 1 2 3 4 3 4"},
        {"weight a i64 2 2 = 1 2 3 4; weight s i64 2 = 2 1; Tile a s > y; out y i64", "1 2 3 4 1 2 3 4"},
        {SIX "weight i i64 1 = 1; ReduceSum a i > y; out y i64", "6 15"},
        {SIX "weight i i64 1 = 0; ReduceSum a i > y; out y i64", "5 7 9"},
        {SIX "ReduceSum a > y; out y i64", "21"},
        {EIGHT "weight i i64 1 = 1; ReduceSum a i > y | keepdims=0; out y i64", "4 6 12 14"},
        {EIGHT "weight i i64 1 = 2; ReduceSum a i > y | keepdims=0; out y i64", "3 7 11 15"},
        {EIGHT "weight i i64 2 = 0 2; ReduceSum a i > y | keepdims=0; out y i64", "14 22"},
        {SIX "weight i i64 1 = 1; ReduceProd a i > y; out y i64", "6 120"},
        {SIX "weight i i64 1 = 1; ReduceMax a i > y; out y i64", "3 6"},
        {SIX "weight i i64 1 = 1; ReduceMin a i > y; out y i64", "1 4"},
        {"weight a f32 2 2 = 16 24 40 24; weight i i64 1 = 1; ReduceSum a i > y; out y f32", "3 6"},
        {"weight a f32 2 2 = 16 24 40 24; weight i i64 1 = 1; ReduceProd a i > y; out y f32", "2 8"},
        {"weight a f32 2 2 = 16 24 40 24; weight i i64 1 = 1; ReduceMax a i > y; out y f32", "2 4"},
        {"weight a f32 2 2 = 16 24 40 24; weight i i64 1 = 1; ReduceMin a i > y; out y f32", "1 2"},
        {"weight a i64 2 3 = 0 5 0 7 0 8; NonZero a > y; out y i64", "0 1 1 1 0 2"},
        {"weight a f32 3 = 8 9 0; NonZero a > y; out y i64", "1 2"},
        {"weight f i64 = 1; weight t i64 = 8; weight b i64 = 3; Range f t b > y; out y i64", "1 4 7"},
        {"weight f i64 = 5; weight t i64 = 0; weight b i64 = -2; Range f t b > y; out y i64", "5 3 1"},
        {"weight a i64 2 = 300 -1; Cast a > y | to=2; out y u8", "44 255"},
        {"weight a i64 3 = 300 -1 200; Cast a > y | to=3; out y i8", "44 -1 -56"},
        {"weight a i64 3 = 300 -1 0; Cast a > y | to=9; out y bool", "1 1 0"},
        {"weight a i64 2 = 300 -1; Cast a > y | to=1; out y f32", "300 -1"},
        {"weight a f32 2 = 28 0; Cast a > y | to=7; out y i64", "2 -1"},
        {"weight a f32 2 = 8 12; Cast a > y | to=9; out y bool", "0 1"},
        {"in x f32 2 3 4; Shape x > y; out y i64", "2 3 4"},
        {"in x f32 2 3 4; Shape x > y | start=1 end=2; out y i64", "3"},
        {"in x f32 2 3 4; Size x > y; out y i64", "24"},
        {"weight s i64 1 = 3; ConstantOfShape s > y; out y f32", "0 0 0"},
        {SIX "weight s i64 2 = 3 2; Reshape a s > y; out y i64", "1 2 3 4 5 6"},
        {"in x i64 2; Neg x > y; out y i64", "?"},
        {"in x i64 2; weight a i64 2 = 1 2; Concat x a > y | axis=0; out y i64", "?"},
    };
    DRAW(cases, as_it_follows);
}

static int clear(void **state)
{
    (void)state;
    written_clear();
    return 0;
}

int run_rewritten(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_run_as_they_are_joined),
        cmocka_unit_test(dimensions_are_known_by_their_names),
        cmocka_unit_test(contents_follow),
    };
    return cmocka_run_group_tests(tests, NULL, clear);
}
