/* text.c: what ends a text, and what is refused before one begins: stop words, end tokens, inputs, settings. */
#include "answer.h"
#include "folders.h"
#include "older.h"

enum { MADE = 24 };

static int32_t prompt[12];

static answer *ask(const bench *it, const weir_setting *settings, size_t count)
{
    weir_tensor input = token_input(prompt, 12);
    return answer_of(it, &input, settings, count);
}

/* ---- stop words -------------------------------------------------------------------------------------------------- */

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

static void stops_at(const bench *it, const answer *all, size_t at, size_t length)
{
    char value[64] = "never\n";
    escape(all->text + at, length, value + strlen(value));
    const weir_setting stopped[] = {GREEDY("24"), {"stop", value}};
    answer *got = ask(it, stopped, 3);
    const char *first = memmem(all->text, all->bytes, all->text + at, length);
    size_t reach = (size_t)(first - all->text) + length, needed = 0;
    while (all->ends[needed] < reach)
        needed++;
    assert_int_equal(got->bytes, first - all->text);
    assert_memory_equal(got->text, all->text, got->bytes);
    assert_int_equal(got->count, needed + 1); /* up to the token in which the word ends */
    assert_memory_equal(got->tokens, all->tokens, got->count * sizeof *got->tokens);
    assert_string_equal(got->finish, "stop");
    assert_int_equal(strlen(got->stop), length);
    assert_memory_equal(got->stop, first, length);
    answer_drop(got);
}

static void test_a_stop_word_ends_the_text_wherever_its_tokens_end(void **state)
{
    (void)state;
    const weir_setting whole[] = {GREEDY("24")};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        answer *all = ask(&it, whole, 2);
        int tried = 0;
        assert_int_equal(all->count, MADE);
        for (size_t at = 0; at + 8 < all->bytes; at += 2)
            for (size_t length = 1; length < 8; length += 3, tried++)
                stops_at(&it, all, at, length);
        assert_true(tried > 50);
        answer_drop(all);
        bench_close(&it);
    }
}

/* What could begin a word is held back, and given out when it does not. */
static void test_a_beginning_of_a_stop_word_is_given_out_when_it_is_none(void **state)
{
    (void)state;
    const weir_setting whole[] = {GREEDY("24")};
    bench it = bench_open(the_model(SHARED));
    answer *all = ask(&it, whole, 2);
    for (size_t at = 0; at + 6 < all->bytes; at += 3) {
        char value[64];
        escape(all->text + at, 6, value);
        strcat(value, "\x7f\x7f");
        const weir_setting stopped[] = {GREEDY("24"), {"stop", value}};
        answer *got = ask(&it, stopped, 3);
        assert_same_answer(got, all);
        assert_string_equal(got->finish, "length");
        assert_string_equal(got->stop, "");
        answer_drop(got);
    }
    answer_drop(all);
    bench_close(&it);
}

typedef struct watch {
    char text[256];
    size_t bytes, most; /* pieces; 0: all */
    size_t pieces;
} watch;

static bool on_watched(const weir_piece *piece, void *user)
{
    watch *it = user;
    if (piece->bytes)
        memcpy(it->text + it->bytes, piece->text, piece->bytes);
    it->bytes += piece->bytes;
    it->pieces++;
    return it->most == 0 || it->pieces < it->most;
}

/* Three times the text begins like the word; the fourth time it is the word, and nothing of that has been streamed. */
static void test_what_may_be_a_stop_word_is_not_streamed(void **state)
{
    (void)state;
    const weir_setting forced[] = {GREEDY("20"), {"regex", "xaxbxcxay"}, {"stop", "xay"}};
    bench it = bench_open(the_model(SHARED));
    weir_tensor input = token_input(prompt, 12);
    weir_inference inference = inference_of(&input, forced, 4);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    watch seen = {.bytes = 0};
    OK(it.engine->infer_stream(it.model, &inference, on_watched, &seen, &outputs));
    assert_int_equal(seen.bytes, 6);
    assert_memory_equal(seen.text, "xaxbxc", 6);
    assert_int_equal(output_named(&outputs, "text")->bytes, 6);
    assert_int_equal(seen.pieces, output_named(&outputs, "tokens")->shape[0]);
    release(&it, &outputs);
    bench_close(&it);
}

