/* link.h: a way into a device, or out of it, that transfers share. While n of them go on, each gets on at an n-th of the
 * speed that it has alone. Up to sixteen at once that is exact; of more, each loses less than a nanosecond a year. */
#ifndef SIM_POOL_LINK_H
#define SIM_POOL_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINK_PARTS = 720720, LINK_MOST = 256 }; /* parts of a nanosecond: 1 to 16 divide them */

/* All zeros is a link on which nothing goes on. */
typedef struct shared_link {
    struct {
        unsigned __int128 left; /* parts */
        uint32_t who;
    } list[LINK_MOST]; /* in the order of their beginnings */
    uint32_t count;
    uint64_t now;
} shared_link;

/* Begins a transfer that takes `alone` nanoseconds if nothing else goes on. False: there are too many. */
bool link_begin(shared_link *it, uint64_t now, uint32_t who, uint64_t alone);
/* When the first of them is through, rounded up; UINT64_MAX: nothing goes on. */
uint64_t link_next(const shared_link *it);
/* Advances to `now`, which is not after link_next. True: a transfer is complete and removed, and *who names it. To be
 * called until false, as several transfers may be complete at `now`. */
bool link_end(shared_link *it, uint64_t now, uint32_t *who);

#endif
