/* NVIDIA's devices on the bus: what is in the machine even where no library of NVIDIA's knows of it. */
#include "base/system.h"
#include <weir/select.h>
#include "factory/hardware/source.h"

#include <dirent.h>
#include <stdio.h>

enum { NVIDIA = 0x10de, DISPLAY_VGA = 0x0300, DISPLAY_3D = 0x0302 };

static void pci_look_at(const char *root, const char *address, wi_found *out)
{
    uint64_t vendor = 0, class = 0, id = 0;
    char text[WI_SYSFS_BYTES];
    if (!wi_sysfs_number(&vendor, "%s/sys/bus/pci/devices/%s/vendor", root, address) || vendor != NVIDIA ||
        !wi_sysfs_number(&class, "%s/sys/bus/pci/devices/%s/class", root, address) ||
        (class >> 8 != DISPLAY_VGA && class >> 8 != DISPLAY_3D))
        return;
    wi_card *card = wi_found_add(out, WEIR_HARDWARE_CUDA);
    if (!card)
        return;
    wi_sysfs_number(&id, "%s/sys/bus/pci/devices/%s/device", root, address);
    wi_pci_read(address, card->device.pci, sizeof card->device.pci);
    snprintf(card->device.key, sizeof card->device.key, "%s", card->device.pci);
    snprintf(card->device.name, sizeof card->device.name, "NVIDIA 0x%04x", (unsigned)id);
    card->device.discrete = true;
    card->bus_only = true;
    wi_sysfs_text(text, sizeof text, "%s/sys/bus/pci/devices/%s/uevent", root, address);
    const char *driver = wi_sysfs_line(text, "DRIVER=");
    snprintf(card->device.remark, sizeof card->device.remark,
             "neither NVML nor CUDA's driver names it; the kernel's driver for it is %.*s",
             driver ? (int)wi_min(strcspn(driver, "\n"), 40) : 4, driver ? driver : "none");
}

static void pci_ask(const char *root, void **kept, wi_found *out)
{
    (void)kept;
    char path[PATH_MAX];
    DIR *bus = snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root) < (int)sizeof path ? opendir(path) : NULL;
    for (struct dirent *entry; bus && (entry = readdir(bus));)
        if (entry->d_name[0] != '.')
            pci_look_at(root, entry->d_name, out);
    if (bus)
        closedir(bus);
    out->told = true;
}

const wi_source wi_source_pci = {"pci", pci_ask};
