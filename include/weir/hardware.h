/* weir/hardware.h: what this machine has: its processor and its GPUs, with the memory that can be had of each.
 *
 * Asked are the system's own files (cgroups of both versions, /proc, /sys) and the vendors' libraries, which are opened when
 * they are there: NVML and CUDA's driver. No command is run, and no context is made on a device. Each source has a time limit
 * of its own: one that is slow or fails hides nothing of the others, and is asked again the next time. */
#ifndef WEIR_HARDWARE_H
#define WEIR_HARDWARE_H

#include <weir/versions.h>

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
    /* Tells it from all others, now and after a restart: the UUID ("GPU-…", "MIG-…"), the PCI address of what has none, "cpu".
     * Partitions of AMD's for which the kernel has one UUID have their number behind it ("GPU-…/1"). */
    char key[64];
    char parent[64]; /* the key of the device that it is a slice of (MIG); "" */
    char pci[20];    /* "0000:3b:00.0"; "" for the processor */
    char name[128];
    /* As weir_runtime_get takes it: "host", "cuda:0"; "": weir has no driver for it, or it is hidden. */
    char runtime[16];
    /* Among its kind, as that kind's runtime counts what this process may see (Intel's NPUs after its GPUs); -1: hidden from
     * this process, or it cannot be used. */
    int32_t ordinal;
    uint64_t total;   /* bytes; of the processor what its cgroups allow; WEIR_BYTES_UNKNOWN */
    uint64_t free;    /* the same; nobody's at the moment of the look */
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

/* The limit with which a choice looks: what it decides stays, and a GPU whose driver takes a second to start is no reason for it
 * to be made on the processor. One that hangs costs this once in a process. */
enum { WEIR_HARDWARE_PATIENT_MS = 5000 };

typedef struct weir_hardware_options {
    size_t struct_size;
    /* A directory that stands for "/": another machine's files. Libraries below its /usr/lib are opened and run, and stay open,
     * so it is one to trust. NULL or "": this machine. */
    const char *sysroot;
    /* Instead of CUDA_VISIBLE_DEVICES: ordinals are then those of a process that is started with it. NULL: as it is. */
    const char *visible;
    uint32_t limit_ms; /* for each source; 0: 400 */
    bool anew;         /* ask every source, also one that failed slowly a moment ago */
} weir_hardware_options;

/* Looks. Sources are asked side by side, each until its limit: what answers later is taken by a later look, which does not wait
 * for it again. Libraries that were opened stay open, so that looks after the first are short; bytes that are free are of the
 * moment. A source that failed is asked again at the next look, and after up to 5 s where failing took it long. What is of a look
 * before is said to be, with its age.
 *
 * Ordinals of CUDA are told by its driver, once cuInit has answered; until then they follow from CUDA_VISIBLE_DEVICES and
 * CUDA_DEVICE_ORDER, and where CUDA's order is its own secret (different devices, the fastest first) the remark calls them a guess.
 * Free bytes of CUDA's are told by NVML alone, without which they are unknown: asking the driver would make a context.
 *
 * `options` may be NULL. *out is the caller's, to be given back with weir_hardware_destroy. It always has the processor; what could
 * not be learnt is said in remarks, not by a status. Errors: WEIR_ERR_NOT_FOUND (a sysroot that is no directory), WEIR_ERR_INVALID
 * (options without a size), WEIR_ERR_SYSTEM. May block for the time limit. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_hardware_create(const weir_hardware_options *options, weir_hardware **out);
WEIR_API void weir_hardware_destroy(weir_hardware *hardware); /* NULL is nothing */

/* "cpu", "cuda", "rocm", "intel", "metal", "directml"; "?" for a number that is none. */
WEIR_API const char *weir_hardware_kind_name(weir_hardware_kind kind);

WEIR_END
#endif
