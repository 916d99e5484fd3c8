/* The engines that are known: linked in, or found as plug-ins. */
#ifndef WI_ENGINES_REGISTRY_H
#define WI_ENGINES_REGISTRY_H

#include "base/internal.h"

#include <weir/engine.h>

/* The engine for a model file: by its suffix, else by its first bytes. WEIR_ERR_NOT_FOUND names what there is. */
weir_status wi_engine_for(const char *path, const weir_engine **out);

/* Whether the path ends in one of the suffixes, which stand between blanks, in any case. */
bool wi_suffix_of(const char *suffixes, const char *path);
/* A name with the suffix under which a file with these first bytes would be known; "" if none. */
const char *wi_suffix_by_content(const char *path);

#endif
