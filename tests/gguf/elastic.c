/* elastic.c: a KV cache costs what its tokens cost: pages come with cells, go when others need them, and answers stay
 * the same. */
#include "common.h"
#include "plain.h"

#include <weir/elastic.h>
#include <weir/engine.h>
#include <weir/pressure.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

/* Keys of a layer take 256 bytes a cell, so that a page of 64 KiB holds 256 cells; the same for values. */
static const model_shape shape = {.layers = 2, .width = 256, .heads = 4, .heads_kv = 2, .wide = 128, .context = 4096};
static char llama_path[64];
enum { CELL = 256, TENSORS = 4, PAGE = 65536, CONTEXT = 2048 };

static const weir_setting elastic[] = {{"context", "2048"}, {"threads", "1"}, {"cache_memory", "elastic"}};
static const weir_setting whole[] = {{"context", "2048"}, {"threads", "1"}, {"cache_memory", "whole"}};
static const weir_setting promised[] = {{"context", "2048"}, {"threads", "1"}, {"cache_memory", "promised"}};

static uint64_t kv_of(const bench *it)
{
    return stats_of(it).live_class[WEIR_CLASS_KV];
}

/* A run over `prompt` tokens that makes `made` more; `text` gets the tokens and the last logits as words. */
static weir_status ask(const fixture *its, int prompt, int made, char *text, size_t capacity)
{
    char count[16];
    int32_t tokens[CONTEXT];
    for (int i = 0; i < prompt; i++)
        tokens[i] = 3 + i * 7 % 200;
    snprintf(count, sizeof count, "%d", made);
    const weir_setting settings[] = {{"tokens", count}, {"temperature", "0"}, {"ignore_eos", "1"}, {"logits", "1"}};
    weir_tensor input = token_input(tokens, 0, prompt);
    weir_outputs outputs;
    weir_status status = infer(its, &input, settings, 4, &outputs);
    if (status != WEIR_OK)
        return status;
    const weir_tensor *out = output_named(&outputs, "tokens"), *logits = output_named(&outputs, "logits");
    size_t used = 0;
    for (size_t i = 0; i < out->bytes / 4; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%d ", ((const int32_t *)out->data)[i]);
    for (size_t i = 0; i < 8; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%08x ", ((const uint32_t *)logits->data)[i]);
    release(its, &outputs);
    return WEIR_OK;
}

/* Notes what the cache has each time that a piece comes. */
typedef struct watch {
    const fixture *its;
    uint64_t most;
    int pieces;
} watch;

static bool look(const weir_piece *piece, void *user)
{
    watch *it = user;
    uint64_t now = kv_of(&it->its->it);
    (void)piece;
    it->pieces++;
    it->most = now > it->most ? now : it->most;
    return true;
}

static uint64_t most_of_a_run(const fixture *its, int prompt, int made)
{
    char count[16];
    int32_t tokens[CONTEXT];
    for (int i = 0; i < prompt; i++)
        tokens[i] = 3 + i * 7 % 200;
    snprintf(count, sizeof count, "%d", made);
    const weir_setting settings[] = {{"tokens", count}, {"temperature", "0"}, {"ignore_eos", "1"}};
    weir_tensor input = token_input(tokens, 0, prompt);
    weir_inference inference = inference_of(&input, settings, 3);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    watch it = {.its = its};
    OK(its->it.engine->infer_stream(its->model, &inference, look, &it, &outputs));
    release(its, &outputs);
    assert_int_equal(it.pieces, made);
    return it.most;
}

static void test_a_context_costs_what_its_tokens_cost(void **state)
{
    (void)state;
    static int errors;
    OK(weir_log_set(log_errors, &errors, WEIR_LOG_ERROR));
    fixture its = fixture_open(llama_path, elastic, 3);
    assert_int_equal(kv_of(&its.it), 0);
    assert_int_equal(most_of_a_run(&its, 40, 4), TENSORS * PAGE); /* 256 cells are a page */
    assert_int_equal(most_of_a_run(&its, 300, 4), TENSORS * 2 * PAGE);
    /* With few cells to go, the next page of each tensor comes, one with each token. */
    assert_int_equal(most_of_a_run(&its, 244, 4), (TENSORS - 1) * PAGE + TENSORS * PAGE);
    assert_int_equal(most_of_a_run(&its, 244, 8), TENSORS * 2 * PAGE);
    /* At rest one page of each tensor stays for the next run, and goes when the model is trimmed. */
    assert_int_equal(kv_of(&its.it), TENSORS * PAGE);
    uint64_t released = 0;
    OK(its.it.engine->trim(its.model, UINT64_MAX, &released));
    assert_int_equal(released, TENSORS * PAGE);
    assert_int_equal(kv_of(&its.it), 0);
    assert_int_equal(most_of_a_run(&its, 40, 4), TENSORS * PAGE);
    assert_int_equal(stats_of(&its.it).pending, 0);
    fixture_close(&its);
    assert_int_equal(errors, 0);
    OK(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
}

/* Each layer has its keys and its values, however many there are. */
static void test_many_layers_have_their_pages(void **state)
{
    enum { MANY = 40 };
    (void)state;
    static const weir_setting load[] = {{"context", "512"}, {"threads", "1"}, {"cache_memory", "elastic"}};
    model_shape deep = {.layers = MANY, .width = 64, .heads = 1, .heads_kv = 1, .wide = 32, .context = 512};
    char deep_path[sizeof llama_path + 8];
    snprintf(deep_path, sizeof deep_path, "%s-deep", llama_path);
    write_llama(deep_path, &deep);
    fixture its = fixture_open(deep_path, load, 3);
    assert_int_equal(kv_of(&its.it), 0);
    assert_int_equal(most_of_a_run(&its, 4, 2), 2 * MANY * PAGE);
    fixture_close(&its);
    unlink(deep_path);
}

static void test_a_promise_is_charged_from_the_start(void **state)
{
    (void)state;
    char text[2048];
    uint64_t all = (uint64_t)CONTEXT * CELL * TENSORS;
    fixture its = fixture_open(llama_path, promised, 3);
    assert_int_equal(kv_of(&its.it), 0);
    assert_int_equal(stats_of(&its.it).promised, all);
    /* Others fill the budget: the context still grows to its end. */
    weir_client_options named = WEIR_INIT(weir_client_options);
    weir_client *other;
    void *block;
    named.name = "other";
    OK(weir_client_create(its.it.runtime, &named, &other));
    weir_stats now = WEIR_INIT(weir_stats);
    size_t clients;
    OK(weir_snapshot(its.it.runtime, &now, NULL, 0, &clients));
    OK(weir_runtime_set_budget(its.it.runtime, stats_of(&its.it).live + all + (3u << 20)));
    OK(weir_alloc(other, 2u << 20, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &block));
    OK(ask(&its, 1800, 200, text, sizeof text));
    OK(weir_free(other, block, WEIR_STREAM_HOST));
    OK(weir_client_destroy(other));
    assert_int_equal(stats_of(&its.it).promised + kv_of(&its.it), all);
    fixture_close(&its);
}

static void test_answers_do_not_depend_on_how_memory_comes(void **state)
{
    static const char *const attentions[] = {"auto", "off", "on"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char one[2048], other[2048];
        const weir_setting with[] = {elastic[0], elastic[1], elastic[2], {"flash_attention", attentions[i]}};
        const weir_setting without[] = {whole[0], whole[1], whole[2], {"flash_attention", attentions[i]}};
        fixture its = fixture_open(llama_path, with, 4), reference = fixture_open(llama_path, without, 4);
        for (int prompt = 30; prompt < 700; prompt += 233) {
            OK(ask(&its, prompt, 40, one, sizeof one));
            OK(ask(&reference, prompt, 40, other, sizeof other));
            assert_string_equal(one, other);
        }
        fixture_close(&its);
        fixture_close(&reference);
    }
}

static void test_transposed_values_stay_whole(void **state)
{
    (void)state;
    const weir_setting settings[] = {elastic[0], elastic[1], elastic[2], {"flash_attention", "off"}};
    fixture its = fixture_open(llama_path, settings, 4);
    assert_int_equal(kv_of(&its.it), (uint64_t)CONTEXT * CELL * TENSORS / 2);
    assert_int_equal(most_of_a_run(&its, 40, 4), (uint64_t)CONTEXT * CELL * TENSORS / 2 + TENSORS / 2 * PAGE);
    fixture_close(&its);
}

static void test_a_context_that_cannot_grow_fails_its_run_alone(void **state)
{
    (void)state;
    char text[4096], again[4096];
    fixture its = fixture_open(llama_path, elastic, 3);
    OK(ask(&its, 200, 40, text, sizeof text));
    OK(weir_client_set_limits(its.it.client, 0, stats_of(&its.it).live + PAGE + 65536));
    assert_int_equal(ask(&its, 200, 100, again, sizeof again), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_detail(), "(kv)"));
    weir_refusal why = WEIR_INIT(weir_refusal);
    OK(weir_refusal_last(&why));
    assert_int_equal(why.memory_class, WEIR_CLASS_KV);
    OK(weir_client_set_limits(its.it.client, 0, 0));
    OK(ask(&its, 200, 40, again, sizeof again));
    assert_string_equal(text, again);
    fixture_close(&its);
}

/* A page that nobody needs yet is asked for once, where there is no room, and not with every token. */
static void test_looking_ahead_asks_once(void **state)
{
    (void)state;
    char text[4096];
    fixture its = fixture_open(llama_path, elastic, 3);
    OK(ask(&its, 200, 4, text, sizeof text));
    OK(weir_client_set_limits(its.it.client, 0, stats_of(&its.it).live + 16384));
    uint64_t before = stats_of(&its.it).refusals;
    OK(ask(&its, 244, 10, text, sizeof text));
    assert_int_equal(stats_of(&its.it).refusals, before + 1);
    OK(weir_client_set_limits(its.it.client, 0, 0));
    assert_int_equal(most_of_a_run(&its, 244, 8), TENSORS * 2 * PAGE);
    fixture_close(&its);
}

static void test_what_sequences_have_left_goes_to_who_needs_it(void **state)
{
    (void)state;
    char text[4096], again[4096];
    void *block;
    weir_client_options named = WEIR_INIT(weir_client_options);
    weir_client *other;
    fixture its = fixture_open(llama_path, elastic, 3);
    named.name = "other";
    OK(weir_client_create(its.it.runtime, &named, &other));
    OK(ask(&its, 200, 40, text, sizeof text));
    assert_int_equal(kv_of(&its.it), TENSORS * PAGE);
    uint64_t besides = stats_of(&its.it).live - TENSORS * PAGE;
    OK(weir_runtime_set_budget(its.it.runtime, stats_of(&its.it).live + (1u << 20)));
    OK(weir_alloc(other, (1u << 20) + PAGE, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &block));
    assert_int_equal(stats_of(&its.it).live, besides);
    assert_int_equal(ask(&its, 200, 40, again, sizeof again), WEIR_ERR_OUT_OF_MEMORY);
    OK(weir_free(other, block, WEIR_STREAM_HOST));
    OK(ask(&its, 200, 40, again, sizeof again));
    assert_string_equal(text, again);
    OK(weir_client_destroy(other));
    fixture_close(&its);
}

/* Pages that a decoder took to embed texts are free behind the call. */
static void test_pages_of_texts_that_were_embedded_go(void **state)
{
    (void)state;
    const weir_setting pooled[] = {elastic[0], elastic[1], elastic[2], {"pooling", "last"}};
    fixture its = fixture_open(llama_path, pooled, 4);
    int32_t tokens[300];
    for (int i = 0; i < 300; i++)
        tokens[i] = 3 + i * 7 % 200;
    for (int again = 0; again < 2; again++) {
        weir_tensor input = token_input(tokens, 1, 300);
        weir_outputs outputs;
        uint64_t released = 0;
        OK(infer(&its, &input, NULL, 0, &outputs));
        release(&its, &outputs);
        assert_true(kv_of(&its.it) >= 2 * PAGE);
        OK(its.it.engine->trim(its.model, UINT64_MAX, &released));
        assert_true(released > 0);
        assert_int_equal(kv_of(&its.it), 0);
    }
    fixture_close(&its);
}

/* A text that did not fit leaves nothing behind that the next one takes for memory of its own. */
static void test_a_text_that_does_not_fit_leaves_the_next_as_it_was(void **state)
{
    (void)state;
    enum { WIDTH = 256, LONG = 300, SHORT = 20 };
    const weir_setting pooled[] = {elastic[0], elastic[1], elastic[2], {"pooling", "last"}};
    fixture its = fixture_open(llama_path, pooled, 4);
    int32_t tokens[LONG];
    float vectors[2][WIDTH];
    uint64_t released = 0;
    for (int i = 0; i < LONG; i++)
        tokens[i] = 3 + i * 7 % 200;
    weir_tensor large = token_input(tokens, 1, LONG), small = token_input(tokens, 1, SHORT);
    for (int again = 0; again < 2; again++) {
        weir_outputs outputs;
        OK(infer(&its, &small, NULL, 0, &outputs));
        assert_int_equal(outputs.tensors[0].bytes, sizeof vectors[again]);
        memcpy(vectors[again], outputs.tensors[0].data, sizeof vectors[again]);
        assert_true(kv_of(&its.it) >= TENSORS * PAGE); /* each tensor has its page */
        release(&its, &outputs);
        OK(its.it.engine->trim(its.model, UINT64_MAX, &released));
        assert_int_equal(kv_of(&its.it), 0);
        OK(weir_client_set_limits(its.it.client, 0, stats_of(&its.it).live + 3 * PAGE));
        assert_int_equal(infer(&its, &large, NULL, 0, &outputs), WEIR_ERR_OUT_OF_MEMORY);
        OK(weir_client_set_limits(its.it.client, 0, 0));
    }
    assert_memory_equal(vectors[0], vectors[1], sizeof vectors[0]);
    fixture_close(&its);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct talk {
    const fixture *its;
    int prompt;
    char first[2048];
    bool same;
} talk;

/* What a batch with others computes may differ in a logit's last bits. */
static bool same_tokens(const char *one, const char *other)
{
    size_t words = 0, at = 0;
    while (one[at] && words < 30)
        words += one[at++] == ' ';
    return words == 30 && strncmp(one, other, at) == 0;
}

static void *chat(void *user)
{
    talk *it = user;
    char text[2048];
    it->same = true;
    for (int i = 0; i < 4; i++) {
        weir_status status = ask(it->its, it->prompt, 30, text, sizeof text);
        it->same &= status == WEIR_OK && same_tokens(text, it->first);
        if (status != WEIR_OK)
            print_error("%s\n", weir_detail());
    }
    return NULL;
}

typedef struct neighbour {
    weir_client *client;
    atomic_bool stop;
    int got;
} neighbour;

static void *take_and_give(void *user)
{
    neighbour *it = user;
    while (!atomic_load(&it->stop)) {
        void *block = NULL;
        if (weir_alloc(it->client, 1u << 20, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &block) == WEIR_OK)
            it->got++;
        if (block && weir_free(it->client, block, WEIR_STREAM_HOST) != WEIR_OK)
            return NULL;
    }
    return NULL;
}

static void test_sequences_on_threads_beside_a_neighbour_answer_as_alone(void **state)
{
    enum { THREADS = 4 };
    (void)state;
    const weir_setting settings[] = {elastic[0], elastic[1], elastic[2], {"sequences", "4"}};
    fixture its = fixture_open(llama_path, settings, 4);
    talk talks[THREADS];
    pthread_t threads[THREADS], beside;
    weir_client_options named = WEIR_INIT(weir_client_options);
    neighbour other = {.got = 0};
    named.name = "other";
    OK(weir_client_create(its.it.runtime, &named, &other.client));
    for (int i = 0; i < THREADS; i++) {
        talks[i] = (talk){.its = &its, .prompt = 100 + 200 * i};
        OK(ask(&its, talks[i].prompt, 30, talks[i].first, sizeof talks[i].first));
    }
    /* The sequences together fit, and the neighbour beside them only when some are short. */
    uint64_t most = stats_of(&its.it).live - kv_of(&its.it) + (1 + 2 + 3 + 4) * (uint64_t)TENSORS * PAGE;
    OK(weir_runtime_set_budget(its.it.runtime, most + (1u << 20) + (1u << 19)));
    assert_int_equal(pthread_create(&beside, NULL, take_and_give, &other), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, chat, &talks[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&other.stop, true);
    pthread_join(beside, NULL);
    for (int i = 0; i < THREADS; i++)
        assert_true(talks[i].same);
    assert_true(other.got > 0);
    OK(weir_client_destroy(other.client));
    fixture_close(&its);
}

/* ---- going ------------------------------------------------------------------------------------------------------- */

/* A second thread stops where the plug-in is about to take a lock in its pressure callback. */
static _Thread_local bool stops;
static atomic_bool stopped, unloaded;

#ifndef __SANITIZE_THREAD__
/* In the place of the C library's, for the plug-in too. */
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's name is its own
__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *lock)
{
    static int (*_Atomic real)(pthread_mutex_t *);
    Dl_info from;
    if (!atomic_load(&real)) {
        void *symbol = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        int (*found)(pthread_mutex_t *);
        memcpy(&found, &symbol, sizeof found);
        atomic_store(&real, found);
    }
    if (stops && dladdr(__builtin_return_address(0), &from) && from.dli_fname &&
        strstr(from.dli_fname, "engine-gguf")) {
        stops = false;
        atomic_store(&stopped, true);
        while (!atomic_load(&unloaded))
            sched_yield();
    }
    return atomic_load(&real)(lock);
}
#endif

static void *need_memory(void *user)
{
    const fixture *its = user;
    void *block;
    stops = true;
    return weir_alloc(its->it.client, 2u << 30, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &block) == WEIR_ERR_OUT_OF_MEMORY
               ? NULL
               : user;
}

static void unload_it(const weir_pressure *pressure, void *user)
{
    fixture *its = user;
    (void)pressure;
    if (its->model)
        its->it.engine->unload(its->model);
    its->model = NULL;
}

static void test_a_model_is_unloaded_in_a_callback_while_others_ask_it(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it has a function of its own in that place */
#endif
    char text[4096];
    pthread_t other;
    uint64_t id;
    void *failed, *block;
    fixture its = fixture_open(llama_path, elastic, 3);
    OK(ask(&its, 40, 4, text, sizeof text));
    assert_int_equal(kv_of(&its.it), TENSORS * PAGE);
    pthread_create(&other, NULL, need_memory, &its);
    while (!atomic_load(&stopped))
        sched_yield();
    OK(weir_pressure_register(its.it.runtime, -1, unload_it, &its, &id));
    OK(weir_alloc(its.it.client, (1u << 30) - (1u << 16), WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &block));
    assert_null(its.model); /* all that it had is in that block */
    atomic_store(&unloaded, true);
    pthread_join(other, &failed);
    assert_null(failed);
    OK(weir_free(its.it.client, block, WEIR_STREAM_HOST));
    OK(weir_pressure_unregister(its.it.runtime, id));
    bench_close(&its.it);
}

static int write_model(void **state)
{
    (void)state;
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-elastic-%d.gguf", (int)getpid());
    write_llama(llama_path, &shape);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(llama_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_context_costs_what_its_tokens_cost),
        cmocka_unit_test(test_many_layers_have_their_pages),
        cmocka_unit_test(test_a_promise_is_charged_from_the_start),
        cmocka_unit_test(test_answers_do_not_depend_on_how_memory_comes),
        cmocka_unit_test(test_transposed_values_stay_whole),
        cmocka_unit_test(test_a_context_that_cannot_grow_fails_its_run_alone),
        cmocka_unit_test(test_looking_ahead_asks_once),
        cmocka_unit_test(test_pages_of_texts_that_were_embedded_go),
        cmocka_unit_test(test_a_text_that_does_not_fit_leaves_the_next_as_it_was),
        cmocka_unit_test(test_what_sequences_have_left_goes_to_who_needs_it),
        cmocka_unit_test(test_sequences_on_threads_beside_a_neighbour_answer_as_alone),
        cmocka_unit_test(test_a_model_is_unloaded_in_a_callback_while_others_ask_it),
    };
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
