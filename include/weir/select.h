/* weir/select.h: what this machine has, and which engine, provider and device a model gets on it.
 *
 * The machine: the processor and the GPUs, with their obtainable memory. Asked are the system's own files (cgroups of
 * both versions, /proc, /sys) and the vendors' libraries, which are opened when they are there: NVML and CUDA's driver.
 * No command is run, and no context is made on a device. Each source has a time limit of its own: one that is slow or
 * fails hides nothing of the others, and is asked again the next time. */
#ifndef WEIR_SELECT_H
#define WEIR_SELECT_H

#include <weir/manifest.h>

WEIR_BEGIN

typedef enum weir_hardware_kind {
    WEIR_HARDWARE_CPU = 0,
    WEIR_HARDWARE_CUDA = 1,
    WEIR_HARDWARE_ROCM = 2,
    WEIR_HARDWARE_INTEL = 3,    /* a GPU or NPU of Intel's */
    WEIR_HARDWARE_METAL = 4,    /* found on no platform that weir runs on so far */
    WEIR_HARDWARE_DIRECTML = 5, /* the same */
    WEIR_HARDWARE_COUNT
} weir_hardware_kind;

/* A number of bytes that nobody could tell. */
#define WEIR_BYTES_UNKNOWN UINT64_MAX

typedef struct weir_hardware_device {
    size_t struct_size;
    weir_hardware_kind kind;
    /* Identifies the device, also after a restart: the UUID ("GPU-…", "MIG-…"), the PCI address of what has none,
     * "cpu". */
    char key[64];
    char parent[64]; /* the key of the device that it is a slice of (MIG); "" */
    char pci[20];    /* "0000:3b:00.0"; "" for the processor */
    char name[128];
    /* As weir_runtime_get takes it: "host", "cuda:0"; "": weir has no driver for it, or it is hidden. */
    char runtime[16];
    /* Among its kind: of CUDA's as CUDA counts what this process may see, of others by address; -1: hidden from this
     * process, or it cannot be used. */
    int32_t ordinal;
    uint64_t total;   /* bytes; of the processor: the limit of its cgroups; WEIR_BYTES_UNKNOWN */
    uint64_t free;    /* the same; free at the moment of the look */
    bool shares_host; /* its memory is the processor's: total and free count once for both */
    bool discrete;
    uint32_t units;                     /* processors that the process may use; multiprocessors; 0: not known */
    weir_version_number capability;     /* CUDA's compute capability */
    weir_version_number driver;         /* "580.65.6" */
    weir_version_number driver_runtime; /* the latest CUDA that the driver serves; the ROCm that is installed */
    bool usable;      /* work can be put on it from this process, as far as can be told without doing so */
    char remark[256]; /* why it is not usable, or what else is to be known; "" */
} weir_hardware_device;

typedef struct weir_hardware {
    size_t struct_size;
    const weir_hardware_device *devices; /* the processor first, then by kind and ordinal, what has no ordinal last */
    size_t device_count;
    const char *remarks; /* lines, each on a source that is missing, slow or failed; "" */
    double seconds;      /* that the look took */
} weir_hardware;

/* The limit with which a choice looks: what it decides stays, and a GPU whose driver takes a second to start is no
 * reason for it to be made on the processor. One that hangs costs this once in a process. */
enum { WEIR_HARDWARE_PATIENT_MS = 5000 };

typedef struct weir_hardware_options {
    size_t struct_size;
    /* A directory that stands for "/": another machine's files. Libraries below its /usr/lib are opened and run, and
     * stay open, so it is one to trust. NULL or "": this machine. */
    const char *sysroot;
    /* Instead of CUDA_VISIBLE_DEVICES: ordinals are then those of a process that is started with it. NULL: as it is. */
    const char *visible;
    uint32_t limit_ms; /* for each source; 0: 400 */
    bool anew;         /* ask every source, also one that failed slowly a moment ago */
} weir_hardware_options;

/* Looks. Sources are asked side by side, each until its limit: what answers later is taken by a later look, which
 * does not wait for it again. Libraries that were opened stay open, so that looks after the first are short; bytes
 * that are free are of the moment. A source that failed is asked again at the next look, and after up to 5 s where
 * failing took it long. What is of a look before is said to be, with its age.
 *
 * Ordinals of CUDA are told by its driver, once cuInit has answered; until then they follow from CUDA_VISIBLE_DEVICES
 * and CUDA_DEVICE_ORDER, and where CUDA's order is its own secret (different devices, the fastest first) the remark
 * calls them a guess. Free bytes of CUDA's are told by NVML alone, without which they are unknown: asking the driver
 * would make a context.
 *
 * `options` may be NULL. *out is the caller's, to be given back with weir_hardware_destroy. It always has the
 * processor; what could not be learnt is said in remarks, not by a status. Errors: WEIR_ERR_NOT_FOUND (a sysroot that
 * is no directory), WEIR_ERR_INVALID (options without a size), WEIR_ERR_SYSTEM. May block for the time limit. Any
 * thread. */
WEIR_API WEIR_NODISCARD weir_status weir_hardware_create(const weir_hardware_options *options, weir_hardware **out);
WEIR_API void weir_hardware_destroy(weir_hardware *hardware); /* NULL is nothing */

