/* Prepared calls: the request is the caller's no longer, its inputs still are, and results stay where they are. */
#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/model.h>

static weir_model_call *prepare(weir_model *model, const weir_inference *inference)
{
    weir_model_call *call;
    ok(weir_model_call_create(model, inference, NULL, &call));
    return call;
}

static weir_model_call *prepare_plain(weir_model *model)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.id = REQUEST;
    return prepare(model, &inference);
}

static weir_model_call_results run_it(weir_model_call *call)
{
    weir_model_call_results results = WEIR_INIT(weir_model_call_results);
    ok(weir_model_call_run(call, &results));
    return results;
}

static void check_result(const weir_model_call_results *results, size_t bytes, int content, uint64_t layout)
{
    assert_int_equal(results->count, 1);
    assert_int_equal(results->layout, layout);
    const weir_tensor *one = results->tensors;
    assert_int_equal(one->bytes, bytes);
    assert_int_equal(one->shape[0], bytes);
    assert_false(one->on_device);
    const unsigned char *data = one->data;
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(data[i], content);
}

static void results_stay_where_they_are(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda");
    weir_model_call *call = prepare_plain(model);
    b.on_host = true;
    weir_model_call_results first = run_it(call), second;
    check_result(&first, OUTPUT, 1, 1);
    assert_string_equal(first.tensors->name, "cuda");
    const void *data = first.tensors->data;
    for (int i = 2; i < 6; i++) {
        second = run_it(call);
        check_result(&second, OUTPUT, i, 1);
        assert_ptr_equal(second.tensors->data, data);
        assert_int_equal(b.releases, i); /* the engine has its own back at once */
    }
    fails(WEIR_ERR_BUSY, weir_model_destroy(model));
    assert_non_null(strstr(weir_detail(), "1 calls of it are prepared"));
    ok(weir_model_call_destroy(call));
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Several of one model keep out of each other's way. */
static void each_call_has_its_own_results(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda");
    weir_model_call *calls[3];
    weir_model_call_results results[3];
    b.on_host = true;
    for (int i = 0; i < 3; i++) {
        calls[i] = prepare_plain(model);
        results[i] = run_it(calls[i]);
    }
    for (int i = 0; i < 3; i++)
        check_result(&results[i], OUTPUT, i + 1, 1);
    ok(weir_model_call_destroy(calls[1]));
    results[2] = run_it(calls[2]);
    check_result(&results[0], OUTPUT, 1, 1);
    check_result(&results[2], OUTPUT, 4, 1);
    ok(weir_model_call_destroy(calls[0]));
    fails(WEIR_ERR_BUSY, weir_model_destroy(model));
    ok(weir_model_call_destroy(calls[2]));
    ok(weir_model_destroy(model));
}

/* Where an older result lay stays readable; a smaller one needs no other place. */
static void results_that_grow_move(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda");
    weir_model_call *call = prepare_plain(model);
    b.on_host = true;
    weir_model_call_results results = run_it(call);
    const unsigned char *small = results.tensors->data;
    b.output = 2 * OUTPUT + 1;
    results = run_it(call);
    check_result(&results, b.output, 2, 2);
    const void *large = results.tensors->data;
    assert_ptr_not_equal(large, small);
    assert_int_equal(small[OUTPUT - 1], 1);
    b.output = 0;
    results = run_it(call);
    check_result(&results, OUTPUT, 3, 3);
    assert_ptr_equal(results.tensors->data, large);
    b.output = 2 * OUTPUT + 1;
    results = run_it(call);
    check_result(&results, b.output, 4, 4);
    assert_ptr_equal(results.tensors->data, large);
    ok(weir_model_call_destroy(call));
    ok(weir_model_destroy(model));
}

enum { ROOMS = 4 };
typedef struct rooms {
    void *memory[ROOMS];
    size_t bytes[ROOMS], count;
    bool none;
} rooms;

static void *give_room(size_t index, size_t bytes, void *user)
{
    rooms *its = user;
    assert_int_equal(index, 0);
    assert_true(its->count < ROOMS);
    if (its->none)
        return NULL;
    its->bytes[its->count] = bytes;
    its->memory[its->count] = malloc(bytes);
    return its->memory[its->count++];
}

/* It is asked for when there is need of more; without any, the run fails and the result before stays. */
static void results_lie_in_the_callers_memory(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda");
    rooms its = {.count = 0};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_model_call_options options = WEIR_INIT(weir_model_call_options);
    weir_model_call *call;
    options.room = give_room;
    options.user = &its;
    ok(weir_model_call_create(model, &inference, &options, &call));
    assert_int_equal(its.count, 0);
    b.on_host = true;
    (void)run_it(call);
    weir_model_call_results results = run_it(call);
    assert_int_equal(its.count, 1);
    assert_true(its.bytes[0] >= OUTPUT);
    assert_ptr_equal(results.tensors->data, its.memory[0]);
    b.output = its.bytes[0] + 1;
    its.none = true;
    fails(WEIR_ERR_SYSTEM, weir_model_call_run(call, &results));
    assert_int_equal(b.releases, 3);
    check_result(&results, OUTPUT, 2, 1);
    its.none = false;
    results = run_it(call);
    check_result(&results, b.output, 4, 2);
    assert_int_equal(its.count, 2);
    assert_int_equal(its.bytes[1], 2 * its.bytes[0]);
    assert_ptr_equal(results.tensors->data, its.memory[1]);
    ok(weir_model_call_destroy(call));
    ok(weir_model_destroy(model));
    check_result(&(weir_model_call_results){.tensors = &(weir_tensor){.bytes = 1, .shape = {1}, .data = its.memory[1]},
                                            .count = 1},
                 1, 4, 0);
    free(its.memory[0]);
    free(its.memory[1]);
}

static void the_request_is_copied_and_its_inputs_are_read(void **state)
{
    (void)state;
    enum { LATER = 8 };
    char name[] = "text", other[] = "more", key[] = "top", value[] = "40", first[] = "one", second[] = "two";
    struct {
        weir_tensor tensor;
        char later[LATER];
    } inputs[2] = {{.tensor = {.struct_size = sizeof inputs[0], .name = name, .type = WEIR_TYPE_TEXT, .rank = 1}},
                   {.tensor = {.struct_size = sizeof inputs[0], .name = other, .type = WEIR_TYPE_TEXT, .rank = 1}}};
    inputs[0].tensor.data = first, inputs[1].tensor.data = second;
    inputs[0].tensor.bytes = inputs[1].tensor.bytes = 3;
    inputs[0].tensor.shape[0] = inputs[1].tensor.shape[0] = 3;
    weir_setting setting = {key, value};
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.inputs = &inputs[0].tensor;
    inference.input_count = 2;
    inference.settings = &setting;
    inference.setting_count = 1;
    weir_model *model = opened_on("cuda");
    weir_model_call *call = prepare(model, &inference);
    memset(name, 'x', 4), memset(other, 'x', 4), memset(key, 'x', 3), memset(value, 'x', 2);
    memset(inputs, 0, sizeof inputs);
    memset(&setting, 0, sizeof setting);
    b.on_host = true;
    (void)run_it(call);
    assert_string_equal(b.asked, "text:one more:two top=40 ");
    second[0] = 's', second[1] = 'i', second[2] = 'x';
    (void)run_it(call);
    assert_string_equal(b.asked, "text:one more:six top=40 ");
    ok(weir_model_call_destroy(call));
    ok(weir_model_destroy(model));
}

static void a_run_that_fails_leaves_the_results(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda");
    weir_model_call *call = prepare_plain(model);
    b.on_host = true;
    weir_model_call_results results = run_it(call), kept = results;
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_INVALID, 1);
    fails(WEIR_ERR_INVALID, weir_model_call_run(call, &results));
    assert_memory_equal(&results, &kept, sizeof kept);
    check_result(&results, OUTPUT, 1, 1);
    results = run_it(call);
    check_result(&results, OUTPUT, 2, 1);
    assert_ptr_equal(results.tensors->data, kept.tensors->data);
    ok(weir_model_call_destroy(call));
    ok(weir_model_destroy(model));
}

