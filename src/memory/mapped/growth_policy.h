/* Growth policy of "mapped": when more memory is mapped rather than chunks are moved or frees of other streams are
 * waited for, how long chunks are, and in which region a block stands.
 *
 * All decisions and their numbers are in growth_policy.c. They are arithmetic on what the caller has seen: nothing
 * here takes a lock, calls the driver, or reads the clock. tests/core/growth_policy.c has a test for each rule.
 *
 * Invariants: move_tokens, move_debt, move_saved and wait_left never exceed their caps. */
#ifndef WI_GROWTH_POLICY_H
#define WI_GROWTH_POLICY_H

#include "memory/resource.h"
#include "memory/space/extents.h"

/* Long-lived blocks stand apart from short-lived ones, so that these leave whole chunks behind. Small blocks have
 * chunks of their own, so that they do not keep large chunks in use. */
enum { WI_LONG_LIVED = 0, WI_SHORT_LIVED = 1, WI_SMALL = 2, WI_REGIONS = WI_SIZE_INDEXES };

/* What the policy remembers. */
typedef struct wi_growth_policy {
    uint64_t move_tokens;  /* a token bucket: allocations earn tokens, moves cost some */
    uint64_t excess_moves; /* strain: how much more was moved lately than is worth it */
    uint64_t allocations;  /* up to which tokens have been earned */
    unsigned move_percent; /* of the time may be spent on moves; 0: their time does not count */
    uint64_t move_debt;    /* nanoseconds that moves took lately beyond their share of the time */
    uint64_t move_saved;   /* nanoseconds of that share, saved up; 0 while there is a debt */
    uint64_t move_at;      /* when that was so */
    unsigned wait_percent; /* of the time may be spent on waits for other streams; 0: none */
    uint64_t wait_left;    /* nanoseconds of that, saved up */
    uint64_t wait_at;      /* when that was so */
} wi_growth_policy;

/* What the policy looks at; bytes where nothing else is said. */
typedef struct wi_growth_view {
    uint64_t granule;
    uint64_t held, creatable; /* by the ledger; granules that the budget and the device leave */
    uint64_t in_use, peak_in_use;
    uint64_t most_partly;  /* chunks that were partly in use at a time, at the most */
    unsigned stream_lists; /* streams in whose order memory is free */
} wi_growth_view;

void wi_growth_begin(wi_growth_policy *policy, unsigned move_percent, unsigned wait_percent, uint64_t now);

/* Regions. wi_growth_region: the block's own region. wi_growth_regions: the regions that the block may stand in, own
 * region first, and their count. */
unsigned wi_growth_region(const wi_placement *placement);
unsigned wi_growth_regions(const wi_placement *placement, const unsigned **list);

/* Chunks. How long new ones are where so many granules are created at once, in granules. */
uint64_t wi_growth_chunk(const wi_growth_view *view, uint64_t fresh);
/* The same for long-lived blocks: at least as long, and in the lengths of wi_growth_step. */
uint64_t wi_growth_long_chunk(const wi_growth_view *view, uint64_t fresh);
/* How long the next of these is, in granules, where `rest` granules of the bytes `granule` are still to be created:
 * `usual` or less, and at least 1. */
uint64_t wi_growth_step(uint64_t granule, uint64_t usual, uint64_t rest);

/* Moves. How many granules may be created for a request of so many bytes before a move of idle chunks is preferred. */
uint64_t wi_growth_soft_limit(const wi_growth_policy *policy, const wi_growth_view *view, uint64_t bytes);
/* The ledger has counted so many allocations by now: they earn tokens, and excess is forgotten. */
void wi_growth_earn(wi_growth_policy *policy, uint64_t allocations);
/* A batch of chunks is moved for one block. */
void wi_growth_pay(wi_growth_policy *policy);
/* Such a batch took the time from `start` to `end`, in nanoseconds. */
void wi_growth_pay_time(wi_growth_policy *policy, uint64_t start, uint64_t end);
/* How many granules a place over several holes may lack instead of a plan that lacks `missing`. */
uint64_t wi_growth_fill(uint64_t missing);

/* Waits. Whether the request may wait for what streams have freed, of which so many have stream lists. */
bool wi_growth_may_wait(const wi_placement *placement, unsigned stream_lists);
/* Time has passed, of which a share may be spent on waits. */
void wi_growth_earn_wait(wi_growth_policy *policy, uint64_t now);
/* Until when a request waits that begins now, and that waits for `most` nanoseconds in any case. */
uint64_t wi_growth_wait_until(const wi_growth_policy *policy, uint64_t now, uint64_t most);
void wi_growth_pay_wait(wi_growth_policy *policy, uint64_t nanoseconds);

/* The device. Returns how many granules the device is assumed to have, until the request is over, after it has refused
 * `missing` granules and reported `available`. */
uint64_t wi_growth_device_has(uint64_t available, uint64_t missing);

#endif
