/* A model that others ask for memory goes while they ask: also inside a callback, where the end of a registration waits for
 * nobody. */
#include "core/core.h"

#include "engines/text/text.h"

#include <weir/pressure.h>

#include <stdatomic.h>

enum { BLOCK = 1 << 20, BUDGET = 2 * BLOCK };

typedef struct model {
    int state; /* 7 while it is there */
    gate inside;
    atomic_uint calls;
    atomic_bool left, wrong;
} model;

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    void *all;
    model *model;
    wt_listener *listener;
} fixture;

static _Thread_local bool asks; /* the second thread */
static gate before = GATE;      /* where it is before it looks whether there is a model */
static atomic_bool stops_before;
static model *_Atomic opens_when_awaited; /* whose end is to wait before the call goes on */

/* Of this program's own calls; the linker wants them seen by libraries, too. */
#define SEEN __attribute__((visibility("default")))
int __real_pthread_mutex_lock(pthread_mutex_t *lock);
SEEN int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
SEEN int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (asks && atomic_exchange(&stops_before, false))
        pass_gate(&before);
    return __real_pthread_mutex_lock(lock);
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    model *its = asks ? NULL : atomic_exchange(&opens_when_awaited, NULL);
    if (its)
        open_gate(&its->inside);
    return __real_pthread_cond_wait(condition, lock);
}

static void give_up(void *user)
{
    model *its = user;
    atomic_fetch_add(&its->calls, 1);
    if (asks)
        pass_gate(&its->inside);
    atomic_store(&its->wrong, its->state != 7);
    atomic_store(&its->left, true);
}

static fixture start(void)
{
    fixture f = {.runtime = make_runtime(BUDGET), .model = calloc(1, sizeof *f.model)};
    *f.model = (model){.state = 7, .inside = GATE};
    f.client = open_client(f.runtime, "model", 0, 0);
    f.all = allocate(f.client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(wt_listener_begin(f.runtime, give_up, f.model, &f.listener));
    return f;
}

static void end(fixture *f)
{
    ok(weir_free(f->client, f->all, WEIR_STREAM_HOST));
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
}

static void *ask(void *user)
{
    const fixture *f = user;
    void *p;
    asks = true;
    return weir_alloc(f->client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p) == WEIR_ERR_OUT_OF_MEMORY ? NULL : user;
}

static void begin_to_ask(fixture *f, gate *where, pthread_t *out)
{
    pthread_create(out, NULL, ask, f);
    pthread_mutex_lock(&where->lock);
    while (!where->reached)
        pthread_cond_wait(&where->changed, &where->lock);
    pthread_mutex_unlock(&where->lock);
}

static void join(pthread_t thread)
{
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
}

/* The end, and the model's: nobody is in it. */
static void unload(fixture *f)
{
    model *its = f->model;
    wt_listener_end(f->listener);
    atomic_store(&its->wrong, atomic_load(&its->wrong) || (atomic_load(&its->calls) > 0 && !atomic_load(&its->left)));
    its->state = 0;
    open_gate(&its->inside); /* of a call that should have been waited for */
}

static void unload_inside(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    if (!asks)
        unload(user);
}

/* The test's own thread needs memory, and unloads the model for it. */
static void need_memory(fixture *f)
{
    uint64_t id;
    void *p;
    ok(weir_pressure_register(f->runtime, -1, unload_inside, f, &id));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    ok(weir_pressure_unregister(f->runtime, id));
}

static void it_is_asked_until_its_end(void **state)
{
    (void)state;
    fixture f = start();
    void *p;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_int_equal(atomic_load(&f.model->calls), 1);
    wt_listener_end(f.listener);
    wt_listener_end(NULL);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_int_equal(atomic_load(&f.model->calls), 1);
    free(f.model);
    end(&f);
}

static void the_end_waits(bool inside)
{
    fixture f = start();
    pthread_t asking;
    begin_to_ask(&f, &f.model->inside, &asking);
    atomic_store(&opens_when_awaited, f.model);
    if (inside)
        need_memory(&f);
    else
        unload(&f);
    assert_null(atomic_load(&opens_when_awaited));
    join(asking);
    assert_int_equal(atomic_load(&f.model->calls), 1);
    assert_false(atomic_load(&f.model->wrong));
    free(f.model);
    end(&f);
}

static void an_end_waits_for_a_call(void **state)
{
    (void)state;
    the_end_waits(false);
}

static void an_end_inside_a_callback_waits_for_a_call(void **state)
{
    (void)state;
    the_end_waits(true);
}

/* The call has begun, and has not looked yet: it finds no model, and what it looks at is still there. */
static void a_call_that_comes_too_late(void **state)
{
    (void)state;
    fixture f = start();
    pthread_t asking;
    atomic_store(&stops_before, true);
    begin_to_ask(&f, &before, &asking);
    need_memory(&f);
    model *its = f.model;
    assert_int_equal(atomic_load(&its->calls), 0);
    open_gate(&before);
    join(asking);
    assert_int_equal(atomic_load(&its->calls), 0);
    free(its);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_asked_until_its_end),
        cmocka_unit_test(an_end_waits_for_a_call),
        cmocka_unit_test(an_end_inside_a_callback_waits_for_a_call),
        cmocka_unit_test(a_call_that_comes_too_late),
    };
    return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
