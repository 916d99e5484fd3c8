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

/* Has all models served that there are, and makes the pool for them. With `load` all are loaded, else those that say so. A
 * failure is printed; answers the exit status, -1: they are served. */
int sources_begin(sources *from, bool load);

/* From here on a thread looks once a second whether files have changed, and has what is served follow. */
weir_status sources_watch(sources *from);
/* The configuration is read again, soon. Not in a signal's handler. */
void sources_again(sources *from);
/* Ends the thread; what it is loading is given up. */
void sources_unwatch(sources *from);

#endif
