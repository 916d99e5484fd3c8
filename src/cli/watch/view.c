#include "watch.h"

#include "cli/terminal.h"
#include "cli/text.h"

#include <weir/stats.h>

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { SERIES_MOST = 512, DEVICE_BYTES = 32, EIGHTHS = 8 };

struct view_series {
    uint64_t pid;
    size_t index; /* of the runtime in its process's answer */
    char device[DEVICE_BYTES];
    uint64_t live[SERIES_MOST], held[SERIES_MOST];
    size_t count;
    bool there;
};

/* Characters: of a bar of eighths, of a line of eight heights, and of what is held, is live and is free of a budget. */
static const char *const bar_unicode[EIGHTHS] = {"▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
static const char *const line_unicode[EIGHTHS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const line_ascii[EIGHTHS] = {"_", ".", ":", "-", "=", "+", "*", "#"};

bool view_is_unicode(void)
{
    locale_t here = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    bool unicode = here != (locale_t)0 && strcmp(nl_langinfo_l(CODESET, here), "UTF-8") == 0;
    if (here != (locale_t)0)
        freelocale(here);
    return unicode;
}

const char *view_sort_name(view_sort sort)
{
    static const char *const names[VIEW_SORTS] = {"live", "peak", "refusals", "name"};
    return names[sort];
}

/* Lines ------------------------------------------------------------------------------------------------------------ */

void view_line(const view *v, view_lines *out, char *line)
{
    char *to = line;
    for (const char *at = line; !v->unicode && *at != '\0';) {
        size_t length = text_character(at, strlen(at));
        *to++ = (char)(length == 1 ? *at : '?');
        at += length > 0 ? length : 1;
    }
    if (!v->unicode)
        *to = '\0';
    out->list = text_grow(out->list, out->count + 1, sizeof *out->list);
    out->list[out->count++] = line;
}

void view_lines_clear(view_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        free(lines->list[i]);
    free(lines->list);
    *lines = (view_lines){0};
}

static void table_lines(const view *v, table *grid, view_lines *out)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = text_stream(&text, &length);
    table_print(grid, file);
    table_clear(grid);
    fclose(file);
    for (const char *at = text; *at != '\0';) {
        size_t row = strcspn(at, "\n");
        view_line(v, out, text_print("  %.*s", (int)row, at));
        at += row + (at[row] == '\n');
    }
    free(text);
}

/* Series ----------------------------------------------------------------------------------------------------------- */

static view_series *view_series_of(const view *v, uint64_t pid, size_t index, const char *device)
{
    for (size_t i = 0; i < v->series_count; i++) {
        view_series *s = &v->series[i];
        if (s->pid == pid && s->index == index && strncmp(s->device, device, DEVICE_BYTES - 1) == 0)
            return s;
    }
    return NULL;
}

static view_series *make_series(view *v, uint64_t pid, size_t index, const char *device)
{
    view_series *s = view_series_of(v, pid, index, device);
    if (s != NULL)
        return s;
    v->series = text_grow(v->series, v->series_count + 1, sizeof *v->series);
    s = &v->series[v->series_count++];
    *s = (view_series){.pid = pid, .index = index};
    snprintf(s->device, sizeof s->device, "%s", device);
    return s;
}

static void view_add_point(view_series *s, uint64_t live, uint64_t held)
{
    if (s->count == SERIES_MOST) {
        memmove(s->live, s->live + 1, (SERIES_MOST - 1) * sizeof s->live[0]);
        memmove(s->held, s->held + 1, (SERIES_MOST - 1) * sizeof s->held[0]);
        s->count--;
    }
    s->live[s->count] = live;
    s->held[s->count++] = held;
    s->there = true;
}

void view_note(view *v, const watched_list *found)
{
    size_t left = 0;
    for (size_t i = 0; i < v->series_count; i++)
        v->series[i].there = false;
    for (size_t i = 0; i < found->count; i++) {
        const json_t *runtimes = json_object_get(found->list[i].answer, "runtimes");
        for (size_t k = 0; k < json_array_size(runtimes); k++) {
            const json_t *runtime = json_array_get(runtimes, k);
            view_add_point(make_series(v, found->list[i].pid, k, text_json_text(runtime, "device")),
                           text_json_number(runtime, "live"), text_json_number(runtime, "held"));
        }
    }
    for (size_t i = 0; i < v->series_count; i++)
        if (v->series[i].there)
            v->series[left++] = v->series[i];
    v->series_count = left;
}

void view_clear(view *v)
{
    free(v->series);
    v->series = NULL;
    v->series_count = 0;
}

static uint64_t greatest(const uint64_t *values, size_t count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

/* The last points, as many as there are columns for; `most` is the full height. */
static char *height_line(const view *v, const uint64_t *values, size_t count, size_t columns, uint64_t most)
{
    const char *const *heights = v->unicode ? line_unicode : line_ascii;
    char *line = text_zeroed(columns * 4 + 1, 1), *end = line;
    for (size_t i = count > columns ? count - columns : 0; i < count; i++) {
        size_t height = most == 0 ? 0 : (size_t)((double)values[i] / (double)most * (EIGHTHS - 1) + 0.5);
        end = stpcpy(end, heights[height < EIGHTHS ? height : EIGHTHS - 1]);
    }
    return line;
}

static void series_lines(const view *v, const view_series *s, view_lines *out)
{
    size_t columns = v->columns > 24 ? (size_t)v->columns - 20 : 4;
    uint64_t most = greatest(s->held, s->count);
    const uint64_t *const values[] = {s->live, s->held};
    static const char *const names[] = {"live", "held"};
    for (size_t i = 0; i < 2; i++) {
        char *line = height_line(v, values[i], s->count, columns, most);
        view_line(
            v, out,
            text_print("  %s %s%s%s", names[i], i == 0 ? terminal_green() : terminal_faint(), line, terminal_plain()));
        free(line);
    }
}

/* Bars ------------------------------------------------------------------------------------------------------------- */

static size_t bar_columns(const view *v)
{
    int quarter = v->columns / 4;
    return (size_t)(quarter < 8 ? 8 : quarter > 40 ? 40 : quarter);
}

/* Something that is not nothing is seen. The caller frees it. */
static char *bar(const view *v, uint64_t value, uint64_t most)
{
    size_t columns = bar_columns(v);
    char *text = text_zeroed(columns * 4 + 1, 1), *end = text;
    double share = most == 0 ? 0 : (double)value / (double)most;
    size_t eighths = (size_t)((share > 1 ? 1 : share) * (double)(columns * EIGHTHS) + 0.5);
    eighths = value > 0 && eighths == 0 ? 1 : eighths;
    for (; eighths >= EIGHTHS; eighths -= EIGHTHS)
        end = stpcpy(end, v->unicode ? bar_unicode[EIGHTHS - 1] : "#");
    if (eighths > 0)
        stpcpy(end, v->unicode ? bar_unicode[eighths - 1] : eighths >= EIGHTHS / 2 || end == text ? "#" : "");
    return text;
}

/* Returns where the text ends. */
static char *view_repeat(char *end, const char *character, size_t count)
{
    for (size_t i = 0; i < count; i++)
        end = stpcpy(end, character);
    return end;
}

static size_t view_share_of(uint64_t value, uint64_t whole, size_t columns)
{
    double share = whole == 0 ? 0 : (double)value / (double)whole;
    return (size_t)((share > 1 ? 1 : share) * (double)columns + 0.5);
}

/* The budget: what is live of it, what is held besides, and the rest. */
static void budget_line(const view *v, const json_t *runtime, view_lines *out)
{
    uint64_t budget = text_json_number(runtime, "budget"), live = text_json_number(runtime, "live"),
             held = text_json_number(runtime, "held");
    size_t columns = v->columns > 34 ? (size_t)v->columns - 30 : 8;
    size_t of_live = view_share_of(live, budget, columns), of_held = view_share_of(held, budget, columns);
    char *text = text_zeroed(columns * 4 + 1, 1), *end = text;
    of_held = of_held > of_live ? of_held - of_live : 0;
    end = view_repeat(end, v->unicode ? "█" : "#", of_live);
    end = view_repeat(end, v->unicode ? "▒" : "=", of_held);
    view_repeat(end, v->unicode ? "░" : ".", columns - of_live - of_held);
    double percent = budget == 0 ? 0 : 100.0 / (double)budget;
    view_line(v, out,
              text_print("  %s%s%s %.0f %% live, %.0f %% held", terminal_green(), text, terminal_plain(),
                         percent * (double)live, percent * (double)held));
    free(text);
}

/* Tables ----------------------------------------------------------------------------------------------------------- */

static void title_row(table *grid, const char *const *titles, size_t count)
{
    table_row(grid);
    for (size_t i = 0; i < count; i++)
        table_cell(grid, titles[i], terminal_bold(), i > 0 && titles[i][0] != '\0');
}

/* Returns the name of the class at a place in the displayed order: "other", the first class, comes last. */
static const char *class_name(int place)
{
    return weir_name_of(WEIR_NAMES_CLASS, (place + 1) % WEIR_CLASS_COUNT);
}

static int view_compare(const void *a, const void *b, void *by)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    view_sort sort = *(const view_sort *)by;
    if (sort != VIEW_BY_NAME) {
        uint64_t p = text_json_number(x, view_sort_name(sort)), q = text_json_number(y, view_sort_name(sort));
        if (p != q)
            return p > q ? -1 : 1;
    }
    return strcmp(text_json_text(x, "name"), text_json_text(y, "name"));
}

/* The clients, as the view sorts them; the caller frees the list. */
static json_t **sorted(const view *v, const json_t *clients, uint64_t *most)
{
    size_t count = json_array_size(clients);
    json_t **list = text_zeroed(count, sizeof(json_t *));
    view_sort sort = v->sort;
    *most = 0;
    for (size_t i = 0; i < count; i++) {
        list[i] = json_array_get(clients, i);
        uint64_t live = text_json_number(list[i], "live");
        *most = live > *most ? live : *most;
    }
    if (count > 0)
        qsort_r(list, count, sizeof(json_t *), view_compare, &sort);
    return list;
}

/* Whether the client's memory is where it was; one that an older process tells of is. */
static bool is_resident(const json_t *client)
{
    const char *state = text_json_text(client, "residency");
    return state[0] == '\0' || strcmp(state, weir_name_of(WEIR_NAMES_RESIDENCY, WEIR_RESIDENT)) == 0;
}

static bool all_resident(const json_t *clients)
{
    for (size_t i = 0; i < json_array_size(clients); i++)
        if (!is_resident(json_array_get(clients, i)))
            return false;
    return true;
}

/* `away`: with what is away, and the state. */
static void client_row(const view *v, table *grid, const json_t *client, uint64_t most, bool away)
{
    enum { NAME_COLUMNS = 24 };
    char *name = text_copy(text_json_text(client, "name"));
    uint64_t refused = text_json_number(client, "refusals");
    text_cut(name, NAME_COLUMNS);
    table_row(grid);
    table_own(grid, name, "", false);
    table_size(grid, text_json_number(client, "live"), "");
    table_own(grid, bar(v, text_json_number(client, "live"), most), terminal_green(), false);
    if (away) {
        char *state = is_resident(client) ? text_copy("-") : text_copy(text_json_text(client, "residency"));
        table_size(grid, text_json_number(client, "away"), terminal_yellow());
        text_cut(state, NAME_COLUMNS);
        table_own(grid, state, is_resident(client) ? "" : terminal_yellow(), true);
    }
    table_size(grid, text_json_number(client, "peak"), "");
    table_size(grid, text_json_number(client, "maximum"), "");
    table_count(grid, refused, refused > 0 ? terminal_red() : "");
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        table_size(grid, text_json_number(json_object_get(client, "live_class"), class_name(i)), terminal_faint());
}

static void client_lines(const view *v, const json_t *runtime, view_lines *out)
{
    const json_t *clients = json_object_get(runtime, "clients");
    bool away = !all_resident(clients);
    const char *titles[8 + WEIR_CLASS_COUNT] = {"client", "live", "", "away", "state"};
    const char *const others[] = {"peak", "maximum", "refusals"};
    size_t columns = away ? 5 : 3;
    uint64_t most, there = text_json_number(runtime, "client_count");
    json_t **list = sorted(v, clients, &most);
    table grid = {0};
    for (int i = 0; i < 3; i++)
        titles[columns++] = others[i];
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        titles[columns++] = class_name(i);
    title_row(&grid, titles, columns);
    for (size_t i = 0; i < json_array_size(clients); i++)
        client_row(v, &grid, list[i], most, away);
    table_lines(v, &grid, out);
    if (there > json_array_size(clients))
        view_line(v, out, text_print("  and %llu more", (unsigned long long)there - json_array_size(clients)));
    free(list);
}

static void class_lines(const view *v, const json_t *runtime, view_lines *out)
{
    static const char *const titles[] = {"class", "live", ""};
    const json_t *clients = json_object_get(runtime, "clients");
    uint64_t live[WEIR_CLASS_COUNT];
    table grid = {0};
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        live[i] = watched_sum(clients, "live_class", class_name(i));
    uint64_t most = greatest(live, WEIR_CLASS_COUNT);
    title_row(&grid, titles, 3);
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        table_row(&grid);
        table_cell(&grid, class_name(i), "", false);
        table_size(&grid, live[i], "");
        table_own(&grid, bar(v, live[i], most), terminal_green(), false);
    }
    table_lines(v, &grid, out);
}