/* Bytes of a character that come in several tokens are text when the character is whole. */
static void test_a_character_of_several_tokens_comes_whole(void **state)
{
    (void)state;
    const weir_setting forced[] = {GREEDY("20"), {"regex", "äß"}},
                       stopped[] = {GREEDY("20"), {"regex", "äß"}, {"stop", "ß"}};
    bench it = bench_open(the_model(SHARED));
    answer *got = ask(&it, forced, 3), *cut = ask(&it, stopped, 4);
    assert_string_equal(got->text, "äß");
    assert_int_equal(got->count, 4);
    for (size_t i = 0; i < got->count; i++)
        assert_int_equal(got->ends[i], i < 1 ? 0 : i < 3 ? 2 : 4);
    assert_string_equal(cut->text, "ä");
    assert_string_equal(cut->stop, "ß");
    answer_drop(cut);
    answer_drop(got);
    bench_close(&it);
}

static void test_a_reader_that_wants_no_more_ends_the_run(void **state)
{
    (void)state;
    const weir_setting whole[] = {GREEDY("24")};
    bench it = bench_open(the_model(SHARED));
    answer *all = ask(&it, whole, 2);
    for (size_t most = 1; most < 4; most++) {
        weir_tensor input = token_input(prompt, 12);
        weir_inference inference = inference_of(&input, whole, 2);
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        watch seen = {.most = most};
        OK(it.engine->infer_stream(it.model, &inference, on_watched, &seen, &outputs));
        assert_int_equal(seen.pieces, most);
        assert_int_equal(output_named(&outputs, "tokens")->shape[0], (int64_t)most);
        assert_int_equal(output_named(&outputs, "text")->bytes, all->ends[most - 1]);
        assert_memory_equal(output_named(&outputs, "finish_reason")->data, "cancelled", 9);
        release(&it, &outputs);
    }
    answer_drop(all);
    bench_close(&it);
}

/* ---- end tokens -------------------------------------------------------------------------------------------------- */

/* The same model, with another end token: one that it makes. */
static void with_end(const char *model, const char *ends, char path[FOLDER_NAME])
{
    char line[64];
    folder_copy(model, path);
    snprintf(line, sizeof line, "\"eos_token_id\": %s", ends);
    folder_replace(path, "genai_config.json", "\"eos_token_id\": 1", line);
}

static void test_an_end_token_ends_a_text_and_is_no_part_of_it(void **state)
{
    (void)state;
    const weir_setting whole[] = {GREEDY("24")}, on[] = {GREEDY("24"), {"ignore_eos", "1"}};
    for (int which = 0; which < MODELS; which++) {
        char path[FOLDER_NAME], ends[32];
        const char *words[] = {NULL, "made=24", "ignore_eos=1", NULL};
        char tokens[128] = "tokens=";
        bench it = bench_open(the_model(which));
        answer *all = ask(&it, whole, 2);
        size_t place = 5;
        while (memchr(all->tokens, all->tokens[place], place * sizeof *all->tokens))
            place++;
        snprintf(ends, sizeof ends, "[447, %d]", all->tokens[place]);
        bench_close(&it);
        with_end(the_model(which), ends, path);
        it = bench_open(path);
        answer *got = ask(&it, whole, 2), *further = ask(&it, on, 3);
        size_t first = 0;
        while (all->tokens[first] != all->tokens[place])
            first++;
        assert_int_equal(got->count, first);
        assert_memory_equal(got->tokens, all->tokens, first * sizeof *got->tokens);
        assert_int_equal(got->bytes, first ? all->ends[first - 1] : 0);
        assert_string_equal(got->finish, "stop");
        assert_string_equal(got->stop, "");
        for (int i = 0; i < 12; i++)
            sprintf(tokens + strlen(tokens), "%s%d", i ? "," : "", prompt[i]);
        words[0] = tokens;
        answer *expected = answer_without_weir(it.engine, path, words);
        assert_int_equal(expected->count, MADE);
        assert_same_answer(further, expected);
        assert_string_equal(further->finish, "length");
        answer_drop(expected);
        answer_drop(further);
        answer_drop(got);
        answer_drop(all);
        bench_close(&it);
        folder_drop(path);
    }
}

