/* More than a pair: a neighbour, more models than fit, and models that change places while CUDA's functions fail. */
#include "residency.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A neighbour ------------------------------------------------------------------------------------------------------ */

enum { MOST_SEEN = 100000 };

typedef struct neighbour {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    weir_block from, to;
    uint64_t bytes;
    atomic_bool stop;
    double work[MOST_SEEN], calls[MOST_SEEN];
    int seen;
} neighbour;

/* Work within the device that its memory bounds, and allocations beside. */
static void *live_beside(void *user)
{
    neighbour *n = user;
    for (n->seen = 0; !atomic_load(&n->stop) && n->seen < MOST_SEEN; n->seen++) {
        double start = now();
        MUST(weir_copy(n->runtime, n->to.pointer, n->from.pointer, n->bytes, n->stream));
        MUST(weir_stream_synchronize(n->stream));
        n->work[n->seen] = now() - start;
        void *block;
        start = now();
        MUST(weir_alloc(n->client, 3 * MIB + 512 * (uint64_t)(n->seen % 7), n->stream, WEIR_CLASS_SCRATCH, &block));
        MUST(weir_free(n->client, block, n->stream));
        n->calls[n->seen] = now() - start;
    }
    return NULL;
}

static void open_neighbour(weir_runtime *runtime, neighbour *n)
{
    weir_client_options options = {.struct_size = sizeof options, .name = "neighbour"};
    weir_request request = {.struct_size = sizeof request, .bytes = asked.model_bytes / 16};
    n->runtime = runtime;
    n->bytes = asked.model_bytes / 16;
    MUST(weir_client_create(runtime, &options, &n->client));
    MUST(weir_stream_acquire(runtime, &n->stream));
    MUST(weir_alloc_with(n->client, &request, &n->from));
    MUST(weir_alloc_with(n->client, &request, &n->to));
}

static void close_neighbour(neighbour *n)
{
    MUST(weir_free_block(n->client, n->from, n->stream));
    MUST(weir_free_block(n->client, n->to, n->stream));
    MUST(weir_stream_release(n->stream));
    MUST(weir_client_destroy(n->client));
}

/* For a second and a half of which a model moves in the second part: the first time with copies that are made, then with those that
 * are there. */
void beside(weir_runtime *runtime)
{
    static neighbour n;
    static model m;
    double work[2];
    open_neighbour(runtime, &n);
    load(runtime, &m, "model", asked.model_bytes, 4);
    for (int moving = 0; moving < 2; moving++) {
        pthread_t thread;
        atomic_store(&n.stop, false);
        if (pthread_create(&thread, NULL, live_beside, &n) != 0)
            abort();
        for (double end = now() + 1; now() < end;)
            if (moving) {
                (void)suspend(&m, &changed);
                (void)resume(&m);
            }
        atomic_store(&n.stop, true);
        pthread_join(thread, NULL);
        work[moving] = median(n.work, n.seen);
    }
    double calls = 1e3 * quantile(n.calls, n.seen, 0.99);
    line("a neighbour's work in device memory beside, over alone", work[1] / work[0], "x", 0, NULL);
    line("a neighbour's allocation and free beside, 99 of 100", calls, "ms", 0, NULL);
    goal("a neighbour's work beside, over alone", work[1] / work[0], "x", 1.05, true);
    goal("a neighbour's allocation and free beside, 99 of 100", calls, "ms", 1, true);
    check(runtime, &m, UINT64_MAX);
    unload(&m);
    close_neighbour(&n);
}

/* Turns ------------------------------------------------------------------------------------------------------------ */

static model fleet[MOST_MODELS];
static int loaded;

/* Suspends the model that was used longest ago. */
static void make_room(const weir_pressure *pressure, void *user)
{
    model *oldest = NULL;
    (void)user;
    for (int i = 0; i < loaded; i++) {
        weir_residency r = {.struct_size = sizeof r};
        MUST(weir_client_residency(fleet[i].client, &r));
        if (fleet[i].client != pressure->client && r.state == WEIR_RESIDENT &&
            (!oldest || fleet[i].used < oldest->used))
            oldest = &fleet[i];
    }
    if (oldest)
        (void)suspend(oldest, &unwritten);
}

