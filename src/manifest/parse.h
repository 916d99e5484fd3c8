/* Manifests that are read: files, problems, and the context of a parse, which has the text, the problems found so far,
 * and the manifest that is made. */
#ifndef WI_MANIFEST_PARSE_H
#define WI_MANIFEST_PARSE_H

#include <weir/manifest.h>

#include <jansson.h>

/* ---- problems.c: what is wrong with a manifest, and where in its text ---- */

enum { WI_MOST_PROBLEMS = 100 };

typedef struct wi_problems {
    struct wi_found {
        size_t at; /* byte of the text */
        uint32_t line, column;
        char *text;
    } found[WI_MOST_PROBLEMS];
    size_t count, more;
    bool out_of_memory; /* some could not be noted */
} wi_problems;

void wi_problem_add(wi_problems *list, size_t at, const char *format, ...) WEIR_PRINTF(3, 4);

/* Puts them into the order of their places, and finds the lines and columns. */
void wi_problems_sort(wi_problems *list, const char *text);

/* Returns the path and the problems, with their texts, as a single malloc block; NULL without memory. */
weir_manifest_problems *wi_problems_give(const wi_problems *list, const char *path);

void wi_problems_clear(wi_problems *list);

/* Makes a text of a file fit to be shown: without control characters, and cut between characters to the size of the
 * buffer. */
typedef struct wi_shown {
    char text[64];
} wi_shown;
const char *wi_show(wi_shown *shown, const char *text);

/* ---- files.c: files that may be a manifest, a package or a model ---- */

typedef enum wi_file_kind {
    WI_FILE_MISSING,
    WI_FILE_UNKNOWN, /* for the engines that are here to tell */
    WI_FILE_REFUSED, /* known, and nothing that weir reads */
    WI_FILE_MANIFEST,
    WI_FILE_PACKAGE,
    WI_FILE_ONNX,
    WI_FILE_GGUF,
    WI_FILE_GENAI /* a folder, or its genai_config.json */
} wi_file_kind;

/* What is at `path`: by its suffix, else by its first bytes. For what is refused *why gets a sentence; for what is
 * missing errno says why. */
wi_file_kind wi_file_look(const char *path, const char **why);

/* The path of the model that the file at `path` is or belongs to: models for ONNX Runtime GenAI are folders, for which
 * their genai_config.json stands and, if the framework is llm, a model file in them. To be freed; NULL without
 * memory. */
char *wi_file_model(const char *path, bool llm, wi_file_kind *kind);

/* "onnx", "gguf", "llm"; NULL for what is no model. */
const char *wi_file_framework(wi_file_kind kind);

/* The folder that a file lies in, "" for one of the working directory; and a name in it. To be freed; NULL without
 * memory. */
char *wi_path_folder(const char *path);
char *wi_path_in(const char *folder, const char *name);

/* Whether a name stays in its folder wherever that is: relative, and without "..". */
bool wi_path_stays(const char *name);

/* Reads a regular file of at most `most` bytes, with a zero behind it. *out is to be freed. */
weir_status wi_file_read(const char *path, size_t most, char **out, size_t *length);

/* ---- the context ---- */

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
    weir_manifest manifest;   /* first, as the caller gets a pointer to it */
    json_t *root;             /* the texts are its */
    struct wi_stored *stored; /* and these */
    bool in_package;          /* the manifest is in a package, whose folder is in use */
    int use;                  /* of a package: the use that wi_package_leave ends */
} wi_held;

typedef struct wi_parse_context {
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
    weir_version_number precision; /* the compute capability that the precision needs */
} wi_parse_context;

/* ---- text.c: where things are in a JSON text ----
 * jansson reads texts and gives values without locations; this walks over the objects and lists of a text that jansson
 * has accepted, so it need not doubt the grammar. */

typedef struct wi_walk {
    const char *text;
    size_t at;
    bool object;
} wi_walk;

/* A member of an object or, without a key, an element of a list. Ends are past the last byte. */
typedef struct wi_location {
    size_t key, key_end;
    size_t value, value_end;
} wi_location;

/* The place of the text's one value. */
size_t wi_location_first(const char *text);

/* A walk over the object or list that begins at `at`. */
wi_walk wi_walk_into(const char *text, size_t at);

/* Steps to the next one; false past the last. */
bool wi_walk_next(wi_walk *walk, wi_location *out);

/* ---- values ---- */

/* A value, and where it is. */
typedef struct wi_value {
    wi_field field;
    json_t *json;
    size_t at, end;
} wi_value;

/* Zeroed memory that lives as long as the manifest; NULL is noted as a lack of memory. */
void *wi_keep(wi_parse_context *r, size_t bytes);
char *wi_keep_text(wi_parse_context *r, const char *text, size_t length);
void wi_held_release(wi_held *held);

/* The key between two places, decoded by jansson itself: as a text of its own. NULL is noted as a lack of memory. */
json_t *wi_decoded(wi_parse_context *r, size_t at, size_t end);

/* Reads the text of `length` bytes, which a zero follows, into r->held and r->problems; the rest of *r is the
 * caller's. */
void wi_manifest_text(wi_parse_context *r, size_t length);

/* fields.c: reads the keys of the object that begins at `at`, and their values. */
void wi_fields_read(wi_parse_context *r, size_t at, json_t *object, bool requirements);
const char *wi_field_name(wi_field field);

/* value_parsers.c: each parses the value of one field into `to`. */
typedef void wi_parse_value(wi_parse_context *r, const wi_value *v, void *to);
wi_parse_value wi_parse_text, wi_parse_texts, wi_parse_bytes, wi_parse_mib, wi_parse_version, wi_parse_described;
wi_parse_value wi_parse_framework, wi_parse_format, wi_parse_jobs, wi_parse_requirements, wi_parse_tuning;
wi_parse_value wi_parse_provider, wi_parse_providers, wi_parse_precision, wi_parse_level, wi_parse_strategy;
wi_parse_value wi_parse_device, wi_parse_devices, wi_parse_share, wi_parse_isolation, wi_parse_cpu, wi_parse_coverage;

/* "a text", "the number 3", … of a value that is not what it should be. */
const char *wi_kind_name(const json_t *json);

/* Keywords of values. Those of providers, strategies and levels are in base/values.h. */
extern const char *const wi_frameworks[];

/* The word of the list, which ends with NULL, that is `text` in any case; NULL if none is. */
const char *wi_keyword(const char *const *words, const char *text);

/* The nearest of the words, NULL if none is near. */
const char *wi_keyword_near(const char *const *words, const char *text);

/* rules.c: what fields mean together, and the model's file. */
void wi_rules(wi_parse_context *r);

#endif
