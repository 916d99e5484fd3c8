/* A block: one allocation, as every resource records it. Records lie outside device memory. */
#ifndef WI_BLOCK_H
#define WI_BLOCK_H

#include "base/internal.h"

#include <weir/memory.h>

typedef struct wi_account wi_account;
struct wi_marks;

enum { WI_UNIT = 256 }; /* charges are multiples of it; weir/memory.h says why 256 */

typedef struct wi_block {
    void *pointer;
    uint64_t bytes;   /* as requested; law: bytes <= charged */
    uint64_t charged; /* as the ledger counts it */
    uint64_t generation;
    wi_account *account;
    const char *tag; /* interned */
    weir_stream stream;
    weir_class memory_class;
    weir_block_state state;
    bool zeroing;           /* zeros were queued on `stream`, and no other stream has been ordered behind them */
    struct wi_marks *marks; /* where streams used it; NULL: nowhere that was declared */
} wi_block;

#endif
