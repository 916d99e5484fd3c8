/* Scripts, as texts: "world clients=4 streams=8 …", then a line per step, "allocate slot=3 client=1 bytes=4096".
 * Numbers that are 0 are left out; a line that begins with # is a remark. A step that is indented, two blanks per
 * level, runs within the last step above with fewer blanks. */
#include "sim/simulate.h"
#include "base/texts.h"

#include <errno.h>
#include <stdio.h>

enum { LINE = 1024, RESOURCE = 256 };

char *script_write(const world_options *options, wi_bug plant, const step *steps, size_t count)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fprintf(out, "world clients=%u streams=%u budget=%llu device=%llu granule=%llu seed=%llu", options->clients,
            options->streams, (unsigned long long)options->budget, (unsigned long long)options->device,
            (unsigned long long)options->granule, (unsigned long long)options->seed);
    if (options->resource)
        fprintf(out, " resource=%s", options->resource);
    if (plant)
        fprintf(out, " plant=%s", defect_name(plant));
    fputc('\n', out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%*s%s", 2 * steps[i].depth, "", operation_name(steps[i].operation));
        for (int f = 0; f < STEP_FIELDS; f++)
            if (steps[i].field[f])
                fprintf(out, " %s=%llu", field_name((step_field)f), (unsigned long long)steps[i].field[f]);
        fputc('\n', out);
    }
    return fclose(out) == 0 ? text : NULL;
}

static bool script_read_number(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

/* One "name=value" of the world's line. */
static bool read_world_word(const char *name, const char *value, world_options *options, wi_bug *plant)
{
    uint64_t number;
    if (strcmp(name, "plant") == 0) {
        *plant = defect_called(value);
        return *plant != WI_BUGS;
    }
    if (strcmp(name, "resource") == 0) { /* the runtime checks the name */
        options->resource = wi_intern(value, RESOURCE - 1);
        return true;
    }
    if (!script_read_number(value, &number))
        return false;
    if (strcmp(name, "clients") == 0 && number >= 1 && number <= WORLD_CLIENTS)
        options->clients = (unsigned)number;
    else if (strcmp(name, "streams") == 0 && number >= 1 && number < WORLD_STREAMS)
        options->streams = (unsigned)number;
    else if (strcmp(name, "budget") == 0 && number > 0)
        options->budget = number;
    else if (strcmp(name, "device") == 0 && number > 0 && number <= UINT64_C(1) << 40)
        options->device = number;
    else if (strcmp(name, "granule") == 0 && wi_power_of_two(number) && number >= WI_SIM_UNIT && number <= WI_GIB)
        options->granule = number;
    else if (strcmp(name, "seed") == 0)
        options->seed = number;
    else
        return false;
    return true;
}

static bool read_step_word(const char *name, const char *value, step *s)
{
    for (int f = 0; f < STEP_FIELDS; f++)
        if (strcmp(field_name((step_field)f), name) == 0)
            return script_read_number(value, &s->field[f]);
    return false;
}

/* Fills in the world or the step of one line; NULL, or the word that is wrong. */
static const char *script_read_line(char *line, bool first_line, world_options *options, wi_bug *plant, step *s)
{
    size_t depth = strspn(line, " ") / 2;
    char *rest, *word = strtok_r(line, " \t\r", &rest), *start = word;
    unsigned index = 0;
    if (first_line && strcmp(word, "world") != 0)
        return word;
    while (!first_line && index < operation_count() && strcmp(operation_name(index), word) != 0)
        index++;
    if (!first_line && index == operation_count())
        return start;
    *s = (step){.operation = (uint8_t)index, .depth = (uint8_t)wi_min(depth, WORLD_DEPTH)};
    while ((word = strtok_r(NULL, " \t\r", &rest))) {
        char *equals = strchr(word, '=');
        if (!equals)
            return word;
        *equals = '\0';
        bool fine =
            first_line ? read_world_word(word, equals + 1, options, plant) : read_step_word(word, equals + 1, s);
        *equals = '=';
        if (!fine)
            return word;
    }
    return NULL;
}

bool script_read(const char *text, world_options *options, wi_bug *plant, step **steps, size_t *count, char *error,
                 size_t capacity)
{
    bool first_line = true;
    size_t room = 0;
    *steps = NULL;
    *count = 0;
    unsigned number = 1;
    for (const char *at = text; *at; number++) {
        size_t length = strcspn(at, "\n");
        char line[LINE];
        snprintf(line, sizeof line, "%.*s", (int)wi_min(length, LINE - 1), at);
        at += length + (at[length] == '\n');
        if (line[strspn(line, " \t\r")] == '\0' || line[0] == '#')
            continue;
        if (!wi_make_room(steps, *count, &room, sizeof **steps))
            break;
        const char *wrong = script_read_line(line, first_line, options, plant, &(*steps)[*count]);
        if (wrong) {
            snprintf(error, capacity, "line %u of the script: \"%.60s\" is not understood", number, wrong);
            free(*steps);
            return false;
        }
        *count += !first_line;
        first_line = false;
    }
    if (!first_line)
        return true;
    snprintf(error, capacity, "the script has no line that begins with \"world\"");
    free(*steps);
    return false;
}
