/* What can be had of a device: not what it has, and not all of what is free. */
#include "base/options.h"
#include <weir/select.h>
#include "choice/context.h"
#include "runtime/runtime.h"

/* The margin that a runtime leaves by default, for what others on the machine may want. */
static uint64_t less_margin(uint64_t bytes)
{
    return bytes - wi_min(bytes, wi_max(bytes / 10, 512 * WI_MIB));
}

/* Where the process has a runtime, its budget decides, as far as the device can still give what is not held already. */
static uint64_t of_runtime(weir_runtime *runtime, uint64_t available)
{
    uint64_t idle, left = wi_ledger_left_for_another(&runtime->ledger, &idle);
    return available == WEIR_BYTES_UNKNOWN ? left : wi_min(left, idle + available);
}

/* Where it will have one, its budget is the option's, else what is free less the margin. */
static uint64_t of_device(const char *runtime, uint64_t available)
{
    uint64_t budget = 0;
    if (runtime[0] && wi_option_budget(runtime, &budget) == WEIR_OK && budget > 0)
        return wi_min(budget, available);
    return available == WEIR_BYTES_UNKNOWN ? available : less_margin(available);
}

static bool is_given(const wi_world *world, const weir_hardware_device *device, uint64_t *bytes)
{
    const weir_choice_options *options = &world->wish.options;
    for (size_t i = 0; i < options->obtainable_count; i++)
        if (options->obtainable[i].device && strcmp(options->obtainable[i].device, device->key) == 0) {
            *bytes = options->obtainable[i].bytes;
            return true;
        }
    return false;
}

static uint64_t of_one(const wi_world *world, const weir_hardware_device *device)
{
    uint64_t bytes;
    if (is_given(world, device, &bytes))
        return bytes;
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    weir_runtime *runtime = device->runtime[0] ? wi_runtime_there(device->runtime) : NULL;
    bytes = runtime ? of_runtime(runtime, device->free) : of_device(device->runtime, device->free);
    wi_detail_restore(&kept);
    return bytes;
}

/* Memory that is the processor's as well can be had once. */
uint64_t wi_obtainable(const wi_world *world, const weir_hardware_device *device)
{
    uint64_t bytes = of_one(world, device);
    if (device->shares_host && device->kind != WEIR_HARDWARE_CPU && world->processor)
        bytes = wi_min(bytes, of_one(world, world->processor));
    return bytes;
}
