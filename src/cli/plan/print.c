/* plan_print.c: the answer as a text, as JSON and as rows. */
#include "plan.h"

#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static double over(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : a ? 0 : 1;
}

/* Text ------------------------------------------------------------------------------------------------------------- */

static void row(table *grid, const char *name, uint64_t bytes, char *note)
{
    char text[24];
    table_row(grid);
    table_cell(grid, name, "", false);
    table_cell(grid, weir_size_format(bytes, text, sizeof text), terminal_bold(), true);
    table_cell(grid, note, terminal_faint(), false);
    free(note);
}

static char *arena_note(const weir_plan_summary *sum)
{
    if (sum->proven)
        return text_print("%sproven: no plan is smaller%s", terminal_green(), terminal_plain());
    char more[24];
    const char *why = sum->said_proven ? "; its file says that no plan is smaller"
                      : sum->stopped   ? ", when the time was up"
                                       : "";
    return text_print("%s above the lower bound (%.2g %%)%s",
                      weir_size_format(sum->arena - sum->lower_bound, more, sizeof more),
                      100 * (over(sum->arena, sum->lower_bound) - 1), why);
}

static void model_rows(table *grid, const plan_source *from)
{
    row(grid, "weights", from->weights, text_print("apart, %u tensors", from->weight_count));
    if (from->constants > 0)
        row(grid, "constants", from->constants, text_print("apart, from %zu nodes that need not run", from->folded));
    row(grid, "inputs", from->inputs, text_copy("of the arena, up to their last use"));
    row(grid, "outputs", from->outputs, text_copy("of the arena, up to the end"));
}

static void trace_rows(table *grid, const plan_source *from, uint64_t arena)
{
    row(grid, "requested", from->requested, text_copy("live at once, at the most"));
    if (from->recorded > 0)
        row(grid, "recorded", from->recorded,
            text_print("held by the allocator that was recorded, %.3f times the arena", over(from->recorded, arena)));
    if (from->replayed > 0)
        row(grid, "replayed", from->replayed,
            text_print("held by weir's allocator, which knows no future: %.3f times the arena",
                       over(from->replayed, arena)));
}

static void print_title(const plan_answer *a)
{
    const char *last = plan_file_name(a->words);
    char *name = text_clean(last, strlen(last), false);
    printf("%s%s%s: %u %s, %" PRIu64 " steps", terminal_bold(), name, terminal_plain(), a->summary.buffers,
           a->source->kind == PLAN_MODEL   ? "tensors"
           : a->source->kind == PLAN_TRACE ? "allocations"
                                           : "buffers",
           a->summary.steps);
    for (size_t i = 0; i < a->words->dim_count; i++) {
        char *dim = text_clean(a->words->dims[i].name, strlen(a->words->dims[i].name), false);
        printf(", %s=%" PRId64, dim, a->words->dims[i].dims[0]);
        free(dim);
    }
    puts("");
    free(name);
}

void plan_print(const plan_answer *a)
{
    const weir_plan_summary *sum = &a->summary;
    table grid = {0};
    char time[24];
    print_title(a);
    row(&grid, "arena", sum->arena, arena_note(sum));
    row(&grid, "lower bound", sum->lower_bound, text_copy("live at once, at the most"));
    row(&grid, "unshared", sum->unshared, text_print("%.2f times the arena", over(sum->unshared, sum->arena)));
    if (a->source->kind == PLAN_MODEL)
        model_rows(&grid, a->source);
    else if (a->source->kind == PLAN_TRACE)
        trace_rows(&grid, a->source, sum->arena);
    table_print(&grid, stdout);
    table_clear(&grid);
    if (a->source->remark)
        printf("%s\n", a->source->remark);
    if (a->source->kind == PLAN_SAVED)
        return;
    printf("%splanned in %s by %s%s\n", terminal_faint(), text_seconds(sum->seconds, time, sizeof time), sum->found_by,
           terminal_plain());
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *source_json(const plan_answer *a)
{
    const plan_source *from = a->source;
    json_t *remark = from->remark ? text_json(from->remark) : json_null();
    if (from->kind == PLAN_LIST || from->kind == PLAN_SAVED)
        return json_pack("{s:s, s:o}", "kind", from->kind == PLAN_LIST ? "list" : "plan", "remark", remark);
    if (from->kind == PLAN_TRACE)
        return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", "trace", "remark", remark, "events",
                         number(from->recorded_of), "left_out", number(from->left_out), "requested",
                         number(from->requested), "held_recorded",
                         from->recorded ? number(from->recorded) : json_null(), "held_replayed",
                         from->replayed ? number(from->replayed) : json_null());
    json_t *dims = json_object();
    for (size_t i = 0; i < a->words->dim_count; i++)
        json_object_set_new(dims, a->words->dims[i].name, json_integer(a->words->dims[i].dims[0]));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", "model", "remark", remark, "dims", dims,
                     "weights", number(from->weights), "constants", number(from->constants), "inputs",
                     number(from->inputs), "outputs", number(from->outputs), "views", number(from->views), "folded",
                     number(from->folded));
}

json_t *plan_json(const plan_answer *a)
{
    const weir_plan_summary *sum = &a->summary;
    json_t *object = json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:f, s:f, s:o, s:o, s:o, s:s, s:o}", "file",
                               text_json(a->words->file), "buffers", number(sum->buffers), "arena", number(sum->arena),
                               "lower_bound", number(sum->lower_bound), "unshared", number(sum->unshared), "proven",
                               sum->proven, "said_proven", sum->said_proven, "stopped", sum->stopped, "gap",
                               over(sum->arena, sum->lower_bound) - 1, "seconds", sum->seconds, "alignment",
                               number(sum->alignment), "steps", number(sum->steps), "in_place", number(sum->in_place),
                               "found_by", sum->found_by, "source", source_json(a));
    if (a->words->places)
        json_object_set_new(object, "places", plan_places_json(a));
    return object;
}
