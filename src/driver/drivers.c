/* Which driver a device's name means, and the memory that every driver can give. */
#include "driver/driver.h"

#include <ctype.h>

/* Then what was added, then NULL. What is in the list stays. */
static _Atomic(const wi_driver *) drivers[WI_DRIVERS] = {&wi_host_driver, &wi_cuda_driver};

static const wi_driver *driver_at(size_t number)
{
    return atomic_load_explicit(&drivers[number], memory_order_acquire);
}

void wi_driver_add(const wi_driver *driver)
{
    size_t number = 0;
    while (number < WI_DRIVERS - 1 && driver_at(number))
        number++;
    atomic_store_explicit(&drivers[number], driver, memory_order_release);
}

bool wi_driver_has(const char *name)
{
    size_t number = 0;
    while (number < WI_DRIVERS && driver_at(number) && strcmp(driver_at(number)->name, name) != 0)
        number++;
    return number < WI_DRIVERS && driver_at(number);
}

static weir_status no_device(const char *text)
{
    return weir_fail(WEIR_ERR_INVALID, "\"%.40s\" is no device; write host, or a driver and an ordinal such as cuda:0",
                     text);
}

size_t wi_driver_number(const wi_driver *driver)
{
    size_t number = 0;
    while (number < WI_DRIVERS - 1 && driver_at(number) != driver)
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
    for (size_t i = 0; i < WI_DRIVERS && driver_at(i); i++) {
        const wi_driver *d = driver_at(i);
        if (strncmp(d->name, device, length) != 0 || d->name[length] != '\0')
            continue;
        if (number >= d->ordinals)
            return weir_fail(WEIR_ERR_NOT_FOUND, "there is no device %s; the ordinals of %s go from 0 to %d", device,
                             d->name, d->ordinals - 1);
        *driver = d;
        *ordinal = number;
        return WEIR_OK;
    }
    return no_device(device);
}

weir_status wi_driver_copy_many(const wi_driver *driver, wi_device *device, const weir_driver_copy *copies,
                                size_t count, void *stream)
{
    weir_status status = WEIR_OK;
    if (driver->copy_many)
        return count > 0 ? driver->copy_many(device, copies, count, stream) : WEIR_OK;
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = driver->copy(device, copies[i].to, copies[i].from, copies[i].bytes, stream);
    return status;
}

weir_status wi_pageable_allocate(uint64_t bytes, void **address)
{
    enum { ALIGNMENT = 256 };
    if (posix_memalign(address, ALIGNMENT, bytes) != 0)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the C library has no %llu bytes of memory",
                         (unsigned long long)bytes);
    return WEIR_OK;
}
