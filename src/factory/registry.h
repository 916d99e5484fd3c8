/* The engines that are known: linked in, or found as plug-ins. */
#ifndef WI_ENGINES_REGISTRY_H
#define WI_ENGINES_REGISTRY_H

#include "base/internal.h"

#include <weir/engine.h>

/* The engine for a model: by its name, of a folder by the names in it, else by the file's first bytes. WEIR_ERR_NOT_FOUND
 * names what there is. */
weir_status wi_engine_for(const char *path, const weir_engine **out);

#endif
