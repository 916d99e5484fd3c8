/* bench_random.c: many live blocks of 512 B * 2^u, u uniform in 0…13, a whole number or any; one unit frees one of them
 * and allocates another. Which, and of what size, is drawn beforehand; the same for all allocators. */
#include "clock.h"
#include "loads.h"

#include <math.h>
#include <stdlib.h>

enum { DRAWN = 1 << 16, SMALLEST = 512, DOUBLINGS = 13 };

typedef struct crowd {
    const bench_peer *by;
    uint64_t stream;
    void **blocks;
    uint32_t *bytes; /* of the live blocks */
    uint32_t *sizes, *victims, next;
    bool any_size;
} crowd;

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint32_t draw_size(uint64_t *state, bool any_size)
{
    if (!any_size)
        return (uint32_t)SMALLEST << draw(state) % (DOUBLINGS + 1);
    double u = (double)(draw(state) >> 11) / 0x1p53 * DOUBLINGS;
    return (uint32_t)(SMALLEST * exp2(u));
}

static bool one(crowd *c, uint32_t victim, uint32_t size)
{
    const bench_peer *by = c->by;
    void *old = c->blocks[victim];
    c->blocks[victim] = NULL;
    if (old && !by->release(by->self, old, c->bytes[victim], c->stream))
        return false;
    c->bytes[victim] = size;
    c->blocks[victim] = by->allocate(by->self, size, c->stream);
    return c->blocks[victim] != NULL;
}

static bool batch(crowd *c)
{
    for (int i = 0; i < BENCH_BATCH; i++, c->next = (c->next + 1) % DRAWN)
        if (!one(c, c->victims[c->next], c->sizes[c->next]))
            return false;
    return true;
}

/* Draws what comes, fills the crowd, and turns it over many times as often as will be measured, so that it is as it
 * stays. */
static bool settle(crowd *c, uint32_t live, uint64_t laps)
{
    uint64_t state = 88172645463325252u;
    for (uint32_t i = 0; i < DRAWN; i++) {
        c->sizes[i] = draw_size(&state, c->any_size);
        c->victims[i] = (uint32_t)(draw(&state) % live);
    }
    for (uint32_t i = 0; i < live; i++)
        if (!one(c, i, draw_size(&state, c->any_size)))
            return false;
    for (uint64_t i = 0; i < laps; i++)
        if (!batch(c))
            return false;
    return true;
}

static void disperse(crowd *c, uint32_t live)
{
    for (uint32_t i = 0; i < live; i++)
        if (c->blocks[i])
            (void)c->by->release(c->by->self, c->blocks[i], c->bytes[i], c->stream);
    free(c->blocks);
    free(c->bytes);
    free(c->sizes);
    free(c->victims);
}

const char *bench_run_random(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                             bench_figures *out)
{
    bench_samples samples;
    crowd c = {.by = by,
               .any_size = load->any_size,
               .blocks = text_zeroed(load->live, sizeof *c.blocks),
               .bytes = text_zeroed(load->live, sizeof *c.bytes),
               .sizes = text_zeroed(DRAWN, sizeof *c.sizes),
               .victims = text_zeroed(DRAWN, sizeof *c.victims)};
    const char *failure = by->stream(by->self, 0, &c.stream);
    if (!failure && !settle(&c, load->live, 16 * limits->laps))
        failure = bench_why(by);
    bench_samples_begin(&samples, limits);
    while (!failure && bench_samples_more(&samples)) {
        uint64_t start = bench_now();
        failure = batch(&c) ? NULL : bench_why(by);
        bench_samples_add(&samples, start);
    }
    bench_samples_end(&samples, 1, BENCH_BATCH, out);
    disperse(&c, load->live);
    return failure;
}
