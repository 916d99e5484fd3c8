/* Corners of suspend and resume: streams that are gone or captured, limits of the wait, closes that are refused, copies
 * whose pieces come back cut otherwise. */
#include "residency/residency.h"

#include <weir/elastic.h>

#include <sys/wait.h>

/* A block outlives its stream. */
static void a_stream_that_is_gone(void **state)
{
    fixture *f = *state;
    weir_stream gone;
    ok(weir_stream_acquire(f->runtime, &gone));
    void *block = allocate(f->model, 6 * MIB, gone, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, block, 6 * MIB, 1);
    ok(weir_stream_synchronize(gone));
    ok(weir_stream_release(gone));
    assert_int_equal(suspend(f->model).away, 6 * MIB);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, block, 6 * MIB, 1);
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
}

typedef int (*get_address)(const char *name, void **function, int version, unsigned long long flags, int *found);

static void *cuda_function(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *function = NULL;
    get_address get = library ? (get_address)dlsym(library, "cuGetProcAddress_v2") : NULL;
    int found;
    if (get)
        (void)get(name, &function, 12030, 0, &found);
    assert_non_null(function);
    return function;
}

/* A capture that nobody has told weir of: the driver knows. The host's has none. */
static void a_capture_that_was_not_declared(void **state)
{
    fixture *f = *state;
    if (host_writes())
        skip();
    void *block = allocate(f->model, 6 * MIB, f->stream, WEIR_CLASS_WEIGHTS), *native = weir_stream_native(f->stream);
    void *popped, *graph;
    write_block(f->runtime, block, 6 * MIB, 1);
    assert_int_equal(((int (*)(void *))cuda_function("cuCtxPushCurrent"))(runtime_details(f->runtime).native), 0);
    assert_int_equal(((int (*)(void *, int))cuda_function("cuStreamBeginCapture"))(native, 2 /* relaxed */), 0);
    fails(WEIR_ERR_STREAM_MISUSE, weir_client_suspend(f->model, NULL, NULL));
    assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
    assert_int_equal(((int (*)(void *, void **))cuda_function("cuStreamEndCapture"))(native, &graph), 0);
    assert_int_equal(((int (*)(void *))cuda_function("cuGraphDestroy"))(graph), 0);
    assert_int_equal(((int (*)(void **))cuda_function("cuCtxPopCurrent"))(&popped), 0);
    (void)suspend(f->model);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, block, 6 * MIB, 1);
    ok(weir_free(f->model, block, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* Neither is done while one of the streams is captured, and neither has changed anything then. */
static void streams_that_are_captured(void **state)
{
    fixture *f = *state;
    void *block = allocate(f->model, 6 * MIB, f->stream, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, block, 6 * MIB, 1);
    ok(weir_capture_begin(f->stream, NULL));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_STREAM_MISUSE, weir_client_suspend(f->model, NULL, NULL));
    unchanged(f->runtime, before);
    ok(weir_capture_end(f->stream, NULL));
    (void)suspend(f->model);
    ok(weir_capture_begin(f->stream, NULL));
    before = take_snapshot(f->runtime);
    fails(WEIR_ERR_STREAM_MISUSE, weir_client_resume(f->model, f->stream));
    unchanged(f->runtime, before);
    assert_int_equal(residency(f->model).state, WEIR_SUSPENDED);
    ok(weir_capture_end(f->stream, NULL));
    ok(weir_client_resume(f->model, f->stream));
    ok(weir_stream_synchronize(f->stream));
    block_holds(f->runtime, block, 6 * MIB, 1);
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
}

static void the_longest_wait(void **state)
{
    fixture *f = *state;
    void *block = allocate(f->model, 6 * MIB, f->stream, WEIR_CLASS_WEIGHTS);
    pthread_t opener;
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    pthread_create(&opener, NULL, open_gate_later, &f->gate);
    assert_int_equal(suspend_with(f->model, (weir_suspend_options){.wait = UINT64_MAX}).away, 6 * MIB);
    pthread_join(opener, NULL);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
}

/* A block that stayed is freed; no thread keeps it for an allocation that would have to resume the client first. */
static void thread_caches_keep_nothing_of_a_suspended_client(void **state)
{
    fixture *f = *state;
    void *mine = allocate(f->model, 1000, f->stream, WEIR_CLASS_KV), *more;
    void *its = allocate(f->other, 1000, f->stream, WEIR_CLASS_KV);
    void *large = allocate(f->model, 6 * MIB, f->stream, WEIR_CLASS_WEIGHTS);
    (void)suspend(f->model);
    ok(weir_free(f->model, mine, f->stream));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 0);
    fails(WEIR_ERR_BUSY, weir_alloc(f->model, 1000, f->stream, WEIR_CLASS_KV, &more));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (int i = 0; i < 3; i++) { /* from here on they do */
        more = allocate(f->model, 1000, f->stream, WEIR_CLASS_KV);
        ok(weir_free(f->model, more, f->stream));
    }
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 1024);
    ok(weir_free(f->other, its, f->stream));
    ok(weir_free(f->model, large, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* A close that is refused leaves a suspended client as it is, with what it is guaranteed when it is back. */
static void a_close_that_is_refused(void **state)
{
    fixture *f = *state;
    weir_client *client = open_client(f->runtime, "third", 20 * MIB, 0);
    weir_reservation *reservation;
    void *weights = allocate(client, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_reservation_create(client, MIB, 0, &reservation));
    (void)suspend(client);
    ok(weir_free(client, weights, WEIR_STREAM_HOST));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_client_destroy(client));
    unchanged(f->runtime, before);
    assert_int_equal(residency(client).state, WEIR_SUSPENDED);
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 20 * MIB);
    ok(weir_reservation_destroy(reservation));
    ok(weir_client_destroy(client));
}

