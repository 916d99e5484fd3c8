/* Element types. */
#include "base/values.h"

size_t wi_type_bytes(weir_type type)
{
    static const unsigned char bytes[WEIR_TYPE_COUNT] = {
        [WEIR_TYPE_F32] = 4,        [WEIR_TYPE_F64] = 8,      [WEIR_TYPE_F16] = 2,        [WEIR_TYPE_BF16] = 2,
        [WEIR_TYPE_I8] = 1,         [WEIR_TYPE_I16] = 2,      [WEIR_TYPE_I32] = 4,        [WEIR_TYPE_I64] = 8,
        [WEIR_TYPE_U8] = 1,         [WEIR_TYPE_U16] = 2,      [WEIR_TYPE_U32] = 4,        [WEIR_TYPE_U64] = 8,
        [WEIR_TYPE_BOOL] = 1,       [WEIR_TYPE_F8E4M3FN] = 1, [WEIR_TYPE_F8E4M3FNUZ] = 1, [WEIR_TYPE_F8E5M2] = 1,
        [WEIR_TYPE_F8E5M2FNUZ] = 1, [WEIR_TYPE_TEXT] = 1,
    };
    return (unsigned)type < WEIR_TYPE_COUNT ? bytes[type] : 0;
}
