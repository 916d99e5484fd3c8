/* Plans from text. What is read goes through the same doors as what a program makes: lists by weir_buffers_add and its
 * like, the plan by weir_plan_check. */
#include "planner/lines.h"
#include "planner/plan.h"
#include "planner/plan_text.h"
#include "planner/storage.h"
#include "base/internal.h"

#include <stdio.h>

enum { NAME_BYTES = 1024 };

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

static weir_status no_memory(const reader *r)
{
    return weir_fail(WEIR_SYSTEM, "%s: no host memory", r->lines.name);
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

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static weir_status read_name(reader *r, char *name)
{
    const char *word;
    size_t length, out = 0;
    if (!next_word(r, &word, &length) || length == 0 || word[0] != '=')
        return wi_lines_wrong(&r->lines, "a name is missing");
    for (size_t i = 1; i < length; i++) {
        char c = word[i];
        if (c == '%') {
            int high = i + 1 < length ? digit(word[i + 1]) : -1, low = i + 2 < length ? digit(word[i + 2]) : -1;
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
    return status == WEIR_OK || status == WEIR_SYSTEM ? status : wi_lines_prefix(&r->lines, WEIR_CORRUPT);
}

static weir_status read_buffer(reader *r)
{
    enum { BYTES, BEGIN, END, ALIGNMENT, KIND, PERSISTENT, FIXED, OFFSET, SHARING, OF, VIEW, PLACE, ROOT, COUNT };
    uint64_t n[COUNT];
    char name[NAME_BYTES];
    weir_status status = read_numbers(r, n, COUNT);
    if (status == WEIR_OK)
        status = read_name(r, name);
    if (status != WEIR_OK)
        return status;
    if (n[BYTES] > INT64_MAX || n[PLACE] > INT64_MAX - n[BYTES] || (n[BYTES] == 0 && n[PLACE] > 0))
        return wi_lines_wrong(&r->lines, "its bytes and its place are beyond 63 bits, or it is empty and has a place");
    if (n[KIND] >= WEIR_KIND_COUNT || n[PERSISTENT] > 1 || n[FIXED] > 1 || n[SHARING] > WEIR_SHARING_IN_PLACE ||
        n[OF] >= WEIR_BUFFERS_MAX || n[ROOT] >= r->count)
        return wi_lines_wrong(&r->lines, "a number is larger than it can be");
    weir_buffer b = {.size = sizeof b, .name = name, .bytes = n[BYTES], .begin = n[BEGIN], .end = n[END]};
    b.alignment = n[ALIGNMENT];
    b.kind = (weir_kind)n[KIND];
    b.persistent = n[PERSISTENT];
    b.fixed = n[FIXED];
    b.offset = n[OFFSET];
    b.sharing = (weir_sharing)n[SHARING];
    b.of = (uint32_t)n[OF];
    b.view_offset = n[VIEW];
    if (!wi_room_for((void **)&r->slots, sizeof *r->slots, &r->slots_room, r->buffers->count + 1))
        return no_memory(r);
    r->slots[r->buffers->count] = (slot){n[PLACE], (uint32_t)n[ROOT]};
    return through(r, weir_buffers_add(r->buffers, &b, NULL));
}

static weir_status read_gap(reader *r)
{
    uint64_t n[3];
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

static weir_status read_steps(reader *r)
{
    uint64_t n;
    while (r->at < r->end) {
        weir_status status = read_numbers(r, &n, 1);
        if (status != WEIR_OK)
            return status;
        if (n > UINT32_MAX)
            return wi_lines_wrong(&r->lines, "a number is larger than it can be");
        if (!wi_room_for((void **)&r->schedule, sizeof *r->schedule, &r->schedule_room, r->steps + 1))
            return no_memory(r);
        r->schedule[r->steps++] = (uint32_t)n;
    }
    return WEIR_OK;
}

static weir_status read_line(reader *r, const char *word, size_t length)
{
    static const struct {
        const char *word;
        weir_status (*read)(reader *r);
    } kinds[] = {{"buffer", read_buffer}, {"gap", read_gap}, {"conflict", read_conflict}, {"schedule", read_steps}};
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

static weir_status read_head(reader *r)
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

/* The last line: the sum over what is before it. */
static weir_status read_sum(const reader *r, const char *text)
{
    char wanted[32];
    snprintf(wanted, sizeof wanted, "sum %016llx",
             (unsigned long long)wi_plan_text_sum(text, (size_t)(r->lines.text - text)));
    if (!line_is(r, wanted))
        return wi_lines_wrong(&r->lines, "the sum over the text is another: it was changed, or is not all there");
    if (r->lines.end[-1] != '\n')
        return wi_lines_wrong(&r->lines, "it ends within a line");
    return r->lines.next == r->lines.end ? WEIR_OK : wi_lines_wrong(&r->lines, "something comes behind the sum");
}

static weir_status read_text(reader *r, const char *text)
{
    const char *word;
    size_t length;
    weir_status status = read_head(r);
    while (status == WEIR_OK) {
        if (!wi_lines_next(&r->lines))
            return wi_lines_wrong(&r->lines, "it ends without the line \"sum\"");
        r->at = r->lines.text;
        r->end = r->at + r->lines.length;
        if (!next_word(r, &word, &length))
            return wi_lines_wrong(&r->lines, "an empty line");
        if (length == 3 && memcmp(word, "sum", 3) == 0)
            break;
        status = read_line(r, word, length);
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
            return weir_fail(WEIR_CORRUPT, "%s: its arenas add up to more than 63 bits", r->lines.name);
        else
            sum += plan->arenas[kind];
    return WEIR_OK;
}

/* The lower bound is not in the text: it follows from the list, and proves what reaches it. */
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
        (weir_plan_summary){.size = sizeof plan->summary, .alignment = r->alignment, .found_by = "a saved plan"};
    wi_plan_sum_up(plan);
    plan->summary.proven = plan->summary.arena == plan->summary.lower_bound;
    plan->summary.said_proven = r->proven && !plan->summary.proven;
    status = check_sum(r, plan);
    return status == WEIR_OK ? through(r, weir_plan_check(plan, NULL)) : status;
}

weir_status weir_plan_parse(const char *text, size_t bytes, const char *name, weir_plan **out)
{
    if ((!text && bytes > 0) || !out)
        return weir_fail(WEIR_INVALID, "weir_plan_parse: NULL");
    reader r = {.lines = {.name = name ? name : "a plan", .next = text, .end = text ? text + bytes : NULL}};
    weir_plan *plan = NULL;
    weir_status status = weir_buffers_create(&r.buffers);
    if (status == WEIR_OK)
        status = read_text(&r, text);
    if (status == WEIR_OK) {
        plan = wi_plan_create(r.buffers);
        status = plan ? make_plan(&r, plan) : no_memory(&r);
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
        return weir_fail(WEIR_INVALID, "weir_plan_load: NULL");
    weir_status status = wi_lines_read_file(path, &text, &bytes);
    if (status != WEIR_OK)
        return status;
    status = weir_plan_parse(text, bytes, path, out);
    free(text);
    return status;
}
