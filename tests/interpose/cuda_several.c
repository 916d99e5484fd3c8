/* Two and three of what the other tests have one of: clients and scopes, redirects and modules, blocks past the budget,
 * streams with a gap between them and captures beside each other. */
#include "interpose/cuda_rig.h"

#include <dlfcn.h>

enum { NO_MEMORY = 2, INVALID_VALUE = 1, MANY_STREAMS = 70 };

/* Clients and scopes ----------------------------------------------------------------------------------------------- */

static void a_scope_has_a_client_and_a_reservation_for_each_device(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, DEVICES, NULL);
    weir_client *models[DEVICES];
    weir_reservation *reserves[DEVICES];
    void *blocks[DEVICES];
    ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_OTHER}));
    for (size_t i = 0; i < DEVICES; i++) {
        models[i] = open_client(f.runtime[i], "model", 0, 0);
        ok(weir_reservation_create(models[i], 3 * MIB, 0, &reserves[i]));
    }
    wi_cuda_scope scope = {
        .clients = models, .client_count = DEVICES, .memory_class = WEIR_CLASS_KV, .reservations = reserves};
    ok(wi_cuda_scope_enter(f.redirect, &scope));
    for (int i = 0; i < DEVICES; i++) {
        assert_int_equal(f.m.cudaSetDevice(i), 0);
        blocks[i] = get(&f, MIB);
        assert_int_equal(account(models[i]).live, MIB);
        assert_int_equal(account(models[i]).promised, 2 * MIB);
        assert_int_equal(account(f.client[i]).live, 0);
    }
    wi_cuda_scope_leave(&scope);
    for (size_t i = 0; i < DEVICES; i++) {
        assert_int_equal(f.m.cudaFree(blocks[i]), 0);
        ok(weir_reservation_destroy(reserves[i]));
        ok(weir_client_destroy(models[i]));
    }
    assert_int_equal(f.m.cudaSetDevice(0), 0);
    end(&f);
}

static void no_client_of_a_scope_may_be_a_stranger(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    weir_runtime *other = make_runtime_on("cuda:0", MIB);
    weir_client *clients[] = {f.client[0], f.client[0], open_client(other, "stranger", 0, 0)};
    wi_cuda_scope scope = {.clients = clients, .client_count = 3};
    fails(WEIR_ERR_INVALID, wi_cuda_scope_enter(f.redirect, &scope));
    detail_names("stranger");
    ok(weir_client_destroy(clients[2]));
    ok(weir_runtime_destroy(other));
    end(&f);
}

static void what_a_scope_was_refused_and_granted_adds_up(void **state)
{
    (void)state;
    fixture f = begin(4 * MIB);
    void *none, *granted[3];
    wi_cuda_scope refusing = {.memory_class = WEIR_CLASS_SCRATCH}, granting = {.overruns = true};
    ok(wi_cuda_scope_enter(f.redirect, &refusing));
    for (int i = 0; i < 3; i++)
        assert_int_equal(f.m.cudaMalloc(&none, 5 * MIB), NO_MEMORY);
    assert_int_equal(refusing.refused, 3);
    char why[sizeof refusing.refusal];
    snprintf(why, sizeof why, "%s", refusing.refusal);
    /* The host's memory is none of the scope's, whichever way it is asked for. */
    assert_int_equal(f.m.cudaMallocHost(&none, 400 * MIB), NO_MEMORY);
    assert_int_equal(f.m.cudaHostAlloc(&none, 400 * MIB, 0), NO_MEMORY);
    assert_int_equal(f.m.cudaMallocManaged(&none, 400 * MIB, 1), NO_MEMORY);
    assert_int_equal(refusing.refused, 3);
    assert_string_equal(refusing.refusal, why);
    assert_int_equal(stats(&f).refused, 6);
    wi_cuda_scope_leave(&refusing);
    ok(wi_cuda_scope_enter(f.redirect, &granting));
    for (size_t i = 0; i < 3; i++)
        granted[i] = get(&f, (5 + i) * MIB);
    assert_int_equal(granting.overrun, 18 * MIB);
    wi_cuda_scope_leave(&granting);
    assert_int_equal(stats(&f).overrun_bytes, 18 * MIB);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(f.m.cudaFree(granted[i]), 0);
    end(&f);
}

