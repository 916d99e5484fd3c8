/* Fronts: whether memory has not grown for so long that large blocks may stay parked, and whether that pays. */
#include "runtime/front.h"

/* Threads that come at the same moment may overwrite one another: it is a guess, and comes right with the next ones. */
static void set(atomic_uint *number, unsigned value)
{
    atomic_store_explicit(number, value, memory_order_relaxed);
}

static unsigned get(const atomic_uint *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void note_in_calm(wi_fronts *fronts, uint32_t handles, uint32_t hits)
{
    unsigned most = WI_CALM_SAVED * WI_CALM_WORTH, earned = wi_min(get(&fronts->earned) + wi_min(hits, most), most);
    unsigned cost = wi_min(handles, UINT32_MAX / WI_CALM_WORTH) * WI_CALM_WORTH;
    set(&fronts->earned, earned - wi_min(cost, earned));
    if (earned >= cost)
        return;
    set(&fronts->quiet, 0);
    set(&fronts->patience, wi_min(get(&fronts->patience), UINT32_MAX / 32) * 16);
}

void wi_fronts_note(wi_fronts *fronts, uint32_t handles, uint32_t hits)
{
    unsigned quiet = get(&fronts->quiet);
    if (wi_fronts_are_calm(fronts)) {
        note_in_calm(fronts, handles, hits);
        return;
    }
    set(&fronts->quiet, handles > 0 ? quiet - wi_min(quiet, WI_CALM_GROWTH) : quiet + 1);
    set(&fronts->earned, WI_CALM_ALLOWED * WI_CALM_WORTH);
}
