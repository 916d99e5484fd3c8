/* A look at the hardware: sources are asked, each for the devices that a part of the system knows, and their answers
 * are joined.
 *
 * A source keeps opened libraries, and other state for the next time, in a record of its own. The record needs no lock:
 * a source is never asked twice at the same time for a root. */
#ifndef WI_HARDWARE_H
#define WI_HARDWARE_H

#include "base/system.h"

#include <weir/select.h>

#include <limits.h>

enum { WI_MOST_CARDS = 128 };

/* A device as told by a single source. What the source cannot tell is 0, "" or WEIR_BYTES_UNKNOWN. */
typedef struct wi_card {
    weir_hardware_device device;
    bool sliced;             /* the device is used only through its slices */
    bool bus_only;           /* the device is there, and no more is known */
    wi_device_limits limits; /* what this process may have of the device; of slices nobody tells */
    unsigned instance;       /* of a slice: the GPU instance; slices of the same instance share memory */
} wi_card;

typedef struct wi_found {
    bool told; /* the source has answered, and knows no devices but the named ones */
    wi_card *cards;
    size_t count;
    char remark[512]; /* one line: what is missing or failed; "" */
} wi_found;

typedef struct wi_source {
    const char *name;
    /* `root` stands before every path; `record` is the record, NULL the first time; `out` is empty. */
    void (*ask)(const char *root, void **record, wi_found *out);
} wi_source;

enum { WI_SOURCE_NVML, WI_SOURCE_CUDA, WI_SOURCE_PCI, WI_SOURCES };
extern const wi_source wi_source_nvml, wi_source_cuda, wi_source_pci;

/* Adds an empty card, valid until the next is added; NULL if there is no room, which becomes the remark. */
wi_card *wi_found_add(wi_found *found, weir_hardware_kind kind);

/* Adds to the remark; what does not fit is cut. */
void wi_found_remark(wi_found *found, const char *format, ...) WEIR_PRINTF(2, 3);

/* The processor, with the memory that it may have. */
void wi_processor(const char *root, weir_hardware_device *out);

/* Brings an address as NVIDIA's libraries write it ("00000000:3B:00.0") into the system's form, "0000:3b:00.0"; "" if it
 * is none. */
void wi_pci_read(const char *address, char *text, size_t capacity);

/* The version that a file below the root tells; none if it tells none. */
weir_version_number wi_version_in(const char *root, const char *path);

/* A function of a library, and where the pointer to it goes in a record. */
typedef struct wi_function {
    const char *name;
    size_t at;
    bool needed;
} wi_function;

/* Opens a library, by the system's search on this machine, else in the root's directories of libraries and nowhere else,
 * and finds its functions. NULL, with a remark: it is not here, or lacks what is needed; then it is closed, so that the
 * next look opens the version installed by then. */
void *wi_library_open(const char *root, const char *soname, const wi_function *functions, size_t count, void *record,
                      wi_found *out);

/* 12040, as CUDA writes versions, is 12.4. */
weir_version_number wi_cuda_version(int number);

/* Probes ----------------------------------------------------------------------------------------------------------- */

/* Each source of a root is asked in a thread of its own, with a time limit. A source that hangs delays only the first
 * look, and a late answer serves the next look. */

/* The answer of a source, as far as it has come. */
typedef struct wi_answer {
    const char *source;
    wi_found found; /* the latest; empty if there is none yet; its cards are the caller's */
    bool late;      /* the source is still being asked */
    bool failed;    /* the source could not be asked this time: no thread, or no memory */
    bool left;      /* the source was not asked this time, as it fails slowly */
    /* Nanoseconds since the source was asked last; of a failed source, since it last could be asked; 0: never. */
    uint64_t since;
} wi_answer;

/* Asks all sources and waits for each until `limit` nanoseconds after it was asked; for one that was asked before and
 * has been silent for longer not at all, unless `ask_again`. A source that failed slowly is left alone for up to 5 s,
 * unless `ask_again`. Errors: WEIR_ERR_SYSTEM, with nothing to clear. */
weir_status wi_probe(const char *root, uint64_t limit, bool ask_again, wi_answer answers[WI_SOURCES]);
void wi_answers_clear(wi_answer answers[WI_SOURCES]);

/* Merging: each device once, with its ordinal as this process would use it ----------------------------------------- */

/* What of the environment matters, as it was at the time of the look; NULL: not set. */
typedef struct wi_visibility {
    const char *given; /* replaces CUDA_VISIBLE_DEVICES, whatever its value */
    const char *cuda;  /* CUDA_VISIBLE_DEVICES */
    const char *order; /* CUDA_DEVICE_ORDER */
} wi_visibility;

/* `out` begins with the processor alone. False: no host memory. */
bool wi_merge(const wi_answer answers[WI_SOURCES], const wi_visibility *visibility, wi_found *out);

/* CUDA's ordinals; used by wi_merge. `cards` has every device that CUDA could use. */
void wi_number_cuda(const wi_answer *cuda, const wi_visibility *visibility, wi_card *cards, size_t count);

/* Keeps a card within its limits, with a remark. Unknown numbers stay unknown. */
void wi_card_limit(wi_card *card);

/* Sets a card's remark unless it has one. */
void wi_card_remark(wi_card *card, const char *format, ...) WEIR_PRINTF(2, 3);

#endif
