/* What is foreseen of graphs that are written here: the places of a run's values, what kernels work in, and how they lay out
 * weights; and what ONNX Runtime takes in a run. */
#include "common.h"
#include "info.h"

#include "onnx/engine/foresee.h"
#include "onnx/engine/model.h"
#include "written.h"

enum { PARTS = 6, SETTINGS = 3 };

typedef struct foreseen_case {
    const char *text, *settings[SETTINGS]; /* beside threads=2 */
    uint64_t places[PARTS]; /* bytes of what is there at the peak, each of which is charged by itself; up to a 0 */
    uint64_t block;         /* of the memory pattern; 0: none */
    uint64_t work;          /* and what a kernel takes for itself, as it is charged */
    uint64_t packed[PARTS], replaced[PARTS];
    bool cuda, open; /* open: not all shapes follow */
} foreseen_case;

static uint64_t charges(const uint64_t *parts, bool cuda)
{
    uint64_t all = 0;
    for (int i = 0; i < PARTS && parts[i]; i++)
        all += onnx_charge(parts[i], cuda);
    return all;
}

static onnx_foreseen foresee(const foreseen_case *it)
{
    weir_setting list[SETTINGS + 1] = {{"threads", "2"}};
    char texts[SETTINGS][64];
    size_t count = 1;
    for (; count <= SETTINGS && it->settings[count - 1]; count++) {
        char *text = texts[count - 1];
        snprintf(text, sizeof *texts, "%s", it->settings[count - 1]);
        char *equals = strchr(text, '=');
        assert_non_null(equals);
        *equals = 0;
        list[count] = (weir_setting){text, equals + 1};
    }
    onnx_file file;
    onnx_settings settings;
    onnx_foreseen out;
    weir_engine_load load = {
        .struct_size = sizeof load, .path = written(it->text), .settings = list, .setting_count = count};
    assert_ok(onnx_settings_read(list, count, it->cuda, NULL, &settings));
    assert_ok(onnx_file_open(load.path, &file));
    const onnx_foresee_ask ask = onnx_foresee_asked(&load, &settings, it->cuda);
    onnx_foresee_now(&file, &ask, &out);
    onnx_file_close(&file);
    return out;
}

