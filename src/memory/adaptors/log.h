/* The adaptor "log": what reaches it, and how that went, in the order in which it happened.
 *
 * Its events go into a ring that the runtime gives it, under the ledger's lock, as those of traces do. A free is recorded
 * before the resource below hears of it and an allocation before anybody else can, so that a free never stands behind the
 * reuse of its address. */
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
