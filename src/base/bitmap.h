/* A hierarchical bitmap of free bits that finds runs of up to 64 of them without a search.
 *
 * The bits lie in words of 64. Each word has a bound: at least the length, cut at 64, of the longest free run that
 * begins in it and goes on into the next word at most. A run of n <= 64 bits begins in exactly one word, whose bound
 * is n or more; so it is enough to look into words by bound. For each bound from 1 to 64 a tree of bitmaps of 64
 * branches tells which words have it, and one more word tells which trees are not empty.
 *
 * Taking a bit leaves its bound, which may be too high then. A search corrects the bound of a word that it meets, and
 * a word that becomes full gets bound 0: this keeps single bits cheap. Giving a bit back raises bounds at once, as
 * the new run requires.
 *
 * Invariants: bound[w] >= longest(w);  bound[w] == 0 if and only if the word is full;  w is in the tree of bound[w]
 * and in no other;  a bit of a tree is set if and only if the word below it is not zero;  `free` counts the bits.
 * No locks: the caller has one. */
#ifndef WI_BITMAP_H
#define WI_BITMAP_H

#include "base/internal.h"

enum { WI_BITMAP_LEVELS = 5, WI_BITMAP_LONGEST = 64 };
#define WI_BITMAP_MOST (UINT32_C(1) << 30) /* 64^5 bits: what the levels address */
#define WI_BITMAP_NONE UINT32_MAX

typedef struct wi_bitmap {
    uint32_t count, words, free;
    uint32_t open;  /* the word that single bits come from */
    uint64_t *bits; /* one word more than there are, always full */
    uint8_t *bound; /* per word */
    uint64_t trees; /* bit n - 1: some word has the bound n */
    uint64_t *tree; /* 64 trees of tree_words each, interleaved; the level of single words first */
    uint32_t tree_words, levels, level[WI_BITMAP_LEVELS]; /* where each level of a tree begins */
    uint64_t changes;                                     /* for the invariant checker */
} wi_bitmap;

/* `count` ones from bit `from` on, within a word; count is from 1 to 64. */
static inline uint64_t wi_bits(uint32_t from, uint32_t count)
{
    wi_assert(count > 0 && count <= 64);
    return ~UINT64_C(0) >> (64 - count) << from;
}

/* All bits are free. False: no host memory; count is from 1 to WI_BITMAP_MOST. */
bool wi_bitmap_init(wi_bitmap *bitmap, uint32_t count);
void wi_bitmap_destroy(wi_bitmap *bitmap);

/* Takes one bit: from the open word while that has any, else from the word with the shortest runs, the lowest such
 * one; within a word the lowest. WI_BITMAP_NONE when none is free. */
static inline uint32_t wi_bitmap_take(wi_bitmap *bitmap);

/* Takes `count` bits in a row and returns the first, or WI_BITMAP_NONE without such a run. Up to 64: best fit by
 * word, a run of exactly that length before a longer one, then the lowest; more: first fit. */
uint32_t wi_bitmap_take_run(wi_bitmap *bitmap, uint32_t count);

/* Gives taken bits back. */
void wi_bitmap_give_one(wi_bitmap *bitmap, uint32_t bit);
void wi_bitmap_give(wi_bitmap *bitmap, uint32_t first, uint32_t count);

/* The longest free run. Up to 64 in constant time but for bounds that are put right; else it looks at every word with
 * that bound. */
uint32_t wi_bitmap_longest(wi_bitmap *bitmap);

/* The last bit of the open word, or one of another word. */
uint32_t wi_bitmap_take_last(wi_bitmap *bitmap);

static inline uint32_t wi_bitmap_take(wi_bitmap *bitmap)
{
    uint64_t bits = bitmap->bits[bitmap->open], rest = bits & (bits - 1);
    if (wi_unlikely(!rest))
        return wi_bitmap_take_last(bitmap);
    bitmap->bits[bitmap->open] = rest;
    bitmap->free--;
    return bitmap->open * 64 + (uint32_t)__builtin_ctzll(bits);
}

static inline bool wi_bitmap_is_free(const wi_bitmap *bitmap, uint32_t bit)
{
    return bitmap->bits[bit / 64] >> bit % 64 & 1;
}

/* Zeros for a table of `count` members of `size` bytes, on huge pages where it is large enough for some: tables that
 * are read at random cost a miss of the address tables else. NULL when there is no memory. */
void *wi_table_make(size_t count, size_t size);

/* Executes the invariants; nothing in builds without WEIR_INVARIANTS. */
void wi_bitmap_check(wi_bitmap *bitmap);

#endif
