/* Which ordinals CUDA gives to its devices in this process: by its driver's word, and until that is there by CUDA's rules.
 *
 * The rules: devices are counted by their addresses (CUDA_DEVICE_ORDER=PCI_BUS_ID) or the fastest first, and then
 * CUDA_VISIBLE_DEVICES picks some. A device that is sliced is its first slice, and once a slice is seen nothing else is. What
 * CUDA finds fastest it does not say: among different devices that is a guess, by capability and memory. */
#include "hardware/merge.h"
#include "hardware/visible.h"

#include <stdarg.h>
#include <stdio.h>

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

typedef struct order {
    const wi_card *cards;
    bool by_driver, fastest;
} order;

static int compare_cards(const wi_card *a, const wi_card *b, const order *o)
{
    const weir_hardware_device *x = &a->device, *y = &b->device;
    int result = o->by_driver ? (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal) : 0;
    if (result == 0 && o->fastest && (result = weir_version_compare(y->capability, x->capability)) == 0 &&
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

/* A sliced device's first slice; its own number if it has none. */
static size_t first_slice(const wi_card *cards, size_t count, size_t whole)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(cards[i].device.parent, cards[whole].device.key) == 0)
            return i;
    return whole;
}

/* What a list makes visible: numbers of cards into seen[]. */
static size_t apply_list(const char *list, const order *o, const wi_card *cards, size_t count, size_t *seen)
{
    const char *keys[WI_MOST_CARDS];
    size_t of[WI_MOST_CARDS], picked[WI_MOST_CARDS];
    size_t whole = count_whole(o, cards, count, of), all = whole, found = 0;
    for (size_t i = 0; i < count; i++)
        if (cards[i].device.parent[0])
            of[all++] = i;
    for (size_t i = 0; i < all; i++)
        keys[i] = cards[of[i]].device.key;
    size_t entries = wi_visible(list, keys, whole, all, picked);
    for (size_t i = 0; i < entries; i++) {
        size_t card = cards[of[picked[i]]].sliced ? first_slice(cards, count, of[picked[i]]) : of[picked[i]];
        if (!cards[card].sliced)
            seen[found++] = card;
    }
    for (size_t i = 0; i < found; i++)
        if (cards[seen[i]].device.parent[0]) { /* one slice, and nothing beside it */
            seen[0] = seen[i];
            return 1;
        }
    return found;
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
    bool guess = o.fastest && differ(cards, all, whole);
    for (size_t i = 0; i < count; i++)
        cards[i].device.ordinal = -1;
    for (size_t i = 0; i < found; i++) {
        wi_card *card = &cards[seen[i]];
        card->device.ordinal = (int32_t)i;
        if (guess)
            wi_card_remark(
                card,
                "its ordinal is a guess until CUDA's driver has answered: CUDA_DEVICE_ORDER=PCI_BUS_ID makes it sure");
    }
}

/* Why a device has no ordinal; `slice`: a slice has one. */
static void say_why(const wi_visibility *v, bool slice, wi_card *card)
{
    const char *list = v->given ? v->given : v->cuda;
    if (card->sliced)
        wi_card_remark(card, "MIG is on: its slices are used instead of it");
    else if (slice && card->device.parent[0])
        wi_card_remark(card, "CUDA shows a process one slice of MIG: name this one in CUDA_VISIBLE_DEVICES");
    else if (slice)
        wi_card_remark(card, "CUDA shows nothing beside a slice of MIG");
    else if (list)
        wi_card_remark(card, "hidden by CUDA_VISIBLE_DEVICES=\"%s\"", list);
    else
        wi_card_remark(card, "CUDA's driver does not name it");
}

void wi_number_cuda(const wi_answer *cuda, const wi_visibility *v, wi_card *cards, size_t count)
{
    bool failed = !cuda->found.told && !cuda->late, slice = false;
    if (failed)
        for (size_t i = 0; i < count; i++)
            wi_card_remark(&cards[i], "CUDA's driver: %s", cuda->found.remark[0] ? cuda->found.remark : "not asked");
    else if (!cuda->found.told || v->given)
        number_by_rules(cuda, v, cards, count);
    for (size_t i = 0; i < count; i++) {
        if (failed)
            cards[i].device.ordinal = -1;
        slice = slice || (cards[i].device.ordinal >= 0 && cards[i].device.parent[0]);
    }
    for (size_t i = 0; i < count; i++)
        if (cards[i].device.ordinal < 0)
            say_why(v, slice, &cards[i]);
}
