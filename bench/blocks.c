/* What a block costs: one taken and given, runs of up to 64 out of a million blocks broken up like a comb, and beside
 * them what an ordered set of free indices takes for the same, scanned first fit. Prints nanoseconds. */
#include <weir/weir.h>
#include <weir/block_pool.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 1000000, LAPS = 200000, ROUNDS = 7, SHORT_ROUNDS = 100, NAIVE_LAPS = 2000, LONGEST = 64 };

static void must(weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "blocks: %s: %s\n", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
        exit(1);
    }
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static uint64_t seed = 88172645463325252u;
static uint64_t random_number(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* How many samples took how long: counted rather than kept, so that the caches stay the pool's. */
enum { MOST_NS = 1 << 23 };
typedef struct samples {
    uint32_t *at, count;
} samples;

static samples make_samples(void)
{
    return (samples){calloc(MOST_NS, sizeof(uint32_t)), 0};
}

static uint64_t clock_cost; /* of one reading, taken off every sample */

static void add(samples *s, uint64_t start, uint64_t end)
{
    uint64_t took = end - start > clock_cost ? end - start - clock_cost : 0;
    s->at[took < MOST_NS ? took : MOST_NS - 1]++;
    s->count++;
}

/* The time that a part of the samples did not exceed. */
static uint32_t part(const samples *s, double of_all)
{
    double wanted = of_all * s->count, seen = 0;
    for (uint32_t i = 0; i < MOST_NS; i++)
        if ((seen += s->at[i]) >= wanted)
            return i;
    return MOST_NS;
}

/* Of some rounds the one that the machine disturbed least. */
static void keep_better(samples *best, samples *s)
{
    if (best->count == 0 || (s->count > 0 && part(s, 0.999) < part(best, 0.999))) {
        free(best->at);
        *best = *s;
    } else {
        free(s->at);
    }
}

static void print(const char *name, samples *s)
{
    if (s->count > 0)
        printf("| %s | %u | %u | %u |\n", name, part(s, 0.5), part(s, 0.99), part(s, 0.999));
    free(s->at);
}

static void measure_clock(void)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 100000; i++) {
        uint64_t start = now(), end = now();
        best = end - start < best ? end - start : best;
    }
    clock_cost = best;
}

/* What the machine itself does to a sample: nothing, measured in the same way. */
static void floor_of_samples(void)
{
    samples none = make_samples();
    for (int i = 0; i < LAPS; i++) {
        uint64_t start = now();
        add(&none, start, now());
    }
    print("nothing", &none);
}

/* Singles ---------------------------------------------------------------------------------------------------------- */

/* One block taken and given at once; then `depth` taken and all given, so that words fill up and empty. */
static void singles(weir_block_pool_member *m, uint32_t depth, uint32_t *held)
{
    double take = 1e9, give = 1e9;
    for (int round = 0; round < SHORT_ROUNDS; round++) {
        uint32_t laps = 1 + 100000 / depth;
        uint64_t taking = 0, giving = 0;
        for (uint32_t lap = 0; lap < laps; lap++) {
            uint64_t a = now();
            for (uint32_t i = 0; i < depth; i++)
                if (weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &held[i]) != WEIR_OK)
                    must(WEIR_ERR_INVALID);
            uint64_t b = now();
            for (uint32_t i = depth; i-- > 0;)
                if (weir_block_pool_free(m, &(uint32_t){held[i]}, NULL, 1, 0, WEIR_STREAM_HOST) != WEIR_OK)
                    must(WEIR_ERR_INVALID);
            uint64_t c = now();
            taking += b - a - clock_cost;
            giving += c - b - clock_cost;
        }
        double t = (double)taking / ((double)laps * depth), g = (double)giving / ((double)laps * depth);
        take = t < take ? t : take;
        give = g < give ? g : give;
    }
    printf("| %u blocks taken, then given | %.1f | %.1f |\n", depth, take, give);
}

static void one_by_one(weir_block_pool_member *m)
{
    double best = 1e9;
    for (int round = 0; round < SHORT_ROUNDS; round++) {
        uint32_t index, laps = 100000;
        uint64_t start = now();
        for (uint32_t i = 0; i < laps; i++)
            if (weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &index) != WEIR_OK ||
                weir_block_pool_free(m, &(uint32_t){index}, NULL, 1, 0, WEIR_STREAM_HOST) != WEIR_OK)
                must(WEIR_ERR_INVALID);
        double each = (double)(now() - start) / (2.0 * laps);
        best = each < best ? each : best;
    }
    printf("| one block taken and given, in turn | %.1f | %.1f |\n", best, best);
}

