#include "trace/lifetimes.h"

#include "base/internal.h"
#include "base/maps.h"

#include <stdlib.h>
#include <string.h>

static weir_status lifetimes_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory to follow the blocks of the trace");
}

/* Kinds ------------------------------------------------------------------------------------------------------------ */

static size_t kind_place(const lifetimes *all, const weir_event *event)
{
    uint64_t hash = (uint64_t)(uintptr_t)event->client * UINT64_C(0x9e3779b97f4a7c15) ^ (uintptr_t)event->tag;
    hash = (hash * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)event->memory_class) * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(hash >> 32) & (all->place_room - 1);
    for (; all->places[at]; at = (at + 1) & (all->place_room - 1)) {
        const lifetime_kind *kind = &all->kinds[all->places[at] - 1];
        if (kind->client == event->client && kind->tag == event->tag && kind->memory_class == event->memory_class)
            break;
    }
    return at;
}

static bool lifetimes_make_places(lifetimes *all)
{
    if (2 * all->kind_count < all->place_room)
        return true;
    size_t room = all->place_room ? 2 * all->place_room : 64;
    uint32_t *places = calloc(room, sizeof *places);
    lifetime_kind *kinds = realloc(all->kinds, room * sizeof *kinds);
    if (kinds)
        all->kinds = kinds;
    if (!places || !kinds) {
        free(places);
        return false;
    }
    free(all->places);
    all->places = places;
    all->place_room = room;
    for (size_t i = 0; i < all->kind_count; i++) {
        const lifetime_kind *kind = &all->kinds[i];
        weir_event like = {.client = kind->client, .tag = kind->tag, .memory_class = kind->memory_class};
        all->places[kind_place(all, &like)] = (uint32_t)i + 1;
    }
    return true;
}

static bool lifetimes_kind_of(lifetimes *all, const weir_event *event, uint32_t *out)
{
    if (!lifetimes_make_places(all))
        return false;
    uint32_t *place = &all->places[kind_place(all, event)];
    if (!*place) {
        all->kinds[all->kind_count] =
            (lifetime_kind){.client = event->client, .tag = event->tag, .memory_class = event->memory_class};
        *place = (uint32_t)++all->kind_count;
    }
    *out = *place - 1;
    return true;
}

/* Following -------------------------------------------------------------------------------------------------------- */

typedef struct follower {
    lifetimes *all;
    wi_pointer_map live, pending; /* by address: the number of the block */
    uint64_t before;              /* what was pending before this event */
} follower;

static void count_size(lifetimes *all, uint64_t bytes)
{
    int row = bytes ? 64 - __builtin_clzll(bytes) : 0;
    all->sizes[row].least = row ? UINT64_C(1) << (row - 1) : 0;
    all->sizes[row].allocations++;
    all->sizes[row].bytes += bytes;
}

static lifetime *lifetimes_begin(follower *f, const weir_event *event, uint32_t at)
{
    lifetimes *all = f->all;
    if (!wi_make_room(&all->list, all->count, &all->room, sizeof *all->list))
        return NULL;
    lifetime *one = &all->list[all->count];
    *one = (lifetime){.pointer = (uintptr_t)event->pointer,
                      .bytes = event->bytes,
                      .charged = event->charged,
                      .begin = at,
                      .freed = LIFETIMES_NEVER,
                      .end = LIFETIMES_NEVER};
    if (!lifetimes_kind_of(all, event, &one->kind))
        return NULL;
    all->count++;
    return one;
}

static void raise_peaks(lifetimes *all, lifetime_kind *kind, uint32_t at)
{
    all->peak_requested = all->requested > all->peak_requested ? all->requested : all->peak_requested;
    if (kind->live > kind->peak) {
        kind->peak = kind->live;
        kind->peak_at = at;
    }
}

