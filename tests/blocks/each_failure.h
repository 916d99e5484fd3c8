/* One failure in a life of a pool: of a call of the driver's, or of a malloc. For tests whose objects are linked as heap.h asks for. */
#ifndef TESTS_BLOCKS_EACH_FAILURE_H
#define TESTS_BLOCKS_EACH_FAILURE_H

#include "core/faulty.h"
#include "core/heap.h"

static long driver_fails_at = -1;
static long calls_made;   /* of the driver, by the life; which sets it */
static unsigned failures; /* that the life has seen; which counts them */

/* Lives twice with that failure, -1: none. What weir keeps for good is there by the second time, which leaves no host memory. */
static void live_with(void (*live)(void), long driver_at, long malloc_at)
{
    long pieces = 0;
    for (int again = 0; again < 2; again++) {
        pieces = heap_pieces;
        faults_reset(-1);
        failures = 0;
        mallocs = 0;
        driver_fails_at = driver_at;
        malloc_fails_at = malloc_at;
        live();
    }
    assert_int_equal(heap_pieces, pieces);
}

/* Has each malloc fail once. More than `least` of the lives see a failure. */
static void fail_each_malloc(void (*live)(void), unsigned least)
{
    unsigned seen = 0;
    long most = 0;
    for (long at = -1; at <= most; at++) {
        live_with(live, -1, at);
        most = at < 0 ? mallocs : most;
        seen += failures > 0;
    }
    assert_true(most > 10 && seen > least);
}

#endif
