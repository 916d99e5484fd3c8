/* What a module asks of CUDA's memory goes to clients of weir: accounts, classes, answers and errors. */
#include "interpose/cuda_redirect.h"
#include "interpose/cuda_rig.h"

enum { VIRTUAL_MEMORY = 102, MULTIPROCESSORS = 16, INVALID_VALUE = 1, NO_MEMORY = 2 };

/* Accounts --------------------------------------------------------------------------------------------------------- */

static void device_memory_is_the_clients_until_it_is_freed(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *a = get(&f, 1000), *b = get(&f, 3 * MIB);
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_int_equal(account(f.client[0]).live, 1024 + 3 * MIB);
    assert_int_equal(control.stub_count("cuMemAlloc"), 0);
    assert_int_equal(stats(&f).device_blocks, 2);
    assert_int_equal(stats(&f).device_bytes, 1000 + 3 * MIB);
    assert_int_equal(f.m.cudaFree(a), 0);
    assert_int_equal(stats(&f).device_bytes, 3 * MIB);
    assert_int_equal(f.m.cudaFree(b), 0);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(stats(&f).device_blocks, 0);
    assert_int_equal(stats(&f).allocations, 2);
    assert_int_equal(stats(&f).frees, 2);
    end(&f);
}

static void no_bytes_are_nothing_and_no_place_for_the_pointer_is_an_error(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *pointer = &f;
    assert_int_equal(f.m.cudaMalloc(&pointer, 0), 0);
    assert_null(pointer);
    assert_int_equal(f.m.cudaMalloc(NULL, 100), INVALID_VALUE);
    assert_int_equal(f.m.cudaGetLastError(), INVALID_VALUE);
    size_t bytes;
    assert_int_equal(f.m.cudaMemGetInfo(NULL, NULL), INVALID_VALUE);
    assert_int_equal(f.m.cudaMemGetInfo(&bytes, NULL), INVALID_VALUE);
    assert_int_equal(f.m.cudaMemGetInfo(NULL, &bytes), INVALID_VALUE);
    assert_int_equal(f.m.cudaFree(NULL), 0);
    assert_int_equal(f.m.cudaFreeHost(NULL), 0);
    assert_int_equal(account(f.client[0]).allocations, 0);
    end(&f);
}

static void the_class_is_that_of_the_phase(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 1, NULL);
    ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_WEIGHTS}));
    void *blocks[4];
    blocks[0] = get(&f, 1024);
    wi_cuda_scope kv = {.memory_class = WEIR_CLASS_KV, .tag = "kv"}, scratch = {.memory_class = WEIR_CLASS_SCRATCH};
    wi_cuda_scope steps = {.memory_class = WEIR_CLASS_ACTIVATIONS};
    ok(wi_cuda_scope_enter(f.redirect, &steps));
    blocks[1] = get(&f, 2048);
    wi_cuda_scope_leave(&steps);
    ok(wi_cuda_scope_enter(f.redirect, &kv));
    blocks[2] = get(&f, 4096);
    ok(wi_cuda_scope_enter(f.redirect, &scratch));
    blocks[3] = get(&f, 8192);
    wi_cuda_scope_leave(&kv); /* not the last */
    wi_cuda_scope_leave(&scratch);
    void *again = get(&f, 4096);
    wi_cuda_scope_leave(&kv);
    weir_client_stats s = account(f.client[0]);
    assert_int_equal(s.live_class[WEIR_CLASS_WEIGHTS], 1024);
    assert_int_equal(s.live_class[WEIR_CLASS_ACTIVATIONS], 2048);
    assert_int_equal(s.live_class[WEIR_CLASS_KV], 2 * 4096);
    assert_int_equal(s.live_class[WEIR_CLASS_SCRATCH], 8192);
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(blocks[2], &d));
    assert_string_equal(d.tag, "kv");
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(f.m.cudaFree(blocks[i]), 0);
    assert_int_equal(f.m.cudaFree(again), 0);
    end(&f);
}