/* The same where the client has a block of the host's memory, which is looked for when the copies are gone. */
static void a_close_beside_memory_of_the_hosts(void **state)
{
    fixture *f = *state;
    weir_client *client = open_client(f->runtime, "third", 20 * MIB, 0);
    weir_request request = {.struct_size = sizeof request, .bytes = 1000, .kind = WEIR_KIND_PINNED};
    weir_block pinned;
    ok(weir_alloc_with(client, &request, &pinned));
    void *weights = allocate(client, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 6 * MIB, 1);
    (void)suspend(client);
    fails(WEIR_ERR_BUSY, weir_client_destroy(client));
    ok(weir_free(client, weights, WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, weir_client_destroy(client));
    assert_int_equal(residency(client).state, WEIR_SUSPENDED);
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 20 * MIB);
    ok(weir_free_block(client, pinned, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
}

/* Guarantees -------------------------------------------------------------------------------------------------------- */

typedef struct giver {
    weir_client *client;
    void *block;
    unsigned calls;
} giver;

static void give_block(const weir_pressure *pressure, void *user)
{
    giver *g = user;
    (void)pressure;
    g->calls++;
    if (g->block)
        ok(weir_free(g->client, g->block, WEIR_STREAM_HOST));
    g->block = NULL;
}

/* What the client is guaranteed is more than it had: the ladder is climbed for that as for the bytes. */
static void a_guarantee_comes_back_by_the_ladder(void **state)
{
    fixture *f = *state;
    uint64_t id;
    void *weights = allocate(f->model, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 8 * MIB, 1);
    ok(weir_client_set_limits(f->model, 40 * MIB, 44 * MIB));
    (void)suspend(f->model);
    giver g = {f->other, allocate(f->other, 30 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV), 0};
    ok(weir_pressure_register(f->runtime, 0, give_block, &g, &id));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(g.calls, 1);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.guaranteed, 40 * MIB);
    assert_int_equal(s.device.promised, 0);
    block_holds(f->runtime, weights, 8 * MIB, 1);
    (void)suspend(f->model);
    g.block = NULL;
    void *block = allocate(f->other, 30 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(last_refusal().requested, 40 * MIB);
    assert_int_equal(take_snapshot(f->runtime).device.promised, 0);
    ok(weir_pressure_unregister(f->runtime, id));
    ok(weir_free(f->other, block, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 8 * MIB, 1);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* What the client is guaranteed does not fit when its pending bytes have passed, for which nothing was claimed: the resume fails, and
 * the next one brings it back with all that it is guaranteed. */
static void a_guarantee_that_does_not_fit_is_not_lost(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *stays = allocate(f->model, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    write_block(f->runtime, weights, 8 * MIB, 1);
    ok(weir_client_set_limits(f->model, 40 * MIB, 0));
    (void)suspend_with(f->model, (weir_suspend_options){.stay = WEIR_CLASS_BIT(WEIR_CLASS_KV)});
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = stays}, f->stream));
    ok(weir_free(f->model, stays, WEIR_STREAM_HOST));
    void *block = allocate(f->other, 40 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    open_gate(&f->gate);
    ok(weir_stream_synchronize(f->stream));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(residency(f->model).state, WEIR_SUSPENDED);
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 0);
    ok(weir_free(f->other, block, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.guaranteed, 40 * MIB);
    assert_int_equal(s.device.promised, 0);
    block_holds(f->runtime, weights, 8 * MIB, 1);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* Copies of several pieces ------------------------------------------------------------------------------------------ */

typedef struct span {
    const char *low, *high;
    const void *last;
    unsigned segments;
} span;

static void count_segment(const weir_segment *segment, const weir_span *part, void *user)
{
    span *s = user;
    const char *address = part->address;
    if (address >= s->low && address < s->high && segment->address != s->last) {
        s->last = segment->address;
        s->segments++;
    }
}

/* How many chunks lie under the bytes. */
static unsigned chunks_under(weir_runtime *runtime, const void *start, size_t bytes)
{
    span s = {.low = start, .high = (const char *)start + bytes};
    ok(weir_layout_walk(runtime, count_segment, &s, NULL));
    return s.segments;
}

/* Two blocks leave as one chunk, and come back as several, as all there is are short ones. One of them is written then:
 * the copy of both is good for neither, whichever is looked at first. On the host, whose granules are small. */
static void copies_that_lie_across(weir_runtime *runtime, weir_client *model, weir_client *other, int written)
{
    const size_t half = 6 * GRANULE;
    const weir_class classes[2] = {WEIR_CLASS_KV, WEIR_CLASS_SCRATCH};
    const weir_suspend_options unwritten = {.unwritten = WEIR_CLASS_BIT(classes[!written])};
    char *blocks[2];
    ok(weir_runtime_set_budget(runtime, 1024 * MIB));
    void *whole = allocate(model, 200 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH); /* in long chunks */
    ok(weir_free(model, whole, WEIR_STREAM_HOST));
    for (int i = 0; i < 2; i++) {
        blocks[i] = allocate(model, half, WEIR_STREAM_HOST, classes[i]);
        write_block(runtime, blocks[i], half, (uint64_t)i + 1);
    }
    assert_ptr_equal(blocks[1], blocks[0] + half);
    assert_int_equal(chunks_under(runtime, blocks[0], 2 * half), 1);
    (void)suspend(model);
    trim(runtime);
    ok(weir_runtime_set_budget(runtime, 32 * MIB));
    whole = allocate(other, 32 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH); /* in short chunks, which stay idle */
    ok(weir_free(other, whole, WEIR_STREAM_HOST));
    ok(weir_client_resume(model, WEIR_STREAM_HOST));
    assert_true(chunks_under(runtime, blocks[0], half) > 1);
    write_block(runtime, blocks[written], half, 10);
    weir_residency r = suspend_with(model, unwritten);
    assert_int_equal(r.copied, 2 * half);
    assert_int_equal(r.trusted, 0);
    ok(weir_client_resume(model, WEIR_STREAM_HOST));
    r = suspend_with(model, unwritten);
    assert_int_equal(r.copied, half);
    assert_int_equal(r.trusted, half);
    ok(weir_client_resume(model, WEIR_STREAM_HOST));
    for (int i = 0; i < 2; i++) {
        block_holds(runtime, blocks[i], half, i == written ? 10 : (uint64_t)i + 1);
        ok(weir_free(model, blocks[i], WEIR_STREAM_HOST));
    }
    trim(runtime);
}

static void a_copy_serves_all_its_pieces_or_none(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(1024 * MIB);
    weir_client *model = open_client(runtime, "model", 0, 0), *other = open_client(runtime, "other", 0, 0);
    for (int written = 0; written < 2; written++)
        copies_that_lie_across(runtime, model, other, written);
    check_empty(runtime);
    ok(weir_client_destroy(other));
    ok(weir_client_destroy(model));
    ok(weir_runtime_destroy(runtime));
}

/* However often it goes and comes back, alone or in place of another, a model has as many chunks as at first, and its copies
 * stay in the memory they had. */
static void nothing_falls_to_pieces(void **state)
{
    enum { MODELS = 2, BLOCKS = 24, TURNS = 12 };
    (void)state;
    weir_runtime *runtime = make_runtime_here(96 * MIB);
    weir_client *models[MODELS];
    char *blocks[MODELS][BLOCKS];
    size_t sizes[BLOCKS];
    unsigned chunks[MODELS] = {0};
    for (int m = 0; m < MODELS; m++) {
        models[m] = open_client(runtime, m ? "second" : "first", 0, 0);
        for (int i = 0; i < BLOCKS; i++) {
            sizes[i] = ((size_t)1 + (size_t)(i * 7 % 5)) * MIB - (size_t)i * 512;
            blocks[m][i] = allocate(models[m], sizes[i], WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
            write_block(runtime, blocks[m][i], sizes[i], (uint64_t)m * BLOCKS + (uint64_t)i);
        }
        for (int i = 0; i < BLOCKS; i++)
            chunks[m] += chunks_under(runtime, blocks[m][i], sizes[i]);
        ok(weir_client_suspend(models[m], NULL, NULL));
    }
    for (int turn = 0; turn < TURNS; turn++) {
        int m = turn % MODELS;
        unsigned count = 0;
        ok(weir_client_resume(models[m], WEIR_STREAM_HOST));
        for (int i = 0; i < BLOCKS; i++) {
            count += chunks_under(runtime, blocks[m][i], sizes[i]);
            block_holds(runtime, blocks[m][i], sizes[i], (uint64_t)m * BLOCKS + (uint64_t)i);
        }
        assert_int_equal(count, chunks[m]);
        ok(weir_client_suspend(models[m], NULL, NULL));
    }
    for (int m = 0; m < MODELS; m++) {
        for (int i = 0; i < BLOCKS; i++)
            ok(weir_free(models[m], blocks[m][i], WEIR_STREAM_HOST));
        ok(weir_client_destroy(models[m]));
    }
    ok(weir_runtime_destroy(runtime));
}

/* A copy that is made anew for another block in its place is that block's. */
static void a_copy_made_anew_is_trusted(void **state)
{
    fixture *f = *state;
    const weir_suspend_options unwritten = {.unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};
    void *block = NULL, *last = NULL;
    for (uint64_t i = 0; i < 3; i++) {
        block = allocate(f->model, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        assert_true(!last || block == last);
        last = block;
        write_block(f->runtime, block, 6 * MIB, i);
        for (int again = 0; again < 2; again++) {
            weir_residency r = suspend_with(f->model, unwritten);
            assert_int_equal(again ? r.trusted : r.copied, 6 * MIB);
            assert_int_equal(r.stored, 6 * MIB);
            ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
            block_holds(f->runtime, block, 6 * MIB, i);
        }
        ok(weir_free(f->model, block, WEIR_STREAM_HOST));
    }
}

/* What a block has grown into is not what its copy has there, which may be another client's. */
static void a_copy_of_a_block_that_grew_is_not_trusted(void **state)
{
    fixture *f = *state;
    const weir_suspend_options unwritten = {.unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};
    char *first = allocate(f->model, 1024, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    char *between = allocate(f->other, 1024, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    char *last = allocate(f->model, 1024, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    assert_true(between == first + 1024 && last == between + 1024);
    ok(weir_free(f->other, between, WEIR_STREAM_HOST));
    assert_int_equal(suspend_with(f->model, unwritten).copied, 3 * 1024);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_resize(f->model, first, 2048, WEIR_STREAM_HOST));
    weir_residency r = suspend_with(f->model, unwritten);
    assert_int_equal(r.copied, 3 * 1024);
    assert_int_equal(r.trusted, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_free(f->model, first, WEIR_STREAM_HOST));
    ok(weir_free(f->model, last, WEIR_STREAM_HOST));
}

/* Chunks that are longer than what goes to a file, or is compared, at once. On the host, where the addresses cost
 * nothing. */
static void long_chunks(void **state)
{
    (void)state;
    const uint64_t gib = 1024 * MIB;
    const size_t bytes = 40 * MIB;
    weir_runtime *runtime = make_runtime(12 * gib);
    weir_client *model = open_client(runtime, "model", 0, 0);
    weir_suspend_options looks = {.unwritten = WEIR_CLASS_BIT(WEIR_CLASS_KV), .verify = true};
    void *whole = allocate(model, 2 * gib, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    ok(weir_free(model, whole, WEIR_STREAM_HOST));
    char *block = allocate(model, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    write_block(runtime, block, bytes, 1);
    assert_true(chunks_under(runtime, block, bytes) <= 3);
    (void)suspend_with(model, looks);
    ok(weir_client_resume(model, WEIR_STREAM_HOST));
    block_holds(runtime, block, bytes, 1);
    weir_residency r = suspend_with(model, looks);
    assert_int_equal(r.trusted, bytes);
    ok(weir_client_resume(model, WEIR_STREAM_HOST));
    block_holds(runtime, block, bytes, 1);
    unsigned char *p = pattern(bytes, 1);
    const size_t changed = 37 * MIB + 5;
    p[changed] ^= 1;
    ok(weir_fill(runtime, block + changed, p[changed], 1, WEIR_STREAM_HOST));
    r = suspend_with(model, looks);
    assert_true(r.differed > 0 && r.copied + r.trusted == bytes);
    ok(weir_client_resume(model, WEIR_STREAM_HOST));
    ok(weir_copy(runtime, whole = malloc(bytes), block, bytes, WEIR_STREAM_HOST));
    bytes_are(whole, p, bytes);
    free(whole);
    free(p);
    ok(weir_free(model, block, WEIR_STREAM_HOST));
    check_empty(runtime);
    ok(weir_client_destroy(model));
    ok(weir_runtime_destroy(runtime));
}

/* A suspend that is refused keeps the copies that are good. */
static void a_refused_suspend_keeps_good_copies(void **state)
{
    fixture *f = *state;
    const weir_suspend_options unwritten = {.struct_size = sizeof unwritten,
                                            .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};
    void *block = allocate(f->model, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    weir_use use = {.block = {.pointer = block}, .access = WEIR_ACCESS_READ};
    weir_launch *launch;
    write_block(f->runtime, block, 6 * MIB, 1);
    (void)suspend_with(f->model, unwritten);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    fails(WEIR_ERR_BUSY, weir_client_suspend(f->model, &unwritten, NULL));
    ok(weir_launch_end(launch));
    assert_int_equal(residency(f->model).stored, 6 * MIB);
    assert_int_equal(suspend_with(f->model, unwritten).trusted, 6 * MIB);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, block, 6 * MIB, 1);
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->stream));
}

/* What stays ---------------------------------------------------------------------------------------------------------- */

static bool stays(const weir_residency *r, const void *block, weir_stay why)
{
    for (uint32_t i = 0; i < r->stays; i++)
        if (r->stay[i].pointer == block)
            return r->stay[i].why == why;
    return false;
}

/* Blocks of capture pools, and such as were asked for with WEIR_ALLOC_STABLE, also if a thread had one like it. */
static void graphs_and_stable_blocks_stay(void **state)
{
    fixture *f = *state;
    weir_capture_pool *pool;
    ok(weir_capture_pool_create(f->model, &pool));
    weir_request request = {.struct_size = sizeof request, .bytes = 3 * MIB, .stream = f->stream, .pool = pool};
    weir_block graph, stable;
    ok(weir_alloc_with(f->model, &request, &graph));
    void *plain = allocate(f->model, 5000, f->stream, WEIR_CLASS_KV);
    ok(weir_free(f->model, plain, f->stream)); /* a thread cache has it */
    request = (weir_request){.struct_size = sizeof request,
                             .bytes = 5000,
                             .stream = f->stream,
                             .memory_class = WEIR_CLASS_KV,
                             .flags = WEIR_ALLOC_STABLE};
    ok(weir_alloc_with(f->model, &request, &stable));
    weir_residency r = suspend(f->model);
    assert_true(stays(&r, graph.pointer, WEIR_STAY_GRAPH));
    assert_true(stays(&r, stable.pointer, WEIR_STAY_STABLE));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_free_block(f->model, stable, f->stream));
    ok(weir_free_block(f->model, graph, f->stream));
    ok(weir_stream_synchronize(f->stream));
    ok(weir_capture_pool_destroy(pool, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* What a capture pool keeps stays as well, and what lies on the chunk with it. */
static void what_lies_beside_kept_blocks_of_graphs_stays(void **state)
{
    fixture *f = *state;
    weir_capture_pool *pool;
    weir_block graph;
    ok(weir_capture_pool_create(f->model, &pool));
    void *mine = allocate(f->model, 1000, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    weir_request request = {.struct_size = sizeof request,
                            .bytes = 1000,
                            .stream = f->stream,
                            .memory_class = WEIR_CLASS_WEIGHTS,
                            .pool = pool};
    ok(weir_alloc_with(f->model, &request, &graph));
    assert_ptr_equal(graph.pointer, (char *)mine + 1024);
    ok(weir_free_block(f->model, graph, f->stream));
    weir_residency r = suspend(f->model);
    assert_int_equal(r.away, 0);
    assert_true(stays(&r, mine, WEIR_STAY_SHARED));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_free(f->model, mine, WEIR_STREAM_HOST));
    ok(weir_capture_pool_destroy(pool, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* Memory beside a block that is free in the order of a stream alone: it stays, and nobody waits for the stream. */
static void what_is_in_the_order_of_a_stream_stays(void **state)
{
    fixture *f = *state;
    void *its = allocate(f->other, 40 * KIB, f->stream, WEIR_CLASS_WEIGHTS);
    void *mine = allocate(f->model, 1000, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, mine, 1000, 1);
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    ok(weir_free(f->other, its, f->stream));
    assert_true(take_snapshot(f->runtime).device.ordered > 0);
    weir_residency r = suspend(f->model);
    assert_int_equal(r.away, 0);
    assert_true(stays(&r, mine, WEIR_STAY_SHARED));
    block_holds(f->runtime, mine, 1000, 1);
    open_gate(&f->gate);
    ok(weir_stream_synchronize(f->stream));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(suspend(f->model).away, 1024);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, mine, 1000, 1);
    ok(weir_free(f->model, mine, WEIR_STREAM_HOST));
}

/* Blocks side by side on one chunk, of which some are dropped, and gaps between some. */
static void kept_beside_dropped(void **state)
{
    fixture *f = *state;
    enum { SMALL = 10, DROPPED = 4, GAPS = 2 };
    const char kinds[] = "kdk kdkd d"; /* kept, dropped; a blank is freed before */
    void *blocks[SMALL];
    for (int i = 0; i < SMALL; i++) {
        blocks[i] = allocate(f->model, 1024, WEIR_STREAM_HOST, kinds[i] == 'd' ? WEIR_CLASS_SCRATCH : WEIR_CLASS_KV);
        write_block(f->runtime, blocks[i], 1024, (uint64_t)i + 1);
    }
    for (int i = 0; i < SMALL; i++)
        if (kinds[i] == ' ')
            ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
    weir_residency r = suspend_with(f->model, (weir_suspend_options){.drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH)});
    assert_int_equal(r.away, (SMALL - GAPS) * 1024);
    assert_int_equal(r.dropped, DROPPED * 1024);
    void *all = allocate(f->other, BUDGET - 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    ok(weir_fill(f->runtime, all, 0xee, BUDGET - 4 * MIB, WEIR_STREAM_HOST));
    ok(weir_free(f->other, all, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (int i = 0; i < SMALL; i++) {
        if (kinds[i] == ' ')
            continue;
        if (kinds[i] == 'd')
            block_holds_zeros(f->runtime, blocks[i], 1024);
        else
            block_holds(f->runtime, blocks[i], 1024, (uint64_t)i + 1);
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
    }
}

/* A suspend that is refused, as a page is used, leaves the client here. */
static void a_page_that_is_used(void **state)
{
    fixture *f = *state;
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = 4 * MIB};
    weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
    weir_elastic *e;
    weir_launch *launch;
    ok(weir_elastic_create(f->model, &o, &e));
    ok(weir_elastic_commit(e, 0, 4 * MIB, WEIR_STREAM_HOST));
    ok(weir_elastic_info(e, &stats));
    write_block(f->runtime, stats.base, 4 * MIB, 1);
    weir_use use = {.block = {.pointer = (char *)stats.base + 2 * MIB}, .access = WEIR_ACCESS_READ};
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_client_suspend(f->model, NULL, NULL));
    unchanged(f->runtime, before);
    assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
    assert_int_equal(residency(f->model).released, 0);
    ok(weir_launch_end(launch));
    assert_int_equal(suspend(f->model).away, 4 * MIB);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, stats.base, 4 * MIB, 1);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->stream));
}

/* A fork ------------------------------------------------------------------------------------------------------------ */

static void a_forked_child_is_told(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    weir_residency r = WEIR_INIT(weir_residency);
    write_block(f->runtime, weights, 6 * MIB, 1);
    for (int suspended = 0; suspended < 2; suspended++) {
        pid_t child = fork();
        if (child == 0)
            _exit(!(weir_client_suspend(f->model, NULL, NULL) == WEIR_ERR_FORKED &&
                    weir_client_resume(f->model, WEIR_STREAM_HOST) == WEIR_ERR_FORKED &&
                    weir_client_residency(f->model, &r) == WEIR_ERR_FORKED &&
                    weir_client_forget_copies(f->model) == 0));
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        if (!suspended)
            (void)suspend(f->model);
    }
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 6 * MIB, 1);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_stream_that_is_gone),
        CASE(a_capture_that_was_not_declared),
        CASE(streams_that_are_captured),
        CASE(the_longest_wait),
        CASE(thread_caches_keep_nothing_of_a_suspended_client),
        CASE(a_close_that_is_refused),
        CASE(a_close_beside_memory_of_the_hosts),
        CASE(a_guarantee_comes_back_by_the_ladder),
        CASE(a_guarantee_that_does_not_fit_is_not_lost),
        cmocka_unit_test(a_copy_serves_all_its_pieces_or_none),
        CASE(nothing_falls_to_pieces),
        CASE(a_copy_made_anew_is_trusted),
        CASE(a_copy_of_a_block_that_grew_is_not_trusted),
        cmocka_unit_test(long_chunks),
        CASE(a_refused_suspend_keeps_good_copies),
        CASE(graphs_and_stable_blocks_stay),
        CASE(what_lies_beside_kept_blocks_of_graphs_stays),
        CASE(what_is_in_the_order_of_a_stream_stays),
        CASE(kept_beside_dropped),
        CASE(a_page_that_is_used),
        CASE(a_forked_child_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
