/* Layout: a copy of where memory lies, written by bases. */
#include "memory/space/stream_lists.h"

/* Room for one more element; NULL: no host memory. */
static void *layout_more(wi_layout *layout, void **list, size_t *count, size_t *room, size_t size)
{
    if (*count == *room) {
        size_t wanted = *room ? 2 * *room : 64;
        void *longer = layout->failed ? NULL : realloc(*list, wanted * size);
        if (!longer) {
            layout->failed = true;
            return NULL;
        }
        *list = longer;
        *room = wanted;
    }
    return (char *)*list + (*count)++ * size;
}

void wi_layout_segment(wi_layout *layout, const void *address, uint64_t bytes)
{
    weir_segment *segment =
        layout_more(layout, (void **)&layout->segments, &layout->segment_count, &layout->segment_room, sizeof *segment);
    if (segment)
        *segment = (weir_segment){.struct_size = sizeof *segment,
                                  .number = (uint32_t)layout->segment_count - 1,
                                  .address = address,
                                  .bytes = bytes};
}

static weir_span *layout_add_span(wi_layout *layout, weir_span_state state, const void *address, uint64_t bytes)
{
    weir_span *span =
        layout_more(layout, (void **)&layout->spans, &layout->span_count, &layout->span_room, sizeof *span);
    if (span && !layout->failed) {
        layout->segments[layout->segment_count - 1].spans++;
        *span = (weir_span){.struct_size = sizeof *span,
                            .state = state,
                            .address = address,
                            .bytes = bytes,
                            .client_name = "",
                            .tag = ""};
    }
    return span;
}

void wi_layout_span(wi_layout *layout, weir_span_state state, const void *address, uint64_t bytes)
{
    if (bytes > 0)
        (void)layout_add_span(layout, state, address, bytes);
}

static weir_span_state layout_state_of(const wi_block *block)
{
    switch (wi_block_phase_of(block)) {
    case WI_LIVE:
    case WI_ACQUIRED:
        return WEIR_SPAN_LIVE;
    case WI_PENDING:
        return WEIR_SPAN_PENDING;
    case WI_THREAD_CACHED:
        return WEIR_SPAN_THREAD_CACHED;
    default:
        return WEIR_SPAN_PROMISED;
    }
}

void wi_layout_block(wi_layout *layout, const wi_block *block, const void *address, uint64_t bytes)
{
    wi_block seen = wi_look_at(block);
    weir_span_state state = layout_state_of(&seen);
    weir_span *span = layout_add_span(layout, state, address, bytes);
    if (!span || layout->failed)
        return;
    span->block = (weir_block){seen.pointer, state == WEIR_SPAN_LIVE ? wi_block_generation(&seen) : 0};
    span->charged = seen.charged;
    span->requested = seen.bytes;
    span->client = seen.account->client;
    span->client_name = seen.account->lasting;
    span->tag = seen.tag;
    span->memory_class = seen.memory_class;
    span->stream = seen.stream;
}

/* Writes the block of a used extent, and the slack behind the block. */
static void layout_add_used(wi_layout *layout, const wi_extent *e, uint64_t from, uint64_t bytes)
{
    const char *address = e->region->base + from;
    uint64_t end = e->offset + e->block.charged, own = end > from ? wi_min(end - from, bytes) : 0;
    if (own > 0)
        wi_layout_block(layout, &e->block, address, own);
    wi_layout_span(layout, WEIR_SPAN_KEPT, address + own, bytes - own);
}

void wi_layout_extent(wi_layout *layout, const wi_extent *e, uint64_t from, uint64_t bytes)
{
    const char *address = e->region->base + from;
    if (e->kind == WI_USED) {
        layout_add_used(layout, e, from, bytes);
        return;
    }
    bool ordered = e->kind == WI_FREE && e->stream_list;
    weir_span_state state = e->kind == WI_BUSY ? WEIR_SPAN_BUSY : ordered ? WEIR_SPAN_ORDERED : WEIR_SPAN_FREE;
    wi_layout_span(layout, state, address, bytes);
    if (ordered && !layout->failed)
        layout->spans[layout->span_count - 1].stream = e->stream_list->stream;
}

void wi_layout_add(wi_layout *layout, wi_base *base)
{
    base->table->walk(base, layout);
}

void wi_layout_clear(wi_layout *layout)
{
    free(layout->segments);
    free(layout->spans);
    *layout = (wi_layout){0};
}