static void a_scope_may_have_a_client_of_its_own(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    weir_client *model = open_client(f.runtime[0], "model", 0, 0);
    wi_cuda_scope scope = {.clients = &model, .client_count = 1, .memory_class = WEIR_CLASS_WEIGHTS};
    ok(wi_cuda_scope_enter(f.redirect, &scope));
    void *pointer = get(&f, MIB), *pinned = NULL;
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
    wi_cuda_scope_leave(&scope);
    assert_int_equal(account(model).live, MIB);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(pinned_of(&f, model), 4096);
    assert_int_equal(f.m.cudaFree(pointer), 0); /* outside of the scope */
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    assert_int_equal(account(model).live, 0);
    weir_runtime *other = make_runtime_on("cuda:0", MIB);
    weir_client *stranger = open_client(other, "stranger", 0, 0);
    scope.clients = &stranger;
    fails(WEIR_ERR_INVALID, wi_cuda_scope_enter(f.redirect, &scope));
    detail_names("stranger");
    weir_client *nobody = NULL;
    scope.clients = &nobody; /* of no runtime, as most devices have none */
    fails(WEIR_ERR_INVALID, wi_cuda_scope_enter(f.redirect, &scope));
    fails(WEIR_ERR_INVALID, wi_cuda_scope_enter(f.redirect, NULL));
    fails(WEIR_ERR_INVALID, wi_cuda_scope_enter(NULL, &scope));
    scope.client_count = 0;
    scope.memory_class = (weir_class)WEIR_CLASS_COUNT;
    fails(WEIR_ERR_INVALID, wi_cuda_scope_enter(f.redirect, &scope));
    ok(weir_client_destroy(stranger));
    ok(weir_runtime_destroy(other));
    ok(weir_client_destroy(model));
    end(&f);
}

static void pinned_memory_counts_for_the_client_in_the_hosts_ledger(void **state)
{
    void *a, *b, *other;
    (void)state;
    fixture f = begin(32 * MIB);
    assert_int_equal(f.m.cudaMallocHost(&a, 5000), 0);
    assert_int_equal(f.m.cudaHostAlloc(&b, 4096, 7), 0);
    memset(a, 1, 5000);
    assert_int_equal(pinned_of(&f, f.client[0]), 5120 + 4096);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(stats(&f).pinned_blocks, 2);
    assert_int_equal(stats(&f).pinned_bytes, 5000 + 4096);
    assert_int_equal(f.m.cudaHostAlloc(&other, 4096, 64), 0); /* flags that weir knows nothing of are CUDA's matter */
    assert_int_equal(stats(&f).pinned_blocks, 2);
    assert_int_equal(f.m.cudaFreeHost(other), 0);
    assert_int_equal(f.m.cudaFreeHost(a), 0);
    assert_int_equal(f.m.cudaFreeHost(b), 0);
    assert_int_equal(pinned_of(&f, f.client[0]), 0);
    assert_int_equal(stats(&f).pinned_blocks, 0);
    assert_int_equal(f.m.cudaFreeHost(a), INVALID_VALUE); /* it is CUDA's again, which says so */
    assert_int_equal(f.m.cudaGetLastError(), INVALID_VALUE);
    end(&f);
}

/* A module may keep pinned memory for good: then none of it is a client's, and the end is not held up. */
static void pinned_memory_goes_on_to_cuda_where_the_caller_says_so(void **state)
{
    void *pinned, *managed, *device;
    (void)state;
    fixture f = prepare(32 * MIB, 1, NULL);
    ok(redirect_with(&f, (wi_cuda_redirect_options){.pinned_passes = true}));
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
    assert_int_equal(f.m.cudaMallocManaged(&managed, 4096, 1), 0);
    assert_int_equal(f.m.cudaMalloc(&device, 4096), 0);
    assert_int_equal(pinned_of(&f, f.client[0]), 4096); /* the managed one */
    assert_int_equal(account(f.client[0]).live, 4096);
    assert_int_equal(f.m.cudaFree(managed), 0);
    assert_int_equal(f.m.cudaFree(device), 0);
    assert_int_equal(account(f.client[0]).live + pinned_of(&f, f.client[0]), 0);
    ok(wi_cuda_redirect_end(f.redirect));
    f.redirect = NULL;
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    end(&f);
}

