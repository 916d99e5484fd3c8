/* text.c: what a text is begun with, chosen by and ended by: chats, samplers, grammars, stop words, log probabilities.
 * Each is compared with the same of llama.cpp's without weir. */
#include "common.h"
#include <weir/engine.h>
#include "plain.h"

#include <math.h>
#include <unistd.h>

enum { MADE = 40, END = 2, BATCH = 64, PROMPT = 12 };

static char path[64];
static const weir_setting load[] = {{"threads", "1"}, {"batch", "64"}};
static int32_t prompt[PROMPT];

typedef struct answer {
    int32_t tokens[MADE];
    size_t count, bytes;
    char text[4096], finish[16], stop[64];
    char streamed[4096];
    size_t pieces, streamed_bytes;
} answer;

static bool on_piece(const weir_piece *piece, void *user)
{
    answer *to = user;
    assert_int_equal(piece->index, to->pieces);
    to->pieces++;
    memcpy(to->streamed + to->streamed_bytes, piece->text, piece->bytes);
    to->streamed_bytes += piece->bytes;
    return true;
}

static void copy_text(const weir_outputs *from, const char *name, char *to)
{
    to[0] = 0;
    for (size_t i = 0; i < from->count; i++)
        if (strcmp(from->tensors[i].name, name) == 0)
            sprintf(to, "%.*s", (int)from->tensors[i].bytes, (const char *)from->tensors[i].data);
}

static answer ask_with(const fixture *its, const weir_tensor *input, const weir_setting *settings, size_t count)
{
    answer got = {0};
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(input, settings, count);
    OK(its->it.engine->infer_stream(its->model, &inference, on_piece, &got, &outputs));
    const weir_tensor *tokens = output_named(&outputs, "tokens"), *text = output_named(&outputs, "text");
    got.count = tokens->bytes / sizeof *got.tokens;
    got.bytes = text->bytes;
    if (got.count)
        memcpy(got.tokens, tokens->data, tokens->bytes);
    if (got.bytes)
        memcpy(got.text, text->data, text->bytes);
    copy_text(&outputs, "finish_reason", got.finish);
    copy_text(&outputs, "stop_word", got.stop);
    release(its, &outputs);
    /* Every token came as a piece, and the pieces together are the text. */
    assert_int_equal(got.pieces, got.count);
    assert_int_equal(got.streamed_bytes, got.bytes);
    assert_memory_equal(got.streamed, got.text, got.bytes);
    return got;
}

static answer ask(const fixture *its, const weir_setting *settings, size_t count)
{
    weir_tensor input = token_input(prompt, 0, PROMPT);
    return ask_with(its, &input, settings, count);
}

