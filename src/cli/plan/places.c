/* plan_places.c: where each buffer lies: as storages for the picture, as JSON, as rows of a table. */
#include "plan.h"

#include "cli/text.h"

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

/* Gaps, by their buffers. */
typedef struct gap {
    uint64_t begin, end;
    uint32_t buffer;
} gap;

static int by_buffer_and_begin(const void *a, const void *b)
{
    const gap *x = a, *y = b;
    if (x->buffer != y->buffer)
        return x->buffer < y->buffer ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static gap *read_gaps(const weir_buffers *buffers, size_t *count)
{
    gap *list = NULL, one;
    for (*count = 0; weir_buffers_get_gap(buffers, *count, &one.buffer, &one.begin, &one.end) == WEIR_OK; ++*count) {
        if ((*count & (*count - 1)) == 0) /* room for twice as many at every power of two */
            list = text_grow(list, *count ? 2 * *count : 1, sizeof *list);
        list[*count] = one;
    }
    if (*count > 1)
        qsort(list, *count, sizeof *list, by_buffer_and_begin);
    return list;
}

/* One for each time between gaps. */
static plan_storage *cut(plan_storage *whole, size_t *count, const weir_buffers *buffers)
{
    size_t gap_count, at = 0, made = 0;
    gap *gaps = read_gaps(buffers, &gap_count);
    if (gap_count == 0) {
        free(gaps);
        return whole;
    }
    plan_storage *pieces = text_zeroed(*count + gap_count, sizeof *pieces);
    for (size_t i = 0; i < *count; i++) {
        plan_storage piece = whole[i];
        while (at < gap_count && gaps[at].buffer < piece.buffer)
            at++;
        for (; at < gap_count && gaps[at].buffer == piece.buffer; at++) {
            pieces[made] = piece;
            pieces[made++].end = gaps[at].begin;
            piece.begin = gaps[at].end;
        }
        pieces[made++] = piece;
    }
    free(gaps);
    free(whole);
    *count = made;
    return pieces;
}

/* Takes what has bytes of its own from the plan. */
static void take(const weir_plan *plan, plan_storage *by_buffer, uint32_t i)
{
    const weir_buffers *buffers = weir_plan_buffers(plan);
    weir_slot slot = WEIR_INIT(weir_slot);
    weir_buffer b = WEIR_INIT(weir_buffer);
    if (weir_plan_slot(plan, i, &slot) != WEIR_OK || weir_buffers_get(buffers, i, &b) != WEIR_OK || slot.bytes == 0 ||
        b.sharing == WEIR_SHARING_VIEW)
        return;
    plan_storage *s = &by_buffer[i];
    bool written_over = b.sharing == WEIR_SHARING_IN_PLACE && slot.root != i;
    s->buffer = i;
    s->over = written_over ? storage_of(buffers, b.of) : WEIR_NO_BUFFER;
    s->offset = slot.offset;
    s->length = slot.length;
    if (written_over && by_buffer[s->over].end > s->begin)
        by_buffer[s->over].end = s->begin;
}

plan_storage *plan_storages(const weir_plan *plan, bool pieces, size_t *count)
{
    const weir_buffers *buffers = weir_plan_buffers(plan);
    uint32_t all = weir_buffers_count(buffers);
    plan_storage *by_buffer = text_zeroed(all, sizeof *by_buffer);
    lengthen(buffers, by_buffer);
    for (uint32_t i = 0; i < all; i++)
        take(plan, by_buffer, i);
    *count = 0;
    for (uint32_t i = 0; i < all; i++)
        if (by_buffer[i].length > 0)
            by_buffer[(*count)++] = by_buffer[i];
    return pieces ? cut(by_buffer, count, buffers) : by_buffer;
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

/* Behind the last comma of a row: the gaps of its buffer, as "3-7 9-11". */
static void print_gaps(const gap *gaps, size_t count, uint32_t buffer, size_t *at)
{
    while (*at < count && gaps[*at].buffer < buffer)
        ++*at;
    for (const char *before = ""; *at < count && gaps[*at].buffer == buffer; ++*at, before = " ")
        printf("%s%" PRIu64 "-%" PRIu64, before, gaps[*at].begin, gaps[*at].end);
}

void plan_print_csv(const plan_answer *a)
{
    size_t count, gap_count, at = 0;
    const weir_buffers *buffers = weir_plan_buffers(a->plan);
    plan_storage *storages = plan_storages(a->plan, false, &count);
    gap *gaps = read_gaps(buffers, &gap_count);
    puts(gap_count ? "id,lower,upper,size,offset,gaps" : "id,lower,upper,size,offset");
    for (size_t i = 0; i < count; i++) {
        const plan_storage *s = &storages[i];
        weir_buffer b = WEIR_INIT(weir_buffer);
        if (s->begin == s->end || weir_buffers_get(buffers, s->buffer, &b) != WEIR_OK)
            continue;
        print_field(b.name);
        printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, s->begin, s->end, s->length, s->offset);
        if (gap_count)
            putchar(',');
        print_gaps(gaps, gap_count, s->buffer, &at);
        putchar('\n');
    }
    free(gaps);
    free(storages);
}
