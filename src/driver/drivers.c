/* Which driver a device's name means. */
#include "driver/driver.h"

#include <ctype.h>

static const wi_driver *const drivers[] = {&wi_host_driver, &wi_cuda_driver, &wi_sim_driver};

static weir_status no_device(const char *text)
{
    return weir_fail(WEIR_INVALID, "\"%.40s\" is no device; write host, or a driver and an ordinal such as cuda:0",
                     text);
}

weir_status wi_driver_find(const char *device, const wi_driver **driver, int *ordinal)
{
    if (!device)
        return weir_fail(WEIR_INVALID, "no device is named");
    size_t length = strcspn(device, ":");
    int number = 0;
    if (device[length] == ':') {
        const char *digit = device + length + 1;
        if (!isdigit((unsigned char)*digit) || strlen(digit) > 4)
            return no_device(device);
        for (; *digit; digit++) {
            if (!isdigit((unsigned char)*digit))
                return no_device(device);
            number = number * 10 + (*digit - '0');
        }
    }
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
        if (strncmp(drivers[i]->name, device, length) != 0 || drivers[i]->name[length] != '\0')
            continue;
        if (number >= drivers[i]->ordinals)
            return weir_fail(WEIR_NOT_FOUND, "there is no device %s; the driver %s has ordinals below %d", device,
                             drivers[i]->name, drivers[i]->ordinals);
        *driver = drivers[i];
        *ordinal = number;
        return WEIR_OK;
    }
    return no_device(device);
}