/* They are the engine's, and count as results until the next run begins. */
static void results_on_a_device_are_held(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda");
    weir_model_call *call = prepare_plain(model);
    weir_model_call_results results = run_it(call);
    assert_true(results.tensors->on_device);
    assert_int_equal(b.releases, 0);
    results = run_it(call);
    assert_int_equal(b.releases, 1);
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_INVALID, 1);
    fails(WEIR_ERR_INVALID, weir_model_call_run(call, &results));
    assert_int_equal(b.releases, 2);
    b.on_host = true;
    results = run_it(call);
    assert_int_equal(b.releases, 3);
    check_result(&results, OUTPUT, 3, results.layout);
    b.on_host = false;
    (void)run_it(call);
    ok(weir_model_call_destroy(call));
    assert_int_equal(b.releases, 4);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* The result has another name then. */
static void a_call_moves_with_its_model(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm");
    weir_model_call *call = prepare_plain(model);
    b.on_host = true;
    weir_model_call_results results = run_it(call);
    check_result(&results, OUTPUT, 1, 1);
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_UNSUPPORTED, -1);
    results = run_it(call);
    check_result(&results, OUTPUT, 2, 2);
    assert_string_equal(results.tensors->name, "rocm");
    assert_string_equal(provider_of(model), "rocm");
    results = run_it(call);
    check_result(&results, OUTPUT, 3, 2);
    ok(weir_model_call_destroy(call));
    ok(weir_model_destroy(model));
    check_books(&before);
}

