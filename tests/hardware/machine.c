#include "base/values.h"
#include "machine.h"
#include "test_places.h"
#include <weir/select.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

machine machine_make(const char *name)
{
    machine m;
    snprintf(m.root, sizeof m.root, "%s/machines/%s", built_folder, name);
    nftw(m.root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    machine_file(&m, "proc/self/cgroup", "0::/\n");
    return m;
}

/* A file of the machine, open for writing. */
static FILE *create(const machine *m, const char *path)
{
    char whole[1024];
    snprintf(whole, sizeof whole, "%s/%s", m->root, path);
    for (char *slash = whole + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(whole, 0777) != 0 && errno != EEXIST)
            fail_msg("%s: %s", whole, strerror(errno));
        *slash = '/';
    }
    unlink(whole); /* a library that is open must keep its bytes */
    FILE *file = fopen(whole, "we");
    if (!file)
        fail_msg("%s: %s", whole, strerror(errno));
    return file;
}

void machine_file(const machine *m, const char *path, const char *format, ...)
{
    FILE *file = create(m, path);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    assert_int_equal(fclose(file), 0);
}

void machine_host(const machine *m, uint64_t total, uint64_t free)
{
    machine_file(m, "proc/meminfo", "MemTotal:       %llu kB\nMemFree:  1 kB\nMemAvailable:   %llu kB\n",
                 (unsigned long long)(total >> 10), (unsigned long long)(free >> 10));
    machine_file(m, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU\nstepping\t: 1\n");
    machine_file(m, "sys/devices/system/cpu/online", "0-7\n");
}

/* A copy, as two files that are one would be one library to the loader. */
void machine_library(const machine *m, const char *stub, const char *directory, const char *name)
{
    char path[1024], bytes[1 << 14];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *in = fopen(built_path("stub/hardware/%s", stub), "re"), *out = create(m, path);
    assert_non_null(in);
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, got, out), got);
    assert_int_equal(fclose(out), 0);
    fclose(in);
}

void machine_libraries(const machine *m, int which, const char *directory, const char *gpus)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/gpus.txt", directory);
    machine_file(m, path, "%s", gpus);
    if (which & MACHINE_NVML)
        machine_library(m, "libnvml.so", directory, "libnvidia-ml.so.1");
    if (which & MACHINE_CUDA)
        machine_library(m, "libcuda.so", directory, "libcuda.so.1");
}

void machine_pci(const machine *m, const char *address, unsigned vendor, unsigned device, const char *driver)
{
    char path[256];
#define FILE_OF(name, ...)                                                                                             \
    (snprintf(path, sizeof path, "sys/bus/pci/devices/%s/" name, address), machine_file(m, path, __VA_ARGS__))
    FILE_OF("vendor", "0x%04x\n", vendor);
    FILE_OF("device", "0x%04x\n", device);
    FILE_OF("class", "0x030000\n");
    FILE_OF("uevent", "%s%s\nPCI_SLOT_NAME=%s\n", *driver ? "DRIVER=" : "", driver, address);
#undef FILE_OF
}

void machine_card(const machine *m, unsigned number, const char *address, unsigned vendor, unsigned device,
                  const char *driver)
{
    char path[256];
    machine_pci(m, address, vendor, device, driver);
    snprintf(path, sizeof path, "sys/bus/pci/devices/%s/drm/card%u/card%u-DP-1/status", address, number, number);
    machine_file(m, path, "connected\n");
    snprintf(path, sizeof path, "sys/bus/pci/devices/%s/drm/renderD%u/dev", address, 128 + number);
    machine_file(m, path, "226:%u\n", 128 + number);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

weir_hardware *machine_look(const machine *m, const weir_hardware_options *options)
{
    weir_hardware_options o = options ? *options : WEIR_INIT(weir_hardware_options);
    if (o.limit_ms == 0)
        o.limit_ms = 10000; /* so that a busy machine changes nothing */
    o.sysroot = m->root;
    weir_hardware *hardware = NULL;
    if (weir_hardware_create(&o, &hardware) != WEIR_OK)
        fail_msg("%s", weir_detail());
    return hardware;
}

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

static const char *bytes(uint64_t value, char *text, size_t capacity)
{
    if (value == WEIR_BYTES_UNKNOWN)
        return "?";
    snprintf(text, capacity, "%.4g", (double)value / (double)GIB);
    return text;
}

static void print_device(const weir_hardware_device *d, FILE *out)
{
    char total[32], free[32], version[3][48];
    fprintf(out, "%s %s %s %s %s %d %s %s %s%s%s %u %s %s/%s %s%s%s%s\n", weir_name_of(WEIR_NAMES_HARDWARE, d->kind),
            or_dash(d->key), or_dash(d->parent), or_dash(d->pci), or_dash(d->runtime), d->ordinal,
            bytes(d->total, total, sizeof total), bytes(d->free, free, sizeof free), d->shares_host ? "h" : "",
            d->discrete ? "d" : "", d->usable ? "u" : "-", d->units,
            d->capability.count ? wi_version_write(d->capability, version[0], 48) : "-",
            d->driver.count ? wi_version_write(d->driver, version[1], 48) : "-",
            d->driver_runtime.count ? wi_version_write(d->driver_runtime, version[2], 48) : "-", d->name,
            d->remark[0] ? " [" : "", d->remark, d->remark[0] ? "]" : "");
}

/* The lines of a look; to be freed. */
static char *print_devices(const weir_hardware *hardware)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    for (size_t i = 0; i < hardware->device_count; i++) {
        assert_int_equal(hardware->devices[i].struct_size, sizeof(weir_hardware_device));
        print_device(&hardware->devices[i], out);
    }
    fclose(out);
    return text;
}

void machine_expect_of(const weir_hardware *hardware, const char *lines)
{
    char *text = print_devices(hardware);
    assert_string_equal(text, lines);
    free(text);
}

void machine_expect(const machine *m, const weir_hardware_options *options, const char *lines)
{
    weir_hardware *hardware = machine_look(m, options);
    machine_expect_of(hardware, lines);
    weir_hardware_destroy(hardware);
}

void machine_expect_soon(const machine *m, const char *lines)
{
    bool same = false;
    for (int i = 0; i < 100 && !same; i++) {
        weir_hardware *hardware = machine_look(m, NULL);
        char *text = print_devices(hardware);
        same = strcmp(text, lines) == 0;
        free(text);
        weir_hardware_destroy(hardware);
        if (!same)
            usleep(100000);
    }
    if (!same)
        machine_expect(m, NULL, lines);
}

void machine_remarks(const weir_hardware *hardware, const char *part, int present)
{
    if ((strstr(hardware->remarks, part) != NULL) != (present != 0))
        fail_msg("\"%s\" is %s in: %s", part, present ? "not" : "", hardware->remarks);
}
