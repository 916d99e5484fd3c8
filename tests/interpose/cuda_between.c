/* What one thread of a module does while another is between two steps of the redirect: a stream is destroyed or captured
 * while a free is being put behind it, and memory is freed while a stream is on its way. */
#include "base/probes.h"
#include "interpose/cuda_rig.h"

#ifdef WEIR_INVARIANTS

typedef enum { FREES, DESTROYS, CAPTURES } deed;

/* A thread that does one thing, and stands at a window until it may go on. */
typedef struct actor {
    pthread_t thread;
    const fixture *f;
    deed deed;
    void *on, *graph;
    gate *stands_at; /* at WI_WINDOW_REDIRECT_HELD; NULL: it goes through */
    int streams;     /* that it passes before */
    int result;
    bool done; /* under `lock` */
} actor;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned awaited; /* times that somebody found a stream held */
static _Thread_local actor *self;
static const fixture *frees_at;
static wi_window_point frees_in;
static void *freed_there;

static void at_window(wi_window_point place)
{
    gate *g = self && place == WI_WINDOW_REDIRECT_HELD && self->streams-- == 0 ? self->stands_at : NULL;
    if (place == WI_WINDOW_REDIRECT_AWAITED) {
        pthread_mutex_lock(&lock);
        awaited++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    if (freed_there && place == frees_in) {
        void *pointer = freed_there;
        freed_there = NULL;
        assert_int_equal(frees_at->m.cudaFree(pointer), 0);
    }
    if (g)
        pass_gate(g);
}

static void *act(void *user)
{
    actor *a = user;
    const calls *m = &a->f->m;
    self = a;
    a->result = a->deed == FREES      ? m->cudaFree(a->on)
                : a->deed == DESTROYS ? m->cudaStreamDestroy(a->on)
                                      : m->cudaStreamBeginCapture(a->on, RELAXED);
    if (a->deed == CAPTURES)
        a->result |= m->cudaStreamEndCapture(a->on, &a->graph) | m->cudaGraphDestroy(a->graph);
    pthread_mutex_lock(&lock);
    a->done = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void begin_act(actor *a)
{
    assert_int_equal(pthread_create(&a->thread, NULL, act, a), 0);
    if (a->stands_at)
        wait_until_reached(a->stands_at);
}

/* Until it has found the stream held once more, or has not cared. False: it has ended. */
static bool finds_it_held(const actor *a)
{
    pthread_mutex_lock(&lock);
    unsigned before = awaited;
    while (awaited == before && !a->done)
        pthread_cond_wait(&changed, &lock);
    bool held = !a->done;
    pthread_mutex_unlock(&lock);
    return held;
}

static void let_go_on(actor *a, gate *g)
{
    open_gate(g);
    pthread_join(a->thread, NULL);
    assert_int_equal(a->result, 0);
}

/* The default stream comes before the module's first. */
static void waits_for_all_who_hold_its_stream(deed done)
{
    fixture f = begin(32 * MIB);
    void *stream = make_stream(&f);
    gate gates[2] = {GATE, GATE};
    actor frees[2], other = {.f = &f, .deed = done, .on = stream};
    wi_window_hook = at_window;
    for (size_t i = 0; i < 2; i++) {
        frees[i] = (actor){.f = &f, .deed = FREES, .on = get(&f, MIB), .stands_at = &gates[i], .streams = 1};
        begin_act(&frees[i]);
    }
    begin_act(&other);
    for (size_t i = 0; i < 2; i++) {
        assert_true(finds_it_held(&other));
        let_go_on(&frees[i], &gates[i]);
    }
    pthread_join(other.thread, NULL);
    assert_int_equal(other.result, 0);
    wi_window_hook = NULL;
    if (done == CAPTURES)
        assert_int_equal(f.m.cudaStreamDestroy(stream), 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(warnings, 0);
    end(&f);
}

static void a_stream_is_destroyed_when_nobody_puts_a_free_behind_it(void **state)
{
    (void)state;
    waits_for_all_who_hold_its_stream(DESTROYS);
}

static void a_capture_begins_when_nobody_puts_a_free_behind_its_stream(void **state)
{
    (void)state;
    waits_for_all_who_hold_its_stream(CAPTURES);
}

static void frees_within(const fixture *f, wi_window_point place, void *pointer)
{
    frees_at = f;
    frees_in = place;
    freed_there = pointer;
    wi_window_hook = at_window;
}

/* It waits for the stream to be gone, whatever weir knows of it by then. */
static void what_is_freed_while_a_stream_goes_is_freed_when_it_has_gone(void **state)
{
    (void)state;
    fixture f = begin(32 * MIB);
    void *streams[] = {make_stream(&f), make_stream(&f)}, *block = get(&f, MIB);
    frees_within(&f, WI_WINDOW_REDIRECT_LEFT, block);
    assert_int_equal(f.m.cudaStreamDestroy(streams[0]), 0);
    wi_window_hook = NULL;
    assert_null(freed_there);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(warnings, 0);
    assert_int_equal(f.m.cudaStreamDestroy(streams[1]), 0);
    end(&f);
}

static uint64_t waits_of_the_driver(void)
{
    return control.stub_count("cuStreamSynchronize") + control.stub_count("cuEventQuery");
}

/* Nothing can be put behind a stream whose work weir waits for already: what is freed meanwhile waits as well. */
static void what_is_freed_while_the_work_of_a_stream_is_waited_for_waits(void **state)
{
    gate g = GATE;
    (void)state;
    fixture f = begin(32 * MIB);
    void *stream = make_stream(&f), *block = get(&f, MIB);
    actor destroys = {.f = &f, .deed = DESTROYS, .on = stream};
    assert_int_equal(f.m.cudaLaunchHostFunc(stream, pass_gate, &g), 0);
    wait_until_reached(&g);
    uint64_t before = waits_of_the_driver();
    begin_act(&destroys);
    while (waits_of_the_driver() == before)
        usleep(100);
    assert_int_equal(f.m.cudaFree(block), 0);
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(account(f.client[0]).live, MIB);
    let_go_on(&destroys, &g);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(account(f.client[0]).live, 0);
    end(&f);
}

/* It waits for the end of the capture, which has not begun for anybody else yet. */
static void what_is_freed_while_a_capture_begins_waits_for_its_end(void **state)
{
    void *graph = NULL;
    (void)state;
    fixture f = begin(32 * MIB);
    void *streams[] = {make_stream(&f), make_stream(&f)}, *block = get(&f, MIB);
    frees_within(&f, WI_WINDOW_REDIRECT_MARKED, block);
    assert_int_equal(f.m.cudaStreamBeginCapture(streams[0], RELAXED), 0);
    wi_window_hook = NULL;
    assert_null(freed_there);
    assert_int_equal(stats(&f).waiting, 1);
    assert_int_equal(account(f.client[0]).live, MIB);
    assert_int_equal(f.m.cudaStreamEndCapture(streams[0], &graph), 0);
    assert_int_equal(stats(&f).waiting, 0);
    assert_int_equal(account(f.client[0]).live, 0);
    assert_int_equal(f.m.cudaGraphDestroy(graph), 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(f.m.cudaStreamDestroy(streams[i]), 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_destroyed_when_nobody_puts_a_free_behind_it),
        cmocka_unit_test(a_capture_begins_when_nobody_puts_a_free_behind_its_stream),
        cmocka_unit_test(what_is_freed_while_a_stream_goes_is_freed_when_it_has_gone),
        cmocka_unit_test(what_is_freed_while_the_work_of_a_stream_is_waited_for_waits),
        cmocka_unit_test(what_is_freed_while_a_capture_begins_waits_for_its_end),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}

#else /* a build without windows has no places to stand at */

int main(void)
{
    return 77;
}

#endif
