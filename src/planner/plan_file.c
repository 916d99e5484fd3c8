/* Plans as text: the line "weir-plan 1", then "plan COUNT ALIGNMENT PROVEN", a line for each buffer with its slot, for
 * each gap and conflict, for some steps of the schedule, and "sum" with the sum over all before.
 *
 * What is read goes through the same doors as what a program makes: lists by weir_buffers_add and its like, the plan by
 * weir_plan_check. */
#include "base/texts.h"
#include <weir/plan.h>
#include "base/internal.h"
#include "planner/buffers.h"
#include "planner/problem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { STEPS_A_LINE = 16, NAME_BYTES = 1024 };

/* Loading ---------------------------------------------------------------------------------------------------------- */

typedef struct slot {
    uint64_t offset;
    uint32_t root;
} slot;

typedef struct reader {
    wi_lines lines;
    const char *at, *end; /* what is left of the line */
    weir_buffers *buffers;
    slot *slots;
    size_t slots_room;
    uint32_t *schedule;
    size_t steps, schedule_room;
    uint64_t count, alignment, proven;
} reader;

static weir_status plan_file_no_memory(const reader *r)
{
    return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", r->lines.name);
}

/* The line's next word; false at its end. */
static bool next_word(reader *r, const char **word, size_t *length)
{
    if (r->at == r->end)
        return false;
    const char *blank = memchr(r->at, ' ', (size_t)(r->end - r->at));
    *word = r->at;
    *length = (size_t)((blank ? blank : r->end) - r->at);
    r->at = blank ? blank + 1 : r->end;
    return true;
}

/* The next `count` words, as numbers. */
static weir_status read_numbers(reader *r, uint64_t *numbers, size_t count)
{
    const char *word;
    size_t length;
    for (size_t i = 0; i < count; i++)
        if (!next_word(r, &word, &length) || !wi_lines_number(word, length, &numbers[i]))
            return wi_lines_wrong(&r->lines, "word %zu is no number", i + 2);
    return WEIR_OK;
}

