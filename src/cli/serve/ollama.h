/* ollama.h: what the files of Ollama's interface share. */
#ifndef WEIR_CLI_SERVE_OLLAMA_H
#define WEIR_CLI_SERVE_OLLAMA_H

#include "completion.h"

/* "2026-11-23T09:30:05.000000001Z", of so many nanoseconds from now. */
void ollama_time(int64_t from_now, char *text, size_t room);
/* The model, keep_alive and options of a request. False: it is answered. */
bool ollama_read(completion *it, const json_t *body, const char **model);
/* total_duration and so on of a run that has ended. */
void ollama_add_times(json_t *to, const completion *it);
/* Returns the context that the model is loaded with, in tokens of prompt and answer together; 0: the model has no
 * context, or the size is unknown. */
uint64_t ollama_context(const served *all, served_model *model);

#endif
