/* Thread caches: whether memory has not grown for so long that large blocks may stay parked, and whether that pays. */
#include "runtime/thread_cache/thread_cache.h"

/* Threads that come at the same moment may overwrite one another: it is a guess, and comes right with the next ones. */
static void tcache_set(atomic_uint *number, unsigned value)
{
    atomic_store_explicit(number, value, memory_order_relaxed);
}

static unsigned tcache_get(const atomic_uint *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void note_in_calm(wi_tcaches *caches, uint32_t handles, uint32_t hits)
{
    unsigned most = WI_STEADY_SAVED * WI_STEADY_WORTH,
             earned = wi_min(tcache_get(&caches->earned) + wi_min(hits, most), most);
    unsigned cost = wi_min(handles, UINT32_MAX / WI_STEADY_WORTH) * WI_STEADY_WORTH;
    tcache_set(&caches->earned, earned - wi_min(cost, earned));
    if (earned >= cost)
        return;
    tcache_set(&caches->quiet, 0);
    tcache_set(&caches->reuse_wait, wi_min(tcache_get(&caches->reuse_wait), UINT32_MAX / 32) * 16);
}

void wi_tcaches_note(wi_tcaches *caches, uint32_t handles, uint32_t hits)
{
    unsigned quiet = tcache_get(&caches->quiet);
    if (wi_tcaches_are_steady(caches)) {
        note_in_calm(caches, handles, hits);
        return;
    }
    tcache_set(&caches->quiet, handles > 0 ? quiet - wi_min(quiet, WI_STEADY_GROWTH) : quiet + 1);
    tcache_set(&caches->earned, WI_STEADY_ALLOWED * WI_STEADY_WORTH);
}
