/* A libcuda.so.1 that tells of the devices in gpus.txt, as CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER let it. It has no
 * function that makes a context. */
#include "stub.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, INVALID_DEVICE = 101, NO_DEVICE = 100 };

static stub_machine machine;
static const stub_gpu *shown[STUB_MOST];
static int count;

static int by_rank(const void *a, const void *b)
{
    return (*(const stub_gpu *const *)a)->rank - (*(const stub_gpu *const *)b)->rank;
}

static bool several(void)
{
    return atoi(machine.driver) >= 570;
}

/* The first slice of a device that has some, else the device. */
static const stub_gpu *used(const stub_gpu *gpu)
{
    for (int i = 0; i < machine.count; i++)
        if (machine.gpus[i].parent == gpu - machine.gpus)
            return &machine.gpus[i];
    return gpu;
}

/* By its beginning, or by more than all of it. */
static bool is_named(const char *uuid, const char *word, size_t length)
{
    for (size_t i = 0; i < length && uuid[i]; i++)
        if (i < 4 ? uuid[i] != word[i] : tolower((unsigned char)uuid[i]) != tolower((unsigned char)word[i]))
            return false;
    return true;
}

static const stub_gpu *named(const char *word)
{
    const stub_gpu *found = NULL;
    size_t length = strcspn(word, " ");
    for (int i = 0; i < machine.count && length > 4; i++)
        if (is_named(machine.gpus[i].uuid, word, length)) {
            if (found)
                return NULL;
            found = &machine.gpus[i];
        }
    return found;
}

/* Of the slices of a GPU instance only the first. */
static void show(const stub_gpu *gpu)
{
    for (int i = 0; i < count; i++)
        if (gpu->parent >= 0 && shown[i]->parent == gpu->parent && shown[i]->instance == gpu->instance)
            return;
    shown[count++] = gpu;
}

static void show_all_of(const stub_gpu *gpu)
{
    for (int i = 0; i < machine.count; i++)
        if (machine.gpus[i].parent == gpu - machine.gpus)
            show(&machine.gpus[i]);
    if (used(gpu) == gpu)
        show(gpu);
}

/* The kind of the first word is the kind of all. */
static void pick(const char *list, const stub_gpu **all, int known)
{
    char text[1024];
    const stub_gpu *named_so_far[STUB_MOST];
    int words = 0;
    snprintf(text, sizeof text, "%s,", list);
    bool uuids = strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0;
    for (char *word = text, *end; (end = strchr(word, ',')) != NULL; word = end + 1) {
        *end = '\0';
        char *rest;
        long number = strtol(word, &rest, 10);
        const stub_gpu *gpu = NULL;
        if (uuids)
            gpu = strchr(word, '-') ? named(word) : NULL;
        else if (rest > word && number >= 0 && number < known)
            gpu = all[number];
        if (!gpu)
            break;
        for (int i = 0; i < words; i++)
            if (named_so_far[i] == gpu)
                return;
        named_so_far[words++] = gpu;
    }
    for (int i = 0; i < words; i++)
        show(used(named_so_far[i]));
}

API int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    const stub_gpu *all[STUB_MOST];
    int known = 0;
    stub_read(&machine, (void (*)(void))cuInit);
    stub_sleep(machine.sleep_cuda);
    if (machine.fail_cuda)
        return machine.fail_cuda;
    for (int i = 0; i < machine.count; i++)
        if (machine.gpus[i].parent < 0 && !stub_flag(&machine.gpus[i], "cuda") && !stub_flag(&machine.gpus[i], "lost"))
            all[known++] = &machine.gpus[i];
    const char *order = getenv("CUDA_DEVICE_ORDER"), *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!order || strcmp(order, "PCI_BUS_ID") != 0)
        qsort(all, (size_t)known, sizeof all[0], by_rank);
    count = 0;
    if (list)
        pick(list, all, known);
    else
        for (int i = 0; i < known; i++)
            show_all_of(all[i]);
    for (int i = 0; i < count; i++)
        if (shown[i]->parent >= 0 && !several()) { /* one slice, and nothing else */
            shown[0] = shown[i];
            count = 1;
        }
    return count ? OK : NO_DEVICE;
}

API int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = machine.cuda;
    return OK;
}

API int cuGetErrorName(int error, const char **text);
int cuGetErrorName(int error, const char **text)
{
    *text = error == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_UNKNOWN";
    return OK;
}

API int cuDeviceGetCount(int *out);
int cuDeviceGetCount(int *out)
{
    *out = count;
    return OK;
}

API int cuDeviceGet(int *device, int ordinal);
int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < count ? OK : INVALID_DEVICE;
}

API int cuDeviceGetName(char *text, int capacity, int device);
int cuDeviceGetName(char *text, int capacity, int device)
{
    snprintf(text, (size_t)capacity, "%s", shown[device]->name);
    return OK;
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = shown[device]->total;
    return OK;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const stub_gpu *gpu = shown[device];
    *value = attribute == 16   ? (int)gpu->units
             : attribute == 18 ? stub_flag(gpu, "integrated")
             : attribute == 75 ? gpu->major
             : attribute == 76 ? gpu->minor
                               : 0;
    return OK;
}

/* Before CUDA 11.4 there is a first form alone, in which a slice has its device's. */
#ifdef STUB_OLD
#define UUID_FUNCTION cuDeviceGetUuid
#else
#define UUID_FUNCTION cuDeviceGetUuid_v2
#endif
API int UUID_FUNCTION(unsigned char *uuid, int device);
int UUID_FUNCTION(unsigned char *uuid, int device)
{
    const stub_gpu *gpu = shown[device];
#ifdef STUB_OLD
    gpu = gpu->parent < 0 ? gpu : &machine.gpus[gpu->parent];
#endif
    if (stub_flag(gpu, "anonymous"))
        return INVALID_DEVICE;
    const char *p = gpu->uuid + 4; /* behind GPU- or MIG- */
    for (int i = 0; i < 16; i++, p += 2) {
        char digits[3] = {0};
        p += *p == '-';
        memcpy(digits, p, 2);
        uuid[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return OK;
}

API int cuDeviceGetPCIBusId(char *text, int capacity, int device);
int cuDeviceGetPCIBusId(char *text, int capacity, int device)
{
    snprintf(text, (size_t)capacity, "%s", shown[device]->pci);
    return OK;
}
