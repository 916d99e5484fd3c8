/* A manifest while it is read: the text, what was found in it, and what becomes of it. */
#ifndef WI_MANIFEST_READING_H
#define WI_MANIFEST_READING_H

#include "manifest/problems.h"
#include <weir/manifest.h>

#include <jansson.h>

/* Every key that a manifest may have. The order is that of the list in fields.c. */
typedef enum wi_field {
    WI_FRAMEWORK,
    WI_MODEL_FILE,
    WI_NAME,
    WI_PROJECT_NAME,
    WI_VERSION,
    WI_FORMAT,
    WI_CREATED_AT,
    WI_MODEL_TYPE,
    WI_TASK,
    WI_METADATA,
    WI_CRON_JOBS,
    WI_REQUIREMENTS,
    WI_TUNING,
    /* in hardware_requirements */
    WI_PREFERRED_PROVIDER,
    WI_FALLBACK_PROVIDERS,
    WI_MIN_MEMORY,
    WI_MIN_MEMORY_MB,
    WI_MIN_VRAM,
    WI_MIN_VRAM_MB,
    WI_RESERVATION,
    WI_RESERVATION_MB,
    WI_LIMIT,
    WI_LIMIT_MB,
    WI_MIN_CUDA,
    WI_MIN_DRIVER,
    WI_MIN_CAPABILITY,
    WI_PRECISION,
    WI_OPTIMIZED_FOR,
    WI_LEVEL,
    WI_DEVICE_ID,
    WI_DEVICE_IDS,
    WI_STRATEGY,
    WI_COMPUTE_SHARE,
    WI_ISOLATION,
    WI_ALLOW_CPU,
    WI_COVERAGE,
    WI_FIELDS
} wi_field;

/* What the caller of weir_manifest_read holds. */
typedef struct wi_held {
    weir_manifest manifest; /* first: it is what is handed out */
    json_t *root;           /* the texts are its */
    struct wi_kept *kept;   /* and these */
    bool in_package;        /* it is in one, whose folder is in use */
    int use;                /* if so, as wi_package_open has it */
} wi_held;

typedef struct wi_reading {
    const char *text;
    const char *folder; /* that model_file is relative to */
    bool package;       /* nothing outside of the folder */
    wi_held *held;
    wi_problems problems;
    bool given[WI_FIELDS];
    bool several[WI_FIELDS]; /* given more than once, and not looked at */
    size_t key_at[WI_FIELDS], value_at[WI_FIELDS];
    /* Canonical words, NULL if not given. */
    const char *format, *isolation;
    weir_version_number precision; /* the compute capability that it needs */
} wi_reading;

/* A value, and where it is. */
typedef struct wi_value {
    wi_field field;
    json_t *json;
    size_t at, end;
} wi_value;

/* Zeroed memory that lives as long as the manifest; NULL is noted as a lack of memory. */
void *wi_keep(wi_reading *r, size_t bytes);
char *wi_keep_text(wi_reading *r, const char *text, size_t length);
void wi_held_release(wi_held *held);

/* The key between two places, decoded by jansson itself: as a text of its own. NULL is noted as a lack of memory. */
json_t *wi_decoded(wi_reading *r, size_t at, size_t end);

/* Reads the text of `length` bytes, which a zero follows, into r->held and r->problems; the rest of *r is the caller's. */
void wi_manifest_text(wi_reading *r, size_t length);

/* fields.c: what the keys mean, one by one. Each is a key of the object that begins at `at`. */
void wi_fields_read(wi_reading *r, size_t at, json_t *object, bool requirements);
const char *wi_field_name(wi_field field);

/* Functions that take the value of one field, in takers.c and requirements.c. */
typedef void wi_claim(wi_reading *r, const wi_value *v, void *to);
wi_claim wi_take_text, wi_take_texts, wi_take_bytes, wi_take_mib, wi_take_version, wi_take_described;
wi_claim wi_take_framework, wi_take_format, wi_take_jobs, wi_take_requirements, wi_take_tuning;
wi_claim wi_take_provider, wi_take_providers, wi_take_precision, wi_take_level, wi_take_strategy;
wi_claim wi_take_device, wi_take_devices, wi_take_share, wi_take_isolation, wi_take_cpu, wi_take_coverage;

/* "a text", "the number 3", … of a value that is not what it should be. */
const char *wi_kind_name(const json_t *json);
void wi_wrong_type(wi_reading *r, const wi_value *v, const char *wanted);

/* tuning.c: settings for the engine of the model, when that is known. */
void wi_tuning(wi_reading *r);

/* rules.c: what fields mean together, and the model's file. */
void wi_rules(wi_reading *r);

#endif
