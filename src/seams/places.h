/* From a framework's stream to weir's: what the seams of all frameworks ask at each allocation and free.
 *
 * Frameworks name a stream by the driver's handle, and some (CuPy) make and destroy streams all the time. A handle that
 * means another stream by now is told apart by the id that CUDA gives each stream, which is asked for at each call: memory
 * that was freed in the order of the old stream is nothing for the new one until the old one's work is done. While a
 * stream is captured CUDA cannot be asked for its id, and the handle means the stream that it meant before. */
#ifndef WSEAM_PLACES_H
#define WSEAM_PLACES_H

#include <weir/weir.h>

/* The weir_stream of CUDA's stream `native` for the client's runtime, which is made known to weir when it is first asked
 * for. NULL and 1 are CUDA's legacy stream, 2 is the calling thread's own. A context of the device should be current: else
 * each call takes the long way. Without a lock where a thread comes back to one of the last streams that it used. Errors as
 * weir_stream_register and weir_stream_default, and WEIR_ERR_SYSTEM; *out is WEIR_STREAM_HOST then. Any thread. */
WEIR_NODISCARD weir_status wseam_place_of(weir_client *client, void *native, weir_stream *out);

/* The same for an allocation. A captured stream that weir does not know yet cannot be made known: *out is then
 * WEIR_STREAM_HOST, as for memory that any stream may use. */
WEIR_NODISCARD weir_status wseam_place_or_host(weir_client *client, void *native, weir_stream *out);

/* Whether the handle meant this stream when the calling thread last asked; nobody is asked now. */
bool wseam_place_was(const weir_client *client, const void *native, weir_stream stream);

/* Makes weir forget the streams of a runtime that is to be destroyed, and waits for their work. No other thread may ask
 * for the runtime's streams meanwhile. Goes on after an error, and returns the first error. The stream of an error,
 * such as a destroyed stream, stays known to weir. */
WEIR_NODISCARD weir_status wseam_places_forget(weir_runtime *runtime);

/* The framework is about to destroy the stream `native`: waits for its work, and makes weir forget it. What is used after that
 * would be CUDA's undefined behaviour, down to a crash: events cannot be recorded on it. */
void wseam_places_end(const void *native);

/* How many streams are known to weir by this. For tests. */
size_t wseam_places_count(void);

/* ---- the few functions of CUDA's driver that seams ask ----------------------------------------------------------- */

typedef enum wseam_stream_look {
    WSEAM_STREAM_KNOWN,    /* *id is its id */
    WSEAM_STREAM_CAPTURED, /* to ask for its id would end the capture */
    WSEAM_STREAM_UNKNOWN   /* no context is current, no stream, or no driver */
} wseam_stream_look;

/* What stream a handle means now. CUDA's default streams have no handle of their own and are not asked about. */
wseam_stream_look wseam_driver_look(void *native, uint64_t *id);

/* Bytes of memory that the device has in all; 0: it cannot be asked. */
uint64_t wseam_driver_total(int ordinal);

/* ---- frees.c: frees in the order of streams ---------------------------------------------------------------------- */

/* Frees a block in the order of `stream`. Where nothing can be put behind that stream (it is gone, or another thread's own),
 * and with WEIR_STREAM_HOST, behind what is on all blocking streams now: CUDA's legacy stream waits for those.
 * WEIR_STREAM_ALL is behind what is on any stream, and breaks the capture of one that is not blocking and that weir does
 * not know. What cannot be done while something is captured is done later, by wseam_free_waiting. What fails is logged:
 * nobody could be told. */
void wseam_free(weir_client *client, void *pointer, weir_stream stream);

/* Does what could not be done before, in the order in which it was asked for. Costs nothing where there is none. */
void wseam_free_waiting(void);

/* How many frees wait for the end of a capture. */
size_t wseam_frees_waiting(void);

#endif
