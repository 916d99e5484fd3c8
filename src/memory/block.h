/* A block: one allocation, as every resource records it. Records lie outside device memory. */
#ifndef WI_BLOCK_H
#define WI_BLOCK_H

#include "driver/driver.h"

#include <weir/memory.h>

typedef struct wi_account wi_account;
struct wi_marks;
struct wi_resource;

enum { WI_UNIT = 256 }; /* charges are multiples of it; weir/memory.h says why 256 */

/* Whose bytes some free memory held last: an account's serial number, or one of these; with WI_SECRET when they must not be
 * read by another. */
#define WI_CLEAN  UINT64_C(0)
#define WI_MIXED  (UINT64_MAX >> 1) /* several accounts', or unknown */
#define WI_SECRET (UINT64_C(1) << 63)

typedef struct wi_block {
    void *pointer;
    uint64_t bytes;         /* as requested; law: before + bytes + after <= charged */
    uint64_t before, after; /* margins; the memory begins at pointer - before */
    uint64_t charged;       /* as the ledger counts it */
    uint64_t generation;
    wi_account *account;
    const char *tag; /* interned */
    weir_stream stream;
    weir_class memory_class;
    weir_block_state state; /* FREE: allocated and not yet published */
    bool taken;             /* by a thread that frees or resizes it */
    bool zeroing; /* work was queued on `stream` at the allocation, and no other stream is ordered behind it */
    struct wi_marks *marks; /* where streams used it; NULL: nowhere that was declared */
    uint64_t previous;      /* whose bytes these were */
    bool untouched;         /* they still are: the account never had them to itself */
    void *heap;             /* a tool's handle of the block's piece; NULL: it has none; nvtx.h */
    bool marked;            /* the tool has the block, too */

    /* While it is pending; pending.h. */
    struct wi_resource *stack;
    wi_event freed;
    struct wi_block *pending_previous, *pending_next;
    bool refused; /* the driver did not take it back when it was last asked */
} wi_block;

#endif
