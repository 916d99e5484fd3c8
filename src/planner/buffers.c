#include "planner/buffers.h"
#include <weir/plan.h>
#include "base/internal.h"

#include <stdio.h>

enum { NAME_MAX_BYTES = 1023 };

bool wi_room_for(void **array, size_t each, size_t *room, size_t needed)
{
    if (needed <= *room)
        return true;
    size_t more = *room < 16 ? 16 : *room * 2, bytes;
    if (more < needed)
        more = needed;
    if (__builtin_mul_overflow(more, each, &bytes))
        return false;
    void *grown = realloc(*array, bytes);
    if (!grown)
        return false;
    *array = grown;
    *room = more;
    return true;
}

static int planner_buffers_by_number(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

size_t wi_numbers_sort(uint64_t *numbers, size_t count)
{
    size_t left = 0;
    qsort(numbers, count, sizeof *numbers, planner_buffers_by_number);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || numbers[i] != numbers[i - 1])
            numbers[left++] = numbers[i];
    return left;
}

size_t wi_numbers_find(const uint64_t *numbers, size_t count, uint64_t least)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (numbers[middle] < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static weir_status planner_buffers_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "a list of buffers to plan: no host memory");
}

const char *wi_buffer_name(const weir_buffers *buffers, uint32_t index)
{
    return buffers->names + buffers->items[index].name;
}

weir_status weir_buffers_create(weir_buffers **out)
{
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_buffers_create: NULL");
    *out = calloc(1, sizeof **out);
    return *out ? WEIR_OK : planner_buffers_no_memory();
}

void weir_buffers_destroy(weir_buffers *buffers)
{
    if (!buffers)
        return;
    free(buffers->items);
    free(buffers->gaps);
    free(buffers->conflicts);
    free(buffers->names);
    free(buffers->schedule);
    free(buffers);
}

static void *planner_buffers_copy_of(const void *from, size_t count, size_t each, bool *good)
{
    void *copy = count ? malloc(count * each) : NULL;
    if (copy)
        memcpy(copy, from, count * each);
    *good &= copy || count == 0;
    return copy;
}

weir_buffers *wi_buffers_copy(const weir_buffers *buffers)
{
    weir_buffers *copy = calloc(1, sizeof *copy);
    if (!copy)
        return NULL;
    bool good = true;
    *copy = *buffers;
    copy->items = planner_buffers_copy_of(buffers->items, copy->items_room = copy->count, sizeof *copy->items, &good);
    copy->gaps = planner_buffers_copy_of(buffers->gaps, copy->gaps_room = copy->gap_count, sizeof *copy->gaps, &good);
    copy->conflicts = planner_buffers_copy_of(buffers->conflicts, copy->conflicts_room = copy->conflict_count,
                                              sizeof *copy->conflicts, &good);
    copy->names = planner_buffers_copy_of(buffers->names, copy->names_room = copy->names_length, 1, &good);
    copy->schedule = planner_buffers_copy_of(buffers->schedule, copy->schedule_steps, sizeof *copy->schedule, &good);
    if (good)
        return copy;
    weir_buffers_destroy(copy);
    return NULL;
}

/* Adding ----------------------------------------------------------------------------------------------------------- */

static weir_status planner_buffers_bad(const char *name, const char *what)
{
    return weir_fail(WEIR_ERR_INVALID, "buffer %.200s: %s", name, what);
}

static weir_status check_pin(const char *name, uint64_t bytes, uint64_t alignment, uint64_t offset)
{
    uint64_t end;
    if (alignment && offset % alignment != 0)
        return weir_fail(WEIR_ERR_INVALID, "buffer %.200s: its fixed offset %llu is no multiple of its alignment %llu",
                         name, (unsigned long long)offset, (unsigned long long)alignment);
    if (__builtin_add_overflow(offset, bytes, &end))
        return planner_buffers_bad(name, "its fixed offset and its size add up to more than 64 bits");
    return WEIR_OK;
}

/* Whether the storage has a gap in one of the steps. */
static bool in_gap(const weir_buffers *buffers, uint32_t root, uint64_t begin, uint64_t end)
{
    const wi_gap *gap;
    for (uint32_t i = buffers->items[root].gap; i != WI_NO_GAP; i = gap->before) {
        gap = &buffers->gaps[i];
        if (gap->end <= begin)
            return false;
        if (gap->begin < end)
            return true;
    }
    return false;
}

