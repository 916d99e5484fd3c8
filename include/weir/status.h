/* weir/status.h: how a call answers. Every function that can fail returns a weir_status; the reason in words is the
 * calling thread's detail text. Nothing in libweir prints or aborts, and a refused call has changed
 * nothing that anybody holds; memory that is nobody's may have gone back to the driver on the way. */
#ifndef WEIR_STATUS_H
#define WEIR_STATUS_H

#include <weir/base.h>

WEIR_BEGIN

typedef enum weir_status {
    WEIR_OK = 0,
    WEIR_ERR_INVALID = 1,        /* an argument that no state of the program makes acceptable */
    WEIR_ERR_OUT_OF_MEMORY = 2,  /* the bytes cannot be had; weir/refusal.h says why and what would do */
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

/* "WEIR_ERR_OUT_OF_MEMORY" and so on; "WEIR_?" for a number that is none. Any thread; static storage. */
WEIR_API const char *weir_status_name(weir_status status);

/* The detail of the calling thread's last failed call: one line naming the object, the sizes and the remedy; "" if none
 * has failed. Valid until this thread's next failing call. A successful call leaves it as it is. Any thread. */
WEIR_API const char *weir_detail(void);

/* Sets the calling thread's detail text and returns `status`, so that an engine plug-in or a callback can write
 * `return weir_fail(WEIR_ERR_ENGINE, "…", …);`. The text is cut at 1023 bytes, at a character boundary. */
WEIR_API weir_status weir_fail(weir_status status, const char *format, ...) WEIR_PRINTF(2, 3);

WEIR_END
#endif
