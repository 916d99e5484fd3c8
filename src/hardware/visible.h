/* Lists of visible devices, as CUDA_VISIBLE_DEVICES has them. */
#ifndef WI_VISIBLE_H
#define WI_VISIBLE_H

#include "base/internal.h"

/* Which devices a process with this list sees: their numbers into seen[], in the order of their ordinals; answers how many.
 * keys[] are UUIDs; a number in the list counts among the first `counted` of them, a UUID or the beginning of one is looked for
 * among all `count`. The first entry that is neither ends the list; "" lets nothing be seen, NULL the counted ones. */
size_t wi_visible(const char *list, const char *const *keys, size_t counted, size_t count, size_t *seen);

#endif