static weir_status check_view(const weir_buffers *buffers, const weir_buffer *b, const char *name)
{
    const wi_buffer *of = &buffers->items[b->of];
    uint64_t end;
    if (b->fixed)
        return planner_buffers_bad(name, "a view lies where its buffer does and cannot be fixed itself");
    if (__builtin_add_overflow(b->view_offset, b->bytes, &end) || end > of->bytes)
        return weir_fail(WEIR_ERR_INVALID, "buffer %.200s: bytes %llu + %llu are not all inside %.200s, which has %llu",
                         name, (unsigned long long)b->view_offset, (unsigned long long)b->bytes,
                         wi_buffer_name(buffers, b->of), (unsigned long long)of->bytes);
    if (in_gap(buffers, of->root, b->persistent ? 0 : b->begin, b->persistent ? WEIR_STEPS_MAX : b->end))
        return weir_fail(WEIR_ERR_INVALID, "buffer %.200s: it is live in a gap of %.200s, whose bytes it has", name,
                         wi_buffer_name(buffers, of->root));
    return WEIR_OK;
}

static weir_status check_buffer(const weir_buffers *buffers, const weir_buffer *b, const char *name)
{
    if (strnlen(name, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES)
        return planner_buffers_bad(name, "its name is longer than 1023 bytes");
    if (b->begin >= b->end || b->end > WEIR_STEPS_MAX)
        return weir_fail(WEIR_ERR_INVALID,
                         "buffer %.200s: it is live from step %llu until before step %llu; the second has to be the "
                         "larger, and at most 2^62",
                         name, (unsigned long long)b->begin, (unsigned long long)b->end);
    if (b->alignment != 0 && !wi_power_of_two(b->alignment))
        return weir_fail(WEIR_ERR_INVALID, "buffer %.200s: its alignment %llu is no power of two", name,
                         (unsigned long long)b->alignment);
    if ((unsigned)b->kind >= WEIR_KIND_COUNT || (unsigned)b->sharing > WEIR_SHARING_IN_PLACE)
        return planner_buffers_bad(name, "its kind of memory or of sharing is none");
    if (b->sharing != WEIR_SHARING_NONE) {
        if (b->of >= buffers->count)
            return planner_buffers_bad(name, "the buffer that it shares with has to be added before it");
        if (buffers->items[b->of].kind != b->kind)
            return planner_buffers_bad(name, "it shares with a buffer in another kind of memory");
    }
    if (b->sharing == WEIR_SHARING_VIEW)
        return check_view(buffers, b, name);
    return b->fixed ? check_pin(name, b->bytes, b->alignment, b->offset) : WEIR_OK;
}

static void extend(weir_buffers *buffers, uint64_t end)
{
    if (buffers->last_end < end)
        buffers->last_end = end;
}

static void planner_buffers_append(weir_buffers *buffers, const weir_buffer *b, const char *name)
{
    uint32_t index = (uint32_t)buffers->count++;
    wi_buffer *item = &buffers->items[index];
    *item = (wi_buffer){.bytes = b->bytes,
                        .begin = b->begin,
                        .end = b->end,
                        .alignment = b->alignment,
                        .kind = (uint8_t)b->kind,
                        .persistent = b->persistent,
                        .fixed = b->fixed,
                        .offset = b->fixed ? b->offset : 0,
                        .sharing = (uint8_t)b->sharing,
                        .of = b->sharing == WEIR_SHARING_NONE ? WEIR_NO_BUFFER : b->of,
                        .root = index,
                        .name = (uint32_t)buffers->names_length,
                        .view = WEIR_NO_BUFFER,
                        .gap = WI_NO_GAP};
    if (b->sharing == WEIR_SHARING_VIEW) {
        const wi_buffer *of = &buffers->items[b->of];
        item->view_offset = b->view_offset;
        item->root = of->root;
        item->view = buffers->items[of->root].view;
        buffers->items[of->root].view = index;
        item->from = of->from + b->view_offset;
    }
    size_t length = strlen(name) + 1;
    memcpy(buffers->names + buffers->names_length, name, length);
    buffers->names_length += length;
    extend(buffers, b->end);
}

weir_status weir_buffers_add(weir_buffers *buffers, const weir_buffer *buffer, uint32_t *index)
{
    weir_buffer b;
    char number[16];
    if (!buffers)
        return weir_fail(WEIR_ERR_INVALID, "weir_buffers_add: no list");
    weir_status status = WI_COPY_IN(weir_buffer, &b, buffer, "weir_buffers_add");
    if (status != WEIR_OK)
        return status;
    if (buffers->count >= WEIR_BUFFERS_MAX || buffers->names_length > UINT32_MAX - NAME_MAX_BYTES - 1)
        return weir_fail(WEIR_ERR_INVALID, "a list of %zu buffers is full", buffers->count);
    snprintf(number, sizeof number, "b%zu", buffers->count);
    const char *name = b.name ? b.name : number;
    status = check_buffer(buffers, &b, name);
    if (status != WEIR_OK)
        return status;
    if (!wi_room_for((void **)&buffers->items, sizeof *buffers->items, &buffers->items_room, buffers->count + 1) ||
        !wi_room_for((void **)&buffers->names, 1, &buffers->names_room, buffers->names_length + strlen(name) + 1))
        return planner_buffers_no_memory();
    if (index)
        *index = (uint32_t)buffers->count;
    planner_buffers_append(buffers, &b, name);
    return WEIR_OK;
}

/* Changing --------------------------------------------------------------------------------------------------------- */

static weir_status check_index(const weir_buffers *buffers, uint32_t index, const char *call)
{
    if (!buffers)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    if (index >= buffers->count)
        return weir_fail(WEIR_ERR_INVALID, "%s: there is no buffer %u; the list has %zu", call, index, buffers->count);
    return WEIR_OK;
}

/* The view of the storage that is live in one of the steps; WEIR_NO_BUFFER: none is. */
static uint32_t view_in(const weir_buffers *buffers, uint32_t root, uint64_t begin, uint64_t end)
{
    uint32_t i = buffers->items[root].view;
    for (; i != WEIR_NO_BUFFER; i = buffers->items[i].view) {
        const wi_buffer *b = &buffers->items[i];
        if (b->persistent || (b->begin < end && begin < b->end))
            break;
    }
    return i;
}

weir_status weir_buffers_gap(weir_buffers *buffers, uint32_t index, uint64_t begin, uint64_t end)
{
    weir_status status = check_index(buffers, index, "weir_buffers_gap");
    if (status != WEIR_OK)
        return status;
    wi_buffer *item = &buffers->items[index];
    if (item->sharing == WEIR_SHARING_VIEW || item->persistent)
        return planner_buffers_bad(wi_buffer_name(buffers, index),
                                   "a view, and what is live in all steps, has no gaps");
    if (begin >= end || begin <= item->begin || end >= item->end)
        return weir_fail(WEIR_ERR_INVALID,
                         "buffer %.200s: the gap from step %llu until before %llu is not inside its lifetime",
                         wi_buffer_name(buffers, index), (unsigned long long)begin, (unsigned long long)end);
    if (item->gap != WI_NO_GAP && begin <= buffers->gaps[item->gap].end)
        return planner_buffers_bad(wi_buffer_name(buffers, index),
                                   "its gaps have to be told in their order, with steps between them");
    uint32_t view = view_in(buffers, index, begin, end);
    if (view != WEIR_NO_BUFFER)
        return weir_fail(WEIR_ERR_INVALID, "buffer %.200s: its view %.200s is live in the gap from step %llu on",
                         wi_buffer_name(buffers, index), wi_buffer_name(buffers, view), (unsigned long long)begin);
    if (!wi_room_for((void **)&buffers->gaps, sizeof *buffers->gaps, &buffers->gaps_room, buffers->gap_count + 1))
        return planner_buffers_no_memory();
    if (buffers->gap_count >= WI_NO_GAP)
        return planner_buffers_bad(wi_buffer_name(buffers, index), "the list has as many gaps as it can have");
    buffers->gaps[buffers->gap_count] = (wi_gap){begin, end, index, item->gap};
    item->gap = (uint32_t)buffers->gap_count++;
    return WEIR_OK;
}

weir_status weir_buffers_conflict(weir_buffers *buffers, uint32_t one, uint32_t other)
{
    weir_status status = check_index(buffers, one, "weir_buffers_conflict");
    if (status == WEIR_OK)
        status = check_index(buffers, other, "weir_buffers_conflict");
    if (status != WEIR_OK)
        return status;
    wi_pair pair = {buffers->items[one].root, buffers->items[other].root};
    if (pair.one == pair.other)
        return weir_fail(WEIR_ERR_INVALID, "weir_buffers_conflict: %.200s and %.200s are the same storage",
                         wi_buffer_name(buffers, one), wi_buffer_name(buffers, other));
    if (!wi_room_for((void **)&buffers->conflicts, sizeof *buffers->conflicts, &buffers->conflicts_room,
                     buffers->conflict_count + 1))
        return planner_buffers_no_memory();
    buffers->conflicts[buffers->conflict_count++] = pair;
    return WEIR_OK;
}

weir_status weir_buffers_pin(weir_buffers *buffers, uint32_t index, uint64_t offset)
{
    weir_status status = check_index(buffers, index, "weir_buffers_pin");
    if (status != WEIR_OK)
        return status;
    wi_buffer *item = &buffers->items[index];
    bool fixed = offset != UINT64_MAX;
    if (item->sharing == WEIR_SHARING_VIEW)
        return planner_buffers_bad(wi_buffer_name(buffers, index),
                                   "a view lies where its buffer does and cannot be fixed itself");
    if (fixed) {
        status = check_pin(wi_buffer_name(buffers, index), item->bytes, item->alignment, offset);
        if (status != WEIR_OK)
            return status;
    }
    item->fixed = fixed;
    item->offset = fixed ? offset : 0;
    return WEIR_OK;
}

weir_status wi_buffers_use(weir_buffers *buffers, uint32_t index, uint64_t step)
{
    weir_status status = check_index(buffers, index, "wi_buffers_use");
    if (status != WEIR_OK)
        return status;
    wi_buffer *item = &buffers->items[index];
    if (step >= WEIR_STEPS_MAX)
        return planner_buffers_bad(wi_buffer_name(buffers, index), "it is used at or beyond step 2^62");
    uint64_t begin = wi_min(item->begin, step), end = wi_max(item->end, step + 1);
    bool view = item->sharing == WEIR_SHARING_VIEW;
    if (in_gap(buffers, item->root, view ? begin : step, view ? end : step + 1))
        return weir_fail(WEIR_ERR_INVALID, "buffer %.200s: with a use in step %llu it is live in a gap of %.200s",
                         wi_buffer_name(buffers, index), (unsigned long long)step, wi_buffer_name(buffers, item->root));
    item->begin = begin;
    item->end = end;
    extend(buffers, item->end);
    return WEIR_OK;
}

weir_status weir_buffers_schedule(weir_buffers *buffers, const uint32_t *order, size_t steps)
{
    if (!buffers || (!order && steps > 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_buffers_schedule: NULL");
    if (order && steps < buffers->last_end)
        return weir_fail(WEIR_ERR_INVALID, "a schedule of %zu steps, but a buffer is live until before step %llu",
                         steps, (unsigned long long)buffers->last_end);
    bool good = true;
    uint32_t *copy = planner_buffers_copy_of(order, order ? steps : 0, sizeof *order, &good);
    if (!good)
        return planner_buffers_no_memory();
    free(buffers->schedule);
    buffers->schedule = copy;
    buffers->schedule_steps = copy ? steps : 0;
    return WEIR_OK;
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

uint64_t wi_buffers_steps(const weir_buffers *buffers)
{
    return wi_max(buffers->last_end, buffers->schedule_steps);
}

weir_status weir_buffers_info(const weir_buffers *buffers, weir_buffers_details *out)
{
    if (!buffers || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_buffers_info: NULL");
    weir_buffers_details details = {.count = (uint32_t)buffers->count,
                                    .steps = wi_buffers_steps(buffers),
                                    .gaps = buffers->gaps,
                                    .gap_count = buffers->gap_count,
                                    .schedule = buffers->schedule,
                                    .schedule_steps = buffers->schedule_steps};
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_buffers_info: a structure without its size");
    return WEIR_OK;
}

weir_status weir_buffer_info(const weir_buffers *buffers, uint32_t index, weir_buffer *out)
{
    weir_status status = check_index(buffers, index, "weir_buffer_info");
    if (status != WEIR_OK)
        return status;
    const wi_buffer *item = &buffers->items[index];
    weir_buffer b = {.name = wi_buffer_name(buffers, index),
                     .bytes = item->bytes,
                     .begin = item->begin,
                     .end = item->end,
                     .alignment = item->alignment,
                     .kind = (weir_kind)item->kind,
                     .persistent = item->persistent,
                     .fixed = item->fixed,
                     .offset = item->offset,
                     .sharing = (weir_sharing)item->sharing,
                     .of = item->of,
                     .view_offset = item->view_offset};
    if (!out || !wi_copy_out(out, out->struct_size, &b, sizeof b))
        return weir_fail(WEIR_ERR_INVALID, "weir_buffer_info: NULL, or a structure without its size");
    return WEIR_OK;
}
