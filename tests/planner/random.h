/* Random lists of buffers, from a seed. */
#ifndef TESTS_PLAN_RANDOM_H
#define TESTS_PLAN_RANDOM_H

#include "planner/planning.h"
#include <weir/plan.h>

static inline uint64_t roll(uint64_t *seed, uint64_t sides)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *seed;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % sides;
}

/* How often a test goes round: more in the long check. */
static inline int rounds(int usual)
{
    const char *more = getenv("WEIR_PLAN_ROUNDS");
    return more ? atoi(more) : usual;
}

/* Plain intervals of sizes 1 … `most`. */
static inline weir_buffers *random_list(uint64_t *seed, int count, uint64_t steps, uint64_t most)
{
    weir_buffers *list = empty_list();
    for (int i = 0; i < count; i++) {
        uint64_t begin = roll(seed, steps), length = 1 + roll(seed, roll(seed, 4) ? 1 + steps / 4 : steps);
        (void)add(list, begin, begin + length < steps ? begin + length : steps, 1 + roll(seed, most));
    }
    return list;
}

/* Intervals of heights up to `highest` that fill all steps up to `full`: there is no slack anywhere. */
static inline weir_buffers *full_list(uint64_t *seed, int steps, uint64_t full, uint64_t highest)
{
    weir_buffers *list = empty_list();
    uint64_t rest[64] = {0};
    for (int i = 0; i < steps; i++)
        rest[i] = full;
    for (;;) {
        int emptiest = 0;
        for (int i = 0; i < steps; i++)
            if (rest[i] > rest[emptiest])
                emptiest = i;
        if (rest[emptiest] == 0)
            return list;
        int begin = emptiest, end = emptiest + 1;
        while (begin > 0 && rest[begin - 1] > 0 && roll(seed, 2))
            begin--;
        while (end < steps && rest[end] > 0 && roll(seed, 2))
            end++;
        uint64_t most = full;
        for (int i = begin; i < end; i++)
            most = rest[i] < most ? rest[i] : most;
        uint64_t height = 1 + roll(seed, most < highest ? most : highest);
        (void)add(list, (uint64_t)begin, (uint64_t)end, height);
        for (int i = begin; i < end; i++)
            rest[i] -= height;
    }
}

#endif
