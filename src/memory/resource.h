/* The seam between the runtime and what serves its blocks: one table of functions per resource.
 *
 * The runtime has claimed the bytes in the ledger before it asks a resource to place them, and settles or cancels the
 * claim after; a resource takes physical memory through wi_ledger_hold. All functions may be called from any thread; none
 * of them waits for a device, except wait_oldest. */
#ifndef WI_RESOURCE_H
#define WI_RESOURCE_H

#include "driver/driver.h"
#include "memory/ledger.h"

typedef struct wi_resource wi_resource;

typedef struct wi_placement {
    uint64_t bytes, charged, alignment;
    weir_class memory_class;
    weir_stream stream;
    wi_account *account;
    const char *tag;
} wi_placement;

typedef struct wi_resource_table {
    const char *name;

    /* Finds a place; *out is a taken block, which put_back makes live. WEIR_OUT_OF_MEMORY: *shortage tells why not. */
    weir_status (*allocate)(wi_resource *resource, const wi_placement *placement, wi_block **out,
                            wi_shortage *shortage);
    /* Gives back a block that was allocated and never became anyone's. */
    void (*discard)(wi_resource *resource, wi_block *block);

    /* The live block that begins at `pointer`, taken: no other call can take it until it is freed, retired or put back.
     * generation 0 fits any. WEIR_FOREIGN, WEIR_INTERIOR, WEIR_DOUBLE_FREE, WEIR_STALE, WEIR_BUSY when it is taken or a
     * launch holds it. */
    weir_status (*take)(wi_resource *resource, const wi_account *account, void *pointer, uint64_t generation,
                        wi_block **out);
    void (*put_back)(wi_resource *resource, wi_block *block);
    /* Runs `fn` on that block with the resource's lock held, and answers what it answers. Errors as `take`, of any
     * account. */
    weir_status (*visit)(wi_resource *resource, void *pointer, uint64_t generation,
                         weir_status (*fn)(wi_block *block, void *user), void *user);
    /* Ends a taken block, and writes that into the ledger: now, or when the event and all marks of it have passed. */
    void (*free)(wi_resource *resource, wi_block *block, weir_stream stream, const wi_event *event);
    /* Cuts the taken block to `charged`; the tail is free at once, or when the event has passed. The ledger follows. */
    weir_status (*shrink)(wi_resource *resource, wi_block *block, uint64_t bytes, uint64_t charged,
                          const wi_event *event);
    /* Makes the taken block longer where it is; the caller has claimed the difference. WEIR_NO_ROOM: something stands
     * behind it; WEIR_OUT_OF_MEMORY: there is too little memory to put there. */
    weir_status (*grow)(wi_resource *resource, wi_block *block, uint64_t bytes, uint64_t charged);

    /* Frees what is pending and passed; answers how many bytes that were. */
    uint64_t (*reap)(wi_resource *resource);
    /* Waits for the oldest pending block (of `account`, or of anyone) until the clock reads `deadline`; false if there is
     * none, or the driver cannot wait. */
    bool (*wait_oldest)(wi_resource *resource, const wi_account *account, uint64_t deadline);

    /* Gives back to the driver until at most `keep` cached and spare bytes are left; answers how many it gave. */
    uint64_t (*trim)(wi_resource *resource, uint64_t keep);
    /* What could be placed, and what a request needs; sets all of *shortage but its cause. */
    void (*look)(wi_resource *resource, weir_class memory_class, uint64_t charged, uint64_t alignment,
                 wi_shortage *shortage);
    /* A copy of the account's largest live block; charged 0: it has none. */
    void (*largest_block)(wi_resource *resource, const wi_account *account, wi_block *out);
    bool (*owns)(wi_resource *resource, const void *pointer);
    /* What stands at a pointer that it owns. */
    void (*inspect)(wi_resource *resource, const void *pointer, weir_block_details *out);
    void (*destroy)(wi_resource *resource); /* nothing is live or pending */
} wi_resource_table;

struct wi_resource {
    const wi_resource_table *table;
    const wi_driver *driver;
    wi_device *device;
    wi_ledger *ledger;
};

/* Handles mapped into one range per lifetime side, sub-allocated by best fit. */
weir_status wi_mapped_create(const wi_driver *driver, wi_device *device, wi_ledger *ledger, wi_resource **out);

#endif
