/* random.h: chance that is the same on any machine: no floating point, no libm. */
#ifndef SIM_POOL_RANDOM_H
#define SIM_POOL_RANDOM_H

#include <stdint.h>

/* splitmix64 */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* A number below `below`, which is not 0. */
static inline uint64_t random_below(uint64_t *state, uint64_t below)
{
    return (uint64_t)((unsigned __int128)random_next(state) * below >> 64);
}

/* -log2(x / 2^32) in units of 2^-24, for x from 1 to 2^32: by squaring, a bit of the answer each time. */
static inline uint64_t random_log2(uint64_t x)
{
    enum { BITS = 24 };
    unsigned whole = 63 - (unsigned)__builtin_clzll(x);
    uint64_t part = 0, y = x << (63 - whole); /* from 1 to 2, in units of 2^-63 */
    for (int i = 0; i < BITS; i++) {
        unsigned __int128 square = (unsigned __int128)y * y >> 63;
        unsigned bit = (unsigned)(square >> 64);
        part = part << 1 | bit;
        y = (uint64_t)(square >> bit);
    }
    return ((uint64_t)(32 - whole) << BITS) - part;
}

/* Exponentially distributed with this mean: times between independent events. At most 22 times the mean, which is below
 * 2^40. */
static inline uint64_t random_exponential(uint64_t *state, uint64_t mean)
{
    const uint64_t ln2 = 11629080; /* in units of 2^-24 */
    uint64_t log = random_log2((random_next(state) >> 32) + 1);
    return (uint64_t)((unsigned __int128)mean * log * ln2 >> 48);
}

#endif
