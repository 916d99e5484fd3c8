/* A program's own sessions of ONNX Runtime on the CPU, drawing from weir. */
#include "info.h"
#include "ort.h"
#include <weir/block_pool.h>
#include <weir/onnxruntime.h>
#include <weir/residency.h>

static const char *const models[] = {"mlp", "conv", "loop", "branch", "folded"};
enum { MODELS = sizeof models / sizeof *models };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *a, *b;
} fixture;

static fixture begin_with(const char *resource)
{
    fixture f;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 256 * MIB, .resource = resource};
    ok(weir_runtime_create("host", &options, &f.runtime));
    f.a = open_client(f.runtime, "anna", 0, 0);
    f.b = open_client(f.runtime, "bert", 0, 0);
    return f;
}

static fixture begin(void)
{
    return begin_with(NULL);
}

static void end(fixture *f)
{
    ok(weir_client_destroy(f->a));
    ok(weir_client_destroy(f->b));
    check_empty(f->runtime);
    ok(weir_runtime_destroy(f->runtime));
}

/* Several runs of the model, of two shapes, in the client's memory, against plain ones. */
static void compare(const char *model, weir_client *client)
{
    ort_session *session = ort_session_of(model, true);
    for (unsigned seed = 0; seed < 4; seed++) {
        ort_ports inputs, outputs, plain;
        int64_t extent = seed < 2 ? 2 : 3;
        ort_plain_answers(model, seed, extent, &plain);
        ort_inputs(session, seed, extent, &inputs);
        ort_outputs(session, &outputs);
        uint64_t before = ort_live(client);
        ort_ok(ort_run(session, &inputs, &outputs));
        assert_true(ort_live(client) > before);
        if (!ort_equal(&plain, &outputs))
            fail_msg("%s answers otherwise, run %u", model, seed);
        ort_release(&outputs);
        assert_int_equal(ort_live(client), before);
        ort_release(&inputs);
        ort_release(&plain);
    }
    ort->ReleaseSession(session);
}

static void answers_are_equal(void **state)
{
    (void)state;
    static const char *const resources[] = {NULL, "direct", "segments"};
    for (size_t r = 0; r < sizeof resources / sizeof *resources; r++) {
        fixture f = begin_with(resources[r]);
        weir_onnxruntime_options o = ort_bridge(f.a);
        ok(weir_onnxruntime_register(&o));
        for (int i = 0; i < MODELS; i++)
            compare(models[i], f.a);
        assert_int_equal(ort_live(f.a), 0);
        ok(weir_onnxruntime_unregister(NULL, "host"));
        end(&f);
    }
}

/* What a session has is away between its runs: it answers the same, again and again. Results may go while they are away. */
static void suspended(const char *model, weir_client *client, int times)
{
    ort_session *session = ort_session_of(model, true);
    ort_ports inputs, plain;
    ort_plain_answers(model, 1, 2, &plain);
    ort_inputs(session, 1, 2, &inputs);
    for (int i = 0; i < times; i++) {
        ort_ports outputs;
        weir_residency receipt = WEIR_INIT(weir_residency);
        ort_outputs(session, &outputs);
        ort_ok(ort_run(session, &inputs, &outputs));
        assert_true(ort_equal(&plain, &outputs));
        ok(weir_client_suspend(client, NULL, &receipt));
        assert_true(receipt.away > 0);
        assert_int_equal(ort_live(client) + receipt.away, receipt.stayed + receipt.away);
        if (i % 2)
            ort_release(&outputs);
        ok(weir_client_resume(client, WEIR_STREAM_HOST));
        if (i % 2 == 0) {
            assert_true(ort_equal(&plain, &outputs));
            ort_release(&outputs);
        }
    }
    ort_release(&inputs);
    ort_release(&plain);
    ort->ReleaseSession(session);
    assert_int_equal(ort_live(client), 0);
}

static void suspended_between_runs(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = ort_bridge(f.a);
    ok(weir_onnxruntime_register(&o));
    for (int i = 0; i < MODELS; i++)
        suspended(models[i], f.a, 100);
    ok(weir_onnxruntime_unregister(NULL, "host"));
    end(&f);
}