static void agree(const foreseen_case *cases, size_t count)
{
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        onnx_foreseen is = foresee(&cases[i]);
        uint64_t activations = charges(cases[i].places, cases[i].cuda) + cases[i].work;
        activations += cases[i].block ? onnx_charge(cases[i].block, cases[i].cuda) : 0;
        uint64_t packed = charges(cases[i].packed, false), replaced = charges(cases[i].replaced, false);
        if (is.runs == !cases[i].open && is.activations == activations && is.packed == packed &&
            is.replaced == replaced)
            continue;
        print_error("%s: %s, %llu for %llu in a run, %llu for %llu packed, %llu for %llu replaced\n", cases[i].text,
                    is.runs ? "all shapes follow" : "it is open", (unsigned long long)is.activations,
                    (unsigned long long)activations, (unsigned long long)is.packed, (unsigned long long)packed,
                    (unsigned long long)is.replaced, (unsigned long long)replaced);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

#define AGREE(cases) agree(cases, sizeof(cases) / sizeof *(cases))

/* ---- sizes ---------------------------------------------------------------------------------------------------------- */

#define NEGATED(dims) "in x f32 " dims "; Neg x > y; out y f32 " dims

/* A dimension is looked for by its whole name; the first of an input is 1, others 16, or what all shapes follow with. */
static void open_dimensions_have_sizes(void **state)
{
    (void)state;
    static const foreseen_case cases[] = {
        {NEGATED("n 16"), .places = {64}},
        {NEGATED("n m 8"), .places = {16 * 32}},
        {NEGATED("? ? 32"), .places = {16 * 128}},
        {NEGATED("n m"), {"dims=n=50"}, .places = {50 * 64}},
        {NEGATED("n m"), {"dims=m=50"}, .places = {200}},
        {NEGATED("n m"), {"dims=m=500, n=3"}, .places = {6000}},
        {NEGATED("n nn"), {"dims=n=50"}, .places = {50 * 64}},
        {NEGATED("n nn"), {"dims=nn=50"}, .places = {200}},
        {NEGATED("nn n"), {"dims=nnn=7,n=500,m=9"}, .places = {2000}},
        {NEGATED("n n"), {"dims=n=50"}, .places = {10000}},
        {NEGATED("8 n"), .places = {32}},                               /* the first that is open */
        {"in x f32 8 16; Strange x > y; out y f32 ? 16", .open = true}, /* of no input */
        {"in x f32 n 300; in z f32 m 300; Neg x > a; Neg z > b; out a f32 n 300; out b f32 m 300",
         .places = {1200, 1200}},
        {"in x f32 n m; weight s i64 2 = 1 32; Reshape x s > r; Neg r > y; out y f32 1 32", .places = {128}},
        {"in x f32 n m; weight s i64 2 = 1 33; Reshape x s > r; Neg r > y; out y f32 1 33", .open = true},
        {"in x f32 n m; weight s i64 2 = 1 33; Reshape x s > r; Neg r > y; out y f32 1 33",
         {"dims=m=33"},
         .places = {132}},
    };
    AGREE(cases);
}

static void lists_of_sizes(void **state)
{
    (void)state;
    static const char *const good[] = {"", "n=1", "n=1,m=2", "n=1 m=2", " n=1 , m=2 ", "n=1,,m=2", "n=2147483647"};
    static const char *const bad[] = {"n",     "n=",      "=1",    "n=0",     "n=-1",         "n=1x",
                                      "n=1.5", "n=1;m=2", "n=1,m", "n=1,m=0", "n=2147483648", "n 1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(onnx_dims_good(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(onnx_dims_good(bad[i]));
}

/* ---- places --------------------------------------------------------------------------------------------------------- */

#define PRODUCT "in x f32 n 16; weight w f32 16 17; weight b f32 17; MatMul x w > m; "
#define TWICE(both)                                                                                                    \
    "in x f32 16 16; weight at i64 16; Gather x at > a; Gather a at > b; Max " both                                    \
    " > c; Gather c at > d; Concat d d > e | axis=0; Gather e at > f; Neg f > y; "
#define BACK "in x f32 16 16; weight at i64 16; Transpose x > a; Concat a a > b | axis=0; Concat b b > c | axis=0; "

/* A sum behind a product of two matrices is in its place, of three dimensions it is not. */
static void values_share_places(void **state)
{
    (void)state;
    static const foreseen_case cases[] = {
        {PRODUCT "Add m b > y; out y f32 n 17", .places = {68}, .packed = {2048}, .replaced = {1088}},
        {PRODUCT "Add m b > y; out y f32 n 17", .places = {68, 68}, .packed = {2048}, .replaced = {1088}, .cuda = true},
        {PRODUCT "Add m b > y; out y f32 n 17; out m f32 n 17", .places = {68, 68}, .packed = {2048},
         .replaced = {1088}},
        {PRODUCT "HardSwish m > y; out y f32 n 17", .places = {68}, .block = 256, .work = 256, .packed = {2048},
         .replaced = {1088}},
        {"in x f32 n s 16; weight w f32 16 17; weight b f32 17; MatMul x w > m; Add m b > y; out y f32 n s 17",
         .places = {1088}, .block = 1280, .packed = {2048}, .replaced = {1088}},
        {"in x f32 16 16; Transpose x > a; Transpose a > b; Transpose b > y; out y f32 16 16", .places = {1024},
         .block = 2048},
        {"in x f32 16 16; Transpose x > a; Transpose a > b; Transpose b > y; out y f32 16 16",
         {"memory_pattern=off"},
         .places = {1024, 1024}},
        /* the first place is there again for the last value, and so there all the time */
        {BACK "Gather c at > d; Transpose d > y; out y f32 16 16", .places = {1024}, .block = 7168},
        {BACK "Gather c at > d; Transpose d > y; out y f32 16 16",
         {"memory_pattern=off"},
         .places = {1024, 2048, 4096}},
        /* of two places that are left behind one step, that of the later input is taken: the gaps are others */
        {TWICE("b a") "out y f32 16 16", .places = {1024}, .block = 3072},
        {TWICE("a b") "out y f32 16 16", .places = {1024}, .block = 4096},
        /* what is split is not there behind that */
        {"in x f32 16 256; weight o i64 1 = 0; weight h i64 1 = 8; weight e i64 1 = 16; Exp x > a; Slice a o h o > b; "
         "Slice a h e o > c; Exp b > y; Exp c > z; out y f32 8 256; out z f32 8 256",
         {"memory_pattern=off"},
         .places = {16384, 8192, 8192}},
        {BACK "Cast c > i | to=2; Gather i at > d; Transpose d > y; out y u8 16 16", /* of another type */
         {"memory_pattern=off"},
         .places = {2048, 4096}},
    };
    AGREE(cases);
}

/* What is unpacked for a product with what was unpacked as well is never there. */
static void what_is_unpacked_for_a_product_vanishes(void **state)
{
    (void)state;
#define UNPACKED                                                                                                       \
    "in x f32 n 600; weight s f32; weight z u8; weight q u8 600 300; QuantizeLinear x s z > i; "                       \
    "DequantizeLinear i s z > a; DequantizeLinear q s z > b; "
    static const foreseen_case cases[] = {
        {UNPACKED "MatMul a b > y; out y f32 n 300", .places = {1200}, .block = 768},
        {UNPACKED "MatMul a b > y; Neg a > v; out y f32 n 300; out v f32 n 600", .places = {1200, 2400}, .block = 3328},
        {UNPACKED "MatMul x b > y; out y f32 n 300; out i u8 n 600", .places = {1200, 600}, .block = 720128},
        {UNPACKED "MatMul a b > y; out y f32 n 300; out b f32 600 300", .places = {1200, 600 * 1200}, .block = 768},
    };
    AGREE(cases);
}

/* ---- what kernels take ---------------------------------------------------------------------------------------------- */

#define FILTERED(filters, out)                                                                                         \
    "in x f32 1 3 8 8; weight k f32 " filters "; Conv x k > y | pads=1,1,1,1; out y f32 1 " out
#define RECURRENT                                                                                                      \
    "in x f32 5 2 32; in w f32 1 gates 32; in r f32 1 gates h; LSTM x w r > y | hidden_size=262144; out y f32 5 1 2 h"
enum { OF_TWO = 2 * 128 * 128 * 4 + 256, OF_IMAGE = 64 * 27 * 4 + 256 };

static void kernels_work_in_memory(void **state)
{
    (void)state;
    static const foreseen_case cases[] = {
        {FILTERED("64 3 3 3", "64 8 8"), .places = {64 * 256}, .work = OF_TWO}, /* as many filters as points */
        {FILTERED("65 3 3 3", "65 8 8"), .places = {65 * 256}, .work = OF_IMAGE},
        {FILTERED("65 3 3 3", "65 8 8"), .places = {65 * 256}, .cuda = true},
        {FILTERED("4 3 3 3", "4 8 8"), {"memory_pattern=off"}, .places = {4 * 256}, .work = OF_TWO},
        {"in x f32 1 3 8 8; weight k f32 65 3 1 1; Conv x k > y; out y f32 1 65 8 8", .places = {65 * 256}},
        {"in x f32 1 3 8 8; weight k f32 65 3 3 3; weight j f32 4 65 1 1; Conv x k > m | pads=1,1,1,1; Conv m j > y; "
         "out y f32 1 4 8 8",
         .places = {65 * 256}, .work = OF_IMAGE},
        {"in x f32 5 2 32; weight w f32 1 60 32; weight r f32 1 60 15; LSTM x w r > y | hidden_size=15; "
         "out y f32 5 1 2 15",
         .places = {600}, .work = 3 * 256 + 2 * 256 + 2560 + 256 + 2 * 256, /* states, gates, lengths, last states */
         .packed = {64 * 32 * 4, 64 * 15 * 4}, .replaced = {60 * 32 * 4, 60 * 15 * 4}},
        /* as far as the sizes go with which it is told */
        {RECURRENT,
         {"dims=gates=1048576,h=262144"},
         .places = {10 << 20},
         .work = 5 * ((2 << 20) + 256) + 2 * ((1 << 20) + 256) + (40 << 20) + 256 + 256},
        {RECURRENT, {"dims=gates=1048580,h=262145"}, .places = {(10 << 20) + 40}},
        {"in x f32 5 2 32; weight w f32 2 45 32; weight r f32 2 45 15; "
         "GRU x w r > y | hidden_size=15 direction=bidirectional; out y f32 5 2 2 15",
         .places = {1200}, .work = 2 * (2 * 256 + 2048 + 256) + 1536 + 768 + 512,
         .packed = {2 * 48 * 32 * 4, 2 * 48 * 15 * 4}, .replaced = {2 * 45 * 32 * 4, 2 * 45 * 15 * 4}},
    };
    AGREE(cases);
}

/* ---- weights -------------------------------------------------------------------------------------------------------- */

#define NORMED_BY(conv, more)                                                                                          \
    "in x f32 1 3 8 8; weight k f32 300 3 1 1; weight s f32 300; weight b f32 300; weight m f32 300; weight v f32 "    \
    "300; weight d f32 300; "                                                                                          \
    "Conv " conv " > c; BatchNormalization c s b m v > y; out y f32 1 300 8 8" more
#define NORMED(more) NORMED_BY("x k", more)
#define OF_300       1200, 1200, 1200, 1200
/* states, gates, lengths, the input as bytes and its products, last states */
enum { OF_BYTES = 3 * 256 + 2 * 256 + 2816 + 256 + 512 + 768 + 2 * 256 };

/* Columns come in sixteens; of bytes there is a sum for each, and rows come in fours. */
static void kernels_lay_weights_out(void **state)
{
    (void)state;
    static const foreseen_case cases[] = {
        {"in x f32 n 6; weight w f32 6 300; Gemm x w > y; out y f32 n 300", .places = {1200}, .packed = {304 * 6 * 4},
         .replaced = {7200}},
        {"in x f32 n 6; weight w f32 300 6; Gemm x w > y | transB=1; out y f32 n 300", .places = {1200},
         .packed = {304 * 6 * 4}, .replaced = {7200}},
        {"in x f32 n 6; weight w f32 300 6; Gemm x w > y | transB=1; out y f32 n 300",
         {"prepack=off"},
         .places = {1200}},
        {"in x u8 n 6; weight w u8 6 300; MatMulInteger x w > y; out y i32 n 300", .places = {1200},
         .packed = {304 * 4 + 304 * 8}, .replaced = {1800}},
        {"in x u8 n 8; weight w i8 8 304; MatMulInteger x w > y; out y i32 n 304", .places = {1216},
         .packed = {304 * 4 + 304 * 8}, .replaced = {304 * 8}},
        /* of an LSTM in bytes, whose zero points are read as they are */
        {"in x f32 5 2 32; weight w u8 1 32 64; weight r u8 1 16 64; weight s f32 1; weight z u8 1; "
         "com.microsoft:DynamicQuantizeLSTM x w r - - - - - s z s z > y | hidden_size=16; out y f32 5 1 2 16",
         .places = {640}, .work = OF_BYTES, .packed = {64 * 4 + 64 * 32, 64 * 4 + 64 * 16}, .replaced = {2048, 1024}},
        /* the left-hand side, and one that is small */
        {"in x f32 17 n; weight w f32 16 17; MatMul w x > y; out y f32 16 n", .places = {64}},
        {"in x f32 n 4; weight w f32 4 16; MatMul x w > y; out y f32 n 16", .places = {64}, .packed = {256}},
        /* who reads it as it is, whether it is an output, and how often it is packed */
        {"in x f32 n 16; weight w f32 16 16; MatMul x w > a; Add a w > y; out y f32 16 16", .places = {1024},
         .block = 256, .packed = {1024}},
        {PRODUCT "Add m b > y; out y f32 n 17; out w f32 16 17", .places = {68, 1088}, .packed = {2048}},
        {PRODUCT "MatMul x w > o; Add m o > y; out y f32 n 17", .places = {68}, .block = 256, .packed = {2048},
         .replaced = {1088}},
        {"in x f32 n 16; weight w f32 16 17; Identity w > v; Identity v > u; MatMul x u > y; out y f32 n 17",
         .places = {68}, .packed = {2048}, .replaced = {1088}},
        /* a normalisation behind a convolution makes other filters */
        {NORMED(""), .places = {300 * 256}, .replaced = {3600, OF_300}},
        {NORMED_BY("x k -", ""), .places = {300 * 256}, .replaced = {3600, OF_300}},
        {NORMED_BY("x k d", ""), .places = {300 * 256}, .replaced = {3600, OF_300, 1200}},
        {NORMED(""), {"optimization=disable"}, .places = {300 * 256}, .block = 300 * 256},
        {NORMED("; out c f32 1 300 8 8"), .places = {300 * 256, 300 * 256}},
    };
    AGREE(cases);
}

/* ---- plans ---------------------------------------------------------------------------------------------------------- */

/* Of a graph whose shapes do not follow the outputs are what a run takes at least, with every open extent at 1. */
static void what_does_not_follow_is_the_least(void **state)
{
    (void)state;
    for (int cuda = 0; cuda < 2; cuda++)
        for (int outputs = 1; outputs < 3; outputs++) {
            weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
            weir_engine_load load = {.struct_size = sizeof load, .provider = cuda ? "cuda" : NULL};
            uint64_t least = onnx_charge(3 * 300 * 4, cuda) + (outputs > 1 ? onnx_charge(700 * 8, cuda) : 0);
            load.path =
                written(outputs > 1 ? "in x f32 n m; weight s i64 2 = 1 33; Reshape x s > r; Neg r > y; Shape r > z; "
                                      "out y f32 3 k 300; out z i64 700 ? k"
                                    : "in x f32 n m; weight s i64 2 = 1 33; Reshape x s > r; Neg r > y; "
                                      "out y f32 3 k 300");
            assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->plan(&load, &plan));
            assert_int_equal(plan.bytes[WEIR_CLASS_ACTIVATIONS], least);
            assert_int_equal(plan.passing[WEIR_CLASS_ACTIVATIONS], least);
            assert_int_equal(plan.passing[WEIR_CLASS_WEIGHTS], 0);
        }
}

/* What a run takes passes; weights stay. */
static void runs_pass(void **state)
{
    (void)state;
    const foreseen_case its = {PRODUCT "Add m b > y; out y f32 n 17", .places = {68}, .packed = {2048}};
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    weir_engine_load load = {.struct_size = sizeof load, .path = written(its.text)};
    assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->plan(&load, &plan));
    assert_int_equal(plan.bytes[WEIR_CLASS_WEIGHTS], charges(its.packed, false));
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        bool of_runs = i == WEIR_CLASS_ACTIVATIONS;
        assert_int_equal(plan.passing[i], of_runs ? charges(its.places, false) : 0);
        if (i != WEIR_CLASS_WEIGHTS)
            assert_int_equal(plan.bytes[i], plan.passing[i]);
        assert_int_equal(plan.exact[i], !of_runs && i != WEIR_CLASS_WEIGHTS);
        assert_int_equal(plan.source[i], WEIR_PREDICTED_METADATA);
    }
}

