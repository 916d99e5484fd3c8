/* interrupt.h: Ctrl-C ends runs in good order: what is running is cancelled, models are unloaded, then the command ends. */
#ifndef WEIR_CLI_INTERRUPT_H
#define WEIR_CLI_INTERRUPT_H

#include <weir/model.h>

/* Takes SIGINT and SIGTERM for this process, on a thread of its own. Before any other thread is made: they inherit that
 * the signals are not theirs. A second signal ends the process at once. */
void interrupt_begin(void);

/* Was there a signal? */
bool interrupt_seen(void);

/* From here on a signal cancels the runs of this model, until it is taken back (always before it is unloaded). */
void interrupt_covers(weir_model *model);
void interrupt_forgets(weir_model *model);

#endif
