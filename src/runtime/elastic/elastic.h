/* Elastic blocks: what elastic.c, elastic_pages.c and elastic_away.c share. */
#ifndef WI_RUNTIME_ELASTIC_H
#define WI_RUNTIME_ELASTIC_H

#include "memory/away.h"
#include "memory/elastic.h"
#include "runtime/runtime.h"

struct weir_elastic {
    weir_client *client;
    wi_elastic_range *range; /* NULL while it is being made; set under the runtime's clients_lock */
    bool ending;             /* under the same lock: a suspend that begins now skips the block */
    atomic_uint_fast64_t refused;
    weir_elastic *next; /* of the client */
};

/* In elastic_pages.c, for pages of several elastic blocks that go together or not at all. Acquires the committed pages of
 * the range, linked by pending_next, and adds them behind **end. WEIR_ERR_BUSY: a launch uses a page; the pages before
 * it are acquired. */
weir_status wi_elastic_acquire(const weir_elastic *elastic, size_t offset, size_t bytes, wi_block ***end);
/* Undoes wi_elastic_acquire. */
void wi_elastic_let_go(wi_base *base, wi_block *list);
/* Frees acquired pages. No work uses the pages any more, except declared uses. */
void wi_elastic_free_acquired(weir_runtime *runtime, wi_block *list);

/* ---- elastic_away.c ---------------------------------------------------------------------------------------------- */

/* Pages of elastic blocks of a suspended client. They are given back like any others, and committed again at the resume:
 * what is kept of them here is where they were, and where their contents are (copies.h). */

/* Writes down the committed pages of the client's elastic blocks: a piece with one run for neighbours, in the order of
 * addresses; classes as `pages` has them. `point` is told what uses of them have left. WEIR_ERR_BUSY: a launch uses one. */
weir_status wi_elastic_away_list(weir_client *client, wi_away *pages, void (*point)(wi_event event, void *user),
                                 void *user);
/* Gives all pages of the list back. WEIR_ERR_BUSY: a launch uses a page; none was given back. */
weir_status wi_elastic_away_release(weir_client *client, const wi_away *pages);
/* Commits the missing pages of the list. On failure, part of the pages may be committed; the refusal is
 * weir_elastic_commit's. */
weir_status wi_elastic_away_commit(weir_client *client, const wi_away *pages);
/* Later uses and releases of the pages come behind the event (NULL: the pages are held), and behind uses that were
 * declared meanwhile. WEIR_ERR_SYSTEM: no host memory. */
weir_status wi_elastic_away_moved(weir_client *client, const wi_away *pages, const wi_event *event);
/* The client gives pages in [low, high) back, or ends their block: they will not be committed again. Returns their
 * bytes. */
uint64_t wi_elastic_away_forget(wi_away *pages, const char *low, const char *high);

#endif
