/* Leaks: what clients have not given back, told in the log by client and tag. */
#ifndef WI_RUNTIME_LEAKS_H
#define WI_RUNTIME_LEAKS_H

#include "runtime/runtime.h"

/* Of that client, or of all (NULL), in the memory of the runtime's ledger. Nothing is made where nobody listens. The
 * thread's detail stays. */
void wi_leaks_tell(weir_runtime *runtime, const weir_client *client);
/* From now on the end of the process tells of all runtimes that are there. No driver is called then. */
void wi_leaks_watch_exit(void);

#endif
