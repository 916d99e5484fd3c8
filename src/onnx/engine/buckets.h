/* Who runs when, and in which session: the slots by turns, and with the setting `buckets` a session of the slot for
 * each bucket of shapes, over the same weights.
 *
 * Whoever came first has the next turn. A slot on cuda has one run at a time, the one on host as many as the setting
 * `concurrency` says; the first slot that is free is taken, so that further ones have work only when there is so much.
 *
 * In each slot the shapes that come first have its own session for good. Others get one of their own when they first
 * come. When more are there than the setting allows, the one that was used the longest time ago goes, but not before
 * the new one is there: one that cannot be made costs no other, unless it was memory that it lacked. It is then tried
 * again with the oldest gone. Shapes for which no session could be made are left in peace for a while, each time twice
 * as long. Nobody waits for a session that is being made: whoever makes one gives its turn back meanwhile, and whoever
 * finds none that is ready runs in the slot's own. */
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

/* So many shapes that failed are remembered; for how many seconds the first time, and at the most. */
enum { ONNX_FAILURES_KEPT = 16, ONNX_FAILURE_FIRST = 1, ONNX_FAILURE_MOST = 256 };

/* Makes model->buckets; WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_buckets_begin(weir_engine_model *model);
void onnx_buckets_end(weir_engine_model *model);

/* Waits while no slot is free, or the one that is wanted (NULL: any). WEIR_ERR_CANCELLED when somebody has: then there
 * is no turn to give back. */
weir_status onnx_turn_take(weir_engine_model *model, const weir_inference *inference, const onnx_run *its,
                           onnx_slot *wanted, onnx_turn *out);
void onnx_turn_give(weir_engine_model *model, onnx_turn turn);
/* Runs that wait for their turn look whether they were cancelled. */
void onnx_turns_wake(weir_engine_model *model);

onnx_bucket_stats onnx_buckets_look(weir_engine_model *model);

/* "f32:2:1,64;" for an input of 1 by 50 with granularity 64. */
void onnx_bucket_key(const weir_engine_model *model, const weir_inference *inference, char *text, size_t capacity);

#endif
