/* weir/choice.h: which engine, provider and device a model gets, and why not the others.
 *
 * A candidate is an engine, one of its providers, and a device. Every one is looked at and has a verdict; the accepted ones
 * have a rank, which is the order in which weir_model_create_chosen tries them. The choice depends on what is given and on what
 * the machine has, not on the order in which anything was found, and it touches no device memory.
 *
 * Providers: "tensorrt" (with cuda behind it), "cuda", "rocm", "coreml" or "metal" (with cpu behind it), "directml",
 * "openvino", "cpu". Case does not matter in what is given.
 *
 * The order in which accepted candidates are ranked:
 *   1. providers. Under the policy "fastest" those of the manifest (preferred, then fallbacks, each once); where it names none,
 *      or cpu alone, `order`, whose default is "cuda rocm coreml directml cpu" (TensorRT builds for minutes and OpenVINO's
 *      memory is outside the budget: they are taken when they are named). Under "manifest" those of the manifest alone. Under
 *      "memory" as under fastest, but what is predicted to need the fewest bytes of its device comes first, and last what nobody
 *      predicts. In each, cpu comes after all others and is the last resort where nobody names it, but where the policy is
 *      "manifest" and the manifest names it, or a given `order` does: there it has the place that it was given;
 *   2. engines: the manifest's framework names one; else by the model file, in the order of their names;
 *   3. devices: those of the manifest's ordinals, which are no processor's, or all where it has none; under each of the strategies
 *      "pool", "round-robin", "data-parallel", "pipeline", "pipeline-parallel", "tensor-parallel" and "auto" (in any case) all that
 *      qualify, those of the ordinals first. Then the most bytes to be had, then by ordinal. A model runs on one device.
 *
 * What a candidate wants of memory is the most of what its engine predicts (else the size of the model's file), the manifest's
 * min_vram (of the host: min_memory) and what its client is guaranteed. It is tested against what can be had, never against the total; on
 * a device whose memory is the host's, both wants together. A version that is not known is older than any. */
#ifndef WEIR_CHOICE_H
#define WEIR_CHOICE_H

#include <weir/hardware.h>
#include <weir/manifest.h>

WEIR_BEGIN

typedef enum weir_verdict {
    WEIR_VERDICT_ACCEPTED = 0,
    WEIR_VERDICT_NOT_ASKED = 1,       /* another engine, provider or device was named */
    WEIR_VERDICT_NOT_LISTED = 2,      /* the manifest lists providers, and this is none of them */
    WEIR_VERDICT_NO_ENGINE = 3,       /* the plug-in or its library is not here; with the way to get it */
    WEIR_VERDICT_OTHER_FORMAT = 4,    /* the engine does not take such a file, or cannot read this one */
    WEIR_VERDICT_NOT_BUILT = 5,       /* no library of the engine's has the provider */
    WEIR_VERDICT_NOT_LOADABLE = 6,    /* one has, but what it needs cannot be opened; naming that */
    WEIR_VERDICT_OTHER_PLATFORM = 7,  /* the provider exists on another system only */
    WEIR_VERDICT_NO_DEVICE = 8,       /* no device of its kind on this machine, or none of that ordinal */
    WEIR_VERDICT_DEVICE_UNUSABLE = 9, /* there, but hidden, failed or not to be asked */
    WEIR_VERDICT_LITTLE_MEMORY = 10,  /* of the host: what can be had is less than what is wanted */
    WEIR_VERDICT_LITTLE_VRAM = 11,    /* of the device */
    WEIR_VERDICT_OLD_CUDA = 12,
    WEIR_VERDICT_OLD_DRIVER = 13,
    WEIR_VERDICT_OLD_DEVICE = 14, /* its compute capability */
    WEIR_VERDICT_NO_CPU = 15,     /* the processor would do, and was forbidden or not asked for */
    WEIR_VERDICT_BAD_SETTING = 16,
    WEIR_VERDICT_COUNT
} weir_verdict;

/* All texts are the choice's. */
typedef struct weir_candidate {
    size_t struct_size;
    const char *engine, *provider;
    const char *device;            /* its key; "" where there is none of the kind */
    const char *runtime;           /* "cuda:0"; "host" where the provider's device memory is not weir's */
    const char *library, *version; /* of the engine that would serve it; "" */
    weir_verdict verdict;
    const char *reason; /* a sentence with the numbers and the remedy; for an accepted one what gave it its rank */
    int32_t rank;       /* from 0; -1: not accepted */
    bool predicted;
    uint64_t bytes[WEIR_CLASS_MOST]; /* if predicted: by class, on the candidate's device */
    bool exact[WEIR_CLASS_MOST];     /* or else "at least" */
    uint64_t obtainable;             /* bytes that could be had there, less margins; WEIR_BYTES_UNKNOWN */
} weir_candidate;

typedef struct weir_choice {
    size_t struct_size;
    const weir_candidate *candidates; /* by rank, then the refused ones by engine, provider and device */
    size_t count, accepted;
    const char *policy;
    const char *rule; /* a sentence: what decided */
} weir_choice;

/* What can be had of a device, instead of what weir finds out (what is free, less the larger of 10 % and 512 MiB; where the
 * process has a runtime on it, what its budget leaves above guarantees). */
typedef struct weir_obtainable {
    const char *device; /* its key */
    uint64_t bytes;
} weir_obtainable;

typedef struct weir_choice_options {
    size_t struct_size;
    /* Exactly this, and an error instead of a fallback. NULL, or "": any. A device is "cuda:0", "cpu", a key, or an ordinal, which
     * is not the processor's. They do not override the manifest's framework, nor its word on the processor. */
    const char *engine, *provider, *device;
    const char *policy; /* "fastest", "manifest", "memory"; NULL: the option `policy` (WEIR_POLICY), else "fastest" */
    const char *
        order; /* providers between spaces or commas; NULL: the option `providers` (WEIR_PROVIDERS), else the default */
    /* As the manifest's WEIR_CPU_FORBIDDEN: no candidate is the processor's. Parts of the model that another provider leaves to
     * it are told after the load; the manifest's min_provider_coverage refuses those. */
    bool no_cpu;
    const weir_hardware *hardware; /* NULL: weir_hardware_create */
    const weir_obtainable *obtainable;
    size_t obtainable_count;
    const weir_setting *settings; /* before the manifest's of the same key */
    size_t setting_count;
} weir_choice_options;

/* Chooses. `options` may be NULL. Answers WEIR_OK also where nothing is accepted: then accepted is 0 and the rule says why. Errors:
 * WEIR_ERR_INVALID for an unknown framework, engine, provider, policy, strategy or level (with the allowed ones) and for a model
 * that is to be split over several devices, WEIR_ERR_NOT_FOUND for the model file, WEIR_ERR_SYSTEM. *out is the caller's. Opens plug-ins
 * and their libraries, reads the model file's structure, makes no context. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_choice_create(const weir_manifest *manifest,
                                                       const weir_choice_options *options, weir_choice **out);
WEIR_API void weir_choice_destroy(weir_choice *choice); /* NULL is nothing */

/* "ACCEPTED", "LITTLE_VRAM"; "?" for a number that is none. */
WEIR_API const char *weir_verdict_name(weir_verdict verdict);

WEIR_END
#endif
