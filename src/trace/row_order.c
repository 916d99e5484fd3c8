#include "trace/readers.h"

#include "base/internal.h"
#include "base/maps.h"

#include <stdlib.h>

#define SECOND UINT64_C(1000000000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

static weir_status row_order_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for the order of the rows");
}

/* Clocks ----------------------------------------------------------------------------------------------------------- */

/* Where a clock is, and what was added to the times that were logged. */
typedef struct row_clock {
    uint64_t time, offset;
} row_clock;

typedef struct row_clocks {
    wi_pointer_map numbers; /* of the threads */
    row_clock *list;
    size_t count, room;
} row_clocks;

/* The clock of a thread, at 0 when it is new; NULL: no memory. */
static row_clock *row_order_clock_of(row_clocks *all, uint64_t thread)
{
    const void *key = (const void *)(uintptr_t)(thread << 1 | 1);
    uint64_t number;
    if (wi_pointer_map_get(&all->numbers, key, &number))
        return &all->list[number];
    if (!wi_make_room(&all->list, all->count, &all->room, sizeof *all->list) ||
        !wi_pointer_map_put(&all->numbers, key, all->count))
        return NULL;
    all->list[all->count] = (row_clock){0};
    return &all->list[all->count++];
}

static uint64_t between(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* What a clock went back by, when a thread's row has an earlier time than the one before: to the next day, by the hour
 * of summer time, or by little, as clocks are corrected. */
static uint64_t set_back(uint64_t back, bool of_day)
{
    return back <= MINUTE ? 0 : back <= HOUR ? HOUR : of_day ? DAY : back;
}

/* Moves a thread's clock to its next row. With `file`, the clock of the row above in the file, from the possible times
 * the nearest to that is taken. `first` is the time of the first row, and no row of a day is much earlier. */
static void move_clock(row_clock *own, const row_step *row, const row_clock *file, uint64_t first)
{
    uint64_t offset = own->offset, time = row->logged + offset;
    uint64_t least = row->of_day && first > own->time + HOUR ? first - HOUR : own->time;
    if (time < own->time)
        offset += set_back(own->time - time, row->of_day);
    else if (time < least)
        offset += DAY;
    time = row->logged + offset;
    uint64_t others[] = {file ? file->offset : offset, offset + DAY, (file ? file->offset : offset) + DAY};
    for (size_t i = 0; file && i < (row->of_day ? 3 : 1); i++) {
        uint64_t other = row->logged + others[i];
        if (other >= least && between(other, file->time) < between(time, file->time)) {
            time = other;
            offset = others[i];
        }
    }
    *own = (row_clock){time > own->time ? time : own->time, offset};
}

/* Where there are no threads, the rows from one that goes back to the next are taken for those of one. */
static bool tell_times(row_step *rows, size_t count, bool threaded, bool nearest)
{
    row_clocks all = {0};
    row_clock file = {0};
    uint64_t run = 0;
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        run += i > 0 && rows[i].logged < rows[i - 1].logged;
        row_clock *own = row_order_clock_of(&all, threaded ? rows[i].thread : run);
        good = own != NULL;
        if (!good)
            break;
        move_clock(own, &rows[i], nearest && i > 0 ? &file : NULL, rows[0].logged);
        rows[i].time = own->time;
        file = *own;
    }
    wi_pointer_map_clear(&all.numbers);
    free(all.list);
    return good;
}

/* Orders ----------------------------------------------------------------------------------------------------------- */

static int row_order_by_place(const void *a, const void *b)
{
    const row_step *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int row_order_by_time(const void *a, const void *b)
{
    const row_step *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return row_order_by_place(a, b);
}

/* How many rows make no sense as they stand. */
static bool count_odd(const row_step *rows, size_t count, size_t *out)
{
    wi_pointer_map live = {0};
    bool good = true;
    *out = 0;
    for (size_t i = 0; i < count && good; i++) {
        const void *pointer = (const void *)(uintptr_t)rows[i].pointer;
        uint64_t ignored;
        if (!pointer || rows[i].action == RMM_FAILURE)
            continue;
        bool frees = rows[i].action == RMM_FREE;
        bool found = wi_pointer_map_remove(&live, pointer, &ignored);
        *out += found != frees;
        good = frees || wi_pointer_map_put(&live, pointer, 1);
    }
    wi_pointer_map_clear(&live);
    return good;
}

typedef enum row_way { ROWS_AS_WRITTEN, ROWS_NEAREST, ROWS_BY_THREAD } row_way;

static bool row_order_put_in_order(row_step *rows, size_t count, bool threaded, row_way way)
{
    qsort(rows, count, sizeof *rows, row_order_by_place);
    if (!tell_times(rows, count, threaded, way != ROWS_BY_THREAD))
        return false;
    if (way != ROWS_AS_WRITTEN)
        qsort(rows, count, sizeof *rows, row_order_by_time);
    return true;
}

weir_status rows_sort(row_step *rows, size_t count, bool threaded)
{
    static const row_way with_threads[] = {ROWS_NEAREST, ROWS_BY_THREAD, ROWS_AS_WRITTEN},
                         without[] = {ROWS_AS_WRITTEN, ROWS_NEAREST, ROWS_BY_THREAD};
    const row_way *ways = threaded ? with_threads : without;
    size_t least = SIZE_MAX, best = 0, odd, last = 0;
    for (; last < 3 && least > 0; last++) {
        if (!row_order_put_in_order(rows, count, threaded, ways[last]) || !count_odd(rows, count, &odd))
            return row_order_no_memory();
        if (odd < least) {
            least = odd;
            best = last;
        }
    }
    if (best != last - 1 && !row_order_put_in_order(rows, count, threaded, ways[best]))
        return row_order_no_memory();
    for (size_t i = 1; i < count; i++)
        rows[i].time = rows[i].time < rows[i - 1].time ? rows[i - 1].time : rows[i].time;
    return WEIR_OK;
}
