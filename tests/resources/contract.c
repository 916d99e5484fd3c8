/* The contract of a resource, on any device and any stack: test-contract host|stub|cuda STACK, and
 * test-contract-sim STACK. */
#include "resources/contract.h"

#include <weir/adaptor.h>

#include <stdatomic.h>

elsewhere other;

/* An adaptor of the program's own that counts: after all tests as many blocks are freed as were allocated, and as many
 * bytes. */
static atomic_llong blocks_now, bytes_now, asked_now;

static weir_status counts_before(void *state, const weir_adaptor_block *block)
{
    (void)state, (void)block;
    atomic_fetch_add(&asked_now, 1);
    return WEIR_OK;
}

static void counts_failed(void *state, const weir_adaptor_block *block, weir_status status)
{
    (void)state, (void)block, (void)status;
    atomic_fetch_sub(&asked_now, 1);
}

static void counts_allocated(void *state, const weir_adaptor_block *block)
{
    (void)state;
    atomic_fetch_sub(&asked_now, 1);
    atomic_fetch_add(&blocks_now, 1);
    atomic_fetch_add(&bytes_now, (long long)block->bytes);
}

static void counts_resized(void *state, const weir_adaptor_block *block)
{
    (void)state;
    if (block->bytes > block->old_bytes)
        atomic_fetch_sub(&asked_now, 1);
    atomic_fetch_add(&bytes_now, (long long)block->bytes - (long long)block->old_bytes);
}

static void counts_freed(void *state, const weir_adaptor_block *block)
{
    (void)state;
    atomic_fetch_sub(&blocks_now, 1);
    atomic_fetch_sub(&bytes_now, (long long)block->bytes);
}

static bool add_counts(void)
{
    const weir_adaptor_table table = {.struct_size = sizeof table,
                                      .name = "counts",
                                      .before_allocate = counts_before,
                                      .allocated = counts_allocated,
                                      .failed = counts_failed,
                                      .resized = counts_resized,
                                      .freed = counts_freed};
    return weir_adaptor_register(&table) == WEIR_OK;
}

static bool counts_are_even(void)
{
    printf("the adaptor has %lld blocks, %lld bytes and %lld requests\n", atomic_load(&blocks_now),
           atomic_load(&bytes_now), atomic_load(&asked_now));
    return blocks_now == 0 && bytes_now == 0 && asked_now == 0;
}

/* A stack that is not there fails the suite once, and not every test of it. */
static bool stack_is_there(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = place.stack};
    weir_runtime *runtime;
    return weir_runtime_create(place.device, &options, &runtime) == WEIR_OK && weir_runtime_destroy(runtime) == WEIR_OK;
}

static bool open_elsewhere(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 16 * MIB, .resource = "cache"};
    weir_client_options client = {.struct_size = sizeof client, .name = "elsewhere"};
    return weir_runtime_create(place.device, &options, &other.runtime) == WEIR_OK &&
           weir_client_create(other.runtime, &client, &other.client) == WEIR_OK &&
           weir_stream_acquire(other.runtime, &other.stream) == WEIR_OK &&
           weir_alloc(other.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &other.block) == WEIR_OK;
}

static bool close_elsewhere(void)
{
    return weir_free(other.client, other.block, WEIR_STREAM_HOST) == WEIR_OK &&
           weir_stream_release(other.stream) == WEIR_OK && weir_client_destroy(other.client) == WEIR_OK &&
           weir_runtime_destroy(other.runtime) == WEIR_OK;
}

int main(int argc, char **argv)
{
    int (*const parts[])(void) = {contract_blocks, contract_misuse,  contract_order,   contract_uses, contract_limits,
                                  contract_resize, contract_runtime, contract_threads, contract_model};
    int answer = choose_place(argc, argv), failed = 0;
    if (answer != 0)
        return answer;
    setenv("WEIR_THREAD_CACHE", "0",
           0); /* no thread cache keeps what is freed, unless the environment says how much it may */
    printf("%s on %s%s\n", place.stack, place.device,
           place.simulated ? ": what memory holds cannot be looked at there, and is not" : "");
    if (!add_counts() || !open_elsewhere() || !stack_is_there()) {
        fprintf(stderr, "%s\n", weir_detail());
        return 1;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        failed += parts[i]();
    if (failed == 0 && !close_elsewhere()) {
        fprintf(stderr, "%s\n", weir_detail());
        failed++;
    }
    if (failed == 0 && (something_is_left() || !counts_are_even()))
        failed++;
    return failed > 0;
}
