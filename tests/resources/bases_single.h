/* What the tests of the resources direct and async share: the faulty driver, with some calls led through here. */
#ifndef BASES_SINGLE_H
#define BASES_SINGLE_H

#include "bases.h"

/* A driver of the test's own -------------------------------------------------------------------------------------- */

/* The faulty one with some calls led through here. */
static wi_driver driver;
static wi_device *device;
static struct {
    void *address;           /* the next allocation answers it; and its release keeps it */
    size_t refused_releases; /* that many, from the next on */
    bool full, full_until_trim, refuse_fill, refuse_held;
    void (*released)(void); /* runs once, when the driver has taken a piece back and not yet answered */
    void (*asked)(void);    /* the same when the pool was asked what it has */
} script;

static inline weir_status my_open(int ordinal, wi_device **out)
{
    weir_status status = faulty_driver.open(ordinal, out);
    device = *out;
    return status;
}

static inline weir_status refusal(void)
{
    return weir_fail(WEIR_ERR_DRIVER, "the script refuses");
}

static _Alignas(4096) char size_index[65536];

static inline weir_status my_allocate(wi_device *d, weir_kind kind, uint64_t bytes, void **address)
{
    if (script.full)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the script is full");
    if (!script.address)
        return faulty_driver.allocate(d, kind, bytes, address);
    *address = script.address;
    script.address = NULL;
    return WEIR_OK;
}

static inline weir_status my_release(wi_device *d, weir_kind kind, void *address, uint64_t bytes)
{
    if (script.refused_releases > 0 && script.refused_releases--)
        return refusal();
    bool mine = (char *)address >= size_index && (char *)address < size_index + sizeof size_index;
    return mine ? WEIR_OK : faulty_driver.release(d, kind, address, bytes);
}

static inline void run_once(void (**hook)(void))
{
    void (*fn)(void) = *hook;
    *hook = NULL;
    if (fn)
        fn();
}

static inline weir_status my_pool_allocate(wi_device *d, uint64_t bytes, void *stream, void **address)
{
    if (script.full || script.full_until_trim)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the script is full");
    return faulty_driver.pool_allocate(d, bytes, stream, address);
}

static inline weir_status my_pool_release(wi_device *d, void *address, uint64_t bytes, void *stream)
{
    if (script.refused_releases > 0 && script.refused_releases--)
        return refusal();
    weir_status status = faulty_driver.pool_release(d, address, bytes, stream);
    run_once(&script.released);
    return status;
}

static inline weir_status my_pool_trim(wi_device *d, uint64_t keep, uint64_t *held)
{
    script.full_until_trim = false;
    return faulty_driver.pool_trim(d, keep, held);
}

static inline weir_status my_pool_held(wi_device *d, uint64_t *held)
{
    weir_status status = script.refuse_held ? refusal() : faulty_driver.pool_held(d, held);
    run_once(&script.asked);
    return status;
}

static inline weir_status my_fill(wi_device *d, void *to, uint8_t value, size_t bytes, void *stream)
{
    return script.refuse_fill ? refusal() : faulty_driver.fill(d, to, value, bytes, stream);
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one, *two;
    weir_stream a, b;
} fixture;

static inline fixture *make(const char *resource, uint64_t budget)
{
    fixture *f = calloc(1, sizeof *f);
    faults_reset(-1);
    memset(&script, 0, sizeof script);
    driver = faulty_driver;
    driver.open = my_open;
    driver.allocate = my_allocate;
    driver.release = my_release;
    driver.pool_allocate = my_pool_allocate;
    driver.pool_release = my_pool_release;
    driver.pool_trim = my_pool_trim;
    driver.pool_held = my_pool_held;
    driver.fill = my_fill;
    f->runtime = make_over(&driver, resource, budget);
    f->one = open_client(f->runtime, "one", 0, 0);
    f->two = open_client(f->runtime, "two", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    return f;
}

static inline void end(fixture *f)
{
    ok(weir_client_destroy(f->one));
    ok(weir_client_destroy(f->two));
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    end_over(f->runtime);
    free(f);
}

static inline uint64_t pool_held(void)
{
    uint64_t held;
    ok(wi_host_driver.pool_held(device, &held));
    return held;
}

static fixture *in_hook; /* what a hook works on */

#endif
