/* Bad requests between good ones, of every kind that a client may send, on the real engines: each is refused, none changes the
 * model's health, has anything loaded, or moves the model, and every good one gets the same answer as the first. */
#include "core/core.h"
#include "info.h"

#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/model.h>

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST = 4, LONG = 5000, THREADS = 3 };
static int bad_requests = 240;

/* What a request is made of; its tensors point into `numbers` and texts. */
typedef struct asking {
    weir_tensor inputs[MOST];
    size_t count;
    weir_setting settings[MOST];
    size_t setting_count;
    int64_t numbers[3][LONG];
    int32_t tokens[LONG];
    bool may_pass; /* some engines have an answer to it */
} asking;

typedef struct kind {
    const char *name;
    void (*spoil)(asking *it);
} kind;

/* ---- tensors: ids, a mask, types --------------------------------------------------------------------------------- */

static void resize(weir_tensor *t, int64_t extent)
{
    t->shape[t->rank - 1] = extent;
    t->bytes = (size_t)extent * (t->type == WEIR_TYPE_I64 ? 8 : t->type == WEIR_TYPE_I32 ? 4 : 1);
}

static void good_tensors(asking *it)
{
    static const char *const names[] = {"input_ids", "attention_mask", "token_type_ids"};
    it->count = 3;
    it->setting_count = 0;
    it->may_pass = false;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < LONG; k++)
            it->numbers[i][k] = i == 0 ? 100 + k % 50 : i == 1;
        it->inputs[i] = (weir_tensor){.struct_size = sizeof it->inputs[i],
                                      .name = names[i],
                                      .type = WEIR_TYPE_I64,
                                      .rank = 2,
                                      .shape = {1, 1},
                                      .data = it->numbers[i]};
        resize(&it->inputs[i], 7);
    }
}

static void all_long(asking *it, int64_t extent)
{
    for (int i = 0; i < 3; i++)
        resize(&it->inputs[i], extent);
}

#define SPOILS(name) static void name(asking *it)
SPOILS(too_long)
{
    all_long(it, 513);
}
SPOILS(far_too_long)
{
    all_long(it, 4000);
}
SPOILS(mask_shorter)
{
    resize(&it->inputs[1], 5);
}
SPOILS(mask_longer)
{
    resize(&it->inputs[1], 513);
}
SPOILS(types_shorter)
{
    resize(&it->inputs[2], 3);
}
SPOILS(lower_rank)
{
    it->inputs[0].rank = 1, it->inputs[0].shape[0] = 7;
}
SPOILS(higher_rank)
{
    it->inputs[0].rank = 3, it->inputs[0].shape[1] = 1, it->inputs[0].shape[2] = 7;
}
SPOILS(no_such_rank)
{
    it->inputs[0].rank = WEIR_MAX_RANK + 1;
}
SPOILS(other_type)
{
    it->inputs[0].type = WEIR_TYPE_F64;
}
SPOILS(no_such_type)
{
    it->inputs[0].type = (weir_type)99;
}
SPOILS(one_missing)
{
    it->count--;
}
SPOILS(all_missing)
{
    it->count = 0;
}
SPOILS(unknown_name)
{
    it->inputs[1].name = "nonsense";
}
SPOILS(no_name)
{
    it->inputs[1].name = NULL;
}
SPOILS(twice)
{
    it->inputs[1] = it->inputs[0];
}
SPOILS(beyond_the_words)
{
    it->numbers[0][3] = 1 << 30;
}
SPOILS(far_below_the_words)
{
    it->numbers[0][3] = INT64_MIN;
}
SPOILS(beyond_the_types)
{
    it->numbers[2][0] = 77;
}
SPOILS(nothing_in_it)
{
    all_long(it, 0), it->may_pass = true;
}
SPOILS(half_of_it_empty)
{
    resize(&it->inputs[0], 0);
}
SPOILS(negative_extent)
{
    it->inputs[0].shape[1] = -7;
}
SPOILS(huge_extent)
{
    it->inputs[0].shape[0] = it->inputs[0].shape[1] = INT64_MAX / 2;
}
SPOILS(bytes_missing)
{
    it->inputs[0].bytes -= 8;
}
SPOILS(no_memory)
{
    it->inputs[0].data = NULL;
}
SPOILS(on_a_device)
{
    it->inputs[0].on_device = true;
}
SPOILS(more_rows)
{
    it->inputs[0].shape[0] = 2, it->inputs[0].bytes *= 2, it->may_pass = true;
}

static void set(asking *it, const char *key, const char *value)
{
    it->settings[it->setting_count++] = (weir_setting){key, value};
}
SPOILS(unknown_setting)
{
    set(it, "nonsense", "1");
}
SPOILS(odd_choice)
{
    set(it, "device_outputs", "nan");
}

