/* Which ordinals CUDA gives to its devices in this process: as the driver says, and until the driver has answered, by
 * CUDA's rules.
 *
 * The rules: devices are counted by their addresses (CUDA_DEVICE_ORDER=PCI_BUS_ID) or the fastest first, and then
 * CUDA_VISIBLE_DEVICES picks some. CUDA does not say which device it finds fastest: among different devices the order
 * is a guess, by capability and memory. Of a sliced device a process sees slices (NVIDIA's MIG User Guide, CUDA Device
 * Enumeration): from driver 570 on a slice of every GPU instance, beside other devices; before, a single slice and no
 * other device. The guide does not say for which slices a number in the list stands: taken is the first slice, which is
 * a guess from 570 on. */
#include "factory/hardware/hardware.h"
#include <weir/select.h>
#include "base/values.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

void wi_card_remark(wi_card *card, const char *format, ...)
{
    if (card->device.remark[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(card->device.remark, sizeof card->device.remark, format, arguments);
    va_end(arguments);
    wi_one_line(card->device.remark);
}

/* CUDA_VISIBLE_DEVICES ---------------------------------------------------------------------------------------------- */

/* The list has numbers and UUIDs between commas, of which the first that is neither ends it. A number may have text
 * behind it ("1gpu"); a UUID is the beginning of just one device's, or more than all of it; " GPU-…" and "gpu-…" end the
 * list. Entries of the first one's kind count alone. Nothing is visible by "", nor where a device is named twice. All
 * this is of NVIDIA's CUDA Programming Guide, and where that is silent of what driver 580 made of 86 lists on a machine
 * with one H200 (tests/hardware/gpu.c asks whatever driver there is). */

#define NONE SIZE_MAX

typedef struct entry {
    const char *text;
    size_t length;
    bool uuid;
} entry;

/* Returns the entry at `list`, without the blanks around it. */
static entry numbering_entry_at(const char *list)
{
    size_t blanks = strspn(list, " \t");
    entry e = {.text = list + blanks, .length = strcspn(list + blanks, ",")};
    while (e.length > 0 && isspace((unsigned char)e.text[e.length - 1]))
        e.length--;
    e.uuid = blanks == 0 && e.length >= 4 && (strncmp(e.text, "GPU-", 4) == 0 || strncmp(e.text, "MIG-", 4) == 0);
    return e;
}

static size_t numbering_by_number(entry e, size_t counted)
{
    size_t at = (*e.text == '+' || *e.text == '-') && e.length > 0, first = at, number = 0;
    for (; at < e.length && isdigit((unsigned char)e.text[at]) && number < counted; at++)
        number = number * 10 + (size_t)(e.text[at] - '0');
    return at == first || number >= counted || (*e.text == '-' && number > 0) ? NONE : number;
}

/* Returns the only key that begins like the entry; text behind a whole key is ignored. */
static size_t numbering_by_key(entry e, const char *const *keys, size_t count)
{
    size_t found = NONE;
    for (size_t i = 0; i < count; i++) {
        size_t length = wi_min(e.length, strlen(keys[i]));
        if (length <= 4 || strncasecmp(keys[i], e.text, length) != 0)
            continue;
        if (found != NONE)
            return NONE;
        found = i;
    }
    return found;
}

/* Writes the numbers of the devices that the list names into seen[], in its order; returns their count. A number in the
 * list counts among the first `counted` keys, a UUID is looked for among all `count`. NULL: the counted ones. */
static size_t numbering_read_list(const char *list, const char *const *keys, size_t counted, size_t count, size_t *seen)
{
    size_t found = 0;
    bool first_is_uuid = list && numbering_entry_at(list).uuid;
    for (; !list && found < counted; found++)
        seen[found] = found;
    while (list) {
        entry e = numbering_entry_at(list);
        if (e.uuid != first_is_uuid)
            break;
        size_t one = e.uuid ? numbering_by_key(e, keys, count) : numbering_by_number(e, counted);
        for (size_t i = 0; i < found; i++)
            if (seen[i] == one)
                return 0;
        if (one == NONE)
            break;
        seen[found++] = one;
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return found;
}

/* The devices -------------------------------------------------------------------------------------------------------- */

enum { SEVERAL_SLICES_FROM = 570 };

typedef struct order {
    const wi_card *cards;
    bool by_driver, fastest;
} order;

/* Whether the driver shows a process more than one slice. */
static bool shows_several(const wi_card *cards, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (cards[i].device.driver.count > 0)
            return cards[i].device.driver.part[0] >= SEVERAL_SLICES_FROM;
    return false;
}

static bool same_instance(const wi_card *a, const wi_card *b)
{
    return a->device.parent[0] && strcmp(a->device.parent, b->device.parent) == 0 && a->instance == b->instance;
}

static int compare_cards(const wi_card *a, const wi_card *b, const order *o)
{
    const weir_hardware_device *x = &a->device, *y = &b->device;
    int result = o->by_driver ? (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal) : 0;
    if (result == 0 && o->fastest && (result = wi_version_compare(y->capability, x->capability)) == 0 &&
        x->total != WEIR_BYTES_UNKNOWN && y->total != WEIR_BYTES_UNKNOWN)
        result = (y->total > x->total) - (y->total < x->total);
    return result ? result : strcmp(x->pci, y->pci);
}

/* Numbers of the whole devices that CUDA counts, in its order. */
static size_t count_whole(const order *o, const wi_card *cards, size_t count, size_t *whole)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (cards[i].device.parent[0] || cards[i].bus_only || (o->by_driver && cards[i].device.ordinal < 0))
            continue;
        size_t at = found++;
        for (; at > 0 && compare_cards(&cards[i], &cards[whole[at - 1]], o) < 0; at--)
            whole[at] = whole[at - 1];
        whole[at] = i;
    }
    return found;
}

/* What a process may see of a device: itself, or slices, of which only the first of each GPU instance. */
static size_t add_visible(const wi_card *cards, size_t count, size_t one, bool all_instances, size_t *seen,
                          size_t found)
{
    if (!cards[one].sliced) {
        for (size_t i = 0; i < found; i++)
            if (same_instance(&cards[seen[i]], &cards[one]))
                return found;
        seen[found++] = one;
        return found;
    }
    for (size_t i = 0; i < count; i++)
        if (strcmp(cards[i].device.parent, cards[one].device.key) == 0) {
            found = add_visible(cards, count, i, false, seen, found);
            if (!all_instances)
                return found;
        }
    return found;
}

/* What a list makes visible: numbers of cards into seen[]. */
static size_t apply_list(const char *list, const order *o, const wi_card *cards, size_t count, size_t *seen)
{
    const char *keys[WI_MOST_CARDS];
    size_t of[WI_MOST_CARDS], picked[WI_MOST_CARDS];
    size_t whole = count_whole(o, cards, count, of), all = whole, found = 0;
    bool several = shows_several(cards, count);
    for (size_t i = 0; i < count; i++)
        if (cards[i].device.parent[0])
            of[all++] = i;
    for (size_t i = 0; i < all; i++)
        keys[i] = cards[of[i]].device.key;
    size_t entries = numbering_read_list(list, keys, whole, all, picked);
    for (size_t i = 0; i < entries; i++)
        found = add_visible(cards, count, of[picked[i]], several && !list, seen, found);
    for (size_t i = 0; !several && i < found; i++)
        if (cards[seen[i]].device.parent[0]) { /* a single slice, and no other device */
            seen[0] = seen[i];
            return 1;
        }
    return found;
}

/* Whether the list has a number, which may stand for a device that is sliced. */
static bool counts_slices(const char *list, const wi_card *cards, size_t count)
{
    bool sliced = false;
    for (size_t i = 0; i < count; i++)
        sliced = sliced || cards[i].sliced;
    return sliced && list && *list && strspn(list, " \t+0123456789") > 0 && shows_several(cards, count);
}

static bool differ(const wi_card *cards, const size_t *seen, size_t found)
{
    for (size_t i = 1; i < found; i++)
        if (strcmp(cards[seen[i]].device.name, cards[seen[0]].device.name) != 0)
            return true;
    return false;
}

static void number_by_rules(const wi_answer *cuda, const wi_visibility *v, wi_card *cards, size_t count)
{
    size_t seen[WI_MOST_CARDS], all[WI_MOST_CARDS];
    order o = {.cards = cards, .by_driver = cuda->found.told && !v->cuda};
    for (size_t i = 0; i < count; i++)
        o.by_driver = o.by_driver && !cards[i].sliced;
    o.fastest = !o.by_driver && !(v->order && strcmp(v->order, "PCI_BUS_ID") == 0);
    const char *list = v->given ? v->given : v->cuda;
    size_t whole = count_whole(&o, cards, count, all), found = apply_list(list, &o, cards, count, seen);
    bool uncertain = counts_slices(list, cards, count), guess = uncertain || (o.fastest && differ(cards, all, whole));
    for (size_t i = 0; i < count; i++)
        cards[i].device.ordinal = -1;
    for (size_t i = 0; i < found; i++) {
        wi_card *card = &cards[seen[i]];
        card->device.ordinal = (int32_t)i;
        if (guess)
            wi_card_remark(card, "its ordinal is a guess until CUDA's driver has answered: %s make%s it sure",
                           uncertain ? "UUIDs in CUDA_VISIBLE_DEVICES" : "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                           uncertain ? "" : "s");
    }
}

/* Why a device has no ordinal; `slice`: a slice has an ordinal, and CUDA shows no other device; `instance`: a slice of
 * the same GPU instance has an ordinal. */
static void say_why(const wi_visibility *v, bool slice, bool instance, wi_card *card)
{
    const char *list = v->given ? v->given : v->cuda;
    if (card->sliced)
        wi_card_remark(card, "MIG is on: its slices are used instead of it");
    else if (instance)
        wi_card_remark(card, "CUDA shows a process one slice of a GPU instance: name this one in CUDA_VISIBLE_DEVICES");
    else if (slice && card->device.parent[0])
        wi_card_remark(card, "CUDA shows a process one slice of MIG: name this one in CUDA_VISIBLE_DEVICES");
    else if (slice)
        wi_card_remark(card, "CUDA shows nothing beside a slice of MIG");
    else if (list)
        wi_card_remark(card, "hidden by CUDA_VISIBLE_DEVICES=\"%s\"", list);
    else
        wi_card_remark(card, "CUDA's driver does not name it");
}

static bool has_ordinal_of_instance(const wi_card *cards, size_t count, const wi_card *slice)
{
    for (size_t i = 0; i < count; i++)
        if (cards[i].device.ordinal >= 0 && same_instance(&cards[i], slice))
            return true;
    return false;
}

void wi_number_cuda(const wi_answer *cuda, const wi_visibility *v, wi_card *cards, size_t count)
{
    bool failed = !cuda->found.told && !cuda->late, slice = false, several = shows_several(cards, count);
    if (failed)
        for (size_t i = 0; i < count; i++)
            wi_card_remark(&cards[i], "CUDA's driver: %s", cuda->found.remark[0] ? cuda->found.remark : "not asked");
    else if (!cuda->found.told || v->given)
        number_by_rules(cuda, v, cards, count);
    for (size_t i = 0; i < count; i++) {
        if (failed)
            cards[i].device.ordinal = -1;
        slice = slice || (!several && cards[i].device.ordinal >= 0 && cards[i].device.parent[0]);
    }
    for (size_t i = 0; i < count; i++)
        if (cards[i].device.ordinal < 0)
            say_why(v, slice, several && has_ordinal_of_instance(cards, count, &cards[i]), &cards[i]);
}
