/* print.c: a report in a terminal: the figures, the clients, what was lent, the tags, the refusals. */
#include "report.h"

#include "cli/terminal.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 20, TAGS = 10, LENDS = 10, LEFT = 20, REFUSALS = 5 };

static const weir_class columns[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_KV, WEIR_CLASS_SCRATCH,
                                     WEIR_CLASS_OTHER};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void text_cell(table *grid, const char *text)
{
    char *clean = text_clean(text, strlen(text), false);
    text_cut(clean, 60);
    table_cell(grid, clean, "", false);
    free(clean);
}

static void report_print_size_cell(table *grid, uint64_t bytes)
{
    table_size(grid, bytes, bytes == 0 ? terminal_faint() : "");
}

/* Below a blank line; a head alone is not printed. */
static void report_print_finish(table *grid)
{
    if (grid->count > 1) {
        puts("");
        table_print(grid, stdout);
    }
    table_clear(grid);
}

static void print_figures(const report *all)
{
    const recording *trace = &all->trace;
    char live[24], held[24], budget[24], seconds[24];
    const char *device = report_device(all);
    char *name = text_clean(all->args->file, strlen(all->args->file), false);
    printf("%s%s%s: %zu events%s%s", terminal_bold(), name, terminal_plain(), trace->count, device[0] ? " of " : "",
           device);
    if (report_seconds(all) >= 0)
        printf(" in %s", text_seconds(report_seconds(all), seconds, sizeof seconds));
    printf("\npeak %s live and pending", weir_size_format(all->held.peak, live, sizeof live));
    if (trace->holds)
        printf(", %s held at most", weir_size_format(all->held.peak_held, held, sizeof held));
    if (report_budget(all))
        printf(" of a budget of %s", weir_size_format(report_budget(all), budget, sizeof budget));
    printf("\n%" PRIu64 " allocations, %" PRIu64 " frees, %" PRIu64 " resizes, %" PRIu64
           " refused; %s live at the end\n",
           all->blocks.allocations, all->blocks.frees, all->blocks.resizes, all->blocks.refused,
           weir_size_format(trace->count ? trace->events[trace->count - 1].live : 0, live, sizeof live));
    if (all->held.peak_away > 0)
        printf("%s away at most, as clients were suspended; %s at the end\n",
               weir_size_format(all->held.peak_away, live, sizeof live),
               weir_size_format(report_away_at_end(all), held, sizeof held));
    if (trace->empty || trace->unknown)
        printf("%" PRIu64 " rows of no bytes at no address, and %" PRIu64
               " entries whose action has no meaning here, were passed over\n",
               trace->empty, trace->unknown);
    if (trace->problem_count || trace->lost || trace->cut)
        printf("%s%" PRIu64 " events could not be used, %" PRIu64 " are missing%s%s\n", terminal_yellow(),
               trace->problem_count, trace->lost, trace->cut ? ", and the file is cut off" : "", terminal_plain());
    if (trace->problem_count)
        printf("the first of them is %s %" PRIu64 ": %s\n", trace->format == RECORDING_CSV ? "line" : "event",
               trace->problems[0].line, trace->problems[0].what);
    free(name);
}

static void print_clients(const report *all)
{
    bool away = all->held.peak_away > 0;
    static const char *const names[] = {"client", "weights", "activations", "kv", "scratch", "other", "peak", "away"};
    size_t count, *list = report_clients(all, &count);
    table grid = {0};
    table_titles(&grid, names, away ? 8 : 7, terminal_faint(), 1);
    for (size_t i = 0; i < count && i < CLIENTS; i++) {
        const sampled_client *client = &all->held.clients[list[i]];
        table_row(&grid);
        text_cell(&grid, client->name);
        for (int j = 0; j < COLUMNS; j++)
            report_print_size_cell(&grid, client->at_peak[columns[j]] > 0 ? (uint64_t)client->at_peak[columns[j]] : 0);
        report_print_size_cell(&grid, client->peak);
        if (away)
            report_print_size_cell(&grid, client->peak_away);
    }
    report_print_finish(&grid);
    free(list);
}

