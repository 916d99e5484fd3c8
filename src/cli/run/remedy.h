/* remedy.h: after a refusal, which limit would have done. */
#ifndef WEIR_CLI_REMEDY_H
#define WEIR_CLI_REMEDY_H

#include "job.h"

/* Adds to the job's failure, if it is a refusal, the limit under which it would have worked: exact where the engine's
 * plan is, else "at least so much more". */
void remedy_find(job *work);

#endif
