/* Brute force: whether a request could be met, granule by granule, from where the blocks lie. It looks at the extents of the
 * resource and at the handles of the toy, at a moment when nothing else runs, and knows nothing of how memory is looked
 * for.
 *
 * A handle with nothing on it that anybody could still touch can be had from where it is, cut at will, and put elsewhere;
 * what lies under the place of the request stays. So a place costs a granule for each that it touches and that is a hole
 * or of such a handle; and there are as many as budget and device have, less those that are held down. */
#ifndef TESTS_CORE_COULD_H
#define TESTS_CORE_COULD_H

#include "memory/mapped/mapped.h"

typedef struct question {
    uint64_t bytes, alignment;
    weir_stream stream;
    bool waits;      /* all that is freed will have passed */
    uint64_t budget; /* bytes */
} question;

bool could_place(wi_mapped *mapped, const question *q);
/* The same directly behind `end`, which the memory of a block ends at. */
bool could_extend(wi_mapped *mapped, const question *q, const void *end);
/* Granules that are held down. */
uint64_t could_not_be_moved(wi_mapped *mapped, const question *q);

#endif