/* Contiguous runs out of a pool of blocks that another client has. */
static void out_of_a_pool_of_blocks(void **state)
{
    (void)state;
    fixture f = begin();
    weir_block_pool_options options = {.struct_size = sizeof options, .bytes = 16 * KIB, .count = 512};
    weir_block_pool *pool;
    weir_block_pool_member *member;
    ok(weir_block_pool_create(f.b, &options, &pool));
    ok(weir_block_pool_member_create(pool, f.a, 0, &member));
    weir_onnxruntime_options o = ort_bridge(f.a);
    o.blocks = member;
    ok(weir_onnxruntime_register(&o));
    ort_session *session = ort_session_of("mlp", true);
    ort_ports inputs, outputs, plain;
    ort_plain_answers("mlp", 1, 2, &plain);
    ort_inputs(session, 1, 2, &inputs);
    ort_outputs(session, &outputs);
    ort_ok(ort_run(session, &inputs, &outputs));
    weir_block_pool_member_stats s = WEIR_INIT(weir_block_pool_member_stats);
    ok(weir_block_pool_member_info(member, &s));
    assert_true(s.held >= outputs.count);
    assert_true(ort_equal(&plain, &outputs));
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(member));
    fails(WEIR_ERR_BUSY, weir_onnxruntime_unregister(NULL, "host"));
    ort_release(&outputs);
    ort_release(&inputs);
    ort_release(&plain);
    ort->ReleaseSession(session);
    ok(weir_onnxruntime_unregister(NULL, "host"));
    ok(weir_block_pool_member_destroy(member));
    ok(weir_block_pool_destroy(pool));
    assert_int_equal(ort_live(f.a), 0);
    end(&f);
}

/* Only sessions that ask for it take part, and those that were there before do not. */
static void who_takes_part(void **state)
{
    (void)state;
    fixture f = begin();
    ort_session *early = ort_session_of("mlp", true);
    weir_onnxruntime_options o = ort_bridge(f.a);
    ok(weir_onnxruntime_register(&o));
    ort_session *aside = ort_session_of("mlp", false);
    ort_session *both[] = {early, aside};
    for (int i = 0; i < 2; i++) {
        ort_ports inputs, outputs;
        ort_inputs(both[i], 1, 2, &inputs);
        ort_outputs(both[i], &outputs);
        ort_ok(ort_run(both[i], &inputs, &outputs));
        assert_int_equal(ort_live(f.a), 0);
        ort_release(&outputs);
        ort_release(&inputs);
        ort->ReleaseSession(both[i]);
    }
    ok(weir_onnxruntime_unregister(NULL, "host"));
    end(&f);
}

/* Failures
 * ---------------------------------------------------------------------------------------------------------- */

/* Loads, runs twice and unloads, however far it comes; answers whether all went well. A session whose run failed goes
 * on. */
static bool try_all(const char *model, weir_client *client, const ort_ports *plain)
{
    ort_session *session;
    const char *words = ort_words(ort_create(model, ort_options(true), &session));
    if (words)
        assert_non_null(strstr(words, "bad_alloc"));
    bool good = !words;
    for (int run = 0; run < 3 && session; run++) {
        ort_ports inputs, outputs;
        ort_inputs(session, 1, 2, &inputs);
        ort_outputs(session, &outputs);
        words = ort_words(ort_run(session, &inputs, &outputs));
        if (words)
            assert_non_null(strstr(words, "bad_alloc"));
        else
            assert_true(ort_equal(plain, &outputs));
        good &= !words;
        ort_release(&outputs);
        ort_release(&inputs);
    }
    if (session)
        ort->ReleaseSession(session);
    assert_int_equal(ort_live(client), 0);
    return good;
}

static void every_request_fails_in_turn(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = ort_bridge(f.a);
    int failed = 0;
    for (int i = 0; i < MODELS; i++) {
        ort_ports plain;
        int nth = 1, seen = 0;
        ort_plain_answers(models[i], 1, 2, &plain);
        for (;; nth++) {
            ok(weir_onnxruntime_register(&o));
            weir_onnxruntime *bridge = weir_onnxruntime_registered(NULL, "host");
            ort_fail_from(bridge, WEIR_KIND_DEVICE, nth);
            bool good = try_all(models[i], f.a, &plain);
            weir_onnxruntime_details s = WEIR_INIT(weir_onnxruntime_details);
            ok(weir_onnxruntime_info(bridge, &s));
            assert_int_equal(s.refused, !good);
            seen = ort_fail_no_more();
            ok(weir_onnxruntime_unregister(NULL, "host"));
            if (good)
                break;
            failed++;
        }
        assert_true(seen < nth); /* each one had its turn */
        ort_release(&plain);
    }
    assert_true(failed > 2 * MODELS);
    end(&f);
}

static void *their_alloc(ort_allocator *self, size_t size)
{
    (void)self;
    return malloc(size);
}

