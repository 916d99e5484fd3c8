/* chance.h: how soon a model is wanted again, from the times at which it was. Whole numbers alone, so that every machine
 * finds the same. */
#ifndef WEIR_POOL_CHANCE_H
#define WEIR_POOL_CHANCE_H

#include <stdint.h>

typedef struct wp_arrivals {
    uint64_t last; /* time of the last one */
    uint64_t mean; /* of the gaps between them, the later ones counting more; nanoseconds */
    uint32_t count;
} wp_arrivals;

void wp_arrived(wp_arrivals *arrivals, uint64_t now);

/* Nanoseconds in which the next one is expected: the mean gap, or how long ago the last one was if that is longer. At least
 * 1. A model that was asked for once or never is expected as late as after WP_GAP_UNKNOWN. */
#define WP_GAP_UNKNOWN (UINT64_C(600) * 1000000000)
uint64_t wp_gap(const wp_arrivals *arrivals, uint64_t now);

/* Returns the chance, in parts of 2^32, that a request comes within WP_HORIZON. With gaps drawn from exponential
 * distributions around an unknown mean, of which only the expected value is known, that is horizon / (horizon +
 * gap). */
#define WP_HORIZON (UINT64_C(60) * 1000000000)
uint64_t wp_chance(const wp_arrivals *arrivals, uint64_t now);

/* time x chance, rounded down. */
uint64_t wp_weighed(uint64_t time, uint64_t chance);

#endif
