/* weir/tensor.h: what goes into a model and comes out of it. */
#ifndef WEIR_TENSOR_H
#define WEIR_TENSOR_H

#include <weir/status.h>

WEIR_BEGIN

typedef enum weir_type {
    WEIR_TYPE_NONE = 0,
    WEIR_TYPE_F32 = 1,
    WEIR_TYPE_F64 = 2,
    WEIR_TYPE_F16 = 3,
    WEIR_TYPE_BF16 = 4,
    WEIR_TYPE_I8 = 5,
    WEIR_TYPE_I16 = 6,
    WEIR_TYPE_I32 = 7,
    WEIR_TYPE_I64 = 8,
    WEIR_TYPE_U8 = 9,
    WEIR_TYPE_U16 = 10,
    WEIR_TYPE_U32 = 11,
    WEIR_TYPE_U64 = 12,
    WEIR_TYPE_BOOL = 13,     /* one byte, 0 or 1 */
    WEIR_TYPE_F8E4M3FN = 14, /* one byte each, as ONNX defines them */
    WEIR_TYPE_F8E4M3FNUZ = 15,
    WEIR_TYPE_F8E5M2 = 16,
    WEIR_TYPE_F8E5M2FNUZ = 17,
    WEIR_TYPE_TEXT = 18, /* UTF-8; one dimension, in bytes; several texts are separated by newlines */
    WEIR_TYPE_COUNT
} weir_type;

/* "f32", "i64", "bool", "text" …; "?" for a number that is none. */
WEIR_API const char *weir_type_name(weir_type type);
/* Bytes of one element; 0 for a number that is none. */
WEIR_API size_t weir_type_bytes(weir_type type);

enum { WEIR_MAX_RANK = 16 };

/* A dense tensor in row-major order. Rank 0 is a scalar with one element; a dimension of 0 makes it empty (data may then
 * be NULL). In an array of tensors the first one's `struct_size` is the stride. */
typedef struct weir_tensor {
    size_t struct_size;
    const char *name;
    weir_type type;
    uint32_t rank;
    int64_t shape[WEIR_MAX_RANK];
    void *data; /* memory the CPU can address, unless: */
    size_t bytes;
    bool
        on_device; /* data is memory of the model's device. What an engine hands out so is complete at its return; it is freed
                       in the order of the engine's stream, so uses on others are declared (weir/uses.h) */
} weir_tensor;

/* Bytes a dense tensor of this type and shape takes. WEIR_ERR_INVALID for a negative dimension, a rank above WEIR_MAX_RANK, a
 * type that is none, or a product beyond SIZE_MAX. */
WEIR_API WEIR_NODISCARD weir_status weir_tensor_bytes(weir_type type, uint32_t rank, const int64_t *shape,
                                                      size_t *bytes);

WEIR_END
#endif
