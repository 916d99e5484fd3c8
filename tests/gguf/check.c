/* check.c: files that break one rule each are refused, naming the key or tensor; needs no llama.cpp. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/weir.h>

#include "gguf/engine/check.h"
#include "writer.h"

static char path[64];

static weir_status check(wg_facts *out)
{
    wg_file file;
    weir_status status = wi_gguf_file_open(path, &file);
    if (status != WEIR_OK)
        return status;
    status = wg_check_file(&file, out);
    wi_gguf_file_close(&file);
    return status;
}

static void refused(weir_status status, const char *named)
{
    wg_facts facts;
    weir_status got = check(&facts);
    if (got != status || !strstr(weir_detail(), named))
        print_error("expected %s with '%s', got %s: %s\n", weir_name_of(WEIR_NAMES_STATUS, status), named,
                    weir_name_of(WEIR_NAMES_STATUS, got), got == WEIR_OK ? "" : weir_detail());
    assert_int_equal(got, status);
    assert_non_null(strstr(weir_detail(), named));
}

static void test_good_files(void **state)
{
    (void)state;
    wg_facts facts;
    write_llama(path, &small_shape);
    if (check(&facts) != WEIR_OK)
        fail_msg("%s", weir_detail());
    assert_string_equal(facts.architecture, "llama");
    assert_int_equal(facts.layers, 2);
    assert_int_equal(facts.tokens, 286);
    assert_int_equal(facts.pooling, -1);
    write_bert(path, &small_shape);
    if (check(&facts) != WEIR_OK)
        fail_msg("%s", weir_detail());
    assert_int_equal(facts.pooling, 1);
    assert_int_equal(facts.context, 128);
}

static void test_missing_keys(void **state)
{
    static const char *const of_llama[] = {"general.architecture",       "llama.context_length",
                                           "llama.embedding_length",     "llama.block_count",
                                           "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
                                           "tokenizer.ggml.model",       "tokenizer.ggml.tokens"};
    static const char *const of_bert[] = {"bert.context_length", "bert.attention.layer_norm_epsilon",
                                          "bert.attention.causal"};
    (void)state;
    model_shape shape = small_shape;
    for (size_t i = 0; i < sizeof of_llama / sizeof *of_llama; i++) {
        shape.skip_key = of_llama[i];
        write_llama(path, &shape);
        refused(WEIR_ERR_CORRUPT, of_llama[i]);
    }
    for (size_t i = 0; i < sizeof of_bert / sizeof *of_bert; i++) {
        shape.skip_key = of_bert[i];
        write_bert(path, &shape);
        refused(WEIR_ERR_CORRUPT, of_bert[i]);
    }
}

static void test_values(void **state)
{
    static const struct {
        const char *key;
        uint32_t value;
    } of_llama[] = {
        {"llama.block_count", 0},
        {"llama.block_count", 513},
        {"llama.block_count", 3},
        {"llama.embedding_length", 0},
        {"llama.embedding_length", 33},
        {"llama.embedding_length", 64},
        {"llama.context_length", 0},
        {"llama.attention.head_count", 0},
        {"llama.attention.head_count", 3},
        {"llama.attention.head_count_kv", 3},
        {"llama.attention.head_count_kv", 0},
        {"llama.rope.dimension_count", 7},
        {"llama.rope.dimension_count", 0},
    };
    (void)state;
    model_shape shape = small_shape;
    for (size_t i = 0; i < sizeof of_llama / sizeof *of_llama; i++) {
        shape.replace_u32 = of_llama[i].key;
        shape.replacement = of_llama[i].value;
        write_llama(path, &shape);
        wg_facts facts;
        if (check(&facts) != WEIR_ERR_CORRUPT)
            fail_msg("%s = %u was let through", of_llama[i].key, of_llama[i].value);
    }
    wg_facts facts;
    shape.replace_u32 = "tokenizer.ggml.bos_token_id"; /* 1 takes its place; of bert's, 101 is not there either */
    shape.replacement = 286;
    write_llama(path, &shape);
    assert_int_equal(check(&facts), WEIR_OK);
    write_bert(path, &shape);
    refused(WEIR_ERR_CORRUPT, "there is no token of that number, and none to take instead");
    shape.replace_u32 = "bert.pooling_type";
    shape.replacement = 9;
    write_bert(path, &shape);
    refused(WEIR_ERR_CORRUPT, "bert.pooling_type");
    shape.replace_u32 = "bert.context_length";
    shape.replacement = 64;
    write_bert(path, &shape);
    refused(WEIR_ERR_CORRUPT, "position_embd.weight");
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, ARRAY_OF = 16 /* and one of these */, ENOUGH = 4 };

