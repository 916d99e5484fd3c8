/* The adaptor "log": records the calls that reach the adaptor, and the results, in the order in which the calls
 * took effect.
 *
 * Events go into a ring of the runtime, under the ledger's lock, like those of traces. A free is recorded before it
 * reaches the resource below, and an allocation before its address is known to other threads. So a free never comes
 * after the reuse of its address. */
#ifndef WI_LOG_H
#define WI_LOG_H

#include "memory/ledger/events.h"
#include "memory/stack.h"

/* Arguments: csv=PATH, binary=PATH: files for the runtime to open. */
weir_status wi_log_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);
/* The outermost log of a stack; NULL: the stack has none. */
wi_resource *wi_log_find(wi_resource *top);
const char *wi_log_csv(const wi_resource *log); /* "": no such file */
const char *wi_log_binary(const wi_resource *log);
/* Sets the ring that events go into; NULL: none. */
void wi_log_into(wi_resource *log, wi_events *ring);

#endif
