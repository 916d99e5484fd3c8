/* Frees of frameworks that do not say how their streams are ordered, or say it when it cannot be told to CUDA. */
#ifndef WSEAM_FREES_H
#define WSEAM_FREES_H

#include <weir/weir.h>

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