static void refused_with(const fixture *its, const weir_tensor *input, weir_setting setting, const char *words)
{
    weir_outputs outputs;
    assert_int_equal(infer(its, input, &setting, 1, &outputs), WEIR_ERR_INVALID);
    if (!strstr(weir_detail(), words))
        print_error("'%s' is not in: %s\n", words, weir_detail());
    assert_non_null(strstr(weir_detail(), words));
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

/* The last token that is made is never computed with, and needs no room. */
static void test_as_many_tokens_as_there_is_room_for(void **state)
{
    static const weir_setting narrow[] = {{"threads", "1"}, {"context", "256"}};
    static const weir_setting all[] = {{"tokens", "-1"}, {"ignore_eos", "1"}, {"logprobs", "2"}};
    enum { CONTEXT = 256 };
    (void)state;
    fixture its = fixture_open(path, narrow, 2);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    OK(infer(&its, &input, all, 3, &outputs));
    const weir_tensor *tokens = output_named(&outputs, "tokens"), *text = output_named(&outputs, "text");
    const weir_tensor *tops = output_named(&outputs, "top_texts"), *ends = output_named(&outputs, "top_text_ends");
    size_t made = tokens->bytes / sizeof(int32_t), at = 0;
    assert_int_equal(made, CONTEXT - PROMPT + 1);
    assert_int_equal(*(const int32_t *)output_named(&outputs, "prompt_tokens")->data, PROMPT);
    /* The likeliest was taken each time, so its texts are the text. */
    assert_int_equal(ends->bytes, made * 2 * sizeof(int32_t));
    for (size_t i = 0; i < made; i++) {
        const int32_t *end = (const int32_t *)ends->data + 2 * i;
        int32_t begin = i > 0 ? end[-1] : 0;
        assert_memory_equal((const char *)tops->data + begin, (const char *)text->data + at, (size_t)(end[0] - begin));
        at += (size_t)(end[0] - begin);
    }
    assert_int_equal(at, text->bytes);
    release(&its, &outputs);
    fixture_close(&its);
}

/* ---- stop words ------------------------------------------------------------------------------------------------- */

#define GREEDY                                                                                                         \
    {"tokens", "40"}, {"ignore_eos", "1"},                                                                             \
    {                                                                                                                  \
        "temperature", "0"                                                                                             \
    }

/* A word as it is written in a setting. */
static void escape(const char *word, size_t length, char *to)
{
    for (size_t i = 0; i < length; i++) {
        if (word[i] == '\n' || word[i] == '\t' || word[i] == '\\')
            *to++ = '\\';
        *to++ = word[i] == '\n' ? 'n' : word[i] == '\t' ? 't' : word[i];
    }
    *to = 0;
}

static void test_a_stop_word_ends_the_text_wherever_its_tokens_end(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    const weir_setting whole[] = {GREEDY};
    answer all = ask(&its, whole, 3);
    assert_int_equal(all.count, MADE);
    assert_string_equal(all.finish, "length");
    int tried = 0;
    for (size_t at = 0; at + 8 < all.bytes; at++)
        for (size_t length = 1; length < 8; length += 3) {
            char value[64] = "never\n";
            if (memchr(all.text + at, 0, length))
                continue;
            escape(all.text + at, length, value + strlen(value));
            const weir_setting stopped[] = {GREEDY, {"stop", value}};
            answer got = ask(&its, stopped, 4);
            const char *first = memmem(all.text, all.bytes, all.text + at, length);
            assert_int_equal(got.bytes, first - all.text);
            assert_memory_equal(got.text, all.text, got.bytes);
            assert_memory_equal(got.tokens, all.tokens, got.count * sizeof *got.tokens);
            assert_string_equal(got.finish, "stop");
            assert_int_equal(strlen(got.stop), length);
            assert_memory_equal(got.stop, first, length);
            assert_true(got.count <= MADE);
            tried++;
        }
    assert_true(tried > 20);
    fixture_close(&its);
}

/* What could begin a word is held back, and given out when it does not. */
static void test_a_beginning_of_a_stop_word_is_given_out_when_it_is_none(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    const weir_setting whole[] = {GREEDY};
    answer all = ask(&its, whole, 3);
    for (size_t at = 0; at + 6 < all.bytes; at++) {
        char value[64];
        if (memchr(all.text + at, 0, 6))
            continue;
        escape(all.text + at, 6, value);
        strcat(value, "\x7f\x7f");
        const weir_setting stopped[] = {GREEDY, {"stop", value}};
        answer got = ask(&its, stopped, 4);
        assert_int_equal(got.count, MADE);
        assert_int_equal(got.bytes, all.bytes);
        assert_memory_equal(got.text, all.text, all.bytes);
        assert_string_equal(got.finish, "length");
        assert_string_equal(got.stop, "");
    }
    fixture_close(&its);
}

typedef struct watch {
    char text[4096];
    size_t bytes, pieces;
} watch;

static bool on_watched(const weir_piece *piece, void *user)
{
    watch *it = user;
    memcpy(it->text + it->bytes, piece->text, piece->bytes);
    it->bytes += piece->bytes;
    it->pieces++;
    return true;
}

/* Three times the text begins like the word; the third time it is the word, and nothing of that has been streamed. */
static void test_what_may_be_a_stop_word_is_not_streamed(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    const weir_setting forced[] = {
        {"tokens", "9"}, {"temperature", "0"}, {"grammar", "root ::= \"xaxbxcxay\""}, {"stop", "xay"}};
    weir_tensor input = token_input(prompt, 0, PROMPT);
    weir_inference inference = inference_of(&input, forced, 4);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    watch seen = {.bytes = 0};
    OK(its.it.engine->infer_stream(its.model, &inference, on_watched, &seen, &outputs));
    assert_int_equal(seen.bytes, 6);
    assert_memory_equal(seen.text, "xaxbxc", 6);
    assert_int_equal(output_named(&outputs, "text")->bytes, 6);
    assert_int_equal(output_named(&outputs, "tokens")->shape[0], 9);
    assert_int_equal(seen.pieces, 9);
    release(&its, &outputs);
    fixture_close(&its);
}

static void test_the_end_token_ends_a_text_and_says_so(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    const weir_setting ended[] = {{"tokens", "9"}, {"temperature", "0"}, {"logit_bias", "2:1000"}};
    answer got = ask(&its, ended, 3);
    assert_int_equal(got.count, 0);
    assert_string_equal(got.finish, "stop");
    assert_string_equal(got.stop, "");
    const weir_setting goes_on[] = {
        {"tokens", "9"}, {"temperature", "0"}, {"logit_bias", "2:1000"}, {"ignore_eos", "1"}};
    got = ask(&its, goes_on, 4); /* whatever the list says of it */
    assert_int_equal(got.count, 9);
    for (size_t i = 0; i < got.count; i++)
        assert_int_not_equal(got.tokens[i], END);
    fixture_close(&its);
}

static void test_wrong_stop_words_are_refused(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    char many[256] = "";
    for (int i = 0; i < 65; i++)
        strcat(many, "a\n");
    refused_with(&its, &input, (weir_setting){"stop", "a\\q"}, "backslash");
    refused_with(&its, &input, (weir_setting){"stop", "a\\"}, "backslash");
    refused_with(&its, &input, (weir_setting){"stop", many}, "64");
    fixture_close(&its);
}

/* ---- log probabilities ------------------------------------------------------------------------------------------ */

static void test_log_probabilities_are_the_models_before_any_sampler(void **state)
{
    (void)state;
    static const weir_setting settings[] = {{"tokens", "10"},  {"ignore_eos", "1"}, {"temperature", "1.5"},
                                            {"logprobs", "5"}, {"seed", "3"},       {"repeat_penalty", "1.4"}};
    fixture its = fixture_open(path, load, 2);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    weir_outputs outputs;
    OK(infer(&its, &input, settings, 6, &outputs));
    const int32_t *tokens = output_named(&outputs, "tokens")->data, *tops = output_named(&outputs, "top_tokens")->data;
    const float *own = output_named(&outputs, "logprobs")->data, *best = output_named(&outputs, "top_logprobs")->data;
    assert_int_equal(output_named(&outputs, "logprobs")->shape[0], 10);
    assert_int_equal(output_named(&outputs, "top_tokens")->rank, 2);
    assert_int_equal(output_named(&outputs, "top_tokens")->shape[1], 5);
    plain other = plain_of(its.it.engine);
    plain_open(&other, path, false, 128, BATCH, 1);
    plain_read(&other, prompt, PROMPT, BATCH);
    int width = other.llama_vocab_n_tokens(other.vocab);
    for (int i = 0; i < 10; i++) {
        const float *logits = other.llama_get_logits_ith(other.context, -1);
        double sum = exp((double)logits[0]);
        for (int k = 1; k < width; k++)
            sum += exp((double)logits[k]);
        assert_true(fabs(own[i] - (logits[tokens[i]] - log(sum))) < 1e-4);
        for (int k = 0; k < 5; k++) {
            int larger = 0;
            for (int j = 0; j < width; j++)
                larger += logits[j] > logits[tops[i * 5 + k]];
            assert_int_equal(larger, k);
            assert_true(fabs(best[i * 5 + k] - (logits[tops[i * 5 + k]] - log(sum))) < 1e-4);
        }
        plain_read(&other, &tokens[i], 1, 1);
    }
    plain_close(&other);
    release(&its, &outputs);
    refused_with(&its, &input, (weir_setting){"logprobs", "287"}, "286");
    fixture_close(&its);
}

/* ---- samplers --------------------------------------------------------------------------------------------------- */

typedef struct way {
    const char *name;
    weir_setting settings[6];
    size_t count;
} way;

static const way ways[] = {
    {"usual", {{"temperature", "0.8"}, {"seed", "5"}, {"top_k", "20"}}, 3},
    {"typical", {{"temperature", "1"}, {"seed", "5"}, {"typical_p", "0.5"}}, 3},
    {"xtc", {{"temperature", "1"}, {"seed", "5"}, {"xtc_probability", "0.7"}, {"xtc_threshold", "0.001"}}, 4},
    {"sigma", {{"temperature", "1"}, {"seed", "5"}, {"top_n_sigma", "1.5"}}, 3},
    {"dynamic", {{"temperature", "1"}, {"seed", "5"}, {"dynatemp_range", "0.5"}, {"dynatemp_exponent", "1.5"}}, 4},
    {"mirostat", {{"temperature", "0.9"}, {"seed", "5"}, {"mirostat", "1"}, {"mirostat_tau", "3"}}, 4},
    {"mirostat 2", {{"temperature", "0.9"}, {"seed", "5"}, {"mirostat", "2"}, {"mirostat_eta", "0.2"}}, 4},
    {"penalties",
     {{"temperature", "0"},
      {"repeat_penalty", "1.3"},
      {"repeat_last_n", "20"},
      {"frequency_penalty", "0.4"},
      {"presence_penalty", "3"}},
     5},
    {"dry",
     {{"temperature", "0"},
      {"dry_multiplier", "0.8"},
      {"dry_allowed_length", "1"},
      {"dry_base", "1.5"},
      {"dry_penalty_last_n", "12"},
      {"dry_sequence_breakers", "q\n\\n"}},
     6},
    {"bias", {{"temperature", "0"}, {"logit_bias", " \n260:5, 261:-inf \n,\n262:-3.5 , \n "}}, 2},
};

static void plain_add_to(const plain *it, struct llama_sampler *chain, struct llama_sampler *one)
{
    it->llama_sampler_chain_add(chain, one);
}
#define ADD(...) plain_add_to(it, chain, it->__VA_ARGS__)

static void plain_usual(const plain *it, struct llama_sampler *chain, const char *name)
{
    if (strcmp(name, "sigma") == 0)
        ADD(llama_sampler_init_top_n_sigma(1.5f));
    ADD(llama_sampler_init_top_k(strcmp(name, "usual") == 0 ? 20 : 40));
    if (strcmp(name, "typical") == 0)
        ADD(llama_sampler_init_typical(0.5f, 1));
    ADD(llama_sampler_init_top_p(0.95f, 1));
    ADD(llama_sampler_init_min_p(0.05f, 1));
    if (strcmp(name, "xtc") == 0)
        ADD(llama_sampler_init_xtc(0.7f, 0.001f, 1, 5));
    if (strcmp(name, "dynamic") == 0)
        ADD(llama_sampler_init_temp_ext(1, 0.5f, 1.5f));
    else
        ADD(llama_sampler_init_temp(strcmp(name, "usual") == 0 ? 0.8f : 1));
    ADD(llama_sampler_init_dist(5));
}

/* The same chain, by llama.cpp's functions alone. */
static struct llama_sampler *plain_chain(const plain *it, const char *name)
{
    static const char *breakers[] = {"q", "\n"};
    static const struct llama_logit_bias end = {END, -INFINITY};
    static const struct llama_logit_bias all[] = {{260, 5}, {261, -INFINITY}, {262, -3.5f}, {END, -INFINITY}};
    int32_t width = it->llama_vocab_n_tokens(it->vocab);
    struct llama_sampler *chain = it->llama_sampler_chain_init(it->llama_sampler_chain_default_params());
    bool biased = strcmp(name, "bias") == 0;
    ADD(llama_sampler_init_logit_bias(width, biased ? 4 : 1, biased ? all : &end));
    if (strcmp(name, "penalties") == 0)
        ADD(llama_sampler_init_penalties(width, 20, 1.3f, 0.4f, 3));
    if (strcmp(name, "dry") == 0)
        ADD(llama_sampler_init_dry(it->vocab, 0.8f, 1.5f, 1, 12, breakers, 2));
    for (int i = 0; i < PROMPT; i++)
        it->llama_sampler_accept(chain, prompt[i]);
    if (strncmp(name, "mirostat", 8) == 0)
        ADD(llama_sampler_init_temp(0.9f));
    if (strcmp(name, "mirostat") == 0)
        ADD(llama_sampler_init_mirostat(width, 5, 3, 0.1f, 100));
    else if (strcmp(name, "mirostat 2") == 0)
        ADD(llama_sampler_init_mirostat_v2(5, 5, 0.2f));
    else if (strcmp(name, "penalties") == 0 || strcmp(name, "dry") == 0 || biased)
        ADD(llama_sampler_init_greedy());
    else
        plain_usual(it, chain, name);
    return chain;
}

static void plain_answer(plain *it, struct llama_sampler *chain, int32_t *out)
{
    it->llama_memory_clear(it->llama_get_memory(it->context), false);
    plain_read(it, prompt, PROMPT, BATCH);
    for (int i = 0; i < MADE; i++) {
        out[i] = it->llama_sampler_sample(chain, it->context, -1);
        plain_read(it, &out[i], 1, 1);
    }
    it->llama_sampler_free(chain);
}

static void test_every_sampler_chooses_as_llama_cpp_does_alone(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    plain other = plain_of(its.it.engine);
    plain_open(&other, path, false, 128, BATCH, 1);
    const weir_setting greedy[] = {GREEDY};
    answer likeliest = ask(&its, greedy, 3);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        weir_setting settings[8] = {{"tokens", "40"}, {"ignore_eos", "1"}};
        int32_t expected[MADE];
        memcpy(settings + 2, ways[i].settings, sizeof ways[i].settings);
        plain_answer(&other, plain_chain(&other, ways[i].name), expected);
        answer got = ask(&its, settings, 2 + ways[i].count);
        if (memcmp(got.tokens, expected, sizeof expected) != 0)
            print_error("%s chooses otherwise\n", ways[i].name);
        assert_memory_equal(got.tokens, expected, sizeof expected);
        assert_true(memcmp(got.tokens, likeliest.tokens, sizeof expected) != 0);
    }
    plain_close(&other);
    fixture_close(&its);
}

