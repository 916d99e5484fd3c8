/* sources.h: where a server's models come from: words of the command line, folders and a configuration; and what changes there. */
#ifndef WEIR_CLI_SERVE_SOURCES_H
#define WEIR_CLI_SERVE_SOURCES_H

#include "config.h"
#include "serve.h"

typedef struct sources sources;

/* `words` and `options` stay valid. Takes the configuration, which may be NULL, as the one at `path`. */
sources *sources_create(served *all, char **words, size_t count, const char *path, server_config *file,
                        const arg *options);
void sources_free(sources *from); /* NULL is nothing */

/* Finds the models, makes a pool for them and serves them. With `load` loads all models, else the models whose
 * configuration asks for it. Prints a failure. Answers -1 when the models are served, else the exit status. */
int sources_begin(sources *from, bool load);

/* From here on a thread looks once a second whether files have changed, and has what is served follow. */
weir_status sources_watch(sources *from);
/* The configuration is read again, soon. Not in a signal's handler. */
void sources_again(sources *from);
/* Ends the thread; a load in progress is given up. */
void sources_unwatch(sources *from);

#endif
