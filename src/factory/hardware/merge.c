#include "factory/hardware/hardware.h"
#include <weir/select.h>
#include "base/values.h"

#include <stdio.h>
#include <strings.h>

enum { MOST_ORDINALS = 64, NEEDED_CUDA = 12 }; /* of the driver cuda, and the CUDA from which on it works */

/* The same device -------------------------------------------------------------------------------------------------- */

static const char *uuid_of(const char *key)
{
    return strncasecmp(key, "GPU-", 4) == 0 || strncasecmp(key, "MIG-", 4) == 0 ? key + 4 : NULL;
}

static bool same_uuid(const weir_hardware_device *a, const weir_hardware_device *b)
{
    const char *x = uuid_of(a->key), *y = uuid_of(b->key);
    return x && y && strcasecmp(x, y) == 0;
}

/* By UUID; by address where one source tells no UUID. */
static bool merge_same(const weir_hardware_device *a, const weir_hardware_device *b)
{
    if (uuid_of(a->key) && uuid_of(b->key))
        return same_uuid(a, b);
    return a->pci[0] && strcmp(a->pci, b->pci) == 0;
}

static wi_card *merge_find(const wi_found *list, const weir_hardware_device *device)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->cards[i].device.kind == device->kind && merge_same(&list->cards[i].device, device))
            return &list->cards[i];
    return NULL;
}

/* What a second source knows beyond the first. */
static void merge_complete(weir_hardware_device *to, const weir_hardware_device *from)
{
    to->ordinal = from->ordinal;
    to->discrete = from->discrete;
    to->shares_host = from->shares_host;
    if (to->units == 0)
        to->units = from->units;
    if (to->total == WEIR_BYTES_UNKNOWN)
        to->total = from->total;
    if (to->capability.count == 0)
        to->capability = from->capability;
    if (to->driver.count == 0)
        to->driver = from->driver;
    if (to->driver_runtime.count == 0)
        to->driver_runtime = from->driver_runtime;
    if (!to->pci[0])
        memcpy(to->pci, from->pci, sizeof to->pci);
    if (!to->name[0])
        memcpy(to->name, from->name, sizeof to->name);
}

static bool merge_add(wi_found *list, const wi_card *card)
{
    wi_card *room = wi_found_add(list, card->device.kind);
    if (room)
        *room = *card;
    return room != NULL;
}

/* NVIDIA's --------------------------------------------------------------------------------------------------------- */

/* CUDA's driver alone gives a slice the name of one, and the key of a whole device. */
static bool is_slice(const weir_hardware_device *of_cuda)
{
    return strstr(of_cuda->name, " MIG ") != NULL;
}

static void mark_slice(wi_card *card, const wi_card *whole)
{
    weir_hardware_device *d = &card->device;
    if (strncmp(d->key, "GPU-", 4) == 0)
        memcpy(d->key, "MIG-", 4);
    if (!whole)
        return;
    memcpy(d->parent, whole->device.key, sizeof d->parent);
    wi_card_remark(card, "CUDA's driver does not say which of NVML's slices it is");
}

/* The device that a slice is cut from: a driver that gives slices no UUID gives them that one's (before CUDA 11.4), or
 * none. */
static wi_card *find_whole(const wi_found *list, const weir_hardware_device *of_cuda)
{
    wi_card *whole = merge_find(list, of_cuda);
    for (size_t i = 0; whole && !whole->sliced && i < list->count; i++)
        if (list->cards[i].sliced && strcmp(list->cards[i].device.pci, whole->device.pci) == 0)
            whole = &list->cards[i];
    return whole && whole->sliced ? whole : NULL;
}

/* Returns the only slice of the whole device whose number of processors matches, as far as known; NULL: none, or
 * several. */
static wi_card *only_slice(const wi_found *list, const wi_card *whole, const weir_hardware_device *of_cuda)
{
    wi_card *found = NULL;
    for (size_t i = 0; whole && i < list->count; i++) {
        const weir_hardware_device *d = &list->cards[i].device;
        if (strcmp(d->parent, whole->device.key) != 0 || (d->units && of_cuda->units && d->units != of_cuda->units))
            continue;
        if (found)
            return NULL;
        found = &list->cards[i];
    }
    return found;
}

/* Finds CUDA's device in NVML's list (`list` has no device of CUDA's own). A slice is never matched with the whole
 * device that it is cut from, whose bytes it does not have, however alike keys and addresses are; nor with another
 * slice of CUDA's. */
static wi_card *find_known(const wi_found *list, const weir_hardware_device *of_cuda)
{
    for (size_t i = 0; i < list->count; i++)
        if (!list->cards[i].sliced && same_uuid(&list->cards[i].device, of_cuda))
            return &list->cards[i];
    return is_slice(of_cuda) ? only_slice(list, find_whole(list, of_cuda), of_cuda) : merge_find(list, of_cuda);
}

/* Before CUDA 11.4 all slices of a device have the device's UUID: adds the ordinal to a key that is in the list
 * already. */
static void tell_apart(const wi_found *list, wi_card *card)
{
    size_t length = strlen(card->device.key);
    for (const wi_card *one = list->cards; one != card; one++)
        if (strcmp(one->device.key, card->device.key) == 0) {
            snprintf(card->device.key + length, sizeof card->device.key - length, "/%d", (int)card->device.ordinal);
            return;
        }
}