/* ---- what is taken --------------------------------------------------------------------------------------------------- */

static uint64_t taken_by_a_run(const foreseen_case *it)
{
    const char *settings[SETTINGS + 2] = {"threads=2"};
    weir_tensor inputs[PLAIN_VALUES];
    weir_outputs out;
    for (size_t i = 0; i < SETTINGS; i++)
        settings[i + 1] = it->settings[i];
    loaded l = load_model(written(it->text), settings);
    uint64_t before = live(&l);
    size_t count = make_inputs(&l, 1, inputs, PLAIN_VALUES);
    for (int run = 0; run < 2; run++) { /* the second has a memory pattern */
        assert_ok(infer(&l, inputs, count, &out));
        l.engine->release_outputs(l.model, &out);
    }
    uint64_t peak = client_details(l.client).peak;
    free_inputs(inputs, count);
    unload_model(&l);
    close_client(&l);
    return peak - before;
}

/* Values are large, so that what ONNX Runtime has of small ones for itself does not count. */
#define LARGE "in x f32 256 256; weight at i64 256; "
#define IN_BYTES                                                                                                       \
    "in x f32 300 600; weight s f32; weight z u8; weight q u8 600 300; QuantizeLinear x s z > i; "                     \
    "DequantizeLinear i s z > a; DequantizeLinear q s z > b; MatMul a b > y; out y f32 300 300; "

