/* Hostile manifests, steered by the compiler. */
#include "manifest/hostile.h"
#include <weir/engine.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Instead of looking into directories each time. */
const char *weir_engine_name_at(size_t index)
{
    (void)index;
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_text(data, size);
    return 0;
}