/* Bytes of the host's memory that can still be had: of the machine, or of the group of processes. */
static uint64_t host_has(void)
{
    uint64_t available = UINT64_MAX, most = 0, used = 0;
    char text[128];
    FILE *file = fopen("/proc/meminfo", "r");
    for (unsigned long long kib; file && fgets(text, sizeof text, file);)
        if (sscanf(text, "MemAvailable: %llu", &kib) == 1)
            available = kib * 1024;
    if (file)
        fclose(file);
    for (int i = 0; i < 2; i++) {
        file = fopen(i ? "/sys/fs/cgroup/memory.current" : "/sys/fs/cgroup/memory.max", "r");
        unsigned long long bytes = 0;
        if (file && fscanf(file, "%llu", &bytes) == 1)
            *(i ? &used : &most) = bytes;
        if (file)
            fclose(file);
    }
    return most > used && most - used < available ? most - used : available;
}

/* As many models as were asked for, or of as many the host can hold the copies beside what else it does. */
static int models_that_fit(void)
{
    uint64_t most = host_has() / 10 * 8 / asked.model_bytes;
    if (most >= (uint64_t)asked.models)
        return asked.models;
    printf("  (the host has memory for the copies of %d models of the %d)\n", (int)most, asked.models);
    return (int)most;
}

/* All are there once, so that each has a copy. */
static void load_fleet(weir_runtime *runtime, int count)
{
    for (loaded = 0; loaded < count; loaded++) {
        char name[24];
        snprintf(name, sizeof name, "model %d", loaded);
        load(runtime, &fleet[loaded], name, asked.model_bytes, (uint8_t)(loaded + 10));
        fleet[loaded].used = (uint64_t)loaded;
    }
    for (int i = 0; i < count; i++) {
        (void)resume(&fleet[i]);
        fleet[i].used = (uint64_t)count + (uint64_t)i;
    }
}

/* Bytes that came back, how often something did, and the seconds of that: of resumes with the suspends in them, not of the looks
 * at the answers. */
static uint64_t take_turns(weir_runtime *runtime, int count, int *resumes, double *took)
{
    uint64_t moved = 0, random = 5;
    for (int turn = 0; turn < asked.turns; turn++) {
        model *m = &fleet[next_random(&random) % (uint64_t)count];
        weir_residency r = {.struct_size = sizeof r};
        MUST(weir_client_residency(m->client, &r));
        moved += r.away;
        *resumes += r.away > 0;
        m->used = 2 * (uint64_t)count + (uint64_t)turn;
        double seconds = resume(m);
        *took += seconds;
        if (turn >= asked.turns - 3 && r.away > 0)
            why_tell("a turn", seconds);
        check(runtime, m, 4096);
    }
    return moved;
}

/* More models than fit, one after the other. */
void in_turn(weir_runtime *runtime)
{
    int count = models_that_fit(), resumes = 0;
    uint64_t id;
    char what[80];
    if (count <= asked.room) {
        printf("models in turn: skipped, the host has no memory for the copies of more than %d\n", asked.room);
        return;
    }
    MUST(weir_pressure_register(runtime, 0, make_room, NULL, &id));
    load_fleet(runtime, count);
    double took = 0;
    uint64_t moved = take_turns(runtime, count, &resumes, &took);
    double rate = (double)moved / 1e9 / took;
    snprintf(what, sizeof what, "%d models in turn where %d fit, %d turns, %d resumes", count, asked.room, asked.turns,
             resumes);
    line(what, rate, "GB/s", rate / machine.in, "of the copy in");
    goal("models in turn, of the copy in", rate / machine.in, "", 0.92, false);
    for (int i = 0; i < count; i++) {
        (void)resume(&fleet[i]);
        check(runtime, &fleet[i], UINT64_MAX);
    }
    MUST(weir_pressure_unregister(runtime, id));
    for (int i = 0; i < count; i++)
        unload(&fleet[i]);
    loaded = 0;
}

/* Faults ----------------------------------------------------------------------------------------------------------- */

typedef struct changes {
    weir_runtime *runtime;
    model pair[2];
    uint64_t faults, failed, wrecks, lost;
} changes;

static weir_residency_state state_of(const model *m)
{
    weir_residency r = {.struct_size = sizeof r};
    MUST(weir_client_residency(m->client, &r));
    return r.state;
}

static weir_status leave(const model *m, const weir_suspend_options *options)
{
    weir_residency r = {.struct_size = sizeof r};
    return weir_client_suspend(m->client, options, &r);
}

