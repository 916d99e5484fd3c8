/* check.c: files that break one rule each are refused, naming the key or tensor; needs no llama.cpp. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/weir.h>

#include "engines/gguf/check.h"
#include "writer.h"

static char path[64];

static void refused(weir_status status, const char *named)
{
    wg_facts facts;
    weir_status got = wg_check(path, &facts);
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
    if (wg_check(path, &facts) != WEIR_OK)
        fail_msg("%s", weir_detail());
    assert_string_equal(facts.architecture, "llama");
    assert_int_equal(facts.layers, 2);
    assert_int_equal(facts.tokens, 286);
    assert_int_equal(facts.pooling, -1);
    write_bert(path, &small_shape);
    if (wg_check(path, &facts) != WEIR_OK)
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
        if (wg_check(path, &facts) != WEIR_ERR_CORRUPT)
            fail_msg("%s = %u was let through", of_llama[i].key, of_llama[i].value);
    }
    wg_facts facts;
    shape.replace_u32 = "tokenizer.ggml.bos_token_id"; /* 1 takes its place; of bert's, 101 is not there either */
    shape.replacement = 286;
    write_llama(path, &shape);
    assert_int_equal(wg_check(path, &facts), WEIR_OK);
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
        cmocka_unit_test(test_good_files), cmocka_unit_test(test_missing_keys), cmocka_unit_test(test_values),
        cmocka_unit_test(test_header),     cmocka_unit_test(test_keys),         cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_twice),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
