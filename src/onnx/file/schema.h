/* The messages of ONNX (IR version 13 and before) as tables: the kind of each field, by field number. */
#ifndef WI_ONNX_FILE_SCHEMA_H
#define WI_ONNX_FILE_SCHEMA_H

#include <stdbool.h>
#include <stdint.h>

typedef enum onnx_kind {
    ONNX_ANY,    /* no field of this message */
    ONNX_VARINT, /* a number */
    ONNX_FIX32,
    ONNX_FIX64,
    ONNX_TEXT,
    ONNX_DATA,
    ONNX_MESSAGE,
} onnx_kind;

typedef enum onnx_message {
    ONNX_MODEL,
    ONNX_GRAPH,
    ONNX_NODE,
    ONNX_ATTRIBUTE,
    ONNX_TENSOR,
    ONNX_SEGMENT,
    ONNX_SPARSE,
    ONNX_ENTRY,
    ONNX_TYPE,
    ONNX_TYPE_TENSOR,
    ONNX_TYPE_SEQUENCE,
    ONNX_TYPE_MAP,
    ONNX_TYPE_OPAQUE,
    ONNX_TYPE_OPTIONAL,
    ONNX_SHAPE,
    ONNX_DIMENSION,
    ONNX_VALUE,
    ONNX_ANNOTATION,
    ONNX_OPSET,
    ONNX_TRAINING,
    ONNX_FUNCTION,
    ONNX_DEVICES,
    ONNX_NODE_DEVICES,
    ONNX_SHARDING,
    ONNX_INT_LIST,
    ONNX_SHARDED,
    ONNX_SIMPLE_SHARDED,
    ONNX_MESSAGE_COUNT
} onnx_message;

typedef struct onnx_schema_field {
    uint8_t kind; /* onnx_kind */
    bool repeated;
    uint8_t message; /* onnx_message, for ONNX_MESSAGE */
} onnx_schema_field;

enum { ONNX_SCHEMA_FIELDS = 27 };

extern const onnx_schema_field onnx_schema[ONNX_MESSAGE_COUNT][ONNX_SCHEMA_FIELDS];
extern const char *const onnx_schema_names[ONNX_MESSAGE_COUNT];

#endif
