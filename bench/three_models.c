/* three_models.c: models of both engines in one process, from one runtime: answers, and what the device gives for them.
 *
 *   bench-three-models together [--device D] [--context N] [--rounds N] [--budget BYTES] MODEL…
 *   bench-three-models stress   [--device D] [--context N] [--rounds N] [--seconds N] [--share PERCENT] MODEL…
 *
 * MODEL is FILE.onnx:FIRSTxREST (open extents of its inputs) or FILE.gguf:PROMPT+TOKENS.
 *
 * `together`: each model is loaded, asked and unloaded by itself, which warms up CUDA and its libraries; what the driver
 * says is taken then is left out of later readings. Then all are loaded, asked one after another, and at once on a
 * thread each until everyone has had `rounds` runs. bench/three_models.py puts beside it what they take without weir.
 *
 * `stress`: the same under a budget that all models' peaks together do not fit: what all hold at rest, with the largest
 * that one takes beyond for a run, and `share` of the way from there to the sum of their peaks. A run that is refused is
 * tried again; after eight in a row, by itself. For --seconds, or until everyone has had `rounds` runs.
 *
 * Prints a line of JSON. Exit status 1: an answer was another one than the first, or memory is left behind; 77: an
 * engine is not here. --answers any: for a device whose kernels compute nothing. */
#include "served.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <weir/pressure.h>

#include "cli/run/measure.h"

enum { MODELS = 8, SAMPLE_US = 2000, LONGEST_S = 240, BACKOFF_US = 1000, PATIENCE = 8 };

/* What a model takes by itself. `rest`: after a run, when nobody asks it. `held`: of the device, at its peak. */
typedef struct need {
    uint64_t weights, kv, scratch, rest, peak, held, taken;
} need;

typedef struct bench {
    const char *device, *context;
    uint64_t rounds, share, budget;
    double seconds;
    bool any_answer;
    weir_runtime *host, *runtime;
    served models[MODELS];
    need needs[MODELS];
    size_t count;
    uint64_t base; /* what the driver says is taken before the models that count */
    atomic_bool stop;
    _Atomic uint64_t most_taken;
    pthread_barrier_t start;
    pthread_rwlock_t runs; /* one run that nobody else's is beside has it for writing */
    _Atomic uint64_t by_themselves;
} bench;

/* ---- readings ---------------------------------------------------------------------------------------------------- */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static weir_stats stats_of(const bench *b)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    WEIR(weir_snapshot(b->runtime, &stats, NULL, 0, NULL));
    return stats;
}

static bool on_host(const bench *b)
{
    return b->runtime == b->host;
}

/* What the driver says is taken, by whomever. The host has no driver that is asked: there it is what weir holds. */
static uint64_t taken(const bench *b)
{
    uint64_t bytes = 0;
    if (on_host(b))
        return stats_of(b).held;
    check(measure_device_taken(b->runtime, &bytes), "the driver does not tell its free memory");
    return bytes;
}

static void sample(bench *b)
{
    uint64_t now = taken(b), most = atomic_load(&b->most_taken);
    while (now > most && !atomic_compare_exchange_weak(&b->most_taken, &most, now))
        ;
}

static void *watch(void *user)
{
    bench *b = user;
    while (!atomic_load(&b->stop)) {
        sample(b);
        usleep(SAMPLE_US);
    }
    return NULL;
}

/* ---- each by itself ---------------------------------------------------------------------------------------------- */

static uint64_t with_promised(const weir_client_stats *its, uint64_t bytes)
{
    return bytes + its->promised;
}

