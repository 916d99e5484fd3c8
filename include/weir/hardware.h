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
    WEIR_HARDWARE_KINDS
} weir_hardware_kind;

/* A number of bytes that nobody could tell. */
#define WEIR_BYTES_UNKNOWN UINT64_MAX

typedef struct weir_hardware_device {
    size_t size;
    weir_hardware_kind kind;
    char key
        [64]; /* tells it from all others, now and after a restart: NVML's UUID ("GPU-…", "MIG-…"), the PCI address of
                        what has none, "cpu" */
    char parent[64]; /* the key of the device that it is a slice of (MIG); "" */
    char pci[20];    /* "0000:3b:00.0"; "" for the processor */
    char name[128];
    char runtime
        [16]; /* as weir_runtime_get takes it: "host", "cuda:0"; "": weir has no driver for it, or it is hidden */
    int32_t ordinal;  /* among its kind, as that kind's runtime counts what it may see; -1: hidden from this process */
    uint64_t total;   /* bytes; of the processor what the cgroup allows; WEIR_BYTES_UNKNOWN */
    uint64_t free;    /* the same; nobody's at the moment of the look */
    bool shares_host; /* its memory is the processor's: total and free count once for both */
    bool discrete;
    uint32_t units;                     /* processors that the process may use; multiprocessors; 0: not known */
    weir_version_number capability;     /* CUDA's compute capability */
    weir_version_number driver;         /* "580.65.6" */
    weir_version_number driver_runtime; /* the latest CUDA (ROCm) that the driver serves */
    bool usable;      /* work can be put on it from this process, as far as can be told without doing so */
    char remark[256]; /* why it is not usable, or what else is to be known; "" */
} weir_hardware_device;

typedef struct weir_hardware {
    size_t size;
    const weir_hardware_device *devices; /* the processor first, then by kind and ordinal, what is hidden last */
    size_t device_count;
    const char *remarks; /* lines, each on a source that is missing, slow or failed; "" */
    double seconds;      /* that the look took */
} weir_hardware;

typedef struct weir_hardware_options {
    size_t size;
    const char *sysroot; /* a directory that stands for "/": another machine's files, and libraries below its /usr/lib;
                               NULL or "": this machine */
    const char *visible; /* instead of the environment's CUDA_VISIBLE_DEVICES; NULL: the environment's */
    uint32_t limit_ms;   /* for each source; 0: 400 */
    bool anew;           /* ask every source, whatever was learnt before */
} weir_hardware_options;

/* Looks. What does not change (names, keys, sizes) is kept for the process once a source has told it; bytes that are free are
 * asked for each time. `options` may be NULL. *out is the caller's, to be given back with weir_hardware_release. Always
 * has the processor; what could not be learnt is said in remarks, not by a status. Errors: WEIR_NOT_FOUND (a sysroot that is
 * no directory), WEIR_SYSTEM. May block for the time limit. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_hardware_look(const weir_hardware_options *options, weir_hardware **out);
WEIR_API void weir_hardware_release(weir_hardware *hardware); /* NULL is nothing */

/* "cpu", "cuda", "rocm", "intel", "metal", "directml"; "?" for a number that is none. */
WEIR_API const char *weir_hardware_kind_name(weir_hardware_kind kind);

WEIR_END
#endif
