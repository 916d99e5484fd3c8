/* Geometry of keys and values: known models, every kind of element, addresses, what does not fit, what overflows. */
#include "blocks/blocks.h"
#include <weir/block_pool.h>
#include <weir/experimental/kv.h>

static weir_kv_geometry geometry(weir_type type, uint32_t layers, uint32_t heads, uint32_t tokens, uint32_t size)
{
    return (weir_kv_geometry){.struct_size = sizeof(weir_kv_geometry),
                              .type = type,
                              .layers = layers,
                              .kv_heads = heads,
                              .tokens = tokens,
                              .head_size = size};
}

static weir_kv_layout layout_of(const weir_kv_geometry *g)
{
    weir_kv_layout l = WEIR_INIT(weir_kv_layout);
    ok(weir_kv_layout_of(g, &l));
    return l;
}

static void known_models(void **state)
{
    (void)state;
    static const struct {
        weir_kv_geometry g;
        uint64_t elements, bytes;
    } table[] = {
        {{.type = WEIR_TYPE_F16, .layers = 24, .kv_heads = 2, .tokens = 16, .head_size = 64},
         4096,
         8 * 1024}, /* Qwen2.5-0.5B */
        {{.type = WEIR_TYPE_F16, .layers = 32, .kv_heads = 8, .tokens = 16, .head_size = 128},
         32768,
         64 * 1024}, /* Llama-3-8B */
        {{.type = WEIR_TYPE_F16, .layers = 32, .kv_heads = 32, .tokens = 16, .head_size = 128},
         131072,
         256 * 1024}, /* Llama-2-7B */
        {{.type = WEIR_TYPE_F16, .layers = 1, .kv_heads = 2, .tokens = 4, .head_size = 8}, 128, 256},
        {{.type = WEIR_TYPE_F32, .layers = 1, .kv_heads = 2, .tokens = 4, .head_size = 8}, 128, 512},
        {{.type = WEIR_TYPE_F8E4M3FN, .layers = 1, .kv_heads = 2, .tokens = 4, .head_size = 8}, 128, 128},
        {{.bits = 4, .layers = 1, .kv_heads = 2, .tokens = 4, .head_size = 8}, 128, 64},
        {{.bits = 6, .layers = 1, .kv_heads = 2, .tokens = 4, .head_size = 8}, 128, 96},
        /* 32 elements of 8 bits and a scale of 16 */
        {{.bits = 8, .row_bytes = 136, .layers = 1, .kv_heads = 8, .tokens = 16, .head_size = 128}, 32768, 34816},
        {{.type = WEIR_TYPE_BF16, .layers = 24, .layers_in_block = 24, .kv_heads = 2, .tokens = 16, .head_size = 64},
         98304,
         192 * 1024},
        {{.type = WEIR_TYPE_F16, .layers = 61, .planes = 1, .kv_heads = 1, .tokens = 64, .head_size = 576},
         36864,
         73728},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        weir_kv_geometry g = table[i].g;
        g.struct_size = sizeof g;
        weir_kv_layout l = layout_of(&g);
        assert_int_equal(l.elements, table[i].elements);
        assert_int_equal(l.bytes, table[i].bytes);
        assert_int_equal(l.layer, l.plane * l.geometry.planes);
        assert_int_equal(l.plane, l.head * g.kv_heads);
        assert_int_equal(l.head, l.token * g.tokens);
    }
}