static int plan_file_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static weir_status plan_file_read_name(reader *r, char *name)
{
    const char *word;
    size_t length, out = 0;
    if (!next_word(r, &word, &length) || length == 0 || word[0] != '=')
        return wi_lines_wrong(&r->lines, "a name is missing");
    for (size_t i = 1; i < length; i++) {
        char c = word[i];
        if (c == '%') {
            int high = i + 1 < length ? plan_file_digit(word[i + 1]) : -1,
                low = i + 2 < length ? plan_file_digit(word[i + 2]) : -1;
            if (high < 0 || low < 0)
                return wi_lines_wrong(&r->lines, "an escape in a name is none");
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0' || out == NAME_BYTES - 1)
            return wi_lines_wrong(&r->lines, "a name has a 0 in it, or is longer than 1023 bytes");
        name[out++] = c;
    }
    name[out] = '\0';
    return WEIR_OK;
}

/* What a door refused breaks the format. */
static weir_status through(const reader *r, weir_status status)
{
    return status == WEIR_OK || status == WEIR_ERR_SYSTEM ? status : wi_lines_prefix(&r->lines, WEIR_ERR_CORRUPT);
}

static weir_status read_buffer(reader *r)
{
    enum { BYTES, BEGIN, END, ALIGNMENT, KIND, PERSISTENT, FIXED, OFFSET, SHARING, OF, VIEW, PLACE, ROOT, COUNT };
    uint64_t n[COUNT];
    char name[NAME_BYTES];
    weir_status status = read_numbers(r, n, COUNT);
    if (status == WEIR_OK)
        status = plan_file_read_name(r, name);
    if (status != WEIR_OK)
        return status;
    if (n[BYTES] > INT64_MAX || n[PLACE] > INT64_MAX - n[BYTES] || (n[BYTES] == 0 && n[PLACE] > 0))
        return wi_lines_wrong(&r->lines, "its bytes and its place are beyond 63 bits, or it is empty and has a place");
    if (n[KIND] >= WEIR_KIND_COUNT || n[PERSISTENT] > 1 || n[FIXED] > 1 || n[SHARING] > WEIR_SHARING_IN_PLACE ||
        n[OF] >= WEIR_BUFFERS_MAX || n[ROOT] >= r->count)
        return wi_lines_wrong(&r->lines, "a number is larger than it can be");
    weir_buffer b = {.struct_size = sizeof b, .name = name, .bytes = n[BYTES], .begin = n[BEGIN], .end = n[END]};
    b.alignment = n[ALIGNMENT];
    b.kind = (weir_kind)n[KIND];
    b.persistent = n[PERSISTENT];
    b.fixed = n[FIXED];
    b.offset = n[OFFSET];
    b.sharing = (weir_sharing)n[SHARING];
    b.of = (uint32_t)n[OF];
    b.view_offset = n[VIEW];
    if (!wi_room_for((void **)&r->slots, sizeof *r->slots, &r->slots_room, r->buffers->count + 1))
        return plan_file_no_memory(r);
    r->slots[r->buffers->count] = (slot){n[PLACE], (uint32_t)n[ROOT]};
    return through(r, weir_buffers_add(r->buffers, &b, NULL));
}

static weir_status plan_file_read_gap(reader *r)
{
    uint64_t n[3] = {0};
    weir_status status = read_numbers(r, n, 3);
    if (status != WEIR_OK)
        return status;
    return n[0] < r->buffers->count ? through(r, weir_buffers_gap(r->buffers, (uint32_t)n[0], n[1], n[2]))
                                    : wi_lines_wrong(&r->lines, "a gap of a buffer that is not there");
}

static weir_status read_conflict(reader *r)
{
    uint64_t n[2];
    weir_status status = read_numbers(r, n, 2);
    if (status != WEIR_OK)
        return status;
    return n[0] < r->buffers->count && n[1] < r->buffers->count
               ? through(r, weir_buffers_conflict(r->buffers, (uint32_t)n[0], (uint32_t)n[1]))
               : wi_lines_wrong(&r->lines, "a conflict with a buffer that is not there");
}

static weir_status plan_file_read_steps(reader *r)
{
    uint64_t n;
    while (r->at < r->end) {
        weir_status status = read_numbers(r, &n, 1);
        if (status != WEIR_OK)
            return status;
        if (n > UINT32_MAX)
            return wi_lines_wrong(&r->lines, "a number is larger than it can be");
        if (!wi_room_for((void **)&r->schedule, sizeof *r->schedule, &r->schedule_room, r->steps + 1))
            return plan_file_no_memory(r);
        r->schedule[r->steps++] = (uint32_t)n;
    }
    return WEIR_OK;
}

static weir_status plan_file_read_line(reader *r, const char *word, size_t length)
{
    static const struct {
        const char *word;
        weir_status (*read)(reader *r);
    } kinds[] = {{"buffer", read_buffer},
                 {"gap", plan_file_read_gap},
                 {"conflict", read_conflict},
                 {"schedule", plan_file_read_steps}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strlen(kinds[i].word) == length && memcmp(kinds[i].word, word, length) == 0) {
            weir_status status = kinds[i].read(r);
            return status == WEIR_OK && r->at < r->end ? wi_lines_wrong(&r->lines, "more words than it has") : status;
        }
    return wi_lines_wrong(&r->lines, "\"%.*s\" is no kind of line", (int)wi_min(length, 40), word);
}

static bool line_is(const reader *r, const char *text)
{
    return r->lines.length == strlen(text) && memcmp(r->lines.text, text, r->lines.length) == 0;
}

static weir_status plan_file_read_head(reader *r)
{
    uint64_t n[3] = {0};
    const char *word;
    size_t length;
    if (!wi_lines_next(&r->lines) || !line_is(r, WI_PLAN_FIRST_LINE))
        return wi_lines_wrong(&r->lines, "this is no plan; one begins with the line %s", WI_PLAN_FIRST_LINE);
    if (!wi_lines_next(&r->lines))
        return wi_lines_wrong(&r->lines, "it ends too soon");
    r->at = r->lines.text;
    r->end = r->at + r->lines.length;
    if (!next_word(r, &word, &length) || length != 4 || memcmp(word, "plan", 4) != 0)
        return wi_lines_wrong(&r->lines, "the line \"plan\" is missing");
    weir_status status = read_numbers(r, n, 3);
    if (status != WEIR_OK)
        return status;
    if (n[0] > WEIR_BUFFERS_MAX || !wi_power_of_two(n[1]) || n[2] > 1 || r->at < r->end)
        return wi_lines_wrong(&r->lines, "a number is larger than it can be, or the alignment no power of two");
    r->count = n[0];
    r->alignment = n[1];
    r->proven = n[2];
    return WEIR_OK;
}

/* Checks the last line, the checksum of the lines before. */
static weir_status read_sum(const reader *r, const char *text)
{
    char wanted[32];
    snprintf(wanted, sizeof wanted, "sum %016llx", (unsigned long long)wi_fnv1a(text, (size_t)(r->lines.text - text)));
    if (!line_is(r, wanted))
        return wi_lines_wrong(&r->lines, "the sum over the text is another: it was changed, or is not all there");
    if (r->lines.end[-1] != '\n')
        return wi_lines_wrong(&r->lines, "it ends within a line");
    return r->lines.next == r->lines.end ? WEIR_OK : wi_lines_wrong(&r->lines, "something comes behind the sum");
}

static weir_status plan_file_read_text(reader *r, const char *text)
{
    const char *word;
    size_t length;
    weir_status status = plan_file_read_head(r);
    while (status == WEIR_OK) {
        if (!wi_lines_next(&r->lines))
            return wi_lines_wrong(&r->lines, "it ends without the line \"sum\"");
        r->at = r->lines.text;
        r->end = r->at + r->lines.length;
        if (!next_word(r, &word, &length))
            return wi_lines_wrong(&r->lines, "an empty line");
        if (length == 3 && memcmp(word, "sum", 3) == 0)
            break;
        status = plan_file_read_line(r, word, length);
    }
    if (status == WEIR_OK)
        status = read_sum(r, text);
    if (status == WEIR_OK && r->buffers->count != r->count)
        status = wi_lines_wrong(&r->lines, "%zu buffers, not %llu", r->buffers->count, (unsigned long long)r->count);
    if (status == WEIR_OK && r->steps > 0)
        status = through(r, weir_buffers_schedule(r->buffers, r->schedule, r->steps));
    return status;
}

/* What all kinds take together has to be a number, too. */
static weir_status check_sum(const reader *r, const weir_plan *plan)
{
    uint64_t sum = 0;
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        if (plan->arenas[kind] > INT64_MAX - sum)
            return weir_fail(WEIR_ERR_CORRUPT, "%s: its arenas add up to more than 63 bits", r->lines.name);
        else
            sum += plan->arenas[kind];
    return WEIR_OK;
}

/* Makes the plan. The lower bound is not in the text, but follows from the list; an arena as small as the bound is
 * proven. */
static weir_status make_plan(const reader *r, weir_plan *plan)
{
    wi_stores stores;
    weir_status status = through(r, wi_stores_make(r->buffers, r->alignment, &stores));
    if (status != WEIR_OK)
        return status;
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        plan->bounds[kind] = stores.problems[kind].bound;
    wi_stores_clear(&stores);
    for (size_t i = 0; i < r->count; i++) {
        plan->offsets[i] = r->slots[i].offset;
        plan->roots[i] = r->slots[i].root;
    }
    plan->summary =
        (weir_plan_details){.struct_size = sizeof plan->summary, .alignment = r->alignment, .found_by = "a saved plan"};
    wi_plan_sum_up(plan);
    plan->summary.proven = plan->summary.arena == plan->summary.lower_bound;
    plan->summary.said_proven = r->proven && !plan->summary.proven;
    status = check_sum(r, plan);
    return status == WEIR_OK ? through(r, weir_plan_check(plan, NULL)) : status;
}

weir_status wi_plan_parse(const char *text, size_t bytes, const char *name, weir_plan **out)
{
    reader r = {.lines = {.name = name, .next = text, .end = text + bytes}};
    weir_plan *plan = NULL;
    weir_status status = weir_buffers_create(&r.buffers);
    if (status == WEIR_OK)
        status = plan_file_read_text(&r, text);
    if (status == WEIR_OK) {
        plan = wi_plan_create(r.buffers);
        status = plan ? make_plan(&r, plan) : plan_file_no_memory(&r);
    }
    weir_buffers_destroy(r.buffers);
    free(r.slots);
    free(r.schedule);
    if (status == WEIR_OK)
        *out = plan;
    else
        weir_plan_destroy(plan);
    return status;
}

weir_status weir_plan_load(const char *path, weir_plan **out)
{
    char *text;
    size_t bytes;
    if (!path || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_load: NULL");
    weir_status status = wi_lines_read_file(path, &text, &bytes);
    if (status != WEIR_OK)
        return status;
    status = wi_plan_parse(text, bytes, path, out);
    free(text);
    return status;
}

/* Saving ----------------------------------------------------------------------------------------------------------- */

typedef struct text {
    char *bytes;
    size_t length, room;
    bool full; /* without host memory */
} text;

static void plan_file_add(text *t, const char *bytes, size_t length)
{
    t->full = t->full || !wi_room_for((void **)&t->bytes, 1, &t->room, t->length + length);
    if (t->full)
        return;
    memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
}

static void WEIR_PRINTF(2, 3) plan_file_print(text *t, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    plan_file_add(t, line, wi_min((uint64_t)length, sizeof line - 1));
}

/* What would end a field or a line, and what the escape begins with, as % and two digits. */
static void plan_file_add_name(text *t, const char *name)
{
    plan_file_add(t, " =", 2);
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c <= ' ' || c == '%' || c == 0x7f)
            plan_file_print(t, "%%%02x", c);
        else
            plan_file_add(t, name, 1);
    }
    plan_file_add(t, "\n", 1);
}

