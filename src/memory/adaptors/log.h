/* The adaptor "log": records what reaches it and how that ended, in the order in which it happened.
 *
 * Events go into a ring of the runtime, under the ledger's lock, like those of traces. A free is recorded before the
 * resource below hears of it, an allocation before another thread can know of it, so that a free never comes after
 * the reuse of its address. */
#ifndef WI_LOG_H
#define WI_LOG_H

#include "memory/ledger/events.h"
#include "memory/stack.h"

/* Arguments: csv=PATH, binary=PATH: files for the runtime to open. */
weir_status wi_log_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);
/* The outermost one; NULL: the stack has none. */
wi_resource *wi_log_find(wi_resource *top);
const char *wi_log_csv(const wi_resource *log); /* "": none */
const char *wi_log_binary(const wi_resource *log);
/* Where events go from here on; NULL: nowhere. */
void wi_log_into(wi_resource *log, wi_events *ring);

#endif
