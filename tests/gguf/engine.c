/* engine.c: answers. They are llama.cpp's own, bit by bit, whole or piece by piece, from one thread or several; wrong
 * questions are refused in words. */
#include "common.h"
#include <weir/engine.h>
#include "plain.h"

#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "gguf/file/file.h"
#include "older.h"

static char llama_path[64], bert_path[64], long_path[64];
static const weir_setting one_thread[] = {{"threads", "1"}, {"batch", "64"}};

/* ---- the same as without weir ----------------------------------------------------------------------------------- */

static void logits_equal_with(const char *path, const weir_setting *load, size_t load_count,
                              void (*adjust)(struct llama_context_params *params), uint32_t context,
                              const int32_t *prompt, int count)
{
    static const weir_setting settings[] = {{"tokens", "6"}, {"ignore_eos", "1"}, {"logits", "1"}};
    fixture its = fixture_open(path, load, load_count);
    weir_tensor input = token_input(prompt, 0, count);
    weir_outputs outputs;
    OK(infer(&its, &input, settings, 3, &outputs));
    const int32_t *tokens = output_named(&outputs, "tokens")->data;
    const weir_tensor *logits = output_named(&outputs, "logits");
    assert_int_equal(output_named(&outputs, "tokens")->shape[0], 6);

    plain other = plain_of(its.it.engine);
    other.adjust = adjust;
    plain_open(&other, path, false, context, 64, 1);
    for (int at = 0; at < count; at += 64) {
        int step = count - at < 64 ? count - at : 64;
        assert_int_equal(other.llama_decode(other.context, other.llama_batch_get_one((int32_t *)prompt + at, step)), 0);
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(other.llama_decode(other.context, other.llama_batch_get_one((int32_t *)&tokens[i], 1)), 0);
    assert_int_equal(logits->shape[0], other.llama_vocab_n_tokens(other.vocab));
    assert_memory_equal(logits->data, other.llama_get_logits_ith(other.context, -1), logits->bytes);
    plain_close(&other);
    release(&its, &outputs);
    fixture_close(&its);
}

static void logits_equal(const char *path, uint32_t context, const int32_t *prompt, int count)
{
    logits_equal_with(path, one_thread, 2, NULL, context, prompt, count);
}

static void test_logits(void **state)
{
    (void)state;
    char path[512];
    int32_t prompt[70];
    for (int i = 0; i < 70; i++)
        prompt[i] = i == 0 ? 1 : 260 + i * 7 % 26;
    logits_equal(llama_path, 128, prompt, 70);
    if (store_model("tiny-llama.gguf", path, sizeof path))
        logits_equal(path, 2048, prompt, 70);
}

/* ---- another context -------------------------------------------------------------------------------------------- */

static void without_flash(struct llama_context_params *params)
{
    params->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params->type_k = GGML_TYPE_Q8_0;
}

static void quantised(struct llama_context_params *params)
{
    params->type_k = GGML_TYPE_Q5_1;
    params->type_v = GGML_TYPE_IQ4_NL;
}

static void wide_numbers(struct llama_context_params *params)
{
    params->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params->type_k = GGML_TYPE_BF16;
    params->type_v = GGML_TYPE_F32;
}

static void turned(struct llama_context_params *params)
{
    params->rope_freq_base = 50000;
    params->rope_freq_scale = 0.5f;
}

static void test_a_context_by_settings_is_llama_cpps_own(void **state)
{
    (void)state;
    static const struct {
        weir_setting settings[5];
        void (*adjust)(struct llama_context_params *params);
    } ways[] = {
        {{{"threads", "1"}, {"batch", "64"}, {"flash_attention", "off"}, {"cache_k", "q8_0"}, {"cache_v", "f16"}},
         without_flash},
        {{{"threads", "1"}, {"batch", "64"}, {"flash_attention", "auto"}, {"cache_k", "q5_1"}, {"cache_v", "IQ4_NL"}},
         quantised},
        {{{"threads", "1"}, {"batch", "64"}, {"flash_attention", "on"}, {"cache_k", "bf16"}, {"cache_v", "f32"}},
         wide_numbers},
        {{{"threads", "1"},
          {"batch", "64"},
          {"rope_frequency_base", "50000"},
          {"rope_frequency_scale", "0.5"},
          {"cache_v", "f16"}},
         turned},
    };
    int32_t prompt[70];
    for (int i = 0; i < 70; i++)
        prompt[i] = i == 0 ? 1 : 260 + i * 7 % 26;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        logits_equal_with(long_path, ways[i].settings, 5, ways[i].adjust, 4096, prompt, 70);
}

static void embeddings_equal_with(const char *path, const weir_setting *load, size_t load_count,
                                  void (*adjust)(struct llama_context_params *params), uint32_t context,
                                  const int32_t *tokens, const int *lengths, int texts)
{
    static const weir_setting raw[] = {{"normalize", "0"}};
    int32_t rows[4 * 16], *at = rows;
    fixture its = fixture_open(path, load, load_count);
    plain other = plain_of(its.it.engine);
    other.adjust = adjust;
    plain_open(&other, path, true, context, 0, 1);
    struct llama_batch batch = other.llama_batch_init(64, 0, 1);
    for (int i = 0; i < texts; i++)
        for (int k = 0; k < 16; k++)
            *at++ = k < lengths[i] ? tokens[k + i] : -1;
    for (int i = 0; i < texts; i++)
        plain_add(&batch, rows + (size_t)i * 16, lengths[i], i);
    assert_int_equal(adjust ? other.llama_decode(other.context, batch) : other.llama_encode(other.context, batch), 0);

    weir_tensor input = token_input(rows, texts, 16);
    weir_outputs outputs;
    OK(infer(&its, &input, raw, 1, &outputs));
    const weir_tensor *found = output_named(&outputs, "embeddings");
    size_t width = (size_t)other.llama_model_n_embd_out(other.model);
    assert_int_equal(found->shape[0], texts);
    assert_int_equal(found->shape[1], width);
    for (int i = 0; i < texts; i++)
        assert_memory_equal((const float *)found->data + (size_t)i * width,
                            other.llama_get_embeddings_seq(other.context, i), width * sizeof(float));
    other.llama_batch_free(batch);
    plain_close(&other);
    release(&its, &outputs);
    fixture_close(&its);
}

static void embeddings_equal(const char *path, uint32_t context, const int32_t *tokens, const int *lengths, int texts)
{
    embeddings_equal_with(path, one_thread, 1, NULL, context, tokens, lengths, texts);
}

static void test_embeddings(void **state)
{
    (void)state;
    static const int32_t tokens[] = {2, 5, 31, 17, 40, 8, 22, 3, 9, 30, 4, 12, 44, 51, 6, 7, 8, 9, 10, 11};
    static const int lengths[] = {9, 3, 16};
    char path[512];
    embeddings_equal(bert_path, 128, tokens, lengths, 3);
    if (store_model("minilm.gguf", path, sizeof path))
        embeddings_equal(path, 512, tokens, lengths, 3);
}

static void pool_last(struct llama_context_params *params)
{
    params->pooling_type = LLAMA_POOLING_TYPE_LAST;
}

static void pool_mean(struct llama_context_params *params)
{
    params->pooling_type = LLAMA_POOLING_TYPE_MEAN;
}

static void test_a_decoder_that_pools_embeds_several_texts_at_once(void **state)
{
    (void)state;
    static const weir_setting last[] = {{"threads", "1"}, {"pooling", "last"}};
    static const weir_setting mean[] = {{"threads", "1"}, {"pooling", "mean"}};
    static const int32_t tokens[] = {1,   265, 271, 277, 260, 268, 282, 263, 269, 270,
                                     264, 272, 284, 261, 266, 267, 268, 269, 270};
    static const int lengths[] = {9, 3, 16, 1};
    embeddings_equal_with(llama_path, last, 2, pool_last, 128, tokens, lengths, 4);
    embeddings_equal_with(llama_path, mean, 2, pool_mean, 128, tokens, lengths, 4);
}

/* ---- embeddings ------------------------------------------------------------------------------------------------- */

static void test_normalized_in_any_company(void **state)
{
    (void)state;
    fixture its = fixture_open(bert_path, NULL, 0);
    char text[40 * 16] = "";
    weir_outputs together, alone;
    for (int i = 0; i < 40; i++)
        sprintf(text + strlen(text), "%s%c%c cab d%c", i ? "\n" : "", 'a' + i % 26, 'b' + i % 7, 'a' + i % 5);
    weir_tensor input = text_input(text);
    OK(infer(&its, &input, NULL, 0, &together));
    const weir_tensor *all = output_named(&together, "embeddings");
    assert_int_equal(all->shape[0], 40);
    char *line = strtok(text, "\n");
    for (int i = 0; i < 40; i++, line = strtok(NULL, "\n")) {
        const float *vector = (const float *)all->data + (size_t)i * 32;
        double norm = 0, cosine = 0;
        input = text_input(line);
        OK(infer(&its, &input, NULL, 0, &alone));
        const float *same = output_named(&alone, "embeddings")->data;
        for (int k = 0; k < 32; k++) {
            norm += (double)vector[k] * vector[k];
            cosine += (double)vector[k] * same[k];
        }
        release(&its, &alone);
        assert_true(fabs(norm - 1) < 1e-5 && cosine > 0.99999);
    }
    release(&its, &together);
    fixture_close(&its);
}

/* Short texts, more than a call of llama.cpp's takes: each has a count and a vector of its own. */
static void test_many_short_texts(void **state)
{
    (void)state;
    enum { MANY = 35, WIDTH = 32 };
    fixture its = fixture_open(bert_path, NULL, 0);
    char text[MANY * 8] = "", lines[MANY][8];
    size_t used = 0;
    weir_outputs together, alone;
    for (int i = 0; i < MANY; i++) {
        snprintf(lines[i], sizeof lines[i], "%c%s", 'a' + i % 26, i % 3 ? "" : " b");
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "\n" : "", lines[i]);
    }
    weir_tensor input = text_input(text);
    OK(infer(&its, &input, NULL, 0, &together));
    const weir_tensor *all = output_named(&together, "embeddings"), *counts = output_named(&together, "prompt_tokens");
    assert_int_equal(all->shape[0], MANY);
    assert_int_equal(counts->bytes, MANY * sizeof(int32_t));
    for (int i = 0; i < MANY; i++) {
        const float *vector = (const float *)all->data + (size_t)i * WIDTH;
        double cosine = 0;
        input = text_input(lines[i]);
        OK(infer(&its, &input, NULL, 0, &alone));
        const float *same = output_named(&alone, "embeddings")->data;
        for (int k = 0; k < WIDTH; k++)
            cosine += (double)vector[k] * same[k];
        assert_true(cosine > 0.99999);
        assert_int_equal(((const int32_t *)counts->data)[i],
                         *(const int32_t *)output_named(&alone, "prompt_tokens")->data);
        release(&its, &alone);
    }
    release(&its, &together);
    fixture_close(&its);
}