static void add_buffer(text *t, const weir_plan *plan, uint32_t i)
{
    const wi_buffer *b = &plan->buffers->items[i];
    plan_file_print(t, "buffer %llu %llu %llu %llu %u %u %u %llu", (unsigned long long)b->bytes,
                    (unsigned long long)b->begin, (unsigned long long)b->end, (unsigned long long)b->alignment, b->kind,
                    b->persistent, b->fixed, (unsigned long long)b->offset);
    plan_file_print(t, " %u %llu %llu %llu %u", b->sharing, b->sharing ? (unsigned long long)b->of : 0ULL,
                    (unsigned long long)b->view_offset, (unsigned long long)plan->offsets[i], plan->roots[i]);
    plan_file_add_name(t, wi_buffer_name(plan->buffers, i));
}

static void add_schedule(text *t, const weir_buffers *buffers)
{
    for (size_t i = 0; i < buffers->schedule_steps; i++)
        plan_file_print(t, i % STEPS_A_LINE == 0 ? "%sschedule %u" : "%s %u",
                        i > 0 && i % STEPS_A_LINE == 0 ? "\n" : "", buffers->schedule[i]);
    if (buffers->schedule_steps > 0)
        plan_file_add(t, "\n", 1);
}

static void add_plan(text *t, const weir_plan *plan)
{
    const weir_buffers *buffers = plan->buffers;
    plan_file_print(t, "%s\nplan %zu %llu %u\n", WI_PLAN_FIRST_LINE, buffers->count,
                    (unsigned long long)plan->summary.alignment, plan->summary.proven || plan->summary.said_proven);
    for (uint32_t i = 0; i < buffers->count; i++)
        add_buffer(t, plan, i);
    for (size_t i = 0; i < buffers->gap_count; i++)
        plan_file_print(t, "gap %u %llu %llu\n", buffers->gaps[i].buffer, (unsigned long long)buffers->gaps[i].begin,
                        (unsigned long long)buffers->gaps[i].end);
    for (size_t i = 0; i < buffers->conflict_count; i++)
        plan_file_print(t, "conflict %u %u\n", buffers->conflicts[i].one, buffers->conflicts[i].other);
    add_schedule(t, buffers);
    plan_file_print(t, "sum %016llx\n", (unsigned long long)wi_fnv1a(t->bytes, t->length));
}