/* As many as there is room for, which is told where there is none; and no more are taken. */
static void test_all_that_there_is_room_for(void **state)
{
    (void)state;
    enum { ROOM = 16 };
    const weir_setting all[] = {GREEDY("-1"), {"ignore_eos", "1"}}, one[] = {GREEDY("1"), {"ignore_eos", "1"}};
    static const char *const kinds_of_load[] = {"1", "3"}; /* sequences */
    for (int k = 0; k < 2; k++) {
        const weir_setting load[] = {{"threads", "1"}, {"context", "16"}, {"sequences", kinds_of_load[k]}};
        bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
        OK(bench_load(&it, load, 3));
        for (size_t count = ROOM - 3; count < ROOM + 2; count++) {
            int32_t longer[ROOM + 2];
            weir_outputs outputs;
            fill_prompt(longer, count, 1);
            weir_tensor input = token_input(longer, count);
            for (int more = 0; more < 2; more++) {
                weir_status status = infer(&it, &input, more ? all : one, 3, &outputs);
                if (count >= ROOM) {
                    assert_int_equal(status, WEIR_ERR_INVALID);
                    assert_words(weir_detail(), "and 1 new ones do not fit into the context of 16");
                    continue;
                }
                OK(status);
                assert_int_equal(output_named(&outputs, "tokens")->shape[0], more ? ROOM - (int64_t)count : 1);
                assert_memory_equal(output_named(&outputs, "finish_reason")->data, "length", 6);
                release(&it, &outputs);
            }
        }
        bench_close(&it);
    }
}

static void test_no_tokens_are_made_where_none_are_asked_for(void **state)
{
    (void)state;
    const weir_setting none[] = {GREEDY("0")};
    bench it = bench_open(the_model(SHARED));
    answer *got = ask(&it, none, 2);
    assert_int_equal(got->count, 0);
    assert_string_equal(got->finish, "length");
    answer_drop(got);
    bench_close(&it);
}

/* ---- refused inputs ---------------------------------------------------------------------------------------------- */

static void refused(const bench *it, const weir_tensor *inputs, size_t count, const char *words)
{
    weir_inference inference = inference_of(inputs, NULL, 0);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    inference.input_count = count;
    assert_int_equal(it->engine->infer(it->model, &inference, &outputs), WEIR_ERR_INVALID);
    assert_words(weir_detail(), words);
}

static void test_wrong_inputs_are_refused_in_words(void **state)
{
    (void)state;
    static const int32_t beyond[] = {60, VOCABULARY}, below[] = {60, -1};
    bench it = bench_open(the_model(SHARED));
    weir_tensor text = text_input("abc"), other = text, both[] = {text, token_input(prompt, 12)},
                twice[] = {text, text};
    weir_tensor tokens = token_input(beyond, 2), empty = text_input(""), rows = token_input(prompt, 12);
    refused(&it, NULL, 0, "one input is taken, 'text' or 'tokens' or 'messages', and there are 0");
    refused(&it, NULL, 1, "1 inputs are announced, and there are none");
    refused(&it, both, 2, "one input is taken");
    refused(&it, twice, 2, "the input 'text' is there twice");
    other.name = "image";
    refused(&it, &other, 1, "this model has no input 'image'");
    other.name = NULL;
    refused(&it, &other, 1, "this model has no input ''");
    refused(&it, &empty, 1, "the input 'text' is empty");
    refused(&it, &tokens, 1, "holds 448 at place 1; the vocabulary has 0 to 447");
    tokens = token_input(below, 2);
    refused(&it, &tokens, 1, "holds -1 at place 1");
    rows.rank = 2;
    rows.shape[0] = 1;
    rows.shape[1] = 12;
    refused(&it, &rows, 1, "rank 2 and must have 1");
    other = text;
    other.type = WEIR_TYPE_F32;
    refused(&it, &other, 1, "must be");
    other = text;
    other.bytes = 1;
    refused(&it, &other, 1, "bytes by its shape");
    text = text_input("a\0c");
    text.bytes = 3;
    text.shape[0] = 3;
    refused(&it, &text, 1, "byte 0");
    tokens = token_input(prompt, 12);
    tokens.data = NULL;
    refused(&it, &tokens, 1, "the input 'tokens' says 48 bytes");
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(it.engine->metrics(it.model, &metrics));
    assert_int_equal(metrics.failures, 14);
    assert_int_equal(metrics.runs, 0);
    bench_close(&it);
}

