/* Decisions as text: what is written is read again, what is no line is refused, and what a pool wrote can be replayed. */
#include "pool/bed.h"
#include "pool/decisions.h"

/* Lines ------------------------------------------------------------------------------------------------------------ */

static void round_trip(const wp_event *event)
{
    char line[WP_LINE], again[WP_LINE];
    wp_event read;
    size_t length = wp_event_write(event, line, sizeof line);
    assert_int_equal(length, strlen(line));
    if (!wp_event_read(line, &read)) {
        print_error("not read: %s\n", line);
        fail();
    }
    assert_int_equal(read.kind, event->kind);
    assert_int_equal(wp_event_write(&read, again, sizeof again), length);
    assert_string_equal(line, again);
}

static uint64_t some(uint64_t *random)
{
    uint64_t value = next_random(random);
    return value % 5 == 0 ? WP_FOREVER : value % 5 == 1 ? value : value % 1000;
}

static wp_event some_event(wp_event_kind kind, uint64_t *random)
{
    wp_event event = {
        .kind = kind,
        .now = some(random),
        .limits = {(uint32_t)some(random), some(random), some(random), some(random), some(random), some(random)},
        .devices = (uint32_t)some(random),
        .device = (uint32_t)some(random),
        .model = (uint32_t)some(random),
        .request = {(uint32_t)some(random), some(random), some(random), (int32_t)some(random)},
        .ticket = some(random),
        .state = (wp_state)(some(random) % WP_STATES),
        .ok = some(random) % 2,
        .bytes = some(random),
        .took = some(random),
        .variant = (uint32_t)some(random),
        .why = some(random)};
    wp_spec *spec = &event.spec;
    spec->variant_count = (uint32_t)(some(random) % WP_VARIANTS + 1);
    for (uint32_t i = 0; i < spec->variant_count; i++)
        spec->variants[i] = (wp_variant){some(random) / 2,
                                         some(random) / 2,
                                         (uint32_t)some(random),
                                         (int32_t)some(random),
                                         (uint32_t)some(random),
                                         some(random) % 2,
                                         (wp_step)(some(random) % WP_STEPS)};
    spec->step_count = (uint32_t)(some(random) % (WP_STEPS + 1));
    for (uint32_t i = 0; i < spec->step_count; i++)
        spec->steps[i] = (wp_step)(some(random) % WP_STEPS);
    for (int i = 0; i < WP_NAME - 1; i++)
        spec->name[i] = (char)(next_random(random) % 255 + 1);
    spec->device = (uint32_t)some(random);
    spec->stays = some(random);
    spec->pinned = some(random) % 2;
    spec->may_evict = some(random) % 2;
    spec->priority = (int32_t)some(random);
    spec->keep_alive = some(random);
    event.answer = (wp_answer){.ticket = some(random),
                               .cause = (wp_cause)(some(random) % WP_CAUSES),
                               .position = (uint32_t)some(random),
                               .expected = some(random),
                               .need = some(random),
                               .limit = some(random),
                               .fits = some(random),
                               .layers = (int32_t)some(random),
                               .until = some(random)};
    return event;
}

static void what_is_written_is_read(void **state)
{
    uint64_t random = 1;
    (void)state;
    for (int i = 0; i < 300; i++)
        for (int kind = 0; kind < WP_EVENT_KINDS; kind++) {
            wp_event event = some_event((wp_event_kind)kind, &random);
            round_trip(&event);
        }
}

static void a_line_is_as_the_header_says(void **state)
{
    wp_event event;
    char line[WP_LINE];
    (void)state;
    assert_true(wp_event_read("ceiling t=17 device=0 bytes=1073741824\n", &event));
    assert_int_equal(event.kind, WP_EVENT_CEILING);
    assert_int_equal(event.now, 17);
    assert_int_equal(event.bytes, 1 << 30);
    event = (wp_event){.kind = WP_EVENT_ASK, .now = 20, .request = {1, 4096, WP_FOREVER, -2}, .answer.ticket = 7};
    (void)wp_event_write(&event, line, sizeof line);
    assert_non_null(strstr(line, "ask t=20 model=1 bytes=4096 deadline=forever priority=-2 ticket=7 cause=granted"));
}

