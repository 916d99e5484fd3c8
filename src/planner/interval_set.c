/* Intervals lie in pieces of some dozens, so that one more interval moves few others, and a question passes by the
 * pieces that have no gap as wide as it needs. */
#include "planner/solve.h"
#include "base/internal.h"

typedef struct wi_interval {
    uint64_t low, high;
} interval;

enum { INTERVALS_MAX = 64 };

void wi_interval_set_clear(wi_interval_set *set)
{
    for (uint32_t i = 0; i < set->room; i++)
        free(set->pieces[i].intervals);
    free(set->pieces);
    *set = (wi_interval_set){0};
}

void wi_interval_set_empty(wi_interval_set *set)
{
    set->count = 0;
}

/* There are very many of these, and most stay very short. */
static bool room_for_one(void **array, size_t each, uint32_t count, uint32_t *room)
{
    if (count < *room)
        return true;
    uint32_t more = *room ? 2 * *room : 2;
    void *grown = realloc(*array, more * each);
    if (!grown)
        return false;
    memset((char *)grown + *room * each, 0, (more - *room) * each);
    *array = grown;
    *room = more;
    return true;
}

/* Pieces ----------------------------------------------------------------------------------------------------------- */

static void interval_set_measure(wi_interval_piece *piece)
{
    piece->widest = 0;
    for (uint32_t i = 1; i < piece->count; i++)
        piece->widest = wi_max(piece->widest, piece->intervals[i].low - piece->intervals[i - 1].high);
}

static uint64_t interval_set_end_of(const wi_interval_piece *piece)
{
    return piece->intervals[piece->count - 1].high;
}

/* An empty one before `index`; NULL without host memory. */
static wi_interval_piece *insert_piece(wi_interval_set *set, uint32_t index)
{
    if (!room_for_one((void **)&set->pieces, sizeof *set->pieces, set->count, &set->room))
        return NULL;
    wi_interval_piece spare = set->pieces[set->count];
    memmove(&set->pieces[index + 1], &set->pieces[index], (set->count - index) * sizeof spare);
    set->count++;
    spare.count = 0;
    set->pieces[index] = spare;
    return &set->pieces[index];
}

static void remove_piece(wi_interval_set *set, uint32_t index)
{
    wi_interval_piece spare = set->pieces[index];
    set->count--;
    memmove(&set->pieces[index], &set->pieces[index + 1], (set->count - index) * sizeof spare);
    set->pieces[set->count] = spare;
}

static bool insert_interval(wi_interval_piece *piece, uint32_t at, interval r)
{
    if (!room_for_one((void **)&piece->intervals, sizeof r, piece->count, &piece->room))
        return false;
    memmove(&piece->intervals[at + 1], &piece->intervals[at], (piece->count - at) * sizeof r);
    piece->intervals[at] = r;
    piece->count++;
    return true;
}

static bool interval_set_split(wi_interval_set *set, uint32_t index)
{
    wi_interval_piece *behind = insert_piece(set, index + 1);
    bool good = behind != NULL;
    if (!good)
        return false;
    wi_interval_piece *piece = &set->pieces[index];
    uint32_t half = piece->count / 2;
    for (uint32_t i = half; i < piece->count && good; i++)
        good = insert_interval(behind, behind->count, piece->intervals[i]);
    if (!good) {
        remove_piece(set, index + 1);
        return false;
    }
    piece->count = half;
    interval_set_measure(piece);
    interval_set_measure(behind);
    return true;
}

/* Searching -------------------------------------------------------------------------------------------------------- */

/* The first piece from `first` on that ends at `address` or behind. */
static uint32_t piece_ending_at(const wi_interval_set *set, uint32_t first, uint64_t address)
{
    uint32_t low = first, high = set->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (interval_set_end_of(&set->pieces[middle]) < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t interval_ending_at(const wi_interval_piece *piece, uint64_t address)
{
    uint32_t low = 0, high = piece->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (piece->intervals[middle].high < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t wi_interval_set_gap(const wi_interval_set *set, uint32_t *piece, uint64_t at, uint64_t length,
                             uint64_t alignment)
{
    if (*piece < set->count && interval_set_end_of(&set->pieces[*piece]) <= at)
        *piece = piece_ending_at(set, *piece + 1, at + 1);
    for (uint32_t i = *piece; i < set->count; i++) {
        const wi_interval_piece *p = &set->pieces[i];
        if (p->intervals[0].low >= at + length)
            break;
        if (p->widest < length) {
            at = wi_max(at, wi_round_up(interval_set_end_of(p), alignment));
            continue;
        }
        for (uint32_t k = interval_ending_at(p, at + 1); k < p->count; k++) {
            if (p->intervals[k].low >= at + length)
                return at;
            at = wi_max(at, wi_round_up(p->intervals[k].high, alignment));
        }
    }
    return at;
}

/* Adding ----------------------------------------------------------------------------------------------------------- */

/* Takes what the interval at the place has grown over out of the list. */
static void swallow(wi_interval_set *set, uint32_t index, uint32_t at)
{
    interval *grown = &set->pieces[index].intervals[at];
    for (uint32_t i = index, from = at + 1; i < set->count;) {
        wi_interval_piece *piece = &set->pieces[i];
        uint32_t end = from;
        for (; end < piece->count && piece->intervals[end].low <= grown->high; end++)
            grown->high = wi_max(grown->high, piece->intervals[end].high);
        bool more = end == piece->count;
        if (end > from)
            memmove(&piece->intervals[from], &piece->intervals[end], (piece->count - end) * sizeof *grown);
        piece->count -= end - from;
        interval_set_measure(piece);
        if (piece->count == 0)
            remove_piece(set, i);
        else
            i++;
        if (!more)
            break;
        from = 0;
    }
}

bool wi_interval_set_add(wi_interval_set *set, uint64_t low, uint64_t high)
{
    uint32_t index = piece_ending_at(set, 0, low);
    if (index == set->count && index > 0)
        index--;
    if (set->count == 0 && !insert_piece(set, 0))
        return false;
    wi_interval_piece *piece = &set->pieces[index];
    uint32_t at = interval_ending_at(piece, low);
    if (at < piece->count && piece->intervals[at].low <= high) {
        interval *r = &piece->intervals[at];
        bool grows = low < r->low || high > r->high;
        *r = (interval){wi_min(low, r->low), wi_max(high, r->high)};
        if (grows)
            swallow(set, index, at);
        return true;
    }
    if (piece->count < INTERVALS_MAX) {
        bool good = insert_interval(piece, at, (interval){low, high});
        if (piece->count == 0) /* a piece has a interval */
            remove_piece(set, index);
        else
            interval_set_measure(piece);
        return good;
    }
    return interval_set_split(set, index) && wi_interval_set_add(set, low, high);
}