static void bad_geometries_are_named(void **state)
{
    (void)state;
    weir_kv_geometry good = geometry(WEIR_TYPE_F16, 4, 2, 16, 64), g;
    weir_kv_layout l = WEIR_INIT(weir_kv_layout);
#define BAD(change, text)                                                                                              \
    g = good;                                                                                                          \
    change;                                                                                                            \
    fails(WEIR_ERR_INVALID, weir_kv_layout_of(&g, &l));                                                                \
    detail_names(text)
    BAD(g.struct_size = 0, "size");
    BAD(g.layers = 0, "layers");
    BAD(g.kv_heads = 0, "kv_heads");
    BAD(g.tokens = 0, "tokens");
    BAD(g.head_size = 0, "head_size");
    BAD(g.planes = 3, "planes");
    BAD(g.layers_in_block = 5, "5 layers");
    BAD(g.bits = 4, "either");
    BAD(g.type = WEIR_TYPE_NONE, "either");
    BAD(g.type = WEIR_TYPE_TEXT, "text");
    BAD(g.type = (weir_type)99, "99");
    BAD((g.type = WEIR_TYPE_NONE, g.bits = 3, g.head_size = 9), "whole bytes");
    BAD(g.row_bytes = 127, "128");
    BAD((g.kv_heads = UINT32_MAX, g.tokens = UINT32_MAX), "2^63");
    BAD((g.kv_heads = 1u << 28, g.tokens = 1u << 28), "2^63"); /* 2^56 rows of 2^7 bytes, twice */
    BAD((g.head_size = UINT32_MAX, g.tokens = UINT32_MAX), "2^63");
    BAD((g.layers = g.layers_in_block = UINT32_MAX, g.kv_heads = 1u << 30), "2^63");
    fails(WEIR_ERR_INVALID, weir_kv_layout_of(NULL, &l));
    fails(WEIR_ERR_INVALID, weir_kv_layout_of(&good, NULL));
    l.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_kv_layout_of(&good, &l));
    /* The largest that there is. */
    l.struct_size = sizeof l;
    g = geometry(WEIR_TYPE_U8, 1, 1u << 31, 1u << 29, 2);
    ok(weir_kv_layout_of(&g, &l));
    assert_true(l.bytes == (uint64_t)1 << 62);
    g.head_size = 4;
    fails(WEIR_ERR_INVALID, weir_kv_layout_of(&g, &l));
}

/* The smallest rows of elements that are not whole bytes. */
static void rows_have_room_for_their_elements(void **state)
{
    (void)state;
    for (uint32_t bits = 1; bits <= 17; bits++)
        for (uint32_t size = 1; size <= 9; size++) {
            weir_kv_geometry g = geometry(WEIR_TYPE_NONE, 1, 1, 1, size);
            weir_kv_layout l = WEIR_INIT(weir_kv_layout);
            uint32_t least = 0;
            g.bits = bits;
            while (8 * least < bits * size)
                least++;
            weir_status status = weir_kv_layout_of(&g, &l);
            check_status(status, 8 * least == bits * size ? WEIR_OK : WEIR_ERR_INVALID, "layout", __FILE__, __LINE__);
            assert_true(status != WEIR_OK || l.token == least);
            for (g.row_bytes = 1; g.row_bytes < least; g.row_bytes++)
                fails(WEIR_ERR_INVALID, weir_kv_layout_of(&g, &l));
            ok(weir_kv_layout_of(&g, &l));
            assert_int_equal(l.token, least);
        }
}

/* Every row of a pool lies somewhere else, inside its block, and no two overlap. */
static void every_row_has_its_place(weir_block_pool *pool, weir_kv_geometry g)
{
    weir_kv_layout l = layout_of(&g);
    weir_block_pool_view v = view_of(pool);
    uint32_t blocks = g.blocks_per_layer ? g.blocks_per_layer : v.count;
    uint8_t *seen = calloc(v.count, v.bytes);
    uint64_t rows = 0;
    ok(weir_kv_fits(pool, &l, NULL));
    for (uint32_t layer = 0; layer < g.layers; layer++)
        for (uint32_t block = 0; block < blocks; block++)
            for (uint32_t plane = 0; plane < l.geometry.planes; plane++)
                for (uint32_t head = 0; head < g.kv_heads; head++)
                    for (uint32_t token = 0; token < g.tokens; token++, rows++) {
                        void *p;
                        ok(weir_kv_address(pool, &l, layer, block, (weir_kv_plane)plane, head, token, &p));
                        uint32_t index = weir_kv_index(&l, layer, block);
                        uint64_t offset = weir_kv_offset(&l, layer, (weir_kv_plane)plane, head, token);
                        assert_ptr_equal(p, (char *)weir_block_pool_at(&v, index) + offset);
                        assert_true(index < v.count && offset + l.token <= l.bytes);
                        for (uint64_t i = 0; i < l.token; i++)
                            seen[index * v.bytes + offset + i]++;
                    }
    /* A shared block's row serves each layer that may have the block. */
    uint32_t each = g.blocks_per_layer ? 1 : (g.layers + l.geometry.layers_in_block - 1) / l.geometry.layers_in_block;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < v.count * v.bytes; i++) {
        assert_true(seen[i] == 0 || seen[i] <= each);
        bytes += seen[i];
    }
    assert_int_equal(bytes, rows * l.token);
    free(seen);
}

