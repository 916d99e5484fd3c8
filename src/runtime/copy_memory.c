/* Copy memory: slabs, what is cut from them, and the gaps in between. */
#include "runtime/copies.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* A slab is at most this long, unless one copy is longer: on an H200's machine 256 MiB are touched by several threads and
 * registered in 25 ms, and what a client frees while it is away comes back in parts of that. */
#define MOST_SLAB (256 * WI_MIB)

typedef struct gap {
    uint64_t offset, bytes;
} gap;

struct wi_slab {
    wi_slab *next;
    weir_block block;
    uint64_t bytes, cut;
    gap *gaps; /* in order of offsets; space for `room` */
    size_t count, room;
};

void wi_copy_memory_expect(wi_copy_memory *memory, uint64_t bytes)
{
    memory->expected += wi_round_up(bytes, WI_UNIT);
}

static weir_status slab_make(wi_copy_memory *memory, weir_client *client, uint64_t bytes, wi_slab **out)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = wi_max(bytes, wi_min(memory->expected, MOST_SLAB)),
                            .kind = WEIR_KIND_PINNED,
                            .stream = WEIR_STREAM_HOST,
                            .tag = "copies of what is away"};
    wi_slab *slab = calloc(1, sizeof *slab);
    gap *gaps = slab ? malloc(4 * sizeof *gaps) : NULL;
    weir_status status = gaps ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of copies");
    if (status == WEIR_OK)
        status = weir_alloc_with(client, &request, &slab->block);
    if (status != WEIR_OK) {
        free(gaps);
        free(slab);
        return status;
    }
    slab->bytes = request.bytes;
    slab->gaps = gaps;
    slab->room = 4;
    slab->count = 1;
    slab->gaps[0] = (gap){0, slab->bytes};
    slab->next = memory->slabs;
    memory->slabs = slab;
    memory->held += slab->bytes;
    *out = slab;
    return WEIR_OK;
}

static void slab_end(wi_copy_memory *memory, weir_client *client, wi_slab *slab)
{
    wi_slab **link = &memory->slabs;
    while (*link != slab)
        link = &(*link)->next;
    *link = slab->next;
    memory->held -= slab->bytes;
    if (weir_free_block(client, slab->block, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "copies of what %s had on its device were not freed: %s", client->account.name,
                 weir_detail());
    free(slab->gaps);
    free(slab);
}

/* The lowest gap that is long enough; its number is the slab's `count` if there is none. */
static size_t slab_find(const wi_slab *slab, uint64_t bytes)
{
    size_t i = 0;
    while (i < slab->count && slab->gaps[i].bytes < bytes)
        i++;
    return i;
}

weir_status wi_copy_memory_cut(wi_copy_memory *memory, weir_client *client, uint64_t bytes, void **out)
{
    wi_slab *slab = memory->slabs;
    bytes = wi_round_up(bytes, WI_UNIT);
    while (slab && slab_find(slab, bytes) == slab->count)
        slab = slab->next;
    if (!slab) {
        weir_status status = slab_make(memory, client, bytes, &slab);
        if (status != WEIR_OK)
            return status;
    }
    size_t i = slab_find(slab, bytes);
    gap *g = &slab->gaps[i];
    *out = (char *)slab->block.pointer + g->offset;
    g->offset += bytes;
    g->bytes -= bytes;
    if (g->bytes == 0)
        memmove(g, g + 1, (--slab->count - i) * sizeof *g);
    slab->cut += bytes;
    memory->expected -= wi_min(memory->expected, bytes);
    return WEIR_OK;
}

/* Adds a gap, joined with adjacent gaps. Without host memory for its record, the gap stays unused until the slab is
 * freed. */
static void slab_open(wi_slab *slab, gap new)
{
    size_t i = 0;
    while (i < slab->count && slab->gaps[i].offset < new.offset)
        i++;
    gap *behind = i < slab->count ? &slab->gaps[i] : NULL, *before = i > 0 ? &slab->gaps[i - 1] : NULL;
    bool joins = behind && new.offset + new.bytes == behind->offset;
    if (before && before->offset + before->bytes == new.offset) {
        before->bytes += new.bytes + (joins ? behind->bytes : 0);
        if (joins)
            memmove(behind, behind + 1, (--slab->count - i) * sizeof *behind);
    } else if (joins) {
        *behind = (gap){new.offset, new.bytes + behind->bytes};
    } else {
        if (slab->count == slab->room) {
            size_t room = 2 * slab->room + 1;
            gap *more = realloc(slab->gaps, room * sizeof *more);
            if (!more)
                return;
            slab->gaps = more;
            slab->room = room;
        }
        memmove(&slab->gaps[i + 1], &slab->gaps[i], (slab->count++ - i) * sizeof *slab->gaps);
        slab->gaps[i] = new;
    }
}

void wi_copy_memory_return(wi_copy_memory *memory, weir_client *client, void *cut, uint64_t bytes)
{
    wi_slab *slab = memory->slabs;
    bytes = wi_round_up(bytes, WI_UNIT);
    while ((char *)cut < (char *)slab->block.pointer || (char *)cut >= (char *)slab->block.pointer + slab->bytes)
        slab = slab->next; /* it is there */
    wi_assert(slab->cut >= bytes);
    slab->cut -= bytes;
    if (slab->cut == 0)
        slab_end(memory, client, slab);
    else
        slab_open(slab, (gap){(uint64_t)((char *)cut - (char *)slab->block.pointer), bytes});
}
