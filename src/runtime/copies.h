/* Copies: where the contents of a client's away memory are: in page-locked memory of the host, in a nameless file, or in
 * chunks of the host's memory that are shown at the addresses of what is away. With them stands copy memory, out of which page-locked
 * copies are cut.
 *
 * A copy is of a range of addresses, which was one piece (memory/away.h). Its stamp names the blocks that were copied;
 * the copy is trusted only for the same blocks. Copies stay when the client is resumed, until somebody needs the host's
 * memory.
 *
 * Invariant: copies are in the order of their addresses, and no two have one in common, so that no older contents of
 * some bytes are beside newer ones. One thread at a time, which has the client's residence. */
#ifndef WI_COPIES_H
#define WI_COPIES_H

#include <weir/memory.h>

#include "base/internal.h"
#include "memory/away.h"
#include "memory/stack.h"

/* ---- copy_memory.c ----------------------------------------------------------------------------------------------- */

/* Copy memory: page-locked memory for one client's copies, cut from a few long blocks of the host's. Several threads touch
 * a long block and the driver takes it in one step: that is several times as fast as a block for each copy.
 *
 * Invariants: gaps of a slab are in order, none touches another, and with what is cut they are all of it; a slab of which
 * nothing is cut is freed. One thread at a time, which has the client's residence. */

typedef struct wi_gap {
    uint64_t offset, bytes;
} wi_gap;

typedef struct wi_slab {
    struct wi_slab *next;
    weir_block block;
    uint64_t bytes, cut;
    uint64_t order; /* prepare.c: slabs are used in the order in which they were planned */
    wi_gap *gaps;   /* in order of offsets; space for `room` */
    size_t count, room;
} wi_slab;

typedef struct wi_copy_memory {
    wi_slab *slabs;
    uint64_t *expected; /* bytes of each cut that is still to come, in their order; 0: it has come */
    size_t expected_first, expected_count, expected_room;
    uint64_t held; /* of all slabs */
} wi_copy_memory;

/* A slab is at most this long, unless one copy is longer: on an H200's machine 256 MiB are touched by several threads and
 * registered in 25 ms, and what a client frees while it is away comes back in parts of that. Tests change it. */
extern atomic_uint_fast64_t wi_slab_most;

/* So many bytes will be asked for soon, in one piece: slabs are made as long as what is expected next, in whole pieces,
 * within bounds. */
void wi_copy_memory_expect(wi_copy_memory *memory, uint64_t bytes);
/* Nothing is expected. */
void wi_copy_memory_expect_none(wi_copy_memory *memory);
/* Cuts `bytes` bytes. What fails is weir_alloc_with; nothing has changed then. */
weir_status wi_copy_memory_cut(wi_copy_memory *memory, weir_client *client, uint64_t bytes, void **out);
/* Gives back what was cut. */
void wi_copy_memory_return(wi_copy_memory *memory, weir_client *client, void *cut, uint64_t bytes);

/* A slab of its own: one gap. `flags` as in weir_request. And its end: the memory is freed aside (prepare.h). */
weir_status wi_slab_make(weir_client *client, uint64_t bytes, uint32_t flags, wi_slab **out);
void wi_slab_end(weir_client *client, wi_slab *slab);

/* ---- copies.c ---------------------------------------------------------------------------------------------------- */

struct wi_copy {
    char *low, *high;      /* of the device */
    uint64_t stamp;        /* names the blocks that were copied; wi_away_table.stamp */
    bool good;             /* it was written to its end, and later suspends may trust it */
    bool fresh;            /* it was made, or made again, since wi_copies_open */
    bool whole;            /* wi_copies_narrow: all of it is away */
    weir_block memory;     /* cut from copy memory, or a chunk's window; pointer NULL: it is in the file, */
    uint64_t offset;       /* from here on, */
    uint64_t sum;          /* with this checksum */
    wi_host_chunk *chunk;  /* `memory` is its window; NULL: it is no chunk. Then it is a copy of these addresses: */
    char *home, *home_end; /* whole granules around low and high */
};