static void addresses(void **state)
{
    fixture *f = *state;
    weir_block_pool_options o = {.struct_size = sizeof o, .bytes = 1024, .count = 12};
    weir_block_pool *pool;
    ok(weir_block_pool_create(f->a, &o, &pool));
    weir_kv_geometry g = geometry(WEIR_TYPE_F16, 3, 2, 4, 8);
    every_row_has_its_place(pool, g); /* any block for any layer */
    g.blocks_per_layer = 4;
    every_row_has_its_place(pool, g);
    g.layers_in_block = 3;
    g.blocks_per_layer = 12;
    every_row_has_its_place(pool, g);
    g = geometry(WEIR_TYPE_F16, 5, 2, 4, 8);
    g.layers_in_block = 2;
    g.blocks_per_layer = 4;
    every_row_has_its_place(pool, g); /* 3 parts, the last of one layer */
    g = geometry(WEIR_TYPE_NONE, 2, 3, 5, 12);
    g.bits = 4;
    g.planes = 1;
    g.row_bytes = 8;
    every_row_has_its_place(pool, g);
    ok(weir_block_pool_destroy(pool));
}

static void what_fits_and_what_does_not(void **state)
{
    fixture *f = *state;
    weir_block_pool_options o = {.struct_size = sizeof o, .bytes = 8192, .count = 30};
    weir_block_pool *pool;
    uint64_t waste = 77;
    void *p = NULL;
    ok(weir_block_pool_create(f->a, &o, &pool));
    weir_kv_geometry qwen = geometry(WEIR_TYPE_F16, 24, 2, 16, 64), llama = geometry(WEIR_TYPE_F16, 32, 8, 16, 128);
    weir_kv_layout l = layout_of(&qwen);
    ok(weir_kv_fits(pool, &l, &waste));
    assert_int_equal(waste, 0);
    qwen.type = WEIR_TYPE_F8E5M2; /* another type shares the pool, at the price of half */
    l = layout_of(&qwen);
    ok(weir_kv_fits(pool, &l, &waste));
    assert_int_equal(waste, 4096);
    l = layout_of(&llama);
    fails(WEIR_ERR_UNSUPPORTED, weir_kv_fits(pool, &l, &waste));
    detail_names("8192");
    detail_names("65536");
    fails(WEIR_ERR_UNSUPPORTED, weir_kv_address(pool, &l, 0, 0, WEIR_KV_PLANE_KEYS, 0, 0, &p));
    qwen.blocks_per_layer = 2;
    l = layout_of(&qwen);
    fails(WEIR_ERR_UNSUPPORTED, weir_kv_fits(pool, &l, &waste));
    detail_names("48");
    assert_int_equal(waste, 4096);
    qwen.blocks_per_layer = 1;
    l = layout_of(&qwen);
    ok(weir_kv_address(pool, &l, 23, 0, WEIR_KV_PLANE_VALUES, 1, 15, &p));
    fails(WEIR_ERR_INVALID, weir_kv_address(pool, &l, 24, 0, WEIR_KV_PLANE_KEYS, 0, 0, &p));
    detail_names("layer 24");
    fails(WEIR_ERR_INVALID, weir_kv_address(pool, &l, 0, 1, WEIR_KV_PLANE_KEYS, 0, 0, &p));
    fails(WEIR_ERR_INVALID, weir_kv_address(pool, &l, 0, 0, (weir_kv_plane)2, 0, 0, &p));
    fails(WEIR_ERR_INVALID, weir_kv_address(pool, &l, 0, 0, WEIR_KV_PLANE_KEYS, 2, 0, &p));
    fails(WEIR_ERR_INVALID, weir_kv_address(pool, &l, 0, 0, WEIR_KV_PLANE_KEYS, 0, 16, &p));
    fails(WEIR_ERR_INVALID, weir_kv_address(pool, &l, 0, 0, WEIR_KV_PLANE_KEYS, 0, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_kv_fits(NULL, &l, &waste));
    fails(WEIR_ERR_INVALID, weir_kv_fits(pool, NULL, &waste));
    weir_kv_layout none = WEIR_INIT(weir_kv_layout);
    fails(WEIR_ERR_INVALID, weir_kv_fits(pool, &none, &waste));
    ok(weir_block_pool_destroy(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_models),
        cmocka_unit_test(bad_geometries_are_named),
        cmocka_unit_test(rows_have_room_for_their_elements),
        TEST(addresses),
        TEST(what_fits_and_what_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