static const kind of_tensors[] = {
    {"too long", too_long},
    {"far too long", far_too_long},
    {"mask shorter", mask_shorter},
    {"mask longer", mask_longer},
    {"types shorter", types_shorter},
    {"lower rank", lower_rank},
    {"higher rank", higher_rank},
    {"no such rank", no_such_rank},
    {"other type", other_type},
    {"no such type", no_such_type},
    {"one missing", one_missing},
    {"all missing", all_missing},
    {"unknown name", unknown_name},
    {"no name", no_name},
    {"twice", twice},
    {"beyond the words", beyond_the_words},
    {"far below the words", far_below_the_words},
    {"beyond the types", beyond_the_types},
    {"nothing in it", nothing_in_it},
    {"half of it empty", half_of_it_empty},
    {"negative extent", negative_extent},
    {"huge extent", huge_extent},
    {"bytes missing", bytes_missing},
    {"no memory", no_memory},
    {"on a device", on_a_device},
    {"more rows", more_rows},
    {"unknown setting", unknown_setting},
    {"odd choice", odd_choice},
};

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void text_input(weir_tensor *t, const char *name, const char *text)
{
    *t = (weir_tensor){.struct_size = sizeof *t,
                       .name = name,
                       .type = WEIR_TYPE_TEXT,
                       .rank = 1,
                       .shape = {(int64_t)strlen(text)},
                       .data = (void *)(uintptr_t)text,
                       .bytes = strlen(text)};
}

static void good_text(asking *it)
{
    it->count = 1;
    it->setting_count = 0;
    it->may_pass = false;
    text_input(&it->inputs[0], "text", "Once upon a time");
}

static void good_story(asking *it)
{
    good_text(it);
    set(it, "tokens", "3");
    set(it, "temperature", "0");
}

static void with_tokens(asking *it, int64_t count)
{
    for (int i = 0; i < LONG; i++)
        it->tokens[i] = 5 + i % 20;
    it->inputs[0] = (weir_tensor){
        .struct_size = sizeof it->inputs[0], .name = "tokens", .type = WEIR_TYPE_I32, .rank = 1, .data = it->tokens};
    resize(&it->inputs[0], count);
}

SPOILS(too_many_tokens)
{
    with_tokens(it, LONG);
}
SPOILS(token_beyond)
{
    with_tokens(it, 9), it->tokens[4] = 1 << 30;
}
SPOILS(token_below)
{
    with_tokens(it, 9), it->tokens[4] = -2;
}
SPOILS(no_tokens)
{
    with_tokens(it, 0);
}
SPOILS(tokens_of_rank_3)
{
    with_tokens(it, 9), it->inputs[0].rank = 3, it->inputs[0].shape[1] = it->inputs[0].shape[2] = 1;
}
SPOILS(tokens_of_rank_0)
{
    with_tokens(it, 1), it->inputs[0].rank = 0;
}
SPOILS(tokens_of_i64)
{
    with_tokens(it, 8), it->inputs[0].type = WEIR_TYPE_I64;
}
SPOILS(tokens_missing)
{
    with_tokens(it, 9), it->inputs[0].bytes -= 4;
}
SPOILS(tokens_nowhere)
{
    with_tokens(it, 9), it->inputs[0].data = NULL;
}
SPOILS(tokens_below_zero)
{
    with_tokens(it, 9), it->inputs[0].shape[0] = -9;
}
SPOILS(text_of_bytes)
{
    it->inputs[0].type = WEIR_TYPE_U8;
}
SPOILS(text_of_rank_2)
{
    it->inputs[0].rank = 2, it->inputs[0].shape[1] = 1;
}
SPOILS(text_and_tokens)
{
    it->inputs[1] = it->inputs[0], with_tokens(it, 9), it->count = 2;
}
SPOILS(text_twice)
{
    it->inputs[1] = it->inputs[0], it->count = 2;
}
SPOILS(text_nowhere)
{
    it->inputs[0].data = NULL;
}
SPOILS(unknown_input)
{
    it->inputs[0].name = "nonsense";
}
SPOILS(nameless)
{
    it->inputs[0].name = NULL;
}
SPOILS(odd_messages)
{
    text_input(&it->inputs[0], "messages", "[{\"role\": 7");
}
SPOILS(odd_state)
{
    text_input(&it->inputs[0], "state", "no state at all"), it->inputs[0].type = WEIR_TYPE_U8;
}
SPOILS(temperature_nan)
{
    it->setting_count = 0, set(it, "temperature", "nan");
}
SPOILS(temperature_inf)
{
    it->setting_count = 0, set(it, "temperature", "inf");
}
SPOILS(top_p_word)
{
    set(it, "top_p", "many");
}
SPOILS(tokens_negative)
{
    it->setting_count = 0, set(it, "tokens", "-7");
}
SPOILS(tokens_endless)
{
    it->setting_count = 0, set(it, "tokens", "99999999999999999999");
}
SPOILS(penalty_nan)
{
    set(it, "repeat_penalty", "nan");
}
SPOILS(logprobs_of_all)
{
    set(it, "logprobs", "1000000000");
}
SPOILS(odd_schema)
{
    set(it, "json_schema", "{\"type\": ");
}
SPOILS(odd_grammar)
{
    set(it, "grammar", "root ::= nowhere");
}
SPOILS(odd_expression)
{
    set(it, "regex", "((((");
}

