/* A pool under traffic in virtual time: the driver's books, other pools' policies on cases worked out by hand, and logs of
 * decisions that are replayed. */
#include "sim/pool/traffic.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define SECOND TRAFFIC_SECOND
#define GIB    (UINT64_C(1) << 30)

static char path[] = "/tmp/weir-pool-XXXXXX";

static int make(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file >= 0 ? close(file) : -1;
}

static int destroy(void **state)
{
    (void)state;
    return unlink(path);
}

static void put(const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static const drive_options usual = {.limits = {.queue = 512,
                                               .queue_bytes = WP_FOREVER,
                                               .longest = 120 * TRAFFIC_SECOND,
                                               .retry = 10 * TRAFFIC_SECOND,
                                               .passing = 10 * TRAFFIC_SECOND},
                                    .budget = 10 * GIB,
                                    .most_models = 1,
                                    .seed = 1};

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static const char three[] = "model name=a bytes=6GiB load=1s keep-alive=5s\n"
                            "model name=b bytes=6GiB load=1s keep-alive=100s\n"
                            "model name=c bytes=3GiB load=1s slots=1\n"
                            "model name=d bytes=11GiB load=1s\n";

static drive_result run(drive_options o, const char *models_text, const char *requests)
{
    traffic_models models;
    drive_result r;
    put(models_text);
    assert_int_equal(traffic_models_read(path, &models), WEIR_OK);
    put(requests);
    o.models = &models;
    assert_int_equal(traffic_open(path, &models, &o.requests), WEIR_OK);
    weir_status status = drive(&o, &r);
    if (status != WEIR_OK)
        fail_msg("%s", weir_detail());
    traffic_close(o.requests);
    traffic_models_free(&models);
    return r;
}

static drive_result run_of(const policy *who, const char *requests)
{
    drive_options o = usual;
    o.policy = who;
    drive_result r = run(o, three, requests);
    assert_string_equal(r.first, "");
    return r;
}

/* All: a comes at 1 s, c at 11 s.
 *   lru-bytes   b throws a out, and a both others, c first though b alone would do: 4 loads, 3 unloads
 *   lru-count   with one at a time: each throws the one before out
 *   size        b throws a out, and a throws b out
 *   keep-alive  a goes by itself 5 s after its end; b comes beside c; a throws b out, whose keep-alive ends first */
static void others_throw_out_whom_they_say(void **state)
{
    (void)state;
    static const char requests[] = "request at=0s model=a time=1s\nrequest at=10s model=c time=1s\n"
                                   "request at=20s model=b time=1s\nrequest at=30s model=a time=1s\n";
    static const struct {
        const policy *who;
        uint64_t unloads, evictions, waits_ms;
    } all[] = {{&policy_lru_bytes, 3, 3, 4020},
               {&policy_lru_count, 3, 3, 4030},
               {&policy_size, 2, 2, 4020},
               {&policy_keep_alive, 2, 1, 4010}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        drive_result r = run_of(all[i].who, requests);
        assert_int_equal(r.done, 4);
        assert_int_equal(r.loads, 4);
        assert_int_equal(r.unloads, all[i].unloads);
        assert_int_equal(r.evictions, all[i].evictions);
        assert_int_equal(r.wait_sum, all[i].waits_ms * 1000000);
        assert_int_equal(r.reload, 4 * SECOND);
        assert_int_equal(r.coming, 4 * SECOND);
        assert_int_equal(r.bytes_in, 21 * GIB);
        assert_true(r.most_taken == 9 * GIB || (all[i].who == &policy_lru_count && r.most_taken == 6 * GIB));
    }
}

/* Two loads that overlap take twice as long each; Ollama's come one after the other. */
static void loads_share_the_link(void **state)
{
    (void)state;
    static const char both[] = "request at=0s model=a time=1s\nrequest at=0s model=c time=1s\n";
    drive_result r = run_of(&policy_lru_bytes, both);
    assert_int_equal(r.wait_sum, 4 * SECOND);
    assert_int_equal(r.reload, 2 * SECOND);
    assert_int_equal(r.coming, 4 * SECOND);
    r = run_of(&policy_keep_alive, both);
    assert_int_equal(r.wait_sum, 3 * SECOND);
    assert_int_equal(r.coming, 2 * SECOND);
    /* The second begins when half of the first is through: 0.5 s alone, 1 s together, 0.5 s alone. */
    r = run_of(&policy_lru_bytes, "request at=0s model=a time=1s\nrequest at=500ms model=c time=1s\n");
    assert_int_equal(r.wait_sum, 3 * SECOND);
    assert_int_equal(r.coming, 3 * SECOND);
}

/* The head waits for room and holds the third up, though c is there; one that waits for a slot holds nobody up. */
static void requests_are_served_in_their_order(void **state)
{
    (void)state;
    drive_result r = run_of(&policy_lru_bytes, "request at=0s model=c time=1s\nrequest at=0s model=a time=10s\n"
                                               "request at=3s model=b time=1s\nrequest at=4s model=c time=1s\n");
    /* c and a are there at 2 s; a is busy until 12 s. b comes at 13.01 s, and with it the second c. It was thrown out. */
    assert_int_equal(r.done, 4);
    assert_int_equal(r.unloads, 2);
    assert_int_equal(r.loads, 4);
    r = run_of(&policy_lru_bytes,
               "request at=0s model=c time=10s\nrequest at=0s model=c time=1s\nrequest at=0s model=a time=1s\n");
    assert_int_equal(r.wait_sum, 2 * SECOND + 12 * SECOND + 2 * SECOND); /* c's second: at 2 + 10 s */
}

static void refusals_have_their_cause(void **state)
{
    (void)state;
    drive_result r = run_of(&policy_size, "request at=0s model=d time=1s\nrequest at=1s model=a time=1s bytes=5GiB\n");
    assert_int_equal(r.refused[WP_NEVER_FITS], 2);
    assert_int_equal(r.loads, 0);
    drive_options o = usual;
    o.policy = &policy_lru_bytes;
    o.limits.queue = 1;
    o.limits.longest = 5 * SECOND;
    r = run(o, three, "request at=0s model=a time=1h\nrequest at=2s model=b time=1s\nrequest at=3s model=b time=1s\n");
    assert_int_equal(r.refused[WP_TOO_LATE], 1);
    assert_int_equal(r.refused[WP_QUEUE_FULL], 1);
    assert_int_equal(r.done, 1);
    r = run(o, "model name=f bytes=1GiB load=1s fails=1\n", "request at=0s model=f time=1s\n");
    assert_int_equal(r.refused[WP_LOAD_FAILED], 1);
    assert_int_equal(r.failures, 1);
    assert_int_equal(r.violations, 0);
}

/* ---- the driver finds what a policy does wrong ------------------------------------------------------------------- */

static bool planted;

static void apply_generously(void *it, wp_event *event)
{
    if (event->kind == WP_EVENT_CEILING)
        event->bytes *= 2;
    policy_lru_bytes.apply(it, event);
}

static bool take_forgetfully(void *it, wp_event *event, wp_action *action)
{
    bool got = policy_lru_bytes.take(it, event, action);
    if (!got || planted || action->kind != WP_GRANT)
        return got;
    planted = true;
    return policy_lru_bytes.take(it, event, action);
}

static bool take_rashly(void *it, wp_event *event, wp_action *action)
{
    bool got = policy_lru_bytes.take(it, event, action);
    if (got && action->kind == WP_GRANT && !planted) {
        planted = true;
        action->kind = WP_UNLOAD;
    }
    return got;
}

static uint64_t wake_always(const void *it)
{
    (void)it;
    return 0;
}

static void mistakes_are_found(void **state)
{
    (void)state;
    static const char requests[] = "request at=0s model=a time=9s\nrequest at=1s model=b time=9s\n";
    drive_options o = usual;
    policy bad = policy_lru_bytes;
    o.policy = &bad;
    bad.apply = apply_generously;
    drive_result r = run(o, three, requests);
    assert_true(r.violations > 0 && r.over == 2 * GIB);
    assert_non_null(strstr(r.first, "whose ceiling is"));
    r = run(o, "model name=a bytes=8GiB resident=1GiB load=1s\nmodel name=b bytes=8GiB resident=1GiB load=1s\n",
            "request at=0s model=a time=9s\nrequest at=0s model=b time=9s\n");
    assert_true(r.over == 6 * GIB); /* while they are loaded */
    bad = policy_lru_bytes;
    bad.take = take_forgetfully;
    planted = false;
    r = run(o, three, "request at=0s model=a time=1s\n");
    assert_non_null(strstr(r.first, "1 requests wait, and nothing will happen"));
    bad.take = take_rashly;
    planted = false;
    r = run(o, three, "request at=0s model=a time=1s\n");
    assert_true(r.violations > 0);
    bad = policy_lru_bytes;
    bad.wake = wake_always;
    put(three);
    traffic_models models;
    assert_int_equal(traffic_models_read(path, &models), WEIR_OK);
    put("request at=5s model=a time=1s\n");
    o.models = &models;
    assert_int_equal(traffic_open(path, &models, &o.requests), WEIR_OK);
    assert_int_equal(drive(&o, &r), WEIR_ERR_SYSTEM);
    assert_non_null(strstr(weir_detail(), "again and again"));
    traffic_close(o.requests);
    traffic_models_free(&models);
}

/* ---- everything under everything --------------------------------------------------------------------------------- */

static drive_result run_kind(const policy *who, traffic_kind kind, uint64_t gap, const traffic_models *models,
                             FILE *log)
{
    drive_options o = usual;
    traffic_options t = {.kind = kind, .seed = 7, .length = TRAFFIC_DAY / 24, .gap = gap, .budget = 48 * GIB};
    drive_result r;
    o.policy = who;
    o.models = models;
    o.requests = traffic_generate(&t, models);
    o.budget = t.budget;
    o.most_models = 4;
    o.limits.host = who->suspends ? 64 * GIB : 0;
    o.log = log;
    if (drive(&o, &r) != WEIR_OK)
        fail_msg("%s", weir_detail());
    traffic_close(o.requests);
    return r;
}

/* Each request ends once, no byte is over the ceiling, and time never goes back: else there are violations. */
static void nothing_is_lost(void **state)
{
    (void)state;
    traffic_models models;
    assert_int_equal(traffic_models_default(&models), WEIR_OK);
    models.list[6].fails = 5;
    models.list[1].spec.pinned = true;
    for (size_t p = 0; p < policy_count; p++)
        for (int kind = 0; kind < TRAFFIC_KINDS; kind++)
            for (uint64_t gap = SECOND; gap <= 25 * SECOND; gap *= 5) {
                drive_result r = run_kind(policies[p], (traffic_kind)kind, gap, &models, NULL);
                if (r.violations > 0)
                    fail_msg("%s, %s, %llu s: %s", policies[p]->name, traffic_kind_name((traffic_kind)kind),
                             (unsigned long long)(gap / SECOND), r.first);
                assert_int_equal(r.requests, r.done + drive_refusals(&r));
                assert_true(r.done > 0 && r.loads > 0 && r.over == 0 && r.most_taken <= 48 * GIB);
                assert_true(r.coming >= r.reload && drive_wait(&r, 1) == r.wait_most);
                assert_true(drive_wait(&r, 0.5) <= drive_wait(&r, 0.99));
                assert_true(policies[p]->suspends || r.suspends + r.resumes + r.bytes_out == 0);
            }
    traffic_models_free(&models);
}

static void waits_are_counted_closely(void **state)
{
    (void)state;
    drive_result r = run_of(&policy_lru_bytes, "request at=0s model=a time=1s\nrequest at=10s model=a time=1s\n"
                                               "request at=20s model=a time=1s\nrequest at=30s model=c time=1s\n");
    assert_int_equal(r.wait_most, SECOND);
    assert_int_equal(drive_wait(&r, 0.5), 0);
    assert_true(drive_wait(&r, 0.75) >= SECOND * 98 / 100 && drive_wait(&r, 0.75) <= SECOND);
    assert_int_equal(drive_wait(&r, 1), SECOND);
}

/* ---- replays ----------------------------------------------------------------------------------------------------- */

static void record(const policy *who)
{
    traffic_models models;
    assert_int_equal(traffic_models_default(&models), WEIR_OK);
    models.list[6].fails = 5;
    FILE *log = fopen(path, "we");
    assert_non_null(log);
    drive_result r = run_kind(who, TRAFFIC_MIX, 2 * SECOND, &models, log);
    assert_int_equal(r.violations, 0);
    assert_int_equal(fclose(log), 0);
    traffic_models_free(&models);
}

static void a_replay_decides_the_same(void **state)
{
    (void)state;
    const policy *const both[] = {&policy_weir, &policy_weir_suspend};
    for (int i = 0; i < 2; i++) {
        replay_result r;
        record(both[i]);
        if (replay_decisions(path, NULL, NULL, &r) != WEIR_OK)
            fail_msg("%s", weir_detail());
        if (r.differs)
            fail_msg("line %llu: recorded \"%s\", decided \"%s\"", (unsigned long long)r.line, r.recorded, r.decided);
        assert_true(r.events > 1000 && r.actions > 100);
        assert_int_equal(r.lines, r.events + r.actions);
    }
}

static char *text_of_file(void)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long bytes = ftell(file);
    char *text = calloc(1, (size_t)bytes + 1);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)bytes, file), bytes);
    fclose(file);
    return text;
}

