/* What engines tell of themselves. */
#ifndef WI_CHOICE_ENGINES_H
#define WI_CHOICE_ENGINES_H

#include "base/values.h"

#include <weir/engine.h>

typedef struct wi_engine_info {
    const char *name;
    const weir_engine *table; /* NULL: the plug-in is not here */
    char missing[1024];       /* if it is not: why, and how to get it */
    bool takes_file;
    bool asked;                                   /* whether the engine was asked for its providers */
    weir_engine_provider providers[WI_PROVIDERS]; /* `name` "": the engine has no such provider */
} wi_engine_info;

typedef struct wi_engines {
    wi_engine_info *all;
    size_t count;
} wi_engines;

/* Lists every engine that can be opened here or that weir knows by name, once, and marks the engines that take the
 * file: by its name, of a folder by the names in it, else by its first bytes. Free the list with wi_engines_free, also
 * on failure. WEIR_ERR_SYSTEM. */
weir_status wi_engines_find(const char *path, wi_engines *out);
/* Asks an engine for its providers, if that has not been done. Opens its libraries. */
void wi_engine_ask(wi_engine_info *engine);
void wi_engines_free(wi_engines *engines);

/* WEIR_ERR_INVALID, with the names of the listed engines: none has this name. */
weir_status wi_engines_check(const wi_engines *engines, const char *what, const char *name);

#endif
