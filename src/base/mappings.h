/* The mappings of the process. The kernel allows it a number of them (vm.max_map_count, as a rule 65,530), for threads,
 * the C library and all libraries together; when they are used up, everything fails. So weir leaves the last sixteenth
 * to the others. */
#ifndef WI_MAPPINGS_H
#define WI_MAPPINGS_H

#include "base/internal.h"

typedef struct wi_mappings {
    uint64_t there, most;
} wi_mappings;

/* Counts them, in up to 20 ms. Where the system does not tell, `there` is 0. */
wi_mappings wi_mappings_count(void);

/* Whether weir may make `count` more mappings, which are counted as made. Reads the number of mappings again after some
 * hundred, to see mappings of other code in time. Any thread. */
bool wi_mappings_take(uint64_t count);

/* Whether so few are left that wi_mappings_take refuses, or will soon. */
bool wi_mappings_are_short(void);

#endif
