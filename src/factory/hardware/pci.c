/* Devices that the PCI bus shows: NVIDIA's, also where no library of NVIDIA's knows of them, and AMD's and Intel's. weir
 * has no driver for AMD's and Intel's: a choice needs their names, their bytes, and whether this process may open them. */
#include "base/system.h"
#include "base/values.h"
#include <weir/select.h>
#include "factory/hardware/hardware.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

enum { NVIDIA = 0x10de, AMD = 0x1002, INTEL = 0x8086, DISPLAY_VGA = 0x0300, DISPLAY_3D = 0x0302 };
#define NODES "/sys/class/kfd/kfd/topology/nodes"

/* Returns the number of an entry of the device's directory `name` that is called `prefix` and a number; -1: none is. */
static int pci_number(const char *device, const char *name, const char *prefix)
{
    char path[PATH_MAX], behind;
    DIR *opened = snprintf(path, sizeof path, "%s/%s", device, name) < (int)sizeof path ? opendir(path) : NULL;
    int number = -1;
    size_t skip = strlen(prefix);
    for (struct dirent *entry; opened && number < 0 && (entry = readdir(opened));)
        if (strncmp(entry->d_name, prefix, skip) == 0 && sscanf(entry->d_name + skip, "%8d%c", &number, &behind) != 1)
            number = -1;
    if (opened)
        closedir(opened);
    return number;
}

/* Says whether the process may open the file that work goes through. */
static void pci_check_access(const char *root, const char *path, weir_hardware_device *d)
{
    char whole[PATH_MAX];
    d->usable =
        snprintf(whole, sizeof whole, "%s%s", root, path) < (int)sizeof whole && access(whole, R_OK | W_OK) == 0;
    if (!d->usable)
        snprintf(d->remark, sizeof d->remark,
                 "this process cannot open %s: the group render may, or it is not in the container", path);
}

/* AMD's ------------------------------------------------------------------------------------------------------------ */

/* Processors with graphics, by the version of their instructions (decimal: major, then two digits each): their memory
 * is the host's, but for a part that firmware carves out. LLVM's AMDGPU usage page says which are such. */
static bool pci_is_integrated(uint64_t target)
{
    static const uint32_t targets[] = {90002,  90009,  90012,  100103, 100303, 100305,
                                       100306, 110003, 110500, 110501, 110502, 110503};
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (targets[i] == target)
            return true;
    return false;
}

/* Reads the memory of a card, its VRAM. On an integrated one amdgpu serves computing from the larger of the carved-out
 * part, which is not the host's any more, and of what it may borrow from the host (GTT). */
static void pci_read_vram(const char *device, weir_hardware_device *d)
{
    uint64_t total = 0, used = 0, borrowed = 0;
    wi_sysfs_number(&total, "%s/mem_info_vram_total", device);
    wi_sysfs_number(&borrowed, "%s/mem_info_gtt_total", device);
    d->shares_host = !d->discrete && borrowed > total;
    total = d->shares_host ? borrowed : total;
    if (total > 0)
        d->total = total;
    if (wi_sysfs_number(&used, "%s/mem_info_%s_used", device, d->shares_host ? "gtt" : "vram") && total > 0)
        d->free = total - wi_min(used, total);
}

/* Says whether there is a node of that number. The kernel numbers them from 0 without gaps, also those that are not for this
 * process. */
static bool pci_is_node(const char *root, unsigned node)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s" NODES "/%u", root, node) < (int)sizeof path && access(path, F_OK) == 0;
}

/* Finds the card among the nodes of the kernel's compute driver (KFD), and reads the properties of the last of them;
 * returns their count: several are partitions of the card. */
static unsigned pci_find_nodes(const char *root, const char *pci, char properties[WI_SYSFS_BYTES])
{
    unsigned domain = 0, bus = 0, device = 0, found = 0;
    sscanf(pci, "%x:%x:%x", &domain, &bus, &device);
    properties[0] = '\0';
    for (unsigned node = 0; pci_is_node(root, node); node++) {
        char text[WI_SYSFS_BYTES];
        uint64_t id = 0, location = 0, its_domain = 0;
        if (!wi_sysfs_number(&id, "%s" NODES "/%u/gpu_id", root, node) || id == 0 ||
            !wi_sysfs_text(text, sizeof text, "%s" NODES "/%u/properties", root, node))
            continue;                                    /* it is a processor, or not for this process */
        wi_sysfs_field(text, "location_id ", &location); /* the function's 3 bits, the device's 5, the bus' 8 */
        wi_sysfs_field(text, "domain ", &its_domain);
        if (its_domain != domain || (location >> 3 & 0x1fff) != (bus << 5 | device))
            continue;
        found++;
        memcpy(properties, text, sizeof text);
    }
    return found;
}

