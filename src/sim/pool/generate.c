/* Requests made from a seed, with integer arithmetic only, so that a seed gives the same traffic on any machine. */
#include "sim/pool/traffic.h"

#include <stdlib.h>
#include <string.h>

/* Some kinds have requests that come in groups; a group has a model list of its own. */
enum { BURST = 12, GROUP = 3, SAME_DRAWS = 64, PHASE_HOURS = 4, SCAN_HOUR = 3 };
#define HOUR (3600 * TRAFFIC_SECOND)

typedef struct burst {
    uint64_t at;    /* of the next request */
    uint64_t inner; /* requests that are left in this burst */
} burst;

typedef struct generator {
    traffic base;
    traffic_options options;
    const traffic_models *models;
    uint64_t random, now;
    uint64_t *day, *night;        /* cumulative chances by model: two orders of popularity */
    burst *bursts;                /* by model */
    uint32_t group[GROUP];        /* A, B and C */
    uint64_t group_left, group_n; /* requests until another group comes; how many have come */
    uint32_t scanned;             /* the next model of a scan */
    traffic_kind phase;           /* the present kind of a mix */
    uint64_t phase_end, scan_at;
} generator;

/* ---- which model ------------------------------------------------------------------------------------------------- */

/* Chances by Zipf's rule over a random order, times each model's own popularity. */
static void make_chances(generator *g, uint64_t *chances)
{
    uint32_t count = g->models->count, order[TRAFFIC_MODELS];
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)random_below(&g->random, i), held = order[i - 1];
        order[i - 1] = order[j];
        order[j] = held;
    }
    for (uint32_t rank = 0; rank < count; rank++)
        chances[order[rank]] = (UINT64_C(1) << 24) * g->models->list[order[rank]].popular / (rank + 1) + 1;
    for (uint32_t i = 1; i < count; i++)
        chances[i] += chances[i - 1];
}

