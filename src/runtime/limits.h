/* What this process may have of a runtime's device, as others have set it: by the cgroups' controller dmem, and by NVML. */
#ifndef WI_LIMITS_H
#define WI_LIMITS_H

#include "base/system.h"
#include "runtime/runtime.h"

/* Stands before the paths of the cgroups' files; "". Tests set the root before they make a runtime. */
extern const char *wi_limits_root;

/* The limits of now: the lesser of what the two tell, and the larger guarantee. Reads files, and begins NVML and ends it where
 * that knows limits (CUDA 13.4), which may take some milliseconds. False: nobody limits, and nobody guarantees. Any thread. */
bool wi_limits_read(const weir_runtime *runtime, wi_device_limits *out);

/* Writes into the log that they decide the budget. */
void wi_limits_tell(const weir_runtime *runtime, const wi_device_limits *limits);

#endif
