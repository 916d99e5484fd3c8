/* Another process takes memory of the device and goes, again and again, while weir has nearly all of it: how long it waits for what
 * weir gives back, and whether either side is ever out of memory.
 *
 *     bench-hog [--mib 40960] [--piece 1024] [--rounds 100] [--clients 4] [--client 16384] [--reserve 2048] [--budget 0] [--ask]
 *
 * The other process is plain CUDA: it takes --mib in pieces of --piece, and waits before each until so much is free, as it finds
 * by cuMemGetInfo. With --ask it takes all in one piece, after weir was asked for that much (weir_yield). Here there are --clients idle
 * clients of --client MiB of weights with copies made before, what is left of the budget in one that is busy, and one with a
 * guaranteed 64 MiB that allocates and frees all the time. When the other has gone, each idle client is used, and its bytes are
 * looked at. Prints a table; the exit status is 1 when either side was out of memory, or a byte is another. */
#include <weir/outside.h>
#include <weir/weir.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum {
    MOST_CLIENTS = 64,
    MOST_PIECES = 1024,
    LOOK = 1 << 20,
    SMALL_MIB = 64,
    PARTS = 4,
    MARGIN_MIB = 8,
    LONGEST_S = 60,
    STEADY_S = 60,
    ASKED_S = 5 /* less than a question is held */
};

static uint64_t hog_bytes = 40960, piece_bytes = 1024, client_bytes = 16384, reserve = 2048, budget, rounds = 100,
                clients = 4, small_bytes;
static bool asks;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void rest(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "bench-hog: %s: %s\n", what, weir_detail());
    exit(1);
}
#define MUST(call) must((call) == WEIR_OK, #call)

/* The other process ------------------------------------------------------------------------------------------------ */

/* What it answers to a word: 't' takes all, 'g' gives all back. */
typedef struct told {
    double longest, all; /* seconds: that a piece took to be there; that all took */
    uint64_t failures;   /* cuMemAlloc that failed although so much was free */
    uint64_t missing;    /* pieces that never were free */
} told;

static struct {
    int (*init)(unsigned flags), (*device_get)(int *device, int ordinal), (*retain)(void **context, int device),
        (*push)(void *context), (*info)(size_t *available, size_t *total), (*alloc)(uint64_t *address, size_t bytes),
        (*release)(uint64_t address);
} cu;

static bool hog_open(void)
{
    int (*find)(const char *, void **, int, unsigned long long, int *) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context;
    int device, found = 1;
    if (!library)
        return false;
    *(void **)&find = dlsym(library, "cuGetProcAddress_v2");
    const struct {
        const char *name;
        void *at;
    } wanted[] = {
        {"cuInit", &cu.init},           {"cuDeviceGet", &cu.device_get}, {"cuDevicePrimaryCtxRetain", &cu.retain},
        {"cuCtxPushCurrent", &cu.push}, {"cuMemGetInfo", &cu.info},      {"cuMemAlloc", &cu.alloc},
        {"cuMemFree", &cu.release}};
    for (size_t i = 0; find && i < sizeof wanted / sizeof *wanted && found; i++)
        found = find(wanted[i].name, wanted[i].at, 12000, 0, NULL) == 0 && *(void **)wanted[i].at;
    return find && found && cu.init(0) == 0 && cu.device_get(&device, 0) == 0 && cu.retain(&context, device) == 0 &&
           cu.push(context) == 0;
}

/* Waits until so much is free; false: that never was. */
static bool hog_wait(uint64_t bytes)
{
    size_t available = 0, total;
    for (double end = now() + LONGEST_S; now() < end;) {
        if (cu.info(&available, &total) == 0 && available >= bytes)
            return true;
        rest(1);
    }
    return false;
}

static told hog_take(uint64_t *pieces, size_t *count)
{
    told t = {0};
    uint64_t piece = asks ? hog_bytes : piece_bytes;
    double began = now();
    for (uint64_t got = 0; got < hog_bytes && *count < MOST_PIECES; got += piece) {
        double start = now();
        if (!asks && !hog_wait(piece + MARGIN_MIB * MIB)) {
            t.missing++;
            break;
        }
        if (cu.alloc(&pieces[*count], piece) == 0)
            ++*count;
        else
            t.failures++;
        double took = now() - start;
        t.longest = took > t.longest ? took : t.longest;
    }
    t.all = now() - began;
    return t;
}

static void hog_run(int in, int out)
{
    static uint64_t pieces[MOST_PIECES];
    size_t count = 0;
    char word = hog_open() ? 'y' : 'n';
    while (write(out, &word, 1) == 1 && read(in, &word, 1) == 1) {
        told t = {0};
        if (word == 't')
            t = hog_take(pieces, &count);
        else
            while (count > 0)
                t.failures += cu.release(pieces[--count]) != 0;
        if (write(out, &t, sizeof t) != sizeof t)
            break;
    }
    _exit(0);
}

