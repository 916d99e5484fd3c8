/* weir/base.h: what every other header needs: version, visibility, statuses, the log, options, versions, kinds of
 * memory, element types.
 *
 * All structures that callers fill or receive begin with a member `struct_size`. The caller sets it to sizeof the
 * structure as it was compiled. libweir reads and writes only that much, so programs built against an older header keep
 * working. What a newer header's structure has besides has to be 0: something set there is WEIR_ERR_UNSUPPORTED,
 * because an option is obeyed or refused, never dropped. A struct_size that is not set, or that no header ever had, is
 * WEIR_ERR_INVALID, and so is a list that is NULL where its count is not 0.
 * Use WEIR_INIT: `weir_client_options o = WEIR_INIT(weir_client_options); o.name = "bert";` */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_VERSION_MAJOR  0
#define WEIR_VERSION_MINOR  2
#define WEIR_VERSION_PATCH  0
#define WEIR_VERSION_STRING "0.2.0"

#ifdef __cplusplus
#define WEIR_BEGIN extern "C" {
#define WEIR_END   }
#define WEIR_INIT(type)                                                                                                \
    ([] {                                                                                                              \
        type value_{};                                                                                                 \
        value_.struct_size = sizeof(type);                                                                             \
        return value_;                                                                                                 \
    }())
#else
#define WEIR_BEGIN
#define WEIR_END
#define WEIR_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

#if defined(__GNUC__)
#define WEIR_API               __attribute__((visibility("default")))
#define WEIR_NODISCARD         __attribute__((warn_unused_result))
#define WEIR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define WEIR_API
#define WEIR_NODISCARD
#define WEIR_PRINTF(fmt, args)
#endif

WEIR_BEGIN

/* The version of the library that is running, "0.2.0"; never NULL. Any thread. */
WEIR_API const char *weir_version(void);

/* ------------------------------------------------------------------------------------------------------------------ */

/* How a call answers. Every function that can fail returns a weir_status; the reason in words is the
 * calling thread's detail text. Nothing in libweir prints or aborts, and a refused call has changed
 * nothing that anybody holds; free memory may have gone back to the driver on the way. */

typedef enum weir_status {
    WEIR_OK = 0,
    WEIR_ERR_INVALID = 1,        /* an argument that no state of the program makes acceptable */
    WEIR_ERR_OUT_OF_MEMORY = 2,  /* the bytes cannot be had; weir/memory.h says why and what would do */
    WEIR_ERR_FOREIGN = 3,        /* a pointer that this runtime or client does not own */
    WEIR_ERR_INTERIOR = 4,       /* a pointer into a block, not its start */
    WEIR_ERR_DOUBLE_FREE = 5,    /* the block at this address was freed before */
    WEIR_ERR_STALE = 6,          /* the address lives again, but as another block than the one named */
    WEIR_ERR_BUSY = 7,           /* the object is in use: bytes live, a run under way */
    WEIR_ERR_CONFLICT = 8,       /* exists already with other options */
    WEIR_ERR_NOT_FOUND = 9,      /* no such device, file, engine, input, option */
    WEIR_ERR_UNSUPPORTED = 10,   /* understood, and not offered by this device, resource or engine */
    WEIR_ERR_STREAM_MISUSE = 11, /* a stream of another runtime, a released one, or a use that cannot be ordered */
    WEIR_ERR_NO_ROOM = 12,       /* weir_resize: the block cannot grow where it is; it is unchanged */
    WEIR_ERR_FORKED = 13,        /* this process was forked from one that used weir; no call works here */
    WEIR_ERR_DRIVER = 14,        /* the device driver failed; the detail names the call and its code */
    WEIR_ERR_DEVICE_LOST = 15,   /* the device is gone; sticky */
    WEIR_ERR_SYSTEM = 16,        /* the operating system refused: a file, a thread, a mapping */
    WEIR_ERR_CORRUPT = 17,       /* a file whose content breaks its own format; memory written past its block */
    WEIR_ERR_ENGINE = 18,        /* an inference engine failed; the detail holds its words */
    WEIR_ERR_CANCELLED = 19,     /* stopped on request */
    WEIR_STATUS_COUNT
} weir_status;

/* The detail of the calling thread's last failed call: one line naming the object, the sizes and the remedy; "" if none
 * has failed. Valid until this thread's next failing call. A successful call leaves it as it is. Any thread. */
WEIR_API const char *weir_detail(void);

/* Sets the calling thread's detail text and returns `status`, so that an engine plug-in or a callback can write
 * `return weir_fail(WEIR_ERR_ENGINE, "…", …);`. The text is cut at 1023 bytes, at a character boundary. */
WEIR_API weir_status weir_fail(weir_status status, const char *format, ...) WEIR_PRINTF(2, 3);