static void pci_read_amd(const char *root, const char *device, const char *render, weir_hardware_device *d)
{
    char node[WI_SYSFS_BYTES], product[64];
    uint64_t target = 0, cores = 0, simds = 0, per_unit = 0;
    unsigned nodes = pci_find_nodes(root, d->pci, node);
    wi_sysfs_field(node, "gfx_target_version ", &target);
    wi_sysfs_field(node, "cpu_cores_count ", &cores);
    if (wi_sysfs_field(node, "simd_count ", &simds) && wi_sysfs_field(node, "simd_per_cu ", &per_unit) && per_unit)
        d->units = (uint32_t)(simds / per_unit);
    if (wi_sysfs_text(product, sizeof product, "%s/product_name", device))
        snprintf(d->name, sizeof d->name, "%s", product);
    d->discrete = cores == 0 && !pci_is_integrated(target);
    if (nodes <= 1)
        pci_read_vram(device, d);
    if (nodes == 0) {
        snprintf(d->remark, sizeof d->remark, "the kernel's compute driver (/dev/kfd) does not list it");
        d->ordinal = -1;
        return;
    }
    size_t used = strlen(d->name);
    snprintf(d->name + used, sizeof d->name - used, " (gfx%u%x%x)", (unsigned)(target / 10000),
             (unsigned)(target / 100 % 100), (unsigned)(target % 100));
    d->driver = wi_version_in(root, "/sys/module/amdgpu/version");
    d->driver_runtime = wi_version_in(root, "/opt/rocm/.info/version");
    pci_check_access(root, "/dev/kfd", d);
    if (d->usable)
        pci_check_access(root, render, d);
    if (d->usable && nodes > 1)
        snprintf(d->remark, sizeof d->remark, "it is cut into %u partitions, whose memory is not known", nodes);
}

/* Intel's ---------------------------------------------------------------------------------------------------------- */

/* Reads a GPU (i915, xe) or an NPU. xe tells the memory of a card by tiles; i915 tells nobody. */
static void pci_read_intel(const char *device, bool npu, weir_hardware_device *d)
{
    static const char integrated[] = "0000:00:02.0"; /* where every processor of Intel's has its own graphics */
    uint64_t total = 0, one;
    d->discrete = !npu && strcmp(d->pci, integrated) != 0;
    d->shares_host = !d->discrete;
    for (unsigned tile = 0; d->discrete && tile < 8; tile++)
        if (wi_sysfs_number(&one, "%s/tile%u/physical_vram_size_bytes", device, tile))
            total += one;
    if (total > 0)
        d->total = total;
}

/* The bus ---------------------------------------------------------------------------------------------------------- */

static wi_card *pci_add(weir_hardware_kind kind, const char *device, const char *maker, wi_found *out)
{
    uint64_t id = 0;
    wi_card *card = wi_found_add(out, kind);
    if (!card)
        return NULL;
    weir_hardware_device *d = &card->device;
    wi_sysfs_number(&id, "%s/device", device);
    wi_pci_read(strrchr(device, '/') + 1, d->pci, sizeof d->pci);
    snprintf(d->key, sizeof d->key, "%s", d->pci);
    snprintf(d->name, sizeof d->name, "%s 0x%04x", maker, (unsigned)id);
    return card;
}

static void pci_look_at_nvidias(const char *device, const char *driver, wi_found *out)
{
    uint64_t class = 0;
    wi_card *card = NULL;
    if (wi_sysfs_number(&class, "%s/class", device) && (class >> 8 == DISPLAY_VGA || class >> 8 == DISPLAY_3D))
        card = pci_add(WEIR_HARDWARE_CUDA, device, "NVIDIA", out);
    if (!card)
        return;
    card->device.discrete = true;
    card->bus_only = true;
    snprintf(card->device.remark, sizeof card->device.remark,
             "neither NVML nor CUDA's driver names it; the kernel's driver for it is %s", driver);
}

/* Those of AMD's and Intel's devices compute for which the kernel has a file. */
static void pci_look_at_others(const char *root, const char *device, const char *driver, bool amd, int *ordinal,
                               wi_found *out)
{
    char path[40] = "/dev/dri";
    int number = pci_number(device, "accel", "accel"), minor = pci_number(device, "drm", "renderD");
    bool npu = !amd && number >= 0;
    if (!npu && pci_number(device, "drm", "card") < 0)
        return;
    wi_card *card = amd ? pci_add(WEIR_HARDWARE_ROCM, device, "AMD", out)
                        : pci_add(WEIR_HARDWARE_INTEL, device, npu ? "Intel NPU" : "Intel GPU", out);
    if (!card)
        return;
    weir_hardware_device *d = &card->device;
    d->ordinal = *ordinal;
    if (npu || minor >= 0)
        snprintf(path, sizeof path, npu ? "/dev/accel/accel%d" : "/dev/dri/renderD%d", npu ? number : minor);
    if (amd) {
        pci_read_amd(root, device, path, d);
    } else {
        size_t used = strlen(d->name);
        snprintf(d->name + used, sizeof d->name - used, " (%s)", driver);
        pci_read_intel(device, npu, d);
        pci_check_access(root, path, d);
    }
    *ordinal += d->ordinal >= 0;
}

/* In the order of addresses, as the ordinals go. */
static void pci_ask(const char *root, void **record, wi_found *out)
{
    (void)record;
    char path[PATH_MAX], text[WI_SYSFS_BYTES];
    struct dirent **entries = NULL;
    int ordinals[2] = {0}, count = 0;
    if (snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root) < (int)sizeof path)
        count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        uint64_t vendor = 0;
        char driver[41] = "none";
        bool good =
            snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s", root, entries[i]->d_name) < (int)sizeof path;
        free(entries[i]);
        if (!good || !wi_sysfs_number(&vendor, "%s/vendor", path))
            continue;
        wi_sysfs_text(text, sizeof text, "%s/uevent", path);
        const char *line = wi_sysfs_line(text, "DRIVER=");
        if (line)
            snprintf(driver, sizeof driver, "%.*s", (int)strcspn(line, "\n"), line);
        if (vendor == NVIDIA)
            pci_look_at_nvidias(path, driver, out);
        else if (vendor == AMD || vendor == INTEL)
            pci_look_at_others(root, path, driver, vendor == AMD, &ordinals[vendor == AMD], out);
    }
    free(entries);
    out->told = true;
}

const wi_source wi_source_pci = {"pci", pci_ask};
