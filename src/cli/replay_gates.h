/* replay_gates.h: inside the gates of libweir's devices: one word in memory, which the host moves on and streams wait for. */
#ifndef WEIR_CLI_REPLAY_GATES_H
#define WEIR_CLI_REPLAY_GATES_H

#include "replay.h"

#include <pthread.h>
#include <stdatomic.h>

/* Laws: the word never goes back between two rests. A gate with number n is open when word >= n, as differences of 32 bits:
 * a plan has fewer operations than their half. */
typedef struct gates gates;
struct gates {
    wi_replay_gates table;
    weir_runtime *runtime;
    const weir_stream *streams;
    uint32_t lag;
    _Atomic uint32_t *word;              /* operations that the host has come past, or more where gates were forced */
    _Atomic uint32_t own_word, sleepers; /* the word on the host; threads of streams that sleep on it */
    weir_status (*put)(gates *g, uint16_t stream, uint32_t number);

    pthread_t watch;
    _Atomic bool ending, at_work; /* the latter: between the first operation of a pass and its rest */
    _Atomic uint32_t at;          /* the operation that the host is at */
    _Atomic uint64_t beats;       /* how often the host came to an operation, in all passes: it is not stuck */
    _Atomic uint64_t forced;
    uint32_t look_ns; /* how often the watch looks */

    void *device; /* of the cuda gates */
};

/* The word on the host, for which threads of streams wait. */
weir_status gates_host_put(gates *g, uint16_t stream, uint32_t number);
/* The word in pinned memory, for which the GPU's streams wait. WEIR_ERR_UNSUPPORTED without the driver's functions. */
weir_status gates_cuda_begin(gates *g);
void gates_cuda_end(gates *g);

#endif