/* The one in the middle goes first: those around it are still known. */
static void each_block_past_the_budget_is_its_clients(void **state)
{
    (void)state;
    fixture f = begin(4 * MIB);
    weir_client *model = open_client(f.runtime[0], "model", 0, 0);
    void *granted[4];
    for (size_t i = 0; i < 4; i++) {
        wi_cuda_scope scope = {.clients = i % 2 ? &model : &f.client[0], .client_count = 1, .overruns = true};
        ok(wi_cuda_scope_enter(f.redirect, &scope));
        granted[i] = get(&f, (5 + i) * MIB);
        wi_cuda_scope_leave(&scope);
    }
    assert_int_equal(wi_cuda_redirect_overrun(f.redirect, f.client[0]), 12 * MIB);
    assert_int_equal(wi_cuda_redirect_overrun(f.redirect, model), 14 * MIB);
    assert_int_equal(f.m.cudaFree(granted[1]), 0);
    assert_int_equal(wi_cuda_redirect_overrun(f.redirect, f.client[0]), 12 * MIB);
    assert_int_equal(wi_cuda_redirect_overrun(f.redirect, model), 8 * MIB);
    assert_int_equal(f.m.cudaFree(granted[0]), 0);
    assert_int_equal(wi_cuda_redirect_overrun(f.redirect, f.client[0]), 7 * MIB);
    assert_int_equal(f.m.cudaFree(granted[3]), 0);
    assert_int_equal(f.m.cudaFree(granted[2]), 0);
    assert_int_equal(stats(&f).overrun_bytes, 0);
    ok(weir_client_destroy(model));
    end(&f);
}

static void pending_and_promised_bytes_are_not_there_for_the_module(void **state)
{
    gate g = GATE;
    size_t available, total;
    (void)state;
    fixture f = begin(32 * MIB);
    weir_client *other = open_client(f.runtime[0], "other", 0, 0);
    weir_reservation *reserve;
    void *stream = make_stream(&f), *block = get(&f, 2 * MIB);
    ok(weir_reservation_create(other, 3 * MIB, 0, &reserve));
    assert_int_equal(f.m.cudaLaunchHostFunc(stream, pass_gate, &g), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.m.cudaMemGetInfo(&available, &total), 0);
    assert_int_equal(available, 27 * MIB);
    open_gate(&g);
    assert_int_equal(f.m.cudaStreamSynchronize(stream), 0);
    ok(weir_reservation_destroy(reserve));
    ok(weir_client_destroy(other));
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

static void a_scope_is_found_behind_those_of_another_redirect(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    wi_cuda_redirect *below = f.redirect;
    weir_client *model = open_client(f.runtime[0], "model", 0, 0);
    ok(redirect_with(&f, (wi_cuda_redirect_options){.clients = &model, .client_count = 1}));
    wi_cuda_scope own = {.memory_class = WEIR_CLASS_KV},
                  others[2] = {{.memory_class = WEIR_CLASS_SCRATCH}, {.memory_class = WEIR_CLASS_SCRATCH}};
    ok(wi_cuda_scope_enter(f.redirect, &own));
    ok(wi_cuda_scope_enter(below, &others[0]));
    ok(wi_cuda_scope_enter(below, &others[1]));
    void *block = get(&f, MIB);
    assert_int_equal(account(model).live_class[WEIR_CLASS_KV], MIB);
    wi_cuda_scope_leave(&others[1]);
    wi_cuda_scope_leave(&others[0]);
    wi_cuda_scope_leave(&own);
    assert_int_equal(f.m.cudaFree(block), 0);
    ok(wi_cuda_redirect_end(f.redirect));
    f.redirect = below;
    ok(weir_client_destroy(model));
    end(&f);
}

static void each_redirect_has_a_last_error_of_its_own(void **state)
{
    (void)state;
    fixture f = prepare(4 * MIB, 1, NULL);
    wi_cuda_redirect *all[3];
    weir_client *clients[3];
    void *none;
    for (size_t i = 0; i < 3; i++) {
        clients[i] = open_client(f.runtime[0], "one of three", 0, 0);
        ok(redirect_with(&f, (wi_cuda_redirect_options){.clients = &clients[i], .client_count = 1}));
        all[i] = f.redirect;
        assert_int_equal(f.m.cudaMalloc(&none, 5 * MIB), NO_MEMORY);
        assert_int_equal(f.m.cudaPeekAtLastError(), NO_MEMORY);
        assert_int_equal(f.m.cudaGetLastError(), NO_MEMORY);
        assert_int_equal(f.m.cudaGetLastError(), 0);
    }
    for (size_t i = 3; i-- > 0;) {
        ok(wi_cuda_redirect_end(all[i]));
        ok(weir_client_destroy(clients[i]));
    }
    f.redirect = NULL;
    end(&f);
}

/* A place comes again when all others have been used since. */
static void a_redirect_knows_nothing_of_the_one_that_had_its_place(void **state)
{
    (void)state;
    fixture f = prepare(4 * MIB, DEVICES, NULL);
    const weir_runtime *second = f.runtime[1];
    void *none, *granted;
    wi_cuda_scope scope = {.overruns = true};
    ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_OTHER}));
    wi_cuda_redirect *place = f.redirect;
    assert_int_equal(f.m.cudaMalloc(&none, 5 * MIB), NO_MEMORY);
    ok(wi_cuda_scope_enter(f.redirect, &scope));
    granted = get(&f, 5 * MIB);
    wi_cuda_scope_leave(&scope);
    assert_int_equal(f.m.cudaFree(granted), 0);
    for (size_t i = 0; i < WI_CUDA_REDIRECTS; i++) {
        ok(wi_cuda_redirect_end(f.redirect));
        ok(redirect_with(&f, (wi_cuda_redirect_options){.clients = f.client, .client_count = 1}));
        assert_true((f.redirect == place) == (i == WI_CUDA_REDIRECTS - 1));
    }
    wi_cuda_redirect_stats s = stats(&f);
    assert_int_equal(s.refused + s.overruns + s.overrun_bytes + s.allocations + s.frees, 0);
    assert_string_equal(s.refusal, "");
    assert_null(wi_cuda_redirect_client(f.redirect, second));
    scope = (wi_cuda_scope){.clients = &f.client[1], .client_count = 1};
    fails(WEIR_ERR_INVALID, wi_cuda_scope_enter(f.redirect, &scope));
    assert_int_equal(f.m.cudaSetDevice(1), 0);
    void *of_cuda = get(&f, MIB);
    assert_int_equal(account(f.client[1]).live, 0);
    assert_int_equal(f.m.cudaFree(of_cuda), 0);
    assert_int_equal(f.m.cudaSetDevice(0), 0);
    end(&f);
}

