/* An ONNX Runtime of 1.21, as far as asking for its version goes. */
#include <stddef.h>
#include <stdint.h>

#include "onnxruntime/api.h"

static const ort_api *get_api(uint32_t version)
{
    (void)version;
    return NULL;
}

static const char *get_version(void)
{
    return "1.21.0";
}

__attribute__((visibility("default"))) const ort_base *OrtGetApiBase(void);
const ort_base *OrtGetApiBase(void)
{
    static const ort_base base = {get_api, get_version};
    return &base;
}
