/* Pages of elastic blocks of a suspended client. They are given back like any others, and committed again at the resume:
 * what is kept of them here is where they were, and where their contents are (copies.h). */
#ifndef WI_ELASTIC_AWAY_H
#define WI_ELASTIC_AWAY_H

#include "memory/away.h"

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
