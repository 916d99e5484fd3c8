/* Pages of a paged cache, of which every second one is free: what one after the other costs, what many in a call of the driver's do,
 * and how fast their client leaves and comes back.
 *
 *     bench-pages [--device cuda:0] [--mib 1024] [--page-kib 64] [--rounds 7]
 *
 * Prints a table; the rates are of the bytes in pages. Every byte is looked at when it is back; the exit status is 1 when one
 * is another. */
#include "runtime/runtime.h"

#include <weir/residency.h>
#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ROUNDS = 99 };

static const char *device = "cuda:0";
static uint64_t wanted = 1024 * WI_MIB, page = UINT64_C(64) * 1024;
static int rounds = 7;

static weir_runtime *runtime;
static weir_client *cache, *beside;
static weir_stream stream;
static void *native; /* the driver's, of `stream` */

/* The pages, and where each of them is copied to in page-locked memory. */
static char **pages, *outside;
static size_t page_count;
static weir_driver_copy *out, *in;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(weir_status status, const char *what)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "bench-pages: %s: %s\n", what, weir_detail());
    exit(1);
}
#define MUST(call) must((call), #call)

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs `fn` a few times, the first time unmeasured, and prints the median of the rates. */
static double measure(const char *what, void (*fn)(void), double over)
{
    double seconds[MOST_ROUNDS] = {0};
    fn();
    for (int i = 0; i < rounds; i++) {
        double start = now();
        fn();
        seconds[i] = now() - start;
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, by_size);
    double rate = (double)(page_count * page) * 1e-9 / seconds[rounds / 2];
    printf("%-62s %7.2f GB/s", what, rate);
    if (over > 0)
        printf("  %5.3f of the link", rate / over);
    printf("\n");
    fflush(stdout);
    return rate;
}

/* Every second page stays; between two of them a free one lies. */
static void make_pages(void)
{
    char **all = calloc(2 * page_count, sizeof *all);
    pages = calloc(page_count, sizeof *pages);
    out = calloc(page_count, sizeof *out);
    in = calloc(page_count, sizeof *in);
    if (!all || !pages || !out || !in)
        exit(1);
    for (size_t i = 0; i < 2 * page_count; i++)
        MUST(weir_alloc(cache, page, WEIR_STREAM_HOST, WEIR_CLASS_KV, (void **)&all[i]));
    for (size_t i = 0; i < 2 * page_count; i++)
        if (i % 2)
            MUST(weir_free(cache, all[i], WEIR_STREAM_HOST));
        else
            pages[i / 2] = all[i];
    free(all);
    for (size_t i = 0; i < page_count; i++) {
        out[i] = (weir_driver_copy){outside + i * page, pages[i], page};
        in[i] = (weir_driver_copy){pages[i], outside + i * page, page};
    }
}

static void write_pages(void)
{
    for (size_t i = 0; i < page_count * page; i++)
        outside[i] = (char)(i / page * 37 + i * 11);
    MUST(wi_driver_copy_many(runtime->driver, runtime->device, in, page_count, NULL));
}

static void look_at_pages(void)
{
    memset(outside, 0, page_count * page);
    MUST(wi_driver_copy_many(runtime->driver, runtime->device, out, page_count, NULL));
    for (size_t i = 0; i < page_count * page; i++)
        if (outside[i] != (char)(i / page * 37 + i * 11)) {
            fprintf(stderr, "bench-pages: byte %zu of page %zu is another\n", i % page, i / page);
            exit(1);
        }
}

/* What is measured ------------------------------------------------------------------------------------------------- */

static void *whole; /* as long as all pages, in one piece of the device */

static void long_out(void)
{
    MUST(weir_copy(runtime, outside, whole, page_count * page, stream));
    MUST(weir_stream_synchronize(stream));
}

static void long_in(void)
{
    MUST(weir_copy(runtime, whole, outside, page_count * page, stream));
    MUST(weir_stream_synchronize(stream));
}

static void singly(const weir_driver_copy *copies)
{
    for (size_t i = 0; i < page_count; i++)
        MUST(runtime->driver->copy(runtime->device, copies[i].to, copies[i].from, copies[i].bytes, native));
    MUST(weir_stream_synchronize(stream));
}

static void singly_out(void)
{
    singly(out);
}

static void singly_in(void)
{
    singly(in);
}

static void many_out(void)
{
    MUST(wi_driver_copy_many(runtime->driver, runtime->device, out, page_count, native));
    MUST(weir_stream_synchronize(stream));
}

