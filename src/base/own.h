/* What a thread keeps for itself and is too large for thread-local storage.
 *
 * A library that is opened late gets its thread-local storage from a small reserve of the C library's, if it asks for
 * static storage, or pays for each byte in every thread. So libweir has pointers there alone (tests/core/opened.c
 * counts), and what they point to is made when a thread first needs it. */
#ifndef WI_OWN_H
#define WI_OWN_H

#include "base/internal.h"

/* The calling thread's memory behind `*place`, a thread-local pointer: `bytes` of zeros when it is first asked for, and
 * freed when the thread ends, when *place is NULL again. NULL without host memory. Leaves the detail alone. */
void *wi_own(void **place, size_t bytes);

#endif
