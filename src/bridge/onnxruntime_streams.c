/* Streams that ONNX Runtime made itself. */
#include "bridge/onnxruntime.h"

weir_status wi_ort_follow(weir_onnxruntime *bridge, void *native, size_t bytes, void **out)
{
    *out = NULL;
    return weir_fail(WEIR_STREAM_MISUSE,
                     "%s: %zu bytes on stream %p, which weir does not know: give the session one of weir's as "
                     "user_compute_stream, and name it when the bridge is made",
                     bridge->name, bytes, native);
}
