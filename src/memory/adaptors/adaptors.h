/* Adaptors: the budget, the log, marks for tools, and the program's own. guard.h has the guard. */
#ifndef WI_ADAPTORS_H
#define WI_ADAPTORS_H

#include <weir/adaptor.h>

#include "memory/ledger/ledger.h"
#include "memory/resource.h"
#include "memory/stack.h"

/* ---- budget.c ---------------------------------------------------------------------------------------------------- */

/* The stage that claims bytes for requests; budget.c says where else bytes are claimed. The counters are the ledger's. */

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

/* ---- log.c ------------------------------------------------------------------------------------------------------- */

/* The adaptor "log": records the calls that reach the adaptor, and the results, in the order in which the calls
 * took effect.
 *
 * Events go into a ring of the runtime, under the ledger's lock, like those of traces. A free is recorded before it
 * reaches the resource below, and an allocation before its address is known to other threads. So a free never comes
 * after the reuse of its address. */

/* Arguments: csv=PATH, binary=PATH: files for the runtime to open. */
weir_status wi_log_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);
/* The outermost log of a stack; NULL: the stack has none. */
wi_resource *wi_log_find(wi_resource *top);
const char *wi_log_csv(const wi_resource *log); /* "": no such file */
const char *wi_log_binary(const wi_resource *log);
/* Sets the ring that events go into; NULL: none. */
void wi_log_into(wi_resource *log, wi_events *ring);

/* ---- nvtx.c ------------------------------------------------------------------------------------------------------ */

/* Marks of blocks (NVTX) for tools that watch a GPU's memory: with them, compute-sanitizer's memcheck knows the end of
 * a block to the byte.
 *
 * To the tool, a piece of memory that the driver gave is a "heap". Only its "regions" may be accessed: the bytes of the
 * block in it, without margins. As heaps the tool takes what cuMemAlloc gave, and refuses memory that is mapped into a
 * range (compute-sanitizer 2025.3.1: "One or more of the parameters is invalid", for the whole range, a run and a
 * single handle). So only the resource "direct" has marks. The tool does not check copies and fills of the driver's.
 *
 * Without a tool a call costs one comparison. The tool is foreign code: no lock is held around these calls, and the
 * block is claimed or not yet published. */

/* The block is in the piece [start, start + bytes), which cuMemAlloc gave for it alone. */
void wi_nvtx_enter(const wi_resource *resource, wi_block *block, uintptr_t start, uint64_t bytes);
/* block->bytes has changed. The tool judges a kernel by the marks at its launch, so that kernels in the queue are not
 * affected. */
void wi_nvtx_resize(const wi_resource *resource, wi_block *block);
/* The device is past the block, but its piece is kept: no access is valid. */
void wi_nvtx_bury(const wi_resource *resource, wi_block *block);
/* The piece goes back to the driver. */
void wi_nvtx_leave(const wi_resource *resource, wi_block *block);

/* ---- own.c ------------------------------------------------------------------------------------------------------- */

/* An adaptor of the program's own: the functions of a weir_adaptor_table around an inner resource. */

weir_status wi_own_adaptor_create(const weir_adaptor_table *own, wi_resource *inner, const wi_arguments *arguments,
                                  wi_resource **out);

#endif