/* Without faults: what a call that failed has left behind is mended, and the client is suspended or here. */
static void mend(changes *c, const model *m, bool here, const weir_suspend_options *options)
{
    weir_status status = state_of(m) == WEIR_SUSPENDED ? weir_client_resume(m->client, WEIR_STREAM_HOST) : WEIR_OK;
    if (status == WEIR_OK && !here)
        status = leave(m, options);
    if (status != WEIR_OK) {
        fprintf(stderr, "bench-residency: what failed cannot be mended: %s\n", weir_detail());
        c->wrecks++;
    }
}

/* One leaves and the other comes. From the call `at` of CUDA's on, of those that can fail, one fails, or all until the call of weir's
 * returns. Returns how many there were. */
static uint64_t change_places(changes *c, int which, uint64_t at, bool all, const weir_suspend_options *options)
{
    model *leaves = &c->pair[which % 2], *comes = &c->pair[(which + 1) % 2];
    why_plant(at, all);
    weir_status status = leave(leaves, options);
    bool struck = why_struck();
    if (struck)
        why_plant(UINT64_MAX, false);
    if (status != WEIR_OK) {
        c->failed++;
        mend(c, leaves, false, options);
    }
    status = weir_client_resume(comes->client, WEIR_STREAM_HOST);
    struck |= why_struck();
    uint64_t seen = why_planted();
    why_plant(UINT64_MAX, false);
    if (status != WEIR_OK) {
        c->failed++;
        mend(c, comes, true, options);
    }
    c->faults += struck;
    c->lost += differing(c->runtime, comes, UINT64_MAX);
    return seen;
}

/* How a model leaves: its contents have changed, and the host's memory is there or has to be made; or its copy is good. */
enum { CHANGED, FRESH, GOOD, KINDS };

static uint64_t change_of_kind(changes *c, int which, int kind, uint64_t at, bool all)
{
    if (kind == FRESH)
        (void)weir_client_forget_copies(c->pair[which % 2].client);
    if (kind != GOOD)
        rewrite(c->runtime, &c->pair[which % 2], (uint8_t)(which + 1));
    return change_places(c, which, at, all, kind == GOOD ? &unwritten : &changed);
}

static void tell_changes(const changes *c, uint64_t bytes)
{
    printf("%d changes of models of %.2f GiB: %llu with a fault, %llu calls failed, %llu wrecks, %llu blocks lost\n",
           asked.changes, (double)bytes / (1024.0 * (double)MIB), (unsigned long long)c->faults,
           (unsigned long long)c->failed, (unsigned long long)c->wrecks, (unsigned long long)c->lost);
    goal("changes of models under faults: wrecks", (double)c->wrecks, "", 0, true);
    goal("changes of models under faults: blocks lost", (double)c->lost, "", 0, true);
    if (c->wrecks + c->lost > 0)
        exit(1);
    if (c->failed < (uint64_t)asked.changes / 4) {
        fprintf(stderr, "bench-residency: too few faults were met\n");
        exit(1);
    }
}

/* 100 changes, with a fault at another step in each; in every third all calls fail from there on. */
void faults(weir_runtime *runtime)
{
    static changes c;
    static const int kinds[] = {CHANGED, FRESH, GOOD, GOOD};
    uint64_t steps[KINDS], bytes = asked.model_bytes < 1024 * MIB ? asked.model_bytes : 1024 * MIB;
    int which = 0;
    if (strcmp(asked.device, "host") == 0) {
        printf("changes under faults: skipped, they are planted in CUDA's functions\n");
        return;
    }
    c.runtime = runtime;
    load(runtime, &c.pair[1], "one", bytes, 100);
    MUST(leave(&c.pair[1], &changed));
    load(runtime, &c.pair[0], "two", bytes, 101);
    for (; which < 2 * KINDS; which++) /* how many steps there are, twice, as the first time has more */
        steps[which % KINDS] = change_of_kind(&c, which, which % KINDS, UINT64_MAX, false);
    for (int i = 0; i < asked.changes; i++, which++) {
        int kind = kinds[i % 4];
        (void)change_of_kind(&c, which, kind, (uint64_t)i * steps[kind] / (uint64_t)asked.changes, i % 3 == 0);
    }
    tell_changes(&c, bytes);
    MUST(weir_client_resume(c.pair[(which + 1) % 2].client, WEIR_STREAM_HOST));
    unload(&c.pair[0]);
    unload(&c.pair[1]);
}