static bool add_unknown(wi_found *list, const wi_card *of_cuda)
{
    const wi_card *whole = is_slice(&of_cuda->device) ? find_whole(list, &of_cuda->device) : NULL;
    wi_card parent = whole ? *whole : (wi_card){.sliced = false};
    if (!merge_add(list, of_cuda))
        return false;
    if (is_slice(&of_cuda->device))
        mark_slice(&list->cards[list->count - 1], whole ? &parent : NULL);
    tell_apart(list, &list->cards[list->count - 1]);
    return true;
}

/* Adds the bus's devices that no other source has named: NVIDIA's, or the others'. */
static bool gather_of_bus(const wi_found *bus, bool of_cuda, wi_found *list)
{
    bool good = true;
    for (size_t i = 0; i < bus->count; i++)
        if ((bus->cards[i].device.kind == WEIR_HARDWARE_CUDA) == of_cuda && !merge_find(list, &bus->cards[i].device))
            good = merge_add(list, &bus->cards[i]) && good;
    return good;
}

static bool gather_cuda(const wi_answer answers[WI_SOURCES], wi_found *list)
{
    const wi_found *nvml = &answers[WI_SOURCE_NVML].found, *cuda = &answers[WI_SOURCE_CUDA].found;
    bool good = true;
    for (size_t i = 0; i < nvml->count; i++)
        good = merge_add(list, &nvml->cards[i]) && good;
    const size_t told = list->count;
    for (size_t i = 0; i < cuda->count; i++) {
        const wi_found of_nvml = {.cards = list->cards, .count = told};
        wi_card *known = find_known(&of_nvml, &cuda->cards[i].device);
        if (known)
            merge_complete(&known->device, &cuda->cards[i].device);
        else
            good = add_unknown(list, &cuda->cards[i]) && good;
    }
    return gather_of_bus(&answers[WI_SOURCE_PCI].found, true, list) && good;
}

/* What follows from an ordinal. */
static void finish_cuda(wi_card *card)
{
    weir_hardware_device *d = &card->device;
    weir_version_number needed = {{NEEDED_CUDA}, 1};
    d->usable = d->ordinal >= 0;
    if (!d->usable)
        return;
    if (d->driver_runtime.count > 0 && wi_version_compare(d->driver_runtime, needed) < 0)
        wi_card_remark(card, "its driver serves CUDA %u.%u; weir's driver cuda needs one that serves %d or later",
                       d->driver_runtime.part[0], d->driver_runtime.part[1], NEEDED_CUDA);
    else if (d->ordinal < MOST_ORDINALS)
        snprintf(d->runtime, sizeof d->runtime, "cuda:%d", d->ordinal);
    if (d->total == WEIR_BYTES_UNKNOWN && !d->shares_host)
        wi_card_remark(card, "nobody tells its memory");
    else if (d->free == WEIR_BYTES_UNKNOWN && !d->shares_host)
        wi_card_remark(card, "without NVML its free bytes cannot be told without a context");
}

/* All -------------------------------------------------------------------------------------------------------------- */

/* Memory that is the processor's has no more bytes, nor more of them free, than that. */
static void share_host(const weir_hardware_device *host, weir_hardware_device *d)
{
    if (!d->shares_host || host->total == WEIR_BYTES_UNKNOWN)
        return;
    d->total = wi_min(d->total, host->total); /* what is not known is the largest number */
    d->free = wi_min(d->free, wi_min(host->free, d->total));
}

/* The processor's memory has the limits of its own. */
void wi_card_limit(wi_card *card)
{
    weir_hardware_device *d = &card->device;
    const wi_device_limits *l = &card->limits;
    char most[24], kept[24], guaranteed[64] = "";
    if (d->shares_host || (l->most >= d->total && l->guaranteed == 0))
        return;
    if (l->guaranteed > 0)
        snprintf(guaranteed, sizeof guaranteed, ", and is guaranteed %s",
                 weir_size_format(l->guaranteed, kept, sizeof kept));
    wi_card_remark(card, "this process's cgroup may have %s of its memory%s",
                   l->most < d->total ? weir_size_format(l->most, most, sizeof most) : "all", guaranteed);
    if (d->total != WEIR_BYTES_UNKNOWN)
        d->total = wi_min(d->total, l->most);
    if (d->free != WEIR_BYTES_UNKNOWN)
        d->free = wi_min(d->free, l->left);
}

static int merge_in_order(const void *a, const void *b)
{
    const weir_hardware_device *x = &((const wi_card *)a)->device, *y = &((const wi_card *)b)->device;
    bool hidden_x = x->ordinal < 0, hidden_y = y->ordinal < 0;
    int result = hidden_x - hidden_y;
    if (result == 0)
        result = (x->kind > y->kind) - (x->kind < y->kind);
    if (result == 0)
        result = (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
    if (result == 0)
        result = strcmp(x->pci, y->pci);
    return result ? result : strcmp(x->key, y->key);
}

bool wi_merge(const wi_answer answers[WI_SOURCES], const wi_visibility *visibility, wi_found *out)
{
    bool good = gather_cuda(answers, out);
    if (out->count > 1)
        wi_number_cuda(&answers[WI_SOURCE_CUDA], visibility, out->cards + 1, out->count - 1);
    for (size_t i = 1; i < out->count; i++)
        finish_cuda(&out->cards[i]);
    good = gather_of_bus(&answers[WI_SOURCE_PCI].found, false, out) && good;
    for (size_t i = 1; i < out->count; i++)
        share_host(&out->cards[0].device, &out->cards[i].device);
    qsort(out->cards, out->count, sizeof *out->cards, merge_in_order);
    return good;
}
