/* The adaptor "budget": enforces the ledger's limits, without counters of its own. */
#ifndef WI_BUDGET_H
#define WI_BUDGET_H

#include "memory/resource.h"

weir_status wi_budget_create(wi_resource *inner, wi_resource **out);
/* Tells the budget of a stack about the adaptors around it. False: the stack has no budget, or two. */
bool wi_budget_attach(wi_resource *top);

/* A reservation: bytes claimed in one step, which later allocations use up. `left` is promised, and in no block yet. */
typedef struct wi_reservation {
    wi_account *account;
    uint64_t total;
    atomic_uint_fast64_t left;
} wi_reservation;

/* Claims request->charged; climbs the ladder if that fails. `placed`: for blocks of this stack, so that a refusal tells what
 * has to be held for them as well. */
weir_status wi_budget_reserve(wi_resource *top, wi_account *account, const wi_request *request, bool placed,
                              bool may_wait);

#endif
