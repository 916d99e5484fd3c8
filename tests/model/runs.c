/* Requests on a model that moves: answered or failed once, whatever is held, streamed or ordered meanwhile. */
#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/model.h>

/* Held, streamed, ordered ------------------------------------------------------------------------------------------ */

static void outputs_stay_across_a_move(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_outputs held, out;
    ok(weir_model_info(model, &info));
    ok(infer_once(model, &held));
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, -1);
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "rocm");
    assert_int_equal(b.alive, 2);
    assert_string_equal(made_on(&held), "cuda");
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    ok(weir_model_metrics(model, &metrics));
    assert_int_equal(metrics.runs, 2); /* one on each, though the first is not unloaded yet */
    assert_int_equal(metrics.sessions, 2 * SESSIONS);
    fails(WEIR_ERR_BUSY, weir_model_destroy(model));
    detail_names("2 results");
    weir_model_release_outputs(model, &out);
    assert_int_equal(b.alive, 2);
    weir_model_release_outputs(model, &held);
    assert_int_equal(b.alive, 1); /* the one who held it last has unloaded it */
    weir_model_release_outputs(model, &held);
    assert_int_equal(b.releases, 2); /* once each */
    assert_string_equal(info.provider, "cuda");
    assert_string_equal(provider_of(model), "rocm");
    ok(weir_model_metrics(model, &metrics));
    assert_int_equal(metrics.runs, 2);
    assert_int_equal(metrics.sessions, SESSIONS); /* those of the first went with it; what failed there has failed */
    assert_int_equal(metrics.sessions_failed, 2 * SESSIONS_FAILED);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void *release_it(void *user)
{
    request *it = user;
    weir_model_release_outputs(it->model, &it->out);
    return NULL;
}

/* What an instance has counted is the model's, also in the moment in which it goes. */
static void metrics_never_go_back(void **state)
{
    (void)state;
    books before = take_books();
    request it = {.model = opened_on("cuda rocm cpu")};
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    gate going = GATE;
    pthread_t thread;
    ok(infer_once(it.model, &it.out));
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, -1);
    infer_and_release(it.model);
    b.inside_metrics = &going;
    assert_int_equal(pthread_create(&thread, NULL, release_it, &it), 0);
    wait_for(&going);
    ok(weir_model_metrics(it.model, &metrics));
    assert_int_equal(metrics.runs, 2);
    open_gate(&going);
    pthread_join(thread, NULL);
    ok(weir_model_metrics(it.model, &metrics));
    assert_int_equal(metrics.runs, 2);
    assert_int_equal(b.alive, 1);
    ok(weir_model_destroy(it.model));
    check_books(&before);
}

typedef struct heard {
    int pieces;
    char from[200];
} heard;

static bool hear(const weir_piece *piece, void *user)
{
    heard *it = user;
    assert_int_equal(piece->index, it->pieces);
    it->pieces++;
    snprintf(it->from, sizeof it->from, "%s", piece->text);
    return true;
}

static weir_status stream_once(weir_model *model, heard *it, weir_outputs *out)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    *out = WEIR_INIT(weir_outputs);
    *it = (heard){0};
    return model_infer_stream(model, &inference, hear, it, out);
}