/* A key with its value, or `count` times that value. */
typedef struct given {
    const char *name;
    int kind;
    double value;
    size_t count;
    const char *text;
} given;

typedef struct rule {
    given keys[ENOUGH];
    const char *words; /* of the refusal; NULL: it is taken */
} rule;

static const rule *giving;
static char of_model[16]; /* whose keys begin with '.' */

static void give(gguf_writer *to, const given *it)
{
    static uint32_t numbers[1024];
    static const char *texts[1024];
    char name[96];
    float real = (float)it->value;
    uint32_t whole = it->kind == I32 ? (uint32_t)(int32_t)it->value : (uint32_t)it->value;
    snprintf(name, sizeof name, "%s%s", it->name[0] == '.' ? of_model : "", it->name);
    for (size_t i = 0; i < it->count; i++) {
        memcpy(&numbers[i], it->kind == (ARRAY_OF | F32) ? (const void *)&real : &whole, 4);
        texts[i] = it->text;
    }
    switch (it->kind) {
    case U32:
        key_u32(to, name, whole);
        break;
    case I32:
        key_i32(to, name, (int32_t)whole);
        break;
    case F32:
        key_f32(to, name, real);
        break;
    case BOOL:
        key_bool(to, name, it->value != 0);
        break;
    case TEXT:
        key_text(to, name, it->text);
        break;
    case ARRAY_OF | TEXT:
        key_texts(to, name, texts, it->count);
        break;
    default:
        key_numbers(to, name, (uint32_t)it->kind - ARRAY_OF, numbers, it->count);
    }
}

static void give_all(gguf_writer *to)
{
    for (int i = 0; i < ENOUGH && giving->keys[i].name; i++)
        give(to, &giving->keys[i]);
}

/* The first key of a rule takes the place of the model's own. */
static void keep_rules(const char *architecture, void (*write)(const char *path, const model_shape *shape),
                       const rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        model_shape shape = small_shape;
        wg_facts facts;
        char first[96];
        giving = &rules[i];
        snprintf(of_model, sizeof of_model, "%s", architecture);
        snprintf(first, sizeof first, "%s%s", rules[i].keys[0].name[0] == '.' ? of_model : "", rules[i].keys[0].name);
        shape.skip_key = first;
        shape.more = give_all;
        write(path, &shape);
        weir_status status = check(&facts);
        const char *said = status == WEIR_OK ? "" : weir_detail();
        if ((status == WEIR_OK) != !rules[i].words || (rules[i].words && !strstr(said, rules[i].words)))
            print_error("rule %zu, %s: %s\n", i, first, said);
        assert_int_equal(status == WEIR_OK, !rules[i].words);
        if (rules[i].words)
            assert_non_null(strstr(said, rules[i].words));
    }
}
#define KEEP(architecture, write, rules) keep_rules(architecture, write, rules, sizeof rules / sizeof *(rules))

#define ONE(key, kind, value, words)                                                                                   \
    {                                                                                                                  \
        {{key, kind, value, 0, NULL}}, words                                                                           \
    }
#define SAYS(key, text, words)                                                                                         \
    {                                                                                                                  \
        {{key, TEXT, 0, 0, text}}, words                                                                               \
    }