static void test_wrong_messages_are_refused_in_words(void **state)
{
    (void)state;
    static const char *const heads[] = {"user",
                                        "user 3",
                                        "user 3\nab",
                                        "user x\nabc",
                                        "user -1\nabc",
                                        "boss 3\nabc",
                                        "user  3\nabc",
                                        " 3\nabc",
                                        "user \nabc",
                                        "user 3\nabc\nuser",
                                        "user 99999999999999999999\nabc"};
    bench it = bench_open(the_model(SHARED));
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        weir_tensor chat = bytes_input("messages", heads[i]);
        refused(&it, &chat, 1, "the input 'messages'");
    }
    weir_tensor longer = bytes_input("messages", "user 3\nabcd"), bytes = bytes_input("messages", "user 2\n\xff\xfe\n");
    refused(&it, &longer, 1, "does not end with a newline");
    refused(&it, &bytes, 1, "the text of message 1 is no UTF-8");
    bench_close(&it);
}

/* Nothing is left of them by a template that takes nothing over. */
static void test_inputs_without_tokens_are_refused(void **state)
{
    (void)state;
    const weir_setting nothing[] = {{"chat", "1"}, {"chat_template", "{% for message in messages %}{% endfor %}"}};
    bench it = bench_open(the_model(SHARED));
    weir_tensor text = text_input("abc"), chat = bytes_input("messages", "user 3\nabc\n");
    weir_outputs outputs;
    assert_int_equal(infer(&it, &text, nothing, 2, &outputs), WEIR_ERR_INVALID);
    assert_words(weir_detail(), "the input 'text' has no tokens");
    assert_int_equal(infer(&it, &chat, nothing, 2, &outputs), WEIR_ERR_INVALID);
    assert_words(weir_detail(), "the input 'messages' has no tokens");
    bench_close(&it);
}

/* Where a model has no template of its own, one that is given is taken, and an empty one is none. */
static void test_a_model_without_a_template(void **state)
{
    (void)state;
    const weir_setting empty[] = {GREEDY("2"), {"chat_template", ""}};
    const weir_setting given[] = {
        GREEDY("2"), {"chat_template", "{% for message in messages %}{{ message['content'] }}{% endfor %}"}};
    char path[FOLDER_NAME];
    folder_copy(the_model(SHARED), path);
    folder_replace(path, "tokenizer_config.json", "\"chat_template\"", "\"no_template\"");
    bench it = bench_open(path);
    weir_tensor chat = bytes_input("messages", "user 3\nabc\n");
    weir_outputs outputs;
    for (size_t count = 2; count < 4; count++) {
        assert_int_not_equal(infer(&it, &chat, empty, count, &outputs), WEIR_OK);
        assert_words(weir_detail(), "apply its chat template");
    }
    OK(infer(&it, &chat, given, 3, &outputs));
    release(&it, &outputs);
    bench_close(&it);
    folder_drop(path);
}

