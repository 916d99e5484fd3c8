/* run_devices.c: the devices that the models of a run were on. */
#include "cli/cli.h"
#include "run.h"

#include <inttypes.h>

void run_uses_device(run *all, weir_runtime *runtime)
{
    for (size_t i = 0; i < all->device_count; i++)
        if (all->devices[i].runtime == runtime)
            return;
    all->devices[all->device_count++] = (run_device){.runtime = runtime};
}

void run_close_devices(run *all)
{
    for (size_t i = 0; i < all->device_count; i++) {
        run_device *device = &all->devices[i];
        device->end = WEIR_INIT(weir_stats);
        device->budget = weir_runtime_budget(device->runtime);
        if (weir_snapshot(device->runtime, &device->end, NULL, 0, NULL) != WEIR_OK)
            cli_fail("%s", weir_detail());
        if (device->end.live == 0)
            continue;
        all->leaked = true;
        cli_fail("%" PRIu64 " bytes are still live on %s after everything was unloaded", device->end.live,
                 weir_runtime_device(device->runtime));
    }
    all->budget = all->devices[0].budget;
    all->end = all->devices[0].end;
}