static void what_is_no_line_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "ceiling",
                                      "ceiling t=17 device=0",
                                      "ceiling t=17 device=0 bytes=",
                                      "ceiling t=17 device=0 bites=1",
                                      "ceiling t=17 device=0 bytes=1 more=2",
                                      "ceiling t=17  device=0 bytes=1",
                                      "ceiling device=0 t=17 bytes=1",
                                      "ceiling t=17 device=0 bytes=18446744073709551616",
                                      "ceiling t=17 device=4294967296 bytes=1",
                                      "ceiling t=17 device=0 bytes=-1",
                                      "ceiling t=17 device=0 bytes=1x",
                                      "> nothing t=1",
                                      "done t=1",
                                      "want t=1 model=0 state=gone ok=1",
                                      "# a comment"};
    wp_event event;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (wp_event_read(bad[i], &event)) {
            print_error("read: %s\n", bad[i]);
            fail();
        }
}

/* Cut anywhere, and with a byte changed anywhere: refused, or another line that can be written. */
static void damaged_lines(void **state)
{
    uint64_t random = 5;
    (void)state;
    for (int i = 0; i < 2000; i++) {
        wp_event event = some_event((wp_event_kind)(i % WP_EVENT_KINDS), &random), read;
        char line[WP_LINE];
        size_t length = wp_event_write(&event, line, sizeof line);
        line[next_random(&random) % length] = (char)(next_random(&random) % 127 + 1);
        if (i % 2)
            line[next_random(&random) % length] = '\0';
        if (wp_event_read(line, &read))
            round_trip(&read);
    }
}

/* A pool's --------------------------------------------------------------------------------------------------------- */

static size_t actions, inputs;

/* Gives the machine each input again, and compares its answers with what stands there. */
static void replay(const char *text)
{
    wp_admission *machine = NULL;
    bool acts = false; /* the machine has more actions, perhaps */
    wp_event event, done;
    wp_action action;
    char line[WP_LINE];
    for (const char *at = text, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_true((size_t)(end - at) < sizeof line);
        snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
        char again[WP_LINE];
        if (!wp_event_read(line, &event)) {
            print_error("not read: %s\n", line);
            fail();
        }
        if (event.kind < WP_EVENT_INPUTS) {
            assert_false(acts && wp_take(machine, &done, &action));
            wp_apply(&machine, &event);
            done = event;
            acts = true;
            inputs++;
        } else {
            assert_true(wp_take(machine, &done, &action));
            actions++;
        }
        (void)wp_event_write(&done, again, sizeof again);
        assert_string_equal(again, line);
    }
    assert_false(acts && wp_take(machine, &done, &action));
    wp_admission_destroy(machine);
}

typedef struct worker {
    pthread_t thread;
    bed *b;
    uint64_t random;
} worker;

static void *work(void *user)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    worker *w = user;
    for (int i = 0; i < 25; i++) {
        weir_pool_request request = request_of(names[next_random(&w->random) % 4]);
        weir_lease *l;
        request.bytes = next_random(&w->random) % 3 * MIB;
        request.wait = next_random(&w->random) % 4 ? 0 : SECOND / 1000;
        if (weir_pool_acquire(w->b->pool, &request, NULL, &l) != WEIR_OK)
            continue;
        infer_in(l);
        weir_lease_release(l);
    }
    return NULL;
}

static void what_a_pool_wrote_is_replayed(void **state)
{
    enum { THREADS = 4 };
    static const char *const names[] = {"a", "b", "c", "d"};
    bed b;
    worker workers[THREADS];
    (void)state;
    make_bed(&b, 10 * MIB, NULL);
    for (uint64_t i = 0; i < 4; i++) {
        weir_pool_spec spec = spec_of(names[i], (3 + i) * MIB);
        spec.engine = i % 2 ? "pool-double" : "pool-plain";
        spec.evict_cost = i % 2 ? SECOND : 0;
        spec.slots = 2;
        add_spec(&b, spec);
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.b = &b, .random = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    end_pool(&b);
    check_empty(b.runtime);
    ok(weir_runtime_destroy(b.runtime));
    assert_true(strncmp(b.lines, "begin queue=512 queue_bytes=forever longest=60000000000 ", 55) == 0);
    replay(b.lines);
    assert_true(inputs > 200 && actions > 20);
    free(b.lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),       cmocka_unit_test(a_line_is_as_the_header_says),
        cmocka_unit_test(what_is_no_line_is_refused),    cmocka_unit_test(damaged_lines),
        cmocka_unit_test(what_a_pool_wrote_is_replayed),
    };
    register_engines();
    return cmocka_run_group_tests_name("pool-decisions", tests, NULL, NULL);
}