static void what_was_handed_out_is_not_made_again(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    heard it;
    weir_outputs out;
    b.pieces_of_runs = 5;
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_OUT_OF_MEMORY, .times = 1, .pieces = 2};
    fails(WEIR_ERR_OUT_OF_MEMORY, stream_once(model, &it, &out));
    assert_int_equal(it.pieces, 2);
    assert_int_equal(b.runs, 1);
    /* Nor where the device is lost; but the next request goes elsewhere at once. */
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, .times = 1, .pieces = 3};
    fails(WEIR_ERR_DEVICE_LOST, stream_once(model, &it, &out));
    assert_int_equal(it.pieces, 3);
    assert_int_equal(b.runs, 2);
    assert_int_equal(b.loads, 1);
    /* Before the first piece it is: what is heard is the one answer. */
    b.faults[0] = (fault_plan){"rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, .times = 1};
    ok(stream_once(model, &it, &out));
    assert_int_equal(it.pieces, 5);
    assert_string_equal(it.from, "cpu");
    assert_int_equal(b.runs, 4);
    weir_model_release_outputs(model, &out);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* The request that loses the instance says how, whoever moves the model. */
static void a_loss_is_told_as_it_was(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    heard it;
    weir_outputs out;
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, .times = 1, .pieces = 2};
    fails(WEIR_ERR_DEVICE_LOST, stream_once(model, &it, &out));
    assert_int_equal(b.loads, 1);
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "rocm");
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 2);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST);
    assert_string_equal(record.attempts[0].reason, "cuda would not run it");
    assert_int_equal(b.notice_count, 1);
    assert_non_null(strstr(b.notices[0], "(first-run): cuda would not run it"));
    weir_model_release_outputs(model, &out);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void inputs_on_a_device_stay_there(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    bool apart = b.device != b.host;
    weir_client *client = open_client(b.device, "inputs", 0, 0);
    weir_tensor input = {.struct_size = sizeof input,
                         .name = "x",
                         .type = WEIR_TYPE_U8,
                         .rank = 1,
                         .shape = {OUTPUT},
                         .bytes = OUTPUT,
                         .on_device = true};
    input.data = allocate(client, OUTPUT, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.inputs = &input;
    inference.input_count = 1;
    weir_outputs out = WEIR_INIT(weir_outputs);
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, -1);
    bed_fault("rocm", WEIR_STAGE_LATER_RUN, WEIR_ERR_UNSUPPORTED, -1);
    ok(weir_model_infer(model, &inference, &out)); /* rocm has the same runtime here */
    assert_string_equal(made_on(&out), "rocm");
    weir_model_release_outputs(model, &out);
    int loads = b.loads;
    check_status(weir_model_infer(model, &inference, &out), apart ? WEIR_ERR_UNSUPPORTED : WEIR_OK, "elsewhere",
                 __FILE__, __LINE__);
    assert_int_equal(b.loads, apart ? loads : loads + 1);
    if (apart) {
        infer_and_release(model); /* without them it can go */
        assert_string_equal(provider_of(model), "cpu");
        int runs = b.runs;
        fails(WEIR_ERR_INVALID, weir_model_infer(model, &inference, &out)); /* they are still where they were */
        detail_names("input x lies on");
        assert_int_equal(b.runs, runs);
    } else
        weir_model_release_outputs(model, &out);
    input.struct_size = offsetof(weir_tensor, on_device); /* a caller that does not know the member */
    ok(weir_model_infer(model, &inference, &out));
    weir_model_release_outputs(model, &out);
    inference.inputs = NULL; /* announced, and not there */
    fails(WEIR_ERR_INVALID, weir_model_infer(model, &inference, &out));
    ok(weir_model_destroy(model));
    input.struct_size = sizeof input;
    inference.inputs = &input;
    /* Nor does a request take them along that begins when the model has just lost its place. */
    heard it;
    model = opened_on("cuda cpu");
    b.pieces_of_runs = 1;
    memset(b.faults, 0, sizeof b.faults);
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, .times = 1, .pieces = 1};
    fails(WEIR_ERR_DEVICE_LOST, stream_once(model, &it, &out));
    check_status(weir_model_infer(model, &inference, &out), apart ? WEIR_ERR_INVALID : WEIR_OK, "after a loss",
                 __FILE__, __LINE__);
    if (!apart)
        weir_model_release_outputs(model, &out);
    ok(weir_free(client, input.data, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* A stream's work is done before the request is made where nobody knows the stream; where it is known it is left
 * alone. */
static void inputs_ordered_on_a_stream_are_waited_for(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda cpu");
    weir_stream stream;
    gate held = GATE;
    pthread_t opener;
    bool apart = b.device != b.host;
    ok(weir_stream_acquire(b.device, &stream));
    ok(weir_call(b.device, pass_gate, &held, stream));
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.stream = stream;
    weir_outputs out = WEIR_INIT(weir_outputs);
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, -1);
    if (apart)
        assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &held), 0);
    ok(weir_model_infer(model, &inference, &out));
    assert_int_equal(held.open, apart);
    assert_string_equal(made_on(&out), "cpu");
    if (apart)
        pthread_join(opener, NULL);
    else
        open_gate(&held);
    weir_model_release_outputs(model, &out);
    ok(weir_stream_release(stream));
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Where that cannot be, the request has failed as it first did. */
static void a_stream_that_cannot_be_waited_for(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda cpu");
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_inference inference = WEIR_INIT(weir_inference);
    ok(weir_stream_acquire(b.device, &inference.stream));
    ok(weir_stream_release(inference.stream));
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, 1);
    weir_status status = weir_model_infer(model, &inference, &out);
    if (b.device != b.host) {
        assert_int_equal(status, WEIR_ERR_UNSUPPORTED);
        detail_names("cuda would not run it");
        detail_names("stream is to be waited for");
        assert_int_equal(b.loads, 1); /* nothing was loaded for it in vain */
        assert_int_equal(record_of(model).attempt_count, 1);
        assert_int_equal(b.runs, 1);
        assert_string_equal(provider_of(model), "cuda");
    } else {
        ok(status);
        weir_model_release_outputs(model, &out);
    }
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* The end of it ---------------------------------------------------------------------------------------------------- */