static void test_long_texts(void **state)
{
    (void)state;
    fixture its = fixture_open(bert_path, NULL, 0);
    char text[400];
    weir_outputs outputs;
    memset(text, 'a', sizeof text - 1);
    for (int i = 1; i < 399; i += 2)
        text[i] = ' ';
    text[399] = 0;
    weir_tensor input = text_input(text);
    assert_int_equal(infer(&its, &input, NULL, 0, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "text 1 has 20"));
    memcpy(text, "a\nb\n", 4);
    assert_int_equal(infer(&its, &input, NULL, 0, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "text 3 has "));
    assert_non_null(strstr(weir_detail(), "truncate"));
    weir_setting cut = {"truncate", "1"};
    OK(infer(&its, &input, &cut, 1, &outputs));
    release(&its, &outputs);
    fixture_close(&its);
}

/* The last token of a text is the mark of its end, which a cut one has at its last place. */
static void test_a_cut_text_keeps_its_end(void **state)
{
    (void)state;
    enum { LONG = 300, END_MARK = 9 };
    static const weir_setting cut[] = {{"truncate", "1"}};
    fixture its = fixture_open(bert_path, NULL, 0);
    int32_t row[LONG];
    weir_outputs outputs[3];
    for (int i = 0; i < LONG; i++)
        row[i] = 1 + i % 7;
    row[LONG - 1] = END_MARK;
    weir_tensor input = token_input(row, 0, LONG);
    OK(infer(&its, &input, cut, 1, &outputs[0]));
    int32_t kept = *(const int32_t *)output_named(&outputs[0], "prompt_tokens")->data;
    assert_true(kept > 1 && kept < LONG);
    for (int i = 1; i < 3; i++) { /* without its end, and with it */
        row[kept - 1] = i == 1 ? row[kept - 1] : END_MARK;
        input = token_input(row, 0, kept);
        OK(infer(&its, &input, NULL, 0, &outputs[i]));
    }
    const weir_tensor *whole = output_named(&outputs[0], "embeddings");
    assert_memory_not_equal(whole->data, output_named(&outputs[1], "embeddings")->data, whole->bytes);
    assert_memory_equal(whole->data, output_named(&outputs[2], "embeddings")->data, whole->bytes);
    for (int i = 0; i < 3; i++)
        release(&its, &outputs[i]);
    fixture_close(&its);
}

