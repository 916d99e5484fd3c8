/* How a redirect begins and ends, and what it refuses. */
#include "interpose/cuda_rig.h"
#include "interpose/cuda_redirect_parts.h"

/* Beginning and ending --------------------------------------------------------------------------------------------- */

static void the_end_is_refused_while_the_module_has_memory(void **state)
{
    void *pinned;
    (void)state;
    fixture f = begin(32 * MIB);
    void *block = get(&f, MIB);
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
    fails(WEIR_ERR_BUSY, wi_cuda_redirect_end(f.redirect));
    detail_names("2 blocks of 1052672 bytes");
    void *more = get(&f, MIB); /* it goes on */
    assert_int_equal(account(f.client[0]).live, 2 * MIB);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.m.cudaFree(more), 0);
    fails(WEIR_ERR_BUSY, wi_cuda_redirect_end(f.redirect));
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    end(&f);
}

static void after_the_end_the_module_has_cudas_memory_again(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    assert_int_equal(f.m.cudaFree(get(&f, MIB)), 0);
    wi_cuda_redirect *ended = f.redirect;
    ok(wi_cuda_redirect_end(f.redirect));
    fails(WEIR_ERR_INVALID, wi_cuda_redirect_end(ended));
    void *block = get(&f, MIB);
    assert_int_equal(control.stub_count("allocations"), 1);
    f.redirect = NULL;
    ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_OTHER}));
    void *again = get(&f, MIB);
    assert_int_equal(account(f.client[0]).live, MIB);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.m.cudaFree(again), 0);
    end(&f);
}

static void a_module_that_its_user_has_closed_stays_until_the_end(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *block = get(&f, MIB);
    dlclose(f.handle);
    f.handle = NULL;
    assert_int_equal(f.m.cudaFree(block), 0);
    end(&f);
}

static void *end_it(void *user)
{
    return (void *)(intptr_t)wi_cuda_redirect_end(user);
}

static bool is_followed(wi_cuda_redirect *r, size_t index)
{
    pthread_mutex_lock(&r->lock);
    bool used = r->streams[index].used;
    pthread_mutex_unlock(&r->lock);
    return used;
}

typedef struct destroyer {
    const fixture *f;
    void *stream;
    int result;
} destroyer;

static void *destroy_it(void *user)
{
    destroyer *d = user;
    d->result = d->f->m.cudaStreamDestroy(d->stream);
    return NULL;
}

/* Until weir has done with the streams, their destruction comes here, so that it never waits for one that is gone. */
static void the_streams_are_given_up_before_the_slots(void **state)
{
    gate g = GATE;
    pthread_t thread, second;
    void *status;
    (void)state;
    fixture f = begin(32 * MIB);
    void *stream = make_stream(&f), *other = make_stream(&f);
    size_t slots = wi_interpose_replaced(f.redirect->interpose);
    assert_int_equal(f.m.cudaLaunchHostFunc(stream, pass_gate, &g), 0);
    assert_int_equal(pthread_create(&thread, NULL, end_it, f.redirect), 0);
    while (is_followed(f.redirect, 0)) /* the default stream, which comes first */
        usleep(100);
    assert_int_equal(wi_interpose_replaced(f.redirect->interpose), slots);
    assert_int_equal(f.m.cudaStreamDestroy(other), 0);
    uint64_t destroyed = control.stub_count("cuStreamDestroy");
    destroyer d = {.f = &f, .stream = stream}; /* that stream itself is destroyed when weir is done with it */
    assert_int_equal(pthread_create(&second, NULL, destroy_it, &d), 0);
    usleep(10000);
    assert_int_equal(control.stub_count("cuStreamDestroy"), destroyed);
    open_gate(&g);
    pthread_join(thread, &status);
    pthread_join(second, NULL);
    assert_null(status);
    assert_int_equal(d.result, 0);
    assert_int_equal(warnings, 0);
    f.redirect = NULL;
    end(&f);
}

