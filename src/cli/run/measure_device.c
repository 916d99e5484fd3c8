/* See measure.h. */
#include "measure.h"

#include "cli/cuda_find.h"

typedef int result; /* types are cuda.h's */

bool measure_device_taken(weir_runtime *runtime, uint64_t *taken)
{
    result (*push)(void *context) = NULL;
    result (*pop)(void **context) = NULL;
    result (*info)(size_t * available, size_t * total) = NULL;
    const cuda_wanted wanted[] = {{"cuCtxPushCurrent", &push}, {"cuCtxPopCurrent", &pop}, {"cuMemGetInfo", &info}};
    size_t available = 0, total = 0;
    void *ignored;
    if (!cuda_find(wanted, sizeof wanted / sizeof wanted[0]) || push(weir_runtime_native(runtime)) != 0)
        return false;
    bool told = info(&available, &total) == 0;
    pop(&ignored);
    *taken = total - available;
    return told;
}