/* With several rounds the last one counts, as the first makes handles and code that stay. */
static void ask_alone(bench *b, size_t which, int rounds)
{
    served *it = &b->models[which];
    need *its = &b->needs[which];
    for (int round = 0; round < rounds; round++) {
        WEIR(weir_runtime_trim(b->runtime, NULL, NULL));
        WEIR(weir_stats_reset(b->runtime, WEIR_RESET_PEAKS));
        uint64_t before = taken(b);
        must(served_load(it, b->runtime), it->name);
        for (int i = 0; i < 3; i++)
            must(served_run(it), it->name);
        uint64_t after = taken(b);
        weir_client_stats account = served_account(it);
        *its = (need){.weights = account.live_class[WEIR_CLASS_WEIGHTS],
                      .kv = account.peak_class[WEIR_CLASS_KV],
                      .scratch = account.live_class[WEIR_CLASS_SCRATCH],
                      .rest = with_promised(&account, account.live),
                      .peak = with_promised(&account, account.peak),
                      .held = stats_of(b).peak_held,
                      .taken = after > before ? after - before : 0};
        served_unload(it);
    }
    WEIR(weir_runtime_trim(b->runtime, NULL, NULL));
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static bool everyone_has_had_enough(const bench *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (__atomic_load_n(&b->models[i].runs, __ATOMIC_RELAXED) < b->rounds)
            return false;
    return true;
}

typedef struct thread {
    bench *b;
    size_t which;
    pthread_t id;
} thread;

/* A model that is refused again and again, because the others are quicker, gets a run by itself, which the budget allows. */
static void run_by_itself(bench *b, served *it)
{
    pthread_rwlock_wrlock(&b->runs);
    atomic_fetch_add(&b->by_themselves, 1);
    must(served_run(it), "a run that no other is beside");
    pthread_rwlock_unlock(&b->runs);
}

static bool run_beside_others(bench *b, served *it)
{
    pthread_rwlock_rdlock(&b->runs);
    bool good = served_run(it) == WEIR_OK;
    pthread_rwlock_unlock(&b->runs);
    return good;
}

static void *work(void *user)
{
    thread *its = user;
    bench *b = its->b;
    served *it = &b->models[its->which];
    (void)pthread_barrier_wait(&b->start);
    double begin = seconds_now(), longest = b->seconds > 0 ? b->seconds : LONGEST_S;
    int refused = 0;
    while (seconds_now() - begin < longest && (b->seconds > 0 || !everyone_has_had_enough(b))) {
        bool beside = refused < PATIENCE;
        if (!beside)
            run_by_itself(b, it);
        if (!beside || run_beside_others(b, it))
            refused = 0;
        else
            usleep((useconds_t)(BACKOFF_US << refused++));
    }
    return NULL;
}

static void ask_at_once(bench *b)
{
    thread threads[MODELS];
    pthread_t watcher;
    atomic_store(&b->stop, false);
    pthread_barrier_init(&b->start, NULL, (unsigned)b->count);
    check(pthread_create(&watcher, NULL, watch, b) == 0, "no thread");
    for (size_t i = 0; i < b->count; i++) {
        b->models[i].runs = 0;
        threads[i] = (thread){.b = b, .which = i};
        check(pthread_create(&threads[i].id, NULL, work, &threads[i]) == 0, "no thread");
    }
    for (size_t i = 0; i < b->count; i++)
        pthread_join(threads[i].id, NULL);
    atomic_store(&b->stop, true);
    pthread_join(watcher, NULL);
    pthread_barrier_destroy(&b->start);
    sample(b);
}

static void load_all(bench *b)
{
    WEIR(weir_stats_reset(b->runtime, WEIR_RESET_PEAKS));
    b->base = taken(b);
    atomic_store(&b->most_taken, b->base);
    for (size_t i = 0; i < b->count; i++) {
        must(served_load(&b->models[i], b->runtime), b->models[i].name);
        sample(b);
    }
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static void number(const char *name, uint64_t value)
{
    printf("\"%s\": %llu, ", name, (unsigned long long)value);
}

static void print_models(const bench *b)
{
    printf("\"models\": [");
    for (size_t i = 0; i < b->count; i++) {
        const served *it = &b->models[i];
        const need *its = &b->needs[i];
        printf("%s{\"name\": \"%s\", \"engine\": \"%s\", ", i ? ", " : "", it->name, it->engine->name);
        number("weights", its->weights);
        number("kv", its->kv);
        number("scratch", its->scratch);
        number("rest", its->rest);
        number("peak", its->peak);
        number("held_alone", its->held);
        number("taken_alone", its->taken);
        number("refused", it->refused);
        number("runs", it->runs);
        printf("\"different\": %llu}", (unsigned long long)it->different);
    }
    printf("], ");
}

static void print_reading(const bench *b, const char *name)
{
    weir_stats stats = stats_of(b);
    printf("\"%s\": {", name);
    number("in_use", stats.peak);
    number("held", stats.peak_held);
    printf("\"taken\": %llu}, ", (unsigned long long)(atomic_load(&b->most_taken) - b->base));
}

static void print_ladder(const bench *b)
{
    weir_stats stats = stats_of(b);
    number("refusals", stats.refusals);
    number("waits", stats.ladder[WEIR_RUNG_WAIT]);
    number("ordered", stats.ladder[WEIR_RUNG_ORDER]);
    number("by_themselves", atomic_load(&b->by_themselves));
    number("callbacks", stats.ladder[WEIR_RUNG_PRESSURE]);
    number("moved", stats.moved);
    number("lent_clients", stats.lent_clients);
    printf("\"budget\": %llu}\n", (unsigned long long)stats.budget);
}

/* Everything goes; the exit status. */
static int end(bench *b)
{
    uint64_t different = 0, silent = 0;
    for (size_t i = 0; i < b->count; i++) {
        different += b->models[i].different;
        silent += b->models[i].runs == 0;
        served_unload(&b->models[i]);
        served_forget(&b->models[i]);
    }
    check(stats_of(b).live == 0, "the ledger is not back at zero");
    check(silent == 0, "a model had no run");
    check(different == 0, "answers are not those of each model alone");
    return 0;
}

/* ---- the parts --------------------------------------------------------------------------------------------------- */

static int together(bench *b)
{
    load_all(b);
    printf("{\"part\": \"together\", \"device\": \"%s\", ", b->device);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < b->count; i++) {
            must(served_run(&b->models[i]), b->models[i].name);
            sample(b);
        }
    print_reading(b, "by_turns");
    ask_at_once(b);
    print_reading(b, "at_once");
    print_models(b);
    print_ladder(b);
    return end(b);
}

/* Between the least that can be served, one run at a time, and what would need no lending. */
static void set_budget(bench *b, uint64_t *least, uint64_t *most)
{
    uint64_t largest = 0;
    *least = *most = 0;
    for (size_t i = 0; i < b->count; i++) {
        const need *its = &b->needs[i];
        uint64_t beyond = its->peak - its->rest;
        *least += its->rest;
        *most += its->peak;
        largest = beyond > largest ? beyond : largest;
    }
    *least += largest;
    WEIR(weir_runtime_set_budget(b->runtime, *least + (*most - *least) * b->share / 100));
}

static int stress(bench *b)
{
    uint64_t least, most;
    set_budget(b, &least, &most);
    load_all(b);
    ask_at_once(b);
    weir_stats stats = stats_of(b);
    printf("{\"part\": \"stress\", \"device\": \"%s\", ", b->device);
    number("least", least);
    number("sum_of_peaks", most);
    print_reading(b, "at_once");
    print_models(b);
    print_ladder(b);
    fflush(stdout);
    check(stats.budget < most, "the budget takes all peaks at once: nothing has to be lent");
    check(stats.peak_held <= stats.budget, "more was held than the budget");
    check(stats.lent_clients > 0, "no model was lent memory of another one");
    return end(b);
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static void open_runtime(bench *b)
{
    pthread_rwlockattr_t kind;
    pthread_rwlockattr_init(&kind);
    pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&b->runs, &kind);
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    bool host = strcmp(b->device, "host") == 0;
    options.budget = host ? b->budget : 0;
    WEIR(weir_runtime_get("host", &options, &b->host));
    options.budget = b->budget;
    WEIR(weir_runtime_get(b->device, &options, &b->runtime));
}

static bool read_option(bench *b, const char *name, const char *value)
{
    if (strcmp(name, "--device") == 0)
        b->device = value;
    else if (strcmp(name, "--context") == 0)
        b->context = value;
    else if (strcmp(name, "--rounds") == 0)
        b->rounds = strtoull(value, NULL, 10);
    else if (strcmp(name, "--seconds") == 0)
        b->seconds = strtod(value, NULL);
    else if (strcmp(name, "--share") == 0)
        b->share = strtoull(value, NULL, 10);
    else if (strcmp(name, "--budget") == 0)
        b->budget = strtoull(value, NULL, 10);
    else if (strcmp(name, "--answers") == 0)
        b->any_answer = strcmp(value, "any") == 0;
    else
        return false;
    return true;
}

int main(int count, char **words)
{
    static bench b = {.device = "cuda:0", .context = "8192", .rounds = 8, .share = 40};
    bool is_stress = count > 1 && strcmp(words[1], "stress") == 0, good = count > 1;
    good &= is_stress || (count > 1 && strcmp(words[1], "together") == 0);
    for (int i = 2; i < count && good; i++) {
        if (strncmp(words[i], "--", 2) == 0) {
            good = i + 1 < count && read_option(&b, words[i], words[i + 1]);
            i++;
        } else if ((good = b.count < MODELS)) {
            served_read(&b.models[b.count++], words[i]);
        }
    }
    if (!good || b.count == 0) {
        fprintf(stderr, "usage: bench-three-models together|stress [--device D] [--context N] … MODEL…\n");
        return 2;
    }
    open_runtime(&b);
    for (size_t i = 0; i < b.count; i++) {
        b.models[i].context = b.context;
        b.models[i].any_answer = b.any_answer;
        ask_alone(&b, i, is_stress ? 1 : 2);
    }
    return is_stress ? stress(&b) : together(&b);
}
