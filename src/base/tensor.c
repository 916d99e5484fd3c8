/* Element types and dense sizes. */
#include "base/internal.h"

#include <weir/base.h>

static const struct {
    const char *name;
    size_t bytes;
} types[WEIR_TYPE_COUNT] = {
    [WEIR_TYPE_F32] = {"f32", 4},
    [WEIR_TYPE_F64] = {"f64", 8},
    [WEIR_TYPE_F16] = {"f16", 2},
    [WEIR_TYPE_BF16] = {"bf16", 2},
    [WEIR_TYPE_I8] = {"i8", 1},
    [WEIR_TYPE_I16] = {"i16", 2},
    [WEIR_TYPE_I32] = {"i32", 4},
    [WEIR_TYPE_I64] = {"i64", 8},
    [WEIR_TYPE_U8] = {"u8", 1},
    [WEIR_TYPE_U16] = {"u16", 2},
    [WEIR_TYPE_U32] = {"u32", 4},
    [WEIR_TYPE_U64] = {"u64", 8},
    [WEIR_TYPE_BOOL] = {"bool", 1},
    [WEIR_TYPE_F8E4M3FN] = {"f8e4m3fn", 1},
    [WEIR_TYPE_F8E4M3FNUZ] = {"f8e4m3fnuz", 1},
    [WEIR_TYPE_F8E5M2] = {"f8e5m2", 1},
    [WEIR_TYPE_F8E5M2FNUZ] = {"f8e5m2fnuz", 1},
    [WEIR_TYPE_TEXT] = {"text", 1},
};

const char *weir_type_name(weir_type type)
{
    return (unsigned)type < WEIR_TYPE_COUNT && types[type].name ? types[type].name : "?";
}

size_t weir_type_bytes(weir_type type)
{
    return (unsigned)type < WEIR_TYPE_COUNT ? types[type].bytes : 0;
}

weir_status weir_tensor_bytes(weir_type type, uint32_t rank, const int64_t *shape, size_t *bytes)
{
    if (weir_type_bytes(type) == 0)
        return weir_fail(WEIR_ERR_INVALID, "%d is no element type", (int)type);
    if (rank > WEIR_MAX_RANK || (rank > 0 && !shape) || !bytes)
        return weir_fail(WEIR_ERR_INVALID, "a rank of %u is more than %d, or a pointer is NULL", rank,
                         (int)WEIR_MAX_RANK);
    size_t total = weir_type_bytes(type);
    bool empty = false;
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return weir_fail(WEIR_ERR_INVALID, "dimension %u is %lld", i, (long long)shape[i]);
        empty |= shape[i] == 0;
        if (shape[i] > 0 && __builtin_mul_overflow(total, (uint64_t)shape[i], &total))
            return weir_fail(WEIR_ERR_INVALID, "the tensor is larger than any memory");
    }
    *bytes = empty ? 0 : total;
    return WEIR_OK;
}