static void test_penalties_see_the_prompt(void **state)
{
    (void)state;
    const int places[] = {1, PROMPT - 1}; /* the last one, too */
    fixture its = fixture_open(path, load, 2);
    for (int i = 0; i < 2; i++) {
        char bias[32];
        int32_t token = prompt[places[i]];
        snprintf(bias, sizeof bias, "%d:20", token);
        const weir_setting seen[] = {
            {"tokens", "1"}, {"temperature", "0"}, {"logit_bias", bias}, {"presence_penalty", "50"}};
        assert_int_equal(ask(&its, seen, 3).tokens[0], token); /* without the penalty */
        assert_int_not_equal(ask(&its, seen, 4).tokens[0], token);
    }
    fixture_close(&its);
}

static void test_wrong_samplers_are_refused(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    static const char *const biases[] = {"260", "260:", "x:1", "286:1", "-1:1", "260:nan", "260:1 261:2", "260:1,:"};
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        refused_with(&its, &input, (weir_setting){"logit_bias", biases[i]}, "logit_bias");
    /* One for each token is not too many, and one more is. */
    enum { TOKENS = 286 };
    static char all[TOKENS * 8];
    for (int i = 0, used = 0; i < TOKENS; i++)
        used += snprintf(all + used, sizeof all - (size_t)used, "%s%d:1", i ? "," : "", i);
    ask(&its, &(weir_setting){"logit_bias", all}, 1);
    strcat(all, ",0:1");
    refused_with(&its, &input, (weir_setting){"logit_bias", all}, "logit_bias");
    refused_with(&its, &input, (weir_setting){"mirostat", "3"}, "from 0 to 2");
    refused_with(&its, &input, (weir_setting){"dry_sequence_breakers", "\\x"}, "dry_sequence_breakers");
    fixture_close(&its);
}

