/* Registering, step by step over a fake ONNX Runtime: every error, and that it changes nothing. On host, and on cuda
 * over the stub (WEIR_TEST_DEVICE). */
#include "info.h"
#include "fake.h"
#include <weir/block_pool.h>
#include <weir/onnxruntime.h>

#include <dlfcn.h>
#include <stdatomic.h>

static const char *device;

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *a, *b;
} fixture;

static fixture begin(void)
{
    fixture f = {.runtime = make_runtime_on(device, 64 * MIB)};
    f.a = open_client(f.runtime, "anna", 0, 0);
    f.b = open_client(f.runtime, "bert", 0, 0);
    return f;
}

static void end(fixture *f)
{
    ok(weir_client_destroy(f->a));
    ok(weir_client_destroy(f->b));
    check_empty(f->runtime);
    ok(weir_runtime_destroy(f->runtime));
    fake_reset();
}

static bool on_cuda(void)
{
    return strcmp(device, "host") != 0;
}

static const struct OrtEnv *env(void)
{
    return (const struct OrtEnv *)fake_env();
}

static int no_words;
static char said[512];

static void *look_elsewhere(void *argument)
{
    (void)(weir_onnxruntime_registered(NULL, device) != NULL);
    atomic_store((atomic_bool *)argument, true);
    return NULL;
}

/* A callback may look, and so may another thread meanwhile: no lock is held. */
static void listen(weir_log_level level, const char *text, void *user)
{
    static atomic_bool looked;
    struct timespec until;
    pthread_t thread;
    (void)level;
    (void)user;
    no_words++;
    (void)(weir_onnxruntime_registered(NULL, device) != NULL);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    atomic_store(&looked, false);
    pthread_create(&thread, NULL, look_elsewhere, &looked);
    if (pthread_timedjoin_np(thread, NULL, &until) != 0)
        pthread_detach(thread);
    assert_true(atomic_load(&looked));
    snprintf(said, sizeof said, "%s", text);
}

/* The last refused call left nothing behind. */
static void nothing_changed(void)
{
    assert_int_equal(fake_ort.env_users, 0);
    assert_int_equal(fake_ort.infos, 0);
    assert_null(fake_ort.device);
    assert_null(fake_ort.pinned);
    assert_false((weir_onnxruntime_registered(NULL, device) != NULL));
    assert_null(registered_client(NULL, device));
}

/* Runs first: nothing but a sanitizer has loaded the C++ library yet. */
static void without_a_cxx_library(void **state)
{
    (void)state;
    if (dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD))
        skip();
    fixture f = begin();
    weir_onnxruntime_options o = fake_options(f.a, WEIR_STREAM_HOST);
    fails(WEIR_ERR_UNSUPPORTED, weir_onnxruntime_register(&o));
    detail_names("libstdc++.so.6");
    nothing_changed();
    end(&f);
}

static void members_are_checked(void **state)
{
    (void)state;
    load_cxx();
    fixture f = begin();
    weir_onnxruntime *bridge;
    weir_onnxruntime_options good = fake_options(f.a, WEIR_STREAM_HOST), o = good;
    fails(WEIR_ERR_INVALID, weir_onnxruntime_register(NULL));
    o.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_onnxruntime_register(&o));
    fails(WEIR_ERR_INVALID, weir_onnxruntime_create(&o, &bridge));
    fails(WEIR_ERR_INVALID, weir_onnxruntime_create(&good, NULL));
    o = good;
    o.api = NULL;
    fails(WEIR_ERR_INVALID, weir_onnxruntime_register(&o));
    detail_names("api");
    o = good;
    o.env = NULL;
    fails(WEIR_ERR_INVALID, weir_onnxruntime_register(&o));
    detail_names("env");
    o = good;
    o.client = NULL;
    fails(WEIR_ERR_INVALID, weir_onnxruntime_register(&o));
    detail_names("client");
    o = good;
    o.version = 22;
    fails(WEIR_ERR_UNSUPPORTED, weir_onnxruntime_register(&o));
    detail_names("22");
    o = good;
    o.stream.id = 12345;
    fails(WEIR_ERR_STREAM_MISUSE, weir_onnxruntime_register(&o));
    nothing_changed();
    weir_client *gone = open_client(f.runtime, "gone", 0, 0);
    ok(weir_client_destroy(gone));
    o = fake_options(gone, WEIR_STREAM_HOST);
    fails(WEIR_ERR_INVALID, weir_onnxruntime_register(&o));
    nothing_changed();
    end(&f);
}

