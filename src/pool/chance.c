/* The mean of gaps is an exponential average: a gap counts for a quarter, and what is older for the rest. A gap counts for
 * four times the mean at the most: a model that comes back after hours is wanted again at once, and must not look for many
 * requests as if it were not. */
#include "pool/chance.h"
#include "base/internal.h"

enum { SHARE = 4, LONGEST = 4, LEAST_SECONDS = 1 };

void wp_arrived(wp_arrivals *arrivals, uint64_t now)
{
    uint64_t gap = arrivals->count > 0 && now > arrivals->last ? now - arrivals->last : 0;
    uint64_t most = wi_max(arrivals->mean, LEAST_SECONDS * UINT64_C(1000000000));
    if (arrivals->count > 1 && gap / LONGEST > most)
        gap = LONGEST * most;
    if (arrivals->count == 1)
        arrivals->mean = gap;
    else if (arrivals->count > 1 && gap > arrivals->mean)
        arrivals->mean += (gap - arrivals->mean) / SHARE;
    else if (arrivals->count > 1)
        arrivals->mean -= (arrivals->mean - gap) / SHARE;
    arrivals->last = now;
    if (arrivals->count < UINT32_MAX)
        arrivals->count++;
}

uint64_t wp_gap(const wp_arrivals *arrivals, uint64_t now)
{
    uint64_t mean = arrivals->count < 2 ? WP_GAP_UNKNOWN : arrivals->mean;
    uint64_t age = arrivals->count > 0 && now > arrivals->last ? now - arrivals->last : 0;
    return wi_max(1, wi_max(mean, age));
}

uint64_t wp_chance(const wp_arrivals *arrivals, uint64_t now)
{
    unsigned __int128 horizon = (unsigned __int128)WP_HORIZON << 32;
    return (uint64_t)(horizon / ((unsigned __int128)WP_HORIZON + wp_gap(arrivals, now)));
}

uint64_t wp_weighed(uint64_t time, uint64_t chance)
{
    return (uint64_t)((unsigned __int128)time * chance >> 32);
}