/* ---- generation ------------------------------------------------------------------------------------------------- */

typedef struct pieces {
    char text[512];
    int32_t tokens[64];
    size_t count, most;
} pieces;

static bool on_piece(const weir_piece *piece, void *user)
{
    pieces *to = user;
    assert_int_equal(piece->index, to->count);
    strncat(to->text, piece->text, piece->bytes);
    to->tokens[to->count++] = piece->token;
    return to->count < to->most;
}

static void test_stream(void **state)
{
    (void)state;
    static const weir_setting ways[][4] = {
        {{"tokens", "20"}, {"ignore_eos", "1"}},
        {{"tokens", "20"}, {"ignore_eos", "1"}, {"temperature", "0.9"}, {"seed", "7"}},
    };
    fixture its = fixture_open(llama_path, NULL, 0);
    weir_tensor input = text_input("abc");
    for (int way = 0; way < 2; way++) {
        size_t count = way ? 4 : 2;
        weir_outputs whole, streamed = WEIR_INIT(weir_outputs);
        pieces got = {.most = 64};
        weir_inference inference = inference_of(&input, ways[way], count);
        OK(infer(&its, &input, ways[way], count, &whole));
        OK(its.it.engine->infer_stream(its.model, &inference, on_piece, &got, &streamed));
        assert_int_equal(got.count, 20);
        assert_memory_equal(got.tokens, output_named(&whole, "tokens")->data, 20 * sizeof *got.tokens);
        const weir_tensor *text = output_named(&whole, "text");
        assert_int_equal(strlen(got.text), text->bytes);
        if (text->bytes)
            assert_memory_equal(got.text, text->data, text->bytes);
        release(&its, &streamed);

        got = (pieces){.most = 5};
        OK(its.it.engine->infer_stream(its.model, &inference, on_piece, &got, &streamed));
        assert_int_equal(output_named(&streamed, "tokens")->shape[0], 5);
        assert_memory_equal(got.tokens, output_named(&whole, "tokens")->data, 5 * sizeof *got.tokens);
        release(&its, &streamed);
        release(&its, &whole);
    }
    fixture_close(&its);
}

