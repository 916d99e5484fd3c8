/* Runs lie in pieces of some dozens, so that one more run moves few others, and a question passes by the pieces that have
 * no gap as wide as it needs. */
#include "planner/interval_set.h"
#include "base/internal.h"

typedef struct wi_taken_run {
    uint64_t low, high;
} run;

enum { RUNS_MAX = 64 };

void wi_taken_clear(wi_taken *taken)
{
    for (uint32_t i = 0; i < taken->room; i++)
        free(taken->pieces[i].runs);
    free(taken->pieces);
    *taken = (wi_taken){0};
}

void wi_taken_empty(wi_taken *taken)
{
    taken->count = 0;
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

static void measure(wi_taken_piece *piece)
{
    piece->widest = 0;
    for (uint32_t i = 1; i < piece->count; i++)
        piece->widest = wi_max(piece->widest, piece->runs[i].low - piece->runs[i - 1].high);
}

static uint64_t end_of(const wi_taken_piece *piece)
{
    return piece->runs[piece->count - 1].high;
}

/* An empty one before `index`; NULL without host memory. */
static wi_taken_piece *insert_piece(wi_taken *taken, uint32_t index)
{
    if (!room_for_one((void **)&taken->pieces, sizeof *taken->pieces, taken->count, &taken->room))
        return NULL;
    wi_taken_piece spare = taken->pieces[taken->count];
    memmove(&taken->pieces[index + 1], &taken->pieces[index], (taken->count - index) * sizeof spare);
    taken->count++;
    spare.count = 0;
    taken->pieces[index] = spare;
    return &taken->pieces[index];
}

static void remove_piece(wi_taken *taken, uint32_t index)
{
    wi_taken_piece spare = taken->pieces[index];
    taken->count--;
    memmove(&taken->pieces[index], &taken->pieces[index + 1], (taken->count - index) * sizeof spare);
    taken->pieces[taken->count] = spare;
}

static bool insert_run(wi_taken_piece *piece, uint32_t at, run r)
{
    if (!room_for_one((void **)&piece->runs, sizeof r, piece->count, &piece->room))
        return false;
    memmove(&piece->runs[at + 1], &piece->runs[at], (piece->count - at) * sizeof r);
    piece->runs[at] = r;
    piece->count++;
    return true;
}

static bool split(wi_taken *taken, uint32_t index)
{
    wi_taken_piece *behind = insert_piece(taken, index + 1);
    bool good = behind != NULL;
    if (!good)
        return false;
    wi_taken_piece *piece = &taken->pieces[index];
    uint32_t half = piece->count / 2;
    for (uint32_t i = half; i < piece->count && good; i++)
        good = insert_run(behind, behind->count, piece->runs[i]);
    if (!good) {
        remove_piece(taken, index + 1);
        return false;
    }
    piece->count = half;
    measure(piece);
    measure(behind);
    return true;
}

/* Searching -------------------------------------------------------------------------------------------------------- */

/* The first piece from `first` on that ends at `address` or behind. */
static uint32_t piece_ending_at(const wi_taken *taken, uint32_t first, uint64_t address)
{
    uint32_t low = first, high = taken->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (end_of(&taken->pieces[middle]) < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t run_ending_at(const wi_taken_piece *piece, uint64_t address)
{
    uint32_t low = 0, high = piece->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (piece->runs[middle].high < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t wi_taken_gap(const wi_taken *taken, uint32_t *piece, uint64_t at, uint64_t length, uint64_t alignment)
{
    if (*piece < taken->count && end_of(&taken->pieces[*piece]) <= at)
        *piece = piece_ending_at(taken, *piece + 1, at + 1);
    for (uint32_t i = *piece; i < taken->count; i++) {
        const wi_taken_piece *p = &taken->pieces[i];
        if (p->runs[0].low >= at + length)
            break;
        if (p->widest < length) {
            at = wi_max(at, wi_round_up(end_of(p), alignment));
            continue;
        }
        for (uint32_t k = run_ending_at(p, at + 1); k < p->count; k++) {
            if (p->runs[k].low >= at + length)
                return at;
            at = wi_max(at, wi_round_up(p->runs[k].high, alignment));
        }
    }
    return at;
}

/* Adding ----------------------------------------------------------------------------------------------------------- */

/* Takes what the run at the place has grown over out of the list. */
static void swallow(wi_taken *taken, uint32_t index, uint32_t at)
{
    run *grown = &taken->pieces[index].runs[at];
    for (uint32_t i = index, from = at + 1; i < taken->count;) {
        wi_taken_piece *piece = &taken->pieces[i];
        uint32_t end = from;
        for (; end < piece->count && piece->runs[end].low <= grown->high; end++)
            grown->high = wi_max(grown->high, piece->runs[end].high);
        bool more = end == piece->count;
        if (end > from)
            memmove(&piece->runs[from], &piece->runs[end], (piece->count - end) * sizeof *grown);
        piece->count -= end - from;
        measure(piece);
        if (piece->count == 0)
            remove_piece(taken, i);
        else
            i++;
        if (!more)
            break;
        from = 0;
    }
}

bool wi_taken_add(wi_taken *taken, uint64_t low, uint64_t high)
{
    uint32_t index = piece_ending_at(taken, 0, low);
    if (index == taken->count && index > 0)
        index--;
    if (taken->count == 0 && !insert_piece(taken, 0))
        return false;
    wi_taken_piece *piece = &taken->pieces[index];
    uint32_t at = run_ending_at(piece, low);
    if (at < piece->count && piece->runs[at].low <= high) {
        run *r = &piece->runs[at];
        bool grows = low < r->low || high > r->high;
        *r = (run){wi_min(low, r->low), wi_max(high, r->high)};
        if (grows)
            swallow(taken, index, at);
        return true;
    }
    if (piece->count < RUNS_MAX) {
        bool good = insert_run(piece, at, (run){low, high});
        if (piece->count == 0) /* a piece has a run */
            remove_piece(taken, index);
        else
            measure(piece);
        return good;
    }
    return split(taken, index) && wi_taken_add(taken, low, high);
}