/* A setting with its least and most, and what is beyond; "" where that is no number. */
typedef struct bound {
    const char *name, *least, *most, *below, *above;
} bound;

static const bound bounds[] = {
    {"tokens", "-1", "1", "-2", "2147483648"},
    {"temperature", "0", "1000", "-0.1", "1000.1"},
    {"top_k", "0", "2147483647", "-1", "2147483648"},
    {"top_p", "0", "1", "-0.1", "1.1"},
    {"min_p", "0", "1", "-0.1", "1.1"},
    {"typical_p", "0", "1", "-0.1", "1.1"},
    {"top_n_sigma", "-1", "1000", "-1.1", "1000.1"},
    {"dynatemp_range", "0", "1000", "-0.1", "1000.1"},
    {"dynatemp_exponent", "0", "1000", "-0.1", "1000.1"},
    {"xtc_probability", "0", "1", "-0.1", "1.1"},
    {"xtc_threshold", "0", "1", "-0.1", "1.1"},
    {"mirostat", "0", "2", "-1", "3"},
    {"mirostat_tau", "0", "1000", "-0.1", "1000.1"},
    {"mirostat_eta", "0", "1000", "-0.1", "1000.1"},
    {"repeat_penalty", "0.01", "100", "0.009", "100.1"},
    {"repeat_last_n", "-1", "2147483647", "-2", "2147483648"},
    {"frequency_penalty", "-100", "100", "-100.1", "100.1"},
    {"presence_penalty", "-100", "100", "-100.1", "100.1"},
    {"dry_multiplier", "0", "1000", "-0.1", "1000.1"},
    {"dry_base", "1", "1000", "0.9", "1000.1"},
    {"dry_allowed_length", "0", "2147483647", "-1", "2147483648"},
    {"dry_penalty_last_n", "-1", "2147483647", "-2", "2147483648"},
    {"seed", "0", "4294967295", "-1", "4294967296"},
    {"ignore_eos", "0", "1", "-1", "2"},
    {"chat", "0", "0", "-1", "2"},
    {"logprobs", "0", "286", "-1", "1001"},
    {"logits", "0", "1", "-1", "2"},
    {"state", "0", "1", "-1", "2"},
};