/* ------------------------------------------------------------------------------------------------------------------ */

/* What no caller sees: a foreign free that came from an engine, a failed sink, a slow driver call. */

typedef enum weir_log_level {
    WEIR_LOG_OFF = 0,
    WEIR_LOG_ERROR = 1,
    WEIR_LOG_WARNING = 2,
    WEIR_LOG_INFO = 3,
    WEIR_LOG_DEBUG = 4
} weir_log_level;

/* `text` is one line without newline, valid during the call. Called on the thread that has something to say, never with
 * a weir lock held; it may call weir, and the thread's weir_detail is afterwards as it was. Calls may come from several
 * threads at once. */
typedef void (*weir_log_fn)(weir_log_level level, const char *text, void *user);

/* Sends messages of `level` and more urgent ones to `fn`; NULL restores the default, which is silence, or standard
 * error when the option `log` (WEIR_LOG=error|warning|info|debug) asks for it. Any thread; when it returns, the
 * former function may still be running in another thread. */
WEIR_API weir_status weir_log_set(weir_log_fn fn, void *user, weir_log_level level);

/* Writes one message into the log; for engines and embedders. Any thread. */
WEIR_API void weir_log(weir_log_level level, const char *format, ...) WEIR_PRINTF(2, 3);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Settings by name, from the environment or from calls, and sizes with units. */

typedef enum weir_option_source {
    WEIR_OPTION_FROM_DEFAULT = 0,
    WEIR_OPTION_FROM_ENVIRONMENT = 1,
    WEIR_OPTION_FROM_CALL = 2
} weir_option_source;

typedef struct weir_option {
    size_t struct_size;
    const char *name;        /* "budget" */
    const char *environment; /* "WEIR_BUDGET" */
    const char *help;        /* one line: the effect and the accepted values */
    /* In the form it was given; "" when unset. Words and numbers from the environment are without the white space
     * around them; a value that can be a path keeps its white space */
    char value[256];
    weir_option_source source; /* where the value came from; a call wins over the environment */
    bool rejected;             /* the environment holds a value that does not parse; `value` is the default instead.
                                  A runtime does not start on a rejected budget: WEIR_ERR_INVALID */
} weir_option;

/* The option called `name`; with NULL the one number `index`, from 0. WEIR_ERR_NOT_FOUND past the last, and for a name
 * that is none, with the nearest one. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_option_info(const char *name, size_t index, weir_option *out);

/* Gives an option a value from now on; NULL takes the given value back. WEIR_ERR_INVALID says what values are taken,
 * and leaves the old one. Options that a runtime read when it was made (budget, resource) do not change that
 * runtime. */
WEIR_API WEIR_NODISCARD weir_status weir_option_set(const char *name, const char *value);

/* Reads a size as options and the command do: digits, also with a fraction, then no unit or B (bytes), k, KiB, m, MiB, g,
 * GiB, t, TiB, kB, MB, GB, TB, in any case, all of them powers of 1024; a space may come before the unit. WEIR_ERR_INVALID,
 * with *bytes unchanged, for any other text: a sign, a fraction of a byte, more than 2^64-1 bytes. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_size_parse(const char *text, uint64_t *bytes);

/* Writes "980 MiB", "1.5 GiB", "512 B" into `text` (24 bytes are enough, always terminated) and returns it. Exact where
 * one decimal is exact, otherwise rounded to one decimal. */
WEIR_API char *weir_size_format(uint64_t bytes, char *text, size_t capacity);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Versions as tuples of integers, so that 12.10 is later than 12.9 and 9.2 earlier than 11.8. */

/* Missing parts count as 0: 13 is 13.0 and later than 12.9. `count` 0: not known. */
typedef struct weir_version_number {
    uint32_t part[4];
    uint32_t count;
} weir_version_number;

/* ------------------------------------------------------------------------------------------------------------------ */

/* The kinds of memory and of default streams that a device may have. */

typedef enum weir_kind {
    WEIR_KIND_DEVICE = 0, /* the device's own */
    WEIR_KIND_PINNED = 1, /* the host's, where the device reaches it itself: what asynchronous copies want */
    WEIR_KIND_HOST = 2,   /* the host's, pageable */
    WEIR_KIND_COUNT = 3
} weir_kind;

enum { WEIR_KIND_MOST = 8 }; /* places by kind in structures, so that kinds can be added */

/* CUDA's default streams. The legacy stream waits for blocking streams, and blocking streams wait for the legacy
 * stream. Every host thread has a per-thread stream. */
typedef enum weir_default_stream {
    WEIR_DEFAULT_STREAM_LEGACY = 0,
    WEIR_DEFAULT_STREAM_PER_THREAD = 1
} weir_default_stream;