static void managed_memory_is_pinned_or_on_the_device_as_the_caller_says(void **state)
{
    void *managed;
    (void)state;
    for (int on_device = 0; on_device < 2; on_device++) {
        fixture f = prepare(32 * MIB, 1, NULL);
        ok(redirect_with(&f, (wi_cuda_redirect_options){.managed_on_device = on_device}));
        assert_int_equal(f.m.cudaMallocManaged(&managed, 4096, 1), 0);
        assert_int_equal(account(f.client[0]).live, on_device ? 4096 : 0);
        assert_int_equal(pinned_of(&f, f.client[0]), on_device ? 0 : 4096);
        assert_int_equal(f.m.cudaFreeHost(managed), INVALID_VALUE);
        assert_int_equal(f.m.cudaFree(managed), 0);
        assert_int_equal(account(f.client[0]).live + pinned_of(&f, f.client[0]), 0);
        assert_int_equal(f.m.cudaMallocManaged(&managed, 4096, 2), 0); /* the other of the two flags that there are */
        assert_int_equal(account(f.client[0]).live + pinned_of(&f, f.client[0]), 4096);
        assert_int_equal(f.m.cudaFree(managed), 0);
        assert_int_equal(f.m.cudaMallocManaged(&managed, 4096, 3), INVALID_VALUE);
        assert_int_equal(f.m.cudaGetLastError(), INVALID_VALUE);
        end(&f);
    }
}

static void what_the_module_had_before_goes_back_to_cuda(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 1, NULL);
    void *before = get(&f, MIB);
    ok(redirect_with(&f, (wi_cuda_redirect_options){.module = NULL}));
    assert_int_equal(control.stub_count("allocations"), 1);
    assert_int_equal(f.m.cudaFree(before), 0);
    assert_int_equal(control.stub_count("allocations"), 0);
    assert_int_equal(f.m.cudaFree(before), INVALID_VALUE); /* CUDA says so */
    assert_int_equal(f.m.cudaGetLastError(), INVALID_VALUE);
    end(&f);
}

/* Where each block is an allocation of CUDA's, CUDA would free what weir still has. */
static void cuda_is_not_asked_to_free_what_is_weirs(void **state)
{
    static const char *const resources[] = {"mapped", "segments", "direct", "async"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        gate g = GATE;
        void *own, *pinned;
        fixture f = begin_on(resources[i]);
        void *stream = make_stream(&f);
        char *block = get(&f, MIB);
        ok(weir_alloc(f.client[0], MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &own));
        assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
        uint64_t frees = control.stub_count("cuMemFree"), host_frees = control.stub_count("cuMemFreeHost");
        assert_int_equal(f.m.cudaFree(block + 256), INVALID_VALUE);
        assert_int_equal(f.m.cudaFree(own), INVALID_VALUE);    /* of the client, but not the module's */
        assert_int_equal(f.m.cudaFree(pinned), INVALID_VALUE); /* by the wrong function */
        assert_int_equal(f.m.cudaFreeHost(block), INVALID_VALUE);
        assert_int_equal(f.m.cudaLaunchHostFunc(stream, pass_gate, &g), 0);
        assert_int_equal(f.m.cudaFree(block), 0);
        assert_int_equal(f.m.cudaFree(block), INVALID_VALUE); /* while it is pending */
        assert_int_equal(f.m.cudaGetLastError(), INVALID_VALUE);
        assert_int_equal(control.stub_count("cuMemFree"), frees);
        assert_int_equal(control.stub_count("cuMemFreeHost"), host_frees);
        open_gate(&g);
        assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
        ok(weir_free(f.client[0], own, WEIR_STREAM_HOST));
        assert_int_equal(f.m.cudaFreeHost(pinned), 0);
        end(&f);
    }
}