static void no_other_device(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime_on("sim", 64 * MIB);
    weir_client *client = open_client(runtime, "anna", 0, 0);
    weir_onnxruntime_options o = fake_options(client, WEIR_STREAM_HOST);
    fails(WEIR_ERR_UNSUPPORTED, weir_onnxruntime_register(&o));
    detail_names("sim");
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Each call of ONNX Runtime's that can fail, fails: its words and the step are told, and nothing is left. */
static void each_step_fails(void **state)
{
    (void)state;
    fixture f = begin();
    snapshot before = take_snapshot(f.runtime);
    weir_onnxruntime_options o = fake_options(f.a, WEIR_STREAM_HOST);
    const struct {
        fake_failures fail;
        const char *names;
        bool cuda, host;
    } steps[] = {{{.CreateEnv = true}, "environment", true, true},
                 {{.CreateCpuMemoryInfo = true}, "describe", false, true},
                 {{.CreateMemoryInfo = true}, "describe", true, false},
                 {{.CreateMemoryInfo = true, .pinned_only = true}, "describe", true, false},
                 {{.RegisterAllocator = true}, "RegisterAllocator", true, true},
                 {{.RegisterAllocator = true, .pinned_only = true}, "pinned", true, false}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (!(on_cuda() ? steps[i].cuda : steps[i].host))
            continue;
        fake_ort.fail = steps[i].fail;
        fails(WEIR_ERR_ENGINE, weir_onnxruntime_register(&o));
        detail_names("words of ONNX Runtime");
        detail_names(steps[i].names);
        nothing_changed();
        unchanged(f.runtime, before);
    }
    fake_ort.fail = (fake_failures){0};
    fake_ort.another_env = true;
    fails(WEIR_ERR_INVALID, weir_onnxruntime_register(&o));
    detail_names("environment");
    nothing_changed();
    end(&f);
}

static void registered_and_looked_up(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = fake_options(f.a, WEIR_STREAM_HOST);
    ok(weir_onnxruntime_register(&o));
    ok(weir_onnxruntime_register(&o)); /* again: nothing happens */
    assert_int_equal(fake_ort.env_users, 1);
    assert_int_equal(fake_ort.registered, on_cuda() ? 2 : 1);
    assert_true((weir_onnxruntime_registered(env(), device) != NULL));
    assert_true((weir_onnxruntime_registered(NULL, device) != NULL));
    assert_false((weir_onnxruntime_registered(NULL, "cuda:7") != NULL));
    assert_false((weir_onnxruntime_registered((const struct OrtEnv *)&f, device) != NULL));
    assert_false((weir_onnxruntime_registered(NULL, NULL) != NULL));
    assert_ptr_equal(registered_client(env(), device), f.a);
    assert_ptr_equal(registered_client(NULL, device), f.a);
    weir_onnxruntime *bridge = weir_onnxruntime_registered(NULL, device);
    assert_ptr_equal(bridge_allocator(bridge, WEIR_KIND_DEVICE), fake_ort.device);
    assert_ptr_equal(bridge_allocator(bridge, WEIR_KIND_PINNED), fake_ort.pinned);
    assert_null(bridge_allocator(bridge, WEIR_KIND_HOST));
    fails(WEIR_ERR_BUSY, weir_onnxruntime_destroy(bridge));
    ok(weir_onnxruntime_unregister(env(), device));
    assert_false((weir_onnxruntime_registered(NULL, device) != NULL));
    fails(WEIR_ERR_NOT_FOUND, weir_onnxruntime_unregister(env(), device));
    detail_names(device);
    fails(WEIR_ERR_INVALID, weir_onnxruntime_unregister(env(), NULL));
    end(&f);
}

static void one_client_for_a_device(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options a = fake_options(f.a, WEIR_STREAM_HOST), b = fake_options(f.b, WEIR_STREAM_HOST);
    ok(weir_onnxruntime_register(&a));
    fails(WEIR_ERR_CONFLICT, weir_onnxruntime_register(&b));
    detail_names(device);
    detail_names("anna");
    detail_names("bert");
    if (on_cuda()) {
        ok(weir_stream_acquire(f.runtime, &a.stream));
        fails(WEIR_ERR_CONFLICT, weir_onnxruntime_register(&a));
        detail_names("another stream");
        ok(weir_stream_release(a.stream));
    }
    assert_ptr_equal(registered_client(NULL, device), f.a);
    ok(weir_onnxruntime_unregister(NULL, device));
    ok(weir_onnxruntime_register(&b));
    ok(weir_onnxruntime_unregister(NULL, device));
    end(&f);
}

static void *their_alloc(ort_allocator *self, size_t size)
{
    (void)self;
    (void)size;
    return NULL;
}

/* ONNX Runtime would replace it without a word. */
static void somebody_elses_allocator(void **state)
{
    (void)state;
    fixture f = begin();
    ort_allocator theirs = {.version = 23, .Alloc = their_alloc};
    weir_onnxruntime_options o = fake_options(f.a, WEIR_STREAM_HOST);
    /* The fake one is in this program as their allocator is, so that on host it counts as ONNX Runtime's own. */
    if (on_cuda()) {
        fake_ort.device = &theirs;
        fails(WEIR_ERR_CONFLICT, weir_onnxruntime_register(&o));
        detail_names(device);
        detail_names("somebody else");
        assert_ptr_equal(fake_ort.device, &theirs);
        fake_ort.device = NULL;
        fake_ort.pinned = &theirs;
        fails(WEIR_ERR_CONFLICT, weir_onnxruntime_register(&o));
        detail_names("pinned");
        assert_null(fake_ort.device);
        fake_ort.pinned = NULL;
        nothing_changed();
    }
    ok(weir_onnxruntime_register(&o));
    ort_allocator *ours = fake_ort.device;
    fake_ort.device = &theirs;
    assert_false((weir_onnxruntime_registered(NULL, device) != NULL));
    fails(WEIR_ERR_CONFLICT, weir_onnxruntime_register(&o));
    detail_names(device);
    no_words = 0;
    assert_int_equal(weir_log_set(listen, NULL, WEIR_LOG_WARNING), WEIR_OK);
    ok(weir_onnxruntime_unregister(NULL, device));
    assert_int_equal(no_words, 1);
    assert_non_null(strstr(said, device));
    assert_ptr_equal(fake_ort.device, &theirs); /* and not ours, nor nobody's */
    assert_ptr_not_equal(ours, &theirs);
    fake_ort.device = NULL;
    assert_int_equal(weir_log_set(NULL, NULL, WEIR_LOG_OFF), WEIR_OK);
    end(&f);
}

static void failing_to_unregister_is_logged(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = fake_options(f.a, WEIR_STREAM_HOST);
    ok(weir_onnxruntime_register(&o));
    fake_ort.fail.UnregisterAllocator = true;
    no_words = 0;
    assert_int_equal(weir_log_set(listen, NULL, WEIR_LOG_WARNING), WEIR_OK);
    ok(weir_onnxruntime_unregister(NULL, device));
    assert_int_equal(no_words, on_cuda() ? 2 : 1);
    assert_non_null(strstr(said, "words of ONNX Runtime"));
    assert_int_equal(weir_log_set(NULL, NULL, WEIR_LOG_OFF), WEIR_OK);
    /* What stays there refuses and ignores; the table is still readable. */
    ort_allocator *late = fake_ort.device;
    assert_non_null(late->Info(late));
    assert_null(late->Alloc(late, 0));
    late->Free(late, &late);
    fake_ort.device = fake_ort.pinned = NULL;
    end(&f);
}

/* One of its own, that ONNX Runtime does not give up in leave: the close is done, and its record stays. */
static void what_is_not_given_up_stays(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = fake_options(f.a, WEIR_STREAM_HOST);
    for (int kind = 0; kind < (on_cuda() ? 2 : 1); kind++) {
        weir_onnxruntime *bridge;
        ok(weir_onnxruntime_create(&o, &bridge));
        ok(weir_onnxruntime_enter(bridge));
        fake_ort.fail.UnregisterAllocator = true;
        fake_ort.fail.pinned_only = kind == 1;
        no_words = 0;
        assert_int_equal(weir_log_set(listen, NULL, WEIR_LOG_WARNING), WEIR_OK);
        weir_onnxruntime_leave(bridge);
        assert_int_equal(no_words, on_cuda() && kind == 0 ? 2 : 1);
        ok(weir_onnxruntime_destroy(bridge));
        assert_non_null(strstr(said, "keeps its allocator"));
        assert_non_null(strstr(said, "anna"));
        assert_int_equal(weir_log_set(NULL, NULL, WEIR_LOG_OFF), WEIR_OK);
        ort_allocator *late = kind == 1 ? fake_ort.pinned : fake_ort.device;
        assert_non_null(late->Info(late));
        assert_null(late->Alloc(late, 0));
        late->Free(late, &late);
        memset(&fake_ort.fail, 0, sizeof fake_ort.fail);
        /* Another one takes its place. */
        ok(weir_onnxruntime_register(&o));
        assert_ptr_not_equal(kind == 1 ? fake_ort.pinned : fake_ort.device, late);
        ok(weir_onnxruntime_unregister(NULL, device));
        assert_null(fake_ort.device);
        assert_null(fake_ort.pinned);
    }
    end(&f);
}

static void busy_while_blocks_are_live(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = fake_options(f.a, WEIR_STREAM_HOST);
    ok(weir_onnxruntime_register(&o));
    ort_allocator *allocator = fake_ort.device;
    void *first = allocator->Alloc(allocator, 1000), *second = allocator->Reserve(allocator, 2000);
    snapshot before = take_snapshot(f.runtime);
    fails(WEIR_ERR_BUSY, weir_onnxruntime_unregister(NULL, device));
    detail_names("2 blocks of anna");
    detail_names(device);
    unchanged(f.runtime, before);
    assert_true((weir_onnxruntime_registered(NULL, device) != NULL));
    fails(WEIR_ERR_BUSY, weir_client_destroy(f.a));
    allocator->Free(allocator, first);
    fails(WEIR_ERR_BUSY, weir_onnxruntime_unregister(NULL, device));
    detail_names("1 block of");
    allocator->Free(allocator, second);
    ok(weir_onnxruntime_unregister(NULL, device));
    end(&f);
}

/* A session that is created between enter and leave finds the entered one; then the registered one is back. */
static void entered_and_left(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime *bridge;
    weir_onnxruntime_options a = fake_options(f.a, WEIR_STREAM_HOST), b = fake_options(f.b, WEIR_STREAM_HOST);
    ok(weir_onnxruntime_create(&b, &bridge));
    ort_allocator *of_b = (ort_allocator *)bridge_allocator(bridge, WEIR_KIND_DEVICE);
    ok(weir_onnxruntime_enter(bridge));
    assert_ptr_equal(fake_ort.device, of_b);
    assert_false((weir_onnxruntime_registered(NULL, device) != NULL));
    fails(WEIR_ERR_BUSY, weir_onnxruntime_enter(bridge));
    fails(WEIR_ERR_BUSY, weir_onnxruntime_register(&a));
    fails(WEIR_ERR_BUSY, weir_onnxruntime_unregister(NULL, device));
    fails(WEIR_ERR_BUSY, weir_onnxruntime_destroy(bridge));
    weir_onnxruntime_leave(bridge);
    assert_null(fake_ort.device);
    assert_null(fake_ort.pinned);
    ok(weir_onnxruntime_register(&a));
    ort_allocator *of_a = fake_ort.device;
    ok(weir_onnxruntime_enter(bridge));
    assert_ptr_equal(fake_ort.device, of_b);
    assert_true((weir_onnxruntime_registered(NULL, device) != NULL));
    weir_onnxruntime_leave(bridge);
    assert_ptr_equal(fake_ort.device, of_a);
    weir_onnxruntime_leave(bridge); /* nothing */
    weir_onnxruntime *registered = weir_onnxruntime_registered(NULL, device);
    ok(weir_onnxruntime_enter(registered));
    weir_onnxruntime_leave(registered);
    assert_ptr_equal(fake_ort.device, of_a);
    fake_ort.fail.RegisterAllocator = true;
    fails(WEIR_ERR_ENGINE, weir_onnxruntime_enter(bridge));
    assert_ptr_equal(fake_ort.device, of_a);
    fake_ort.fail.RegisterAllocator = false;
    ok(weir_onnxruntime_unregister(NULL, device));
    fails(WEIR_ERR_INVALID, weir_onnxruntime_enter(NULL));
    ok(weir_onnxruntime_destroy(bridge));
    ok(weir_onnxruntime_destroy(NULL));
    end(&f);
}

/* Whatever fails, the registered one stays, and ONNX Runtime never keeps one that is closed. */
static void entering_and_leaving_fail(void **state)
{
    (void)state;
    fixture f = begin();
    ort_allocator theirs = {.version = 23, .Alloc = their_alloc};
    weir_onnxruntime *bridge;
    weir_onnxruntime_options a = fake_options(f.a, WEIR_STREAM_HOST), b = fake_options(f.b, WEIR_STREAM_HOST);
    ok(weir_onnxruntime_register(&a));
    ok(weir_onnxruntime_create(&b, &bridge));
    ort_allocator *of_a = fake_ort.device, *pinned_of_a = fake_ort.pinned;
    if (on_cuda()) {
        fake_ort.fail = (fake_failures){.RegisterAllocator = true, .pinned_only = true};
        fails(WEIR_ERR_ENGINE, weir_onnxruntime_enter(bridge));
        detail_names("pinned");
        assert_ptr_equal(fake_ort.device, of_a);
        assert_ptr_equal(fake_ort.pinned, pinned_of_a);
        fake_ort.fail = (fake_failures){0};
        ok(weir_onnxruntime_enter(bridge));
        fake_ort.device = &theirs;
        weir_onnxruntime_leave(bridge);
        assert_ptr_equal(fake_ort.device, &theirs);
        assert_ptr_equal(fake_ort.pinned, pinned_of_a);
        fake_ort.device = of_a;
    }
    ok(weir_onnxruntime_enter(bridge));
    fake_ort.fail.RegisterAllocator = true;
    weir_onnxruntime_leave(bridge);
    assert_null(fake_ort.device);
    assert_null(fake_ort.pinned);
    fake_ort.fail.RegisterAllocator = false;
    ok(weir_onnxruntime_destroy(bridge));
    ok(weir_onnxruntime_unregister(NULL, device));
    end(&f);
}

typedef struct look {
    pthread_t thread;
    atomic_bool begun, done, registered;
} look;

static void *look_once(void *argument)
{
    look *l = argument;
    atomic_store(&l->begun, true);
    atomic_store(&l->registered, (weir_onnxruntime_registered(NULL, device) != NULL));
    atomic_store(&l->done, true);
    return NULL;
}

/* It looks into the allocator that ONNX Runtime has, which nobody closes meanwhile. */
static void looking_waits_for_leaving(void **state)
{
    (void)state;
    fixture f = begin();
    look l = {.registered = false};
    weir_onnxruntime *bridge;
    weir_onnxruntime_options a = fake_options(f.a, WEIR_STREAM_HOST), b = fake_options(f.b, WEIR_STREAM_HOST);
    ok(weir_onnxruntime_register(&a));
    ok(weir_onnxruntime_create(&b, &bridge));
    ok(weir_onnxruntime_enter(bridge));
    pthread_create(&l.thread, NULL, look_once, &l);
    while (!atomic_load(&l.begun))
        usleep(100);
    usleep(20000);
    assert_false(atomic_load(&l.done));
    weir_onnxruntime_leave(bridge);
    pthread_join(l.thread, NULL);
    assert_true(l.registered);
    ok(weir_onnxruntime_destroy(bridge));
    ok(weir_onnxruntime_unregister(NULL, device));
    end(&f);
}

static void *second_thread(void *argument)
{
    weir_onnxruntime *bridge = argument;
    ok(weir_onnxruntime_enter(bridge));
    assert_ptr_equal(fake_ort.device, bridge_allocator(bridge, WEIR_KIND_DEVICE));
    weir_onnxruntime_leave(bridge);
    return NULL;
}

static void one_thread_at_a_time(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime *a, *b;
    weir_onnxruntime_options o = fake_options(f.a, WEIR_STREAM_HOST);
    ok(weir_onnxruntime_create(&o, &a));
    o.client = f.b;
    ok(weir_onnxruntime_create(&o, &b));
    pthread_t thread;
    ok(weir_onnxruntime_enter(a));
    pthread_create(&thread, NULL, second_thread, b);
    for (int i = 0; i < 20; i++) {
        assert_ptr_equal(fake_ort.device, bridge_allocator(a, WEIR_KIND_DEVICE));
        usleep(1000);
    }
    weir_onnxruntime_leave(a);
    pthread_join(thread, NULL);
    assert_null(fake_ort.device);
    ok(weir_onnxruntime_destroy(a));
    ok(weir_onnxruntime_destroy(b));
    end(&f);
}

/* What does not come in multiples of 256 bytes cannot serve. */
static void granules(void **state)
{
    (void)state;
    fixture f = begin();
    const size_t bytes[] = {64, 320, 256};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        weir_block_pool_options pool_options = {
            .struct_size = sizeof pool_options, .bytes = bytes[i], .count = 64, .alignment = 64};
        weir_block_pool *pool;
        weir_block_pool_member *member;
        ok(weir_block_pool_create(f.a, &pool_options, &pool));
        ok(weir_block_pool_member_create(pool, f.b, 0, &member));
        weir_onnxruntime_options o = fake_options(f.b, WEIR_STREAM_HOST);
        o.blocks = member;
        if (bytes[i] % 256 == 0) {
            ok(weir_onnxruntime_register(&o));
            ok(weir_onnxruntime_unregister(NULL, device));
        } else {
            char size[24];
            snprintf(size, sizeof size, "%zu bytes", bytes[i]);
            fails(WEIR_ERR_INVALID, weir_onnxruntime_register(&o));
            detail_names(size);
            detail_names("256");
            nothing_changed();
        }
        o.client = f.a;
        fails(WEIR_ERR_INVALID, weir_onnxruntime_register(&o));
        detail_names("member");
        ok(weir_block_pool_member_destroy(member));
        ok(weir_block_pool_destroy(pool));
    }
    end(&f);
}

int main(void)
{
    device = getenv("WEIR_TEST_DEVICE") ? getenv("WEIR_TEST_DEVICE") : "host";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_cxx_library),
        cmocka_unit_test(members_are_checked),
        cmocka_unit_test(no_other_device),
        cmocka_unit_test(each_step_fails),
        cmocka_unit_test(registered_and_looked_up),
        cmocka_unit_test(one_client_for_a_device),
        cmocka_unit_test(somebody_elses_allocator),
        cmocka_unit_test(failing_to_unregister_is_logged),
        cmocka_unit_test(what_is_not_given_up_stays),
        cmocka_unit_test(busy_while_blocks_are_live),
        cmocka_unit_test(entered_and_left),
        cmocka_unit_test(entering_and_leaving_fail),
        cmocka_unit_test(looking_waits_for_leaving),
        cmocka_unit_test(one_thread_at_a_time),
        cmocka_unit_test(granules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
