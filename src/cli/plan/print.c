/* print.c: the answer of weir plan as text, as JSON and as rows of a table. */
#include "plan.h"
#include <weir/plan.h>

#include "cli/terminal.h"
#include "cli/text.h"
#include "cli/plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Places ----------------------------------------------------------------------------------------------------------- */

/* Follows views to the buffer that has the bytes. */
static uint32_t plan_print_storage_of(const weir_buffers *buffers, uint32_t index)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    while (weir_buffer_info(buffers, index, &b) == WEIR_OK && b.sharing == WEIR_SHARING_VIEW)
        index = b.of;
    return index;
}

/* A view extends the life of the buffer that it looks at. */
static void lengthen(const weir_buffers *buffers, plan_storage *by_buffer)
{
    for (uint32_t i = 0; i < plan_list_info(buffers).count; i++) {
        weir_buffer b = WEIR_INIT(weir_buffer);
        uint32_t at = plan_print_storage_of(buffers, i);
        if (weir_buffer_info(buffers, i, &b) != WEIR_OK)
            continue;
        plan_storage *to = &by_buffer[at];
        to->begin = at == i || b.begin < to->begin ? b.begin : to->begin;
        to->end = b.end > to->end ? b.end : to->end;
        if (b.persistent) {
            to->begin = 0;
            to->end = plan_list_info(buffers).steps;
        }
        to->views += at != i;
    }
}

static int by_buffer_and_begin(const void *a, const void *b)
{
    const weir_gap *x = a, *y = b;
    if (x->buffer != y->buffer)
        return x->buffer < y->buffer ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The gaps by buffer; the caller frees them. */
static weir_gap *plan_print_read_gaps(const weir_buffers *buffers, size_t *count)
{
    weir_buffers_details its = plan_list_info(buffers);
    *count = its.gap_count;
    if (*count == 0)
        return NULL;
    weir_gap *list = text_zeroed(*count, sizeof *list);
    memcpy(list, its.gaps, *count * sizeof *list);
    qsort(list, *count, sizeof *list, by_buffer_and_begin);
    return list;
}

/* Splits storages at their gaps. */
static plan_storage *plan_print_split(plan_storage *whole, size_t *count, const weir_buffers *buffers)
{
    size_t gap_count, at = 0, made = 0;
    weir_gap *gaps = plan_print_read_gaps(buffers, &gap_count);
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

/* Fills in the place of a buffer that has bytes of its own. */
static void plan_print_place(const weir_plan *plan, plan_storage *by_buffer, uint32_t i)
{
    const weir_buffers *buffers = plan_info(plan).list;
    weir_slot slot = WEIR_INIT(weir_slot);
    weir_buffer b = WEIR_INIT(weir_buffer);
    if (weir_plan_slot(plan, i, &slot) != WEIR_OK || weir_buffer_info(buffers, i, &b) != WEIR_OK || slot.bytes == 0 ||
        b.sharing == WEIR_SHARING_VIEW)
        return;
    plan_storage *s = &by_buffer[i];
    bool written_over = b.sharing == WEIR_SHARING_IN_PLACE && slot.root != i;
    s->buffer = i;
    s->over = written_over ? plan_print_storage_of(buffers, b.of) : WEIR_NO_BUFFER;
    s->offset = slot.offset;
    s->length = slot.length;
    if (written_over && by_buffer[s->over].end > s->begin)
        by_buffer[s->over].end = s->begin;
}

plan_storage *plan_storages(const weir_plan *plan, bool pieces, size_t *count)
{
    const weir_buffers *buffers = plan_info(plan).list;
    uint32_t all = plan_list_info(buffers).count;
    plan_storage *by_buffer = text_zeroed(all, sizeof *by_buffer);
    lengthen(buffers, by_buffer);
    for (uint32_t i = 0; i < all; i++)
        plan_print_place(plan, by_buffer, i);
    *count = 0;
    for (uint32_t i = 0; i < all; i++)
        if (by_buffer[i].length > 0)
            by_buffer[(*count)++] = by_buffer[i];
    return pieces ? plan_print_split(by_buffer, count, buffers) : by_buffer;
}

/* Places as JSON --------------------------------------------------------------------------------------------------- */

static json_t *plan_print_place_json(const plan_answer *a, uint32_t i)
{
    weir_slot slot = WEIR_INIT(weir_slot);
    weir_buffer b = WEIR_INIT(weir_buffer);
    const plan_origin *origin = a->source->origins ? &a->source->origins[i] : NULL;
    const weir_buffers *buffers = plan_info(a->plan).list;
    if (weir_plan_slot(a->plan, i, &slot) != WEIR_OK || weir_buffer_info(buffers, i, &b) != WEIR_OK)
        return json_null();
    bool shares = slot.root != i;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", text_json(b.name), "bytes",
                     text_json_count(b.bytes), "begin", text_json_count(b.begin), "end", text_json_count(b.end),
                     "offset", text_json_count(slot.offset), "view_of",
                     b.sharing == WEIR_SHARING_VIEW ? text_json_count(b.of) : json_null(), "written_over",
                     shares && b.sharing == WEIR_SHARING_IN_PLACE ? text_json_count(b.of) : json_null(), "maker",
                     origin && origin->maker ? text_json(origin->maker) : json_null(), "looks",
                     origin && origin->shape ? text_json(origin->shape) : json_null());
}

static json_t *places_json(const plan_answer *a)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->summary.buffers; i++)
        json_array_append_new(list, plan_print_place_json(a, i));
    return list;
}