#define MANY(key, kind, value, count, words)                                                                           \
    {                                                                                                                  \
        {{key, ARRAY_OF | (kind), value, count, NULL}}, words                                                          \
    }
#define EXPERTS(count, used, groups, groups_used, words)                                                               \
    {                                                                                                                  \
        {{".expert_count", U32, count, 0, NULL},                                                                       \
         {".expert_used_count", U32, used, 0, NULL},                                                                   \
         {".expert_group_count", U32, groups, 0, NULL},                                                                \
         {".expert_group_used_count", U32, groups_used, 0, NULL}},                                                     \
            words                                                                                                      \
    }

/* Each number at its limits and beyond. The model has 2 layers of width 32 with 4 heads, and 286 tokens. */
static void test_numbers_of_a_llama(void **state)
{
    static const char apart[] = "must be the same even number", heads[] = "both must be there, and the second divide";
    static const rule rules[] = {
        ONE(".context_length", U32, 1, NULL),
        ONE(".context_length", U32, INT32_MAX, NULL),
        ONE(".context_length", U32, 2147483648.0, "it must be 1 to 2147483647"),
        ONE(".context_length", I32, 8, "it must be a u32"),
        ONE(".embedding_length", U32, (1 << 24) + 1, "it must be 1 to 16777216"),
        ONE(".nextn_predict_layers", U32, 1, NULL),
        ONE(".nextn_predict_layers", U32, 2, "it must be 0 to 1"),
        ONE(".feed_forward_length", U32, 1 << 24, NULL),
        ONE(".feed_forward_length", U32, (1 << 24) + 1, "out of all proportion"),
        ONE(".feed_forward_length", F32, 64, "a u32, or an array of them"),
        MANY(".feed_forward_length", U32, 1 << 24, 2, NULL),
        MANY(".feed_forward_length", I32, 64, 512, NULL),
        MANY(".feed_forward_length", U32, (1 << 24) + 1, 2, "an element is out of all proportion"),
        MANY(".feed_forward_length", U32, 64, 1, "one element for each layer"),
        MANY(".feed_forward_length", U32, 64, 513, "one element for each layer"),
        MANY(".feed_forward_length", F32, 64, 2, "a u32, or an array of them"),
        ONE(".attention.head_count", U32, 65537, "out of all proportion"),
        MANY(".attention.head_count", U32, 4, 2, NULL),
        ONE(".attention.head_count_kv", U32, 4, NULL),
        ONE(".attention.head_count_kv", U32, 1, NULL),
        ONE(".attention.head_count_kv", U32, 8, heads),
        ONE(".attention.head_count_kv", U32, 3, heads),
        ONE(".attention.key_length", U32, 8, NULL),
        ONE(".attention.key_length", U32, 0, "it must be 1 to 16777216"),
        ONE(".attention.key_length", U32, 16, apart),
        ONE(".attention.value_length", U32, 0, "it must be 1 to 16777216"),
        ONE(".attention.value_length", U32, 16, apart),
        ONE(".rope.dimension_count", U32, 4, apart),
        ONE(".attention.layer_norm_rms_epsilon", F32, 0, NULL),
        ONE(".attention.layer_norm_rms_epsilon", F32, 1, NULL),
        ONE(".attention.layer_norm_rms_epsilon", F32, 1.5, "it must be 0 to 1"),
        ONE(".attention.layer_norm_rms_epsilon", F32, -0.5, "it must be 0 to 1"),
        ONE(".attention.layer_norm_rms_epsilon", U32, 1, "it must be an f32"),
        ONE(".attention.layer_norm_epsilon", F32, 2, "it must be 0 to 1"),
        ONE(".attention.causal", BOOL, 1, NULL),
        ONE(".attention.causal", BOOL, 0, "a llama sees only what came before"),
        ONE(".attention.causal", U32, 1, "it must be a bool"),
        ONE(".pooling_type", U32, 0, NULL),
        ONE(".pooling_type", U32, 4, NULL),
        ONE(".pooling_type", U32, 5, "it must be a u32 of 0 (none)"),
        ONE(".pooling_type", I32, 1, "it must be a u32 of 0 (none)"),
        ONE("split.count", U32, 1, NULL),
        ONE("split.count", U32, 2, "is part 1 of 2 of a model"),
        ONE("split.count", U32, 3, "is part 1 of 3 of a model"),
    };
    (void)state;
    KEEP("llama", write_llama, rules);
}

