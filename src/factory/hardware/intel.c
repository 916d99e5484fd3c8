/* Intel's GPUs (i915, xe) and NPUs, as the kernel shows them. Cards of others beside them, and those that are no device
 * of a bus (simple-framebuffer, vgem), are passed over. */
#include "base/system.h"
#include <weir/select.h>
#include "factory/hardware/source.h"

#include <stdio.h>

enum { INTEL = 0x8086 };
#define INTEGRATED "0000:00:02.0" /* where every processor of Intel's has its own graphics */

/* What a directory below /sys tells of the device behind it; false if that is not Intel's. */
static bool intel_read_device(const char *directory, wi_found *out, wi_card **card)
{
    uint64_t vendor = 0, id = 0;
    char text[WI_SYSFS_BYTES];
    if (!wi_sysfs_number(&vendor, "%s/device/vendor", directory) || vendor != INTEL)
        return false;
    *card = wi_found_add(out, WEIR_HARDWARE_INTEL);
    if (!*card)
        return false;
    weir_hardware_device *d = &(*card)->device;
    wi_sysfs_number(&id, "%s/device/device", directory);
    wi_sysfs_text(text, sizeof text, "%s/device/uevent", directory);
    const char *slot = wi_sysfs_line(text, "PCI_SLOT_NAME="), *driver = wi_sysfs_line(text, "DRIVER=");
    wi_pci_read(slot ? slot : "", d->pci, sizeof d->pci);
    snprintf(d->key, sizeof d->key, "%s", d->pci[0] ? d->pci : strrchr(directory, '/') + 1);
    snprintf(d->name, sizeof d->name, "0x%04x (%.*s)", (unsigned)id,
             driver ? (int)wi_min(strcspn(driver, "\n"), 40) : 0, driver ? driver : "");
    return true;
}

static void name_it(weir_hardware_device *d, const char *what)
{
    char text[sizeof d->name];
    snprintf(text, sizeof text, "%s", d->name);
    snprintf(d->name, sizeof d->name, "Intel %s %.100s", what, text);
}

static void intel_check_access(const char *root, const char *path, weir_hardware_device *d)
{
    d->usable = wi_can_open(root, path);
    if (!d->usable)
        snprintf(d->remark, sizeof d->remark,
                 "this process cannot open %s: the group render may, or it is not in the container", path);
}

/* xe tells the memory of a card by tiles; i915 tells nobody. */
static void intel_read_memory(const char *directory, weir_hardware_device *d)
{
    uint64_t total = 0, one;
    for (unsigned tile = 0; tile < 8; tile++)
        if (wi_sysfs_number(&one, "%s/device/tile%u/physical_vram_size_bytes", directory, tile))
            total += one;
    if (total > 0)
        d->total = total;
}

static void read_gpu(const char *root, unsigned number, int *ordinal, wi_found *out)
{
    char directory[PATH_MAX], render[40] = "/dev/dri";
    wi_card *card;
    unsigned minor;
    if (snprintf(directory, sizeof directory, "%s/sys/class/drm/card%u", root, number) >= (int)sizeof directory ||
        !intel_read_device(directory, out, &card))
        return;
    weir_hardware_device *d = &card->device;
    name_it(d, "GPU");
    d->ordinal = (*ordinal)++;
    d->discrete = strcmp(d->pci, INTEGRATED) != 0;
    d->shares_host = !d->discrete;
    if (d->discrete)
        intel_read_memory(directory, d);
    if (wi_numbered("renderD", &minor, 1, "%s/device/drm", directory) == 1)
        snprintf(render, sizeof render, "/dev/dri/renderD%u", minor);
    intel_check_access(root, render, d);
}

static void read_npu(const char *root, unsigned number, int *ordinal, wi_found *out)
{
    char directory[PATH_MAX], path[40];
    wi_card *card;
    if (snprintf(directory, sizeof directory, "%s/sys/class/accel/accel%u", root, number) >= (int)sizeof directory ||
        !intel_read_device(directory, out, &card))
        return;
    name_it(&card->device, "NPU");
    card->device.ordinal = (*ordinal)++;
    card->device.shares_host = true;
    snprintf(path, sizeof path, "/dev/accel/accel%u", number);
    intel_check_access(root, path, &card->device);
}

static void intel_ask(const char *root, void **kept, wi_found *out)
{
    (void)kept;
    unsigned numbers[WI_MOST_CARDS];
    int ordinal = 0;
    size_t cards = wi_numbered("card", numbers, WI_MOST_CARDS, "%s/sys/class/drm", root);
    for (size_t i = 0; i < cards; i++)
        read_gpu(root, numbers[i], &ordinal, out);
    size_t units = wi_numbered("accel", numbers, WI_MOST_CARDS, "%s/sys/class/accel", root);
    for (size_t i = 0; i < units; i++)
        read_npu(root, numbers[i], &ordinal, out);
    out->told = true;
}

const wi_source wi_source_intel = {"intel", intel_ask};