static void test_settings_end_where_they_say(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const char *const values[] = {bounds[i].least, bounds[i].most};
        for (int k = 0; k < 2; k++) {
            const weir_setting settings[] = {{"tokens", "1"}, {bounds[i].name, values[k]}};
            weir_outputs outputs;
            OK(infer(&its, &input, settings, 2, &outputs));
            release(&its, &outputs);
        }
        refused_with(&its, &input, (weir_setting){bounds[i].name, bounds[i].below}, bounds[i].name);
        refused_with(&its, &input, (weir_setting){bounds[i].name, bounds[i].above}, bounds[i].name);
    }
    fixture_close(&its);
}

/* ---- grammars --------------------------------------------------------------------------------------------------- */

static void test_a_grammar_leaves_only_its_texts(void **state)
{
    (void)state;
    static const char *const grammars[] = {"root ::= \"yes\" | \"no\"",
                                           "root ::= [a-c]+ \"x\" [0-9]{3}",
                                           "root ::= (ab | cd)* \"z\"\nab ::= \"ab\"\ncd ::= [cd]",
                                           "root ::= (\"a\"?)* \"q\"",
                                           "# digits\nroot ::= \"(\" root \")\" |\n  [0-9]",
                                           "root ::= <[270]> <[271]> | ![^a-z]"};
    fixture its = fixture_open(path, load, 2);
    plain other = plain_of(its.it.engine);
    plain_open(&other, path, false, 128, BATCH, 1);
    for (size_t i = 0; i < 5; i++) {
        const weir_setting settings[] = {{"tokens", "40"}, {"temperature", "0"}, {"grammar", grammars[i]}};
        answer got = ask(&its, settings, 3);
        struct llama_sampler *chain = other.llama_sampler_chain_init(other.llama_sampler_chain_default_params());
        other.llama_sampler_chain_add(chain, other.llama_sampler_init_grammar(other.vocab, grammars[i], "root"));
        other.llama_sampler_chain_add(chain, other.llama_sampler_init_greedy());
        other.llama_memory_clear(other.llama_get_memory(other.context), false);
        plain_read(&other, prompt, PROMPT, BATCH);
        size_t count = 0;
        for (; count < MADE; count++) {
            int32_t token = other.llama_sampler_sample(chain, other.context, -1);
            if (token == END)
                break;
            assert_true(count < got.count);
            assert_int_equal(token, got.tokens[count]);
            plain_read(&other, &token, 1, 1);
        }
        other.llama_sampler_free(chain);
        assert_int_equal(got.count, count);
        assert_string_equal(got.finish, count < MADE ? "stop" : "length");
        if (i == 0)
            assert_true(strcmp(got.text, "yes") == 0 || strcmp(got.text, "no") == 0);
    }
    fixture_close(&its);
    plain_close(&other);
}