static void at_random(weir_block_pool_member *m)
{
    enum { DEPTH = 500000 };
    static uint32_t held[DEPTH];
    for (uint32_t i = 0; i < DEPTH; i++)
        must(weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &held[i]));
    uint64_t start = now();
    for (int i = 0; i < 2000000; i++) {
        uint32_t *at = &held[random_number() % DEPTH];
        if (weir_block_pool_free(m, &(uint32_t){*at}, NULL, 1, 0, WEIR_STREAM_HOST) != WEIR_OK ||
            weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, at) != WEIR_OK)
            must(WEIR_ERR_INVALID);
    }
    double each = (double)(now() - start) / 4e6;
    printf("| any one of %d given, one taken | %.1f | %.1f |\n", DEPTH, each, each);
    for (uint32_t i = 0; i < DEPTH; i++)
        must(weir_block_pool_free(m, &(uint32_t){held[i]}, NULL, 1, 0, WEIR_STREAM_HOST));
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

/* The whole pool taken; then gaps of free blocks between runs of held ones, both of 1 to `gap` blocks. With a gap of 1 every
 * other block is free, and one gap in 500 has 64 blocks. held[] says which. */
static void make_comb(weir_block_pool_member *m, uint32_t gap, uint8_t *held)
{
    uint32_t first, at = 0;
    must(weir_block_pool_alloc(m, BLOCKS, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &first));
    memset(held, 1, BLOCKS);
    for (uint32_t i = 1; at < BLOCKS; i++) {
        uint32_t tooth = 1 + (uint32_t)(random_number() % gap), hole = 1 + (uint32_t)(random_number() % gap);
        if (gap == 1 && i % 500 == 0)
            hole = LONGEST;
        at += tooth;
        if (at + hole > BLOCKS)
            break;
        must(weir_block_pool_free(m, &(uint32_t){at}, NULL, hole, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST));
        memset(held + at, 0, hole);
        at += hole;
    }
}

static void clear_comb(weir_block_pool_member *m, const uint8_t *held)
{
    for (uint32_t i = 0, end; i < BLOCKS; i = end) {
        for (end = i + 1; end < BLOCKS && held[end] == held[i];)
            end++;
        if (held[i])
            must(weir_block_pool_free(m, &(uint32_t){i}, NULL, end - i, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST));
    }
}

/* What it is measured against: the pool's free indices in order, first fit. The set is a sorted array, which is kinder to a scan than
 * a tree. */
static void naive(weir_block_pool *pool, const char *name)
{
    weir_block_pool_block_details d = {.struct_size = sizeof d};
    uint32_t *set = malloc(BLOCKS * sizeof *set), count = 0;
    samples take = make_samples();
    for (uint32_t i = 0; i < BLOCKS; i++) {
        must(weir_block_pool_block_info(pool, i, &d));
        if (d.state == WEIR_BLOCK_FREE)
            set[count++] = i;
    }
    for (int i = 0; i < NAIVE_LAPS; i++) {
        uint32_t wanted = 1 + (uint32_t)(random_number() % LONGEST), start_at = 0, found = 0;
        pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        uint64_t start = now();
        pthread_mutex_lock(&lock);
        for (uint32_t k = 1; k <= count && !found; k++)
            if (k == count || set[k] != set[k - 1] + 1) {
                if (k - start_at >= wanted)
                    found = k;
                else
                    start_at = k;
            } else if (k - start_at + 1 >= wanted) {
                found = k + 1;
            }
        pthread_mutex_unlock(&lock);
        volatile uint32_t keep = found;
        (void)keep;
        add(&take, start, now());
    }
    char line[128];
    snprintf(line, sizeof line, "scan of an ordered set, %s", name);
    print(line, &take);
    free(set);
}

typedef struct run {
    uint32_t first, count;
} run;

/* `live` runs of 1 to 64 come and go in any order; `mixed`: single blocks between them. Returns how many were refused. */
static uint32_t come_and_go(weir_block_pool_member *m, run *kept, uint32_t *single, uint32_t live, bool mixed,
                            samples *take, samples *give)
{
    uint32_t refused = 0;
    for (int i = 0; i < LAPS; i++) {
        run *at = &kept[random_number() % live];
        uint64_t start = now();
        if (at->count &&
            weir_block_pool_free(m, &at->first, NULL, at->count, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST) == WEIR_OK)
            add(give, start, now());
        at->count = 1 + (uint32_t)(random_number() % LONGEST);
        start = now();
        weir_status status = weir_block_pool_alloc(m, at->count, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &at->first);
        if (status == WEIR_OK)
            add(take, start, now());
        else
            at->count = 0, refused++;
        for (int k = 0; mixed && k < 4; k++) {
            uint32_t *one = &single[random_number() % live];
            if (*one != WEIR_BLOCK_POOL_NONE)
                must(weir_block_pool_free(m, &(uint32_t){*one}, NULL, 1, 0, WEIR_STREAM_HOST));
            if (weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, one) != WEIR_OK)
                *one = WEIR_BLOCK_POOL_NONE;
        }
    }
    return refused;
}

