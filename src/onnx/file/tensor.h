/* A tensor of an ONNX file: type and shape as declared, checked against the data. */
#ifndef WI_ONNX_FILE_TENSOR_H
#define WI_ONNX_FILE_TENSOR_H

#include <weir/base.h>

#include "onnx/file/file.h"

/* ONNX's element types, as TensorProto.data_type and ONNX Runtime number them. */
enum {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_UINT16 = 4,
    ONNX_INT16 = 5,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_STRING = 8,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_DOUBLE = 11,
    ONNX_UINT32 = 12,
    ONNX_UINT64 = 13,
    ONNX_COMPLEX64 = 14,
    ONNX_COMPLEX128 = 15,
    ONNX_BFLOAT16 = 16,
    ONNX_UINT4 = 21,
    ONNX_INT4 = 22,
    ONNX_UINT2 = 25,
    ONNX_INT2 = 26,
    ONNX_FLOAT6E2M3 = 27,
    ONNX_FLOAT6E3M2 = 28,
    ONNX_TYPE_COUNT = 29
};

/* "float16", "?" for a number that is none. */
const char *onnx_type_name(int32_t type);
/* Bits of one element; 0 for strings and unknown types. */
unsigned onnx_type_bits(int32_t type);
/* WEIR_TYPE_NONE for what weir's tensors do not carry. */
weir_type onnx_type_to_weir(int32_t type);
int32_t onnx_type_from_weir(weir_type type);

enum { ONNX_MAX_RANK = 32 };

typedef enum onnx_place {
    ONNX_PLACE_NONE,   /* no elements */
    ONNX_PLACE_BYTES,  /* `data`: the elements as they are in memory */
    ONNX_PLACE_TYPED,  /* a list of varints or texts, one for each element */
    ONNX_PLACE_BESIDE, /* in another file; `data` points into its mapping */
} onnx_place;

typedef struct onnx_tensor {
    onnx_text name;
    int32_t type;
    uint32_t rank;
    int64_t shape[ONNX_MAX_RANK];
    uint64_t elements, bytes;
    onnx_place place;
    const uint8_t *data;
    bool beside; /* said to be in another file; of one without elements that is not opened */
    const onnx_side_file *side;
    const uint8_t *begin, *end; /* the whole field in the list that holds it; set by the reader of the list */
    const uint8_t *maker; /* begin of the Constant node's field; NULL: no such node's; set by onnx_graph_read_inner */
    unsigned deep;        /* so many nodes have a graph around it; set by onnx_graph_read_inner */
    bool lifted;          /* moved into the main graph when the model is stripped (onnx_uses_lift) */
    bool stays;           /* ONNX Runtime has to have it itself (onnx_uses_mark) */
} onnx_tensor;

/* Reads a TensorProto whose wire format and schema were checked already. WEIR_ERR_CORRUPT or WEIR_ERR_UNSUPPORTED name
 * the tensor and the byte. */
weir_status onnx_tensor_read(onnx_file *file, const uint8_t *data, size_t size, onnx_tensor *out);

#endif