/* Errors ----------------------------------------------------------------------------------------------------------- */

static void a_refusal_is_cudas_error_and_has_weirs_reason(void **state)
{
    void *none = &none;
    (void)state;
    fixture f = begin(4 * MIB);
    assert_int_equal(f.m.cudaMalloc(&none, 40 * MIB), NO_MEMORY);
    assert_ptr_equal(none, &none);
    assert_int_equal(stats(&f).refused, 1);
    assert_non_null(strstr(stats(&f).refusal, "anna"));
    assert_non_null(strstr(said, "cuda-module.so asked cuda:0 for 41943040 bytes of device memory: "));
    assert_int_equal(f.m.cudaPeekAtLastError(), NO_MEMORY);
    assert_int_equal(f.m.cudaGetLastError(), NO_MEMORY);
    assert_int_equal(f.m.cudaGetLastError(), 0);
    assert_int_equal(f.m.cudaPeekAtLastError(), 0);
    assert_int_equal(f.real.cudaGetLastError(), 0); /* not CUDA's own */
    assert_int_equal(f.m.cudaMallocHost(&none, 400 * MIB), NO_MEMORY);
    assert_int_equal(f.m.cudaGetLastError(), NO_MEMORY);
    assert_int_equal(account(f.client[0]).live, 0);
    end(&f);
}

static void the_last_error_is_the_later_one(void **state)
{
    void *none;
    (void)state;
    fixture f = begin(4 * MIB);
    assert_int_not_equal(f.m.cudaSetDevice(99), 0); /* CUDA's first, which ours replaces */
    assert_int_equal(f.m.cudaMalloc(&none, 40 * MIB), NO_MEMORY);
    assert_int_equal(f.m.cudaPeekAtLastError(), NO_MEMORY);
    int other = f.m.cudaSetDevice(99);
    assert_int_equal(f.m.cudaPeekAtLastError(), other);
    assert_int_equal(f.m.cudaGetLastError(), other);
    assert_int_equal(f.m.cudaGetLastError(), 0);
    end(&f);
}

static void *ask_for_the_last_error(void *user)
{
    const fixture *f = user;
    return (void *)(intptr_t)f->m.cudaGetLastError();
}

static void an_error_is_the_threads_own(void **state)
{
    pthread_t other;
    void *none, *error;
    (void)state;
    fixture f = begin(4 * MIB);
    assert_int_equal(f.m.cudaMalloc(&none, 40 * MIB), NO_MEMORY);
    assert_int_equal(pthread_create(&other, NULL, ask_for_the_last_error, &f), 0);
    pthread_join(other, &error);
    assert_null(error);
    assert_int_equal(f.m.cudaGetLastError(), NO_MEMORY);
    end(&f);
}

/* How much there is ------------------------------------------------------------------------------------------------ */

static void check_info(const fixture *f, uint64_t available, uint64_t total)
{
    size_t is_available, is_total;
    assert_int_equal(f->m.cudaMemGetInfo(&is_available, &is_total), 0);
    assert_int_equal(is_available, available);
    assert_int_equal(is_total, total);
}