static void many_in(void)
{
    MUST(wi_driver_copy_many(runtime->driver, runtime->device, in, page_count, native));
    MUST(weir_stream_synchronize(stream));
}

static void leave(void)
{
    MUST(weir_client_suspend(cache, NULL, NULL));
}

static void come_back(void)
{
    MUST(weir_client_resume(cache, WEIR_STREAM_HOST));
}

/* Leaving and coming back take turns; each has its own times. */
static void take_turns(double link_out, double link_in)
{
    double gone[MOST_ROUNDS] = {0}, back[MOST_ROUNDS] = {0}, bytes = (double)(page_count * page) * 1e-9;
    leave();
    come_back();
    for (int i = 0; i < rounds; i++) {
        double start = now();
        leave();
        gone[i] = now() - start;
        start = now();
        come_back();
        back[i] = now() - start;
    }
    qsort(gone, (size_t)rounds, sizeof *gone, by_size);
    qsort(back, (size_t)rounds, sizeof *back, by_size);
    double away = bytes / gone[rounds / 2], here = bytes / back[rounds / 2];
    printf("%-62s %7.2f GB/s  %5.3f of the link\n", "their client is suspended, contents changed", away,
           away / link_out);
    printf("%-62s %7.2f GB/s  %5.3f of the link\n", "it is resumed, until the contents are there", here,
           here / link_in);
    printf("goal: 30 GB/s or more, both ways: %s\n", away >= 30 && here >= 30 ? "reached" : "missed");
}

static uint64_t number(const char *text, uint64_t most)
{
    unsigned long long value = strtoull(text, NULL, 10);
    if (value == 0 || value > most) {
        fprintf(stderr, "bench-pages: \"%s\" is none of 1 to %llu\n", text, (unsigned long long)most);
        exit(2);
    }
    return value;
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--device") == 0)
            device = argv[i + 1];
        else if (strcmp(argv[i], "--mib") == 0)
            wanted = number(argv[i + 1], 65536) * WI_MIB;
        else if (strcmp(argv[i], "--page-kib") == 0)
            page = number(argv[i + 1], 65536) * 1024;
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = (int)number(argv[i + 1], MOST_ROUNDS);
        else {
            fprintf(stderr, "bench-pages: %s is no option\n", argv[i]);
            exit(2);
        }
    }
    page_count = wanted / page;
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * wanted + 256 * WI_MIB};
    weir_client_options name = {.struct_size = sizeof name, .name = "cache"};
    weir_block block;
    MUST(weir_runtime_create(device, &options, &runtime));
    MUST(weir_client_create(runtime, &name, &cache));
    name.name = "beside";
    MUST(weir_client_create(runtime, &name, &beside));
    weir_request request = {.struct_size = sizeof request, .bytes = page_count * page, .kind = WEIR_KIND_PINNED};
    MUST(weir_alloc_with(beside, &request, &block));
    outside = block.pointer;
    MUST(weir_alloc(beside, page_count * page, WEIR_STREAM_HOST, WEIR_CLASS_KV, &whole));
    MUST(weir_stream_acquire(runtime, &stream));
    MUST(wi_streams_resolve_recorded(runtime, stream, "bench-pages", &native));
    make_pages();
    write_pages();
    printf("%zu pages of %llu KiB on %s, every second one of twice as many\n", page_count,
           (unsigned long long)page / 1024, device);
    double link_out = measure("one copy as long as all pages, out of the device", long_out, 0);
    double link_in = measure("into it", long_in, 0);
    measure("pages singly, out", singly_out, link_out);
    measure("pages singly, in", singly_in, link_in);
    measure("pages, many in a call, out", many_out, link_out);
    measure("pages, many in a call, in", many_in, link_in);
    look_at_pages();
    take_turns(link_out, link_in);
    look_at_pages();
    for (size_t i = 0; i < page_count; i++)
        MUST(weir_free(cache, pages[i], WEIR_STREAM_HOST));
    (void)weir_client_forget_copies(cache);
    MUST(weir_free(beside, whole, WEIR_STREAM_HOST));
    MUST(weir_free_block(beside, block, WEIR_STREAM_HOST));
    MUST(weir_stream_release(stream));
    MUST(weir_client_destroy(cache));
    MUST(weir_client_destroy(beside));
    MUST(weir_runtime_destroy(runtime));
    free(pages);
    free(out);
    free(in);
    return 0;
}
