/* What a decision of the pool's costs: a request where 16 models are and a thousand requests wait, the cheapest of all sets of
 * sixteen idle models, and a replay of random traffic. Prints nanoseconds, of one processor. */
#include "base/internal.h"
#include "pool/admission.h"
#include "pool/victims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MODELS = 16, WAITING = 1000, ASKED = 200000, SETS = 2000, REPLAYED = 1000000, MOST = 1 << 21 };
#define SECOND UINT64_C(1000000000)

static clockid_t which_clock = CLOCK_MONOTONIC;

static uint64_t clock_now(void)
{
    struct timespec t;
    clock_gettime(which_clock, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static uint64_t seed = 88172645463325252u;
static uint64_t roll(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (seed >> 8) % below;
}

static uint32_t samples[MOST];
static uint32_t sample_count;

static void sample(uint64_t begun)
{
    uint64_t took = clock_now() - begun;
    if (sample_count < MOST)
        samples[sample_count++] = (uint32_t)wi_min(took, UINT32_MAX);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *name)
{
    qsort(samples, sample_count, sizeof *samples, by_value);
    printf("%-44s %9u %9u %9u\n", name, samples[sample_count / 2], samples[(uint64_t)sample_count * 99 / 100],
           samples[sample_count - 1]);
    sample_count = 0;
}

static wp_spec spec_of(uint64_t bytes)
{
    wp_spec spec = {.variants = {{.peak = bytes, .resident = bytes, .layers = -1}},
                    .variant_count = 1,
                    .may_evict = true,
                    .can_suspend = true,
                    .host = bytes,
                    .stays = bytes / 50,
                    .weight = 1,
                    .load_time = bytes * SECOND / 10,
                    .resume_time = bytes * SECOND / 50,
                    .keep_alive = WP_FOREVER,
                    .suspend_after = WP_FOREVER,
                    .slots = 4};
    return spec;
}

typedef struct pool {
    wp_admission *it;
    uint64_t now;
    wp_ticket running[MOST / 64];
    uint32_t count;
} pool;

/* What is asked for is done at once; requests that are granted run. */
static void carry_out(pool *p)
{
    for (wp_action a; wp_next(p->it, &a);) {
        switch (a.kind) {
        case WP_LOAD:
            wp_loaded(p->it, p->now, a.model, true, a.bytes, 0);
            break;
        case WP_RESUME:
            wp_resumed(p->it, p->now, a.model, true, a.bytes, 0);
            break;
        case WP_SUSPEND:
            wp_suspended(p->it, p->now, a.model, true, a.bytes, 0);
            break;
        case WP_UNLOAD:
            wp_unloaded(p->it, p->now, a.model, 0);
            break;
        case WP_GRANT:
            p->running[p->count++] = a.why;
            break;
        default:
            break;
        }
    }
}

static void begin(pool *p, uint64_t ceiling, uint64_t host)
{
    wp_limits limits = {.queue = 100000,
                        .queue_bytes = UINT64_MAX,
                        .longest = 3600 * SECOND,
                        .retry = SECOND,
                        .host = host,
                        .passing = SECOND / 10};
    *p = (pool){.it = wp_admission_create(&limits, 1), .now = SECOND};
    if (!p->it)
        exit(1);
    wp_ceiling(p->it, p->now, 0, ceiling);
    for (uint32_t i = 0; i < MODELS; i++) {
        wp_spec spec = spec_of(10 + 3 * i);
        wp_model model;
        if (!wp_add(p->it, p->now, &spec, &model))
            exit(1);
    }
}

/* Half of the models fit. Requests come and end; so many wait. Each call of wp_ask and wp_done is a sample. */
static void traffic(pool *p, uint32_t waiting, uint32_t asked, bool sampled)
{
    for (uint32_t i = 0; i < asked; i++) {
        wp_request request = {.model = (wp_model)roll(MODELS), .bytes = roll(2), .deadline = WP_FOREVER};
        p->now += roll(SECOND / 500);
        uint64_t begun = sampled ? clock_now() : 0;
        wp_answer answer = wp_ask(p->it, p->now, &request);
        if (sampled)
            sample(begun);
        if (answer.cause == WP_GRANTED)
            p->running[p->count++] = answer.ticket;
        carry_out(p);
        uint32_t waits = 0;
        for (wp_model m = 0; m < MODELS; m++)
            waits += wp_see(p->it, m).waiting;
        for (; p->count > 0 && waits > waiting; waits--) {
            uint32_t at = (uint32_t)roll(p->count);
            wp_ticket ticket = p->running[at];
            p->running[at] = p->running[--p->count];
            begun = sampled ? clock_now() : 0;
            wp_done(p->it, p->now, ticket);
            if (sampled)
                sample(begun);
            carry_out(p);
        }
        if (i % 64 == 0)
            wp_tick(p->it, p->now);
    }
}

static void sets(const char *name, uint32_t kind)
{
    wp_solver *solver = wp_solver_create();
    uint8_t chosen[WP_EXACT];
    for (uint32_t round = 0; solver && round < SETS; round++) {
        wp_candidate c[WP_EXACT];
        uint64_t all = 0;
        for (uint32_t i = 0; i < WP_EXACT; i++) {
            uint64_t bytes = WI_GIB + roll(40 * WI_GIB), cost = kind == 0 ? 1 + roll(60 * SECOND) : bytes / 2;
            c[i] = (wp_candidate){.model = i, .count = 2, .suspend = 1};
            c[i].ways[0] = (wp_way){bytes - bytes / 50, kind == 2 ? (int64_t)bytes : 0, cost / 5 + roll(1000)};
            c[i].ways[1] = (wp_way){bytes, 0, cost + roll(1000)};
            all += bytes;
        }
        uint64_t begun = clock_now();
        (void)wp_victims(solver, c, WP_EXACT, all / 4 + roll(all / 2), 100 * WI_GIB, chosen);
        sample(begun);
    }
    wp_solver_destroy(solver);
    print(name);
}

int main(void)
{
    static pool p;
    printf("%-44s %9s %9s %9s\n", "nanoseconds", "p50", "p99", "most");
    begin(&p, 260, 200);
    traffic(&p, WAITING, 20000, false);
    traffic(&p, WAITING, ASKED, true);
    print("a decision, 16 models, 1,000 wait");
    wp_admission_destroy(p.it);
    begin(&p, 260, 200);
    traffic(&p, 10, ASKED, true);
    print("a decision, 16 models, 10 wait");
    wp_admission_destroy(p.it);
    /* Long enough to be interrupted, and for a dearer clock. */
    which_clock = CLOCK_THREAD_CPUTIME_ID;
    sets("victims among 16, costs at random", 0);
    sets("victims among 16, costs by bytes", 1);
    sets("victims among 16, the host short", 2);
    which_clock = CLOCK_MONOTONIC;
    begin(&p, 260, 200);
    uint64_t begun = clock_now();
    traffic(&p, 20, REPLAYED, false);
    printf("replay: %.2f million requests a second\n", REPLAYED * 1e3 / (double)(clock_now() - begun));
    wp_admission_destroy(p.it);
    return 0;
}