/* So much of the block is away from here on. */
static weir_status lifetimes_move(follower *f, uint64_t number, uint64_t after, uint32_t at)
{
    lifetimes *all = f->all;
    uint64_t before = all->list[number].away;
    if (before == after)
        return WEIR_OK;
    if (!wi_make_room(&all->moves, all->move_count, &all->move_room, sizeof *all->moves))
        return lifetimes_no_memory();
    all->moves[all->move_count++] = (lifetime_move){at, (uint32_t)number, before, after};
    return WEIR_OK;
}

/* How much of what was requested is away when so much of the charge is. */
static uint64_t away_of_requested(const lifetime *one, uint64_t away)
{
    return away >= one->charged || away > one->bytes ? one->bytes : away;
}

static weir_status end_live(follower *f, uint64_t number, uint32_t at, bool gone)
{
    lifetime *one = &f->all->list[number];
    lifetime_kind *kind = &f->all->kinds[one->kind];
    one->freed = at;
    one->end = gone ? at : LIFETIMES_NEVER;
    kind->live -= one->charged - one->away;
    f->all->requested -= one->bytes - away_of_requested(one, one->away);
    return lifetimes_move(f, number, 0, at);
}

/* A part of the block's charge left, or came back. */
static weir_status lifetimes_leave(follower *f, const weir_event *event, uint32_t at)
{
    uint64_t number;
    if (!wi_pointer_map_get(&f->live, event->pointer, &number)) {
        f->all->unknown++;
        return WEIR_OK;
    }
    lifetime *one = &f->all->list[number];
    lifetime_kind *kind = &f->all->kinds[one->kind];
    uint64_t back = event->object < one->away ? event->object : one->away;
    uint64_t after = event->action == WEIR_ACTION_RETURN ? one->away - back
                     : event->object < one->charged      ? event->object
                                                         : one->charged;
    weir_status status = lifetimes_move(f, number, after, at);
    kind->live += one->away - after;
    f->all->requested += away_of_requested(one, one->away) - away_of_requested(one, after);
    one->away = after;
    raise_peaks(f->all, kind, at);
    return status;
}

static weir_status lifetimes_allocate(follower *f, const weir_event *event, uint32_t at, bool counts)
{
    lifetimes *all = f->all;
    uint64_t old;
    weir_status status = WEIR_OK;
    if (wi_pointer_map_remove(&f->live, event->pointer, &old)) /* its free was lost */
        status = end_live(f, old, at, true);
    if (status != WEIR_OK)
        return status;
    if (wi_pointer_map_remove(&f->pending, event->pointer, &old))
        all->list[old].end = at;
    lifetime *one = lifetimes_begin(f, event, at);
    if (!one || !wi_pointer_map_put(&f->live, event->pointer, all->count - 1))
        return lifetimes_no_memory();
    lifetime_kind *kind = &all->kinds[one->kind];
    kind->live += one->charged;
    all->requested += one->bytes;
    raise_peaks(all, kind, at);
    if (!counts)
        return WEIR_OK;
    kind->allocations++;
    kind->bytes += one->bytes;
    all->allocations++;
    count_size(all, one->bytes);
    return WEIR_OK;
}

/* What the device is not past; it ends with a reap of its address. */
static weir_status lifetimes_wait_for(follower *f, const void *pointer, uint64_t number)
{
    return wi_pointer_map_put(&f->pending, pointer, number) ? WEIR_OK : lifetimes_no_memory();
}

static weir_status lifetimes_release(follower *f, const weir_event *event, uint32_t at)
{
    uint64_t number;
    if (!wi_pointer_map_remove(&f->live, event->pointer, &number)) {
        f->all->unknown++;
        return WEIR_OK;
    }
    f->all->frees++;
    bool gone = event->object == 1 || event->pending == f->before;
    weir_status status = end_live(f, number, at, gone);
    return gone || status != WEIR_OK ? status : lifetimes_wait_for(f, event->pointer, number);
}

