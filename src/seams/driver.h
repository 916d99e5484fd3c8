/* The few functions of CUDA's driver that seams ask, found at run time in the driver that weir itself has opened. */
#ifndef WSEAM_DRIVER_H
#define WSEAM_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum wseam_stream_look {
    WSEAM_STREAM_KNOWN,    /* *id is its id */
    WSEAM_STREAM_CAPTURED, /* to ask for its id would end the capture */
    WSEAM_STREAM_UNKNOWN   /* no context is current, no stream, or no driver */
} wseam_stream_look;

/* What stream a handle means now. CUDA's default streams have no handle of their own and are not asked about. */
wseam_stream_look wseam_driver_look(void *native, uint64_t *id);

#endif
