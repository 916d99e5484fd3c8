/* AMD's devices: what the kernel's compute driver (KFD) lists, with the memory that amdgpu tells.
 *
 * A card may be cut into partitions (DPX, QPX, CPX). Each is a node of KFD's, while the bus and amdgpu know the card
 * alone: the used bytes are told for the whole card, and with many kernels every node of a card has the card's
 * unique_id. Which partition a node is stands in the upper four bits of location_id, or with the first kernels that
 * could do it in place of the address's function (kfd_topology.c). */
#include "base/system.h"
#include <weir/select.h>
#include "factory/hardware/source.h"
#include "base/values.h"

#include <stdio.h>
#include <unistd.h>

enum { AMD = 0x1002, FIRST_RENDER = 128 };
#define NODES "/sys/class/kfd/kfd/topology/nodes"
#define BUS   "/sys/bus/pci/devices"

/* What a node of KFD's is besides a device. */
typedef struct part {
    unsigned node, number; /* the latter within its card */
    uint64_t id;           /* the kernel's own, which no two nodes have */
} part;

/* Processors with graphics, by the version of their instructions (decimal: major, then two digits each): their memory
 * is the host's, but for a part that firmware carves out. LLVM's AMDGPU usage page says which are such. */
static bool is_integrated(uint64_t target)
{
    static const uint32_t targets[] = {90002,  90009,  90012,  100103, 100303, 100305,
                                       100306, 110003, 110500, 110501, 110502, 110503};
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (targets[i] == target)
            return true;
    return false;
}

/* The memory of a card is its VRAM. On an integrated one amdgpu serves computing from the larger of the carved-out
 * part, which is not the host's any more, and of what it may borrow from the host (GTT). */
static void rocm_read_memory(const char *root, bool integrated, weir_hardware_device *d)
{
    uint64_t total = 0, used = 0, borrowed = 0;
    wi_sysfs_number(&total, "%s" BUS "/%s/mem_info_vram_total", root, d->pci);
    bool known = wi_sysfs_number(&used, "%s" BUS "/%s/mem_info_vram_used", root, d->pci);
    wi_sysfs_number(&borrowed, "%s" BUS "/%s/mem_info_gtt_total", root, d->pci);
    d->discrete = !integrated;
    if (integrated && borrowed > total) {
        d->shares_host = true;
        total = borrowed;
        known = wi_sysfs_number(&used, "%s" BUS "/%s/mem_info_gtt_used", root, d->pci);
    }
    if (total == 0)
        return;
    d->total = total;
    if (known)
        d->free = total - wi_min(used, total);
}

static void read_version(const char *root, const char *path, weir_version_number *out)
{
    char text[64];
    if (wi_sysfs_text(text, sizeof text, "%s%s", root, path) && wi_version_read(text, out) != WEIR_OK)
        out->count = 0;
}

static void rocm_write_name(const char *root, unsigned node, uint64_t target, weir_hardware_device *d)
{
    char name[64] = "", product[64] = "";
    wi_sysfs_text(product, sizeof product, "%s" BUS "/%s/product_name", root, d->pci);
    wi_sysfs_text(name, sizeof name, "%s" NODES "/%u/name", root, node);
    snprintf(d->name, sizeof d->name, "%s (gfx%u%x%x)",
             product[0] ? product
             : name[0]  ? name
                        : "AMD",
             (unsigned)(target / 10000), (unsigned)(target / 100 % 100), (unsigned)(target % 100));
}

/* Whether this process may open what computing goes through. */
static void rocm_check_access(const char *root, uint64_t minor, weir_hardware_device *d)
{
    char render[40];
    snprintf(render, sizeof render, "/dev/dri/renderD%u", (unsigned)minor);
    const char *closed = !wi_can_open(root, "/dev/kfd") ? "/dev/kfd" : !wi_can_open(root, render) ? render : NULL;
    d->usable = !closed;
    if (closed)
        snprintf(d->remark, sizeof d->remark,
                 "this process cannot open %s: the group render may, or it is not in the container", closed);
}

static bool is_on_the_bus(const char *root, const char *pci)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s" BUS "/%s", root, pci) < (int)sizeof path && access(path, F_OK) == 0;
}