typedef struct caller {
    weir_model_call *call;
    weir_status status;
} caller;

static void *run_thread(void *user)
{
    caller *it = user;
    weir_model_call_results results = WEIR_INIT(weir_model_call_results);
    it->status = weir_model_call_run(it->call, &results);
    return NULL;
}

static void one_thread_at_a_time_and_a_cancel_reaches_it(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda");
    caller it = {.call = prepare_plain(model)};
    gate running = GATE;
    pthread_t thread;
    weir_model_call_results results = WEIR_INIT(weir_model_call_results);
    b.on_host = true;
    b.inside_run = &running;
    assert_int_equal(pthread_create(&thread, NULL, run_thread, &it), 0);
    wait_for(&running);
    fails(WEIR_ERR_BUSY, weir_model_call_run(it.call, &results));
    fails(WEIR_ERR_BUSY, weir_model_call_destroy(it.call));
    ok(weir_model_cancel(model, REQUEST));
    open_gate(&running);
    pthread_join(thread, NULL);
    assert_int_equal(it.status, WEIR_ERR_CANCELLED);
    b.inside_run = NULL;
    results = run_it(it.call);
    assert_int_equal(results.layout, 1);
    ok(weir_model_call_destroy(it.call));
    ok(weir_model_destroy(model));
}

static bool no_piece(const weir_piece *piece, void *user)
{
    (void)piece, (void)user;
    return true;
}

static void what_is_no_request_is_refused(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda");
    weir_inference inference = WEIR_INIT(weir_inference), none = {0};
    weir_model_call *call = (weir_model_call *)&inference;
    weir_model_call_results small = {.struct_size = sizeof(size_t)};
    fails(WEIR_ERR_INVALID, weir_model_call_create(NULL, &inference, NULL, &call));
    assert_null(call);
    fails(WEIR_ERR_INVALID, weir_model_call_create(model, NULL, NULL, &call));
    fails(WEIR_ERR_INVALID, weir_model_call_create(model, &inference, NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_model_call_create(model, &none, NULL, &call));
    inference.input_count = 1;
    fails(WEIR_ERR_INVALID, weir_model_call_create(model, &inference, NULL, &call));
    inference.input_count = 0;
    inference.setting_count = 1;
    fails(WEIR_ERR_INVALID, weir_model_call_create(model, &inference, NULL, &call));
    inference.setting_count = 0;
    inference.piece = no_piece;
    fails(WEIR_ERR_INVALID, weir_model_call_create(model, &inference, NULL, &call));
    assert_null(call);
    call = prepare_plain(model);
    fails(WEIR_ERR_INVALID, weir_model_call_run(NULL, &small));
    fails(WEIR_ERR_INVALID, weir_model_call_run(call, NULL));
    fails(WEIR_ERR_INVALID, weir_model_call_run(call, &small));
    fails(WEIR_ERR_INVALID, weir_model_call_destroy(NULL));
    assert_int_equal(b.runs, 0);
    ok(weir_model_call_destroy(call));
    ok(weir_model_destroy(model));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(results_stay_where_they_are),
        test(each_call_has_its_own_results),
        test(results_that_grow_move),
        test(results_lie_in_the_callers_memory),
        test(the_request_is_copied_and_its_inputs_are_read),
        test(a_run_that_fails_leaves_the_results),
        test(results_on_a_device_are_held),
        test(a_call_moves_with_its_model),
        test(one_thread_at_a_time_and_a_cancel_reaches_it),
        test(what_is_no_request_is_refused),
    };
    return cmocka_run_group_tests_name("calls", tests, bed_begin, bed_end);
}
