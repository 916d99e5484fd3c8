/* weir/kind.h: the kinds of memory and of default streams that a device may have. */
#ifndef WEIR_KIND_H
#define WEIR_KIND_H

#include <weir/status.h>

WEIR_BEGIN

typedef enum weir_kind {
    WEIR_KIND_DEVICE = 0, /* the device's own */
    WEIR_KIND_PINNED = 1, /* the host's, where the device reaches it itself: what asynchronous copies want */
    WEIR_KIND_HOST = 2,   /* the host's, pageable */
    WEIR_KIND_COUNT = 3
} weir_kind;

enum { WEIR_KIND_MOST = 8 }; /* places by kind in structures, so that kinds can be added */

/* "device", "pinned", "host"; "?" for a number that is none. */
WEIR_API const char *weir_kind_name(weir_kind kind);

/* The two streams that CUDA gives every program: the legacy one, which waits for all blocking streams and they for it, and
 * one per host thread. */
typedef enum weir_default_stream {
    WEIR_DEFAULT_STREAM_LEGACY = 0,
    WEIR_DEFAULT_STREAM_PER_THREAD = 1
} weir_default_stream;

WEIR_END
#endif