static void repeat(char *to, const char *what, int times)
{
    for (to += strlen(to); times > 0; times--, to += strlen(what))
        strcpy(to, what);
}

/* What is refused, and why, tests/gguf/grammar.c asks of the reader itself. Here: a run is refused with its words. */
static void test_bad_grammars_are_refused_in_words(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *words;
    } bad[] = {
        {"root ::= \"a\"\n\n::= b", "line 3"},
        {"root ::= root \"a\" | \"b\"", "left recursion"},
        {"root ::= <[286]>", "no such token"},
        {"root ::= <nothing>", "not one token"},
    };
    fixture its = fixture_open(path, load, 2);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refused_with(&its, &input, (weir_setting){"grammar", bad[i].grammar}, bad[i].words);
        assert_non_null(strstr(weir_detail(), "grammar"));
    }
    const weir_setting both[] = {{"grammar", "root ::= \"a\""}, {"ignore_eos", "1"}};
    weir_outputs outputs;
    assert_int_equal(infer(&its, &input, both, 2, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "ignore_eos"));
    fixture_close(&its);
}

static void test_grammars_without_measure_are_refused(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 2);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    strcpy(text, "root ::= ");
    repeat(text, "(", 70000);
    refused_with(&its, &input, (weir_setting){"grammar", text}, "deep");
    /* Sixty doublings. */
    strcpy(text, "root ::= r0\n");
    for (int i = 0; i < 60; i++)
        sprintf(text + strlen(text), "r%d ::= r%d | r%d\n", i, i + 1, i + 1);
    strcat(text, "r60 ::= \"a\"\n");
    refused_with(&its, &input, (weir_setting){"grammar", text}, "ways");
    strcpy(text, "root ::= r0\n");
    for (int i = 0; i < 3000; i++)
        sprintf(text + strlen(text), "r%d ::= r%d\n", i, i + 1);
    strcat(text, "r3000 ::= \"a\"\n");
    refused_with(&its, &input, (weir_setting){"grammar", text}, "deep");
    strcpy(text, "root ::= \"");
    repeat(text, "a", 60000);
    strcat(text, "\"{2000}");
    refused_with(&its, &input, (weir_setting){"grammar", text}, "too");
    strcpy(text, "root ::= \"a\"\n");
    repeat(text, "a ::= (a)\n", 5000);
    refused_with(&its, &input, (weir_setting){"grammar", text}, "4096");
    text[0] = 0;
    repeat(text, " ", 200000);
    refused_with(&its, &input, (weir_setting){"grammar", text}, "bytes");
    free(text);
    fixture_close(&its);
}

/* Whatever the bytes are: a grammar is taken or refused, and the model lives. */
static void test_garbage_as_a_grammar_hurts_nobody(void **state)
{
    (void)state;
    static const char *const bits[] = {"root", " ::= ", "\"a\"",   "[a-z]", "(",         ")",      "*",  "+",
                                       "?",    "{2}",   "{0,3}",   " | ",   "\n",        "a",      "b",  "\"\"",
                                       ".",    "[^x]",  "<[260]>", " ",     "root ::= ", "a ::= ", "\\", "\"",
                                       "[",    "]",     "{",       ",",     "#",         "!"};
    fixture its = fixture_open(path, load, 2);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    uint64_t seed = 17;
    int taken = 0, refusals = 0;
    for (int i = 0; i < 3000; i++) {
        char text[512] = "root ::= ";
        size_t count = sizeof bits / sizeof *bits - (i % 2 ? 0 : 8);
        for (int k = 0; k < 3 + i % 20; k++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            strcat(text, bits[(seed >> 33) % count]);
        }
        const weir_setting settings[] = {{"tokens", "3"}, {"grammar", text}};
        weir_outputs outputs;
        weir_status status = infer(&its, &input, settings, 2, &outputs);
        if (status == WEIR_OK)
            release(&its, &outputs);
        else
            assert_int_equal(status, WEIR_ERR_INVALID);
        taken += status == WEIR_OK;
        refusals += status != WEIR_OK;
    }
    print_message("%d grammars taken, %d refused\n", taken, refusals);
    assert_true(taken > 50 && refusals > 50);
    OK(its.it.engine->health(its.model));
    fixture_close(&its);
}

