/* Memory of a thread that is too large for thread-local storage.
 *
 * A library that is loaded late gets static thread-local storage from a small reserve of the C library's; dynamic
 * storage costs every thread all its bytes. So libweir has only pointers in thread-local storage (tests/core/opened.c
 * counts them), and makes what they point to when a thread first needs it. */
#ifndef WI_OWN_H
#define WI_OWN_H

#include "base/internal.h"

/* The calling thread's memory behind `*place`, a thread-local pointer: `bytes` zeros at the first call. It is freed
 * when the thread ends, and *place is NULL again. NULL: no host memory. Does not change the detail. */
void *wi_own(void **place, size_t bytes);

#endif