/* A text of any bytes is tokens or an error; the model goes on. */
static void test_texts_of_any_bytes_hurt_nobody(void **state)
{
    (void)state;
    const weir_setting few[] = {GREEDY("2")};
    bench it = bench_open(the_model(SHARED));
    uint64_t seed = 5;
    int answered = 0;
    for (int i = 0; i < 300; i++) {
        char bytes[48];
        weir_outputs outputs;
        for (size_t k = 0; k < sizeof bytes; k++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            bytes[k] = (char)(1 + (seed >> 33) % (i % 3 ? 255 : 127));
        }
        weir_tensor input = text_input("");
        input.data = bytes;
        input.bytes = 1 + (size_t)i % sizeof bytes;
        input.shape[0] = (int64_t)input.bytes;
        weir_status status = infer(&it, &input, few, 2, &outputs);
        if (status == WEIR_OK)
            release(&it, &outputs);
        else
            assert_true(status == WEIR_ERR_INVALID || status == WEIR_ERR_ENGINE);
        answered += status == WEIR_OK;
    }
    assert_true(answered > 100);
    bench_close(&it);
}

/* A tokenizer may know more tokens than the model. */
static void test_tokens_that_the_model_has_not_are_refused(void **state)
{
    (void)state;
    const weir_setting few[] = {GREEDY("2")};
    char path[FOLDER_NAME];
    weir_outputs outputs;
    folder_copy(the_model(SHARED), path);
    folder_replace(path, "tokenizer.json", "\"added_tokens\": [",
                   "\"added_tokens\": [{\"id\": 448, \"content\": \"cab\"},");
    bench it = bench_open(path);
    weir_tensor with = text_input("a cab"), without = text_input("a page");
    assert_int_equal(infer(&it, &with, few, 2, &outputs), WEIR_ERR_CORRUPT);
    assert_words(weir_detail(), "its tokenizer makes token 448 of the text; its vocabulary has 0 to 447");
    OK(infer(&it, &without, few, 2, &outputs));
    release(&it, &outputs);
    bench_close(&it);
    folder_drop(path);
}

/* ---- refused settings -------------------------------------------------------------------------------------------- */

typedef struct wrong {
    weir_setting setting;
    const char *words;
} wrong;

static const wrong at_a_run[] = {
    {{"colour", "blue"}, "colour"},
    {{"tokens", "many"}, "many"},
    {{"tokens", "-2"}, "-2"},
    {{"top_p", "nan"}, "nan"},
    {{"top_p", "1.5"}, "from 0 to 1"},
    {{"temperature", "-1"}, "temperature"},
    {{"repeat_penalty", "0"}, "0.01"},
    {{"seed", "-1"}, "seed"},
    {{"top_k", "2147483648"}, "top_k"},
    {{"logits", "maybe"}, "maybe"},
    {{"threads", "2"}, "of loading"},
    {{"sequences", "2"}, "of loading"},
    {{"stop", "a\\q"}, "backslash"},
    {{"stop", "a\\"}, "backslash"},
    {{"logprobs", "449"}, "448 tokens"},
    {{"no_repeat_ngram", "x"}, "no_repeat_ngram"},
};

static void refused_setting(const bench *it, const weir_setting *settings, size_t count, weir_status status,
                            const char *words)
{
    weir_tensor input = token_input(prompt, 12);
    weir_outputs outputs;
    assert_int_equal(infer(it, &input, settings, count, &outputs), status);
    assert_words(weir_detail(), words);
}