/* The card's address, and which of its partitions the node is; 0 also where it is not partitioned. */
static unsigned read_place(const char *root, uint64_t location, uint64_t domain, char *pci, size_t capacity)
{
    unsigned bus = (unsigned)(location >> 8 & 0xff), device = (unsigned)(location >> 3 & 0x1f);
    unsigned function = (unsigned)(location & 7), partition = (unsigned)(location >> 28 & 0xf);
    wi_pci_write(pci, capacity, (unsigned)domain, bus, device, function);
    if (partition > 0 || function == 0 || is_on_the_bus(root, pci))
        return partition;
    wi_pci_write(pci, capacity, (unsigned)domain, bus, device, 0);
    return function;
}

static void rocm_read_node(const char *root, unsigned node, int *ordinal, wi_found *out, part *place)
{
    char text[WI_SYSFS_BYTES];
    uint64_t id = 0, location = 0, domain = 0, target = 0, simds = 0, cores = 0, minor = FIRST_RENDER, unique = 0;
    if (!wi_sysfs_number(&id, "%s" NODES "/%u/gpu_id", root, node) || id == 0)
        return; /* a processor, or not for this process */
    wi_sysfs_text(text, sizeof text, "%s" NODES "/%u/properties", root, node);
    wi_sysfs_field(text, "location_id ", &location);
    wi_sysfs_field(text, "domain ", &domain);
    wi_sysfs_field(text, "gfx_target_version ", &target);
    wi_sysfs_field(text, "cpu_cores_count ", &cores);
    wi_sysfs_field(text, "drm_render_minor ", &minor);
    wi_sysfs_field(text, "unique_id ", &unique);
    wi_card *card = wi_found_add(out, WEIR_HARDWARE_ROCM);
    if (!card)
        return;
    weir_hardware_device *d = &card->device;
    *place = (part){.node = node, .id = id, .number = read_place(root, location, domain, d->pci, sizeof d->pci)};
    if (unique)
        snprintf(d->key, sizeof d->key, "GPU-%016llx", (unsigned long long)unique);
    else
        snprintf(d->key, sizeof d->key, "%s", d->pci);
    uint64_t per_unit = 0;
    if (wi_sysfs_field(text, "simd_count ", &simds) && wi_sysfs_field(text, "simd_per_cu ", &per_unit) && per_unit)
        d->units = (uint32_t)(simds / per_unit);
    d->ordinal = (*ordinal)++;
    rocm_write_name(root, node, target, d);
    rocm_read_memory(root, cores > 0 || is_integrated(target), d);
    read_version(root, "/sys/module/amdgpu/version", &d->driver);
    read_version(root, "/opt/rocm/.info/version", &d->driver_runtime);
    rocm_check_access(root, minor, d);
}

/* Partitions ------------------------------------------------------------------------------------------------------- */

/* Whether another node is of the same card, or this one cannot be all of it. */
static bool is_partition(const wi_found *found, const part *parts, size_t one)
{
    bool shared = parts[one].number > 0;
    for (size_t i = 0; i < found->count; i++)
        shared = shared || (i != one && strcmp(found->cards[i].device.pci, found->cards[one].device.pci) == 0);
    return shared;
}

/* What KFD gives of the card's memory to the node alone. */
static uint64_t bank_bytes(const char *root, unsigned node)
{
    enum { PUBLIC = 1, PRIVATE = 2 };
    unsigned banks[WI_MOST_CARDS];
    uint64_t total = 0;
    size_t count = wi_numbered("", banks, WI_MOST_CARDS, "%s" NODES "/%u/mem_banks", root, node);
    for (size_t i = 0; i < count; i++) {
        char text[WI_SYSFS_BYTES];
        uint64_t heap = 0, bytes = 0;
        wi_sysfs_text(text, sizeof text, "%s" NODES "/%u/mem_banks/%u/properties", root, node, banks[i]);
        if (wi_sysfs_field(text, "heap_type ", &heap) && (heap == PUBLIC || heap == PRIVATE) &&
            wi_sysfs_field(text, "size_in_bytes ", &bytes))
            total += bytes;
    }
    return total;
}

