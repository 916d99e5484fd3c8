/* Weights that find no room on the device begin in memory of the host's. On the host it is the same memory in the same budget, so
 * that there they begin so for the room that is to be left. */
#include "residency/residency.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define BLOCK (12 * MIB)
#define ROOM  (44 * MIB)

static weir_status resume_some(weir_client *client, weir_resume_options options, uint64_t *came)
{
    options.struct_size = sizeof options;
    return weir_client_resume_some(client, &options, WEIR_STREAM_HOST, came);
}

/* Has the rest of the device taken, so that weights have no room there; on the host they have to leave room. NULL: on the host. */
static void *crowd(const fixture *f, uint64_t leave)
{
    ok(weir_client_set_overflow(f->model, true, host_writes() ? ROOM : 0));
    return host_writes() ? NULL : allocate(f->other, BUDGET - leave, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
}

static void leave_room(const fixture *f, void *taken)
{
    if (taken)
        ok(weir_free(f->other, taken, WEIR_STREAM_HOST));
}

/* A device's block, and one that has no room. */
static void fill_both(const fixture *f, char **blocks)
{
    for (int i = 0; i < 2; i++) {
        blocks[i] = allocate(f->model, BLOCK + 300, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, blocks[i], BLOCK + 300, (uint64_t)i + 1);
    }
}

static void both_hold(const fixture *f, char *const *blocks)
{
    for (int i = 0; i < 2; i++)
        block_holds(f->runtime, blocks[i], BLOCK + 300, (uint64_t)i + 1);
}

static void free_both(const fixture *f, char *const *blocks)
{
    for (int i = 0; i < 2; i++)
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
}

static uint64_t charge(void)
{
    return BLOCK + 512;
}

static void weights_without_room_are_shown(void **state)
{
    const fixture *f = *state;
    char *blocks[2];
    void *taken = crowd(f, 20 * MIB), *scratch = NULL;
    snapshot before = take_snapshot(f->runtime);
    fill_both(f, blocks);
    weir_residency r = residency(f->model);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(r.state, WEIR_SUSPENDED);
    assert_int_equal(r.away, charge());
    assert_int_equal(r.shown, r.away);
    assert_true(r.stored >= r.away);
    assert_int_equal(s.device.live, before.device.live + charge() + (host_writes() ? r.stored : 0));
    assert_int_equal(s.device.away, charge());
    both_hold(f, blocks);
    /* what is not weights is as ever, and so are small weights */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->model, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &scratch));
    void *small = allocate(f->model, 1000, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    assert_int_equal(residency(f->model).away, charge());
    leave_room(f, taken);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
    assert_int_equal(residency(f->model).away, 0);
    both_hold(f, blocks);
    ok(weir_free(f->model, small, WEIR_STREAM_HOST));
    free_both(f, blocks);
}

static void pieces_come_as_room_appears(void **state)
{
    const fixture *f = *state;
    char *blocks[2];
    void *taken = crowd(f, 20 * MIB);
    uint64_t came = 0, away = charge();
    unsigned pieces = 0;
    fill_both(f, blocks);
    if (taken) {
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
        assert_int_equal(residency(f->model).shown, charge());
        both_hold(f, blocks);
    }
    leave_room(f, taken);
    while (residency(f->model).state == WEIR_SUSPENDED) {
        ok(resume_some(f->model, (weir_resume_options){.most = 1}, &came));
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_true(came > 0);
        away -= came;
        assert_int_equal(residency(f->model).shown, away);
        both_hold(f, blocks);
        pieces++;
    }
    assert_int_equal(away, 0);
    assert_true(pieces > 1); /* a long block comes in several */
    free_both(f, blocks);
}

/* It is a client like any other once it is whole: its copies are good, and it leaves, comes and begins again. */
static void it_leaves_and_overflows_again(void **state)
{
    const fixture *f = *state;
    char *blocks[2];
    for (int round = 0; round < 3; round++) {
        void *taken = crowd(f, 20 * MIB);
        fill_both(f, blocks);
        fails(WEIR_ERR_BUSY, weir_client_suspend(f->model, NULL, NULL));
        leave_room(f, taken);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        weir_residency r = suspend_with(
            f->model, (weir_suspend_options){.show = true, .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)});
        assert_true(r.trusted > 0); /* of what began in the host's memory */
        both_hold(f, blocks);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        both_hold(f, blocks);
        (void)weir_client_forget_copies(f->model);
        free_both(f, blocks);
    }
}