static void print_tags(const report *all)
{
    static const char *const names[] = {"tag", "client", "class", "allocations", "peak"};
    size_t count, *list = report_tags(all, TAGS, &count);
    table grid = {0};
    table_titles(&grid, names, 5, terminal_faint(), 1);
    for (size_t i = 0; i < count && i < TAGS; i++) {
        const lifetime_kind *kind = &all->blocks.kinds[list[i]];
        table_row(&grid);
        text_cell(&grid, kind->tag[0] ? kind->tag : "(none)");
        text_cell(&grid, kind->client);
        text_cell(&grid, weir_name_of(WEIR_NAMES_CLASS, (int)kind->memory_class));
        table_count(&grid, kind->allocations, "");
        report_print_size_cell(&grid, kind->peak);
    }
    report_print_finish(&grid);
    free(list);
}

static void print_left(const report *all)
{
    static const char *const names[] = {"left live by", "tag", "class", "blocks", "bytes"};
    size_t count;
    report_left *list = report_left_live(all, &count);
    table grid = {0};
    table_titles(&grid, names, 5, terminal_faint(), 1);
    for (size_t i = 0; i < count && i < LEFT; i++) {
        const lifetime_kind *kind = &all->blocks.kinds[list[i].kind];
        table_row(&grid);
        text_cell(&grid, kind->client);
        text_cell(&grid, kind->tag[0] ? kind->tag : "(none)");
        text_cell(&grid, weir_name_of(WEIR_NAMES_CLASS, (int)kind->memory_class));
        table_count(&grid, list[i].blocks, "");
        report_print_size_cell(&grid, list[i].bytes);
    }
    report_print_finish(&grid);
    if (count > LEFT)
        printf("and %zu more; --json has all\n", count - LEFT);
    free(list);
}

static void print_lends(const report *all)
{
    static const char *const names[] = {"memory of", "passed to", "bytes", "blocks"};
    table grid = {0};
    table_titles(&grid, names, 4, terminal_faint(), 1);
    for (size_t i = 0; i < all->lent.client_count && i < LENDS; i++) {
        const lend *one = &all->lent.clients[i];
        table_row(&grid);
        text_cell(&grid, one->from);
        text_cell(&grid, one->to);
        report_print_size_cell(&grid, one->bytes);
        table_count(&grid, one->count, "");
    }
    report_print_finish(&grid);
}

static void print_refusals(const report *all)
{
    uint64_t left = all->blocks.refused;
    if (left > 0)
        puts("");
    for (size_t i = 0, shown = 0; i < all->trace.count && shown < REFUSALS; i++) {
        if (all->trace.events[i].action != WEIR_ACTION_REFUSE)
            continue;
        char *text = report_refusal_text(all, i), *clean = text_clean(text, strlen(text), false);
        printf("%srefused%s at event %" PRIu64 ": %s\n", terminal_red(), terminal_plain(), all->trace.events[i].order,
               clean);
        free(clean);
        free(text);
        shown++;
        left--;
    }
    if (left > 0)
        printf("and %" PRIu64 " more\n", left);
}

/* How often each thing was done, and with how many bytes. */
static void print_pool(const report *all)
{
    uint64_t count[WEIR_POOL_ACTION_COUNT] = {0}, bytes[WEIR_POOL_ACTION_COUNT] = {0};
    bool any = false;
    for (size_t i = 0; i < all->trace.count; i++) {
        const weir_event *event = &all->trace.events[i];
        if (event->action != WEIR_ACTION_POOL || event->object >= WEIR_POOL_ACTION_COUNT)
            continue;
        count[event->object]++;
        bytes[event->object] += event->bytes;
        any = true;
    }
    if (!any)
        return;
    fputs("\nthe pool:", stdout);
    for (int i = 0, shown = 0; i < WEIR_POOL_ACTION_COUNT; i++) {
        char size[24];
        if (count[i] > 0)
            printf("%s %s %" PRIu64 " (%s)", shown++ ? "," : "", weir_name_of(WEIR_NAMES_POOL, i), count[i],
                   weir_size_format(bytes[i], size, sizeof size));
    }
    puts("");
}

void report_print(const report *all)
{
    print_figures(all);
    print_clients(all);
    print_tags(all);
    print_left(all);
    print_lends(all);
    print_refusals(all);
    print_pool(all);
}