/* ---- chats ------------------------------------------------------------------------------------------------------ */

static weir_tensor messages_input(const char *text)
{
    weir_tensor it = text_input(text);
    it.name = "messages";
    return it;
}

static void test_messages_become_the_text_of_their_template(void **state)
{
    (void)state;
    static const char messages[] = "system 9\nBe brief.\nuser 3\nabc\nassistant 5\ndef\ng\nuser 0\n\nuser 4\nuser";
    static const struct {
        const char *name, *text;
    } templates[] = {
        {"chatml", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n"
                   "def\ng<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>user\nuser<|im_end|>\n"
                   "<|im_start|>assistant\n"},
        {"zephyr",
         "<|system|>\nBe brief.<|endoftext|>\n<|user|>\nabc<|endoftext|>\n<|assistant|>\ndef\ng<|endoftext|>\n"
         "<|user|>\n<|endoftext|>\n<|user|>\nuser<|endoftext|>\n<|assistant|>\n"},
    };
    static const weir_setting wide[] = {{"threads", "1"}, {"context", "512"}};
    fixture its = fixture_open(path, wide, 2);
    weir_tensor chat = messages_input(messages);
    for (int i = 0; i < 2; i++) {
        const weir_setting settings[] = {GREEDY, {"chat_template", templates[i].name}};
        weir_tensor text = text_input(templates[i].text);
        answer expected = ask_with(&its, &text, settings, 3), got = ask_with(&its, &chat, settings, 4);
        assert_memory_equal(got.tokens, expected.tokens, sizeof got.tokens);
    }
    /* The setting `chat` makes one message of a text. */
    const weir_setting one[] = {GREEDY, {"chat", "1"}, {"chat_template", "chatml"}};
    weir_tensor text = text_input("hello\n"), alone = messages_input("user 6\nhello\n");
    answer expected = ask_with(&its, &alone, one, 5), got = ask_with(&its, &text, one, 5);
    assert_memory_equal(got.tokens, expected.tokens, sizeof got.tokens);
    fixture_close(&its);
}

static void test_a_models_own_template_is_taken(void **state)
{
    (void)state;
    char own[80];
    model_shape shape = small_shape;
    shape.chat_template = "{% for message in messages %}{{'<|im_start|>' + message['role']}}{% endfor %}";
    snprintf(own, sizeof own, "%s-chat", path);
    write_llama(own, &shape);
    fixture its = fixture_open(own, load, 2);
    const weir_setting usual[] = {GREEDY}, named[] = {GREEDY, {"chat_template", "chatml"}};
    weir_tensor chat = messages_input("user 3\nabc\n");
    answer expected = ask_with(&its, &chat, named, 4), got = ask_with(&its, &chat, usual, 3);
    assert_memory_equal(got.tokens, expected.tokens, sizeof got.tokens);
    fixture_close(&its);
    unlink(own);
}

/* Of short messages it makes many times their bytes. */
static void test_a_template_may_be_far_longer_than_the_messages(void **state)
{
    (void)state;
    enum { MANY = 30 };
    static const char begin[] = "<|START_OF_TURN_TOKEN|>", end[] = "<|END_OF_TURN_TOKEN|>";
    static const weir_setting wide[] = {{"threads", "1"}, {"context", "2048"}};
    static char messages[MANY * 16], whole[MANY * 80];
    size_t at = 0, used = 0;
    for (int i = 0; i < MANY; i++) {
        at += (size_t)sprintf(messages + at, "user 1\n%c\n", 'a' + i % 26);
        used += (size_t)sprintf(whole + used, "%s<|USER_TOKEN|>%c%s", begin, 'a' + i % 26, end);
    }
    sprintf(whole + used, "%s<|CHATBOT_TOKEN|>", begin);
    fixture its = fixture_open(path, wide, 2);
    const weir_setting settings[] = {GREEDY, {"chat_template", "command-r"}};
    weir_tensor chat = messages_input(messages), text = text_input(whole);
    answer expected = ask_with(&its, &text, settings, 3), got = ask_with(&its, &chat, settings, 4);
    assert_memory_equal(got.tokens, expected.tokens, sizeof got.tokens);
    fixture_close(&its);
}