static void test_how_a_llama_rotates(void **state)
{
    static const rule rules[] = {
        SAYS(".rope.scaling.type", "none", NULL),
        SAYS(".rope.scaling.type", "linear", NULL),
        SAYS(".rope.scaling.type", "yarn", NULL),
        SAYS(".rope.scaling.type", "longrope", NULL),
        SAYS(".rope.scaling.type", "long", "it must be none, linear, yarn or longrope"),
        ONE(".rope.scaling.type", U32, 1, "it must be none, linear, yarn or longrope"),
        ONE(".rope.freq_base", F32, 1e-5, NULL),
        ONE(".rope.freq_base", F32, 1e11, NULL),
        ONE(".rope.freq_base", F32, 0, "it must be 1e-06 to 1e+12"),
        ONE(".rope.freq_base", F32, 2e12, "it must be 1e-06 to 1e+12"),
        ONE(".rope.freq_base", F32, (double)NAN, "it must be 1e-06 to 1e+12"),
        ONE(".rope.scaling.factor", F32, 1e6, NULL),
        ONE(".rope.scaling.factor", F32, 2e6, "it must be 0 to 1e+06"),
        ONE(".rope.scaling.factor", F32, -1, "it must be 0 to 1e+06"),
        ONE(".rope.scale_linear", F32, 1e6, NULL),
        ONE(".rope.scale_linear", F32, 2e6, "it must be 0 to 1e+06"),
        ONE(".rope.scaling.attn_factor", F32, 1e6, NULL),
        ONE(".rope.scaling.attn_factor", F32, 2e6, "it must be 0 to 1e+06"),
    };
    (void)state;
    KEEP("llama", write_llama, rules);
}

static void test_experts_in_groups(void **state)
{
    static const char apart[] = "contradict one another";
    static const rule rules[] = {
        EXPERTS(8, 2, 1, 0, NULL),
        EXPERTS(1024, 1024, 4, 3, NULL),
        EXPERTS(1025, 2, 1, 0, "it must be 0 to 1024"),
        EXPERTS(8, 9, 1, 0, "out of all proportion"),
        EXPERTS(8, 0, 1, 0, apart),
        EXPERTS(8, 2, 8, 2, apart),
        EXPERTS(8, 2, 9, 2, "it must be 0 to 8"),
        EXPERTS(8, 2, 3, 2, apart),
        EXPERTS(8, 2, 4, 1, NULL),
        EXPERTS(8, 2, 4, 3, NULL),
        EXPERTS(8, 2, 4, 4, apart),
        EXPERTS(8, 2, 4, 0, apart),
        EXPERTS(8, 2, 2, 1, NULL),
        EXPERTS(8, 2, 2, 1025, "it must be 0 to 1024"),
    };
    (void)state;
    KEEP("llama", write_llama, rules);
}

static void test_kinds_of_file(void **state)
{
    static const rule rules[] = {
        SAYS("general.type", "model", NULL),
        SAYS("general.type", "adapter", "is no model but 'adapter'"),
        SAYS("general.architecture", "Llama", "a short name in small letters"),
        SAYS("general.architecture", "", "a short name in small letters"),
        ONE("general.architecture", U32, 1, "a short name in small letters"),
    };
    (void)state;
    KEEP("llama", write_llama, rules);
}

