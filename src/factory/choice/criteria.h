/* What a manifest and options ask for, read and checked: words are numbers here, and defaults are filled in. */
#ifndef WI_CHOICE_CRITERIA_H
#define WI_CHOICE_CRITERIA_H

#include "base/values.h"

#include <weir/select.h>
#include <weir/engine.h>
#include <weir/manifest.h>

/* A device as it was named. */
typedef enum wi_naming { WI_ANY_DEVICE, WI_BY_KEY, WI_BY_KIND, WI_BY_ORDINAL } wi_naming;

typedef struct wi_device_name {
    wi_naming by;
    const char *text;
    weir_hardware_kind kind; /* if by kind; of the processor without an ordinal */
    int32_t ordinal;
} wi_device_name;

typedef struct wi_sequence {
    wi_provider of[WI_PROVIDERS];
    size_t count;
} wi_sequence;

typedef struct wi_criteria {
    weir_manifest manifest; /* strings that are empty are NULL */
    weir_choice_options options;
    wi_policy policy;
    bool one_provider;  /* the options name it */
    wi_sequence listed; /* by the manifest */
    wi_sequence order;  /* in which they are tried */
    bool by_order;      /* that is the option's or the default order, not the manifest's */
    bool cpu_named;     /* by the manifest, the option or the given order */
    bool cpu_last;      /* the processor is tried last, whatever the other candidates need */
    weir_cpu_use cpu;
    wi_device_name device;
} wi_criteria;

/* Errors as weir_choice_create's, for words alone. Engines are looked at by whoever knows them. The criteria points into
 * the manifest and the options. */
weir_status wi_criteria_read(const weir_manifest *manifest, const weir_choice_options *options, wi_criteria *out);

/* WEIR_ERR_INVALID: of one of its lists there is a count, and no list; or a setting has no key or value. */
weir_status wi_manifest_check_lists(const weir_manifest *manifest, const char *call);
/* weir_choice_create for a model that has its client already (NULL: it has none). */
weir_status wi_choice_create(const weir_manifest *manifest, const weir_choice_options *options,
                             const weir_client *client, weir_choice **out);

/* Its place in an order; -1: none. */
int wi_sequence_index(const wi_sequence *order, wi_provider provider);
/* "cuda, cpu" into `text`; answers it. */
const char *wi_sequence_write(const wi_sequence *order, char *text, size_t capacity);

/* Whether a device is meant by the option, and by the manifest's ordinals; every one is where none is named. */
bool wi_criteria_name(const wi_criteria *criteria, const weir_hardware_device *device);
bool wi_criteria_list(const wi_criteria *criteria, const weir_hardware_device *device);

/* The settings that a model is loaded with. */
typedef struct wi_settings {
    weir_setting *all; /* strings are the manifest's and the options' */
    size_t count;
} wi_settings;

/* The options' settings, the manifest's of other keys, and for an engine that has levels the manifest's level as
 * `optimization`, where no setting says it. WEIR_ERR_SYSTEM. The structures are of this library's size; to be freed
 * with wi_settings_free. */
weir_status wi_settings_merge(const weir_manifest *manifest, const weir_choice_options *options, const char *engine,
                              wi_settings *out);
/* Once, for a provider beside cpu that has to run every part of the model. */
void wi_settings_forbid_cpu(wi_settings *settings, const char *engine);
void wi_settings_free(wi_settings *settings);

/* Whether the engine has levels of optimization. */
bool wi_engine_has_levels(const char *engine);

#endif
