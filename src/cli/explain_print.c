#include "explain_print.h"

#include "table.h"
#include "terminal.h"
#include "text.h"

#include <weir/options.h>

#include <stdlib.h>
#include <string.h>

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *bytes_json(const weir_candidate *c)
{
    json_t *bytes = c->predicted ? json_object() : json_null();
    for (int i = 0; c->predicted && i < WEIR_CLASS_COUNT; i++)
        json_object_set_new(bytes, weir_class_name((weir_class)i), json_integer((json_int_t)c->bytes[i]));
    return bytes;
}

static json_t *exact_json(const weir_candidate *c)
{
    json_t *exact = c->predicted ? json_object() : json_null();
    for (int i = 0; c->predicted && i < WEIR_CLASS_COUNT; i++)
        json_object_set_new(exact, weir_class_name((weir_class)i), json_boolean(c->exact[i]));
    return exact;
}

static json_t *place_json(const weir_candidate *c)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "engine", text_json(c->engine), "provider", text_json(c->provider),
                     "device", text_json(c->device), "runtime", text_json(c->runtime));
}

static json_t *candidate_json(const weir_candidate *c)
{
    json_t *object = place_json(c);
    json_object_set_new(object, "library", text_json(c->library));
    json_object_set_new(object, "version", text_json(c->version));
    json_object_set_new(object, "verdict", json_string(weir_verdict_name(c->verdict)));
    json_object_set_new(object, "reason", text_json(c->reason));
    json_object_set_new(object, "rank", json_integer(c->rank));
    json_object_set_new(object, "bytes", bytes_json(c));
    json_object_set_new(object, "exact", exact_json(c));
    json_object_set_new(object, "obtainable",
                        c->obtainable == WEIR_BYTES_UNKNOWN ? json_null() : json_integer((json_int_t)c->obtainable));
    return object;
}

json_t *explain_json(const weir_choice *choice)
{
    json_t *list = json_array();
    for (size_t i = 0; i < choice->count; i++)
        json_array_append_new(list, candidate_json(&choice->candidates[i]));
    json_t *chosen = choice->accepted > 0 ? place_json(&choice->candidates[0]) : json_null();
    return json_pack("{s:s, s:o, s:o, s:o}", "policy", choice->policy, "rule", text_json(choice->rule), "chosen",
                     chosen, "candidates", list);
}

/* Lines ------------------------------------------------------------------------------------------------------------ */

/* Bytes of `text` that fit into a line, up to a blank where there is one. */
static size_t line_of(const char *text, size_t columns)
{
    size_t length = 0, used = 0, blank = 0;
    while (text[length] != '\0' && used < columns) {
        if (text[length] == ' ')
            blank = length;
        size_t one = text_character(text + length, strlen(text + length));
        length += one > 0 ? one : 1;
        used++;
    }
    return text[length] == '\0' || text[length] == ' ' || blank == 0 ? length : blank;
}

static void print_wrapped(const char *text, size_t columns)
{
    char *clean = text_clean(text, strlen(text), false);
    for (const char *rest = clean; *rest != '\0';) {
        size_t length = line_of(rest, columns);
        printf("%.*s\n", (int)length, rest);
        rest += length;
        rest += *rest == ' ';
    }
    free(clean);
}

/* Rows ------------------------------------------------------------------------------------------------------------- */

enum { REASON_LEAST = 36, BEFORE_REASON = 68 };

static bool same_refusal(const weir_candidate *a, const weir_candidate *b)
{
    return a->rank < 0 && a->verdict == b->verdict && strcmp(a->engine, b->engine) == 0 &&
           strcmp(a->reason, b->reason) == 0;
}

/* So many candidates say the same as the first of them. */
static size_t run_of(const weir_choice *choice, size_t at)
{
    size_t count = 1;
    while (at + count < choice->count && same_refusal(&choice->candidates[at], &choice->candidates[at + count]))
        count++;
    return count;
}

static bool one_provider(const weir_candidate *first, size_t count)
{
    return strcmp(first->provider, first[count - 1].provider) == 0;
}

/* A key of NVML's is longer than a column: the runtime's name is shorter, and other keys are cut. */
static const char *device_name(const weir_candidate *c, size_t count)
{
    if (count > 1)
        return "any";
    if (c->device[0] == '\0')
        return "-";
    return strcmp(c->runtime, "host") == 0 ? c->device : c->runtime;
}

static void bytes_text(const weir_candidate *c, char *text, size_t capacity)
{
    uint64_t sum = 0;
    bool exact = true;
    char size[24];
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        sum += c->bytes[i];
        exact = exact && c->exact[i];
    }
    snprintf(text, capacity, "%s%s", exact ? "" : "from ", weir_size_format(sum, size, sizeof size));
    if (!c->predicted)
        snprintf(text, capacity, "-");
}

static void add_blanks(table *grid, size_t count)
{
    for (size_t i = 0; i < count; i++)
        table_cell(grid, "", "", false);
}

/* The reason in the last column, over as many rows as it takes. */
static void add_reason(table *grid, const char *reason, size_t columns)
{
    char *clean = text_clean(reason, strlen(reason), false);
    for (const char *rest = clean; *rest != '\0';) {
        size_t length = line_of(rest, columns);
        char *line = text_print("%.*s", (int)length, rest);
        if (rest != clean) {
            table_row(grid);
            add_blanks(grid, 6);
        }
        table_cell(grid, line, "", false);
        free(line);
        rest += length;
        rest += *rest == ' ';
    }
    free(clean);
}

static void add_row(table *grid, const weir_candidate *c, size_t count, size_t columns)
{
    char rank[16] = "", bytes[40], device[24];
    bool taken = c->verdict == WEIR_VERDICT_ACCEPTED;
    if (taken)
        snprintf(rank, sizeof rank, "%d", (int)c->rank);
    snprintf(device, sizeof device, "%.20s", device_name(c, count));
    bytes_text(c, bytes, sizeof bytes);
    table_row(grid);
    table_cell(grid, rank, terminal_bold(), true);
    table_cell(grid, c->engine, "", false);
    table_cell(grid, one_provider(c, count) ? c->provider : "any", "", false);
    table_cell(grid, device, "", false);
    table_cell(grid, taken ? "accepted" : weir_verdict_name(c->verdict), taken ? terminal_green() : terminal_red(),
               false);
    table_cell(grid, bytes, "", true);
    add_reason(grid, c->reason, columns);
}

void explain_print(const weir_choice *choice)
{
    static const char *const heads[] = {"rank", "engine", "provider", "device", "verdict", "bytes", "reason"};
    table grid = {0};
    size_t screen = (size_t)terminal_columns();
    size_t columns = screen > BEFORE_REASON + REASON_LEAST ? screen - BEFORE_REASON : REASON_LEAST;
    print_wrapped(choice->rule, screen > 40 ? screen : 40);
    putchar('\n');
    table_row(&grid);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        table_cell(&grid, heads[i], terminal_faint(), i == 0 || i == 5);
    for (size_t i = 0, count; i < choice->count; i += count) {
        count = run_of(choice, i);
        add_row(&grid, &choice->candidates[i], count, columns);
    }
    table_print(&grid, stdout);
    table_clear(&grid);
}
