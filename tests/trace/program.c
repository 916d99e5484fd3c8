/* A small program that is recorded by WEIR_TRACE: two streams share a block. `ordered` says so to weir; `unordered`
 * frees on one stream what the other may still read; `killed` ends without a word; `late` makes runtimes from the log's
 * function while the exit closes traces. `several` has two runtimes, in each three threads and three clients, two of which
 * have one name. `suspended` has two models take turns on a device that has room for one, and
 * prints what the ledger says behind each turn. */
#include "info.h"

#include <weir/residency.h>
#include <weir/trace.h>
#include <weir/weir.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(weir_status status)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "%s\n", weir_detail());
    exit(3);
}

static void round_trip(weir_runtime *rt, weir_client *client, weir_stream a, weir_stream b, bool ordered)
{
    void *p;
    must(weir_alloc(client, 4096, a, WEIR_CLASS_ACTIVATIONS, &p));
    must(weir_fill(rt, p, 1, 4096, a));
    must(note_record(rt, 1, a));
    must(note_wait(rt, 1, b));
    must(note_use(rt, p, 4096, b, WEIR_ACCESS_READ));
    if (ordered) {
        must(note_record(rt, 2, b));
        must(note_wait(rt, 2, a));
    }
    must(weir_free(client, p, a));
}

/* Called at exit, for files that cannot be finished: first for that of the option, then for that of the runtime made
 * here. */
static void make_one_more(weir_log_level level, const char *text, void *user)
{
    static weir_runtime *late;
    static int calls;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options late_user = WEIR_INIT(weir_client_options);
    weir_client *client;
    void *p;
    (void)level, (void)user;
    options.budget = 1 << 20;
    options.resource = "log(csv=/dev/full, mapped)";
    late_user.name = "late";
    if (!strstr(text, "/dev/full") || calls++ >= 2)
        return;
    if (calls == 1) {
        must(weir_runtime_create("host", &options, &late));
        must(weir_client_create(late, &late_user, &client));
        must(weir_alloc(client, 4096, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
        must(weir_free(client, p, WEIR_STREAM_HOST));
        must(weir_client_destroy(client));
    } else {
        puts(weir_name_of(WEIR_NAMES_STATUS, weir_runtime_destroy(late)));
    }
}

/* Models that take turns ------------------------------------------------------------------------------------------- */

enum { MIB = 1 << 20, LAYERS = 4 };

static const char *const names[2] = {"first", "second"};

typedef struct turns {
    weir_runtime *rt;
    weir_client *models[2];
    weir_stream streams[2];
    void *layers[2][LAYERS], *kv[2];
} turns;

static void *take(const turns *t, int model, size_t bytes, weir_class memory_class, const char *tag)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .stream = t->streams[model],
                            .memory_class = memory_class,
                            .tag = tag};
    weir_block block;
    must(weir_alloc_with(t->models[model], &request, &block));
    must(weir_fill(t->rt, block.pointer, model, bytes, t->streams[model]));
    return block.pointer;
}

static void say(const turns *t, const char *what)
{
    weir_stats all = WEIR_INIT(weir_stats);
    weir_client_stats clients[2] = {WEIR_INIT(weir_client_stats), WEIR_INIT(weir_client_stats)};
    size_t count;
    must(weir_snapshot(t->rt, &all, clients, 2, &count));
    printf("{\"what\": \"%s\", \"live\": %llu, \"pending\": %llu, \"away\": %llu", what, (unsigned long long)all.live,
           (unsigned long long)all.pending, (unsigned long long)all.away);
    for (int i = 0; i < 2; i++)
        printf(", \"%s\": {\"live\": %llu, \"away\": %llu, \"state\": \"%s\"}", clients[i].name,
               (unsigned long long)clients[i].live, (unsigned long long)clients[i].away,
               weir_name_of(WEIR_NAMES_RESIDENCY, (int)clients[i].residency));
    puts("}");
}

static void work(const turns *t, int model)
{
    for (int i = 0; i < 4; i++) {
        void *p = take(t, model, (size_t)(1 + i) * MIB, WEIR_CLASS_ACTIVATIONS, "hidden");
        must(weir_free(t->models[model], p, t->streams[model]));
    }
    must(weir_stream_synchronize(t->streams[model]));
}

static void load(turns *t, int model)
{
    for (int i = 0; i < LAYERS; i++)
        t->layers[model][i] = take(t, model, (size_t)(4 + model) * MIB, WEIR_CLASS_WEIGHTS, "layer");
    t->kv[model] = take(t, model, (6 + 2 * (size_t)model) * MIB, WEIR_CLASS_KV, "cache");
    work(t, model);
}