static weir_status lifetimes_resize(follower *f, const weir_event *event, uint32_t at)
{
    uint64_t number, old = 0;
    weir_status status = WEIR_OK;
    f->all->resizes++;
    if (wi_pointer_map_remove(&f->live, event->pointer, &number)) {
        old = f->all->list[number].charged;
        status = end_live(f, number, at, true);
    } else {
        f->all->unknown++;
    }
    if (status == WEIR_OK)
        status = lifetimes_allocate(f, event, at, false);
    if (status != WEIR_OK || old <= event->charged || event->pending <= f->before)
        return status;
    weir_event rest = *event;
    rest.pointer = (char *)event->pointer + event->charged;
    rest.bytes = rest.charged = old - event->charged;
    lifetime *one = lifetimes_begin(f, &rest, at);
    if (!one)
        return lifetimes_no_memory();
    one->freed = at;
    return lifetimes_wait_for(f, rest.pointer, f->all->count - 1);
}

static void reap(follower *f, const weir_event *event, uint32_t at)
{
    uint64_t number;
    if (event->generation == 0)
        return;
    if (wi_pointer_map_remove(&f->pending, event->pointer, &number))
        f->all->list[number].end = at;
    else
        f->all->unknown++;
}

static weir_status lifetimes_follow(follower *f, const weir_event *event, uint32_t at)
{
    switch (event->action) {
    case WEIR_ACTION_ALLOCATE:
        return event->pointer ? lifetimes_allocate(f, event, at, true) : WEIR_OK;
    case WEIR_ACTION_DEALLOCATE:
        return lifetimes_release(f, event, at);
    case WEIR_ACTION_RESIZE:
        return lifetimes_resize(f, event, at);
    case WEIR_ACTION_REAP:
        reap(f, event, at);
        break;
    case WEIR_ACTION_REFUSE:
        f->all->refused++;
        break;
    case WEIR_ACTION_FAIL:
        f->all->failed++;
        break;
    case WEIR_ACTION_COPY: /* it is two events */
        f->all->copies += event->access == WEIR_ACCESS_WRITE;
        break;
    case WEIR_ACTION_LEAVE:
    case WEIR_ACTION_RETURN:
        return lifetimes_leave(f, event, at);
    default:
        break;
    }
    return WEIR_OK;
}

weir_status lifetimes_make(const recording *from, lifetimes *out)
{
    follower f = {.all = out};
    weir_status status = WEIR_OK;
    *out = (lifetimes){.of = from};
    if (from->count >= LIFETIMES_NEVER / 2)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "more than %u events", LIFETIMES_NEVER / 2);
    for (size_t i = 0; i < from->count && status == WEIR_OK; i++) {
        status = lifetimes_follow(&f, &from->events[i], (uint32_t)i);
        f.before = from->events[i].pending;
    }
    wi_pointer_map_clear(&f.live);
    wi_pointer_map_clear(&f.pending);
    if (status != WEIR_OK)
        lifetimes_clear(out);
    return status;
}

void lifetimes_clear(lifetimes *all)
{
    free(all->list);
    free(all->moves);
    free(all->kinds);
    free(all->places);
    *all = (lifetimes){0};
}

/* Away ------------------------------------------------------------------------------------------------------------- */

void lifetimes_away(const lifetimes *all, uint32_t event, uint64_t *out)
{
    memset(out, 0, all->count * sizeof *out);
    for (size_t i = 0; i < all->move_count && all->moves[i].event <= event; i++)
        out[all->moves[i].block] = all->moves[i].after;
}

/* What has left so far of a client. */
typedef struct leaving {
    uint64_t away;
    size_t at; /* its last entry in the list, and 1 */
} leaving;

/* Whether a move goes on with what the client's last entry tells of. A suspend begins with nothing away, and a resume
 * ends so; a free ends neither. */
static bool lifetimes_goes_on(const lifetime_residency *last, const leaving *of, bool back)
{
    return last && last->back == back && of->away > 0;
}

static void take_move(const lifetimes *all, const lifetime_move *m, leaving *of, lifetime_residency *list,
                      size_t *count)
{
    const lifetime *block = &all->list[m->block];
    bool back = m->after < m->before;
    uint64_t bytes = back ? m->before - m->after : m->after - m->before;
    if (!back || block->freed > m->event) {
        lifetime_residency *to = of->at ? &list[of->at - 1] : NULL;
        if (!lifetimes_goes_on(to, of, back)) {
            to = &list[(*count)++];
            *to = (lifetime_residency){.client = all->kinds[block->kind].client, .back = back, .first = m->event};
            of->at = *count;
        }
        to->last = m->event;
        to->bytes += bytes;
        to->blocks += m->before == 0 || m->after == 0;
    }
    of->away += m->after - m->before;
}

