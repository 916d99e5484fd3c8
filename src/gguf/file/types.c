/* types.c: the kinds of values and the types of tensors that GGUF version 3 knows, with their sizes. */
#include "gguf/file/file.h"

static const struct {
    const char *name;
    size_t bytes;
} kinds[WG_KIND_COUNT] = {
    [WG_U8] = {"u8", 1},     [WG_I8] = {"i8", 1},       [WG_U16] = {"u16", 2}, [WG_I16] = {"i16", 2},
    [WG_U32] = {"u32", 4},   [WG_I32] = {"i32", 4},     [WG_F32] = {"f32", 4}, [WG_BOOL] = {"bool", 1},
    [WG_TEXT] = {"text", 0}, [WG_ARRAY] = {"array", 0}, [WG_U64] = {"u64", 8}, [WG_I64] = {"i64", 8},
    [WG_F64] = {"f64", 8},
};

/* By the number of enum ggml_type; an element count of 0 is a number that was given up or never given. A test holds
 * these against the library's own. */
static const struct {
    uint16_t elements, bytes;
} blocks[] = {
    [0] = {1, 4},      [1] = {1, 2},      [2] = {32, 18},   [3] = {32, 20},    [6] = {32, 22},    [7] = {32, 24},
    [8] = {32, 34},    [9] = {32, 36},    [10] = {256, 84}, [11] = {256, 110}, [12] = {256, 144}, [13] = {256, 176},
    [14] = {256, 210}, [15] = {256, 292}, [16] = {256, 66}, [17] = {256, 74},  [18] = {256, 98},  [19] = {256, 50},
    [20] = {32, 18},   [21] = {256, 110}, [22] = {256, 82}, [23] = {256, 136}, [24] = {1, 1},     [25] = {1, 2},
    [26] = {1, 4},     [27] = {1, 8},     [28] = {1, 8},    [29] = {256, 56},  [30] = {1, 2},     [34] = {256, 54},
    [35] = {256, 66},  [39] = {32, 17},   [40] = {64, 36},  [41] = {128, 18},  [42] = {64, 18},
};

const char *wi_gguf_kind_name(uint32_t kind)
{
    return kind < WG_KIND_COUNT ? kinds[kind].name : "?";
}

size_t wi_gguf_kind_bytes(uint32_t kind)
{
    return kind < WG_KIND_COUNT ? kinds[kind].bytes : 0;
}

bool wi_gguf_type_block(uint32_t type, uint32_t *elements, uint32_t *bytes)
{
    if (type >= sizeof blocks / sizeof blocks[0] || blocks[type].elements == 0)
        return false;
    *elements = blocks[type].elements;
    *bytes = blocks[type].bytes;
    return true;
}