static uint64_t line_of(const char *text, const char *at)
{
    uint64_t line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

/* One answer or decision is another one, is left out, or is one too many. */
static void a_replay_finds_a_changed_decision(void **state)
{
    (void)state;
    replay_result r;
    record(&policy_weir);
    char *text = text_of_file();
    char *ask = strstr(text + strlen(text) / 2, "\nask "), *answer = strstr(ask, " position=") + strlen(" position=");
    uint64_t asked = line_of(text, ask + 1);
    char was = *answer;
    *answer = was == '1' ? '2' : '1';
    put(text);
    *answer = was;
    assert_int_equal(replay_decisions(path, NULL, NULL, &r), WEIR_OK);
    assert_true(r.differs && r.line == asked);
    char *middle = strstr(text + strlen(text) / 2, "\n> unload model="), *model = middle + strlen("\n> unload model=");
    uint64_t line = line_of(text, middle + 1);
    char kept = *model;
    *model = kept == '1' ? '2' : '1';
    put(text);
    assert_int_equal(replay_decisions(path, NULL, NULL, &r), WEIR_OK);
    assert_true(r.differs && r.line == line);
    assert_non_null(strstr(r.recorded, "> unload"));
    assert_non_null(strstr(r.decided, "> unload"));
    *model = kept;
    char *end = strchr(middle + 1, '\n'), *other;
    assert_true(asprintf(&other, "%.*s%s", (int)(middle - text), text, end) > 0);
    put(other);
    free(other);
    assert_int_equal(replay_decisions(path, NULL, NULL, &r), WEIR_OK);
    assert_true(r.differs && r.line == line);
    assert_non_null(strstr(r.decided, "> unload"));
    assert_true(asprintf(&other, "%.*s%s", (int)(end - text), text, middle) > 0); /* twice */
    put(other);
    free(other);
    assert_int_equal(replay_decisions(path, NULL, NULL, &r), WEIR_OK);
    assert_true(r.differs && r.line == line + 1);
    free(text);
}

static void bad_logs_are_refused_by_line(void **state)
{
    (void)state;
    static const char begin[] =
        "begin queue=1 queue_bytes=1 longest=1 retry=1 host=0 passing=0 devices=1\nceiling t=0 device=0 bytes=1\n";
    static const struct {
        const char *more, *says;
    } bad[] = {{"fly\n", "line 3"},
               {"ask t=0 model=0\n", "line 3"},
               {"ceiling t=0 device=1 bytes=1\n", "line 3"},
               {"# so\n> load model=0 variant=0 bytes=1 why=1\n", ""},
               {"begin queue=1 queue_bytes=1 longest=1 retry=1 host=0 passing=0 devices=1\n", "line 3"}};
    replay_result r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s", begin, bad[i].more);
        put(text);
        weir_status status = replay_decisions(path, NULL, NULL, &r);
        assert_int_equal(status, *bad[i].says ? WEIR_ERR_INVALID : WEIR_OK);
        assert_true(*bad[i].says ? strstr(weir_detail(), bad[i].says) != NULL : r.differs);
    }
    put("");
    assert_int_equal(replay_decisions(path, NULL, NULL, &r), WEIR_ERR_INVALID);
    put("ceiling t=0 device=0 bytes=1\n");
    assert_int_equal(replay_decisions(path, NULL, NULL, &r), WEIR_ERR_INVALID);
    assert_int_equal(replay_decisions("/nowhere/at/all", NULL, NULL, &r), WEIR_ERR_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_throw_out_whom_they_say),
        cmocka_unit_test(loads_share_the_link),
        cmocka_unit_test(requests_are_served_in_their_order),
        cmocka_unit_test(refusals_have_their_cause),
        cmocka_unit_test(mistakes_are_found),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(waits_are_counted_closely),
        cmocka_unit_test(a_replay_decides_the_same),
        cmocka_unit_test(a_replay_finds_a_changed_decision),
        cmocka_unit_test(bad_logs_are_refused_by_line),
    };
    return cmocka_run_group_tests_name("pool drive", tests, make, destroy);
}