static void test_tokens_and_what_is_beside_them(void **state)
{
    static const char beside[] = "an array of one number for each token", fewer[] = "there are more tokens than that";
    static const rule rules[] = {
        SAYS("tokenizer.ggml.model", "none", "has no vocabulary"),
        SAYS("tokenizer.ggml.model", "no_vocab", "has no vocabulary"),
        ONE("tokenizer.ggml.model", U32, 1, "it must be a text"),
        MANY("tokenizer.ggml.tokens", U32, 1, 286, "an array of texts, and not empty"),
        MANY("tokenizer.ggml.tokens", TEXT, 0, 0, "an array of texts, and not empty"),
        ONE("tokenizer.ggml.tokens", U32, 1, "an array of texts, and not empty"),
        MANY("tokenizer.ggml.scores", F32, 1, 286, NULL),
        MANY("tokenizer.ggml.scores", F32, 1, 287, NULL),
        MANY("tokenizer.ggml.scores", F32, 1, 285, fewer),
        MANY("tokenizer.ggml.scores", I32, 1, 286, NULL),
        MANY("tokenizer.ggml.scores", U32, 1, 286, beside),
        MANY("tokenizer.ggml.scores", F32, (double)NAN, 286, "has no number at element 0"),
        ONE("tokenizer.ggml.scores", F32, 1, beside),
        MANY("tokenizer.ggml.token_type", I32, 1, 286, NULL),
        MANY("tokenizer.ggml.token_type", I32, 1, 285, fewer),
        MANY("tokenizer.ggml.token_type", F32, 1, 286, beside),
    };
    (void)state;
    KEEP("llama", write_llama, rules);
}

/* A model of three tokens that names none of them; the rule has its tokenizer. */
static void write_without_specials(const char *to, const model_shape *shape)
{
    gguf_writer it = {0};
    static const char *const tokens[] = {"a", "b", "c"};
    key_text(&it, "general.architecture", "other");
    key_u32(&it, "other.context_length", 8);
    key_u32(&it, "other.embedding_length", 8);
    key_u32(&it, "other.block_count", 1);
    key_texts(&it, "tokenizer.ggml.tokens", tokens, 3);
    shape->more(&it);
    tensor(&it, "extra", 8, 0, 0);
    write_gguf(&it, to);
}

