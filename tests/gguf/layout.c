/* layout.c: what a model will take, out of its file alone: the cache of models that exist, tensors, layers on a device, and
 * files that claim what cannot be. Needs no llama.cpp. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/weir.h>

#include "gguf/file/layout.h"
#include "shapes.h"
#include "writer.h"

static char path[64];

static void read_hyper(wg_hyper *out)
{
    wg_file file;
    if (wi_gguf_file_open(path, &file) != WEIR_OK || wi_gguf_hyper_read(&file, out) != WEIR_OK)
        fail_msg("%s", weir_detail());
    wi_gguf_file_close(&file);
}

static wg_asked asked_for(const named_shape *shape)
{
    wg_asked asked = {.context = shape->context,
                      .sequences = shape->sequences,
                      .batch = 512,
                      .outputs = shape->sequences,
                      .flash = !shape->without_flash};
    assert_true(wi_gguf_cache_type(shape->cache, &asked.type_k) && wi_gguf_cache_type(shape->cache, &asked.type_v));
    return asked;
}

/* To the byte, of every architecture. */
static void test_the_cache_of_models_that_exist(void **state)
{
    static wg_hyper hyper;
    (void)state;
    for (size_t i = 0; i < shape_count; i++) {
        wg_layout layout;
        write_shape(&shapes[i], path);
        read_hyper(&hyper);
        wg_asked asked = asked_for(&shapes[i]);
        wi_gguf_layout_make(&hyper, &asked, &layout);
        uint64_t wanted = shapes[i].expected, got = layout.host.cache;
        if (got != wanted)
            fail_msg("%s: %llu bytes of cache, and %llu were expected", shapes[i].name, (unsigned long long)got,
                     (unsigned long long)wanted);
        assert_true(hyper.known);
        assert_int_equal(layout.device.cache, 0);
    }
}

/* The weights are the tensors' bytes; layers go to a device from the last on. */
static void test_layers_go_to_a_device_from_the_last_on(void **state)
{
    static wg_hyper hyper;
    (void)state;
    write_llama(path, &small_shape);
    read_hyper(&hyper);
    wg_asked asked = {
        .context = 128, .sequences = 1, .batch = 128, .outputs = 1, .type_k = 1, .type_v = 1, .flash = true};
    wg_layout none, some, all;
    wi_gguf_layout_make(&hyper, &asked, &none);
    asked.device_layers = 2; /* the output layer, and the last of two */
    wi_gguf_layout_make(&hyper, &asked, &some);
    asked.device_layers = UINT32_MAX;
    wi_gguf_layout_make(&hyper, &asked, &all);
    assert_int_equal(none.device.weights + none.device.cache + none.device.compute, 0);
    assert_int_equal(none.layers, 3);
    assert_int_equal(some.device_layers, 2);
    assert_int_equal(all.device_layers, 3);
    assert_int_equal(some.device.cache, none.host.cache / 2);
    assert_int_equal(all.device.cache, none.host.cache);
    assert_int_equal(some.device.weights + some.host.weights, none.host.weights);
    assert_int_equal(some.device.weights - (all.device.weights - some.device.weights), hyper.last);
    assert_int_equal(all.host.weights, hyper.first);
    uint64_t table = (uint64_t)32 * 286 * 4;
    assert_int_equal(hyper.first, table);
    assert_int_equal(hyper.last, table + 32 * 4); /* the output and its norm */
}

/* Of layers that differ, those of the last are there. */
static void test_the_last_layers_cache_is_on_the_device(void **state)
{
    static wg_hyper hyper;
    static const named_shape growing = {
        "growing",
        "llama",
        "block_count=3 embedding_length=256 attention.head_count=4,8,16 attention.head_count_kv=1,2,4 "
        "attention.key_length=64 attention.value_length=64",
        256,
        1,
        "",
        false,
        0};
    (void)state;
    write_shape(&growing, path);
    read_hyper(&hyper);
    wg_asked asked = asked_for(&growing);
    asked.device_layers = 2;
    wg_layout layout;
    wi_gguf_layout_make(&hyper, &asked, &layout);
    assert_int_equal(layout.device.cache, 256 * 2 * 4 * 64 * 2);
    assert_int_equal(layout.host.cache, 256 * 2 * (1 + 2) * 64 * 2);
}

/* A table of tokens that is the output, too, is copied to the device. */
static void test_a_tied_table_is_there_twice(void **state)
{
    static wg_hyper hyper;
    (void)state;
    write_windowed(path, &small_shape, 16);
    read_hyper(&hyper);
    wg_asked asked = {
        .context = 128, .sequences = 1, .batch = 128, .outputs = 1, .type_k = 1, .type_v = 1, .flash = true};
    wg_layout host, device;
    wi_gguf_layout_make(&hyper, &asked, &host);
    assert_int_equal(host.host.fixed, 0); /* they have as many cells as the others */
    asked.device_layers = UINT32_MAX;
    wi_gguf_layout_make(&hyper, &asked, &device);
    assert_int_equal(device.device.weights + device.host.weights, host.host.weights + (uint64_t)32 * 286 * 4);
}