static void take_turns(const char *device)
{
    turns t = {0};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = 40 * MIB;
    must(weir_runtime_create(device, &options, &t.rt));
    for (int i = 0; i < 2; i++) {
        weir_client_options model = WEIR_INIT(weir_client_options);
        model.name = names[i];
        must(weir_client_create(t.rt, &model, &t.models[i]));
        must(weir_stream_acquire(t.rt, &t.streams[i]));
    }
    load(&t, 0);
    say(&t, "loaded");
    must(weir_client_suspend(t.models[0], NULL, NULL));
    say(&t, "suspended");
    load(&t, 1);
    must(weir_free(t.models[0], t.kv[0], t.streams[0])); /* it is away */
    say(&t, "freed");
    for (int i = 0; i < 3; i++) {
        int next = i % 2;
        must(weir_client_suspend(t.models[!next], NULL, NULL));
        must(weir_client_resume(t.models[next], t.streams[next]));
        work(&t, next);
        say(&t, "turned");
    }
    for (int i = 0; i < LAYERS; i++)
        must(weir_free(t.models[0], t.layers[0][i], t.streams[0]));
    say(&t, "emptied");
    for (int i = 0; i < LAYERS; i++) /* they are away */
        must(weir_free(t.models[1], t.layers[1][i], t.streams[1]));
    must(weir_free(t.models[1], t.kv[1], t.streams[1]));
    say(&t, "ended");
    for (int i = 0; i < 2; i++) {
        must(weir_stream_release(t.streams[i]));
        must(weir_client_destroy(t.models[i]));
    }
    must(weir_runtime_destroy(t.rt));
}

/* Several of everything -------------------------------------------------------------------------------------------- */

enum { THREADS = 3, CLIENTS = 3, ROUNDS = 4 };

typedef struct worker {
    weir_client **clients;
    weir_stream stream;
    size_t number;
    void *last[CLIENTS];
} worker;

/* Of each client four blocks, of which the last stays; and one of the last client that is refused. */
static void *allocate_some(void *user)
{
    static const char *const tags[THREADS] = {"first", "second", "third"};
    worker *w = user;
    weir_block block = {0};
    weir_request request = WEIR_INIT(weir_request);
    request.bytes = (w->number + 1) * 4096;
    request.stream = w->stream;
    request.memory_class = WEIR_CLASS_KV;
    request.tag = tags[w->number];
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < CLIENTS; k++) {
            if (i > 0)
                must(weir_free(w->clients[k], w->last[k], w->stream));
            must(weir_alloc_with(w->clients[k], &request, &block));
            w->last[k] = block.pointer;
        }
    request.bytes = 2 * MIB;
    if (weir_alloc_with(w->clients[CLIENTS - 1], &request, &block) != WEIR_ERR_OUT_OF_MEMORY)
        exit(4);
    return NULL;
}

/* Frees on this thread what the others have left. */
static void use_runtime(weir_runtime *rt)
{
    weir_client *clients[CLIENTS];
    worker workers[THREADS] = {{0}};
    pthread_t threads[THREADS];
    for (int i = 0; i < CLIENTS; i++) {
        weir_client_options options = WEIR_INIT(weir_client_options);
        options.name = i < 2 ? "model" : "other";
        options.maximum = MIB;
        must(weir_client_create(rt, &options, &clients[i]));
    }
    for (size_t i = 0; i < THREADS; i++) {
        workers[i].clients = clients;
        workers[i].number = i;
        must(weir_stream_acquire(rt, &workers[i].stream));
        if (pthread_create(&threads[i], NULL, allocate_some, &workers[i]) != 0)
            exit(4);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < CLIENTS; k++)
            must(weir_free(clients[k], workers[i].last[k], workers[i].stream));
        must(weir_stream_release(workers[i].stream));
    }
    for (int i = 0; i < CLIENTS; i++)
        must(weir_client_destroy(clients[i]));
}

static void use_several(const char *device)
{
    for (int i = 0; i < 2; i++) {
        weir_runtime_options options = WEIR_INIT(weir_runtime_options);
        weir_runtime *rt;
        options.budget = 16 * MIB;
        must(weir_runtime_create(device, &options, &rt));
        use_runtime(rt);
        must(weir_runtime_destroy(rt));
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "ordered", *device = argc > 2 ? argv[2] : "host";
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_runtime *rt, *second;
    weir_client *client;
    weir_stream a, b;
    if (strcmp(how, "several") == 0) {
        use_several(device);
        return 0;
    }
    if (strcmp(how, "suspended") == 0) {
        take_turns(device);
        return 0;
    }
    options.name = "user, \"program\"";
    must(weir_runtime_get(device, NULL, &rt));
    must(weir_client_create(rt, &options, &client));
    must(weir_stream_acquire(rt, &a));
    must(weir_stream_acquire(rt, &b));
    for (int i = 0; i < (strcmp(how, "killed") == 0 ? 2000 : 3); i++)
        round_trip(rt, client, a, b, strcmp(how, "unordered") != 0);
    if (strcmp(how, "killed") == 0)
        _exit(0);
    if (strcmp(how, "twice") == 0) {
        weir_runtime_options more = WEIR_INIT(weir_runtime_options);
        more.budget = 1 << 20;
        must(weir_runtime_create(device, &more, &second));
        must(weir_runtime_destroy(second));
    }
    must(weir_stream_release(a));
    must(weir_stream_release(b));
    must(weir_client_destroy(client));
    puts(weir_detail());
    if (strcmp(how, "late") == 0)
        must(weir_log_set(make_one_more, NULL, WEIR_LOG_WARNING));
    return 0;
}