/* Freed where they are, in either order, with work of their stream waited for; and others have the addresses. */
static void blocks_are_freed_while_they_are_shown(void **state)
{
    const fixture *f = *state;
    char *blocks[2];
    for (int first = 0; first < 2; first++) {
        void *taken = crowd(f, 20 * MIB);
        fill_both(f, blocks);
        ok(weir_free(f->model, blocks[first], WEIR_STREAM_HOST));
        block_holds(f->runtime, blocks[!first], BLOCK + 300, (uint64_t)!first + 1);
        ok(weir_free(f->model, blocks[!first], WEIR_STREAM_HOST));
        assert_int_equal(residency(f->model).away + residency(f->model).shown, 0);
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.away, 0);
        leave_room(f, taken);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        (void)weir_client_forget_copies(f->model);
    }
}

/* A later block may lie in front of earlier ones. */
static void a_later_block_may_lie_in_front(void **state)
{
    const fixture *f = *state;
    void *taken = crowd(f, 20 * MIB);
    char *here = allocate(f->model, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), *blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    assert_true(residency(f->model).shown >= 4 * MIB);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3; i++) {
            ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
            blocks[i] = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
            write_block(f->runtime, blocks[i], 4 * MIB, (uint64_t)i + 1);
        }
    leave_room(f, taken);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (int i = 0; i < 3; i++) {
        block_holds(f->runtime, blocks[i], 4 * MIB, (uint64_t)i + 1);
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
    }
    ok(weir_free(f->model, here, WEIR_STREAM_HOST));
}

static atomic_bool passed;

static void note_passed(void *ignored)
{
    (void)ignored;
    passed = true;
}

static void *open_later(void *user)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    open_gate(user);
    return NULL;
}

static void zeros_and_streams_are_kept(void **state)
{
    fixture *f = *state;
    void *taken = crowd(f, 20 * MIB);
    char *first = allocate(f->model, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    weir_request request = {.struct_size = sizeof request,
                            .bytes = BLOCK,
                            .stream = f->stream,
                            .memory_class = WEIR_CLASS_WEIGHTS,
                            .flags = WEIR_ALLOC_ZEROED,
                            .tag = "zeros"};
    weir_block block;
    for (int round = 0; round < 2; round++) {
        ok(weir_alloc_with(f->model, &request, &block));
        assert_true(residency(f->model).shown >= BLOCK);
        block_holds_zeros(f->runtime, block.pointer, BLOCK);
        write_block(f->runtime, block.pointer, BLOCK, 5); /* the next may have the same memory */
        ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
        ok(weir_fill(f->runtime, block.pointer, 7, BLOCK, f->stream));
        uint64_t came;
        fails(WEIR_ERR_BUSY, resume_some(f->model, (weir_resume_options){.wait = 1000000}, &came));
        pthread_t opener;
        passed = false;
        ok(weir_call(f->runtime, note_passed, NULL, f->stream));
        assert_int_equal(pthread_create(&opener, NULL, open_later, &f->gate), 0);
        ok(weir_free_block(f->model, block, f->stream));
        assert_true(passed); /* work may be using what is shown: it is waited for */
        pthread_join(opener, NULL);
        f->gate = (gate)GATE;
    }
    leave_room(f, taken);
    ok(weir_free(f->model, first, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->stream));
}

/* A refused request changes nothing, and the client is as it was. */
static void without_room_on_the_host_it_is_refused(void **state)
{
    (void)state;
    weir_runtime *host = NULL, *runtime;
    weir_runtime_options o = WEIR_INIT(weir_runtime_options);
    void *block = NULL;
    if (!host_writes()) {
        o.budget = 4 * MIB;
        ok(weir_runtime_create("host", &o, &host));
    }
    o.budget = BUDGET;
    o.host = host;
    ok(weir_runtime_create(host ? getenv("WEIR_TEST_DEVICE") : "host", &o, &runtime));
    weir_client *model = open_client(runtime, "model", 0, 0);
    ok(weir_client_set_overflow(model, true, BUDGET - 4 * MIB));
    for (int round = 0; round < 2; round++) {
        size_t bytes = host_writes() ? BUDGET + MIB : 32 * MIB;
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(model, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block));
        assert_null(block);
        assert_int_equal(residency(model).state, WEIR_RESIDENT);
        assert_int_equal(residency(model).stored, 0);
        snapshot s = take_snapshot(runtime);
        check_sums(&s);
        assert_int_equal(s.device.live + s.device.away + s.device.promised, 0);
    }
    ok(weir_client_set_overflow(model, false, 0));
    ok(weir_alloc(model, 32 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block)); /* there was room */
    ok(weir_free(model, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(model));
    ok(weir_runtime_destroy(runtime));
    if (host)
        ok(weir_runtime_destroy(host));
}

static void what_is_refused_as_ever(void **state)
{
    const fixture *f = *state;
    void *taken = crowd(f, 20 * MIB);
    weir_block block;
    weir_request request = {.struct_size = sizeof request, .bytes = BUDGET - 4 * MIB, .memory_class = WEIR_CLASS_KV};
    void *first = allocate(f->model, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->model, &request, &block));
    request.memory_class = WEIR_CLASS_WEIGHTS;
    request.flags = WEIR_ALLOC_STABLE;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->model, &request, &block));
    assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
    fails(WEIR_ERR_INVALID, weir_client_set_overflow(f->model, true, UINT64_MAX));
    fails(WEIR_ERR_INVALID, weir_client_set_overflow(NULL, true, 0));
    /* after a suspend that shows nothing, too */
    (void)suspend(f->model);
    fails(WEIR_ERR_BUSY, weir_alloc(f->model, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block.pointer));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_free(f->model, first, WEIR_STREAM_HOST));
    leave_room(f, taken);
}

