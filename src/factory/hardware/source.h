/* Sources: a source asks a part of the system for the devices that this part knows. merge.c joins the answers.
 *
 * A source keeps opened libraries, and other state for the next time, in a record of its own. The record needs no lock:
 * a source is never asked twice at the same time for a root. */
#ifndef WI_HARDWARE_SOURCE_H
#define WI_HARDWARE_SOURCE_H

#include "base/internal.h"

#include <weir/select.h>

#include <limits.h>

enum { WI_MOST_CARDS = 128 };

/* A device as told by a single source. What the source cannot tell is 0, "" or WEIR_BYTES_UNKNOWN. */
typedef struct wi_card {
    weir_hardware_device device;
    bool sliced;       /* the device is used only through its slices */
    bool bus_only;     /* the device is there, and no more is known */
    unsigned instance; /* of a slice: the GPU instance; slices of the same instance share memory */
} wi_card;

typedef struct wi_found {
    bool told; /* the source has answered, and knows no devices but the named ones */
    wi_card *cards;
    size_t count;
    char remark[512]; /* one line: what is missing or failed; "" */
} wi_found;

typedef struct wi_source {
    const char *name;
    /* `root` stands before every path; `kept` is the record, NULL the first time; `out` is empty. */
    void (*ask)(const char *root, void **kept, wi_found *out);
} wi_source;

enum { WI_SOURCE_NVML, WI_SOURCE_CUDA, WI_SOURCE_PCI, WI_SOURCE_ROCM, WI_SOURCE_INTEL, WI_SOURCES };
extern const wi_source wi_source_nvml, wi_source_cuda, wi_source_pci, wi_source_rocm, wi_source_intel;

/* Adds an empty card, valid until the next is added; NULL if there is no room, which becomes the remark. */
wi_card *wi_found_add(wi_found *found, weir_hardware_kind kind);

/* Adds to the remark; what does not fit is cut. */
void wi_found_remark(wi_found *found, const char *format, ...) WEIR_PRINTF(2, 3);

/* The processor, with the memory that it may have. */
void wi_processor(const char *root, weir_hardware_device *out);

/* Writes an address as the system does, "0000:3b:00.0". */
void wi_pci_write(char *text, size_t capacity, unsigned domain, unsigned bus, unsigned device, unsigned function);

/* Brings one as NVIDIA's libraries write it ("00000000:3B:00.0") into the system's form; "" if it is none. */
void wi_pci_read(const char *address, char *text, size_t capacity);

/* Files that this process can read and write, below the root. */
bool wi_can_open(const char *root, const char *path);

/* Numbers of the entries of a directory that are called `prefix` and a number, in ascending order. */
size_t wi_numbered(const char *prefix, unsigned *out, size_t most, const char *format, ...) WEIR_PRINTF(4, 5);

/* Opens a library: by the system's search on this machine, else in the root's directories of libraries and nowhere
 * else. NULL with a line in `why`. */
void *wi_library_open(const char *root, const char *soname, char *why, size_t capacity);

/* Puts the address of a function of the library into a pointer to it; false if there is none. */
bool wi_library_function(void *library, const char *name, void *pointer);
void wi_library_close(void *library);

/* 12040, as CUDA writes versions, is 12.4. */
weir_version_number wi_cuda_version(int number);

#endif
