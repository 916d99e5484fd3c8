/* The stage that claims bytes for requests; budget.c says where else bytes are claimed. The counters are the ledger's. */
#ifndef WI_BUDGET_H
#define WI_BUDGET_H

#include "memory/resource.h"

/* The adaptor "budget". A stack has exactly one budget. */
weir_status wi_budget_create(wi_resource *inner, wi_resource **out);

/* A reservation: bytes claimed in one step, which later allocations use up. `left` is promised, and in no block yet. */
typedef struct wi_reservation {
    wi_account *account;
    uint64_t total;
    atomic_uint_fast64_t left;
} wi_reservation;

/* Claims request->charged; climbs the ladder if that fails. `placed`: for blocks of this stack, so that a refusal tells what
 * has to be held for them as well. */
weir_status wi_budget_reserve(wi_resource *stack, wi_account *account, const wi_request *request, bool placed,
                              bool may_wait);

#endif
