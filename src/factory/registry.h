/* The engines that are known: linked in, or found as plug-ins. */
#ifndef WI_ENGINES_REGISTRY_H
#define WI_ENGINES_REGISTRY_H

#include "base/internal.h"

#include <weir/engine.h>

/* weir's own plug-ins, which are named also where they are not here. */
typedef struct wi_own_engine {
    const char *name, *suffixes;
    const char *way; /* to get it */
} wi_own_engine;
enum { WI_OWN_ENGINES = 3 };
extern const wi_own_engine wi_own_engines[WI_OWN_ENGINES];
/* NULL: it is none of them. */
const wi_own_engine *wi_own_engine_of(const char *name);

/* The engine for a model: by its name, of a folder by the names in it, else by the file's first bytes. WEIR_ERR_NOT_FOUND
 * names what there is. */
weir_status wi_engine_for(const char *path, const weir_engine **out);

#endif
