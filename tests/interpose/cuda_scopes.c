/* What a scope may ask for beyond blocks of a class: memory out of a reservation, memory past the budget where a
 * refusal would be the end of the process, memory of the engine's own; and devices that come to a redirect later. */
#include "interpose/cuda_rig.h"
#include "interpose/cuda_redirect_parts.h"

#include <sched.h>

/* Reservations ----------------------------------------------------------------------------------------------------- */

static void a_scope_takes_its_reservation_first_and_the_budget_then(void **state)
{
    (void)state;
    fixture f = begin(8 * MIB);
    weir_reservation *reserve;
    ok(weir_reservation_create(f.client[0], 3 * MIB, 0, &reserve));
    wi_cuda_scope scope = {
        .clients = &f.client[0], .client_count = 1, .memory_class = WEIR_CLASS_SCRATCH, .reservations = &reserve};
    ok(wi_cuda_scope_enter(f.redirect, &scope));
    void *a = get(&f, 2 * MIB);
    assert_int_equal(account(f.client[0]).promised, MIB);
    assert_int_equal(account(f.client[0]).live, 2 * MIB);
    void *b = get(&f, 2 * MIB), *pinned; /* more than is left of it */
    assert_int_equal(account(f.client[0]).promised, MIB);
    assert_int_equal(account(f.client[0]).live, 4 * MIB);
    assert_int_equal(stats(&f).refused, 0);
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0); /* reservations are of device memory */
    assert_int_equal(account(f.client[0]).promised, MIB);
    wi_cuda_scope_leave(&scope);
    assert_int_equal(f.m.cudaFree(a), 0);
    assert_int_equal(f.m.cudaFree(b), 0);
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    ok(weir_reservation_destroy(reserve));
    end(&f);
}

/* Past the budget -------------------------------------------------------------------------------------------------- */

static void what_may_not_be_refused_is_granted_by_cuda_and_counted(void **state)
{
    (void)state;
    fixture f = begin(4 * MIB);
    wi_cuda_scope scope = {.memory_class = WEIR_CLASS_SCRATCH, .overruns = true};
    ok(wi_cuda_scope_enter(f.redirect, &scope));
    void *inside = get(&f, 3 * MIB), *past = get(&f, 2 * MIB);
    uint64_t of_cuda = control.stub_count("allocations");
    assert_int_equal(scope.overrun, 2 * MIB);
    assert_int_equal(stats(&f).overruns, 1);
    assert_int_equal(stats(&f).overrun_bytes, 2 * MIB);
    assert_int_equal(wi_cuda_redirect_overrun(f.redirect, f.client[0]), 2 * MIB);
    assert_int_equal(wi_cuda_redirect_overrun(f.redirect, NULL), 0);
    assert_int_equal(stats(&f).refused + scope.refused, 0);
    assert_int_equal(account(f.client[0]).live, 3 * MIB);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(said, "past the budget"));
    assert_int_equal(f.m.cudaGetLastError(), 0);
    wi_cuda_scope_leave(&scope);
    assert_int_equal(f.m.cudaFree(past), 0);
    assert_int_equal(control.stub_count("allocations"), of_cuda - 1);
    assert_int_equal(stats(&f).overrun_bytes, 0);
    assert_int_equal(wi_cuda_redirect_overrun(f.redirect, f.client[0]), 0);
    assert_int_equal(stats(&f).device_blocks, 1);
    assert_int_equal(f.m.cudaFree(inside), 0);
    end(&f);
}

static void without_such_a_scope_the_same_request_is_refused(void **state)
{
    (void)state;
    fixture f = begin(4 * MIB);
    void *pointer = &f;
    wi_cuda_scope outer = {.overruns = true}, inner = {.memory_class = WEIR_CLASS_WEIGHTS};
    ok(wi_cuda_scope_enter(f.redirect, &outer));
    ok(wi_cuda_scope_enter(f.redirect, &inner));
    wi_cuda_scope_leave(&outer); /* not while it has another one in it */
    assert_int_equal(f.m.cudaMalloc(&pointer, 5 * MIB), 2);
    assert_int_equal(f.m.cudaGetLastError(), 2);
    assert_int_equal(stats(&f).refused, 1);
    assert_int_equal(stats(&f).overruns, 0);
    assert_int_equal(inner.refused, 1);
    assert_string_equal(inner.refusal, stats(&f).refusal);
    assert_int_equal(outer.refused, 0);
    wi_cuda_scope_leave(&inner);
    wi_cuda_scope_leave(&outer);
    end(&f);
}

