/* See answer.h. */
#include "answer.h"

#include "test_places.h"

#include <sys/wait.h>

/* ---- without weir ------------------------------------------------------------------------------------------------ */

void runtime_path(const weir_engine *engine, char *out, size_t capacity)
{
    const char *named = getenv("WEIR_ONNXRUNTIME");
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    OK(engine->probe(&probe));
    bool cuda = strstr(probe.library, "/onnxruntime-genai-cuda/") != NULL;
    if (named && named[0])
        snprintf(out, capacity, "%s", named);
    else
        snprintf(out, capacity, "%s/engines/onnxruntime%s/current/libonnxruntime.so", WEIR_TEST_STORE,
                 cuda ? "-cuda" : "");
}

static FILE *start(const weir_engine *engine, const char *folder, const char *const *words, pid_t *child)
{
    const char *program = built_path("tests/llm-plain");
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    const char *argv[MOST_WORDS + 5] = {program, NULL, NULL, folder};
    char runtime[600];
    int ends[2];
    OK(engine->probe(&probe));
    runtime_path(engine, runtime, sizeof runtime);
    argv[1] = probe.library;
    argv[2] = runtime;
    for (int i = 0; words[i]; i++) {
        assert_true(i < MOST_WORDS);
        argv[4 + i] = words[i];
    }
    assert_int_equal(pipe(ends), 0);
    *child = fork();
    if (*child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        setenv("ORT_DISABLE_TELEMETRY", "1", 1);
        execv(program, (char **)argv);
        _exit(127);
    }
    assert_true(*child > 0);
    close(ends[1]);
    return fdopen(ends[0], "rb");
}

static bool take(FILE *from, void *to, size_t bytes)
{
    return bytes == 0 || fread(to, 1, bytes, from) == bytes;
}

static size_t take_number(FILE *from)
{
    uint32_t number = 0;
    assert_true(take(from, &number, sizeof number));
    return number;
}

static void take_answer(FILE *from, answer *to)
{
    uint32_t token;
    to->prompt_count = take_number(from);
    assert_true(to->prompt_count <= 512 && take(from, to->prompt, to->prompt_count * sizeof *to->prompt));
    while (take(from, &token, sizeof token)) {
        size_t at = to->count, bytes = take_number(from);
        assert_true(at < MOST_MADE && to->bytes + bytes < MOST_TEXT && take(from, to->text + to->bytes, bytes));
        to->tokens[at] = (int32_t)token;
        to->bytes += bytes;
        to->ends[at] = to->bytes;
        assert_int_equal(take_number(from), VOCABULARY);
        assert_true(take(from, to->logits + at * VOCABULARY, VOCABULARY * sizeof *to->logits));
        to->count++;
    }
}

answer *answer_without_weir(const weir_engine *engine, const char *folder, const char *const *words)
{
    answer *made = calloc(1, sizeof *made);
    int how = 0;
    pid_t child = 0;
    assert_non_null(made);
    made->logits = calloc(MOST_MADE * VOCABULARY, sizeof *made->logits);
    assert_non_null(made->logits);
    FILE *from = start(engine, folder, words, &child);
    take_answer(from, made);
    fclose(from);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    return made;
}

/* ---- with weir --------------------------------------------------------------------------------------------------- */

typedef struct stream {
    char text[MOST_TEXT];
    size_t bytes, count, ends[MOST_MADE];
    int32_t tokens[MOST_MADE];
} stream;

static bool on_piece(const weir_piece *piece, void *user)
{
    stream *to = user;
    assert_int_equal(piece->index, to->count);
    assert_true(to->count < MOST_MADE && to->bytes + piece->bytes < MOST_TEXT);
    if (piece->bytes)
        memcpy(to->text + to->bytes, piece->text, piece->bytes);
    to->bytes += piece->bytes;
    to->ends[to->count] = to->bytes;
    to->tokens[to->count++] = piece->token;
    return true;
}

static size_t copy_output(const weir_outputs *from, const char *name, void *to, size_t capacity)
{
    const weir_tensor *found = find_output(from, name);
    size_t bytes = found ? found->bytes : 0;
    assert_true(bytes <= capacity);
    if (bytes && to)
        memcpy(to, found->data, bytes);
    return bytes;
}

answer *answer_of(const bench *it, const weir_tensor *input, const weir_setting *settings, size_t count)
{
    answer *got = calloc(1, sizeof *got);
    stream *streamed = calloc(1, sizeof *streamed);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(input, settings, count);
    assert_true(got && streamed);
    OK(it->engine->infer_stream(it->model, &inference, on_piece, streamed, &outputs));
    got->count = copy_output(&outputs, "tokens", got->tokens, sizeof got->tokens) / sizeof *got->tokens;
    got->bytes = copy_output(&outputs, "text", got->text, sizeof got->text - 1);
    copy_output(&outputs, "finish_reason", got->finish, sizeof got->finish - 1);
    copy_output(&outputs, "stop_word", got->stop, sizeof got->stop - 1);
    copy_output(&outputs, "logprobs", got->logprobs, sizeof got->logprobs);
    copy_output(&outputs, "top_tokens", got->top_tokens, sizeof got->top_tokens);
    copy_output(&outputs, "top_logprobs", got->top_logprobs, sizeof got->top_logprobs);
    copy_output(&outputs, "logits", got->last, sizeof got->last);
    release(it, &outputs);
    got->pieces = streamed->count;
    assert_int_equal(streamed->count, got->count);
    assert_memory_equal(streamed->tokens, got->tokens, got->count * sizeof *got->tokens);
    assert_int_equal(streamed->bytes, got->bytes);
    assert_memory_equal(streamed->text, got->text, got->bytes);
    memcpy(got->ends, streamed->ends, sizeof got->ends);
    free(streamed);
    return got;
}

void answer_drop(answer *it)
{
    free(it->logits);
    free(it);
}

void assert_same_answer(const answer *got, const answer *expected)
{
    assert_int_equal(got->count, expected->count);
    assert_memory_equal(got->tokens, expected->tokens, got->count * sizeof *got->tokens);
    assert_int_equal(got->bytes, expected->bytes);
    assert_memory_equal(got->text, expected->text, got->bytes);
    assert_memory_equal(got->ends, expected->ends, got->count * sizeof *got->ends);
}
