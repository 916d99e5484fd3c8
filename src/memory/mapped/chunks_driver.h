/* What the files that work on handles share; handles.c makes and moves them, trimming.c gives them back. */
#ifndef WI_CHUNKS_DRIVER_H
#define WI_CHUNKS_DRIVER_H

#include "memory/mapped/mapped.h"

/* The driver is called between these two, with the lock released. */
void wi_chunks_go_to_driver(wi_mapped *mapped);
void wi_chunks_come_back(wi_mapped *mapped);

/* An idle handle and what lies on it become busy; records have been reserved, WI_RECORDS_PER_CHANGE for one. *before,
 * which may be NULL: a seized one that it may lie directly behind, which spares a search. */
wi_extent *wi_chunks_seize(const wi_chunk *chunk, const wi_extent *before);
/* A seized handle was unmapped: its addresses are a hole, and it is in the ledger's spare bytes. *last: whose bytes it
 * holds as well. */
void wi_chunks_vacate(wi_mapped *mapped, wi_chunk *chunk, wi_extent *busy, uint64_t *last);

static inline uint64_t wi_chunk_bytes(const wi_chunk *chunk, const wi_mapped *mapped)
{
    return chunk->count * mapped->granule;
}

static inline uint64_t wi_chunk_start(const wi_chunk *chunk)
{
    return chunk->first * chunk->region->granule;
}

static inline char *wi_chunk_address(const wi_chunk *chunk)
{
    return chunk->region->base + wi_chunk_start(chunk);
}

#endif