static void four_redirects_may_be_in_a_row_and_end_last_first(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 1, NULL);
    wi_cuda_redirect *all[WI_CUDA_REDIRECTS];
    weir_client *clients[WI_CUDA_REDIRECTS];
    for (size_t i = 0; i < WI_CUDA_REDIRECTS; i++) {
        clients[i] = open_client(f.runtime[0], "one of four", 0, 0);
        wi_cuda_redirect_options o = {.clients = &clients[i], .client_count = 1};
        ok(redirect_with(&f, o));
        all[i] = f.redirect;
    }
    fails(WEIR_ERR_BUSY, redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_OTHER}));
    assert_null(f.redirect);
    void *block = get(&f, MIB);
    assert_int_equal(account(clients[WI_CUDA_REDIRECTS - 1]).live, MIB);
    assert_int_equal(f.m.cudaFree(block), 0);
    fails(WEIR_ERR_CONFLICT, wi_cuda_redirect_end(all[0]));
    for (size_t i = WI_CUDA_REDIRECTS; i-- > 0;) {
        ok(wi_cuda_redirect_end(all[i]));
        ok(weir_client_destroy(clients[i]));
    }
    end(&f);
}

static void options_that_are_none_are_refused(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 1, NULL);
    weir_client *twice[] = {f.client[0], f.client[0]}, *none = NULL, *host = open_client(f.host, "host", 0, 0);
    wi_cuda_redirect_options o = {.clients = twice, .client_count = 2, .module = f.path};
    fails(WEIR_ERR_INVALID, redirect_with(&f, o));
    detail_names("two clients");
    o = (wi_cuda_redirect_options){.clients = &none, .client_count = 1};
    fails(WEIR_ERR_INVALID, redirect_with(&f, o));
    o.clients = &host;
    fails(WEIR_ERR_INVALID, redirect_with(&f, o));
    detail_names("CUDA");
    o = (wi_cuda_redirect_options){
        .clients = f.client, .client_count = 1, .memory_class = (weir_class)WEIR_CLASS_COUNT};
    fails(WEIR_ERR_INVALID, redirect_with(&f, o));
    o = (wi_cuda_redirect_options){.clients = f.client, .client_count = 0};
    fails(WEIR_ERR_INVALID, redirect_with(&f, o));
    fails(WEIR_ERR_INVALID, wi_cuda_redirect_begin(NULL, &f.redirect));
    fails(WEIR_ERR_NOT_FOUND, redirect_with(&f, (wi_cuda_redirect_options){.module = "/no/such/module.so"}));
    assert_null(f.redirect);
    ok(wi_cuda_redirect_end(NULL));
    ok(weir_client_destroy(host));
    assert_int_equal(f.m.cudaFree(get(&f, MIB)), 0); /* CUDA's */
    end(&f);
}

static void refused(fixture *f, const char *name, weir_status status, const char *why)
{
    char path[512];
    void *module = dlopen(module_path(name, path, sizeof path), RTLD_NOW | RTLD_LOCAL);
    assert_non_null(module);
    fails(status, redirect_with(f, (wi_cuda_redirect_options){.module = path}));
    detail_names(name);
    detail_names(why);
    dlclose(module);
    assert_null(dlopen(path, RTLD_NOW | RTLD_NOLOAD));
}

static void modules_whose_calls_cannot_be_had_or_ordered_are_refused(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 1, NULL);
    refused(&f, "cuda-module-static", WEIR_ERR_NOT_FOUND, "linked in");
    refused(&f, "cuda-module-per-thread", WEIR_ERR_UNSUPPORTED, "--default-stream per-thread");
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_is_refused_while_the_module_has_memory),
        cmocka_unit_test(after_the_end_the_module_has_cudas_memory_again),
        cmocka_unit_test(a_module_that_its_user_has_closed_stays_until_the_end),
        cmocka_unit_test(the_streams_are_given_up_before_the_slots),
        cmocka_unit_test(four_redirects_may_be_in_a_row_and_end_last_first),
        cmocka_unit_test(options_that_are_none_are_refused),
        cmocka_unit_test(modules_whose_calls_cannot_be_had_or_ordered_are_refused),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}