static void what_a_run_takes_is_foreseen(void **state)
{
    static const foreseen_case cases[] = {
        {.text = LARGE "Gather x at > a; Gather a at > b; Gather b at > y; out y f32 256 256"},
        {.text = LARGE "Gather x at > a; Gather a at > b; Gather b at > c; Gather c at > y; out y f32 256 256"},
        {.text = LARGE "Gather x at > a; Gather a at > b; Gather b at > y; out y f32 256 256",
         .settings = {"memory_pattern=off"}},
        {.text = LARGE "Gather x at > a; Gather a at > b; Max b a > c; Gather c at > d; Concat d d > e | axis=0; "
                       "Gather e at > f; Neg f > y; out y f32 256 256"},
        {.text = LARGE "Gather x at > a; Gather a at > b; Max a b > c; Gather c at > d; Concat d d > e | axis=0; "
                       "Gather e at > f; Neg f > y; out y f32 256 256"},
        {.text = LARGE
         "Gather x at > a; Concat a a > b | axis=0; Concat b b > c | axis=0; Gather c at > d; Gather d at > y; "
         "out y f32 256 256"},
        {.text = LARGE "weight w f32 256 300; weight b f32 300; MatMul x w > m; Add m b > y; out y f32 256 300"},
        {.text = LARGE "weight w f32 256 300; weight b f32 300; MatMul x w > m; Add m b > a; Relu a > y; "
                       "out y f32 256 300"},
        {.text = LARGE "weight w f32 256 300; MatMul x w > m; HardSwish m > y; out y f32 256 300"},
        {.text = "in x f32 2 128 256; weight w f32 256 300; MatMul x w > m; Relu m > y; out y f32 2 128 300"},
        {.text = "in x f32 1 3 64 64; weight k f32 16 3 3 3; Conv x k > c | pads=1,1,1,1; Relu c > y; out y f32 1 16 "
                 "64 64"},
        {.text = "in x f32 1 3 16 16; weight k f32 300 3 3 3; Conv x k > c | pads=1,1,1,1; Relu c > y; out y f32 1 300 "
                 "16 16"},
        {.text = IN_BYTES},
        {.text = IN_BYTES "Neg a > v; out v f32 300 600"},
        /* by the level of optimization */
        {.text = LARGE "weight w f32 256 300; weight b f32 300; MatMul x w > m; Add m b > a; Relu a > y; "
                       "out y f32 256 300",
         .settings = {"optimization=disable"}},
        {.text = LARGE "weight w f32 256 300; weight b f32 300; MatMul x w > m; Add m b > a; Exp a > y; "
                       "out y f32 256 300"},
        {.text = LARGE "Exp x > a; Exp x > b; Gather b at > c; Add a c > y; out y f32 256 256"},
        {.text = LARGE "Exp x > a; Exp x > b; Gather b at > c; Add a c > y; out y f32 256 256",
         .settings = {"optimization=disable"}},
        {.text = LARGE "weight one f32 = 1; Gather x at > a; Mul a one > b; Add a b > y; out y f32 256 256"},
        {.text = LARGE "weight o i64 1 = 0; weight h i64 1 = 100; weight e i64 1 = 256; Exp x > a; Slice a o h o > b; "
                       "Slice a h e o > c; Exp b > y; Exp c > z; out y f32 100 256; out z f32 156 256"},
        {.text = LARGE
         "weight o i64 1 = 0; weight e i64 1 = 9223372036854775807; Exp x > a; Slice a o e o > b; Add a b > y; "
         "out y f32 256 256"},
        /* over what it is made of; of its own until the end, also where it looks at another */
        {.text = LARGE "Gather x at > a; Sigmoid a > b; Exp b > y; out y f32 256 256"},
        {.text = LARGE "weight w f32 256 300; MatMul x w > m; HardSwish m > h; Exp h > y; out y f32 256 300"},
        {.text = LARGE "weight s i64 2 = 128 512; Gather x at > a; Reshape a s > y; out y f32 128 512"},
        {.text =
             "in x f32 2 64 40; weight w f32 1 800 40; weight r f32 1 800 200; LSTM x w r > a h c | hidden_size=200; "
             "Concat a a > b | axis=0; Exp b > y; out y f32 4 1 64 200"},
        {.text = LARGE "in z f32 256 256; Less x z > q; Where q x z > y; out y f32 256 256"},
    /* of shapes that are known before a run or not */
#define WIDE                                                                                                           \
    "weight k f32 16 16 1 3; weight v f32 16 64 1 1; Conv x k > c | pads=0,1,0,1; Concat c c > d | axis=1; "           \
    "Concat d d > e | axis=1; Conv e v > f; Exp f > y; "
        {.text = "in x f32 1 16 1 8192; " WIDE "out y f32 1 16 1 8192", .settings = {"memory_pattern=off"}},
        {.text = "in x f32 1 16 n 8192; " WIDE "out y f32 1 16 n 8192", .settings = {"memory_pattern=off"}},
    };
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t said = foresee(&cases[i]).activations, takes = taken_by_a_run(&cases[i]);
        uint64_t off = said > takes ? said - takes : takes - said;
        if (off > takes / 50 + 1024)
            print_error("%s: %llu bytes are said, and a run takes %llu\n", cases[i].text, (unsigned long long)said,
                        (unsigned long long)takes);
        wrong += off > takes / 50 + 1024;
    }
    assert_int_equal(wrong, 0);
}

static int clear(void **state)
{
    (void)state;
    written_clear();
    return 0;
}

int main(void)
{
    int missing = need_onnxruntime();
    if (missing)
        return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_dimensions_have_sizes),
        cmocka_unit_test(lists_of_sizes),
        cmocka_unit_test(values_share_places),
        cmocka_unit_test(what_is_unpacked_for_a_product_vanishes),
        cmocka_unit_test(kernels_work_in_memory),
        cmocka_unit_test(kernels_lay_weights_out),
        cmocka_unit_test(what_does_not_follow_is_the_least),
        cmocka_unit_test(runs_pass),
        cmocka_unit_test(what_a_run_takes_is_foreseen),
    };
    int failed = cmocka_run_group_tests(tests, NULL, clear);
    return failed + run_rewritten();
}
