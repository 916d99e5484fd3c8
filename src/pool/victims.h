/* victims.h: the cheapest set of models that has to leave so that enough bytes are freed. It knows bytes and costs alone, no
 * models. */
#ifndef WEIR_POOL_VICTIMS_H
#define WEIR_POOL_VICTIMS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WP_WAYS = 2,
    WP_EXACT = 16,     /* for up to so many candidates the cheapest set is found; for more a good set */
    WP_EXACT_HOST = 12 /* so many where the host's bytes are short: then far fewer sets can be left out */
};

/* One way in which a candidate may leave: a suspend, or an eviction. */
typedef struct wp_way {
    uint64_t frees; /* bytes of the device */
    int64_t host;   /* host bytes that the way takes; below 0: gives back */
    uint64_t cost;  /* below 2^56 */
} wp_way;

typedef struct wp_candidate {
    uint32_t model;   /* the caller's */
    uint32_t count;   /* of its ways: 1 or 2 */
    uint32_t suspend; /* the caller's: number of the suspend among the ways, from 1 */
    wp_way ways[WP_WAYS];
} wp_candidate;

typedef struct wp_solver wp_solver;

wp_solver *wp_solver_create(void); /* NULL: no memory. About a megabyte, of which small problems touch little */
void wp_solver_destroy(wp_solver *solver);

typedef struct wp_set {
    bool found;    /* false: no set frees enough without more of the host than there is. Beyond so many candidates a set
                       that has to trade the host's bytes against the device's may be missed */
    uint64_t cost; /* of the set */
    uint64_t bound; /* no set costs less than this; up to so many candidates it is the cost */
} wp_set;

/* `chosen[i]`: 0: candidate i stays; else its way, from 1. The chosen ones free at least `need` bytes (more than 0) and take
 * at most `host` bytes of the host in all. The same candidates give the same set. */
wp_set wp_victims(wp_solver *solver, const wp_candidate *candidates, uint32_t count, uint64_t need, uint64_t host,
                  uint8_t *chosen);

/* What wp_victims begins with. With one way each and host bytes to spare it costs at
 * most twice what the cheapest set does (Csirik, Frenk, Labbé and Zhang 1991). */
wp_set wp_victims_greedy(wp_solver *solver, const wp_candidate *candidates, uint32_t count, uint64_t need,
                         uint64_t host, uint8_t *chosen);

/* ---- how soon a model is wanted again, from the times at which it was -------------------------------------------- */

/* Whole numbers alone, so that every machine finds the same. */

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
