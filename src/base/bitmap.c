#include "base/bitmap.h"

#include <sys/mman.h>

/* Bits ------------------------------------------------------------------------------------------------------------- */

static uint32_t lowest(uint64_t bits) /* for a word that is not zero */
{
    return (uint32_t)__builtin_ctzll(bits);
}

/* How many ones there are from the bottom up, and from the top down. */
static uint32_t ones_below(uint64_t bits)
{
    return ~bits ? lowest(~bits) : 64;
}
static uint32_t ones_above(uint64_t bits)
{
    return ~bits ? (uint32_t)__builtin_clzll(~bits) : 64;
}

/* The longest run of ones: finds where runs of 1, 2, 4 … begin, then goes down from the longest and adds each that
 * still fits behind. No branches, as their outcomes would be random. */
static uint32_t longest_inside(uint64_t bits)
{
    uint64_t runs[6] = {bits}, starts = ~UINT64_C(0);
    uint32_t length = 0;
    if (!~bits)
        return 64;
    for (uint32_t k = 0; k < 5; k++)
        runs[k + 1] = runs[k] & runs[k] >> (1u << k);
    for (uint32_t k = 6; k-- > 0;) {
        uint64_t longer = starts & runs[k] >> length;
        starts = longer ? longer : starts;
        length += longer ? 1u << k : 0;
    }
    return length;
}

/* The longest free run that begins in the word and goes on into the next at most. */
static uint32_t longest_from(const wi_bitmap *b, uint32_t word)
{
    uint64_t bits = b->bits[word];
    uint32_t inside = longest_inside(bits), across = ones_above(bits);
    if (across > 0)
        across += ones_below(b->bits[word + 1]);
    return (uint32_t)wi_min(wi_max(inside, across), WI_BITMAP_LONGEST);
}

/* Where runs of `count` begin in the 128 bits (high, low), as far as they begin in `low`. Always six steps, for the
 * same reason. */
static uint64_t starts_of(uint64_t low, uint64_t high, uint32_t count)
{
    for (uint32_t k = 0, have = 1; k < 6; k++) {
        uint32_t step = (uint32_t)wi_min(have, count - have); /* from 0 to 32 */
        low &= low >> step | high << 1 << (63 - step);
        high &= high >> step;
        have += step;
    }
    return low;
}

/* Trees ------------------------------------------------------------------------------------------------------------ */

/* Word `at` of a level of the tree of `bound`. The words of all 64 trees for one bit are neighbours, so that a
 * changed bound touches few cache lines. */
static uint64_t *tree_at(const wi_bitmap *b, uint32_t level, uint32_t at, uint32_t bound)
{
    return &b->tree[((size_t)b->level[level] + at) * WI_BITMAP_LONGEST + bound - 1];
}

static void bitmap_enter(wi_bitmap *b, uint32_t bound, uint32_t word)
{
    for (uint32_t level = 0; level < b->levels; level++, word /= 64)
        *tree_at(b, level, word / 64, bound) |= UINT64_C(1) << word % 64;
    b->trees |= UINT64_C(1) << (bound - 1);
}

static void bitmap_leave(wi_bitmap *b, uint32_t bound, uint32_t word)
{
    uint64_t gone = 1; /* whether the word below is empty now */
    for (uint32_t level = 0; level < b->levels; level++, word /= 64) {
        uint64_t *at = tree_at(b, level, word / 64, bound);
        *at &= ~(gone << word % 64);
        gone &= *at == 0;
    }
    b->trees &= ~(gone << (bound - 1));
}

/* The lowest word of a tree that is not empty. */
static uint32_t bitmap_first_in(const wi_bitmap *b, uint32_t bound)
{
    uint32_t at = 0;
    for (uint32_t level = b->levels; level-- > 0;)
        at = at * 64 + lowest(*tree_at(b, level, at, bound));
    return at;
}

static void set_bound(wi_bitmap *b, uint32_t word, uint32_t bound)
{
    uint32_t before = b->bound[word];
    if (before == bound)
        return;
    if (before)
        bitmap_leave(b, before, word);
    if (bound)
        bitmap_enter(b, bound, word);
    b->bound[word] = (uint8_t)bound;
}

/* Making ----------------------------------------------------------------------------------------------------------- */

void *wi_table_make(size_t count, size_t size)
{
    const size_t huge = 2 * WI_MIB;
    size_t bytes;
    void *table;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes < huge)
        return calloc(count, size);
    bytes = wi_round_up(bytes, huge);
    if (posix_memalign(&table, huge, bytes) != 0)
        return NULL;
    (void)madvise(table, bytes, MADV_HUGEPAGE); /* a kernel without huge pages refuses, which does no harm */
    memset(table, 0, bytes);
    return table;
}

