/* weir/manifest.h: what a model is and what it wants, as plain data.
 *
 * A manifest is written by hand (fill the structure), or read from a JSON file, a package or a model file by libweir-manifest
 * (weir/manifest_read.h). Every member but `version` is enforced by the choice (weir/choice.h) or the load; what weir cannot
 * enforce is refused where the manifest is read. */
#ifndef WEIR_MANIFEST_H
#define WEIR_MANIFEST_H

#include <weir/engine.h>
#include <weir/versions.h>

WEIR_BEGIN

typedef enum weir_cpu_use {
    WEIR_CPU_LAST = 0,   /* the processor is the last resort, and said to be so */
    WEIR_CPU_LISTED = 1, /* only if it is asked for by name */
    /* Never; nor a model on another provider that leaves all of it to the processor, as far as the engine tells. How much of a
     * model may be left to it min_coverage says. */
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
    const int32_t *device_ids; /* ordinals; the model may be on any one of them */
    size_t device_count;
    const char *
        strategy; /* NULL: exactly the given device, or any where none is given; else any of seven names, weir/choice.h */
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
    weir_requirements
        requirements; /* the last member, so that it grows with the manifest, whose struct_size covers it */
} weir_manifest;

WEIR_END
#endif