static void test_wrong_settings_of_a_run_are_refused_by_name(void **state)
{
    (void)state;
    const weir_setting two[] = {{"regex", "a"}, {"lark", "start: \"a\""}};
    const weir_setting bad_schema[] = {{"json_schema", "{\"type\":7}"}}, no_schema[] = {{"json_schema", "{"}};
    const weir_setting bad_regex[] = {{"regex", "(a"}}, bad_lark[] = {{"lark", "start: \"a"}};
    const weir_setting bad_template[] = {{"chat_template", "{% for"}, {"chat", "1"}};
    bench it = bench_open(the_model(SHARED));
    for (size_t i = 0; i < sizeof at_a_run / sizeof *at_a_run; i++)
        refused_setting(&it, &at_a_run[i].setting, 1, WEIR_ERR_INVALID, at_a_run[i].words);
    refused_setting(&it, two, 2, WEIR_ERR_INVALID, "'json_schema', 'regex' and 'lark'");
    refused_setting(&it, bad_schema, 1, WEIR_ERR_INVALID, "does not take the settings");
    refused_setting(&it, no_schema, 1, WEIR_ERR_INVALID, "does not take the settings");
    refused_setting(&it, bad_regex, 1, WEIR_ERR_INVALID, "does not take the settings");
    refused_setting(&it, bad_lark, 1, WEIR_ERR_INVALID, "does not take the settings");
    weir_tensor text = text_input("abc");
    weir_outputs outputs;
    assert_int_equal(infer(&it, &text, bad_template, 2, &outputs), WEIR_ERR_ENGINE);
    assert_words(weir_detail(), "chat_template");
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(it.engine->metrics(it.model, &metrics));
    assert_int_equal(metrics.runs, 0);
    bench_close(&it);
}

static void test_wrong_settings_of_a_load_are_refused_by_name(void **state)
{
    (void)state;
    static const wrong at_a_load[] = {
        {{"colour", "blue"}, "colour"}, {{"threads", "x"}, "threads"},         {{"context", "-4"}, "context"},
        {{"context", "257"}, "256"},    {{"sequences", "0"}, "from 1 to 256"}, {{"sequences", "257"}, "from 1 to 256"},
        {{"batch", "-1"}, "batch"},     {{"logits", "?"}, "logits"},           {{"tokens", "y"}, "tokens"},
    };
    bench it = bench_on(the_model(SHARED), 1ull << 28, NULL);
    for (size_t i = 0; i < sizeof at_a_load / sizeof *at_a_load; i++) {
        assert_int_equal(bench_load(&it, &at_a_load[i].setting, 1), WEIR_ERR_INVALID);
        assert_words(weir_detail(), at_a_load[i].words);
        assert_null(it.model);
    }
    it.load.path = "/nonexistent";
    assert_int_equal(bench_load(&it, NULL, 0), WEIR_ERR_NOT_FOUND);
    it.load.path = "/tmp";
    assert_int_equal(bench_load(&it, NULL, 0), WEIR_ERR_NOT_FOUND);
    assert_words(weir_detail(), "genai_config.json is not there");
    it.load.path = the_model(SHARED);
    it.load.provider = "metal";
    assert_int_equal(bench_load(&it, NULL, 0), WEIR_ERR_UNSUPPORTED);
    assert_words(weir_detail(), "no provider 'metal'");
    it.load.provider = "cuda";
    assert_int_equal(bench_load(&it, NULL, 0), WEIR_ERR_INVALID);
    assert_words(weir_detail(), "does not run on host");
    it.load.provider = "cpu";
    it.load.path = NULL;
    assert_int_equal(bench_load(&it, NULL, 0), WEIR_ERR_INVALID);
    assert_words(weir_detail(), "needs a path and a place with a client");
    it.load.path = the_model(SHARED);
    for (int i = 0; i < 3; i++) { /* no list, no place, no client */
        weir_engine_model *model = (weir_engine_model *)(void *)&it;
        weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
        weir_engine_place place = {it.runtime, NULL};
        it.load.places = i == 0 ? NULL : &place;
        it.load.place_count = i != 1;
        assert_int_equal(it.engine->load(&it.load, &model), WEIR_ERR_INVALID);
        assert_null(model);
        assert_words(weir_detail(), i == 2 ? "place 0 has no client" : "needs a path and a place with a client");
        assert_int_equal(it.engine->plan(&it.load, &plan), i == 1 ? WEIR_OK : WEIR_ERR_INVALID);
    }
    assert_int_equal(stats_of(&it).allocations, 0);
    bench_close(&it);
}

