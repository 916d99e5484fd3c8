/* weir/manifest.h: a model and its requirements, described as plain data.
 *
 * A manifest is written by hand (fill the structure), or read from a JSON file, a package or a model file by
 * libweir-manifest. Every member but `version` is enforced by the choice (weir/select.h) or the
 * load; what weir cannot enforce is refused where the manifest is read. */
#ifndef WEIR_MANIFEST_H
#define WEIR_MANIFEST_H

#include <weir/engine.h>

WEIR_BEGIN

typedef enum weir_cpu_use {
    WEIR_CPU_LAST = 0,   /* the processor is the last resort, and said to be so */
    WEIR_CPU_LISTED = 1, /* only if it is asked for by name */
    /* Never; nor a model on another provider that leaves all of it to the processor, as far as the engine tells. How
     * much of a model may be left to it min_coverage says. */
    WEIR_CPU_FORBIDDEN = 2
} weir_cpu_use;

/* 0, NULL and a version of count 0 ask for nothing. */
typedef struct weir_requirements {
    const char *preferred_provider;
    const char *const *fallback_providers; /* in this order */
    size_t fallback_count;
    uint64_t min_memory;                  /* bytes of the host that can be had */
    uint64_t min_vram;                    /* bytes of the device that can be had */
    uint64_t guaranteed;                  /* of the model's client (gpu_memory_reservation_mb) */
    uint64_t maximum;                     /* of the model's client (gpu_memory_limit_mb) */
    weir_version_number min_cuda_version; /* that the device's driver serves */
    weir_version_number min_driver_version, min_compute_capability;
    const int32_t *device_ids; /* ordinals of the devices that the model may be on */
    size_t device_count;
    /* NULL: exactly the given device, or any where none is given; else any of seven names, weir/select.h */
    const char *strategy;
    const char *graph_optimization_level; /* "disable" … "all", "0" … "3", "99" */
    weir_cpu_use cpu;
    double min_coverage; /* share of nodes or layers that the provider must run, 0 to 1, by its word after each load */
} weir_requirements;

typedef struct weir_manifest {
    size_t struct_size;
    const char *path;             /* what it was read from; "" */
    const char *framework;        /* "onnx", "gguf", "llm"; NULL: by the model file */
    const char *model_file;       /* a path that can be opened */
    const char *name;             /* of the model's client; NULL: the file's */
    const char *version;          /* of the model; for people */
    const weir_setting *settings; /* for the engine ("tuning") */
    size_t setting_count;
    /* The last member: the manifest's struct_size covers the requirements, so they can grow */
    weir_requirements requirements;
} weir_manifest;

/* ------------------------------------------------------------------------------------------------------------------ */

/* Manifests, packages and model files, read into the plain data above.
 *
 * These functions are in a library of their own, libweir-manifest (pkg-config weir-manifest, CMake
 * weir::weir_manifest), so that libweir needs no reader of JSON. What can be read:
 *   a manifest   a JSON object in a file, up to 4 MiB; docs/guide/factory.md has its keys
 *   a package    a gzip tar (".aimod") with metadata.json, which is a manifest, and the model. It is unpacked once,
 *                into packages/ below the store, under the SHA-256 of its content; the folder is complete or absent. It
 *                is in use until the manifest is released: until then no process clears it away
 *   a model      a file .onnx or .gguf, or one with such a file's first bytes, or a folder with genai_config.json
 * A key that is not known, given twice or of another type than it should be, a value out of its range, and what weir
 * cannot do are problems: every one is found, with its place, and a manifest with one is not read. */

typedef struct weir_manifest_options {
    size_t struct_size;
    const char *store;       /* packages are unpacked below it; NULL or "": the option `home` (WEIR_HOME) */
    uint64_t unpacked_limit; /* bytes that a package may have unpacked; 0: 100 times the package's, at least 64 MiB */
} weir_manifest_options;

/* One thing that is wrong. */
typedef struct weir_manifest_problem {
    size_t struct_size;
    uint32_t line, column; /* from 1, columns in characters */
    const char *text;      /* a line: what is wrong, and what would be right */
} weir_manifest_problem;

typedef struct weir_manifest_problems {
    size_t struct_size;
    const char *path; /* the file that the lines are of; "x.aimod/metadata.json" for the one in a package */
    const weir_manifest_problem *problems; /* in the order of their places */
    size_t count;                          /* 0: it is good; at most 100 */
    size_t more;                           /* that were found beyond those */
} weir_manifest_problems;

/* Reads the manifest, package or model at `path`, which may be a bare name as of weir_model_create. `options` may be
 * NULL. model_file and path in *out can be opened as they are, from this process's working directory at the time of the
 * call; `framework` is set where the file tells it, and NULL where it is for the engines that are here to tell. *out is
 * the caller's. Errors: WEIR_ERR_NOT_FOUND (nothing there), WEIR_ERR_INVALID (the first problem and how many there
 * are), WEIR_ERR_UNSUPPORTED (a format of models that weir does not read, or a package in a build without libarchive),
 * WEIR_ERR_CORRUPT (a package that is none, is damaged, or names or holds what no package may), WEIR_ERR_BUSY (a
 * package that changes while it is read), WEIR_ERR_SYSTEM (files; no room on the disk). Any thread; several processes
 * may read one package at once. */
WEIR_API WEIR_NODISCARD weir_status weir_manifest_read(const char *path, const weir_manifest_options *options,
                                                       weir_manifest **out);
/* Frees a manifest of weir_manifest_read with its texts; NULL is nothing. A model that was opened from a package may
 * still need the package's files when it moves: release the manifest after the model. */
WEIR_API void weir_manifest_destroy(weir_manifest *manifest);

/* The packages of a store after a clearing. Bytes are sizes of files. */
typedef struct weir_manifest_cleared {
    size_t struct_size;
    size_t cleared, kept;
    uint64_t cleared_bytes, kept_bytes;
    size_t in_use; /* of those kept: they would have gone, but some process has a manifest of theirs */
} weir_manifest_cleared;

/* Clears unpacked packages that were last used more than `seconds` ago; then, while the rest has more than `bytes`, the
 * package that was used longest ago. A package in use is never cleared: 0 and 0 leave only the packages in use. A
 * cleared package is unpacked again when it is next read.
 * Once a package has been unpacked and is good, the other packages are cleared in the same way with the options
 * `unpacked` (WEIR_UNPACKED, 64 GiB) and `unpacked_age` (WEIR_UNPACKED_AGE, 30d). Where the disk has no room for a
 * package, the packages that were used longest ago are cleared before, as many as it takes, if that can be enough: a
 * refused package has cleared nothing.
 *
 * `options` says the store, and may be NULL; *out has its size set. Errors: WEIR_ERR_INVALID, WEIR_ERR_UNSUPPORTED (a
 * build without libarchive), WEIR_ERR_SYSTEM (files). Any thread, and in any number of processes at once. */
WEIR_API WEIR_NODISCARD weir_status weir_manifest_clear(const weir_manifest_options *options, uint64_t bytes,
                                                        uint64_t seconds, weir_manifest_cleared *out);

/* Lists the problems of the manifest, package or model at `path`: WEIR_OK also where there are problems. *out is the
 * caller's. Errors: as weir_manifest_read, but for problems. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_manifest_check(const char *path, const weir_manifest_options *options,
                                                        weir_manifest_problems **out);
WEIR_API void weir_manifest_problems_destroy(weir_manifest_problems *problems); /* NULL is nothing */

WEIR_END
#endif
