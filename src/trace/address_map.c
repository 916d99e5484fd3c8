#include "trace/lifetimes.h"

#include <stdlib.h>

static weir_status address_map_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for the map of addresses");
}

/* What a block does at an event. */
typedef struct change {
    uint32_t event;
    uint32_t lifetime;
    int live, pending;
    uint64_t before, after; /* away */
} change;

typedef struct painter {
    const address_ranges *ranges;
    uint64_t *before; /* by range: bytes of those below it */
    uint64_t row_bytes;
    size_t rows;
    int64_t live[ADDRESS_MAP_ROWS], pending[ADDRESS_MAP_ROWS], away[ADDRESS_MAP_ROWS];
} painter;

/* Compares changes by event, and changes of the same event by lifetime, so that an ending lifetime precedes its
 * successor. */
static int address_map_by_event(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->event != y->event)
        return x->event < y->event ? -1 : 1;
    return x->lifetime < y->lifetime ? -1 : x->lifetime > y->lifetime;
}

static size_t list_changes(const lifetimes *all, change *out)
{
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++) {
        const lifetime *one = &all->list[i];
        uint32_t number = (uint32_t)i;
        if (one->freed > one->begin)
            out[count++] = (change){one->begin, number, 1, 0, 0, 0};
        else
            out[count++] = (change){one->begin, number, 0, 1, 0, 0};
        if (one->freed > one->begin && one->freed != LIFETIMES_NEVER)
            out[count++] = (change){one->freed, number, -1, one->end > one->freed, 0, 0};
        if (one->end > one->freed && one->end != LIFETIMES_NEVER)
            out[count++] = (change){one->end, number, 0, -1, 0, 0};
    }
    for (size_t i = 0; i < all->move_count; i++) {
        const lifetime_move *m = &all->moves[i];
        out[count++] = (change){m->event, m->block, 0, 0, m->before, m->after};
    }
    qsort(out, count, sizeof *out, address_map_by_event);
    return count;
}

/* Where an address lies among those of all ranges. */
static uint64_t address_map_place_of(const painter *p, uint64_t address)
{
    const address_range *range = address_range_at(p->ranges, address);
    return range ? p->before[range - p->ranges->list] + (address - range->address) : UINT64_MAX;
}

/* Returns how many of `bytes` bytes of a block count as away. Traces do not tell which part of a block is away, so that
 * each piece gets the same share. */
static int64_t address_map_share(int64_t bytes, uint64_t away, uint64_t charged)
{
    return away == charged ? bytes : (int64_t)((double)bytes * (double)away / (double)charged);
}

static void paint(painter *p, const lifetime *one, const change *what)
{
    uint64_t from = address_map_place_of(p, one->pointer), to = from + one->charged;
    if (from == UINT64_MAX || one->charged == 0)
        return;
    for (size_t row = (size_t)(from / p->row_bytes); row < p->rows && row * p->row_bytes < to; row++) {
        uint64_t low = row * p->row_bytes, high = low + p->row_bytes;
        int64_t bytes = (int64_t)((to < high ? to : high) - (from > low ? from : low));
        int64_t away =
            address_map_share(bytes, what->after, one->charged) - address_map_share(bytes, what->before, one->charged);
        p->live[row] += what->live * bytes - away;
        p->pending[row] += what->pending * bytes;
        p->away[row] += away;
    }
}

static unsigned char ninths(int64_t bytes, uint64_t of)
{
    if (bytes <= 0)
        return 0;
    uint64_t shares = (uint64_t)bytes * ADDRESS_MAP_FULL / of;
    return (unsigned char)(shares == 0 ? 1 : shares > ADDRESS_MAP_FULL ? ADDRESS_MAP_FULL : shares);
}

static void keep_column(const painter *p, uint16_t *column, uint64_t all)
{
    for (size_t row = 0; row < p->rows; row++) {
        uint64_t left = all - row * p->row_bytes, of = left < p->row_bytes ? left : p->row_bytes;
        unsigned live = ninths(p->live[row], of), pending = ninths(p->pending[row], of),
                 away = ninths(p->away[row], of);
        column[row] = (uint16_t)(100 * away + 10 * pending + live);
    }
}

static weir_status paint_all(const lifetimes *all, painter *p, address_map *out)
{
    change *changes = calloc(3 * all->count + all->move_count + 1, sizeof *changes);
    size_t events = all->of->count, at = 0, count;
    if (!changes)
        return address_map_no_memory();
    count = list_changes(all, changes);
    for (size_t column = 0; column < out->columns; column++) {
        out->events[column] = (uint32_t)((column + 1) * events / out->columns - 1);
        for (; at < count && changes[at].event <= out->events[column]; at++)
            paint(p, &all->list[changes[at].lifetime], &changes[at]);
        keep_column(p, out->cells + column * out->rows, p->ranges->bytes);
    }
    free(changes);
    return WEIR_OK;
}

weir_status address_map_make(const lifetimes *all, const address_ranges *ranges, address_map *out)
{
    *out = (address_map){.rows = 0};
    if (ranges->bytes == 0)
        return WEIR_OK;
    painter p = {.ranges = ranges, .row_bytes = (ranges->bytes + ADDRESS_MAP_ROWS - 1) / ADDRESS_MAP_ROWS};
    p.rows = (size_t)((ranges->bytes + p.row_bytes - 1) / p.row_bytes);
    p.before = calloc(ranges->count, sizeof *p.before);
    out->rows = p.rows;
    out->row_bytes = p.row_bytes;
    out->columns = all->of->count < ADDRESS_MAP_COLUMNS ? all->of->count : ADDRESS_MAP_COLUMNS;
    out->events = calloc(out->columns, sizeof *out->events);
    out->cells = calloc(out->columns, out->rows * sizeof *out->cells);
    for (size_t i = 1; p.before && i < ranges->count; i++)
        p.before[i] = p.before[i - 1] + ranges->list[i - 1].bytes;
    weir_status status = p.before && out->events && out->cells ? paint_all(all, &p, out) : address_map_no_memory();
    free(p.before);
    if (status != WEIR_OK)
        address_map_clear(out);
    return status;
}

void address_map_clear(address_map *map)
{
    free(map->events);
    free(map->cells);
    *map = (address_map){.rows = 0};
}