static void test_room(void **state)
{
    (void)state;
    fixture its = fixture_open(llama_path, NULL, 0);
    weir_setting many = {"tokens", "400"}, none[] = {{"tokens", "0"}, {"logits", "1"}};
    weir_tensor input = text_input("abc");
    weir_outputs outputs;
    assert_int_equal(infer(&its, &input, &many, 1, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "context"));
    OK(infer(&its, &input, none, 2, &outputs));
    assert_int_equal(output_named(&outputs, "tokens")->shape[0], 0);
    assert_int_equal(output_named(&outputs, "logits")->shape[0], 286);
    release(&its, &outputs);
    fixture_close(&its);
}

/* ---- cancel ----------------------------------------------------------------------------------------------------- */

typedef struct worker {
    const fixture *its;
    const weir_tensor *input;
    const weir_setting *settings;
    size_t setting_count;
    uint64_t id;
    weir_status status;
    double seconds;
    double work; /* of the processor, for this thread, which computes alone: what else the machine does is none of it */
} worker;

static double now_by(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static double now(void)
{
    return now_by(CLOCK_MONOTONIC);
}

static void *work(void *user)
{
    worker *it = user;
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(it->input, it->settings, it->setting_count);
    inference.id = it->id;
    double begin = now(), done = now_by(CLOCK_THREAD_CPUTIME_ID);
    it->status = it->its->it.engine->infer(it->its->model, &inference, &outputs);
    it->work = now_by(CLOCK_THREAD_CPUTIME_ID) - done;
    it->seconds = now() - begin;
    if (it->status == WEIR_OK)
        release(it->its, &outputs);
    return NULL;
}

/* A run is cancelled on its way, and one that waits for it before that; whether both were, and the first with less
 * work than it takes. A machine that does other work may let it end before. */
static bool stops(const fixture *its, const worker *whole)
{
    const weir_engine *engine = its->it.engine;
    worker cut = *whole, waiting = *whole;
    pthread_t thread, second;
    cut.id = 5;
    waiting.id = 6;
    assert_int_equal(pthread_create(&thread, NULL, work, &cut), 0);
    struct timespec moment = {0, (long)(whole->seconds * 0.1e9) % 1000000000};
    nanosleep(&moment, NULL);
    assert_int_equal(pthread_create(&second, NULL, work, &waiting), 0);
    weir_status of_waiting = WEIR_ERR_NOT_FOUND, of_cut;
    for (double begin = now(); of_waiting == WEIR_ERR_NOT_FOUND && now() < begin + whole->seconds;)
        of_waiting = engine->cancel(its->model, 6);
    of_cut = engine->cancel(its->model, 5);
    pthread_join(second, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(waiting.status, of_waiting == WEIR_OK ? WEIR_ERR_CANCELLED : WEIR_OK);
    assert_int_equal(cut.status, of_cut == WEIR_OK ? WEIR_ERR_CANCELLED : WEIR_OK);
    print_message("whole %.2f s of work, cancelled after %.2f s\n", whole->work, cut.work);
    return of_waiting == WEIR_OK && of_cut == WEIR_OK && cut.work < whole->work * 0.8;
}

static void cancel_in(const fixture *its, const weir_tensor *input, const weir_setting *settings, size_t count)
{
    const weir_engine *engine = its->it.engine;
    worker whole = {its, input, settings, count, 1, WEIR_OK, 0, 0};
    bool stopped = false;
    for (int attempt = 0; attempt < 10 && !stopped; attempt++) {
        work(&whole);
        OK(whole.status);
        assert_int_equal(engine->cancel(its->model, 0), WEIR_ERR_NOT_FOUND);
        assert_int_equal(engine->cancel(its->model, 77), WEIR_ERR_NOT_FOUND);
        stopped = stops(its, &whole);
    }
    assert_true(stopped);
    work(&whole);
    OK(whole.status);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(engine->metrics(its->model, &metrics));
    assert_true(metrics.cancelled >= 2 && metrics.runs >= 2 && metrics.failures == 0);
}

static void test_cancel(void **state)
{
    (void)state;
    static const weir_setting load[] = {{"threads", "1"}, {"batch", "2048"}};
    static const weir_setting prompt_only[] = {{"tokens", "1"}},
                              mostly_answer[] = {{"tokens", "1500"}, {"ignore_eos", "1"}};
    int32_t tokens[2048];
    for (int i = 0; i < 2048; i++)
        tokens[i] = 260 + i * 5 % 26;
    fixture its = fixture_open(long_path, load, 2);
    weir_tensor prompt = token_input(tokens, 0, 2048), little = token_input(tokens, 0, 4);
    cancel_in(&its, &prompt, prompt_only, 1);
    cancel_in(&its, &little, mostly_answer, 2);
    fixture_close(&its);
}

/* ---- several at once -------------------------------------------------------------------------------------------- */

typedef struct pair {
    const fixture *its;
    weir_tensor input;
    const weir_setting *settings;
    size_t count;
    unsigned char expected[4096];
    size_t bytes;
    int wrong;
} pair;

static void *many_runs(void *user)
{
    pair *it = user;
    for (int i = 0; i < 20; i++) {
        weir_outputs outputs;
        if (infer(it->its, &it->input, it->settings, it->count, &outputs) != WEIR_OK) {
            it->wrong++;
            continue;
        }
        it->wrong +=
            outputs.tensors[0].bytes != it->bytes || memcmp(outputs.tensors[0].data, it->expected, it->bytes) != 0;
        release(it->its, &outputs);
    }
    return NULL;
}

static void expect(pair *it)
{
    weir_outputs outputs;
    OK(infer(it->its, &it->input, it->settings, it->count, &outputs));
    it->bytes = outputs.tensors[0].bytes;
    memcpy(it->expected, outputs.tensors[0].data, it->bytes);
    release(it->its, &outputs);
}

static void test_threads(void **state)
{
    (void)state;
    static const weir_setting settings[] = {{"tokens", "8"}, {"ignore_eos", "1"}};
    fixture llama = fixture_open(llama_path, one_thread, 1), bert = fixture_open(bert_path, one_thread, 1);
    pair pairs[3] = {{.its = &llama, .input = text_input("abc"), .settings = settings, .count = 2},
                     {.its = &bert, .input = text_input("a cab\nfed")},
                     {.its = &llama, .input = text_input("zyx"), .settings = settings, .count = 2}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        expect(&pairs[i]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_runs, &pairs[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(pairs[i].wrong, 0);
    }
    fixture_close(&bert);
    fixture_close(&llama);
}

static void *load_often(void *user)
{
    const char *path = user;
    for (int i = 0; i < 5; i++) {
        fixture its = fixture_open(path, one_thread, 1);
        fixture_close(&its);
    }
    return NULL;
}

static void test_loading_at_once(void **state)
{
    (void)state;
    pthread_t one, other;
    the_engine();
    assert_int_equal(pthread_create(&one, NULL, load_often, llama_path), 0);
    assert_int_equal(pthread_create(&other, NULL, load_often, bert_path), 0);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
}

/* ---- wrong questions -------------------------------------------------------------------------------------------- */

static void refused(const fixture *its, const weir_tensor *input, const weir_setting *settings, size_t count,
                    const char *named)
{
    weir_outputs outputs;
    assert_int_equal(infer(its, input, settings, count, &outputs), WEIR_ERR_INVALID);
    if (!strstr(weir_detail(), named))
        print_error("expected '%s' in: %s\n", named, weir_detail());
    assert_non_null(strstr(weir_detail(), named));
}

static void test_wrong_questions(void **state)
{
    (void)state;
    static const int32_t good[] = {1, 260}, bad[] = {1, 999}, gap[] = {2, -1, 3, 3};
    fixture its = fixture_open(llama_path, NULL, 0), bert = fixture_open(bert_path, NULL, 0);
    weir_tensor text = text_input("abc"), other = text, empty = text_input(""), two[2] = {text, text};
    weir_tensor tokens = token_input(bad, 0, 2), rows = token_input(good, 1, 2), hole = token_input(gap, 1, 4);
    other.name = "image";
    refused(&its, &other, NULL, 0, "image");
    refused(&its, &empty, NULL, 0, "empty");
    refused(&its, &tokens, NULL, 0, "999");
    refused(&its, &rows, NULL, 0, "rank 2");
    refused(&bert, &hole, NULL, 0, "-1");
    other = text;
    other.type = WEIR_TYPE_F32;
    refused(&its, &other, NULL, 0, "f32");
    other = text;
    other.bytes = 1;
    refused(&its, &other, NULL, 0, "bytes");
    weir_inference inference = inference_of(two, NULL, 0);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    inference.input_count = 2;
    assert_int_equal(its.it.engine->infer(its.model, &inference, &outputs), WEIR_ERR_INVALID);
    inference.input_count = 0;
    assert_int_equal(its.it.engine->infer(its.model, &inference, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "missing"));
    static const weir_setting wrong[] = {{"colour", "blue"},  {"tokens", "many"}, {"tokens", "-2"}, {"top_p", "nan"},
                                         {"logits", "maybe"}, {"threads", "2"},   {"chat", "1"}};
    static const char *const named[] = {"top_k", "many", "-1", "nan", "maybe", "of loading", "template"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(&its, &text, &wrong[i], 1, named[i]);
    inference = inference_of(&text, NULL, 0);
    assert_int_equal(bert.it.engine->infer_stream(bert.model, &inference, on_piece, NULL, &outputs),
                     WEIR_ERR_UNSUPPORTED);
    fixture_close(&bert);
    fixture_close(&its);
}

static void test_wrong_loads(void **state)
{
    (void)state;
    bench it = bench_open(llama_path, 1ull << 28);
    weir_engine_model *model = NULL;
    static const weir_setting wrong[] = {{"colour", "blue"}, {"pooling", "max"}, {"threads", "x"}, {"context", "-4"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(bench_load(&it, &wrong[i], 1, &model), WEIR_ERR_INVALID);
    it.load.path = bert_path;
    weir_setting wide = {"context", "4096"}, unpooled = {"pooling", "none"};
    assert_int_equal(bench_load(&it, &wide, 1, &model), WEIR_ERR_INVALID);
    assert_int_equal(bench_load(&it, &unpooled, 1, &model), WEIR_ERR_UNSUPPORTED);
    it.load.path = "/nonexistent.gguf";
    assert_int_equal(bench_load(&it, NULL, 0, &model), WEIR_ERR_NOT_FOUND);
    it.load.path = "/tmp";
    assert_int_equal(bench_load(&it, NULL, 0, &model), WEIR_ERR_INVALID);
    bench_close(&it);
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

static void on_progress(double fraction, void *user)
{
    double *last = user;
    assert_true(fraction >= *last && fraction <= 1);
    *last = fraction;
}

/* The program has an engine of its own, and exports its entry: symbols of a program go before those of its plug-ins. */
WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);

const weir_engine *weir_engine_entry(uint32_t abi)
{
    (void)abi;
    return NULL;
}

static void test_the_rest(void **state)
{
    (void)state;
    bench it = bench_open(bert_path, 1ull << 28);
    weir_engine_model *model = NULL;
    double progress = 0;
    it.load.progress = on_progress;
    it.load.progress_user = &progress;
    OK(bench_load(&it, NULL, 0, &model));
    assert_true(progress == 1);
    weir_model_details info = WEIR_INIT(weir_model_details);
    OK(it.engine->info(model, &info));
    assert_string_equal(info.engine, "gguf");
    assert_non_null(strstr(info.architecture, "bert"));
    assert_int_equal(info.output_count, 2);
    assert_false(info.generates);
    OK(it.engine->warm_up(model));
    OK(it.engine->health(model));
    it.engine->unload(model);
    bench_close(&it);
}

/* D31: another provider than those there are is refused, not passed over, and so is one without a place for it. */
static void test_the_providers(void **state)
{
    (void)state;
    bench it = bench_open(llama_path, 1ull << 30);
    weir_engine_provider found = WEIR_INIT(weir_engine_provider);
    weir_engine_model *model;
    OK(it.engine->provider(0, &found));
    assert_string_equal(found.name, "cuda");
    assert_true(found.state == WEIR_PROVIDER_NOT_BUILT
                    ? strstr(found.missing, "scripts/engines --cuda") != NULL
                    : strstr(found.library, "libggml-cuda") != NULL &&
                          (found.state == WEIR_PROVIDER_HERE || strstr(found.missing, "needs lib") != NULL));
    OK(it.engine->provider(1, &found));
    assert_string_equal(found.name, "cpu");
    assert_int_equal(found.state, WEIR_PROVIDER_HERE);
    assert_non_null(strstr(found.library, "libllama"));
    assert_int_equal(it.engine->provider(2, &found), WEIR_ERR_NOT_FOUND);
    it.load.provider = "cuda";
    assert_int_equal(bench_load(&it, NULL, 0, &model), WEIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(weir_detail(), "the provider cuda needs a place on cuda"));
    it.load.provider = "metal";
    assert_int_equal(bench_load(&it, NULL, 0, &model), WEIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(weir_detail(), "the providers cuda and cpu, not metal"));
    it.load.provider = "CPU";
    OK(bench_load(&it, NULL, 0, &model));
    weir_model_details info = WEIR_INIT(weir_model_details);
    OK(it.engine->info(model, &info));
    assert_int_equal(info.share_count, 1);
    assert_string_equal(info.shares[0].provider, "cpu");
    assert_true(info.shares[0].of > 0);
    assert_int_equal(info.shares[0].parts, info.shares[0].of);
    it.engine->unload(model);
    bench_close(&it);
}

static void test_types(void **state)
{
    (void)state;
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    OK(the_engine()->probe(&probe));
    plain lib = plain_library(probe.library);
    for (uint32_t type = 0; type < GGML_TYPE_COUNT; type++) {
        uint32_t elements = 0, size = 0;
        bool known = wi_gguf_type_block(type, &elements, &size);
        assert_int_equal(known, lib.ggml_blck_size((enum ggml_type)type) != 0);
        if (known) {
            assert_int_equal(elements, lib.ggml_blck_size((enum ggml_type)type));
            assert_int_equal(size, lib.ggml_type_size((enum ggml_type)type));
        }
    }
    uint32_t elements, size;
    assert_false(wi_gguf_type_block(GGML_TYPE_COUNT, &elements, &size));
}

static void test_older_callers_get_what_they_have_room_for(void **state)
{
    (void)state;
    fixture its = fixture_open(llama_path, NULL, 0);
    weir_engine_load load = {.struct_size = sizeof load, .path = llama_path};
    assert_int_equal(older_callers_get_too_much(&(older){its.it.engine, its.model, &load}), 0);
    fixture_close(&its);
}

int main(void)
{
    model_shape large = {.layers = 4, .width = 256, .heads = 8, .heads_kv = 4, .wide = 512, .context = 4096};
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-engine-%d-l.gguf", (int)getpid());
    snprintf(bert_path, sizeof bert_path, "/tmp/weir-engine-%d-b.gguf", (int)getpid());
    snprintf(long_path, sizeof long_path, "/tmp/weir-engine-%d-c.gguf", (int)getpid());
    write_llama(llama_path, &small_shape);
    write_bert(bert_path, &small_shape);
    write_llama(long_path, &large);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_a_context_by_settings_is_llama_cpps_own),
        cmocka_unit_test(test_a_decoder_that_pools_embeds_several_texts_at_once),
        cmocka_unit_test(test_normalized_in_any_company),
        cmocka_unit_test(test_many_short_texts),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_a_cut_text_keeps_its_end),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_loading_at_once),
        cmocka_unit_test(test_wrong_questions),
        cmocka_unit_test(test_wrong_loads),
        cmocka_unit_test(test_the_rest),
        cmocka_unit_test(test_the_providers),
        cmocka_unit_test(test_older_callers_get_what_they_have_room_for),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(llama_path);
    unlink(bert_path);
    unlink(long_path);
    return failed;
}