static uint32_t pool_generate_draw(generator *g, const uint64_t *chances)
{
    uint64_t at = random_below(&g->random, chances[g->models->count - 1]);
    uint32_t low = 0, high = g->models->count - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (chances[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void pool_generate_pass(generator *g)
{
    g->now += random_exponential(&g->random, g->options.gap);
}

/* ---- the kinds: each moves `now` on, and answers a model --------------------------------------------------------- */

static uint32_t next_zipf(generator *g)
{
    pool_generate_pass(g);
    return pool_generate_draw(g, g->day);
}

/* Draws a model's quiet time, so long that all models together have the mean rate. */
static uint64_t quiet_time(generator *g, uint32_t model)
{
    uint64_t mean = g->options.gap * BURST * g->models->count / g->models->list[model].popular;
    return random_exponential(&g->random, mean);
}

static void begin_bursts(generator *g)
{
    for (uint32_t i = 0; i < g->models->count; i++)
        g->bursts[i] = (burst){.at = g->now + quiet_time(g, i), .inner = random_exponential(&g->random, BURST)};
}

static uint32_t next_burst(generator *g)
{
    uint32_t first = 0;
    for (uint32_t i = 1; i < g->models->count; i++)
        if (g->bursts[i].at < g->bursts[first].at)
            first = i;
    burst *b = &g->bursts[first];
    g->now = b->at > g->now ? b->at : g->now; /* a scan may have come between */
    if (b->inner > 0) {
        b->inner--;
        b->at = g->now + random_exponential(&g->random, g->options.gap / 4 + 1);
    } else {
        *b = (burst){.at = g->now + quiet_time(g, first), .inner = random_exponential(&g->random, BURST)};
    }
    return first;
}

/* Two that do not fit together, as far as there are such, and a third. */
static void choose_group(generator *g)
{
    uint32_t count = g->models->count;
    for (int i = 0; i < SAME_DRAWS; i++) {
        g->group[0] = (uint32_t)random_below(&g->random, count);
        g->group[1] = (uint32_t)random_below(&g->random, count);
        const wp_spec *a = &g->models->list[g->group[0]].spec, *b = &g->models->list[g->group[1]].spec;
        if (a != b && a->device == b->device && a->variants[0].peak + b->variants[0].peak > g->options.budget)
            break;
    }
    g->group[2] = (uint32_t)random_below(&g->random, count);
    g->group_left = 48 + random_below(&g->random, 96);
    g->group_n = 0;
}

static uint32_t next_ping_pong(generator *g)
{
    static const uint8_t first[] = {0, 1}, second[] = {0, 0, 1, 0, 0, 2};
    if (g->group_left == 0)
        choose_group(g);
    pool_generate_pass(g);
    bool later = g->group_n > g->group_left; /* as many of the one pattern as of the other */
    uint64_t n = g->group_n++;
    g->group_left--;
    return g->group[later ? second[n % sizeof second] : first[n % sizeof first]];
}

static uint32_t next_scan(generator *g)
{
    pool_generate_pass(g);
    g->scanned = g->scanned + 1 < g->models->count ? g->scanned + 1 : 0;
    return g->scanned;
}

/* From 0 at two in the night to 1024 at two in the afternoon, and back. */
static uint64_t daylight(uint64_t now)
{
    uint64_t hour = (now + 22 * HOUR) % TRAFFIC_DAY; /* since two in the night */
    uint64_t near = hour < TRAFFIC_DAY / 2 ? hour : TRAFFIC_DAY - hour;
    return near * 2048 / TRAFFIC_DAY;
}

static uint32_t next_diurnal(generator *g)
{
    uint64_t light;
    do { /* an eighth of the noon's rate at night, and the mean as asked for */
        g->now += random_exponential(&g->random, g->options.gap * 9 / 16);
        light = daylight(g->now);
    } while (random_below(&g->random, 1024) >= 128 + light * 7 / 8);
    return random_below(&g->random, 1024) < light ? pool_generate_draw(g, g->day) : pool_generate_draw(g, g->night);
}

static void pool_generate_begin_phase(generator *g)
{
    static const traffic_kind kinds[] = {TRAFFIC_ZIPF, TRAFFIC_BURSTS, TRAFFIC_PING_PONG, TRAFFIC_DIURNAL};
    g->phase = kinds[random_below(&g->random, sizeof kinds / sizeof *kinds)];
    g->phase_end = g->now + HOUR + random_exponential(&g->random, PHASE_HOURS * HOUR);
    if (g->phase == TRAFFIC_BURSTS)
        begin_bursts(g);
}

static uint32_t next_of(generator *g, traffic_kind kind);

static uint32_t next_mixed(generator *g)
{
    if (g->now >= g->scan_at) {
        uint32_t model = next_scan(g);
        if (model + 1 == g->models->count)
            g->scan_at += TRAFFIC_DAY;
        return model;
    }
    if (g->now >= g->phase_end)
        pool_generate_begin_phase(g);
    return next_of(g, g->phase);
}

static uint32_t next_of(generator *g, traffic_kind kind)
{
    switch (kind) {
    case TRAFFIC_BURSTS:
        return next_burst(g);
    case TRAFFIC_PING_PONG:
        return next_ping_pong(g);
    case TRAFFIC_SCAN:
        return next_scan(g);
    case TRAFFIC_DIURNAL:
        return next_diurnal(g);
    case TRAFFIC_MIX:
        return next_mixed(g);
    default:
        return next_zipf(g);
    }
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

static weir_status generator_next(traffic *base, traffic_request *out, bool *got)
{
    generator *g = (generator *)base;
    enum { MOST = 4 }; /* times the mean: bytes of a request */
    uint32_t model = next_of(g, g->options.kind);
    const traffic_model *m = &g->models->list[model];
    uint64_t bytes = m->request_bytes ? random_exponential(&g->random, m->request_bytes) : 0;
    *out = (traffic_request){.at = g->now,
                             .duration = TRAFFIC_SECOND / 1000 + random_exponential(&g->random, m->request_time),
                             .deadline = WP_FOREVER,
                             .bytes = bytes < MOST * m->request_bytes ? bytes : MOST * m->request_bytes,
                             .model = model};
    *got = g->now < g->options.length;
    return WEIR_OK;
}

static double generator_fraction(const traffic *base)
{
    const generator *g = (const generator *)base;
    return g->now < g->options.length ? (double)g->now / (double)g->options.length : 1;
}

static void generator_close(traffic *base)
{
    generator *g = (generator *)base;
    free(g->day);
    free(g->night);
    free(g->bursts);
    free(g);
}

traffic *traffic_generate(const traffic_options *options, const traffic_models *models)
{
    generator *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    *g = (generator){.base = {generator_next, generator_fraction, generator_close},
                     .options = *options,
                     .models = models,
                     .random = options->seed,
                     .scan_at = SCAN_HOUR * HOUR,
                     .scanned = models->count - 1};
    g->day = calloc(models->count, sizeof *g->day);
    g->night = calloc(models->count, sizeof *g->night);
    g->bursts = calloc(models->count, sizeof *g->bursts);
    if (!g->day || !g->night || !g->bursts) {
        generator_close(&g->base);
        return NULL;
    }
    make_chances(g, g->day);
    make_chances(g, g->night);
    begin_bursts(g);
    return &g->base;
}

static const char *const names[TRAFFIC_KINDS] = {"zipf", "bursts", "ping-pong", "scan", "diurnal", "mix"};

const char *traffic_kind_name(traffic_kind kind)
{
    return kind < TRAFFIC_KINDS ? names[kind] : "?";
}

traffic_kind traffic_kind_called(const char *name)
{
    traffic_kind kind = 0;
    while (kind < TRAFFIC_KINDS && strcmp(names[kind], name) != 0)
        kind++;
    return kind;
}
