/* The adaptor "budget": a view on the ledger's accounts, without counters of its own. */
#ifndef WI_BUDGET_H
#define WI_BUDGET_H

#include "memory/resource.h"

weir_status wi_budget_create(wi_resource *inner, wi_resource **out);
/* The budget of a stack is told of what is around it; false when the stack has none, or two. */
bool wi_budget_attach(wi_resource *top);

/* Bytes claimed as a whole and made into blocks in parts. `left` of them are promised and no block's. */
typedef struct wi_reservation {
    wi_account *account;
    uint64_t total;
    atomic_uint_fast64_t left;
} wi_reservation;

/* Claims request->charged, climbing the ladder. */
weir_status wi_budget_reserve(wi_resource *top, wi_account *account, const wi_request *request, bool may_wait);

#endif
