/* What the tests of pressure callbacks share: on the device that WEIR_TEST_DEVICE names, or the host. */
#ifndef TESTS_PRESSURE_H
#define TESTS_PRESSURE_H

#include "core.h"

#include "sim/device/device.h"
#include "runtime/runtime.h"

#include <stdatomic.h>

enum { PARTS = 4, PART = 4 << 16, BUDGET = PARTS * PART };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *keeper, *other;
    weir_stream stream;
    bool sim; /* work is done when somebody waits for it */
    gate gate;
    void *kept[PARTS]; /* NULL: given up */
} fixture;

static inline bool on_sim(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name && strncmp(name, "sim", 3) == 0;
}

static inline fixture start(void)
{
    fixture f = {.sim = on_sim(), .gate = GATE};
    if (f.sim)
        wi_sim_configure(&(wi_sim_options){.seed = 1, .granule = GRANULE, .bytes = 64 * MIB});
    f.runtime = make_runtime_on(f.sim ? "sim:0" : "host", BUDGET);
    f.keeper = open_client(f.runtime, "keeper", 0, 0);
    f.other = open_client(f.runtime, "other", 0, 0);
    ok(weir_stream_acquire(f.runtime, &f.stream));
    return f;
}

static inline void keep_all(fixture *f)
{
    for (int i = 0; i < PARTS; i++)
        f->kept[i] = allocate(f->keeper, PART, f->stream, WEIR_CLASS_KV);
}

/* True if there was one left. */
static inline bool give_up_one(fixture *f)
{
    for (int i = 0; i < PARTS; i++)
        if (f->kept[i]) {
            ok(weir_free(f->keeper, f->kept[i], WEIR_STREAM_HOST));
            f->kept[i] = NULL;
            return true;
        }
    return false;
}

static inline unsigned count_kept(const fixture *f)
{
    unsigned count = 0;
    for (int i = 0; i < PARTS; i++)
        count += f->kept[i] != NULL;
    return count;
}

static inline void end(fixture *f)
{
    while (give_up_one(f))
        continue;
    ok(weir_stream_release(f->stream));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->keeper));
    ok(weir_client_destroy(f->other));
    ok(weir_runtime_destroy(f->runtime));
}

static inline uint64_t add(fixture *f, int priority, weir_pressure_fn fn, void *user)
{
    uint64_t id = 0;
    ok(weir_pressure_register(f->runtime, priority, fn, user, &id));
    assert_true(id != 0);
    return id;
}

static inline uint64_t served_by_pressure(fixture *f)
{
    return take_snapshot(f->runtime).device.ladder[WEIR_RUNG_PRESSURE];
}

/* A callback that counts, writes down what it was told, and gives up as many parts as it may. */
typedef struct giver {
    fixture *f;
    unsigned calls, gives; /* parts at each call */
    weir_pressure told;
    weir_reservation *reserved;
    char name;
    char *order; /* names of the callbacks, as they are called */
} giver;

static inline void give(const weir_pressure *pressure, void *user)
{
    giver *g = user;
    g->calls++;
    g->told = *pressure;
    if (g->order)
        g->order[strlen(g->order)] = g->name;
    for (unsigned i = 0; i < g->gives; i++)
        (void)give_up_one(g->f);
}

#endif
