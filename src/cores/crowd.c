/* See crowd.h. */
#include "cores/crowd.h"

#include "base/system.h"

#include <sys/resource.h>
#include <time.h>

enum { FIRST_CROWD_DELAY = 50 * 1000 * 1000 };
static const uint64_t longest_crowd_delay = UINT64_C(64) * FIRST_CROWD_DELAY;

/* The times of getrusage are as old as the system's last tick: some milliseconds, a fifth of a window. */
wi_crowd_sample wi_crowd_look(uint64_t now)
{
    struct rusage used;
    struct timespec ran;
    getrusage(RUSAGE_THREAD, &used);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return (wi_crowd_sample){.passed = now,
                             .ran = (uint64_t)ran.tv_sec * UINT64_C(1000000000) + (uint64_t)ran.tv_nsec,
                             .put_off = wi_clock ? 0 : (uint64_t)used.ru_nivcsw}; /* in simulated time nobody is */
}

void wi_crowd_begin(wi_crowd *crowd, uint32_t cores)
{
    *crowd = (wi_crowd){.limit = cores, .delay = FIRST_CROWD_DELAY};
}

/* A quarter, so that many threads become few soon, and few become one less. */
static uint32_t crowd_step(uint32_t threads)
{
    return threads / 4 > 0 ? threads / 4 : 1;
}

/* Being put off is the system's doing; time alone also passes while a file is read. */
static bool is_crowded(const wi_crowd_sample *window)
{
    return window->put_off > 0 && window->ran < window->passed - window->passed / 5;
}

static bool shrink_crowd(wi_crowd *crowd)
{
    if (crowd->trying)
        crowd->delay = wi_min(crowd->delay * 2, longest_crowd_delay);
    crowd->trying = false;
    crowd->quiet = 0;
    if (crowd->most <= 1)
        return false;
    crowd->limit = crowd->most - crowd_step(crowd->most);
    return true;
}

static bool grow_crowd(wi_crowd *crowd, uint32_t cores)
{
    if (crowd->trying && crowd->most < crowd->limit)
        return false; /* not tried yet */
    if (crowd->trying)
        crowd->delay = FIRST_CROWD_DELAY;
    crowd->trying = false;
    crowd->quiet += crowd->window.passed;
    if (crowd->limit >= cores || crowd->quiet < crowd->delay)
        return false;
    crowd->limit = (uint32_t)wi_min(crowd->limit + crowd_step(crowd->limit), cores);
    crowd->trying = true;
    crowd->quiet = 0;
    return true;
}

bool wi_crowd_add(wi_crowd *crowd, uint32_t cores, uint32_t threads, const wi_crowd_sample *sample)
{
    crowd->window.passed += sample->passed;
    crowd->window.ran += sample->ran;
    crowd->window.put_off += sample->put_off;
    crowd->most = (uint32_t)wi_max(crowd->most, threads);
    if (crowd->window.passed < WI_CROWD_WINDOW)
        return false;
    bool changed = is_crowded(&crowd->window) ? shrink_crowd(crowd) : grow_crowd(crowd, cores);
    crowd->window = (wi_crowd_sample){0};
    crowd->most = 0;
    return changed;
}