static void the_module_sees_what_its_client_may_have(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    check_info(&f, 32 * MIB, 32 * MIB);
    void *block = get(&f, 2 * MIB);
    check_info(&f, 30 * MIB, 32 * MIB);
    ok(weir_client_set_limits(f.client[0], 0, 8 * MIB));
    check_info(&f, 6 * MIB, 8 * MIB);
    ok(weir_client_set_limits(f.client[0], 0, 48 * MIB)); /* more than there is of the budget */
    check_info(&f, 30 * MIB, 32 * MIB);
    ok(weir_client_set_limits(f.client[0], 0, 8 * MIB));
    weir_client *others[6];
    for (size_t i = 0; i < 6; i++)
        others[i] = open_client(f.runtime[0], "other", 0, 0);
    void *theirs;
    ok(weir_alloc(others[0], 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &theirs));
    check_info(&f, 6 * MIB, 8 * MIB);
    ok(weir_client_set_limits(others[1], 24 * MIB, 0)); /* unused, and not to be had */
    check_info(&f, 2 * MIB, 8 * MIB);
    void *rest = get(&f, 2 * MIB);
    check_info(&f, 0, 8 * MIB);
    assert_int_equal(f.m.cudaFree(rest), 0);
    ok(weir_client_set_limits(others[1], 0, 0));
    ok(weir_client_set_limits(f.client[0], 0, 0));
    control.stub_fail("cuMemMap", 1, INVALID_VALUE); /* what was made for it is spare */
    assert_int_equal(f.m.cudaMalloc(&rest, 6 * MIB), NO_MEMORY);
    assert_int_equal(f.m.cudaGetLastError(), NO_MEMORY);
    control.stub_take(0, 256 * MIB - 20 * MIB); /* another process leaves 20 MiB of the device */
    size_t available, total, device_free, device_total;
    assert_int_equal(f.m.cudaMemGetInfo(&available, &total), 0);
    assert_int_equal(f.real.cudaMemGetInfo(&device_free, &device_total), 0);
    snapshot s = take_snapshot(f.runtime[0]);
    assert_true(s.device.cached > 0 && s.device.spare > 0);
    assert_int_equal(available, device_free + s.device.cached + s.device.spare);
    assert_true(available < 26 * MIB);
    control.stub_take(0, 0);
    ok(weir_free(others[0], theirs, WEIR_STREAM_HOST));
    for (size_t i = 0; i < 6; i++)
        ok(weir_client_destroy(others[i]));
    assert_int_equal(f.m.cudaFree(block), 0);
    end(&f);
}

static void the_device_says_that_it_cannot_map_memory(void **state)
{
    int value;
    (void)state;
    fixture f = begin(32 * MIB);
    assert_int_equal(f.m.cuDeviceGetAttribute(&value, VIRTUAL_MEMORY, 0), 0);
    assert_int_equal(value, 0);
    assert_int_equal(stats(&f).hidden, 1);
    assert_int_equal(f.m.cuDeviceGetAttribute(&value, 115, 0), 0); /* pools, of which nothing is hidden */
    assert_int_equal(value, 1);
    assert_int_equal(f.m.cuDeviceGetAttribute(&value, VIRTUAL_MEMORY, 1), 0); /* it may get a client later */
    assert_int_equal(value, 0);
    assert_int_equal(stats(&f).hidden, 2);
    ok(wi_cuda_redirect_end(f.redirect));
    f.redirect = NULL;
    assert_int_equal(f.m.cuDeviceGetAttribute(&value, VIRTUAL_MEMORY, 0), 0);
    assert_int_equal(value, 1);
    end(&f);
}

static void functions_that_take_memory_past_weir_are_named(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    assert_string_equal(stats(&f).unseen, "cudaMallocFromPoolAsync, cuMemAlloc_v2");
    end(&f);
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

static void a_device_without_a_client_stays_cudas(void **state)
{
    size_t available, total;
    (void)state;
    fixture f = begin(32 * MIB);
    assert_int_equal(f.m.cudaSetDevice(1), 0);
    void *block = get(&f, MIB), *pinned, *stream = make_stream(&f);
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
    assert_int_equal(control.stub_count("allocations:1"), 2);
    assert_int_equal(stats(&f).passed_on, 2);
    assert_int_equal(stats(&f).streams, 0);
    assert_int_equal(f.m.cudaMemGetInfo(&available, &total), 0);
    assert_int_equal(total, 256 * MIB);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    assert_int_equal(f.m.cudaSetDevice(0), 0);
    end(&f);
}

static void each_device_has_its_client(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 2, NULL);
    ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_KV}));
    void *first = get(&f, MIB), *pinned;
    assert_int_equal(f.m.cudaSetDevice(1), 0);
    void *second = get(&f, 2 * MIB);
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
    assert_int_equal(account(f.client[0]).live, MIB);
    assert_int_equal(account(f.client[1]).live, 2 * MIB);
    assert_int_equal(pinned_of(&f, f.client[1]), 4096);
    assert_int_equal(f.m.cudaFree(first), 0); /* whichever device is current */
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(f.m.cudaSetDevice(0), 0);
    assert_int_equal(f.m.cudaFree(second), 0);
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    end(&f);
}