static void test_a_template_that_llama_cpp_does_not_know_is_refused(void **state)
{
    (void)state;
    char own[80];
    model_shape shape = small_shape;
    shape.chat_template = "{{ messages }}";
    snprintf(own, sizeof own, "%s-odd", path);
    write_llama(own, &shape);
    fixture its = fixture_open(own, load, 2);
    weir_tensor chat = messages_input("user 3\nabc\n");
    weir_outputs outputs;
    assert_int_equal(infer(&its, &chat, NULL, 0, &outputs), WEIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(weir_detail(), "does not know the model's chat template"));
    fixture_close(&its);
    unlink(own);
}

static void test_wrong_messages_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "user",        "user 3",       "user 3\nab", "user x\nabc",       "user -1\nabc",
        "boss 3\nabc", "user  3\nabc", " 3\nabc",    "user 3\nabc\nuser", "user 99999999999999999999\nabc",
        "user \nabc"};
    fixture its = fixture_open(path, load, 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weir_tensor chat = messages_input(wrong[i]);
        refused_with(&its, &chat, (weir_setting){"chat_template", "chatml"}, "has no such head, or is cut off");
    }
    weir_tensor longer = messages_input("user 3\nabcd");
    refused_with(&its, &longer, (weir_setting){"chat_template", "chatml"}, "message 1 does not end with a newline");
    weir_tensor zero = messages_input("user 3\nabc");
    char with_zero[] = "user 3\na\0c";
    zero.data = with_zero;
    refused_with(&its, &zero, (weir_setting){"chat_template", "chatml"}, "byte 0");
    /* Nor does the setting `chat` cut a text there; without a template it is read by its length. */
    char text_with_zero[] = "abc\0 and more";
    weir_tensor text = text_input("abc? and more");
    text.data = text_with_zero;
    refused_with(&its, &text, (weir_setting){"chat", "1"}, "the input 'text' has a byte 0 in its text");
    weir_tensor chat = messages_input("user 3\nabc");
    refused_with(&its, &chat, (weir_setting){"chat_template", "nobodys"}, "chatml");
    refused_with(&its, &chat, (weir_setting){"tokens", "1"}, "has none");
    weir_tensor both[] = {chat, text_input("abc")};
    weir_inference inference = inference_of(both, NULL, 0);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    inference.input_count = 2;
    assert_int_equal(its.it.engine->infer(its.model, &inference, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "one input is taken"));
    fixture_close(&its);
}

/* ---- settings --------------------------------------------------------------------------------------------------- */

/* The caller's texts are gone when the model runs. */
static void test_texts_given_at_load_are_kept(void **state)
{
    (void)state;
    char *grammar = strdup("root ::= \"ab\" [cd] \"e\""), *stop = strdup("e\nf");
    const weir_setting settings[] = {{"threads", "1"}, {"grammar", grammar}, {"stop", stop}, {"temperature", "0"}};
    fixture its = fixture_open(path, settings, 4);
    memset(grammar, '?', strlen(grammar));
    memset(stop, '?', strlen(stop));
    free(grammar);
    free(stop);
    answer got = ask(&its, NULL, 0);
    assert_int_equal(got.bytes, 3);
    assert_memory_equal(got.text, "ab", 2);
    assert_string_equal(got.stop, "e");
    fixture_close(&its);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/weir-text-%d.gguf", (int)getpid());
    write_llama(path, &small_shape);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i == 0 ? 1 : 260 + i * 7 % 26;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_tokens_as_there_is_room_for),
        cmocka_unit_test(test_a_stop_word_ends_the_text_wherever_its_tokens_end),
        cmocka_unit_test(test_a_beginning_of_a_stop_word_is_given_out_when_it_is_none),
        cmocka_unit_test(test_what_may_be_a_stop_word_is_not_streamed),
        cmocka_unit_test(test_the_end_token_ends_a_text_and_says_so),
        cmocka_unit_test(test_wrong_stop_words_are_refused),
        cmocka_unit_test(test_log_probabilities_are_the_models_before_any_sampler),
        cmocka_unit_test(test_every_sampler_chooses_as_llama_cpp_does_alone),
        cmocka_unit_test(test_penalties_see_the_prompt),
        cmocka_unit_test(test_wrong_samplers_are_refused),
        cmocka_unit_test(test_settings_end_where_they_say),
        cmocka_unit_test(test_a_grammar_leaves_only_its_texts),
        cmocka_unit_test(test_bad_grammars_are_refused_in_words),
        cmocka_unit_test(test_grammars_without_measure_are_refused),
        cmocka_unit_test(test_garbage_as_a_grammar_hurts_nobody),
        cmocka_unit_test(test_messages_become_the_text_of_their_template),
        cmocka_unit_test(test_a_models_own_template_is_taken),
        cmocka_unit_test(test_a_template_may_be_far_longer_than_the_messages),
        cmocka_unit_test(test_a_template_that_llama_cpp_does_not_know_is_refused),
        cmocka_unit_test(test_wrong_messages_are_refused),
        cmocka_unit_test(test_texts_given_at_load_are_kept),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
