/* Background: threads of weir's own beside the work, and page-locked memory that one of them frees. */
#ifndef WI_BACKGROUND_H
#define WI_BACKGROUND_H

#include <weir/memory.h>

#include "base/internal.h"

#include <pthread.h>

/* Runs fn(user) on a detached thread that gets no signal of the program's. The process' exit waits for it, at most for a second:
 * fn looks at wi_background_ends between its steps. False: there is no thread, or the process ends. */
bool wi_background(void (*fn)(void *user), void *user);
bool wi_background_ends(void);

/* Page-locked memory that waits to be freed, since the driver may wait for the whole device there (cuMemFreeHost), or take
 * milliseconds (cuMemHostUnregister). A part of the runtime; its blocks are live until they are freed. */
typedef struct wi_aside {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct wi_aside_block *first; /* oldest first */
    uint64_t bytes;               /* of all of them */
    bool works;                   /* a thread frees */
} wi_aside;

/* No more bytes wait at a time: beyond them the caller frees. Tests change it. */
extern atomic_uint_fast64_t wi_aside_most;

void wi_aside_begin(wi_aside *aside);
void wi_aside_end(wi_aside *aside); /* waits for the thread */

/* Has the block freed, of the client's kind of pinned memory. A block that the driver does not take back is told in the log. */
void wi_free_aside(weir_client *client, weir_block block, uint64_t bytes);
/* Waits until no block of the client's waits, and helps. True: there was one. */
bool wi_free_aside_wait(weir_client *client);

#endif