/* Of the cache, the layers that have fewer cells than the context. */
static void test_how_much_of_a_cache_are_windows(void **state)
{
    static wg_hyper hyper;
    model_shape shape = small_shape;
    (void)state;
    shape.layers = 4; /* three with a window */
    shape.context = 1024;
    write_windowed(path, &shape, 16);
    read_hyper(&hyper);
    wg_asked asked = {
        .context = 1024, .sequences = 1, .batch = 128, .outputs = 1, .type_k = 1, .type_v = 1, .flash = true};
    wg_layout layout;
    wi_gguf_layout_make(&hyper, &asked, &layout);
    assert_int_equal(layout.host.cache, layout.host.fixed / 3 * (3 + 1024 / 256));
    assert_true(layout.host.fixed > 0);
    asked.whole_windows = true;
    wi_gguf_layout_make(&hyper, &asked, &layout);
    assert_int_equal(layout.host.fixed, 0);
}

/* A state is as large for one token as for many. */
static void test_states_are_there_from_the_start(void **state)
{
    static wg_hyper hyper;
    (void)state;
    write_recurrent(path, &small_shape);
    read_hyper(&hyper);
    wg_asked asked = {
        .context = 4096, .sequences = 3, .batch = 128, .outputs = 1, .type_k = 1, .type_v = 1, .flash = true};
    wg_layout layout;
    wi_gguf_layout_make(&hyper, &asked, &layout);
    assert_true(layout.host.cache > 0);
    assert_int_equal(layout.host.fixed, layout.host.cache);
}

static void test_what_embeds_and_does_not_remember(void **state)
{
    static wg_hyper hyper;
    (void)state;
    write_bert(path, &small_shape);
    read_hyper(&hyper);
    wg_asked asked = {.context = 128, .sequences = 16, .shared = true, .batch = 128, .outputs = 128, .embeds = true};
    wg_layout layout;
    wi_gguf_layout_make(&hyper, &asked, &layout);
    assert_int_equal(layout.host.cache, 0);
    assert_int_equal(layout.host.outputs, ((57 + 32) * 16 * 4 + 255) / 256 * 256);
}

/* Sums do not wrap. */
static void test_impossible_numbers_are_the_largest(void **state)
{
    static wg_hyper hyper;
    static const named_shape huge = {
        "huge",
        "llama",
        "block_count=512 embedding_length=16777216 feed_forward_length=16777216 attention.head_count=16777216 "
        "attention.head_count_kv=16777216 attention.key_length=16777216 attention.value_length=16777216",
        16777216,
        256,
        "",
        false,
        0};
    (void)state;
    write_shape(&huge, path);
    read_hyper(&hyper);
    wg_asked asked = asked_for(&huge);
    wg_layout layout;
    wi_gguf_layout_make(&hyper, &asked, &layout);
    assert_true(layout.host.cache == UINT64_MAX);
}

/* Layers that predict further tokens are none of the model's own, unless all claim to be such. */
static void test_how_many_layers_are_the_models_own(void **state)
{
    static const struct {
        const char *keys;
        uint32_t own;
    } tried[] = {{"block_count=3 embedding_length=8", 3},
                 {"block_count=3 embedding_length=8 nextn_predict_layers=1", 2},
                 {"block_count=3 embedding_length=8 nextn_predict_layers=2", 1},
                 {"block_count=3 embedding_length=8 nextn_predict_layers=3", 3},
                 {"block_count=3 embedding_length=8 nextn_predict_layers=4", 3}};
    static wg_hyper hyper;
    (void)state;
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        named_shape shape = {"", "glm4moe", tried[i].keys, 1, 1, "", false, 0};
        write_shape(&shape, path);
        read_hyper(&hyper);
        assert_int_equal(hyper.layers, 3);
        assert_int_equal(hyper.own, tried[i].own);
    }
}

static void test_files_without_what_every_model_has(void **state)
{
    static const struct {
        const char *keys, *named;
    } without[] = {{"embedding_length=8", "llama.block_count"},
                   {"block_count=2", "llama.embedding_length"},
                   {"block_count=0 embedding_length=8", "llama.block_count"},
                   {"block_count=513 embedding_length=8", "llama.block_count"}};
    static wg_hyper hyper;
    (void)state;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        wg_file file;
        named_shape shape = {"", "llama", without[i].keys, 1, 1, "", false, 0};
        write_shape(&shape, path);
        if (wi_gguf_file_open(path, &file) != WEIR_OK)
            fail_msg("%s", weir_detail());
        assert_int_equal(wi_gguf_hyper_read(&file, &hyper), WEIR_ERR_CORRUPT);
        assert_non_null(strstr(weir_detail(), without[i].named));
        wi_gguf_file_close(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cache_of_models_that_exist),
        cmocka_unit_test(test_layers_go_to_a_device_from_the_last_on),
        cmocka_unit_test(test_the_last_layers_cache_is_on_the_device),
        cmocka_unit_test(test_a_tied_table_is_there_twice),
        cmocka_unit_test(test_how_much_of_a_cache_are_windows),
        cmocka_unit_test(test_states_are_there_from_the_start),
        cmocka_unit_test(test_what_embeds_and_does_not_remember),
        cmocka_unit_test(test_impossible_numbers_are_the_largest),
        cmocka_unit_test(test_how_many_layers_are_the_models_own),
        cmocka_unit_test(test_files_without_what_every_model_has),
    };
    snprintf(path, sizeof path, "/tmp/weir-layout-%d.gguf", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