static const kind of_stories[] = {
    {"too many tokens", too_many_tokens},
    {"token beyond", token_beyond},
    {"token below", token_below},
    {"no tokens", no_tokens},
    {"tokens of rank 3", tokens_of_rank_3},
    {"tokens of rank 0", tokens_of_rank_0},
    {"tokens of i64", tokens_of_i64},
    {"tokens missing", tokens_missing},
    {"tokens nowhere", tokens_nowhere},
    {"tokens below zero", tokens_below_zero},
    {"text of bytes", text_of_bytes},
    {"text of rank 2", text_of_rank_2},
    {"text and tokens", text_and_tokens},
    {"text twice", text_twice},
    {"text nowhere", text_nowhere},
    {"unknown input", unknown_input},
    {"no input", all_missing},
    {"no name", nameless},
    {"odd messages", odd_messages},
    {"odd state", odd_state},
    {"temperature nan", temperature_nan},
    {"temperature inf", temperature_inf},
    {"top_p word", top_p_word},
    {"tokens negative", tokens_negative},
    {"tokens endless", tokens_endless},
    {"penalty nan", penalty_nan},
    {"logprobs of all", logprobs_of_all},
    {"odd schema", odd_schema},
    {"odd grammar", odd_grammar},
    {"odd expression", odd_expression},
    {"unknown setting", unknown_setting},
};
enum { OF_TEXTS = 20 }; /* those that are not of a text that goes on */

/* ---- the models -------------------------------------------------------------------------------------------------- */

typedef struct subject {
    const char *file;
    void (*good)(asking *it);
    const kind *kinds;
    size_t kind_count;
} subject;

static const subject subjects[] = {
    {"minilm.onnx", good_tensors, of_tensors, sizeof of_tensors / sizeof *of_tensors},
    {"minilm.gguf", good_text, of_stories, OF_TEXTS},
    {"tiny-llama.gguf", good_story, of_stories, sizeof of_stories / sizeof *of_stories},
    {"tiny-llm", good_story, of_stories, sizeof of_stories / sizeof *of_stories},
};

static weir_status send_request(weir_model *model, const asking *it, weir_outputs *out)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.inputs = it->inputs;
    inference.input_count = it->count;
    inference.settings = it->settings;
    inference.setting_count = it->setting_count;
    *out = WEIR_INIT(weir_outputs);
    return weir_model_infer(model, &inference, out);
}

/* Everything in it, as one number. */
static uint64_t sum_of(const weir_outputs *out)
{
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < out->count; i++)
        for (size_t k = 0; k < out->tensors[i].bytes; k++)
            sum = (sum ^ ((const unsigned char *)out->tensors[i].data)[k]) * 1099511628211u;
    return sum;
}

static bool good_answer(weir_model *model, const subject *s, asking *room, uint64_t *sum)
{
    weir_outputs out;
    s->good(room);
    if (send_request(model, room, &out) != WEIR_OK) {
        print_error("%s: a good request failed: %s\n", s->file, weir_detail());
        return false;
    }
    uint64_t now = sum_of(&out);
    bool same = *sum == 0 || *sum == now;
    *sum = now;
    weir_model_release_outputs(model, &out);
    if (!same)
        print_error("%s: a good request has another answer\n", s->file);
    return same;
}