/* What is named, or else what llama.cpp takes, has to be there where texts get it. */
static void test_tokens_that_are_added_to_texts(void **state)
{
    static const rule of_llama[] = {
        ONE("tokenizer.ggml.bos_token_id", U32, 285, NULL),
        ONE("tokenizer.ggml.bos_token_id", U32, 286, NULL), /* 1 is there */
        ONE("tokenizer.ggml.bos_token_id", I32, 1, "it must be a u32"),
        ONE("tokenizer.ggml.eos_token_id", U32, 286, NULL),
        ONE("tokenizer.ggml.eos_token_id", I32, 1, "it must be a u32"),
        ONE("tokenizer.ggml.unknown_token_id", U32, 286, NULL),
        ONE("tokenizer.ggml.unknown_token_id", I32, 1, "it must be a u32"),
        ONE("tokenizer.ggml.seperator_token_id", I32, 1, "it must be a u32"),
    };
    static const char none[] = "there is no token of that number, and none to take instead";
    /* "other" is a model that llama.cpp takes no tokens for by itself. */
    static const rule of_others[] = {
#define OTHER(which, number, adds, words)                                                                              \
    {{{"tokenizer.ggml.model", TEXT, 0, 0, "other"},                                                                   \
      {"tokenizer.ggml.add_" which "_token", BOOL, adds, 0, NULL},                                                     \
      {"tokenizer.ggml." which "_token_id", U32, number, 0, NULL}},                                                    \
     words}
        OTHER("bos", 2, 1, NULL), OTHER("bos", 3, 1, none), OTHER("bos", 3, 0, NULL),
        OTHER("eos", 2, 1, NULL), OTHER("eos", 3, 1, none), OTHER("eos", 3, 0, NULL),
    };
    static const rule of_bert[] = {
        ONE("tokenizer.ggml.bos_token_id", U32, 56, NULL),
        ONE("tokenizer.ggml.bos_token_id", U32, 57, none), /* nor is 101 there */
        ONE("tokenizer.ggml.seperator_token_id", U32, 56, NULL),
        ONE("tokenizer.ggml.seperator_token_id", U32, 57, none),
        ONE("tokenizer.ggml.unknown_token_id", U32, 56, NULL),
        ONE("tokenizer.ggml.unknown_token_id", U32, 57, none),
        ONE("tokenizer.ggml.eos_token_id", U32, 57, NULL),
        ONE(".attention.causal", BOOL, 1, "a bert sees its whole text"),
        ONE(".attention.layer_norm_epsilon", F32, 2, "it must be 0 to 1"),
    };
    (void)state;
    KEEP("llama", write_llama, of_llama);
    KEEP("other", write_without_specials, of_others);
    KEEP("bert", write_bert, of_bert);
    static const char *const needed[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.seperator_token_id",
                                         "tokenizer.ggml.unknown_token_id"};
    for (int i = 0; i < 3; i++) {
        model_shape shape = small_shape;
        shape.skip_key = needed[i];
        write_bert(path, &shape);
        refused(WEIR_ERR_CORRUPT, "is missing, and there is no token");
    }
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static uint32_t extra_type;
static const char *extra_name;
static uint64_t extra_first, extra_second;

static void add_tensor(gguf_writer *to)
{
    uint32_t elements = 1, size = 4;
    if (wi_gguf_type_block(extra_type, &elements, &size))
        typed_tensor(to, extra_name, extra_type, extra_first, extra_second,
                     (size_t)(extra_first * (extra_second ? extra_second : 1) / elements * size));
}

static weir_status check_with(const char *name, uint32_t type, uint64_t first, uint64_t second, const char *instead)
{
    model_shape shape = small_shape;
    wg_facts facts;
    extra_name = name;
    extra_type = type;
    extra_first = first;
    extra_second = second;
    shape.more = add_tensor;
    shape.skip_key = instead;
    write_llama(path, &shape);
    return check(&facts);
}

/* Whole numbers, f64, and what only activations take. */
static void test_what_a_matrix_may_be_made_of(void **state)
{
    static const uint32_t no_products[] = {9, 15, 24, 25, 26, 27, 28};
    uint32_t known = 0, elements, size;
    (void)state;
    for (uint32_t type = 0; type < 64; type++) {
        bool product = true;
        for (size_t i = 0; i < sizeof no_products / sizeof *no_products; i++)
            product = product && no_products[i] != type;
        if (!wi_gguf_type_block(type, &elements, &size))
            continue;
        known++;
        assert_int_equal(check_with("extra.weight", type, 256, 2, NULL), product ? WEIR_OK : WEIR_ERR_CORRUPT);
        if (!product)
            assert_non_null(strstr(weir_detail(), "no product is defined for"));
    }
    assert_true(known > 25);
}

/* What is added, or scaled by, is of f32. */
static void test_what_sums_are_made_of(void **state)
{
    static const char *const names[] = {"extra.bias", "token_types.weight", "extra_norm.weight", "rope_freqs.weight"};
    enum { F16 = 1 };
    (void)state;
    for (int f16 = 0; f16 < 2; f16++) {
        for (int i = 0; i < 4; i++) {
            assert_int_equal(check_with(names[i], f16 ? F16 : 0, 32, 2, NULL), f16 ? WEIR_ERR_CORRUPT : WEIR_OK);
            if (f16)
                assert_non_null(strstr(weir_detail(), "must be of type f32 (0)"));
        }
        assert_int_equal(check_with("extra.weight", f16 ? F16 : 0, 32, 0, NULL), f16 ? WEIR_ERR_CORRUPT : WEIR_OK);
        assert_int_equal(check_with("extra.weight", f16 ? F16 : 0, 32, 2, NULL), WEIR_OK);
    }
}

static void test_tensors_that_every_model_has(void **state)
{
    static const char *const of_llama[] = {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight",
                                           "blk.1.attn_norm.weight", "blk.1.ffn_norm.weight"};
    static const char *const of_bert[] = {"token_embd.weight", "token_embd_norm.weight", "position_embd.weight",
                                          "blk.0.attn_output_norm.weight", "blk.1.layer_output_norm.weight"};
    static const struct {
        const char *name;
        uint64_t first, second;
        bool right;
    } shapes[] = {{"token_embd.weight", 32, 286, true},     {"token_embd.weight", 32, 285, false},
                  {"token_embd.weight", 31, 286, false},    {"token_embd.weight", 32, 0, false},
                  {"output_norm.weight", 32, 0, true},      {"output_norm.weight", 33, 0, false},
                  {"output_norm.weight", 32, 2, false},     {"blk.1.attn_norm.weight", 32, 0, true},
                  {"blk.1.attn_norm.weight", 16, 0, false}, {"blk.1.ffn_norm.weight", 16, 0, false}};
    (void)state;
    for (int i = 0; i < 5; i++)
        for (int bert = 0; bert < 2; bert++) {
            model_shape shape = small_shape;
            char words[96];
            shape.skip_key = bert ? of_bert[i] : of_llama[i];
            (bert ? write_bert : write_llama)(path, &shape);
            snprintf(words, sizeof words, "tensor '%s' is missing", shape.skip_key);
            refused(WEIR_ERR_CORRUPT, words);
        }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        weir_status status = check_with(shapes[i].name, 0, shapes[i].first, shapes[i].second, shapes[i].name);
        assert_int_equal(status, shapes[i].right ? WEIR_OK : WEIR_ERR_CORRUPT);
        if (!shapes[i].right)
            assert_non_null(strstr(weir_detail(), "should be"));
    }
}