static void a_redirect_that_fails_at_its_second_client_leaves_nothing(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 1, NULL);
    weir_client *clients[] = {f.client[0], open_client(f.host, "host", 0, 0)};
    fails(WEIR_ERR_INVALID, redirect_with(&f, (wi_cuda_redirect_options){.clients = clients, .client_count = 2}));
    ok(weir_client_destroy(clients[1]));
    end(&f); /* no stream is registered any more */
}

/* Each module's memory is its client's, and one does not free what is the other's. */
static void two_modules_have_a_redirect_each(void **state)
{
    char path[512];
    void *theirs = NULL;
    int (*their_malloc)(void **out, size_t bytes), (*their_free)(void *pointer);
    (void)state;
    fixture f = begin(32 * MIB);
    wi_cuda_redirect *mine = f.redirect;
    weir_client *model = open_client(f.runtime[0], "model", 0, 0);
    void *handle = dlopen(module_path("cuda-module-beside", path, sizeof path), RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    *(void **)&their_malloc = dlsym(handle, "module_cudaMalloc");
    *(void **)&their_free = dlsym(handle, "module_cudaFree");
    ok(redirect_with(&f, (wi_cuda_redirect_options){.module = path, .clients = &model, .client_count = 1}));
    void *ours = get(&f, MIB);
    assert_int_equal(their_malloc(&theirs, 2 * MIB), 0);
    assert_int_equal(account(f.client[0]).live, MIB);
    assert_int_equal(account(model).live, 2 * MIB);
    assert_int_equal(their_free(ours), INVALID_VALUE);
    assert_int_equal(f.m.cudaFree(theirs), INVALID_VALUE);
    assert_int_equal(f.m.cudaGetLastError(), INVALID_VALUE);
    fails(WEIR_ERR_BUSY, wi_cuda_redirect_end(f.redirect));
    assert_int_equal(their_free(theirs), 0);
    ok(wi_cuda_redirect_end(f.redirect)); /* while the other one goes on */
    assert_int_equal(account(f.client[0]).live, MIB);
    f.redirect = mine;
    assert_int_equal(f.m.cudaFree(ours), 0);
    dlclose(handle);
    ok(weir_client_destroy(model));
    end(&f);
}

static void managed_memory_is_pinned_also_where_pinned_memory_passes(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 1, NULL);
    void *managed, *pinned;
    ok(redirect_with(&f, (wi_cuda_redirect_options){.pinned_passes = true}));
    assert_int_equal(f.m.cudaMallocManaged(&managed, 4096, 1), 0);
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
    assert_int_equal(pinned_of(&f, f.client[0]), 4096);
    assert_int_equal(f.m.cudaFree(managed), 0);
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    end(&f);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static void a_free_is_behind_streams_on_both_sides_of_a_gap(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    gate g = GATE;
    void *streams[3];
    for (size_t i = 0; i < 3; i++)
        streams[i] = make_stream(&f);
    assert_int_equal(f.m.cudaStreamDestroy(streams[1]), 0);
    void *block = get(&f, MIB);
    assert_int_equal(f.m.cudaLaunchHostFunc(streams[2], pass_gate, &g), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(left(&f), MIB);
    open_gate(&g);
    assert_int_equal(f.m.cudaStreamSynchronize(streams[2]), 0);
    assert_int_equal(left(&f), 0);
    assert_int_equal(stats(&f).streams, 2);
    ok(wi_cuda_redirect_end(f.redirect)); /* weir forgets the one behind the gap as well */
    f.redirect = NULL;
    assert_int_equal(f.m.cudaStreamDestroy(streams[0]), 0);
    assert_int_equal(f.m.cudaStreamDestroy(streams[2]), 0);
    end(&f);
}

/* Also behind the last of as many as there are places for, and the first of those that are made then. */
static void a_free_is_behind_each_stream_however_many_there_are(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *streams[MANY_STREAMS];
    for (size_t i = 0; i < MANY_STREAMS; i++) {
        gate g = GATE;
        void *block = get(&f, MIB);
        streams[i] = make_stream(&f);
        assert_int_equal(stats(&f).streams, i + 1);
        assert_int_equal(f.m.cudaLaunchHostFunc(streams[i], pass_gate, &g), 0);
        assert_int_equal(f.m.cudaFree(block), 0);
        assert_int_equal(left(&f), MIB);
        open_gate(&g);
        assert_int_equal(f.m.cudaStreamSynchronize(streams[i]), 0);
        assert_int_equal(left(&f), 0);
    }
    for (size_t i = 0; i < MANY_STREAMS; i++)
        assert_int_equal(f.m.cudaStreamDestroy(streams[i]), 0);
    end(&f);
}

static void a_free_is_behind_more_streams_than_a_block_has_bits_for(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *streams[MANY_STREAMS], *graph = NULL;
    for (size_t i = 0; i < MANY_STREAMS; i++)
        streams[i] = make_stream(&f);
    for (size_t i = 61; i < MANY_STREAMS; i++) {
        gate g = GATE;
        void *block = get(&f, MIB);
        assert_int_equal(f.m.cudaStreamBeginCapture(streams[0], RELAXED), 0);
        assert_int_equal(f.m.cudaLaunchHostFunc(streams[i], pass_gate, &g), 0);
        assert_int_equal(f.m.cudaFree(block), 0);
        assert_int_equal(stats(&f).waiting, 1);
        assert_int_equal(f.m.cudaStreamEndCapture(streams[0], &graph), 0);
        assert_int_equal(stats(&f).waiting, 0);
        assert_int_equal(left(&f), MIB);
        open_gate(&g);
        assert_int_equal(f.m.cudaStreamSynchronize(streams[i]), 0);
        assert_int_equal(left(&f), 0);
        assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    }
    for (size_t i = 0; i < MANY_STREAMS; i++)
        assert_int_equal(f.m.cudaStreamDestroy(streams[i]), 0);
    end(&f);
}

/* Captures --------------------------------------------------------------------------------------------------------- */

static void a_capture_between_two_streams_holds_up_what_is_freed(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *streams[3], *blocks[3], *graph = NULL;
    for (size_t i = 0; i < 3; i++) {
        streams[i] = make_stream(&f);
        blocks[i] = get(&f, MIB);
    }
    assert_int_equal(f.m.cudaStreamBeginCapture(streams[1], RELAXED), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(f.m.cudaFree(blocks[i]), 0);
        assert_int_equal(stats(&f).waiting, i + 1);
    }
    assert_int_equal(account(f.client[0]).live, 3 * MIB);
    assert_int_equal(f.m.cudaStreamEndCapture(streams[1], &graph), 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(f.m.cudaStreamDestroy(streams[i]), 0);
    end(&f);
}

/* What begins after a free has nothing to do with the block, however long that waits. */
static void what_waits_is_not_put_behind_streams_that_began_later(void **state)
{
    gate g = GATE;
    void *graph = NULL;
    (void)state;
    fixture f = begin(32 * MIB);
    void *captured = make_stream(&f), *block = get(&f, MIB);
    assert_int_equal(f.m.cudaStreamBeginCapture(captured, RELAXED), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(stats(&f).waiting, 1);
    void *later = make_stream(&f);
    assert_int_equal(f.m.cudaLaunchHostFunc(later, pass_gate, &g), 0);
    assert_int_equal(f.m.cudaStreamEndCapture(captured, &graph), 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(left(&f), 0);
    open_gate(&g);
    assert_int_equal(f.m.cudaStreamSynchronize(later), 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(captured), 0);
    assert_int_equal(f.m.cudaStreamDestroy(later), 0);
    end(&f);
}

static void captures_end_one_by_one(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *streams[3], *graph = NULL, *block = get(&f, MIB);
    for (size_t i = 0; i < 3; i++) {
        streams[i] = make_stream(&f);
        assert_int_equal(f.m.cudaStreamBeginCapture(streams[i], RELAXED), 0);
    }
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(f.m.cudaStreamEndCapture(streams[1], &graph), 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(stats(&f).captured, 2);
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(f.m.cudaStreamEndCapture(streams[0], &graph), 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(f.m.cudaStreamEndCapture(streams[2], &graph), 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(stats(&f).captured, 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(account(f.client[0]).live, 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(f.m.cudaStreamDestroy(streams[i]), 0);
    end(&f);
}

/* The capture goes with the stream, and what waited for it is freed. */
static void a_stream_may_be_destroyed_while_it_is_captured(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *streams[] = {make_stream(&f), make_stream(&f)}, *block = get(&f, MIB);
    assert_int_equal(f.m.cudaStreamBeginCapture(streams[0], RELAXED), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(f.m.cudaStreamDestroy(streams[0]), 0);
    assert_int_equal(stats(&f).captured + stats(&f).waiting, 0);
    assert_int_equal(stats(&f).streams, 1);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(warnings, 0);
    assert_int_equal(f.m.cudaStreamDestroy(streams[1]), 0);
    end(&f);
}

typedef struct capturer {
    const fixture *f;
    void *stream;
    gate begun;
    int result;
} capturer;

static void *capture_until_told(void *user)
{
    capturer *c = user;
    void *graph = NULL;
    c->result = c->f->m.cudaStreamBeginCapture(c->stream, RELAXED);
    pass_gate(&c->begun);
    c->result |= c->f->m.cudaStreamEndCapture(c->stream, &graph);
    c->result |= c->f->m.cudaGraphDestroy(graph);
    return NULL;
}

/* Whose capture it is, is known of each: the thread that captures waits for nothing, wherever its stream lies. */
static void of_two_threads_that_capture_neither_waits(void **state)
{
    (void)state;
    fixture f = begin(4 * MIB);
    gate g = GATE;
    pthread_t thread;
    void *graph = NULL, *none, *busy = make_stream(&f), *own = make_stream(&f), *block = get(&f, 3 * MIB);
    capturer c = {.f = &f, .stream = make_stream(&f), .begun = GATE};
    assert_int_equal(f.m.cudaLaunchHostFunc(busy, pass_gate, &g), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(pthread_create(&thread, NULL, capture_until_told, &c), 0);
    wait_until_reached(&c.begun);
    assert_int_equal(f.m.cudaStreamBeginCapture(own, RELAXED), 0);
    uint64_t waits = control.stub_count("cuEventSynchronize") + control.stub_count("cuEventQuery");
    assert_int_equal(f.m.cudaMalloc(&none, 3 * MIB), NO_MEMORY);
    assert_true(control.stub_count("cuEventSynchronize") + control.stub_count("cuEventQuery") - waits < 100);
    assert_int_equal(f.m.cudaStreamEndCapture(own, &graph), 0);
    open_gate(&c.begun);
    pthread_join(thread, NULL);
    assert_int_equal(c.result, 0);
    open_gate(&g);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(c.stream), 0);
    assert_int_equal(f.m.cudaStreamDestroy(own), 0);
    assert_int_equal(f.m.cudaStreamDestroy(busy), 0);
    end(&f);
}

/* It would be for ever, as long as the thread itself does not go on. */
static void a_thread_does_not_wait_for_what_waits_for_its_own_capture(void **state)
{
    (void)state;
    fixture f = begin(4 * MIB);
    void *graph = NULL, *none, *stream = make_stream(&f), *block = get(&f, 3 * MIB);
    assert_int_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(stats(&f).waiting, 1);
    uint64_t rounds = f.redirect->rounds;
    assert_int_equal(f.m.cudaMalloc(&none, 3 * MIB), NO_MEMORY);
    assert_int_equal(f.m.cudaGetLastError(), NO_MEMORY);
    assert_true(f.redirect->rounds - rounds <= 2); /* it has looked before the request, and behind the shortage */
    assert_int_equal(f.m.cudaStreamEndCapture(stream, &graph), 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

/* One that has failed is over, whatever the error was; one that weir knows already is not weir's to end. */
static void a_capture_that_has_failed_is_over(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *graph = NULL, *stream = make_stream(&f);
    weir_stream id = f.redirect->streams[1].id; /* behind the default stream */
    assert_int_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 0);
    control.stub_fail("cuStreamEndCapture", 1, 901);
    assert_int_equal(f.m.cudaStreamEndCapture(stream, &graph), 901);
    assert_int_equal(stats(&f).captured, 0);
    assert_int_equal(f.real.cudaStreamEndCapture(stream, &graph), 0); /* the stub's goes on */
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    ok(weir_capture_begin(id, NULL));
    assert_int_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 0);
    assert_int_equal(stats(&f).captured, 0);
    assert_int_equal(f.m.cudaStreamEndCapture(stream, &graph), 0);
    ok(weir_capture_end(id, NULL));
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    (void)f.m.cudaGetLastError();
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scope_has_a_client_and_a_reservation_for_each_device),
        cmocka_unit_test(no_client_of_a_scope_may_be_a_stranger),
        cmocka_unit_test(what_a_scope_was_refused_and_granted_adds_up),
        cmocka_unit_test(each_block_past_the_budget_is_its_clients),
        cmocka_unit_test(pending_and_promised_bytes_are_not_there_for_the_module),
        cmocka_unit_test(a_scope_is_found_behind_those_of_another_redirect),
        cmocka_unit_test(each_redirect_has_a_last_error_of_its_own),
        cmocka_unit_test(a_redirect_knows_nothing_of_the_one_that_had_its_place),
        cmocka_unit_test(a_redirect_that_fails_at_its_second_client_leaves_nothing),
        cmocka_unit_test(two_modules_have_a_redirect_each),
        cmocka_unit_test(managed_memory_is_pinned_also_where_pinned_memory_passes),
        cmocka_unit_test(a_free_is_behind_streams_on_both_sides_of_a_gap),
        cmocka_unit_test(a_free_is_behind_each_stream_however_many_there_are),
        cmocka_unit_test(a_free_is_behind_more_streams_than_a_block_has_bits_for),
        cmocka_unit_test(a_capture_between_two_streams_holds_up_what_is_freed),
        cmocka_unit_test(what_waits_is_not_put_behind_streams_that_began_later),
        cmocka_unit_test(captures_end_one_by_one),
        cmocka_unit_test(a_stream_may_be_destroyed_while_it_is_captured),
        cmocka_unit_test(of_two_threads_that_capture_neither_waits),
        cmocka_unit_test(a_thread_does_not_wait_for_what_waits_for_its_own_capture),
        cmocka_unit_test(a_capture_that_has_failed_is_over),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}
