/* placing.h: models of a run whose engine, provider and device are chosen: manifests, and what comes with words for the
 * choice. */
#ifndef WEIR_CLI_PLACING_H
#define WEIR_CLI_PLACING_H

#include "job.h"

/* Reads the model's manifest and asks for the choice, so that the device is known on which it will be if nothing fails. What
 * goes wrong is the job's failure. Answers -1 to go on, CLI_USAGE where the words were wrong, which has been told. */
int placing_look(job *work);

/* Opens the model on the first candidate that takes it. */
weir_status placing_open(job *work);

/* Notes where the model is by now, and how it came to be there. */
void placing_follow(job *work);

void placing_clear(job *work);

#endif