/* ---- files put together by hand --------------------------------------------------------------------------------- */

static void write_raw(const void *data, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, count, file), count);
    fclose(file);
}

static void header(bytes *to, uint32_t version, uint64_t tensors, uint64_t keys)
{
    to->count = 0;
    put(to, "GGUF", 4);
    put(to, &version, 4);
    put(to, &tensors, 8);
    put(to, &keys, 8);
}

static void text(bytes *to, const char *value)
{
    uint64_t length = strlen(value);
    put(to, &length, 8);
    put(to, value, length);
}

static void u32_key(bytes *to, const char *name, uint32_t kind, uint32_t value)
{
    text(to, name);
    put(to, &kind, 4);
    put(to, &value, 4);
}

static void test_header(void **state)
{
    (void)state;
    bytes it = {0};
    write_raw("", 0);
    refused(WEIR_ERR_CORRUPT, "ends too early");
    write_raw("GGML", 4);
    refused(WEIR_ERR_CORRUPT, "does not begin with 'GGUF'");
    header(&it, 1, 0, 0);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_UNSUPPORTED, "version 1");
    header(&it, 0x03000000, 0, 0);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_UNSUPPORTED, "byte order");
    header(&it, 3, UINT64_MAX, 0);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "tensors");
    header(&it, 3, 0, 1ull << 60);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "keys");
    free(it.data);
    unlink(path);
    refused(WEIR_ERR_NOT_FOUND, "No such file");
}

