/* What the tests of segments share: a driver that cannot map memory, and a runtime over it. */
#ifndef BASES_SEGMENTS_H
#define BASES_SEGMENTS_H

#include "bases.h"

#include "memory/segments.h"

#include <weir/stats.h>
#include <weir/uses.h>

/* A driver that cannot map memory: the faulty one, with what it is asked for written down. */
static wi_driver driver;
static struct {
    atomic_uint_fast64_t pieces, asked, released; /* calls; bytes of the last one; of all that went back */
    uint64_t longest;                             /* the device has no longer piece; 0: any */
    bool keeps;                                   /* it takes nothing back */
} script;

static inline weir_status my_reserve(wi_device *device, uint64_t bytes, void **address)
{
    (void)device, (void)bytes, (void)address;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "the script cannot map memory");
}

static inline weir_status my_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    script.pieces++;
    if (script.longest && bytes > script.longest)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the script has no such piece");
    script.asked = bytes;
    return faulty_driver.allocate(device, kind, bytes, address);
}

static inline weir_status my_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    if (script.keeps)
        return weir_fail(WEIR_ERR_DRIVER, "the script keeps it");
    script.released += bytes;
    return faulty_driver.release(device, kind, address, bytes);
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one, *two;
    weir_stream a, b;
    wi_segments *base;
} fixture;

static inline fixture start(uint64_t budget)
{
    fixture f;
    faults_reset(-1);
    memset(&script, 0, sizeof script);
    driver = faulty_driver;
    driver.reserve = my_reserve;
    driver.allocate = my_allocate;
    driver.release = my_release;
    f.runtime = make_over(&driver, "cache", budget);
    f.base = (wi_segments *)f.runtime->resource->base;
    f.one = open_client(f.runtime, "one", 0, 0);
    f.two = open_client(f.runtime, "two", 0, 0);
    ok(weir_stream_acquire(f.runtime, &f.a));
    ok(weir_stream_acquire(f.runtime, &f.b));
    return f;
}

static inline void end(fixture *f)
{
    ok(weir_client_destroy(f->one));
    ok(weir_client_destroy(f->two));
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    end_over(f->runtime);
}

static inline char *take(const fixture *f, uint64_t bytes)
{
    return allocate(f->one, bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
}

static inline void give(const fixture *f, void *pointer)
{
    ok(weir_free(f->one, pointer, WEIR_STREAM_HOST));
}

/* What lies behind the charge of the live block there. */
static inline uint64_t bytes_behind(const fixture *f, const void *pointer)
{
    const wi_segment *s = f->base->first;
    for (; s; s = s->next)
        if (wi_region_holds(&s->region, pointer))
            for (const wi_extent *e = s->region.first; e; e = e->next)
                if (e->block.pointer == pointer)
                    return e->bytes - e->block.charged;
    return UINT64_MAX;
}

/* Of extents. */
static inline size_t records(const fixture *f)
{
    size_t chunk = 1024, all = f->base->shared.pool.chunk_count * chunk;
    return all - f->base->shared.pool.unused_count;
}

#endif
