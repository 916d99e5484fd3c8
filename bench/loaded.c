/* loaded.c: what loading costs a process that goes on: what stays behind, what more models cost, and what others feel.
 *
 *   bench-loaded cycles   [--device D] [--cycles N] MODEL…
 *   bench-loaded together [--device D] [--count N] MODEL
 *   bench-loaded beside   [--device D] [--seconds N] MODEL OTHER
 *
 * MODEL is FILE.onnx:FIRSTxREST (open extents of its inputs), FILE.gguf:PROMPT+TOKENS or, of a GenAI model, FOLDER:PROMPT+TOKENS.
 *
 * `cycles`: every model is loaded, asked and unloaded, one after the other, so often. Printed is what the process has grown
 * by between a tenth of the cycles and the last: malloc's bytes, resident anonymous pages outside weir, threads, open
 * files, and on a device what its driver says is taken, and how long that took to come back after the last unload.
 * `together`: one instance of the model, and then so many, each with an account of its own: the resident anonymous pages
 * outside weir, and what the driver says is taken beyond what weir holds.
 * `beside`: runs of MODEL for so long, alone and while OTHER is loaded and unloaded again and again on another thread, in
 * turns of a second: the 50th, 90th and 99th percentile of their times.
 *
 * Prints a line of JSON. Exit status 1: an answer was another one than the first, or memory is left in the ledger; 77: an
 * engine is not here. --answers any: for a device whose kernels compute nothing. */
#include "served.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <weir/pressure.h>

#include "cli/run/measure.h"

enum { MODELS = 16, BACK_MS = 2000, TURNS_MOST = 600 };

typedef struct bench {
    const char *device;
    uint64_t cycles, count, seconds;
    bool any_answer;
    weir_runtime *runtime;
    served models[MODELS];
    size_t given;
} bench;

/* What the process has. */
typedef struct reading {
    measure memory;
    uint64_t heap;
    int threads, files;
} reading;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    check(folder != NULL, "no /proc");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static reading read_now(const bench *b)
{
    reading now;
    WEIR(weir_runtime_trim(b->runtime, NULL, NULL));
    check(measure_now(b->runtime, &now.memory), "the system does not tell what the process has");
    struct mallinfo2 heap = mallinfo2();
    now.heap = heap.uordblks + heap.hblkhd;
    now.threads = entries("/proc/self/task");
    now.files = entries("/proc/self/fd");
    return now;
}

static uint64_t live_now(const bench *b)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    WEIR(weir_snapshot(b->runtime, &stats, NULL, 0, NULL));
    return stats.live + stats.promised;
}

static int end(bench *b)
{
    uint64_t different = 0;
    for (size_t i = 0; i < MODELS; i++) {
        different += b->models[i].different;
        served_forget(&b->models[i]);
    }
    check(live_now(b) == 0, "the ledger is not back at zero");
    check(different == 0, "answers are not the first ones");
    return 0;
}

/* ---- cycles ------------------------------------------------------------------------------------------------------ */

static void cycle(const bench *b, served *it)
{
    must(served_load(it, b->runtime), it->name);
    must(served_run(it), it->name);
    served_unload(it);
}

/* Milliseconds until the driver says that no more is taken than before, or BACK_MS. */
static double wait_until_back(const bench *b, uint64_t before)
{
    uint64_t taken = 0;
    double from = seconds_now();
    WEIR(weir_runtime_trim(b->runtime, NULL, NULL));
    while (measure_device_taken(b->runtime, &taken) && taken > before && (seconds_now() - from) * 1e3 < BACK_MS)
        usleep(500);
    return (seconds_now() - from) * 1e3;
}