/* Another device's streams may be at work with a block: no event of theirs can be had for it, so they are waited
 * for. */
static void a_free_waits_for_the_streams_of_another_device(void **state)
{
    gate g = GATE;
    pthread_t opener;
    (void)state;
    fixture f = prepare(32 * MIB, 2, NULL);
    ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_KV}));
    void *block = get(&f, MIB);
    assert_int_equal(f.m.cudaSetDevice(1), 0);
    void *stream = make_stream(&f);
    assert_int_equal(f.m.cudaLaunchHostFunc(stream, pass_gate, &g), 0);
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_true(g.open);
    pthread_join(opener, NULL);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    assert_int_equal(f.m.cudaSetDevice(0), 0);
    end(&f);
}

/* All that an engine on CUDA needs is here as a stub; of what it needs besides the first that is missing is named. */
static void the_first_library_that_is_missing_is_named(void **state)
{
    static const char *const none[] = {NULL}, *const two[] = {"libcuda.so.1", "libnone.so.7", "libnone.so.8", NULL};
    (void)state;
    assert_null(wi_cuda_missing(NULL));
    assert_null(wi_cuda_missing(none));
    assert_string_equal(wi_cuda_missing(two), "libnone.so.7");
}

/* Whoever asks is about to use them, and to open them takes longer than anything else of a load. */
static void libraries_that_are_there_stay_open(void **state)
{
    static const char *const one[] = {"libcurand.so.10", NULL};
    (void)state;
    assert_null(dlopen(one[0], RTLD_NOW | RTLD_NOLOAD));
    assert_null(wi_cuda_missing(one));
    void *open = dlopen(one[0], RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(open);
    dlclose(open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_library_that_is_missing_is_named),
        cmocka_unit_test(libraries_that_are_there_stay_open),
        cmocka_unit_test(device_memory_is_the_clients_until_it_is_freed),
        cmocka_unit_test(no_bytes_are_nothing_and_no_place_for_the_pointer_is_an_error),
        cmocka_unit_test(the_class_is_that_of_the_phase),
        cmocka_unit_test(a_scope_may_have_a_client_of_its_own),
        cmocka_unit_test(pinned_memory_counts_for_the_client_in_the_hosts_ledger),
        cmocka_unit_test(pinned_memory_goes_on_to_cuda_where_the_caller_says_so),
        cmocka_unit_test(managed_memory_is_pinned_or_on_the_device_as_the_caller_says),
        cmocka_unit_test(what_the_module_had_before_goes_back_to_cuda),
        cmocka_unit_test(cuda_is_not_asked_to_free_what_is_weirs),
        cmocka_unit_test(a_refusal_is_cudas_error_and_has_weirs_reason),
        cmocka_unit_test(the_last_error_is_the_later_one),
        cmocka_unit_test(an_error_is_the_threads_own),
        cmocka_unit_test(the_module_sees_what_its_client_may_have),
        cmocka_unit_test(the_device_says_that_it_cannot_map_memory),
        cmocka_unit_test(functions_that_take_memory_past_weir_are_named),
        cmocka_unit_test(a_device_without_a_client_stays_cudas),
        cmocka_unit_test(each_device_has_its_client),
        cmocka_unit_test(a_free_waits_for_the_streams_of_another_device),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}