typedef struct wi_copies {
    weir_client *client;
    wi_copy **of;
    size_t count, room;
    uint64_t elsewhere;    /* bytes of copies in files and chunks */
    wi_copy_memory memory; /* of the others */
    int file;              /* -1: none */
    bool to_file;          /* new copies go there */
    bool shown;            /* new copies of pieces are chunks */
    uint64_t file_end;
    void *stage; /* what goes to and from the file passes here */
    weir_block stage_block;
} wi_copies;

void wi_copies_begin(wi_copies *copies, weir_client *client);
/* Bytes that copies take of the host's memory and of files. */
uint64_t wi_copies_stored(const wi_copies *copies);
/* How many copies are chunks, and their bytes. */
uint64_t wi_copies_chunks(const wi_copies *copies, uint64_t *bytes);
/* Frees all. */
void wi_copies_end(wi_copies *copies);
/* Frees copies that are not good, and with `fresh` all copies made since wi_copies_open. With the last copy, the file
 * goes too, so that another place can be chosen. */
void wi_copies_sweep(wi_copies *copies, bool fresh);

/* Chooses where new copies go: a file in `folder`, or the file that is open already; NULL: the host's memory, and on a
 * host's runtime a file in the folder for temporary files. `shown`: what is copied of pieces goes to chunks. */
weir_status wi_copies_open(wi_copies *copies, const char *folder, bool shown);
/* The copy of all that is kept of the piece, of the same blocks as now; NULL: there is none. */
wi_copy *wi_copies_find(const wi_copies *copies, const wi_away *away, const wi_piece *piece);
/* Marks every copy of a part of the piece as not good, as the kept contents of the piece will be copied again. True: a
 * copy was good. */
bool wi_copies_spoil(wi_copies *copies, const wi_piece *piece);
/* The client is suspended, or is to be resumed: what is not away may be written from here on, or was written already, so that
 * only copies of which all is away stay good. */
void wi_copies_narrow(wi_copies *copies, const wi_away *away);
/* A new copy of the piece will be made soon. */
void wi_copies_expect(wi_copies *copies, const wi_piece *piece);
/* Room for a new copy of the piece, which gets it. Old ones of the same addresses go. */
weir_status wi_copies_make(wi_copies *copies, wi_piece *piece);
/* Frees a copy that no piece has. */
void wi_copies_give_up(wi_copies *copies, const wi_copy *copy);

/* Copies all between the first kept byte of the piece and the last one out, and what is kept of the piece in. On the driver's `stream`;
 * from and to a file the contents are there at return. WEIR_ERR_CORRUPT: the file does not hold what was written. */
weir_status wi_copies_save(wi_copies *copies, const wi_piece *piece, void *stream);
weir_status wi_copies_load(wi_copies *copies, const wi_away *away, const wi_piece *piece, void *stream);
/* The same for `count` neighbours in away->pieces, many in each call of the driver's; pieces without a copy are passed over. To copy
 * memory only what is kept goes, with what lies in small gaps. */
weir_status wi_copies_save_all(wi_copies *copies, const wi_away *away, size_t first, size_t count, void *stream);
weir_status wi_copies_load_all(wi_copies *copies, const wi_away *away, size_t first, size_t count, void *stream);
/* Whether the device holds the same now. Waits. */
weir_status wi_copies_compare(wi_copies *copies, const wi_away *away, const wi_piece *piece, bool *same);

/* Copies that are chunks. Queues zeros where the piece has bytes that are not kept. */
weir_status wi_copies_clear(const wi_copies *copies, const wi_away *away, const wi_piece *piece, void *stream);
/* Copies that cannot be shown, as they are no chunks, or as the pieces that have them are not the whole of their homes,
 * are good no more. The pieces are in order. */
void wi_copies_fit(const wi_away *away);
/* Maps the chunk at its home, which has no memory; takes it from there. On failure it may be nowhere. */
weir_status wi_copies_show(const wi_copy *copy);
weir_status wi_copies_hide(const wi_copy *copy);

#endif
