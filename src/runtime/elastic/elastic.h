/* Elastic blocks: what elastic.c, elastic_pages.c and elastic_away.c share. */
#ifndef WI_RUNTIME_ELASTIC_H
#define WI_RUNTIME_ELASTIC_H

#include "memory/elastic.h"
#include "runtime/runtime.h"

struct weir_elastic {
    weir_client *client;
    wi_elastic_range *range; /* NULL while it is being made; set under the runtime's clients_lock */
    bool ending;             /* under the same lock: a suspend that begins now skips the block */
    atomic_uint_fast64_t refused;
    weir_elastic *next; /* of the client */
};

/* In elastic_pages.c, for pages of several elastic blocks that go together or not at all. Claims the committed pages of
 * the range, linked by pending_next, and adds them behind **end. WEIR_ERR_BUSY: a launch uses a page; the pages before
 * it are claimed. */
weir_status wi_elastic_claim(const weir_elastic *elastic, size_t offset, size_t bytes, wi_block ***end);
/* Undoes wi_elastic_claim. */
void wi_elastic_unclaim(wi_base *base, wi_block *list);
/* Frees claimed pages. No work uses the pages any more, except declared uses. */
void wi_elastic_free_claimed(weir_runtime *runtime, wi_block *list);

#endif
