/* What allocation, free and resize share (alloc.c, free.c, resize.c). Each looks its stream up once, a free when it has claimed
 * its block, and hands the facts (`at`) down; the steps that look again say why. The blocks in these functions are taken: no
 * other thread touches them. */
#ifndef WI_REQUESTS_H
#define WI_REQUESTS_H

#include "runtime/runtime.h"

/* How many bytes of a block are zeroed before another client gets it, from its begin: also the bytes behind the requested
 * ones, which a later resize may give to the user. An adaptor that adds margins has written all that lies around the bytes. */
uint64_t wi_alloc_scrubbed(const wi_block *block);
/* Queues zeros from `from` to `to` on the block's stream; WEIR_STREAM_HOST: writes them. */
weir_status wi_alloc_clear(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t from, uint64_t to,
                           weir_stream stream);
/* Notes the point behind the zeros that were queued for the block, where no other thread can record it later. */
void wi_alloc_note_point(weir_runtime *runtime, wi_block *block, void *native);
/* Fails with WEIR_ERR_STREAM_MISUSE: the block needs zeros, which a captured stream cannot write. */
weir_status wi_alloc_not_captured(const weir_runtime *runtime, const wi_block *block, weir_stream stream);
/* Whether the stream is captured, just before zeros are queued on it. Looks again, as the request may have waited since it looked
 * its stream up, and a capture may have begun meanwhile. */
bool wi_alloc_captured(weir_runtime *runtime, weir_stream stream, const void *native);

/* What the free of a block waits for. */
typedef struct wi_free_fence {
    wi_past past;
    bool behind_all; /* WI_IN_ORDER of all work of the device: the block's own stream is gone, and has no point */
    void *native;    /* the stream's */
    wi_event event;  /* WI_UNPASSED: the point behind which the block is free, besides its declared uses */
} wi_free_fence;

/* Records the point of the stream, and whether the device is past it and past the block's uses. */
weir_status wi_free_record_fence(weir_runtime *runtime, const wi_block *block, const wi_stream_facts *at,
                                 wi_free_fence *f);
/* Notes zeros that another stream is writing to the block as its first write. */
weir_status wi_free_note_zeroing(weir_runtime *runtime, wi_block *block, weir_stream stream);
/* The client's account in the ledger of the stack. */
const wi_account *wi_free_account(const weir_client *client, const wi_resource *stack);

#endif