/* Processes -------------------------------------------------------------------------------------------------------- */

static void sums_line(const view *v, const json_t *runtime, view_lines *out)
{
    static const char *const sizes[] = {"budget", "live", "pending", "held", "peak", "away"};
    const size_t shown = text_json_number(runtime, "away") > 0 ? 6 : 5;
    const char *device = text_json_text(runtime, "device");
    char *clean = text_clean(device, strlen(device), false);
    char *line = text_print("%s%s%s", terminal_bold(), clean, terminal_plain());
    for (size_t i = 0; i < shown; i++) {
        char text[24];
        text_add(&line, "  %s %s", sizes[i], weir_size_format(text_json_number(runtime, sizes[i]), text, sizeof text));
    }
    uint64_t refusals = text_json_number(runtime, "refusals");
    view_line(v, out,
              text_print("%s  %srefusals %llu%s", line, refusals > 0 ? terminal_red() : "",
                         (unsigned long long)refusals, refusals > 0 ? terminal_plain() : ""));
    free(line);
    free(clean);
}

static void runtime_lines(const view *v, const watched *process, size_t index, view_lines *out)
{
    const json_t *runtime = json_array_get(json_object_get(process->answer, "runtimes"), index);
    const view_series *series = view_series_of(v, process->pid, index, text_json_text(runtime, "device"));
    sums_line(v, runtime, out);
    budget_line(v, runtime, out);
    if (series != NULL)
        series_lines(v, series, out);
    if (v->by_client)
        client_lines(v, runtime, out);
    if (v->by_class)
        class_lines(v, runtime, out);
}

