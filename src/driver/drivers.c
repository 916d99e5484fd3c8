/* Which driver a device's name means. */
#include "driver/driver.h"

#include <ctype.h>

static const wi_driver *drivers[WI_DRIVERS] = {&wi_host_driver, &wi_cuda_driver}; /* then NULL, or what was added */

void wi_driver_add(const wi_driver *driver)
{
    size_t number = 0;
    while (number < WI_DRIVERS - 1 && drivers[number])
        number++;
    drivers[number] = driver;
}

static weir_status no_device(const char *text)
{
    return weir_fail(WEIR_ERR_INVALID, "\"%.40s\" is no device; write host, or a driver and an ordinal such as cuda:0",
                     text);
}

size_t wi_driver_number(const wi_driver *driver)
{
    size_t number = 0;
    while (number < WI_DRIVERS - 1 && drivers[number] != driver)
        number++;
    return number;
}

weir_status wi_driver_find(const char *device, const wi_driver **driver, int *ordinal)
{
    if (!device)
        return weir_fail(WEIR_ERR_INVALID, "no device is named");
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
    for (size_t i = 0; i < WI_DRIVERS && drivers[i]; i++) {
        if (strncmp(drivers[i]->name, device, length) != 0 || drivers[i]->name[length] != '\0')
            continue;
        if (number >= drivers[i]->ordinals)
            return weir_fail(WEIR_ERR_NOT_FOUND, "there is no device %s; the ordinals of %s go from 0 to %d", device,
                             drivers[i]->name, drivers[i]->ordinals - 1);
        *driver = drivers[i];
        *ordinal = number;
        return WEIR_OK;
    }
    return no_device(device);
}