/* Places as rows --------------------------------------------------------------------------------------------------- */

/* Prints a field of a row, with '_' for commas and quotation marks. */
static void print_field(const char *text)
{
    char *clean = text_clean(text, strlen(text), false);
    for (const char *at = clean; *at != '\0'; at++)
        putchar(strchr(",\"", *at) ? '_' : *at);
    free(clean);
}

/* The last field of a row: the gaps of its buffer, as "3-7 9-11". */
static void print_gaps(const weir_gap *gaps, size_t count, uint32_t buffer, size_t *at)
{
    while (*at < count && gaps[*at].buffer < buffer)
        ++*at;
    for (const char *before = ""; *at < count && gaps[*at].buffer == buffer; ++*at, before = " ")
        printf("%s%" PRIu64 "-%" PRIu64, before, gaps[*at].begin, gaps[*at].end);
}

void plan_print_csv(const plan_answer *a)
{
    size_t count, gap_count, at = 0;
    const weir_buffers *buffers = plan_info(a->plan).list;
    plan_storage *storages = plan_storages(a->plan, false, &count);
    weir_gap *gaps = plan_print_read_gaps(buffers, &gap_count);
    puts(gap_count ? "id,lower,upper,size,offset,gaps" : "id,lower,upper,size,offset");
    for (size_t i = 0; i < count; i++) {
        const plan_storage *s = &storages[i];
        weir_buffer b = WEIR_INIT(weir_buffer);
        if (s->begin == s->end || weir_buffer_info(buffers, s->buffer, &b) != WEIR_OK)
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

static double plan_print_over(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : a ? 0 : 1;
}

/* Text ------------------------------------------------------------------------------------------------------------- */

static void plan_print_row(table *grid, const char *name, uint64_t bytes, char *note)
{
    char text[24];
    table_row(grid);
    table_cell(grid, name, "", false);
    table_cell(grid, weir_size_format(bytes, text, sizeof text), terminal_bold(), true);
    table_own(grid, note, terminal_faint(), false);
}

static char *arena_note(const weir_plan_details *sum)
{
    if (sum->proven)
        return text_print("%sproven: no plan is smaller%s", terminal_green(), terminal_plain());
    char more[24];
    const char *why = sum->said_proven ? "; its file says that no plan is smaller"
                      : sum->stopped   ? ", when the time was up"
                                       : "";
    return text_print("%s above the lower bound (%.2g %%)%s",
                      weir_size_format(sum->arena - sum->lower_bound, more, sizeof more),
                      100 * (plan_print_over(sum->arena, sum->lower_bound) - 1), why);
}

static void model_rows(table *grid, const plan_source *from)
{
    plan_print_row(grid, "weights", from->weights, text_print("apart, %u tensors", from->weight_count));
    if (from->constants > 0)
        plan_print_row(grid, "constants", from->constants,
                       text_print("apart, from %zu nodes that need not run", from->folded));
    plan_print_row(grid, "inputs", from->inputs, text_copy("of the arena, up to their last use"));
    plan_print_row(grid, "outputs", from->outputs, text_copy("of the arena, up to the end"));
}

static void plan_print_trace_rows(table *grid, const plan_source *from, uint64_t arena)
{
    plan_print_row(grid, "requested", from->requested, text_copy("live at once, at the most"));
    if (from->recorded > 0)
        plan_print_row(grid, "recorded", from->recorded,
                       text_print("held by the allocator that was recorded, %.3f times the arena",
                                  plan_print_over(from->recorded, arena)));
    if (from->replayed > 0)
        plan_print_row(grid, "replayed", from->replayed,
                       text_print("held by weir's allocator, which knows no future: %.3f times the arena",
                                  plan_print_over(from->replayed, arena)));
}

static void print_title(const plan_answer *a)
{
    const char *last = plan_file_name(a->args);
    char *name = text_clean(last, strlen(last), false);
    printf("%s%s%s: %u %s, %" PRIu64 " steps", terminal_bold(), name, terminal_plain(), a->summary.buffers,
           a->source->kind == PLAN_MODEL   ? "tensors"
           : a->source->kind == PLAN_TRACE ? "allocations"
                                           : "buffers",
           a->summary.steps);
    for (size_t i = 0; i < a->args->dim_count; i++) {
        char *dim = text_clean(a->args->dims[i].name, strlen(a->args->dims[i].name), false);
        printf(", %s=%" PRId64, dim, a->args->dims[i].dims[0]);
        free(dim);
    }
    puts("");
    free(name);
}

void plan_print(const plan_answer *a)
{
    const weir_plan_details *sum = &a->summary;
    table grid = {0};
    char time[24];
    print_title(a);
    plan_print_row(&grid, "arena", sum->arena, arena_note(sum));
    plan_print_row(&grid, "lower bound", sum->lower_bound, text_copy("live at once, at the most"));
    plan_print_row(&grid, "unshared", sum->unshared,
                   text_print("%.2f times the arena", plan_print_over(sum->unshared, sum->arena)));
    if (a->source->kind == PLAN_MODEL)
        model_rows(&grid, a->source);
    else if (a->source->kind == PLAN_TRACE)
        plan_print_trace_rows(&grid, a->source, sum->arena);
    table_end(&grid);
    if (a->source->remark)
        printf("%s\n", a->source->remark);
    if (a->source->kind == PLAN_SAVED)
        return;
    printf("%splanned in %s by %s%s\n", terminal_faint(), text_seconds(sum->seconds, time, sizeof time), sum->found_by,
           terminal_plain());
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *plan_print_source_json(const plan_answer *a)
{
    const plan_source *from = a->source;
    json_t *remark = from->remark ? text_json(from->remark) : json_null();
    if (from->kind == PLAN_LIST || from->kind == PLAN_SAVED)
        return json_pack("{s:s, s:o}", "kind", from->kind == PLAN_LIST ? "list" : "plan", "remark", remark);
    if (from->kind == PLAN_TRACE)
        return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", "trace", "remark", remark, "events",
                         text_json_count(from->recorded_of), "left_out", text_json_count(from->left_out), "requested",
                         text_json_count(from->requested), "held_recorded",
                         from->recorded ? text_json_count(from->recorded) : json_null(), "held_replayed",
                         from->replayed ? text_json_count(from->replayed) : json_null());
    json_t *dims = json_object();
    for (size_t i = 0; i < a->args->dim_count; i++)
        json_object_set_new(dims, a->args->dims[i].name, json_integer(a->args->dims[i].dims[0]));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", "model", "remark", remark, "dims", dims,
                     "weights", text_json_count(from->weights), "constants", text_json_count(from->constants), "inputs",
                     text_json_count(from->inputs), "outputs", text_json_count(from->outputs), "views",
                     text_json_count(from->views), "folded", text_json_count(from->folded));
}

json_t *plan_json(const plan_answer *a)
{
    const weir_plan_details *sum = &a->summary;
    json_t *object =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:f, s:f, s:o, s:o, s:o, s:s, s:o}", "file",
                  text_json(a->args->file), "buffers", text_json_count(sum->buffers), "arena",
                  text_json_count(sum->arena), "lower_bound", text_json_count(sum->lower_bound), "unshared",
                  text_json_count(sum->unshared), "proven", sum->proven, "said_proven", sum->said_proven, "stopped",
                  sum->stopped, "gap", plan_print_over(sum->arena, sum->lower_bound) - 1, "seconds", sum->seconds,
                  "alignment", text_json_count(sum->alignment), "steps", text_json_count(sum->steps), "in_place",
                  text_json_count(sum->in_place), "found_by", sum->found_by, "source", plan_print_source_json(a));
    if (a->args->places)
        json_object_set_new(object, "places", places_json(a));
    return object;
}