static int to_hog, from_hog;

static told hog_does(char word)
{
    told t = {0};
    char again;
    must(write(to_hog, &word, 1) == 1 && read(from_hog, &t, sizeof t) == sizeof t && read(from_hog, &again, 1) == 1,
         "the other process is gone");
    return t;
}

/* weir ------------------------------------------------------------------------------------------------------------- */

typedef struct idle {
    weir_client *client;
    void *block;
} idle;

static weir_runtime *runtime;
static idle all[MOST_CLIENTS];
static atomic_bool over;
static atomic_uint_fast64_t refused, served;

static const weir_suspend_options how = {.struct_size = sizeof how, .unwritten = 1u << WEIR_CLASS_WEIGHTS};

static weir_client *open_client(const char *name, uint64_t guaranteed)
{
    weir_client_options options = {.struct_size = sizeof options, .name = name, .guaranteed = guaranteed};
    weir_client *client;
    MUST(weir_client_create(runtime, &options, &client));
    return client;
}

static void *work(void *user)
{
    weir_client *client = user;
    while (!atomic_load(&over)) {
        void *block;
        weir_status status = weir_alloc(client, small_bytes / PARTS, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &block);
        atomic_fetch_add(status == WEIR_OK ? &served : &refused, 1);
        if (status == WEIR_OK)
            MUST(weir_free(client, block, WEIR_STREAM_HOST));
        rest(1);
    }
    return NULL;
}

/* A part at each end of the block; every byte is the same. */
static bool is_whole(const idle *one, uint8_t value)
{
    static unsigned char seen[LOOK];
    const char *const places[] = {one->block, (char *)one->block + client_bytes - LOOK};
    for (int i = 0; i < 2; i++) {
        memset(seen, value + 1, sizeof seen);
        MUST(weir_copy(runtime, seen, places[i], sizeof seen, WEIR_STREAM_HOST));
        if (seen[0] != value || memcmp(seen, seen + 1, sizeof seen - 1) != 0)
            return false;
    }
    return true;
}

static void load(void)
{
    for (uint64_t i = 0; i < clients; i++) {
        all[i].client = open_client("idle", 0);
        MUST(weir_alloc(all[i].client, client_bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &all[i].block));
        MUST(weir_fill(runtime, all[i].block, (uint8_t)(i + 1), client_bytes, WEIR_STREAM_HOST));
        MUST(weir_client_suspend(all[i].client, &how, NULL)); /* the copies */
        MUST(weir_client_resume(all[i].client, WEIR_STREAM_HOST));
        MUST(weir_client_idle(all[i].client, &how));
    }
}

/* Takes what the budget has left, so that the other has to wait. */
static void fill_up(weir_client *client)
{
    weir_stats stats = {.struct_size = sizeof stats};
    void *block;
    MUST(weir_snapshot(runtime, &stats, NULL, 0, NULL));
    uint64_t taken = stats.live + stats.pending + 2 * small_bytes;
    if (stats.budget > taken)
        MUST(weir_alloc(client, (stats.budget - taken) / (2 * MIB) * (2 * MIB), WEIR_STREAM_HOST, WEIR_CLASS_OTHER,
                        &block));
}

static weir_outside outside(void)
{
    weir_outside o = {.struct_size = sizeof o};
    MUST(weir_outside_info(runtime, &o));
    return o;
}

/* Uses all idle clients once. Returns how many could not come back, or are not what they were. */
static uint64_t use_all(uint64_t *wrong)
{
    uint64_t failures = 0;
    for (uint64_t i = 0; i < clients; i++) {
        if (weir_client_busy(all[i].client, WEIR_STREAM_HOST) == WEIR_OK)
            *wrong += !is_whole(&all[i], (uint8_t)(i + 1));
        else
            failures++;
        MUST(weir_client_idle(all[i].client, &how));
    }
    return failures;
}

typedef struct worst {
    double piece, all, steady, back;
    uint64_t hog, missing, here, wrong;
} worst;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void take_once(worst *w)
{
    double start = now();
    if (asks) {
        /* the table tells how long that took */
        weir_yield_options o = {.struct_size = sizeof o, .bytes = hog_bytes, .wait = UINT64_C(1000000000) * ASKED_S};
        weir_yielded y = {.struct_size = sizeof y};
        MUST(weir_yield(runtime, &o, &y));
        w->missing += y.lacks > 0;
        if (y.lacks > 0)
            printf("asked in vain: %llu bytes are lacking, %llu are free; held %llu, live %llu, pending %llu, unused "
                   "%llu; "
                   "%llu clients left %s\n",
                   (unsigned long long)y.lacks, (unsigned long long)y.available, (unsigned long long)y.held,
                   (unsigned long long)y.live, (unsigned long long)y.pending, (unsigned long long)y.unused,
                   (unsigned long long)y.clients, y.why);
    }
    double asked = now() - start;
    told t = hog_does('t');
    w->piece = larger(w->piece, t.longest + asked);
    w->all = larger(w->all, t.all + asked);
    w->hog += t.failures;
    w->missing += t.missing;
}