/* Its part of the key: the number, or where nodes of one card have the same KFD's own number of the node. */
static void add_to_key(const wi_found *found, const part *parts, size_t one, weir_hardware_device *d)
{
    uint64_t number = parts[one].number;
    for (size_t i = 0; i < found->count; i++)
        if (i != one && parts[i].number == parts[one].number &&
            strcmp(found->cards[i].device.pci, found->cards[one].device.pci) == 0)
            number = parts[one].id;
    size_t used = strlen(d->key);
    snprintf(d->key + used, sizeof d->key - used, "/%llu", (unsigned long long)number);
}

/* Keys that tell one partition from another, and no partition with the memory of the card. */
static void tell_partitions_apart(const char *root, const part *parts, wi_found *out)
{
    bool of_a_card[WI_MOST_CARDS] = {false}, same_key[WI_MOST_CARDS] = {false};
    for (size_t i = 0; i < out->count; i++) {
        of_a_card[i] = is_partition(out, parts, i);
        same_key[i] = parts[i].number > 0 && strcmp(out->cards[i].device.key, out->cards[i].device.pci) == 0;
        for (size_t j = 0; j < out->count; j++)
            same_key[i] = same_key[i] || (i != j && strcmp(out->cards[i].device.key, out->cards[j].device.key) == 0);
    }
    for (size_t i = 0; i < out->count; i++) {
        weir_hardware_device *d = &out->cards[i].device;
        if (same_key[i])
            add_to_key(out, parts, i, d);
        if (!of_a_card[i])
            continue;
        uint64_t bytes = bank_bytes(root, parts[i].node);
        d->total = bytes ? bytes : WEIR_BYTES_UNKNOWN;
        d->free = WEIR_BYTES_UNKNOWN;
        if (!d->remark[0])
            snprintf(d->remark, sizeof d->remark,
                     "partition %u of the card at %s, of which the kernel tells used bytes as a whole alone",
                     parts[i].number, d->pci);
    }
}

/* Cards ------------------------------------------------------------------------------------------------------------ */

static bool has_address(const wi_found *found, const char *pci)
{
    for (size_t i = 0; i < found->count; i++)
        if (strcmp(found->cards[i].device.pci, pci) == 0)
            return true;
    return false;
}

/* Cards that amdgpu draws with and KFD does not list. */
static void read_card(const char *root, unsigned number, wi_found *out)
{
    uint64_t vendor = 0, id = 0;
    char text[WI_SYSFS_BYTES], pci[20] = "";
    if (!wi_sysfs_number(&vendor, "%s/sys/class/drm/card%u/device/vendor", root, number) || vendor != AMD)
        return;
    wi_sysfs_text(text, sizeof text, "%s/sys/class/drm/card%u/device/uevent", root, number);
    const char *slot = wi_sysfs_line(text, "PCI_SLOT_NAME=");
    wi_pci_read(slot ? slot : "", pci, sizeof pci);
    if (!pci[0] || has_address(out, pci))
        return;
    wi_card *card = wi_found_add(out, WEIR_HARDWARE_ROCM);
    if (!card)
        return;
    weir_hardware_device *d = &card->device;
    wi_sysfs_number(&id, "%s/sys/class/drm/card%u/device/device", root, number);
    snprintf(d->pci, sizeof d->pci, "%s", pci);
    snprintf(d->key, sizeof d->key, "%s", pci);
    snprintf(d->name, sizeof d->name, "AMD 0x%04x", (unsigned)id);
    rocm_read_memory(root, false, d);
    snprintf(d->remark, sizeof d->remark, "the kernel's compute driver (/dev/kfd) does not list it");
}

static void rocm_ask(const char *root, void **kept, wi_found *out)
{
    (void)kept;
    unsigned numbers[WI_MOST_CARDS];
    part parts[WI_MOST_CARDS + 1] = {{0}}; /* of the cards, and of the one that might come */
    int ordinal = 0;
    size_t count = wi_numbered("", numbers, WI_MOST_CARDS, "%s" NODES, root);
    for (size_t i = 0; i < count; i++)
        rocm_read_node(root, numbers[i], &ordinal, out, &parts[out->count]);
    tell_partitions_apart(root, parts, out);
    size_t cards = wi_numbered("card", numbers, WI_MOST_CARDS, "%s/sys/class/drm", root);
    for (size_t i = 0; i < cards; i++)
        read_card(root, numbers[i], out);
    out->told = true;
}

const wi_source wi_source_rocm = {"rocm", rocm_ask};
