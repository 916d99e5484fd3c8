/* own-base.c: a pair of functions that allocate and free, under weir's ledger and budget.
 *
 * `counting` hands out memory of the C library and counts what it has. weir asks it for one allocation per block, refuses what
 * goes beyond the budget before it is asked, and gives back what was freed when the device is past it. With cudaMalloc and
 * cudaFree in place of the two calls it serves a GPU; with cudaMallocAsync, cudaFreeAsync and WEIR_BASE_STREAM_ORDERED it does so
 * in stream order. */
#include <weir/weir.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct counting {
    atomic_size_t blocks, bytes, calls;
} counting;

static weir_status counting_allocate(void *state, size_t bytes, void *stream, void **address)
{
    counting *c = state;
    (void)stream;
    atomic_fetch_add(&c->calls, 1);
    *address = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!*address)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "counting: the C library has no %zu bytes", bytes);
    atomic_fetch_add(&c->blocks, 1);
    atomic_fetch_add(&c->bytes, bytes);
    return WEIR_OK;
}

static weir_status counting_release(void *state, void *address, size_t bytes, void *stream)
{
    counting *c = state;
    (void)stream;
    free(address);
    atomic_fetch_sub(&c->blocks, 1);
    atomic_fetch_sub(&c->bytes, bytes);
    return WEIR_OK;
}

static int give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weir_detail());
    return 1;
}

int main(void)
{
    static counting c;
    weir_base_table table = WEIR_INIT(weir_base_table);
    table.name = "counting";
    table.user = &c;
    table.allocate = counting_allocate;
    table.release = counting_release;
    if (weir_base_register(&table) != WEIR_OK)
        return give_up("register");

    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = 4u << 20;
    options.resource = "counting"; /* or "guard(counting)", "log(counting)" */
    weir_client_options who = WEIR_INIT(weir_client_options);
    who.name = "mine";
    weir_runtime *runtime;
    weir_client *client;
    if (weir_runtime_create("host", &options, &runtime) != WEIR_OK)
        return give_up("runtime");
    if (weir_client_create(runtime, &who, &client) != WEIR_OK)
        return give_up("client");

    void *p, *beyond;
    if (weir_alloc(client, 3u << 20, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &p) != WEIR_OK)
        return give_up("allocate");
    size_t calls = c.calls;
    printf("the base has %zu bytes in %zu block\n", (size_t)c.bytes, (size_t)c.blocks);
    if (weir_alloc(client, 2u << 20, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &beyond) != WEIR_ERR_OUT_OF_MEMORY)
        return give_up("the budget did not hold");
    printf("refused without asking the base: %s\n", c.calls == calls ? weir_detail() : "no");
    if (weir_free(client, p, WEIR_STREAM_HOST) != WEIR_OK || weir_client_destroy(client) != WEIR_OK ||
        weir_runtime_destroy(runtime) != WEIR_OK)
        return give_up("end");
    printf("the base has %zu bytes\n", (size_t)c.bytes);
    return c.bytes == 0 && c.blocks == 0 && c.calls == calls ? 0 : 1;
}