static void give_once(worst *w)
{
    hog_does('g');
    double start = now();
    for (weir_outside o = outside(); o.allowed < o.budget && now() < start + STEADY_S; o = outside())
        rest(1);
    while (now() < start + STEADY_S && outside().rises == 0)
        rest(1);
    weir_runtime_details d = {.struct_size = sizeof d};
    do {
        MUST(weir_runtime_info(runtime, &d));
        rest(1);
    } while (d.budget < outside().budget && now() < start + STEADY_S);
    w->steady = larger(w->steady, now() - start);
    w->here += use_all(&w->wrong);
    w->back = larger(w->back, now() - start);
}

static void print(const worst *w)
{
    weir_outside o = outside();
    printf("%-62s %10.1f ms\n",
           asks ? "longest from the question until the other had all" : "longest wait of the other for a piece",
           w->piece * 1e3);
    printf("%-62s %10.1f ms\n", "longest until it had all", w->all * 1e3);
    printf("%-62s %10.1f ms\n", "longest from its end until the budget was whole", w->steady * 1e3);
    printf("%-62s %10.1f ms\n", "longest from its end until all clients were used again", w->back * 1e3);
    printf("%-62s %10llu\n", "out of memory, in the other", (unsigned long long)w->hog);
    printf("%-62s %10llu\n", "pieces that were never free", (unsigned long long)w->missing);
    printf("%-62s %10llu\n", "out of memory, here: clients that came back", (unsigned long long)w->here);
    printf("%-62s %10llu of %llu\n", "out of memory, here: small blocks", (unsigned long long)atomic_load(&refused),
           (unsigned long long)(atomic_load(&refused) + atomic_load(&served)));
    printf("%-62s %10llu\n", "clients with other bytes", (unsigned long long)w->wrong);
    printf("%-62s %10.1f GiB in %llu suspends, %llu looks\n", "given back in all",
           (double)o.given / (double)(1024 * MIB), (unsigned long long)o.suspends, (unsigned long long)o.looks);
}

/* Arguments and all ------------------------------------------------------------------------------------------------ */

static void read_arguments(int argc, char **argv)
{
    const struct {
        const char *name;
        uint64_t *value, unit;
    } words[] = {{"--mib", &hog_bytes, MIB}, {"--piece", &piece_bytes, MIB},   {"--rounds", &rounds, 1},
                 {"--clients", &clients, 1}, {"--client", &client_bytes, MIB}, {"--reserve", &reserve, MIB},
                 {"--budget", &budget, MIB}};
    enum { WORDS = sizeof words / sizeof *words };
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        while (k < WORDS && strcmp(argv[i], words[k].name) != 0)
            k++;
        if (strcmp(argv[i], "--ask") == 0)
            asks = true;
        else if (k < WORDS && i + 1 < argc)
            *words[k].value = strtoull(argv[++i], NULL, 10);
        else {
            fprintf(stderr, "bench-hog: what is %s?\n", argv[i]);
            exit(2);
        }
    }
    for (int i = 0; i < WORDS; i++)
        *words[i].value *= words[i].unit;
    small_bytes = client_bytes / PARTS < SMALL_MIB * MIB ? client_bytes / PARTS : SMALL_MIB * MIB;
    if (clients > MOST_CLIENTS || client_bytes < LOOK || piece_bytes == 0)
        exit(2);
}

/* Before weir and CUDA are begun, so that the two share nothing. */
static void start_hog(void)
{
    int down[2], up[2];
    char word = 'n';
    must(pipe(down) == 0 && pipe(up) == 0, "no pipe");
    if (fork() == 0) {
        close(down[1]);
        close(up[0]);
        hog_run(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    to_hog = down[1];
    from_hog = up[0];
    must(read(from_hog, &word, 1) == 1 && word == 'y', "the other process finds no CUDA");
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    start_hog();
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget};
    weir_outside_options watch = {.struct_size = sizeof watch, .reserve = reserve};
    worst w = {0};
    pthread_t worker;
    MUST(weir_runtime_create("cuda:0", &options, &runtime));
    weir_client *small = open_client("small", small_bytes);
    load();
    fill_up(open_client("busy", 0));
    MUST(weir_outside_watch(runtime, &watch));
    pthread_create(&worker, NULL, work, small);
    for (uint64_t i = 0; i < rounds; i++) {
        take_once(&w);
        rest(50);
        give_once(&w);
    }
    atomic_store(&over, true);
    pthread_join(worker, NULL);
    print(&w);
    close(to_hog);
    wait(NULL);
    return w.hog + w.missing + w.here + w.wrong + atomic_load(&refused) > 0;
}