/* ------------------------------------------------------------------------------------------------------------------ */

/* What goes into a model and comes out of it. */

typedef enum weir_type {
    WEIR_TYPE_NONE = 0,
    WEIR_TYPE_F32 = 1,
    WEIR_TYPE_F64 = 2,
    WEIR_TYPE_F16 = 3,
    WEIR_TYPE_BF16 = 4,
    WEIR_TYPE_I8 = 5,
    WEIR_TYPE_I16 = 6,
    WEIR_TYPE_I32 = 7,
    WEIR_TYPE_I64 = 8,
    WEIR_TYPE_U8 = 9,
    WEIR_TYPE_U16 = 10,
    WEIR_TYPE_U32 = 11,
    WEIR_TYPE_U64 = 12,
    WEIR_TYPE_BOOL = 13,     /* one byte, 0 or 1 */
    WEIR_TYPE_F8E4M3FN = 14, /* this and the next three: one byte, as defined by ONNX */
    WEIR_TYPE_F8E4M3FNUZ = 15,
    WEIR_TYPE_F8E5M2 = 16,
    WEIR_TYPE_F8E5M2FNUZ = 17,
    WEIR_TYPE_TEXT = 18, /* UTF-8; one dimension, in bytes; several texts are separated by newlines */
    WEIR_TYPE_COUNT
} weir_type;

enum { WEIR_MAX_RANK = 16 };

/* A dense tensor in row-major order. Rank 0 is a scalar with one element; a dimension of 0 makes it empty (data may
 * then be NULL). In an array of tensors the first one's `struct_size` is the stride. */
typedef struct weir_tensor {
    size_t struct_size;
    const char *name;
    weir_type type;
    uint32_t rank;
    int64_t shape[WEIR_MAX_RANK];
    void *data; /* memory the CPU can address, unless: */
    size_t bytes;
    /* data is memory of the model's device. A device tensor from an engine is complete when the engine's function
     * returns; its memory is freed in the order of the engine's stream, so uses on other streams are declared
     * (weir/uses.h) */
    bool on_device;
} weir_tensor;

/* Computes the bytes of a dense tensor of this type and shape; rank 0 is one element. WEIR_ERR_INVALID for a negative
 * dimension, a rank above WEIR_MAX_RANK, a type that is none, or a product beyond SIZE_MAX. */
WEIR_API WEIR_NODISCARD weir_status weir_tensor_bytes(weir_type type, uint32_t rank, const int64_t *shape,
                                                      size_t *bytes);

/* ------------------------------------------------------------------------------------------------------------------ */

/* The words for values, as logs, messages and the command's JSON have them. */

typedef enum weir_names {
    WEIR_NAMES_STATUS = 0,     /* weir_status: "WEIR_ERR_OUT_OF_MEMORY" */
    WEIR_NAMES_KIND = 1,       /* weir_kind: "device", "pinned", "host" */
    WEIR_NAMES_TYPE = 2,       /* weir_type: "f32", "i64", "bool", "text" … */
    WEIR_NAMES_CLASS = 3,      /* weir_class: "weights" … */
    WEIR_NAMES_CAUSE = 4,      /* weir_refusal_cause: "budget", "other process" … */
    WEIR_NAMES_RUNG = 5,       /* weir_rung: "fit", "thread_cached" … */
    WEIR_NAMES_SPAN = 6,       /* weir_span_state: "live", "pending" … */
    WEIR_NAMES_ACTION = 7,     /* weir_action: "allocate", "use-begin" … */
    WEIR_NAMES_GUARD = 8,      /* weir_guard_kind: "overrun", "use after free" … */
    WEIR_NAMES_HARDWARE = 9,   /* weir_hardware_kind: "cpu", "cuda", "rocm", "intel", "metal", "directml" */
    WEIR_NAMES_VERDICT = 10,   /* weir_verdict: "ACCEPTED", "LITTLE_VRAM" … */
    WEIR_NAMES_STAGE = 11,     /* weir_stage: "detect", "construct", "load", "first-run", "later-run" */
    WEIR_NAMES_RESIDENCY = 12, /* weir_residency_state: "resident", "suspended", "moving" */
    WEIR_NAMES_SOURCE = 13,    /* weir_prediction_source: "measured", "dry run", "metadata", "size", "none" */
    WEIR_NAMES_POOL = 14,      /* weir_pool_action: "predicted", "evicted" … */
    WEIR_NAMES_COUNT
} weir_names;

/* The word for a value of the enumeration that `names` stands for; "?" for a number that is none. Any thread; static
 * storage. */
WEIR_API const char *weir_name_of(weir_names names, int value);

WEIR_END
#endif
