/* What the tests of residency share: on the device that WEIR_TEST_DEVICE names, or the host. Memory is read and written
 * by copies of the driver's. */
#ifndef TESTS_RESIDENCY_H
#define TESTS_RESIDENCY_H

#include "core/core.h"

#include <weir/elastic.h>
#include <weir/pressure.h>
#include <weir/residency.h>

#define BUDGET (64 * MIB)

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *model, *other;
    weir_stream stream;
    gate gate;
} fixture;

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime_here(BUDGET);
    f->model = open_client(f->runtime, "model", 0, 0);
    f->other = open_client(f->runtime, "other", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    f->gate = (gate)GATE;
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->stream));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->model));
    ok(weir_client_destroy(f->other));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* Bytes that tell blocks and places apart. */
static inline unsigned char *pattern(size_t bytes, uint64_t seed)
{
    uint64_t *p = malloc(bytes + sizeof *p), word = seed * 2 + 1;
    (void)next_random(&word);
    for (size_t i = 0; i <= bytes / sizeof *p; i++)
        p[i] = word += UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned char *)p;
}

static inline void write_block(weir_runtime *runtime, void *block, size_t bytes, uint64_t seed)
{
    unsigned char *p = pattern(bytes, seed);
    ok(weir_copy(runtime, block, p, bytes, WEIR_STREAM_HOST));
    free(p);
}

static inline void bytes_are(const unsigned char *there, const unsigned char *wanted, size_t bytes)
{
    size_t i = 0;
    if (memcmp(there, wanted, bytes) == 0)
        return;
    while (memcmp(&there[i], &wanted[i], 1) == 0)
        i++;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the caller has filled both
    fail_msg("byte %zu of %zu is %u, not %u", i, bytes, there[i], wanted[i]);
}

static inline void block_holds(weir_runtime *runtime, const void *block, size_t bytes, uint64_t seed)
{
    unsigned char *p = pattern(bytes, seed), *there = calloc(1, bytes);
    ok(weir_copy(runtime, there, block, bytes, WEIR_STREAM_HOST));
    bytes_are(there, p, bytes);
    free(p);
    free(there);
}

static inline void block_holds_zeros(weir_runtime *runtime, const void *block, size_t bytes)
{
    unsigned char *zeros = calloc(1, bytes), *there = malloc(bytes);
    memset(there, 1, bytes);
    ok(weir_copy(runtime, there, block, bytes, WEIR_STREAM_HOST));
    bytes_are(there, zeros, bytes);
    free(zeros);
    free(there);
}

static inline weir_residency suspend_with(weir_client *client, weir_suspend_options options)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    options.struct_size = sizeof options;
    ok(weir_client_suspend(client, &options, &receipt));
    return receipt;
}

static inline weir_residency suspend(weir_client *client)
{
    return suspend_with(client, (weir_suspend_options){0});
}

static inline weir_residency residency(weir_client *client)
{
    weir_residency r = WEIR_INIT(weir_residency);
    ok(weir_client_residency(client, &r));
    return r;
}

static inline void trim(weir_runtime *runtime)
{
    ok(weir_runtime_trim(runtime, NULL, NULL));
}

#endif
