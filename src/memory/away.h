/* Away: the memory of one client that is elsewhere, as a base sees it. weir/residency.h says what it is for.
 *
 * A base that can have blocks without memory gives these functions in its table. They keep the books and map and unmap;
 * the copies are the caller's (runtime/residency.c), which calls them in this order, from one thread at a time:
 *
 *   choose -> take (each piece, once its contents are elsewhere) -> leave, or undo
 *   choose -> pass (some pieces, or all) -> leave
 *   recover -> allocate with placement->away -> arrive, or recall
 *   claim -> begin, or unclaim; then claim_end
 *
 * Where copies can be shown, the caller maps them in place of what was taken, before leave, and says so in `shown`.
 * Copies are not the base's memory: before the base maps a chunk at the place of a copy, it has the caller take the
 * copy from there.
 *
 * Invariants: a piece is a run of granules of one region over which nothing lies but blocks of the account that are
 * away there, and busy extents; while it is away no granule of it has memory of the base's. One without blocks is
 * shown. away.bytes, the sum of block->away and the account's away bytes are equal between these calls. From choose to
 * leave and from recover to arrive all blocks on pieces are acquired, with `leaving` set. */
#ifndef WI_AWAY_H
#define WI_AWAY_H

#include "memory/resource.h"
#include "memory/space/extents.h"

#include <weir/residency.h>

typedef struct wi_copy wi_copy;

/* Bytes of one or more adjoining blocks on a piece, with memory of their own or without. */
typedef struct wi_run {
    char *start;
    uint64_t bytes;
    bool saved; /* their contents are to come back; else zeros */
} wi_run;

/* What leaves and comes back in one step; it was one chunk. */
typedef struct wi_piece {
    wi_region *region;
    uint64_t first, count; /* granules */
    wi_chunk *chunk;       /* from choose to leave */
    bool taken;            /* the chunk is unmapped */
    bool passed;           /* its memory left before `leave`, and is free for every client */
    bool coming;           /* from recover to arrive: it is to come back, */
    bool arrived;          /* memory is there, and the caller was told */
    bool shown;            /* its copy is mapped there */
    bool adrift;           /* a resume failed there, and the driver does not say that what it queued is done */
    bool whole;            /* the whole piece comes back from its copy, which was shown; nothing as zeros */
    bool unwritten;        /* the kept bytes on the piece are all of the classes `unwritten` */
    size_t run, run_count; /* in wi_away.runs */
    uint64_t last;         /* owner of the bytes of memory that came since it is away; space/block.h */
    char *low, *high;      /* around the runs */
    uint64_t stamp;        /* of the blocks whose contents are kept: equal stamps, equal blocks */
    wi_copy *copy;         /* the caller's: where its contents are */
} wi_piece;

typedef struct wi_away {
    wi_account *account;
    uint32_t stay, drop, unwritten; /* classes, as in weir_suspend_options */
    bool show;                      /* copies cover whole pieces, and can be shown */
    bool graphs;                    /* blocks of capture pools leave */
    /* What is to come back next: at most so many bytes, or one piece; of one of these classes (0: any), or of the block
     * with this address (NULL: any). */
    uint64_t most;
    uint32_t classes;
    const void *pointer;
    uint64_t coming;  /* bytes of the pieces that are to come back */
    wi_piece *pieces; /* by address */
    size_t piece_count, piece_room;
    wi_run *runs;
    size_t run_count, run_room;
    wi_block **blocks; /* those that are acquired */
    size_t block_count, block_room;
    uint64_t bytes;             /* away */
    atomic_uint_fast64_t shown; /* of them; written with the lock held */
    uint64_t released;          /* physical memory that the last suspend gave up */
    /* Told for each piece as soon as it has memory again, with no lock held, so that its contents are on their way
     * while the next one is mapped. */
    weir_status (*arrived)(struct wi_away *away, wi_piece *piece, void *user);
    /* For shown copies; called with no lock held, too. `hide` takes a copy from its place, and `show_again` puts the
     * copy back. Both write `shown`. `hide` also waits for the work that a resume has queued on an adrift piece, and
     * writes `adrift`. */
    weir_status (*hide)(struct wi_away *away, wi_piece *piece, void *user);
    void (*show_again)(struct wi_away *away, wi_piece *piece, void *user);
    /* Asks a client that leaves in exchange to give memory; NULL: there is no such client. Called before memory is sought
     * for `bytes` bytes, for so much more than before; when the search has failed (0), for a piece; at the end
     * (UINT64_MAX), for all pieces that are left. *gave: bytes of the given memory. With no lock held. */
    weir_status (*make_room)(struct wi_away *away, uint64_t bytes, uint64_t *gave, void *user);
    void *user;
    weir_stream stream;      /* behind which the contents come back */
    weir_residency *receipt; /* choose writes `stay` and `stays` */
    struct wi_away *next;    /* of the base */
} wi_away;