static int cycles(bench *b)
{
    uint64_t warm = b->cycles / 10 + 1;
    reading first = {0}, last;
    double back = 0;
    for (uint64_t i = 0; i < b->cycles; i++) {
        if (i == warm)
            first = read_now(b);
        for (size_t k = 0; k < b->given; k++)
            cycle(b, &b->models[k]);
        if (isatty(2))
            fprintf(stderr, "\rcycle %llu of %llu ", (unsigned long long)i + 1, (unsigned long long)b->cycles);
    }
    if (measure_is_device(b->runtime))
        back = wait_until_back(b, first.memory.device);
    last = read_now(b);
    printf("{\"part\": \"cycles\", \"device\": \"%s\", \"models\": %zu, \"cycles\": %llu, \"heap\": %lld, \"outside\": "
           "%lld, "
           "\"threads\": %d, \"files\": %d, \"device_taken\": %lld, \"back_ms\": %.1f}\n",
           b->device, b->given, (unsigned long long)(b->cycles - warm), (long long)(last.heap - first.heap),
           (long long)(last.memory.anonymous - last.memory.own) -
               (long long)(first.memory.anonymous - first.memory.own),
           last.threads - first.threads, last.files - first.files,
           (long long)(last.memory.device - first.memory.device), back);
    return end(b);
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

static void print_growth(const char *name, const reading *before, const reading *after)
{
    printf("\"%s\": {\"outside\": %llu, \"device_outside\": %llu, \"heap\": %lld, \"threads\": %d}", name,
           (unsigned long long)measure_outside(&before->memory, &after->memory),
           (unsigned long long)measure_outside_device(&before->memory, &after->memory),
           (long long)(after->heap - before->heap), after->threads - before->threads);
}

static int together(bench *b)
{
    check(b->given == 1 && b->count >= 1 && b->count <= MODELS, "one model, and up to 16 of it");
    reading none = read_now(b);
    must(served_load(&b->models[0], b->runtime), b->models[0].name);
    must(served_run(&b->models[0]), b->models[0].name);
    reading one = read_now(b);
    for (uint64_t i = 1; i < b->count; i++) {
        served *it = &b->models[i];
        *it = b->models[0];
        it->input_count = 0;
        it->answer = NULL;
        must(served_load(it, b->runtime), it->name);
        must(served_run(it), it->name);
    }
    reading all = read_now(b);
    printf("{\"part\": \"together\", \"device\": \"%s\", \"count\": %llu, ", b->device, (unsigned long long)b->count);
    print_growth("one", &none, &one);
    printf(", ");
    print_growth("all", &none, &all);
    printf("}\n");
    for (uint64_t i = 0; i < b->count; i++)
        served_unload(&b->models[i]);
    return end(b);
}

/* ---- beside ------------------------------------------------------------------------------------------------------ */

typedef struct times {
    double *list;
    size_t count, capacity;
} times;

typedef struct loader {
    const bench *b;
    served *other;
    atomic_bool on, over;
    atomic_uint loads;
} loader;

static void *load_again(void *user)
{
    loader *it = user;
    while (!atomic_load(&it->over)) {
        if (!atomic_load(&it->on)) {
            usleep(1000);
            continue;
        }
        must(served_load(it->other, it->b->runtime), it->other->name);
        served_unload(it->other);
        atomic_fetch_add(&it->loads, 1);
    }
    return NULL;
}

static void add(times *to, double seconds)
{
    if (to->count == to->capacity) {
        to->capacity = 2 * to->capacity + 4096;
        to->list = realloc(to->list, to->capacity * sizeof *to->list);
        check(to->list != NULL, "no host memory");
    }
    to->list[to->count++] = seconds;
}

static void run_for_a_second(served *it, times *to)
{
    for (double from = seconds_now(), now = from; now - from < 1;) {
        must(served_run(it), it->name);
        double after = seconds_now();
        add(to, after - now);
        now = after;
    }
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const times *of, double share)
{
    return of->list ? of->list[(size_t)((double)(of->count - 1) * share)] * 1e3 : 0;
}

static void print_times(const char *name, times *of)
{
    if (of->list)
        qsort(of->list, of->count, sizeof *of->list, by_time);
    printf("\"%s\": {\"runs\": %zu, \"p50_ms\": %.4f, \"p90_ms\": %.4f, \"p99_ms\": %.4f}, ", name, of->count,
           percentile(of, 0.5), percentile(of, 0.9), percentile(of, 0.99));
}

static int beside(bench *b)
{
    served *it = &b->models[0];
    times parts[2] = {0};
    loader other = {.b = b, .other = &b->models[1]};
    pthread_t thread;
    check(b->given == 2 && b->seconds > 0 && b->seconds <= TURNS_MOST, "two models, and 1 to 600 seconds");
    must(served_load(it, b->runtime), it->name);
    must(served_run(it), it->name);
    cycle(b, other.other);
    check(pthread_create(&thread, NULL, load_again, &other) == 0, "no thread");
    for (uint64_t i = 0; i < 2 * b->seconds; i++) {
        atomic_store(&other.on, i % 2 == 1);
        run_for_a_second(it, &parts[i % 2]);
    }
    atomic_store(&other.over, true);
    pthread_join(thread, NULL);
    printf("{\"part\": \"beside\", \"device\": \"%s\", ", b->device);
    print_times("alone", &parts[0]);
    print_times("beside", &parts[1]);
    printf("\"loads\": %u, \"p99\": %.3f}\n", atomic_load(&other.loads),
           percentile(&parts[1], 0.99) / percentile(&parts[0], 0.99));
    for (int i = 0; i < 2; i++)
        free(parts[i].list);
    served_unload(it);
    return end(b);
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static bool read_option(bench *b, const char *name, const char *value)
{
    if (strcmp(name, "--device") == 0)
        b->device = value;
    else if (strcmp(name, "--cycles") == 0)
        b->cycles = strtoull(value, NULL, 10);
    else if (strcmp(name, "--count") == 0)
        b->count = strtoull(value, NULL, 10);
    else if (strcmp(name, "--seconds") == 0)
        b->seconds = strtoull(value, NULL, 10);
    else if (strcmp(name, "--answers") == 0)
        b->any_answer = strcmp(value, "any") == 0;
    else
        return false;
    return true;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        int (*run)(bench *b);
    } parts[] = {{"cycles", cycles}, {"together", together}, {"beside", beside}};
    static bench b = {.device = "cuda:0", .cycles = 100, .count = 8, .seconds = 10};
    int (*part)(bench *) = NULL;
    for (size_t i = 0; count > 1 && i < sizeof parts / sizeof *parts; i++)
        part = strcmp(words[1], parts[i].name) == 0 ? parts[i].run : part;
    bool good = part != NULL;
    for (int i = 2; i < count && good; i++) {
        if (strncmp(words[i], "--", 2) == 0) {
            good = i + 1 < count && read_option(&b, words[i], words[i + 1]);
            i++;
        } else if ((good = b.given < MODELS)) {
            served_read(&b.models[b.given++], words[i]);
        }
    }
    if (!good || b.given == 0 || b.cycles < 2) {
        fprintf(stderr, "usage: bench-loaded cycles|together|beside [--device D] [--cycles N] … MODEL…\n");
        return 2;
    }
    WEIR(weir_runtime_get(b.device, NULL, &b.runtime));
    for (size_t i = 0; i < b.given; i++)
        b.models[i].any_answer = b.any_answer;
    return part(&b);
}
