/* The base "elastic": pages of elastic blocks. A block is one page, in a handle of its own, at the address that the
 * request names.
 *
 * A range is the addresses of one elastic block. Addresses without a page are covered (weir/driver.h), so that they can
 * be read. A page is in the table of its range from the moment in which a thread begins to make it until its memory is
 * back with the driver and its addresses are covered again; until then no other thread can make a page there.
 *
 * Invariants: used = pages in the table; live and pending count the pages in these states. Of a promised range, each
 * page that is not in the table is in `left` of the promise, promised in the account, and set aside in the ledger. */
#ifndef WI_ELASTIC_H
#define WI_ELASTIC_H

#include "memory/adaptors/adaptors.h"
#include "memory/space/chunks.h"

typedef struct wi_elastic_page wi_elastic_page;

typedef struct wi_elastic_range {
    wi_range range;
    wi_base *base;
    wi_account *account;
    const char *client, *tag; /* interned; the client may be closed before the last page has gone */
    weir_class memory_class;
    bool promised;
    wi_reservation promise;
    uint64_t page, count;
    /* under the base's lock: */
    bool ended;
    uint64_t used, live, pending, peak; /* pages */
    uint64_t commits, releases;
    struct wi_elastic_range *next; /* ended ranges whose addresses the driver did not take back */
    wi_elastic_page *pages[];
} wi_elastic_range;

/* Where a block is to be, for a placement; `maker` identifies the commit and the pages that it has made. A refusal is
 * of the whole commit: `asked` bytes, of which `claimed` were claimed for it, or 0 where they were promised before. */
typedef struct wi_elastic_target {
    wi_elastic_range *range;
    uint64_t index;
    const void *maker;
    uint64_t asked, claimed;
} wi_elastic_target;

weir_status wi_elastic_create(const wi_driver *driver, wi_device *device, wi_resource **out);

/* Reserves and covers the addresses of `like`, of which all members from account to count are set, and enters a copy
 * into the base. *reserved: false if the driver did not give the addresses. */
weir_status wi_elastic_range_create(wi_base *base, const wi_elastic_range *like, wi_elastic_range **out,
                                    bool *reserved);
/* Ends the range: no further page is allocated. The range goes with its last page. */
void wi_elastic_range_end(wi_elastic_range *range);

/* What the driver has not taken back: pages that are without an owner, which the ledger counts as held, and addresses of ranges that
 * have ended. By client and tag, as far as there is room. */
enum { WI_ELASTIC_LEFT = 16 };
typedef struct wi_elastic_left {
    struct {
        const char *client, *tag;
        uint64_t pages, bytes;
    } of[WI_ELASTIC_LEFT];
    size_t count;
    uint64_t bytes; /* of all pages */
    bool lost;      /* so is the device: nothing will be taken back any more */
} wi_elastic_left;

/* When no range is in use: waits for what is queued on such pages, and tries all once more. False: some of it is left, as *out
 * says. */
bool wi_elastic_give_back(wi_base *base, wi_elastic_left *out);

/* What stands at a page. */
typedef enum wi_elastic_state {
    WI_PAGE_UNUSED,
    WI_PAGE_THERE,   /* live, or made by `maker` */
    WI_PAGE_PENDING, /* released; the device may be past it */
    WI_PAGE_BUSY     /* another thread commits or has acquired the page */
} wi_elastic_state;

/* With the base's lock held. */
wi_elastic_state wi_elastic_look(const wi_elastic_range *range, uint64_t index, const void *maker);
/* The block of a page that is live and not acquired, or NULL; with the base's lock held. */
wi_block *wi_elastic_live(const wi_elastic_range *range, uint64_t index);
/* The block of a page that is pending in the list of deferred frees, with its memory where it was, or NULL; with the locks
 * of the list and of the base held. */
wi_block *wi_elastic_pending(const wi_elastic_range *range, uint64_t index);
/* Makes a pending block, which is in no list, a new block of `stream` and `maker`; maker NULL: an ordinary pending
 * block again. The block stays pending until it is published. With the base's lock held. */
void wi_elastic_renew(wi_block *block, weir_stream stream, const void *maker);
static inline char *wi_elastic_at(const wi_elastic_range *range, uint64_t index)
{
    return (char *)range->range.start + index * range->page;
}
/* Waits until a page of the base changes its state, or the clock reads `deadline`: false. The lock is held. */
bool wi_elastic_wait(wi_base *base, uint64_t deadline);

#endif