static void where_the_device_has_no_more_the_refusal_is_weirs(void **state)
{
    (void)state;
    fixture f = begin(4 * MIB);
    void *pointer = &f;
    wi_cuda_scope scope = {.overruns = true};
    ok(wi_cuda_scope_enter(f.redirect, &scope));
    control.stub_fail("cuMemAlloc", 1, 1);
    assert_int_equal(f.m.cudaMalloc(&pointer, 5 * MIB), 2);
    wi_cuda_scope_leave(&scope);
    assert_int_equal(stats(&f).refused, 1);
    assert_int_equal(stats(&f).overruns + scope.overrun, 0);
    assert_non_null(strstr(stats(&f).refusal, "budget"));
    assert_int_equal(f.m.cudaGetLastError(), 0); /* it went with the scope: nobody may be left who asks */
    end(&f);
}

/* Waiting ---------------------------------------------------------------------------------------------------------- */

static void what_waits_for_a_capture_is_settled_when_that_ends(void **state)
{
    void *graph = NULL, *stream = NULL;
    (void)state;
    fixture f = begin(8 * MIB);
    assert_int_equal(f.m.cudaStreamCreateWithFlags(&stream, 1), 0);
    void *block = get(&f, MIB);
    assert_true(wi_cuda_redirect_settle(f.redirect, 0));
    assert_int_equal(f.m.cudaStreamBeginCapture(stream, RELAXED), 0);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_false(wi_cuda_redirect_settle(f.redirect, 5));
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(f.m.cudaStreamEndCapture(stream, &graph), 0);
    assert_true(wi_cuda_redirect_settle(f.redirect, 5));
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

typedef struct late_end {
    const fixture *f;
    void *stream, *graph;
    gate begun;
    int result;
} late_end;

/* Ends its capture when somebody has looked at what waits for it, again and again. */
static void *capture_until_it_is_waited_for(void *user)
{
    late_end *c = user;
    c->result = c->f->m.cudaStreamBeginCapture(c->stream, RELAXED);
    pass_gate(&c->begun);
    for (uint64_t rounds = 0; rounds < 10; sched_yield()) {
        pthread_mutex_lock(&c->f->redirect->lock);
        rounds = c->f->redirect->rounds;
        pthread_mutex_unlock(&c->f->redirect->lock);
    }
    c->result |= c->f->m.cudaStreamEndCapture(c->stream, &c->graph);
    return NULL;
}

/* It is looked at more than once: one of two blocks waits on where the other has gone. */
static void what_waits_for_another_threads_capture_is_waited_for(void **state)
{
    enum { LONG_ENOUGH = 600 * 1000 };
    pthread_t thread;
    (void)state;
    fixture f = begin(8 * MIB);
    late_end c = {.f = &f, .stream = make_stream(&f), .begun = GATE};
    void *blocks[] = {get(&f, MIB), get(&f, MIB)};
    assert_int_equal(pthread_create(&thread, NULL, capture_until_it_is_waited_for, &c), 0);
    wait_until_reached(&c.begun);
    for (int i = 0; i < 2; i++)
        assert_int_equal(f.m.cudaFree(blocks[i]), 0);
    assert_int_equal(stats(&f).waiting, 2);
    assert_true(f.redirect->rounds < 5);
    open_gate(&c.begun);
    assert_true(wi_cuda_redirect_settle(f.redirect, LONG_ENOUGH));
    pthread_join(thread, NULL);
    assert_int_equal(c.result, 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(f.m.cudaGraphDestroy(c.graph), 0);
    assert_int_equal(f.m.cudaStreamDestroy(c.stream), 0);
    end(&f);
}

/* Memory of the engine's own --------------------------------------------------------------------------------------- */

typedef struct own_memory {
    char bytes[4096];
    size_t asked;
    int taken, given_back;
    weir_status answer;
} own_memory;

static weir_status take_own(void *user, size_t bytes, void **pointer)
{
    own_memory *own = user;
    own->asked = bytes;
    if (own->answer != WEIR_OK)
        return weir_fail(own->answer, "the engine has none");
    own->taken++;
    *pointer = own->bytes;
    return WEIR_OK;
}

static void give_own_back(void *user, void *pointer)
{
    own_memory *own = user;
    assert_ptr_equal(pointer, own->bytes);
    own->given_back++;
}

static void a_scope_may_bring_the_memory_itself(void **state)
{
    static own_memory own;
    gate g = GATE;
    pthread_t opener;
    (void)state;
    fixture f = begin(4 * MIB);
    void *stream = make_stream(&f), *pinned;
    const wi_cuda_source source = {take_own, give_own_back, &own};
    wi_cuda_scope scope = {.memory_class = WEIR_CLASS_KV, .source = &source};
    own = (own_memory){.answer = WEIR_OK};
    ok(wi_cuda_scope_enter(f.redirect, &scope));
    void *pointer = get(&f, 100 * MIB); /* its bytes are the engine's matter */
    assert_int_equal(f.m.cudaMallocHost(&pinned, 4096), 0);
    wi_cuda_scope_leave(&scope);
    assert_ptr_equal(pointer, own.bytes);
    assert_int_equal(own.asked, 100 * MIB);
    assert_int_equal(own.taken, 1);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(stats(&f).device_blocks, 1);
    /* It goes back when the work on the module's streams is done. */
    assert_int_equal(f.m.cudaLaunchHostFunc(stream, pass_gate, &g), 0);
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    assert_int_equal(f.m.cudaFree(pointer), 0);
    assert_true(g.open);
    assert_int_equal(own.given_back, 1);
    pthread_join(opener, NULL);
    assert_int_equal(stats(&f).device_blocks, 0);
    assert_int_equal(f.m.cudaFreeHost(pinned), 0);
    assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    end(&f);
}

static void memory_that_the_engine_does_not_have_is_refused_in_its_words(void **state)
{
    static own_memory own;
    void *pointer = &own;
    (void)state;
    fixture f = begin(4 * MIB);
    const wi_cuda_source source = {take_own, give_own_back, &own};
    wi_cuda_scope scope = {.memory_class = WEIR_CLASS_KV, .source = &source};
    ok(wi_cuda_scope_enter(f.redirect, &scope));
    own = (own_memory){.answer = WEIR_ERR_BUSY};
    assert_int_equal(f.m.cudaMalloc(&pointer, MIB), 2);
    assert_int_equal(scope.status, WEIR_ERR_BUSY);
    own = (own_memory){.answer = WEIR_ERR_OUT_OF_MEMORY};
    assert_int_equal(f.m.cudaMalloc(&pointer, MIB), 2);
    assert_int_equal(scope.status, WEIR_ERR_OUT_OF_MEMORY);
    wi_cuda_scope_leave(&scope);
    assert_non_null(strstr(stats(&f).refusal, "the engine has none"));
    assert_int_equal(own.taken + own.given_back, 0);
    (void)f.m.cudaGetLastError();
    end(&f);
}

/* More devices ----------------------------------------------------------------------------------------------------- */

static void a_device_may_come_later(void **state)
{
    (void)state;
    fixture f = prepare(32 * MIB, 2, NULL);
    weir_client *first = f.client[0], *second = f.client[1];
    wi_cuda_redirect_options options = {.module = f.path, .clients = &first, .client_count = 1};
    ok(wi_cuda_redirect_begin(&options, &f.redirect));
    assert_int_equal(f.m.cudaSetDevice(1), 0);
    void *of_cuda = get(&f, MIB);
    assert_int_equal(account(second).live, 0);
    assert_null(wi_cuda_redirect_client(f.redirect, f.runtime[1]));
    ok(wi_cuda_redirect_add(f.redirect, second));
    assert_ptr_equal(wi_cuda_redirect_client(f.redirect, f.runtime[1]), second);
    assert_ptr_equal(wi_cuda_redirect_client(f.redirect, f.runtime[0]), first);
    void *ours = get(&f, MIB);
    assert_int_equal(account(second).live, MIB);
    assert_int_equal(f.m.cudaFree(of_cuda), 0);
    /* A free there is behind that device's default stream, too. */
    gate g = GATE;
    assert_int_equal(f.m.cudaLaunchHostFunc(NULL, pass_gate, &g), 0);
    assert_int_equal(f.m.cudaFree(ours), 0);
    assert_int_equal(account(second).pending, MIB);
    open_gate(&g);
    assert_int_equal(f.m.cudaStreamSynchronize(NULL), 0);
    fails(WEIR_ERR_INVALID, wi_cuda_redirect_add(f.redirect, second));
    detail_names("two clients");
    fails(WEIR_ERR_INVALID, wi_cuda_redirect_add(f.redirect, NULL));
    fails(WEIR_ERR_INVALID, wi_cuda_redirect_add(NULL, second));
    assert_int_equal(f.m.cudaSetDevice(0), 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scope_takes_its_reservation_first_and_the_budget_then),
        cmocka_unit_test(what_may_not_be_refused_is_granted_by_cuda_and_counted),
        cmocka_unit_test(without_such_a_scope_the_same_request_is_refused),
        cmocka_unit_test(where_the_device_has_no_more_the_refusal_is_weirs),
        cmocka_unit_test(what_waits_for_a_capture_is_settled_when_that_ends),
        cmocka_unit_test(what_waits_for_another_threads_capture_is_waited_for),
        cmocka_unit_test(a_scope_may_bring_the_memory_itself),
        cmocka_unit_test(memory_that_the_engine_does_not_have_is_refused_in_its_words),
        cmocka_unit_test(a_device_may_come_later),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}