/* The caller's texts are gone when the model runs; those of a run stand before those of the load. */
static void test_texts_given_at_load_are_kept(void **state)
{
    (void)state;
    char *regex = strdup("ab[cd]e"), *stop = strdup("e\nf");
    const weir_setting settings[] = {{"regex", regex}, {"stop", stop}, {"temperature", "0"}, {"tokens", "20"}};
    const weir_setting other[] = {{"stop", "b"}};
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(bench_load(&it, settings, 4));
    memset(regex, '?', strlen(regex));
    memset(stop, '?', strlen(stop));
    free(regex);
    free(stop);
    answer *got = ask(&it, NULL, 0), *shorter = ask(&it, other, 1);
    assert_int_equal(got->bytes, 3);
    assert_memory_equal(got->text, "ab", 2);
    assert_string_equal(got->stop, "e");
    assert_string_equal(shorter->text, "a");
    answer_drop(shorter);
    answer_drop(got);
    bench_close(&it);
}

/* ---- about a model ----------------------------------------------------------------------------------------------- */

static void on_progress(double fraction, void *user)
{
    double *told = user;
    *told = *told * 10 + fraction;
}

/* Once, when it is there; not of one that does not come. */
static void test_a_load_tells_its_end(void **state)
{
    (void)state;
    const weir_setting too_long[] = {{"context", "257"}};
    double told = 0;
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    it.load.progress = on_progress;
    it.load.progress_user = &told;
    assert_int_equal(bench_load(&it, too_long, 1), WEIR_ERR_INVALID);
    assert_true(told == 0);
    OK(bench_load(&it, one_thread, 1));
    assert_true(told == 1);
    bench_close(&it);
}

/* Name, type, rank, both extents, and whether it may be missing, of each. */
static void are_ports(const weir_port *ports, size_t count, const char *expected)
{
    char all[1024] = "";
    for (size_t i = 0; i < count; i++) {
        size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s %d %u %d %d %d, ", ports[i].name, (int)ports[i].type, ports[i].rank,
                 (int)ports[i].shape[0], (int)ports[i].shape[1], ports[i].optional);
    }
    assert_string_equal(all, expected);
}

/* The program has an engine of its own, and exports its entry: symbols of a program go before those of its plug-ins. */
WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);

const weir_engine *weir_engine_entry(uint32_t abi)
{
    (void)abi;
    return NULL;
}

static void test_what_a_model_says_of_itself(void **state)
{
    (void)state;
    bench it = bench_open(the_model(SHARED));
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    weir_engine_provider found = WEIR_INIT(weir_engine_provider);
    OK(it.engine->info(it.model, &info));
    assert_string_equal(info.engine, "llm");
    assert_string_equal(info.provider, "cpu");
    assert_words(info.version, "ONNX Runtime 1.");
    assert_words(info.architecture, "llama, 2 layers");
    assert_true(info.generates);
    are_ports(info.inputs, info.input_count, "text 18 1 -1 0 1, tokens 7 1 -1 0 1, messages 18 1 -1 0 1, ");
    are_ports(info.outputs, info.output_count,
              "tokens 7 1 -1 0 0, text 18 1 -1 0 0, finish_reason 18 1 -1 0 0, prompt_tokens 7 1 -1 0 0, "
              "stop_word 18 1 -1 0 1, logprobs 1 1 -1 0 1, top_tokens 7 2 -1 -1 1, top_logprobs 1 2 -1 -1 1, "
              "logits 1 1 448 0 1, ");
    assert_int_equal(info.share_count, 1);
    assert_int_equal(info.shares[0].parts, LAYERS);
    assert_int_equal(info.shares[0].of, LAYERS);
    OK(it.engine->warm_up(it.model));
    OK(it.engine->health(it.model));
    OK(it.engine->probe(&probe));
    assert_words(probe.library, "libonnxruntime-genai.so");
    assert_string_equal(probe.version, info.version);
    assert_string_equal(probe.missing, "");
    OK(it.engine->provider(1, &found));
    assert_string_equal(found.version, info.version);
    assert_string_equal(found.library, probe.library);
    assert_string_equal(found.name, "cpu");
    assert_int_equal(found.state, WEIR_PROVIDER_HERE);
    assert_int_equal(it.engine->provider(2, &found), WEIR_ERR_NOT_FOUND);
    assert_int_equal(it.engine->cancel(it.model, 0), WEIR_ERR_NOT_FOUND);
    bench_close(&it);
}