static void test_keys(void **state)
{
    (void)state;
    bytes it = {0};
    uint64_t huge = UINT64_MAX - 7;
    uint32_t array = 9, nested = 9, kind = 4;
    header(&it, 3, 0, 2);
    u32_key(&it, "one", 4, 1);
    u32_key(&it, "one", 4, 2);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "'one' stands there twice");
    header(&it, 3, 0, 1);
    u32_key(&it, "odd", 77, 1);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "kind 77");
    header(&it, 3, 0, 1);
    put(&it, &huge, 8);
    put(&it, "abcdefgh", 8);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "claims");
    header(&it, 3, 0, 1);
    text(&it, "list");
    put(&it, &array, 4);
    put(&it, &kind, 4);
    put(&it, &huge, 8);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "'list' claims");
    header(&it, 3, 0, 1);
    text(&it, "nest");
    put(&it, &array, 4);
    put(&it, &nested, 4);
    put(&it, &huge, 8);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "'nest' is an array of array");
    header(&it, 3, 0, 1);
    u32_key(&it, "general.alignment", 4, 48);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "general.alignment");
    header(&it, 3, 0, 1);
    u32_key(&it, "", 4, 48);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, "0 bytes");
    free(it.data);
}

static void one_tensor(uint32_t dims, const uint64_t *ne, uint32_t type, uint64_t offset, const char *named)
{
    bytes it = {0};
    header(&it, 3, 1, 0);
    text(&it, "t");
    put(&it, &dims, 4);
    put(&it, ne, sizeof *ne * (dims <= 4 ? dims : 4));
    put(&it, &type, 4);
    put(&it, &offset, 8);
    for (int i = 0; i < 64; i++)
        put(&it, "\0\0\0\0", 4);
    write_raw(it.data, it.count);
    refused(WEIR_ERR_CORRUPT, named);
    free(it.data);
}

static void test_tensors(void **state)
{
    (void)state;
    one_tensor(5, (uint64_t[]){1, 1, 1, 1}, 0, 0, "dimensions");
    one_tensor(0, (uint64_t[]){1}, 0, 0, "dimensions");
    one_tensor(1, (uint64_t[]){0}, 0, 0, "extent of zero");
    one_tensor(2, (uint64_t[]){1ull << 40, 1ull << 40}, 0, 0, "can be counted");
    one_tensor(1, (uint64_t[]){1ull << 61}, 0, 0, "larger than the file");
    one_tensor(1, (uint64_t[]){4}, 4, 0, "type that is none");
    one_tensor(1, (uint64_t[]){4}, 43, 0, "type that is none");
    one_tensor(1, (uint64_t[]){33}, 2, 0, "whole blocks");
    one_tensor(1, (uint64_t[]){4}, 0, 32, "offset 32 where 0 is next");
    one_tensor(1, (uint64_t[]){75}, 0, 0, "the file ends");
}

static void test_twice(void **state)
{
    (void)state;
    gguf_writer it = {0};
    tensor(&it, "same", 8, 0, 0);
    tensor(&it, "same", 8, 0, 0);
    write_gguf(&it, path);
    refused(WEIR_ERR_CORRUPT, "tensor 'same' stands there twice");
    static const char *const tokens[] = {"a", "b", "a"};
    key_text(&it, "general.architecture", "llama");
    key_u32(&it, "llama.context_length", 8);
    key_u32(&it, "llama.embedding_length", 8);
    key_u32(&it, "llama.block_count", 1);
    key_text(&it, "tokenizer.ggml.model", "llama");
    key_texts(&it, "tokenizer.ggml.tokens", tokens, 3);
    write_gguf(&it, path);
    refused(WEIR_ERR_CORRUPT, "one token twice");
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/weir-check-%d.gguf", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_numbers_of_a_llama),
        cmocka_unit_test(test_how_a_llama_rotates),
        cmocka_unit_test(test_experts_in_groups),
        cmocka_unit_test(test_kinds_of_file),
        cmocka_unit_test(test_tokens_and_what_is_beside_them),
        cmocka_unit_test(test_tokens_that_are_added_to_texts),
        cmocka_unit_test(test_what_a_matrix_may_be_made_of),
        cmocka_unit_test(test_what_sums_are_made_of),
        cmocka_unit_test(test_tensors_that_every_model_has),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
