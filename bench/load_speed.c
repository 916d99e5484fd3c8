/* load_speed.c: how long a model takes to load, by its engine alone and through weir, by turns in one process: medians, and the median
 * of the pairs' quotients (the goal: at most 1.05 for loads of 2 ms or more).
 *
 *   bench-load-speed MODEL [--rounds N] [--cold 1] [--mmap 1] [--context N] [--threads N] [--side 1|2] [--first 1] [--device D]
 *                    [KEY=VALUE…]
 *
 * Beside it stands the time of the process's threads, which other processes change less. With --threads N both
 * sessions of ONNX Runtime have so many, and weir's level of optimization. With --side 1 the engine alone loads, with 2
 * weir, for a profile of either. Both sides have their libraries open and have loaded the model once; with --first 1 they have not, and
 * the first load in the process counts. A load is all that a program needs before its first run: of
 * ONNX Runtime a session, of llama.cpp a model and a context, of GenAI a model and a tokenizer. With --cold 1 the page cache gives
 * the model's files up before each load. llama.cpp reads the weights into memory, as the engine does; with --mmap 1 both map the file.
 * Settings are for the engine gguf, onnx or llm. With --device cuda:0 both load to that device, of ONNX Runtime and GenAI. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <weir/weir.h>
#include <weir/engine.h>
#include <weir/model.h>

#include "load_speed.h"

enum { MOST_ROUNDS = 400, SETTINGS = 16 };

typedef struct options {
    load_options load; /* what both sides load, and how */
    const char *device;
    int rounds, cold, side, first;
    weir_setting settings[SETTINGS];
    size_t setting_count;
} options;

static double now_ms(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

/* In milliseconds: of the clock, and of all threads. */
typedef struct spent {
    double wall, work;
} spent;

static spent now(void)
{
    return (spent){now_ms(CLOCK_MONOTONIC), now_ms(CLOCK_PROCESS_CPUTIME_ID)};
}

static spent since(spent start)
{
    spent end = now();
    return (spent){end.wall - start.wall, end.work - start.work};
}

static void need(weir_status status)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "bench-load-speed: %s: %s\n", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    exit(1);
}

/* ---- cold -------------------------------------------------------------------------------------------------------- */

static void forget_file(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    (void)fdatasync(file);
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
}

/* A file beside another of its folder's name may be a part of the model. */
static void forget(const char *path)
{
    char folder[600], file[900];
    struct stat about;
    snprintf(folder, sizeof folder, "%s", path);
    if (stat(path, &about) == 0 && !S_ISDIR(about.st_mode)) {
        char *slash = strrchr(folder, '/');
        snprintf(slash ? slash : folder, slash ? 1 : 2, "%s", slash ? "" : ".");
    }
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        snprintf(file, sizeof file, "%s/%s", folder, entry->d_name);
        forget_file(file);
    }
    if (list)
        closedir(list);
}

/* ---- both sides -------------------------------------------------------------------------------------------------- */

static spent load_plain(const options *o, const load_plain_side *side, void *engine)
{
    if (o->cold)
        forget(o->load.path);
    spent start = now();
    void *model = side->load(engine, o->load.path);
    spent took = since(start);
    side->unload(engine, model);
    return took;
}

