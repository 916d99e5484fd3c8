/* Plans as text: a line for each buffer, gap and conflict, the schedule, and a sum over all of it at the end. */
#include "planner/plan.h"
#include "planner/plan_text.h"
#include "base/internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

typedef struct text {
    char *bytes;
    size_t length, room;
    bool full; /* without host memory */
} text;

static void add(text *t, const char *bytes, size_t length)
{
    t->full = t->full || !wi_room_for((void **)&t->bytes, 1, &t->room, t->length + length);
    if (t->full)
        return;
    memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
}

static void WEIR_PRINTF(2, 3) print(text *t, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    add(t, line, wi_min((uint64_t)length, sizeof line - 1));
}

/* What would end a field or a line, and what the escape begins with, as % and two digits. */
static void add_name(text *t, const char *name)
{
    add(t, " =", 2);
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c <= ' ' || c == '%' || c == 0x7f)
            print(t, "%%%02x", c);
        else
            add(t, name, 1);
    }
    add(t, "\n", 1);
}

static void add_buffer(text *t, const weir_plan *plan, uint32_t i)
{
    const wi_buffer *b = &plan->buffers->items[i];
    print(t, "buffer %llu %llu %llu %llu %u %u %u %llu", (unsigned long long)b->bytes, (unsigned long long)b->begin,
          (unsigned long long)b->end, (unsigned long long)b->alignment, b->kind, b->persistent, b->fixed,
          (unsigned long long)b->offset);
    print(t, " %u %llu %llu %llu %u", b->sharing, b->sharing ? (unsigned long long)b->of : 0ULL,
          (unsigned long long)b->view_offset, (unsigned long long)plan->offsets[i], plan->roots[i]);
    add_name(t, wi_buffer_name(plan->buffers, i));
}

static void add_schedule(text *t, const weir_buffers *buffers)
{
    for (size_t i = 0; i < buffers->schedule_steps; i++)
        print(t, i % WI_PLAN_STEPS_A_LINE == 0 ? "%sschedule %u" : "%s %u",
              i > 0 && i % WI_PLAN_STEPS_A_LINE == 0 ? "\n" : "", buffers->schedule[i]);
    if (buffers->schedule_steps > 0)
        add(t, "\n", 1);
}

static void add_plan(text *t, const weir_plan *plan)
{
    const weir_buffers *buffers = plan->buffers;
    print(t, "%s\nplan %zu %llu %u\n", WI_PLAN_FIRST_LINE, buffers->count, (unsigned long long)plan->summary.alignment,
          plan->summary.proven || plan->summary.said_proven);
    for (uint32_t i = 0; i < buffers->count; i++)
        add_buffer(t, plan, i);
    for (size_t i = 0; i < buffers->gap_count; i++)
        print(t, "gap %u %llu %llu\n", buffers->gaps[i].buffer, (unsigned long long)buffers->gaps[i].begin,
              (unsigned long long)buffers->gaps[i].end);
    for (size_t i = 0; i < buffers->conflict_count; i++)
        print(t, "conflict %u %u\n", buffers->conflicts[i].one, buffers->conflicts[i].other);
    add_schedule(t, buffers);
    print(t, "sum %016llx\n", (unsigned long long)wi_plan_text_sum(t->bytes, t->length));
}

uint64_t wi_plan_text_sum(const char *bytes, size_t length)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* Answers 0, or the error number of what failed first: closing may set another. */
static int write_file(const char *path, const text *t)
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
        return weir_fail(WEIR_SYSTEM, "%s: no host memory", path);
    snprintf(beside, length, "%s.%lu.%llu.new", path, (unsigned long)getpid(),
             (unsigned long long)atomic_fetch_add(&writers, 1));
    weir_status status = WEIR_OK;
    int error = write_file(beside, t);
    if (error == 0 && rename(beside, path) != 0)
        error = errno;
    if (error != 0) {
        status =
            weir_fail(error == ENOENT ? WEIR_NOT_FOUND : WEIR_SYSTEM, "saving a plan as %s: %s", path, strerror(error));
        (void)unlink(beside);
    }
    free(beside);
    return status;
}

weir_status weir_plan_save(const weir_plan *plan, const char *path)
{
    if (!plan || !path)
        return weir_fail(WEIR_INVALID, "weir_plan_save: NULL");
    text t = {0};
    add_plan(&t, plan);
    weir_status status = t.full ? weir_fail(WEIR_SYSTEM, "saving a plan: no host memory") : replace_file(path, &t);
    free(t.bytes);
    return status;
}
