/* Turns at the slots, and the session of each run: with the setting `buckets` a slot has a session for each bucket of
 * shapes, over the same weights.
 *
 * Turns are given in the order of arrival. A slot on cuda has a single run at a time, the slot on host as many as the
 * setting `concurrency` says. A run takes the first free slot, so further slots work only when the first are busy.
 *
 * In each slot the shapes that come first have the slot's own session for good. Further shapes get a session when they
 * first come. If a slot then has more sessions than the setting allows, the least recently used session goes, but only
 * after the new session was made. So a session that cannot be made costs no other session, unless memory was short:
 * then the oldest session goes, and the new session is tried again. Shapes for which no session could be made are not
 * tried again for a while, each time twice as long. No run waits until another run has made a session: a run that makes
 * a session gives its turn back meanwhile, and a run that finds no ready session runs in the slot's own. */
#ifndef WEIR_ONNX_BUCKETS_H
#define WEIR_ONNX_BUCKETS_H

#include "model.h"
#include <weir/engine.h>

typedef struct onnx_bucket onnx_bucket;

typedef struct onnx_turn {
    onnx_slot *slot;
    ort_session *session;
    onnx_bucket *bucket; /* NULL: the slot's own session */
} onnx_turn;

/* Of sessions beside the slots' own. */
typedef struct onnx_bucket_stats {
    uint64_t made, ended, failed;
    uint64_t spared; /* times that none was tried, because it had failed not long ago */
    size_t now;
    size_t waiting; /* runs that have no turn yet */
} onnx_bucket_stats;

/* Failed shapes that are remembered, at most; seconds until the first retry, and the most seconds until a retry. */
enum { ONNX_FAILURES_KEPT = 16, ONNX_FAILURE_FIRST = 1, ONNX_FAILURE_MOST = 256 };

/* Makes model->buckets; WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_buckets_begin(weir_engine_model *model);
void onnx_buckets_end(weir_engine_model *model);

/* Waits while no slot is free, or the one that is wanted (NULL: any). WEIR_ERR_CANCELLED when somebody has: then there
 * is no turn to give back. */
weir_status onnx_turn_take(weir_engine_model *model, const weir_inference *inference, const onnx_run *its,
                           onnx_slot *wanted, onnx_turn *out);
void onnx_turn_give(weir_engine_model *model, onnx_turn turn);
/* Wakes the runs that wait for a turn, so that cancelled runs leave. */
void onnx_turns_wake(weir_engine_model *model);

onnx_bucket_stats onnx_buckets_look(weir_engine_model *model);

/* "f32:2:1,64;" for an input of 1 by 50 with granularity 64. */
void onnx_bucket_key(const weir_engine_model *model, const weir_inference *inference, char *text, size_t capacity);

#endif
