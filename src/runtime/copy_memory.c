/* Copy memory: slabs, what is cut from them, and the gaps in between. */
#include "runtime/copies.h"
#include "runtime/prepare.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

atomic_uint_fast64_t wi_slab_most = 256 * WI_MIB;

/* Without host memory for the record, slabs are only shorter. */
void wi_copy_memory_expect(wi_copy_memory *memory, uint64_t bytes)
{
    if (memory->expected_count == memory->expected_room) {
        size_t room = memory->expected_room ? 2 * memory->expected_room : 64;
        uint64_t *more = realloc(memory->expected, room * sizeof *more);
        if (!more)
            return;
        memory->expected = more;
        memory->expected_room = room;
    }
    memory->expected[memory->expected_count++] = wi_round_up(bytes, WI_UNIT);
}

void wi_copy_memory_expect_none(wi_copy_memory *memory)
{
    free(memory->expected);
    memory->expected = NULL;
    memory->expected_first = memory->expected_count = memory->expected_room = 0;
}

/* Where the list has the cut that is being made; its end: nobody has expected it. */
static size_t slab_expected_at(const wi_copy_memory *memory, uint64_t bytes)
{
    size_t at = memory->expected_first;
    while (at < memory->expected_count && memory->expected[at] != bytes)
        at++;
    return at;
}

/* The cut has come. */
static void slab_came(wi_copy_memory *memory, uint64_t bytes)
{
    size_t at = slab_expected_at(memory, bytes), *first = &memory->expected_first;
    if (at < memory->expected_count)
        memory->expected[at] = 0;
    while (*first < memory->expected_count && memory->expected[*first] == 0)
        ++*first;
}

/* Long enough for this cut and for those behind it, in whole cuts. */
static uint64_t slab_length(const wi_copy_memory *memory, uint64_t bytes)
{
    uint64_t length = bytes, most = atomic_load(&wi_slab_most);
    for (size_t i = slab_expected_at(memory, bytes) + 1; i < memory->expected_count; i++) {
        if (length + memory->expected[i] > most)
            break;
        length += memory->expected[i];
    }
    return length;
}

weir_status wi_slab_make(weir_client *client, uint64_t bytes, uint32_t flags, wi_slab **out)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .kind = WEIR_KIND_PINNED,
                            .stream = WEIR_STREAM_HOST,
                            .flags = flags,
                            .tag = "copies of what is away"};
    wi_slab *slab = calloc(1, sizeof *slab);
    wi_gap *gaps = slab ? malloc(4 * sizeof *gaps) : NULL;
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
    slab->gaps[0] = (wi_gap){0, slab->bytes};
    *out = slab;
    return WEIR_OK;
}

void wi_slab_end(weir_client *client, wi_slab *slab)
{
    wi_free_aside(client, slab->block, slab->bytes);
    free(slab->gaps);
    free(slab);
}

static void slab_link(wi_copy_memory *memory, wi_slab *slab)
{
    slab->next = memory->slabs;
    memory->slabs = slab;
    memory->held += slab->bytes;
}

static void slab_unlink(wi_copy_memory *memory, const wi_slab *slab)
{
    wi_slab **link = &memory->slabs;
    while (*link != slab)
        link = &(*link)->next;
    *link = slab->next;
    memory->held -= slab->bytes;
}

/* A prepared slab, or a new slab. Memory that is being freed aside is the first that a short ledger lacks. */
static weir_status slab_get(wi_copy_memory *memory, weir_client *client, uint64_t bytes, wi_slab **out)
{
    weir_status status = WEIR_OK;
    *out = wi_makers_take(client, bytes);
    if (!*out)
        status = wi_slab_make(client, slab_length(memory, bytes), 0, out);
    if (status == WEIR_ERR_OUT_OF_MEMORY && wi_free_aside_wait(client))
        status = wi_slab_make(client, slab_length(memory, bytes), 0, out);
    if (status == WEIR_OK)
        slab_link(memory, *out);
    return status;
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
        weir_status status = slab_get(memory, client, bytes, &slab);
        if (status != WEIR_OK)
            return status;
    }
    size_t i = slab_find(slab, bytes);
    wi_gap *g = &slab->gaps[i];
    *out = (char *)slab->block.pointer + g->offset;
    g->offset += bytes;
    g->bytes -= bytes;
    if (g->bytes == 0)
        memmove(g, g + 1, (--slab->count - i) * sizeof *g);
    slab->cut += bytes;
    slab_came(memory, bytes);
    return WEIR_OK;
}

/* Adds a gap, joined with adjacent gaps. Without host memory for its record, the gap stays unused until the slab is
 * freed. */
static void slab_open(wi_slab *slab, wi_gap new)
{
    size_t i = 0;
    while (i < slab->count && slab->gaps[i].offset < new.offset)
        i++;
    wi_gap *behind = i < slab->count ? &slab->gaps[i] : NULL, *before = i > 0 ? &slab->gaps[i - 1] : NULL;
    bool joins = behind && new.offset + new.bytes == behind->offset;
    if (before && before->offset + before->bytes == new.offset) {
        before->bytes += new.bytes + (joins ? behind->bytes : 0);
        if (joins)
            memmove(behind, behind + 1, (--slab->count - i) * sizeof *behind);
    } else if (joins) {
        *behind = (wi_gap){new.offset, new.bytes + behind->bytes};
    } else {
        if (slab->count == slab->room) {
            size_t room = 2 * slab->room + 1;
            wi_gap *more = realloc(slab->gaps, room * sizeof *more);
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
    if (slab->cut == 0) {
        slab_unlink(memory, slab);
        wi_slab_end(client, slab);
    } else {
        slab_open(slab, (wi_gap){(uint64_t)((char *)cut - (char *)slab->block.pointer), bytes});
    }
}
