/* What grew between the mark and now, and whose it is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "left.h"

enum { ROWS = 4096, SHOWN = 15, CHAIN = 12, STACKS_SHOWN = 10 };

/* What stacks with the same two libraries nearest have grown by, or with the same place nearest. */
typedef struct row {
    left_kind kind;
    const left_library *library, *caller; /* NULL: nobody knows */
    uintptr_t place;                      /* 0: any */
    int64_t bytes, blocks;
    const left_stack *most; /* of these the one that grew most */
} row;

static left_process then, now;
static row rows[ROWS];
static size_t row_count;

static int64_t grown(const left_stack *s)
{
    return s->bytes - s->bytes_then;
}

/* Up from `at`, the nearest frame of a library that is neither a runtime's nor `besides`. */
static int frame_of(const left_stack *s, int at, const left_library *besides)
{
    for (; at < s->depth; at++) {
        const left_library *l = left_library_of(s->frames[at]);
        if (!l || (!l->runtime && l != besides))
            return at;
    }
    return -1;
}

static row row_of(const left_stack *s, bool by_place)
{
    int nearest = frame_of(s, 0, NULL);
    row r = {.kind = s->kind};
    if (nearest < 0)
        return r;
    r.library = left_library_of(s->frames[nearest]);
    r.place = by_place ? s->frames[nearest] : 0;
    int next = r.library ? frame_of(s, nearest + 1, r.library) : -1;
    r.caller = next < 0 ? NULL : left_library_of(s->frames[next]);
    return r;
}

static void add(const left_stack *s, bool by_place)
{
    row r = row_of(s, by_place);
    size_t i = 0;
    while (i < row_count && (rows[i].kind != r.kind || rows[i].library != r.library || rows[i].caller != r.caller ||
                             rows[i].place != r.place))
        i++;
    if (i == ROWS)
        return;
    if (i == row_count)
        rows[row_count++] = r;
    rows[i].bytes += grown(s);
    rows[i].blocks += s->blocks - s->blocks_then;
    if (!rows[i].most || grown(s) > grown(rows[i].most))
        rows[i].most = s;
}

static int by_bytes(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void collect(bool by_place)
{
    row_count = 0;
    for (left_stack *s = left_next_stack(NULL); s; s = left_next_stack(s))
        if (grown(s) != 0 || s->blocks != s->blocks_then)
            add(s, by_place);
    qsort(rows, row_count, sizeof *rows, by_bytes);
}

/* ---- tables -------------------------------------------------------------------------------------------------------------- */

static double each(int64_t bytes, unsigned long rounds)
{
    return (double)bytes / (double)rounds;
}

static const char *name_of(const left_library *l)
{
    return l ? l->name : "-";
}

static const char *kind_of(left_kind kind)
{
    return kind == LEFT_HEAP ? "malloc" : "mmap";
}

static void tell_process(FILE *to, unsigned long rounds, int64_t heap, int64_t mapped)
{
    double kib = 1024.0 * (double)rounds;
    fprintf(to, "left by each of %lu rounds, KiB: resident %.1f (anonymous %.1f, files %.1f, shared %.1f)\n", rounds,
            (double)(now.anonymous + now.files + now.shared - then.anonymous - then.files - then.shared) / kib,
            (double)(now.anonymous - then.anonymous) / kib, (double)(now.files - then.files) / kib,
            (double)(now.shared - then.shared) / kib);
    fprintf(to,
            "malloc has of the system %.1f, has given out %.1f; asked for here %.1f; mmap %.1f; threads %+.2f, "
            "descriptors %+.2f\n",
            (double)(now.arenas - then.arenas) / kib, (double)(now.given - then.given) / kib, (double)heap / kib,
            (double)mapped / kib, each(now.threads - then.threads, rounds),
            each(now.descriptors - then.descriptors, rounds));
    if (left_lost())
        fprintf(to, "%" PRIu64 " found no room in the tables: all of this is less than it is\n", left_lost());
}

static void tell_mappings(FILE *to, unsigned long rounds)
{
    fprintf(to, "mappings that grew, KiB each round: anonymous, resident, size, how many more in all\n");
    for (size_t i = 0; i < now.mapping_count; i++) {
        const left_mapping *m = &now.mappings[i];
        left_mapping old = {.count = 0};
        for (size_t k = 0; k < then.mapping_count; k++)
            if (strcmp(then.mappings[k].name, m->name) == 0)
                old = then.mappings[k];
        if (m->resident == old.resident && m->size == old.size && m->count == old.count)
            continue;
        double kib = 1024.0 * (double)rounds;
        fprintf(to, "  %9.1f %9.1f %11.1f %6" PRId64 "  %s\n", (double)(m->anonymous - old.anonymous) / kib,
                (double)(m->resident - old.resident) / kib, (double)(m->size - old.size) / kib, m->count - old.count,
                m->name);
    }
}

static void tell_libraries(FILE *to, unsigned long rounds)
{
    fprintf(to, "bytes and blocks each round, by library, and the next one that called it\n");
    for (size_t i = 0; i < row_count && i < SHOWN; i++)
        fprintf(to, "  %11.1f %8.2f  %-6s  %s < %s\n", each(rows[i].bytes, rounds), each(rows[i].blocks, rounds),
                kind_of(rows[i].kind), name_of(rows[i].library), name_of(rows[i].caller));
}

/* Places, each with the calls above it of the stack that grew most. */
static void tell_places(FILE *to, unsigned long rounds)
{
    char text[256];
    fprintf(to, "bytes and blocks each round, by place; of the first ones the calls that grew most\n");
    for (size_t i = 0; i < row_count && i < SHOWN && rows[i].bytes > 0; i++) {
        left_place(rows[i].place, text, sizeof text);
        fprintf(to, "  %11.1f %8.2f  %-6s  %s\n", each(rows[i].bytes, rounds), each(rows[i].blocks, rounds),
                kind_of(rows[i].kind), text);
        const left_stack *s = rows[i].most;
        int shown = 0;
        for (int k = 0; i < STACKS_SHOWN && k < s->depth && shown < CHAIN; k++) {
            const left_library *l = left_library_of(s->frames[k]);
            if (l && l->runtime)
                continue;
            left_place(s->frames[k], text, sizeof text);
            fprintf(to, "%32s%s\n", "", text);
            shown++;
        }
    }
}

/* ---- what programs call ---------------------------------------------------------------------------------------------------- */

void left_mark(void)
{
    bool was = left_aside(true);
    left_libraries_look();
    left_process_read(&now); /* so that its pages are there before, too */
    left_process_read(&then);
    for (left_stack *s = left_next_stack(NULL); s; s = left_next_stack(s)) {
        s->bytes_then = s->bytes;
        s->blocks_then = s->blocks;
    }
    left_aside(was);
}

double left_report(unsigned long rounds)
{
    bool was = left_aside(true);
    int64_t heap = 0, mapped = 0;
    const char *path = getenv("LEFT_TO");
    left_process_read(&now);
    left_libraries_look();
    for (left_stack *s = left_next_stack(NULL); s; s = left_next_stack(s))
        *(s->kind == LEFT_HEAP ? &heap : &mapped) += grown(s);
    FILE *to = path ? fopen(path, "w") : NULL;
    FILE *out = to ? to : stderr;
    tell_process(out, rounds, heap, mapped);
    tell_mappings(out, rounds);
    collect(false);
    tell_libraries(out, rounds);
    collect(true);
    tell_places(out, rounds);
    if (to)
        fclose(to);
    left_aside(was);
    return each(heap, rounds);
}