/* ------------------------------------------------------------------------------------------------------------------ */

/* Which engine, provider and device a model gets, and why not the others.
 *
 * A candidate is an engine, one of its providers, and a device. Every candidate is looked at and has a verdict. An
 * accepted candidate also has a rank; weir_model_create_chosen tries candidates by rank. The choice depends on what is
 * given and on what the machine has, not on the order in which anything was found, and it touches no device memory.
 *
 * Providers: "tensorrt" (with cuda behind it), "cuda", "rocm", "coreml" or "metal" (with cpu behind it), "directml",
 * "openvino", "cpu". Case does not matter in what is given.
 *
 * The order in which accepted candidates are ranked:
 *   1. providers. Under the policy "fastest" those of the manifest (preferred, then fallbacks, each once); where it
 *      names none, or cpu alone, `order`, whose default is "cuda rocm coreml directml cpu" (TensorRT builds for minutes
 *      and OpenVINO's memory is outside the budget: both are taken only when named). Under "manifest" those of the
 *      manifest alone. Under "memory" as under fastest, but what is predicted to need the fewest bytes of its device
 *      comes first, and last what nobody predicts. Under every policy cpu comes after all others, and is the last
 *      resort where nobody names it; but where the policy is "manifest" and the manifest names cpu, or where a given
 *      `order` names cpu, the given place counts;
 *   2. engines: the manifest's framework names one; else by the model file, in the order of their names;
 *   3. devices: the manifest's ordinals, which are never the processor's, or all devices where the manifest has no
 *      ordinals; under each of the strategies "pool", "round-robin", "data-parallel", "pipeline", "pipeline-parallel",
 *      "tensor-parallel" and "auto" (in any case) all that qualify, those of the ordinals first. Then the most bytes to
 *      be had, then by ordinal. A model runs on one device.
 *
 * The memory that a candidate wants is the largest of the engine's prediction (else the size of the model's file), the
 * manifest's min_vram (of the host: min_memory) and the client's guarantee. The wanted memory is tested against what
 * can be had, never against the total; on a device whose memory is the host's, both wants together. A version that is
 * not known is older than any. */

typedef enum weir_verdict {
    WEIR_VERDICT_ACCEPTED = 0,
    WEIR_VERDICT_NOT_ASKED = 1,       /* another engine, provider or device was named */
    WEIR_VERDICT_NOT_LISTED = 2,      /* the manifest lists providers, and this is none of them */
    WEIR_VERDICT_NO_ENGINE = 3,       /* the plug-in or its library is not here; with the way to get it */
    WEIR_VERDICT_OTHER_FORMAT = 4,    /* the engine does not take such a file, or cannot read this one */
    WEIR_VERDICT_NOT_BUILT = 5,       /* no library of the engine's has the provider */
    WEIR_VERDICT_NOT_LOADABLE = 6,    /* a library has the provider, but a dependency cannot be opened; naming the
                                         dependency */
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
    const char *library, *version; /* of the engine that would serve the model; "" */
    weir_verdict verdict;
    const char *reason; /* a sentence with the numbers and the remedy; for an accepted candidate: the reason for its
                           rank */
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

/* What can be had of a device, instead of what weir finds out (what is free, less the larger of 10 % and 512 MiB;
 * where the process has a runtime on it, what its budget leaves above guarantees). */
typedef struct weir_obtainable {
    const char *device; /* its key */
    uint64_t bytes;
} weir_obtainable;

typedef struct weir_choice_options {
    size_t struct_size;
    /* Exactly this, and an error instead of a fallback. NULL, or "": any. A device is "cuda:0", "cpu", a key, or an
     * ordinal, which is not the processor's. They do not override the manifest's framework, nor its word on the
     * processor. */
    const char *engine, *provider, *device;
    const char *policy; /* "fastest", "manifest", "memory"; NULL: the option `policy` (WEIR_POLICY), else "fastest" */
    const char *
        order; /* providers between spaces or commas; NULL: the option `providers` (WEIR_PROVIDERS), else the default */
    /* As the manifest's WEIR_CPU_FORBIDDEN: no candidate is the processor's. Parts of the model that another provider
     * leaves to it are told after the load; the manifest's min_provider_coverage refuses those. */
    bool no_cpu;
    const weir_hardware *hardware; /* NULL: weir_hardware_create */
    const weir_obtainable *obtainable;
    size_t obtainable_count;
    const weir_setting *settings; /* before the manifest's of the same key */
    size_t setting_count;
} weir_choice_options;

/* Chooses. `options` may be NULL. Answers WEIR_OK also where nothing is accepted: then accepted is 0 and the rule
 * says why. Errors: WEIR_ERR_INVALID for an unknown framework, engine, provider, policy, strategy or level (with the
 * allowed ones) and for a model that is to be split over several devices, WEIR_ERR_NOT_FOUND for the model file,
 * WEIR_ERR_SYSTEM. *out is the caller's. Opens plug-ins and their libraries, reads the model file's structure, makes
 * no context. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_choice_create(const weir_manifest *manifest,
                                                       const weir_choice_options *options, weir_choice **out);
WEIR_API void weir_choice_destroy(weir_choice *choice); /* NULL is nothing */

WEIR_END
#endif
