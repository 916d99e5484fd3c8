/* plan_places.c: where each buffer lies: as storages for the picture, as JSON, as rows of a table. */
#include "plan.h"

#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Whose bytes a buffer has: its own, or those that it is a view of. */
static uint32_t storage_of(const weir_buffers *buffers, uint32_t index)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    while (weir_buffers_get(buffers, index, &b) == WEIR_OK && b.sharing == WEIR_SHARING_VIEW)
        index = b.of;
    return index;
}

/* A view lengthens the life of what it looks at. */
static void lengthen(const weir_buffers *buffers, plan_storage *by_buffer)
{
    for (uint32_t i = 0; i < weir_buffers_count(buffers); i++) {
        weir_buffer b = WEIR_INIT(weir_buffer);
        uint32_t at = storage_of(buffers, i);
        if (weir_buffers_get(buffers, i, &b) != WEIR_OK)
            continue;
        plan_storage *to = &by_buffer[at];
        to->begin = at == i || b.begin < to->begin ? b.begin : to->begin;
        to->end = b.end > to->end ? b.end : to->end;
        if (b.persistent) {
            to->begin = 0;
            to->end = weir_buffers_steps(buffers);
        }
        to->views += at != i;
    }
}

plan_storage *plan_storages(const weir_plan *plan, size_t *count)
{
    const weir_buffers *buffers = weir_plan_buffers(plan);
    uint32_t all = weir_buffers_count(buffers);
    plan_storage *by_buffer = text_zeroed(all, sizeof *by_buffer);
    lengthen(buffers, by_buffer);
    *count = 0;
    for (uint32_t i = 0; i < all; i++) {
        weir_slot slot = WEIR_INIT(weir_slot);
        weir_buffer b = WEIR_INIT(weir_buffer);
        if (weir_plan_slot(plan, i, &slot) != WEIR_OK || weir_buffers_get(buffers, i, &b) != WEIR_OK ||
            slot.bytes == 0 || b.sharing == WEIR_SHARING_VIEW)
            continue;
        plan_storage *s = &by_buffer[i];
        bool written_over = b.sharing == WEIR_SHARING_IN_PLACE && slot.root != i;
        s->buffer = i;
        s->over = written_over ? storage_of(buffers, b.of) : WEIR_NO_BUFFER;
        s->offset = slot.offset;
        s->length = slot.length;
        if (written_over && by_buffer[s->over].end > s->begin)
            by_buffer[s->over].end = s->begin;
    }
    for (uint32_t i = 0; i < all; i++) /* those with bytes of their own, moved together */
        if (by_buffer[i].length > 0)
            by_buffer[(*count)++] = by_buffer[i];
    return by_buffer;
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *place_json(const plan_answer *a, uint32_t i)
{
    weir_slot slot = WEIR_INIT(weir_slot);
    weir_buffer b = WEIR_INIT(weir_buffer);
    const plan_origin *origin = a->source->origins ? &a->source->origins[i] : NULL;
    const weir_buffers *buffers = weir_plan_buffers(a->plan);
    if (weir_plan_slot(a->plan, i, &slot) != WEIR_OK || weir_buffers_get(buffers, i, &b) != WEIR_OK)
        return json_null();
    bool shares = slot.root != i;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", text_json(b.name), "bytes",
                     number(b.bytes), "begin", number(b.begin), "end", number(b.end), "offset", number(slot.offset),
                     "view_of", b.sharing == WEIR_SHARING_VIEW ? number(b.of) : json_null(), "written_over",
                     shares && b.sharing == WEIR_SHARING_IN_PLACE ? number(b.of) : json_null(), "maker",
                     origin && origin->maker ? text_json(origin->maker) : json_null(), "looks",
                     origin && origin->looks ? text_json(origin->looks) : json_null());
}

json_t *plan_places_json(const plan_answer *a)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->summary.buffers; i++)
        json_array_append_new(list, place_json(a, i));
    return list;
}

/* Rows ------------------------------------------------------------------------------------------------------------- */

/* As a field of a table: what would end it becomes '_'. */
static void print_field(const char *text)
{
    char *clean = text_clean(text, strlen(text), false);
    for (const char *at = clean; *at != '\0'; at++)
        putchar(strchr(",\"", *at) ? '_' : *at);
    free(clean);
}

void plan_print_csv(const plan_answer *a)
{
    size_t count;
    const weir_buffers *buffers = weir_plan_buffers(a->plan);
    plan_storage *storages = plan_storages(a->plan, &count);
    puts("id,lower,upper,size,offset");
    for (size_t i = 0; i < count; i++) {
        const plan_storage *s = &storages[i];
        weir_buffer b = WEIR_INIT(weir_buffer);
        if (s->begin == s->end || weir_buffers_get(buffers, s->buffer, &b) != WEIR_OK)
            continue;
        print_field(b.name);
        printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", s->begin, s->end, s->length, s->offset);
    }
    free(storages);
}