static void their_free(ort_allocator *self, void *pointer)
{
    (void)self;
    free(pointer);
}

static ort_memory_info *their_info;

static const ort_memory_info *info_of(const ort_allocator *self)
{
    (void)self;
    return their_info;
}

static void somebody_elses_allocator_stays(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = ort_bridge(f.a);
    weir_onnxruntime *bridge;
    ort_allocator theirs = {.version = 23, .Alloc = their_alloc, .Free = their_free, .Info = info_of}, *found;
    ort_ok(ort->CreateCpuMemoryInfo(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &their_info));
    ort_ok(ort->RegisterAllocator(ort_environment, &theirs));
    fails(WEIR_ERR_CONFLICT, weir_onnxruntime_register(&o));
    detail_names("host");
    ok(weir_onnxruntime_create(&o, &bridge));
    fails(WEIR_ERR_CONFLICT, weir_onnxruntime_enter(bridge));
    detail_names("host");
    ort_ok(ort->GetSharedAllocator(ort_environment, their_info, &found));
    assert_ptr_equal(found, &theirs);
    ort_ok(ort->UnregisterAllocator(ort_environment, their_info));
    ok(weir_onnxruntime_enter(bridge));
    weir_onnxruntime_leave(bridge);
    ok(weir_onnxruntime_destroy(bridge));
    ok(weir_onnxruntime_register(&o));
    ok(weir_onnxruntime_unregister(NULL, "host"));
    ort->ReleaseMemoryInfo(their_info);
    end(&f);
}

/* A session that outlives the registration is refused, and the process lives. */
static void a_session_that_outlives_it(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = ort_bridge(f.a);
    ok(weir_onnxruntime_register(&o));
    ort_session *session = ort_session_of("scalar", true); /* without weights: nothing is live between runs */
    assert_int_equal(ort_live(f.a), 0);
    ok(weir_onnxruntime_unregister(NULL, "host"));
    end(&f);
    ort_ports inputs, outputs;
    ort_inputs(session, 1, 2, &inputs);
    ort_outputs(session, &outputs);
    const char *words = ort_words(ort_run(session, &inputs, &outputs));
    assert_non_null(words);
    assert_non_null(strstr(words, "bad_alloc"));
    ort_release(&outputs);
    ort_release(&inputs);
    ort->ReleaseSession(session);
}

/* The environment lives as long as anything of weir's needs it. */
static void the_environment_is_pinned(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = ort_bridge(f.a);
    ok(weir_onnxruntime_register(&o));
    ort->ReleaseEnv(ort_environment); /* the test's own use of it */
    compare("mlp", f.a);
    ort_env *again;
    ort_ok(ort->CreateEnv(ORT_LOG_FATAL, "test", &again));
    assert_ptr_equal(again, ort_environment);
    ok(weir_onnxruntime_unregister(NULL, "host"));
    end(&f);
}

static void statistics_for_onnxruntime(void **state)
{
    (void)state;
    fixture f = begin();
    weir_onnxruntime_options o = ort_bridge(f.a);
    weir_onnxruntime *bridge;
    ort_key_values *pairs = NULL;
    ok(weir_onnxruntime_create(&o, &bridge));
    ort_allocator *table = (ort_allocator *)bridge_allocator(bridge, WEIR_KIND_DEVICE);
    void *p = table->Alloc(table, 1000);
    assert_null(table->GetStats(table, &pairs));
    assert_non_null(pairs);
    const struct {
        const char *key, *value;
    } wanted[] = {{"InUse", "1280"}, {"MaxInUse", "1280"}, {"NumAllocs", "1"}, {"Limit", "268435456"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const char *found = ort->GetKeyValue(pairs, wanted[i].key);
        assert_non_null(found);
        assert_string_equal(found, wanted[i].value);
    }
    ort->ReleaseKeyValuePairs(pairs);
    fails(WEIR_ERR_BUSY, weir_onnxruntime_destroy(bridge));
    table->Free(table, p);
    ok(weir_onnxruntime_destroy(bridge));
    end(&f);
}

int main(void)
{
    int status = ort_open("onnxruntime");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_equal),           cmocka_unit_test(suspended_between_runs),
        cmocka_unit_test(out_of_a_pool_of_blocks),     cmocka_unit_test(who_takes_part),
        cmocka_unit_test(every_request_fails_in_turn), cmocka_unit_test(somebody_elses_allocator_stays),
        cmocka_unit_test(a_session_that_outlives_it),  cmocka_unit_test(the_environment_is_pinned),
        cmocka_unit_test(statistics_for_onnxruntime),
    };
    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