/* Answers 0, or the error number of what failed first: closing may set another. */
static int plan_file_write_file(const char *path, const text *t)
{
    FILE *file = fopen(path, "wbe");
    if (!file)
        return errno;
    bool good = fwrite(t->bytes, 1, t->length, file) == t->length && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int error = good ? 0 : errno;
    return fclose(file) == 0 || !good ? error : errno;
}

/* Each writer has a file of its own beside the path, and the last rename wins. */
static weir_status replace_file(const char *path, const text *t)
{
    static atomic_uint_fast64_t writers;
    size_t length = strlen(path) + 64;
    char *beside = malloc(length);
    if (!beside)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", path);
    snprintf(beside, length, "%s.%lu.%llu.new", path, (unsigned long)getpid(),
             (unsigned long long)atomic_fetch_add(&writers, 1));
    weir_status status = WEIR_OK;
    int error = plan_file_write_file(beside, t);
    if (error == 0 && rename(beside, path) != 0)
        error = errno;
    if (error != 0) {
        status = weir_fail(error == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "saving a plan as %s: %s", path,
                           strerror(error));
        (void)unlink(beside);
    }
    free(beside);
    return status;
}

weir_status weir_plan_save(const weir_plan *plan, const char *path)
{
    if (!plan || !path)
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_save: NULL");
    text t = {0};
    add_plan(&t, plan);
    weir_status status = t.full ? weir_fail(WEIR_ERR_SYSTEM, "saving a plan: no host memory") : replace_file(path, &t);
    free(t.bytes);
    return status;
}