/* Beside an explicit suspend with `show`, and closed as it is. */
static void it_adds_to_what_is_shown(void **state)
{
    const fixture *f = *state;
    weir_client *client = open_client(f->runtime, "closed", 0, 0);
    char *first = allocate(client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, first, BLOCK, 1);
    weir_residency r = suspend_with(client, (weir_suspend_options){.show = true});
    ok(weir_client_set_overflow(client, true, BUDGET - 4 * MIB));
    char *second = allocate(client, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, second, 8 * MIB, 2);
    assert_int_equal(residency(client).shown, r.shown + 8 * MIB);
    block_holds(f->runtime, first, BLOCK, 1);
    ok(weir_free(client, first, WEIR_STREAM_HOST));
    block_holds(f->runtime, second, 8 * MIB, 2);
    fails(WEIR_ERR_BUSY, weir_client_destroy(client));
    ok(weir_free(client, second, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
}

/* A device that shows no memory of the host's says so, and refuses as ever. */
static void where_it_cannot_be_shown(void **state)
{
    (void)state;
    void *stub = host_writes() ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *block = NULL;
    void (*reach)(bool) = NULL;
    if (stub)
        *(void **)&reach = dlsym(stub, "stub_reach");
    if (!reach) {
        skip();
        return;
    }
    reach(false);
    weir_runtime *runtime = make_runtime_here(BUDGET);
    reach(true);
    weir_client *model = open_client(runtime, "model", 0, 0);
    fails(WEIR_ERR_UNSUPPORTED, weir_client_set_overflow(model, true, 0));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(model, 2 * BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block));
    ok(weir_client_destroy(model));
    ok(weir_runtime_destroy(runtime));
}

static int resume_and_tear_down(void **state)
{
    const fixture *f = *state;
    (void)!weir_client_resume(f->model, WEIR_STREAM_HOST);
    (void)weir_client_forget_copies(f->model);
    return tear_down(state);
}

#define OVERFLOW(name) cmocka_unit_test_setup_teardown(name, set_up, resume_and_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVERFLOW(weights_without_room_are_shown),
        OVERFLOW(pieces_come_as_room_appears),
        OVERFLOW(it_leaves_and_overflows_again),
        OVERFLOW(blocks_are_freed_while_they_are_shown),
        OVERFLOW(a_later_block_may_lie_in_front),
        OVERFLOW(zeros_and_streams_are_kept),
        cmocka_unit_test(without_room_on_the_host_it_is_refused),
        OVERFLOW(what_is_refused_as_ever),
        OVERFLOW(it_adds_to_what_is_shown),
        cmocka_unit_test(where_it_cannot_be_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
