/* What the tests of pinned and pageable memory share: on the device that WEIR_TEST_DEVICE names, or the host, whose memory is
 * of one kind. */
#ifndef TESTS_KINDS_H
#define TESTS_KINDS_H

#include "core.h"
#include "core/faulty.h"

#include "sim/device/device.h"
#include "runtime/runtime.h"

#include <stdatomic.h>

enum { BUDGET = 8 << 20, HOST_BUDGET = 1 << 20 };

typedef struct fixture {
    weir_runtime *runtime, *host; /* the one whose ledger it is: `runtime` itself, if that is the host's */
    weir_client *client;
    weir_stream stream;
    bool sim; /* no bytes, and its work is done when somebody waits for it */
    gate gate;
} fixture;

static const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

static inline bool on_host(void)
{
    return strcmp(device(), "host") == 0;
}

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->sim = strncmp(device(), "sim", 3) == 0;
    if (f->sim)
        wi_sim_configure(&(wi_sim_options){.seed = 1});
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    if (!on_host())
        options.host = f->host = make_runtime(HOST_BUDGET);
    ok(weir_runtime_create(device(), &options, &f->runtime));
    if (on_host())
        f->host = f->runtime;
    f->client = open_client(f->runtime, "one", 0, 0);
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
    check_empty(f->host);
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    if (f->host != f->runtime)
        ok(weir_runtime_destroy(f->host));
    free(f);
    return 0;
}

static inline weir_status take_with(weir_client *client, weir_kind kind, size_t bytes, weir_stream stream,
                                    uint32_t flags, void **out)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .stream = stream,
                            .memory_class = WEIR_CLASS_ACTIVATIONS,
                            .tag = "staging",
                            .flags = flags,
                            .kind = kind};
    weir_block block = {out, 1};
    weir_status status = weir_alloc_with(client, &request, &block);
    *out = block.pointer;
    return status;
}

static inline void *take(fixture *f, weir_kind kind, size_t bytes)
{
    void *p;
    ok(take_with(f->client, kind, bytes, f->stream, 0, &p));
    return p;
}

static inline weir_block_details look(const void *p)
{
    weir_block_details details = {.struct_size = sizeof details};
    ok(weir_block_info(p, &details));
    return details;
}

/* The stream holds what is put on it from here on. */
static inline void hold_stream(fixture *f)
{
    if (!f->sim)
        ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
}

static inline void let_go(fixture *f)
{
    open_gate(&f->gate);
    ok(weir_stream_synchronize(f->stream));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