/* A model that waits for memory may be asked for ever: its record does not grow with that. */
static void the_record_of_a_model_adrift_ends(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda rocm cpu");
    weir_outputs out;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, -1);
    bed_fault("rocm", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    bed_fault("cpu", WEIR_STAGE_LOAD, WEIR_ERR_OUT_OF_MEMORY, 50);
    fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
    for (int i = 1; i < 50; i++) {
        fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
        detail_names("cpu would not load it");
        detail_names("rocm would not load it");
        assert_int_equal(record_of(model).attempt_count, 4);
    }
    infer_and_release(model);
    weir_record now = record_of(model);
    assert_int_equal(now.attempt_count, 5);
    check_attempt(&now, 4, "cpu", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    ok(weir_model_destroy(model));
}

static void bad_arguments(void **state)
{
    (void)state;
    wanted w;
    weir_model *model = opened_on("cuda"), *other;
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = {0};
    weir_record record = WEIR_INIT(weir_record);
    fails(WEIR_ERR_INVALID, weir_model_infer(model, &inference, &out)); /* it could not be given back */
    fails(WEIR_ERR_INVALID, weir_model_record(model, NULL));
    fails(WEIR_ERR_INVALID, weir_model_record(NULL, &record));
    record.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_model_record(model, &record));
    fails(WEIR_ERR_INVALID, weir_model_create_chosen(NULL, NULL, &other));
    fails(WEIR_ERR_INVALID, weir_model_create_chosen(wants(&w, "cuda"), NULL, NULL));
    w.manifest.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_model_create_chosen(&w.manifest, NULL, &other));
    (void)wants(&w, "cuda");
    w.manifest.model_file = "/there/is/none.onnx";
    fails(WEIR_ERR_NOT_FOUND, weir_model_create_chosen(&w.manifest, NULL, &other));
    assert_null(other);
    ok(weir_model_destroy(model));
    assert_string_equal(weir_name_of(WEIR_NAMES_STAGE, WEIR_STAGE_LATER_RUN), "later-run");
    assert_string_equal(weir_name_of(WEIR_NAMES_STAGE, WEIR_STAGE_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(outputs_stay_across_a_move),
        test(metrics_never_go_back),
        test(what_was_handed_out_is_not_made_again),
        test(a_loss_is_told_as_it_was),
        test(inputs_on_a_device_stay_there),
        test(inputs_ordered_on_a_stream_are_waited_for),
        test(a_stream_that_cannot_be_waited_for),
        test(the_record_of_a_model_adrift_ends),
        test(bad_arguments),
    };
    return cmocka_run_group_tests_name("runs", tests, bed_begin, bed_end);
}