static void runs(weir_block_pool *pool, weir_block_pool_member *m, uint32_t live, bool mixed, const char *name)
{
    run *kept = calloc(live, sizeof *kept);
    uint32_t *single = malloc(live * sizeof *single), refused = 0;
    samples take = {0}, give = {0};
    char line[128];
    memset(single, 0xff, live * sizeof *single);
    for (int round = 0; round < ROUNDS; round++) {
        samples t = make_samples(), g = make_samples();
        refused = come_and_go(m, kept, single, live, mixed, &t, &g);
        keep_better(&take, &t);
        keep_better(&give, &g);
    }
    snprintf(line, sizeof line, "take a run, %s (%u of %d refused)", name, refused, LAPS);
    print(line, &take);
    snprintf(line, sizeof line, "give it, %s", name);
    print(line, &give);
    naive(pool, name);
    for (uint32_t i = 0; i < live; i++) {
        if (kept[i].count)
            must(weir_block_pool_free(m, &(uint32_t){kept[i].first}, NULL, kept[i].count, WEIR_BLOCK_POOL_RUN,
                                      WEIR_STREAM_HOST));
        if (single[i] != WEIR_BLOCK_POOL_NONE)
            must(weir_block_pool_free(m, &(uint32_t){single[i]}, NULL, 1, 0, WEIR_STREAM_HOST));
    }
    free(kept);
    free(single);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

static void *hammer(void *user)
{
    weir_block_pool_member *m = user;
    uint32_t index;
    for (int i = 0; i < 500000; i++)
        if (weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &index) != WEIR_OK ||
            weir_block_pool_free(m, &(uint32_t){index}, NULL, 1, 0, WEIR_STREAM_HOST) != WEIR_OK)
            must(WEIR_ERR_INVALID);
    return NULL;
}

static void threads(weir_block_pool *pool, weir_client *client, int count)
{
    pthread_t thread[16];
    weir_block_pool_member *m[16];
    uint64_t start = now();
    for (int i = 0; i < count; i++) {
        must(weir_block_pool_member_create(pool, client, 0, &m[i]));
        pthread_create(&thread[i], NULL, hammer, m[i]);
    }
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    double each = (double)(now() - start) / (1e6 * count);
    printf("| %d threads at once | %.1f | %.1f |\n", count, each, each);
    for (int i = 0; i < count; i++)
        must(weir_block_pool_member_destroy(m[i]));
}

int main(void)
{
    static uint32_t held[4096];
    static uint8_t comb[BLOCKS];
    weir_runtime *runtime;
    weir_client *client;
    weir_block_pool *pool;
    weir_block_pool_member *m;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = (uint64_t)1 << 30};
    weir_client_options who = {.struct_size = sizeof who, .name = "bench"};
    weir_block_pool_options what = {
        .struct_size = sizeof what, .bytes = 256, .count = BLOCKS, .flags = WEIR_ALLOC_NO_WAIT};
    must(weir_runtime_create("host", &options, &runtime));
    must(weir_client_create(runtime, &who, &client));
    must(weir_block_pool_create(client, &what, &pool));
    must(weir_block_pool_member_create(pool, client, 0, &m));
    measure_clock();
    printf("| single blocks, ns each | take | give |\n|---|---|---|\n");
    one_by_one(m);
    singles(m, 64, held);
    singles(m, 4096, held);
    at_random(m);
    threads(pool, client, 1);
    threads(pool, client, 2);
    threads(pool, client, 16);
    printf("\n| runs of 1 to 64 out of 10^6 blocks, ns | median | p99 | p99.9 |\n|---|---|---|---|\n");
    floor_of_samples();
    static const uint32_t gaps[] = {1, 8, 64};
    for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, gaps[i] == 1 ? "every other block, few gaps of 64" : "gaps of 1 to %u", gaps[i]);
        make_comb(m, gaps[i], comb);
        runs(pool, m, 1000, false, name);
        strncat(name, "; singles too", sizeof name - strlen(name) - 1);
        runs(pool, m, 1000, true, name);
        clear_comb(m, comb);
    }
    must(weir_block_pool_destroy(pool));
    must(weir_client_destroy(client));
    must(weir_runtime_destroy(runtime));
    return 0;
}