/* Addresses for a block that begins away: pieces of one region that adjoin, busy and without memory. */
typedef struct wi_claim {
    wi_piece *pieces;
    size_t count;
} wi_claim;

typedef struct wi_away_table {
    /* Finds the chunks that can leave, and acquires the blocks on them. WEIR_ERR_BUSY: a launch uses one of the blocks;
     * WEIR_ERR_SYSTEM: no host memory. Nothing has changed then. */
    weir_status (*choose)(wi_base *base, wi_away *away);
    /* The stamp that a piece with these addresses would have now. */
    uint64_t (*stamp)(wi_base *base, const wi_away *away, const char *low, const char *high);
    /* Takes the memory of a piece, which the caller keeps until leave or undo. */
    weir_status (*take)(wi_base *base, wi_piece *piece);
    /* Takes the memory of a piece, and makes it free for every client at once. In the ledger its bytes are away from here
     * on, and stay promised to the account. *bytes: the memory's. Cannot be undone: the piece has to come back. */
    weir_status (*pass)(wi_base *base, wi_away *away, wi_piece *piece, uint64_t *bytes);
    /* Puts back what was taken. False: the driver did not do it for some pieces, which are away from here on. */
    bool (*undo)(wi_base *base, wi_away *away);
    /* Makes the memory that was taken free for every client. The rest stays. */
    void (*leave)(wi_base *base, wi_away *away);
    /* Ends shown and adrift pieces without blocks, and has their copies taken away. After a failure, some pieces are
     * left. */
    weir_status (*sweep)(wi_base *base, wi_away *away);
    /* Removes the record from the base, with the pieces that are left. No byte is away any more. */
    void (*forget)(wi_base *base, wi_away *away);
    /* Acquires the blocks again, and finds out what is still there to come back. */
    weir_status (*recover)(wi_base *base, wi_away *away);
    /* What was coming is back. What follows on other streams comes behind *event (NULL: the contents are there). WEIR_ERR_SYSTEM: no
     * host memory for that; nothing has changed. */
    weir_status (*arrive)(wi_base *base, wi_away *away, const wi_event *event);
    /* Takes away again what has come; unless it is `idle`, as copies may be under way, it stays there for the next
     * resume. */
    void (*recall)(wi_base *base, wi_away *away, bool idle);
    /* A block that is away was freed: its addresses go, and with the last one of a piece the piece, unless it is shown
     * or adrift. The lock is held. */
    void (*free)(wi_base *base, wi_block *block);
    /* From recover to arrive, for a piece that has memory and contents: the device's work may not write to its chunks from
     * here on, where they hold nothing but the account's blocks. Chunks that the driver does not protect stay open. */
    void (*seal)(wi_base *base, const wi_away *away, const wi_piece *piece);
    /* Opens the chunks under these bytes for writes, which the next choose knows of. The lock is held. */
    weir_status (*unseal)(wi_base *base, const void *address, uint64_t bytes);
    /* Finds addresses for the placement, whole granules. WEIR_ERR_OUT_OF_MEMORY: none; WEIR_ERR_SYSTEM: no host memory. */
    weir_status (*claim)(wi_base *base, const wi_placement *placement, wi_claim *out);
    /* Gives them back. */
    void (*unclaim)(wi_base *base, const wi_claim *claim);
    /* Makes the account's block there, live and away, with its copies shown: the caller has written `copy` and `shown`.
     * Nothing is claimed from the budget. WEIR_ERR_SYSTEM: no host memory; nothing has changed. */
    weir_status (*begin)(wi_base *base, wi_away *away, const wi_claim *claim, wi_placement *placement, weir_block *out);
} wi_away_table;

/* Before anything is written to the bytes, or they are freed; the lock is not held. What fails is the driver's, and nothing
 * may be written then. */
static inline weir_status wi_away_open_for_write(wi_base *base, const void *address, uint64_t bytes)
{
    if (wi_likely(atomic_load_explicit(&base->sealed, memory_order_relaxed) == 0))
        return WEIR_OK;
    wi_base_lock(base);
    weir_status status = base->table->away->unseal(base, address, bytes);
    wi_base_unlock(base);
    return status;
}

/* Makes room for one more entry of a list. WEIR_ERR_SYSTEM: no host memory. */
weir_status wi_away_room(void **list, size_t count, size_t *room, size_t size);
/* Frees the list of pieces. */
void wi_away_claim_end(wi_claim *claim);
/* Frees what the record holds; the record itself is the caller's. */
void wi_away_clear(wi_away *away);

/* Of "mapped": the base's `allocate` for a placement with `away`. */
weir_status wi_away_allocate(wi_base *base, wi_placement *placement, wi_shortage *shortage);
extern const wi_away_table wi_mapped_away;

#endif