/* Of a server: its models. */
static void model_lines(const view *v, const json_t *models, view_lines *out)
{
    static const char *const titles[] = {"model", "state", "size", "running", "waiting", "loads", "evicted", "runs"};
    static const char *const counts[] = {"running", "waiting", "loads", "evictions", "runs"};
    size_t i;
    const json_t *model;
    table grid = {0};
    title_row(&grid, titles, sizeof titles / sizeof titles[0]);
    json_array_foreach(models, i, model)
    {
        const json_t *progress = json_object_get(model, "progress");
        char *state = json_is_number(progress)
                          ? text_print("%s %.0f %%", text_json_text(model, "state"), 100 * json_number_value(progress))
                          : text_copy(text_json_text(model, "state"));
        table_row(&grid);
        table_cell(&grid, text_json_text(model, "name"), "", false);
        table_cell(&grid, state, strcmp(state, "loaded") == 0 ? terminal_green() : "", true);
        table_size(&grid, text_json_number(model, "size"), "");
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            uint64_t count = text_json_number(model, counts[k]);
            table_own(&grid, count ? text_print("%llu", (unsigned long long)count) : text_copy("-"), "", true);
        }
        free(state);
    }
    table_lines(v, &grid, out);
}

/* Appends the server's requests; a waiting request with the reason for its wait. */
static void request_lines(const view *v, const json_t *requests, view_lines *out)
{
    static const char *const titles[] = {"request", "since", "state", "waits for", "as number"};
    size_t i;
    const json_t *request;
    table grid = {0};
    title_row(&grid, titles, sizeof titles / sizeof titles[0]);
    json_array_foreach(requests, i, request)
    {
        char seconds[24];
        uint64_t place = text_json_number(request, "position");
        text_seconds(json_number_value(json_object_get(request, "seconds")), seconds, sizeof seconds);
        table_row(&grid);
        table_cell(&grid, text_json_text(request, "model"), "", false);
        table_cell(&grid, seconds, "", true);
        table_cell(&grid, text_json_text(request, "state"), "", true);
        table_cell(&grid, text_json_text(request, "reason"), terminal_yellow(), true);
        if (place)
            table_count(&grid, place, "");
        else
            table_cell(&grid, "", "", true);
    }
    if (json_array_size(requests) > 0)
        table_lines(v, &grid, out);
    else
        table_clear(&grid);
}

void view_process(const view *v, const watched *process, view_lines *out)
{
    size_t count = json_array_size(json_object_get(process->answer, "runtimes"));
    uint64_t left_out = text_json_number(process->answer, "left_out");
    if (process->answer == NULL)
        view_line(v, out, text_copy("it does not answer"));
    for (size_t i = 0; i < count; i++) {
        runtime_lines(v, process, i, out);
        view_line(v, out, text_copy(""));
    }
    if (json_object_get(process->answer, "models") != NULL) {
        model_lines(v, json_object_get(process->answer, "models"), out);
        view_line(v, out, text_copy(""));
        request_lines(v, json_object_get(process->answer, "requests"), out);
    }
    if (left_out > 0)
        view_line(v, out, text_print("and %llu more devices", (unsigned long long)left_out));
}
