/* The adaptor "budget": limits over the ledger's accounts; it has no counters of its own. */
#ifndef WI_BUDGET_H
#define WI_BUDGET_H

#include "memory/resource.h"

weir_status wi_budget_create(wi_resource *inner, wi_resource **out);
/* Tells the budget of a stack which adaptors are around it; false: the stack has none, or two. */
bool wi_budget_attach(wi_resource *top);

/* A reservation: bytes claimed at once, from which blocks are allocated. `left` is promised and not yet a block's. */
typedef struct wi_reservation {
    wi_account *account;
    uint64_t total;
    atomic_uint_fast64_t left;
} wi_reservation;

/* Claims request->charged, climbing the ladder when that fails. */
weir_status wi_budget_reserve(wi_resource *top, wi_account *account, const wi_request *request, bool may_wait);

#endif
