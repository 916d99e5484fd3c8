/* The settings that a model is loaded with. */
#ifndef WI_CHOICE_SETTINGS_H
#define WI_CHOICE_SETTINGS_H

#include "base/internal.h"

#include <weir/select.h>
#include <weir/engine.h>
#include <weir/manifest.h>

typedef struct wi_settings {
    weir_setting *all; /* texts are the manifest's and the options' */
    size_t count;
} wi_settings;

/* The options' settings, the manifest's of other keys, and for an engine that has levels the manifest's level as `optimization`,
 * where no setting says it. WEIR_ERR_SYSTEM. The structures are of this library's size; to be freed with wi_settings_free. */
weir_status wi_settings_merge(const weir_manifest *manifest, const weir_choice_options *options, const char *engine,
                              wi_settings *out);
/* Once, for a provider beside cpu that has to run every part of the model. */
void wi_settings_all_on_provider(wi_settings *settings, const char *engine);
void wi_settings_free(wi_settings *settings);

/* Whether the engine has levels of optimization. */
bool wi_engine_has_levels(const char *engine);

#endif