lifetime_residency *lifetimes_residencies(const lifetimes *all, size_t *count)
{
    wi_pointer_map numbers = {0}; /* of the clients */
    leaving *of = calloc(all->move_count + 1, sizeof *of);
    lifetime_residency *list = calloc(all->move_count + 1, sizeof *list);
    bool good = of && list;
    *count = 0;
    for (size_t i = 0; i < all->move_count && good; i++) {
        const char *client = all->kinds[all->list[all->moves[i].block].kind].client;
        uint64_t number;
        if (!wi_pointer_map_get(&numbers, client, &number)) {
            number = numbers.used;
            good = wi_pointer_map_put(&numbers, client, number);
        }
        if (good)
            take_move(all, &all->moves[i], &of[number], list, count);
    }
    wi_pointer_map_clear(&numbers);
    free(of);
    if (good)
        return list;
    free(list);
    (void)lifetimes_no_memory();
    return NULL;
}

/* Ranges of addresses ---------------------------------------------------------------------------------------------- */

static int lifetimes_by_address(const void *a, const void *b)
{
    const address_range *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

static void add_range(address_ranges *ranges, address_range one, uint64_t gap)
{
    address_range *last = ranges->count ? &ranges->list[ranges->count - 1] : NULL;
    uint64_t end = one.address + one.bytes;
    if (last && one.address - last->address <= last->bytes + gap)
        last->bytes = end > last->address + last->bytes ? end - last->address : last->bytes;
    else if (one.bytes)
        ranges->list[ranges->count++] = one;
}

/* The first `count` become those that lie further apart; what is made never passes what is read. */
static void merge_ranges(address_ranges *ranges, size_t count, uint64_t gap)
{
    ranges->count = 0;
    for (size_t i = 0; i < count; i++)
        add_range(ranges, ranges->list[i], gap);
}

weir_status address_ranges_make(const lifetimes *all, address_ranges *out)
{
    const recording *from = all->of;
    size_t count = all->count + from->segment_count;
    *out = (address_ranges){.list = calloc(count + 1, sizeof *out->list)};
    if (!out->list)
        return lifetimes_no_memory();
    for (size_t i = 0; i < all->count; i++)
        out->list[i] = (address_range){all->list[i].pointer, all->list[i].charged};
    for (size_t i = 0; i < from->segment_count; i++)
        out->list[all->count + i] = (address_range){from->segments[i].address, from->segments[i].bytes};
    for (size_t i = 0; i < count; i++) /* no range passes the end of all addresses */
        if (out->list[i].bytes > UINT64_MAX - ADDRESS_GAP - out->list[i].address)
            out->list[i].bytes = 0;
    qsort(out->list, count, sizeof *out->list, lifetimes_by_address);
    merge_ranges(out, count, from->segment_count ? 0 : ADDRESS_GAP);
    for (uint64_t gap = UINT64_C(2) * ADDRESS_GAP; out->count > ADDRESS_RANGES_MOST; gap *= 2)
        merge_ranges(out, out->count, gap);
    for (size_t i = 0; i < out->count; i++)
        out->bytes += out->list[i].bytes;
    return WEIR_OK;
}

void address_ranges_clear(address_ranges *ranges)
{
    free(ranges->list);
    *ranges = (address_ranges){0};
}

const address_range *address_range_at(const address_ranges *ranges, uint64_t address)
{
    size_t low = 0, high = ranges->count;
    while (low < high) { /* finds the first range that begins above the address */
        size_t middle = (low + high) / 2;
        if (ranges->list[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low && address - ranges->list[low - 1].address < ranges->list[low - 1].bytes ? &ranges->list[low - 1] : NULL;
}