/* Refused as what it is, and nothing came of it. */
static bool bad_answer(weir_model *model, const subject *s, const kind *which, asking *room)
{
    weir_outputs out;
    s->good(room);
    which->spoil(room);
    weir_status status = send_request(model, room, &out);
    bool good = status == WEIR_ERR_INVALID || status == WEIR_ERR_UNSUPPORTED || status == WEIR_ERR_OUT_OF_MEMORY ||
                (status == WEIR_OK && room->may_pass);
    if (!good)
        print_error("%s: %s: %s: %s\n", s->file, which->name, weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    if (status == WEIR_OK)
        weir_model_release_outputs(model, &out);
    weir_status health = weir_model_health(model);
    if (health != WEIR_OK)
        print_error("%s: %s: not healthy: %s\n", s->file, which->name, weir_detail());
    return good && health == WEIR_OK;
}

static uint32_t clients_of(weir_runtime *runtime)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    ok(weir_snapshot(runtime, &stats, NULL, 0, NULL));
    return stats.clients;
}

static int notices;

static void notice(const char *text, void *user)
{
    (void)user;
    notices++;
    print_error("notice: %s\n", text);
}

static weir_model *open_subject(const subject *s, bool chosen, bool first_run)
{
    char path[600];
    weir_model *model = NULL;
    snprintf(path, sizeof path, "%s/models/%s", WEIR_TEST_STORE, s->file);
    if (access(path, R_OK) != 0) {
        print_message("there is no %s\n", path);
        return NULL;
    }
    weir_setting one = {"threads", "1"};
    weir_model_options options = {.struct_size = sizeof options, .settings = &one, .setting_count = 1};
    weir_manifest manifest = WEIR_INIT(weir_manifest);
    weir_choice_options choice = {.struct_size = sizeof choice, .device = "cpu", .settings = &one, .setting_count = 1};
    weir_opening_options opening = {
        .struct_size = sizeof opening, .choice = &choice, .first_run = first_run, .notice = notice};
    manifest.model_file = path;
    weir_status status =
        chosen ? weir_model_create_chosen(&manifest, &opening, &model) : weir_model_create(path, &options, &model);
    if (status != WEIR_OK) { /* an engine that is not here */
        print_message("%s: %s\n", s->file, weir_detail());
        assert_true(status == WEIR_ERR_NOT_FOUND || status == WEIR_ERR_UNSUPPORTED);
        return NULL;
    }
    return model;
}

typedef struct sender {
    const subject *subject;
    weir_model *model;
    int from, count; /* bad requests */
    uint64_t sum;
    atomic_bool wrong;
    pthread_t thread;
} sender;

static void *send_all(void *user)
{
    sender *it = user;
    asking *room = malloc(sizeof *room);
    assert_non_null(room);
    const subject *s = it->subject;
    bool good = true;
    for (int i = it->from; good && i < it->from + it->count; i++) {
        good = bad_answer(it->model, s, &s->kinds[(size_t)i % s->kind_count], room);
        if (good && i % 5 == 4)
            good = good_answer(it->model, s, room, &it->sum);
    }
    atomic_store(&it->wrong, !good);
    free(room);
    return NULL;
}

/* From the first request on, and from some threads at once. */
static bool send_to(const subject *s, bool chosen, bool first_run, int count)
{
    weir_model *model = open_subject(s, chosen, first_run);
    if (!model)
        return false;
    weir_client *client = weir_model_client(model);
    weir_runtime *runtime = weir_client_runtime(client);
    uint32_t clients = clients_of(runtime);
    sender senders[THREADS] = {{.subject = s, .model = model, .count = count / 2}};
    send_all(&senders[0]);
    assert_false(senders[0].wrong);
    for (int i = 1; i < THREADS; i++) {
        senders[i] = (sender){
            .subject = s, .model = model, .from = i * 11, .count = count / 2 / (THREADS - 1), .sum = senders[0].sum};
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_all, &senders[i]), 0);
    }
    for (int i = 1; i < THREADS; i++) {
        pthread_join(senders[i].thread, NULL);
        assert_false(senders[i].wrong);
    }
    assert_ptr_equal(weir_model_client(model), client);
    assert_int_equal(clients_of(runtime), clients);
    assert_int_equal(notices, 0);
    weir_record record = WEIR_INIT(weir_record);
    if (chosen) {
        ok(weir_model_record(model, &record));
        assert_int_equal(record.attempt_count + record.left_out, 1);
    }
    ok(weir_model_destroy(model));
    return true;
}

static void bad_requests_between_good_ones(void **state)
{
    const subject *s = *state;
    if (!send_to(s, false, false, bad_requests))
        skip();
    assert_true(send_to(s, true, false, bad_requests));
    assert_true(send_to(s, true, true, bad_requests / 4));
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[sizeof subjects / sizeof *subjects];
    if (argc > 1)
        bad_requests = atoi(argv[1]);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        tests[i] = (struct CMUnitTest){.name = subjects[i].file,
                                       .test_func = bad_requests_between_good_ones,
                                       .initial_state = (void *)(uintptr_t)&subjects[i]};
    return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