bool wi_bitmap_init(wi_bitmap *b, uint32_t count)
{
    *b = (wi_bitmap){.count = count, .words = (count + 63) / 64, .free = count};
    for (uint32_t below = b->words; b->levels == 0 || below > 1; b->levels++) {
        b->level[b->levels] = b->tree_words;
        below = (below + 63) / 64;
        b->tree_words += below;
    }
    b->bits = wi_table_make((size_t)b->words + 1, sizeof *b->bits);
    b->bound = calloc(b->words, 1);
    b->tree = wi_table_make((size_t)b->tree_words * WI_BITMAP_LONGEST, sizeof *b->tree);
    if (!b->bits || !b->bound || !b->tree) {
        wi_bitmap_destroy(b);
        return false;
    }
    for (uint32_t w = 0; w < b->words; w++)
        b->bits[w] = wi_bits(0, (uint32_t)wi_min(64, count - w * 64));
    for (uint32_t w = 0; w < b->words; w++)
        set_bound(b, w, longest_from(b, w));
    wi_bitmap_check(b);
    return true;
}

void wi_bitmap_destroy(wi_bitmap *b)
{
    free(b->bits);
    free(b->bound);
    free(b->tree);
    *b = (wi_bitmap){0};
}

/* Taking ----------------------------------------------------------------------------------------------------------- */

uint32_t wi_bitmap_take_last(wi_bitmap *b)
{
    uint32_t word = b->open;
    uint64_t bits = b->bits[word];
    if (wi_unlikely(!bits)) {
        if (!b->trees)
            return WI_BITMAP_NONE;
        b->open = word = bitmap_first_in(b, lowest(b->trees) + 1);
        bits = b->bits[word];
    }
    b->bits[word] = bits & (bits - 1);
    b->free--;
    if (!b->bits[word])
        set_bound(b, word, 0);
    wi_bitmap_check(b);
    return word * 64 + lowest(bits);
}

/* Takes the bits of [first, first + count); bounds stay as they are but for words that are full now. */
static void clear_bits(wi_bitmap *b, uint32_t first, uint32_t count)
{
    b->free -= count;
    while (count > 0) {
        uint32_t word = first / 64, part = (uint32_t)wi_min(count, 64 - first % 64);
        b->bits[word] &= ~wi_bits(first % 64, part);
        if (!b->bits[word])
            set_bound(b, word, 0);
        first += part;
        count -= part;
    }
}

/* Best fit in the word for a run of `count`, which its bound promises. */
static bool bitmap_fit(const wi_bitmap *b, uint32_t word, uint32_t count, uint32_t *first)
{
    uint64_t low = b->bits[word], high = b->bits[word + 1];
    uint64_t starts = starts_of(low, high, count);
    if (!starts)
        return false;
    /* An exact run has nothing free before it and nothing behind: no start of the same length one bit further. */
    uint64_t before = low << 1 | (word > 0 ? b->bits[word - 1] >> 63 : 0);
    uint64_t exact = starts & ~before & ~(starts >> 1);
    uint32_t at = lowest(exact ? exact : starts);
    *first = word * 64 + at;
    return true;
}

static uint32_t take_short_run(wi_bitmap *b, uint32_t count)
{
    for (;;) {
        uint64_t enough = b->trees & ~UINT64_C(0) << (count - 1);
        if (!enough)
            return WI_BITMAP_NONE;
        uint32_t word = bitmap_first_in(b, lowest(enough) + 1), first;
        bool found = bitmap_fit(b, word, count, &first);
        if (found)
            clear_bits(b, first, count);
        set_bound(b, word, longest_from(b, word)); /* corrects a bound that was too high */
        if (!found)
            continue;
        if (first / 64 == word && first % 64 == 0 && word > 0)
            set_bound(b, word - 1, longest_from(b, word - 1));
        if ((first + count - 1) / 64 != word)
            set_bound(b, word + 1, longest_from(b, word + 1));
        return first;
    }
}

/* The end of the free run that goes on from bit `at`, or `enough` bits later if that comes first. */
static uint64_t bitmap_run_end(const wi_bitmap *b, uint64_t at, uint64_t enough)
{
    for (uint64_t end = at + enough; at < end && at < b->count;) {
        uint32_t inside = (uint32_t)(at % 64), ones = ones_below(b->bits[at / 64] >> inside);
        at += wi_min(ones, 64 - inside);
        if (ones == 0)
            break;
    }
    return at;
}

/* The lowest run of at least `count` > 64, or the longest there is: it begins at the last free bits of a word whose
 * bound is 64. Returns its length, up to `count`. */
static uint64_t find_long_run(const wi_bitmap *b, uint64_t count, uint64_t *first)
{
    uint64_t best = 0, done = 0; /* words below `done` have been looked at */
    for (uint32_t group = 0; group < (b->words + 63) / 64; group++)
        for (uint64_t left = *tree_at(b, 0, group, WI_BITMAP_LONGEST); left; left &= left - 1) {
            uint64_t word = group * UINT64_C(64) + lowest(left);
            if (word < done)
                continue;
            uint64_t start = word * 64 + 64 - ones_above(b->bits[word]), end = bitmap_run_end(b, start, count);
            done = wi_max(word + 1, end / 64);
            if (end > start && end - start > best) {
                best = end - start;
                *first = start;
                if (best >= count)
                    return count;
            }
        }
    return best;
}

