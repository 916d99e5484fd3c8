/* Where a run's time goes that weir is to blame for: each call of a session's allocator, timed. */
#include <stdio.h>
#include <weir/onnxruntime.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

typedef struct timer {
    const char *name;
    uint64_t calls;
    double total, most;
} timer;

static struct {
    ort_allocator original;
    timer alloc, on_stream, release;
} watched = {.alloc = {.name = "alloc"}, .on_stream = {.name = "alloc_on_stream"}, .release = {.name = "free"}};

static void add(timer *t, double start)
{
    double took = seconds() - start;
    t->calls++;
    t->total += took;
    t->most = took > t->most ? took : t->most;
}

static void *timed_alloc(ort_allocator *self, size_t size)
{
    double start = seconds();
    void *pointer = watched.original.Alloc(self, size);
    add(&watched.alloc, start);
    return pointer;
}

static void *timed_on_stream(ort_allocator *self, size_t size, ort_stream *stream)
{
    double start = seconds();
    void *pointer = watched.original.AllocOnStream(self, size, stream);
    add(&watched.on_stream, start);
    return pointer;
}

static void timed_free(ort_allocator *self, void *pointer)
{
    double start = seconds();
    watched.original.Free(self, pointer);
    add(&watched.release, start);
}

static void print_timer(const timer *t, unsigned long runs)
{
    printf("\"%s\": {\"calls\": %.1f, \"us\": %.2f, \"us_each\": %.3f, \"us_most\": %.1f}, ", t->name,
           (double)t->calls / (double)runs, t->total * 1e6 / (double)runs,
           t->calls ? t->total * 1e6 / (double)t->calls : 0.0, t->most * 1e6);
}

/* where MODEL BATCH REST RUNS [SETTING…] */
int part_where(const bed *b, int argc, char **argv)
{
    check(argc >= 4 && !b->alone, "weir where MODEL BATCH REST RUNS [SETTING…]");
    unsigned long runs = strtoul(argv[3], NULL, 10);
    served s;
    question q;
    must(serve_try(b, argv[0], 0, (const char *const *)(argv + 4), &s), argv[0]);
    ask(&s, (shape){strtoll(argv[1], NULL, 10), strtoll(argv[2], NULL, 10)}, &q);
    for (int i = 0; i < 5; i++)
        run(&s, &q, NULL);
    ort_allocator *table = (ort_allocator *)onnx_session_stats(&s.model->slots[0]).allocators[WEIR_KIND_DEVICE];
    watched.original = *table;
    table->Alloc = timed_alloc;
    table->AllocOnStream = timed_on_stream;
    table->Free = timed_free;
    double start = seconds();
    for (unsigned long i = 0; i < runs; i++)
        run(&s, &q, NULL);
    double took = seconds() - start;
    *table = watched.original;
    printf("{\"part\": \"where\", \"model\": \"%s\", \"setting\": \"%s\", ", s.name, argc > 4 ? argv[4] : "");
    print_timer(&watched.alloc, runs);
    print_timer(&watched.on_stream, runs);
    print_timer(&watched.release, runs);
    printf("\"run_us\": %.1f}\n", took * 1e6 / (double)runs);
    ask_end(&q);
    serve_end(&s);
    return 0;
}
