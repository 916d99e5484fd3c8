/* States that failed. Two states are the same when the same items wait and the floors under them are equal; both are summed
 * up in 128 bits, so that a false answer is far less likely than a broken machine. */
#include "planner/search.h"
#include "base/internal.h"

enum { TABLE_BITS = 18, BUCKET = 4 };

struct wi_cover_table {
    wi_cover_state states[1 << TABLE_BITS];
    uint32_t next; /* which of a full bucket gives way */
};

bool wi_cover_table_create(wi_cover *cover)
{
    cover->table = calloc(1, sizeof *cover->table);
    return cover->table;
}

void wi_cover_table_destroy(wi_cover *cover)
{
    free(cover->table);
}

/* A state that failed under a cap fails under a lower one. */
void wi_cover_limit(wi_cover *cover, int64_t cap)
{
    if (cap > cover->table_cap)
        memset(cover->table, 0, sizeof *cover->table);
    cover->table_cap = cover->cap = cap;
    cover->salt = 0;
}

void wi_cover_limit_once(wi_cover *cover, int64_t cap)
{
    cover->cap = cap;
    cover->salt = wi_cover_random(cover) | 1;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static void add(wi_cover_state *state, uint64_t number, uint64_t salt)
{
    uint64_t mixed = mix(number);
    state->key += mixed;
    state->check += mixed * (salt | 1);
}

wi_cover_state wi_cover_state_of(const wi_cover *cover, uint32_t left, uint32_t right)
{
    wi_cover_state state = {left + 1 + cover->salt, right};
    for (uint32_t s = left; s < right; s++)
        add(&state, cover->floor_keys[s] + (uint64_t)cover->floors[s], cover->floor_keys[s]);
    uint32_t i = cover->first[left], end = cover->first[right];
    while (i < end) {
        uint64_t bits = cover->waiting[i / 64] >> (i % 64);
        if (bits == 0) {
            i = (i / 64 + 1) * 64;
            continue;
        }
        i += (uint32_t)__builtin_ctzll(bits);
        if (i < end)
            add(&state, cover->items[i].key, cover->items[i].key >> 7);
        i++;
    }
    return state;
}

static wi_cover_state *bucket_of(const wi_cover *cover, wi_cover_state state)
{
    return &cover->table->states[(state.key >> (64 - TABLE_BITS)) & ~(uint64_t)(BUCKET - 1)];
}

bool wi_cover_failed_before(const wi_cover *cover, wi_cover_state state)
{
    const wi_cover_state *bucket = bucket_of(cover, state);
    for (int i = 0; i < BUCKET; i++)
        if (bucket[i].key == state.key && bucket[i].check == state.check)
            return true;
    return false;
}

void wi_cover_remember(wi_cover *cover, wi_cover_state state)
{
    wi_cover_state *bucket = bucket_of(cover, state);
    for (int i = 0; i < BUCKET; i++)
        if (bucket[i].key == 0 && bucket[i].check == 0) {
            bucket[i] = state;
            return;
        }
    bucket[cover->table->next++ % BUCKET] = state;
}