static spent load_weir(const options *o)
{
    weir_model_options chosen = WEIR_INIT(weir_model_options);
    weir_model *model;
    chosen.device = o->device;
    chosen.settings = o->settings;
    chosen.setting_count = o->setting_count;
    if (o->cold)
        forget(o->load.path);
    spent start = now();
    need(weir_model_create(o->load.path, &chosen, &model));
    spent took = since(start);
    need(weir_model_destroy(model));
    return took;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

typedef struct times {
    double plain[MOST_ROUNDS], weir[MOST_ROUNDS], quotient[MOST_ROUNDS];
} times;

static void note(times *to, int round, double plain, double weir)
{
    to->plain[round] = plain;
    to->weir[round] = weir;
    to->quotient[round] = weir / plain;
}

static void print(const char *what, times *it, int count)
{
    printf("   %s: plain %9.3f ms   weir %9.3f ms   weir / plain %.3f", what, median(it->plain, count),
           median(it->weir, count), median(it->quotient, count));
}

static void compare(const options *o, const load_plain_side *side)
{
    static times wall, work;
    void *engine = side->open(&o->load);
    for (int i = o->first ? 0 : -1; i < o->rounds; i++) {
        spent took[2] = {{0}};
        for (int half = 0; half < 2; half++) {
            int ours = (i + half) & 1;
            if (o->side == 0 || o->side == ours + 1)
                took[ours] = ours ? load_weir(o) : load_plain(o, side, engine);
        }
        if (i >= 0) {
            note(&wall, i, took[0].wall, took[1].wall);
            note(&work, i, took[0].work, took[1].work);
        }
    }
    const char *name = strrchr(o->load.path, '/');
    printf("%-28s %-5s (%d rounds%s)", name && name[1] ? name + 1 : o->load.path, side->name, o->rounds,
           o->cold ? ", cold" : "");
    print("time", &wall, o->rounds);
    print("of all threads", &work, o->rounds);
    printf("\n");
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static options read_words(int argc, char **argv)
{
    options o = {.rounds = 21};
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        int *number = strcmp(argv[i], "--rounds") == 0    ? &o.rounds
                      : strcmp(argv[i], "--cold") == 0    ? &o.cold
                      : strcmp(argv[i], "--mmap") == 0    ? &o.load.mmap
                      : strcmp(argv[i], "--context") == 0 ? &o.load.context
                      : strcmp(argv[i], "--side") == 0    ? &o.side
                      : strcmp(argv[i], "--first") == 0   ? &o.first
                      : strcmp(argv[i], "--threads") == 0 ? &o.load.threads
                                                          : NULL;
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            o.device = argv[++i];
            o.load.cuda = strncmp(o.device, "cuda", 4) == 0;
        } else if (number && i + 1 < argc) {
            *number = atoi(argv[++i]);
        } else if (equals && o.load.path && o.setting_count < SETTINGS) {
            *equals = '\0';
            o.settings[o.setting_count++] = (weir_setting){argv[i], equals + 1};
        } else {
            o.load.path = argv[i];
        }
    }
    o.rounds = o.rounds < 1 ? 1 : o.rounds > MOST_ROUNDS ? MOST_ROUNDS : o.rounds;
    return o;
}

static bool ends_with(const char *text, const char *end)
{
    size_t all = strlen(text), part = strlen(end);
    return all >= part && strcmp(text + all - part, end) == 0;
}

int main(int argc, char **argv)
{
    static char context[16], threads[16];
    options o = read_words(argc, argv);
    if (!o.load.path) {
        fprintf(
            stderr,
            "usage: bench-load-speed MODEL [--rounds N] [--cold 1] [--mmap 1] [--context N] [--threads N] [--side 1|2] "
            "[--first 1] [--device D] [KEY=VALUE...]\n");
        return 2;
    }
    const load_plain_side *side = ends_with(o.load.path, ".onnx")   ? &load_plain_onnx
                                  : ends_with(o.load.path, ".gguf") ? &load_plain_gguf
                                                                    : &load_plain_llm;
    if (o.load.mmap && o.setting_count < SETTINGS)
        o.settings[o.setting_count++] = (weir_setting){"mmap", "1"};
    if (o.load.threads && o.setting_count < SETTINGS) {
        snprintf(threads, sizeof threads, "%d", o.load.threads);
        o.settings[o.setting_count++] = (weir_setting){"threads", threads};
    }
    if (o.load.context && o.setting_count < SETTINGS) {
        snprintf(context, sizeof context, "%d", o.load.context);
        o.settings[o.setting_count++] = (weir_setting){"context", context};
    }
    compare(&o, side);
    return 0;
}