/* As many as there are tokens, and no more. */
static void test_all_tokens_of_the_vocabulary_may_be_asked_for(void **state)
{
    (void)state;
    const weir_setting all[] = {GREEDY("2"), {"ignore_eos", "1"}, {"logprobs", "448"}};
    const weir_setting past[] = {GREEDY("2"), {"ignore_eos", "1"}, {"logprobs", "449"}};
    bool seen[2][VOCABULARY] = {{false}};
    bench it = bench_open(the_model(SHARED));
    weir_tensor input = token_input(prompt, 12);
    weir_outputs outputs;
    OK(infer(&it, &input, all, 4, &outputs));
    const weir_tensor *top = output_named(&outputs, "top_tokens");
    assert_int_equal(top->bytes, 2 * VOCABULARY * sizeof(int32_t));
    for (int i = 0; i < 2 * VOCABULARY; i++) {
        uint32_t token = ((const uint32_t *)top->data)[i];
        assert_true(token < VOCABULARY && !seen[i / VOCABULARY][token]);
        seen[i / VOCABULARY][token] = true;
    }
    release(&it, &outputs);
    assert_int_equal(infer(&it, &input, past, 4, &outputs), WEIR_ERR_INVALID);
    assert_words(weir_detail(), "'logprobs' is 449, and the vocabulary has 448 tokens");
    bench_close(&it);
}

static void test_older_callers_get_what_they_have_room_for(void **state)
{
    (void)state;
    bench it = bench_open(the_model(SHARED));
    weir_engine_load load = {.struct_size = sizeof load, .path = the_model(SHARED)};
    assert_int_equal(older_callers_get_too_much(&(older){it.engine, it.model, &load}), 0);
    bench_close(&it);
}

int main(void)
{
    fill_prompt(prompt, 12, 3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stop_word_ends_the_text_wherever_its_tokens_end),
        cmocka_unit_test(test_a_beginning_of_a_stop_word_is_given_out_when_it_is_none),
        cmocka_unit_test(test_what_may_be_a_stop_word_is_not_streamed),
        cmocka_unit_test(test_a_character_of_several_tokens_comes_whole),
        cmocka_unit_test(test_a_reader_that_wants_no_more_ends_the_run),
        cmocka_unit_test(test_an_end_token_ends_a_text_and_is_no_part_of_it),
        cmocka_unit_test(test_all_that_there_is_room_for),
        cmocka_unit_test(test_no_tokens_are_made_where_none_are_asked_for),
        cmocka_unit_test(test_wrong_inputs_are_refused_in_words),
        cmocka_unit_test(test_wrong_messages_are_refused_in_words),
        cmocka_unit_test(test_inputs_without_tokens_are_refused),
        cmocka_unit_test(test_a_model_without_a_template),
        cmocka_unit_test(test_texts_of_any_bytes_hurt_nobody),
        cmocka_unit_test(test_tokens_that_the_model_has_not_are_refused),
        cmocka_unit_test(test_wrong_settings_of_a_run_are_refused_by_name),
        cmocka_unit_test(test_wrong_settings_of_a_load_are_refused_by_name),
        cmocka_unit_test(test_texts_given_at_load_are_kept),
        cmocka_unit_test(test_a_load_tells_its_end),
        cmocka_unit_test(test_what_a_model_says_of_itself),
        cmocka_unit_test(test_all_tokens_of_the_vocabulary_may_be_asked_for),
        cmocka_unit_test(test_older_callers_get_what_they_have_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