uint32_t wi_bitmap_take_run(wi_bitmap *b, uint32_t count)
{
    uint64_t first = WI_BITMAP_NONE;
    wi_assert(count > 0);
    if (count <= WI_BITMAP_LONGEST) {
        first = take_short_run(b, count);
    } else if (count <= b->free && find_long_run(b, count, &first) == count) {
        uint32_t from = (uint32_t)(first / 64), to = (uint32_t)((first + count - 1) / 64);
        clear_bits(b, (uint32_t)first, count);
        set_bound(b, from, longest_from(b, from));
        set_bound(b, to, longest_from(b, to));
    } else {
        first = WI_BITMAP_NONE;
    }
    wi_bitmap_check(b);
    return (uint32_t)first;
}

/* Giving ----------------------------------------------------------------------------------------------------------- */

static inline void raise_bound(wi_bitmap *b, uint32_t word, uint32_t length)
{
    length = (uint32_t)wi_min(length, WI_BITMAP_LONGEST);
    if (length > b->bound[word])
        set_bound(b, word, length);
}

/* Raises the bounds of the word and of the one before, by the run around the bit that was just set. */
static inline void raise_around(wi_bitmap *b, uint32_t word, uint32_t bit)
{
    uint64_t bits = b->bits[word];
    uint32_t up = ones_below(bits >> bit), down = ones_above(bits << (63 - bit));
    up = (uint32_t)wi_min(up, 64 - bit);
    down = (uint32_t)wi_min(down, bit + 1);
    uint32_t length = up + down - 1;
    if (down == bit + 1 && word > 0) {
        uint32_t before = ones_above(b->bits[word - 1]);
        if (before)
            raise_bound(b, word - 1, before + length);
    }
    if (bit + up == 64)
        length += ones_below(b->bits[word + 1]);
    raise_bound(b, word, length);
}

/* Words with short runs serve single bits first. */
static inline void open_word(wi_bitmap *b, uint32_t word)
{
    if (b->bound[word] < b->bound[b->open])
        b->open = word;
}

void wi_bitmap_give_one(wi_bitmap *b, uint32_t bit)
{
    uint32_t word = bit / 64;
    b->free++;
    b->bits[word] |= UINT64_C(1) << bit % 64;
    raise_around(b, word, bit % 64);
    open_word(b, word);
    wi_bitmap_check(b);
}

void wi_bitmap_give(wi_bitmap *b, uint32_t first, uint32_t count)
{
    b->free += count;
    while (count > 0) {
        uint32_t word = first / 64, part = (uint32_t)wi_min(count, 64 - first % 64);
        b->bits[word] |= wi_bits(first % 64, part);
        raise_around(b, word, first % 64);
        first += part;
        count -= part;
        open_word(b, word);
    }
    wi_bitmap_check(b);
}

uint32_t wi_bitmap_longest(wi_bitmap *b)
{
    while (b->trees) {
        uint32_t bound = 64 - (uint32_t)__builtin_clzll(b->trees), word = bitmap_first_in(b, bound);
        uint32_t length = longest_from(b, word);
        uint64_t first;
        if (length == bound)
            return bound < WI_BITMAP_LONGEST ? bound : (uint32_t)wi_max(bound, find_long_run(b, b->count, &first));
        set_bound(b, word, length); /* it was too high */
    }
    return 0;
}

/* Invariants ------------------------------------------------------------------------------------------------------- */

void wi_bitmap_check(wi_bitmap *b)
{
#ifdef WEIR_INVARIANTS
    if (++b->changes % (1 + b->words / 4) != 0)
        return; /* a walk over all words with every change would be quadratic */
    uint64_t counted = 0, trees = 0;
    for (uint32_t w = 0; w < b->words; w++) {
        uint32_t bound = b->bound[w];
        counted += (uint64_t)__builtin_popcountll(b->bits[w]);
        wi_assert(bound <= WI_BITMAP_LONGEST && bound >= longest_from(b, w) && (bound == 0) == (b->bits[w] == 0));
        wi_assert(bound == 0 || (*tree_at(b, 0, w / 64, bound) >> w % 64 & 1));
        trees |= bound ? UINT64_C(1) << (bound - 1) : 0;
    }
    wi_assert(counted == b->free && trees == b->trees && b->bits[b->words] == 0);
    uint64_t entered = 0, words = 0;
    for (uint32_t bound = 1; bound <= WI_BITMAP_LONGEST; bound++)
        for (uint32_t level = 0; level < b->levels; level++) {
            uint32_t end = level + 1 < b->levels ? b->level[level + 1] : b->tree_words;
            for (uint32_t at = 0; at < end - b->level[level]; at++) {
                uint64_t bits = *tree_at(b, level, at, bound);
                entered += level == 0 ? (uint64_t)__builtin_popcountll(bits) : 0;
                if (level + 1 < b->levels)
                    wi_assert((*tree_at(b, level + 1, at / 64, bound) >> at % 64 & 1) == (bits != 0));
            }
        }
    for (uint32_t w = 0; w < b->words; w++)
        words += b->bound[w] != 0;
    wi_assert(entered == words);
#else
    (void)b;
#endif
}
