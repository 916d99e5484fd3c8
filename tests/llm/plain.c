/* plain.c: a program without weir: ONNX Runtime GenAI's own answer to one question, which the tests compare with.
 *
 *   plain GENAI.so ONNXRUNTIME.so FOLDER WORD=VALUE…
 *
 * Words of the question: text, tokens (1,2,3), messages (JSON); template; and for the answer: made, ignore_eos, and those
 * numbers and kinds of guidance by GenAI's names. On its standard output, as numbers of 32 bits: how many tokens the prompt has,
 * these, and for each token that is made the token, the bytes of its text and that, and the logits it was chosen by. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/llm/oga.h"

enum { MOST_TOKENS = 4096 };

#define MEMBER(name) static __typeof__(&name) f_##name;
OGA_FUNCTIONS(MEMBER)
#undef MEMBER

typedef struct question {
    const char *text, *tokens, *messages, *template;
    long made;
    int ignores_eos;
    oga_model *model;
    oga_tokenizer *tokenizer;
    int32_t prompt[MOST_TOKENS];
    size_t count;
} question;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "plain: %s: %s\n", what, why);
    exit(1);
}

static void must(oga_result *result, const char *what)
{
    if (result)
        fail(what, f_OgaResultGetError(result));
}
#define MUST(call) must(f_##call, #call)

static void open_library(const char *genai, const char *runtime)
{
    setenv("ORT_LIB_PATH", runtime, 1);
    void *handle = dlopen(genai, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail("dlopen", dlerror());
#define TAKE(name)                                                                                                     \
    *(void **)&f_##name = dlsym(handle, #name);                                                                        \
    if (!f_##name)                                                                                                     \
        fail("dlsym", #name);
    OGA_FUNCTIONS(TAKE)
#undef TAKE
}

static void open_model(question *it, const char *folder)
{
    oga_config *config;
    MUST(OgaCreateConfig(folder, &config));
    MUST(OgaConfigClearProviders(config));
    MUST(OgaConfigOverlay(config, "{\"model\":{\"decoder\":{\"session_options\":{\"intra_op_num_threads\":1}}}}"));
    MUST(OgaCreateModelFromConfig(config, &it->model));
    MUST(OgaCreateTokenizer(it->model, &it->tokenizer));
    f_OgaDestroyConfig(config);
}

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

static void encode(question *it, const char *text)
{
    oga_sequences *made;
    MUST(OgaCreateSequences(&made));
    MUST(OgaTokenizerEncode(it->tokenizer, text, made));
    it->count = f_OgaSequencesGetSequenceCount(made, 0);
    if (it->count > MOST_TOKENS)
        fail("the prompt", "it is too long");
    memcpy(it->prompt, f_OgaSequencesGetSequenceData(made, 0), it->count * sizeof *it->prompt);
    f_OgaDestroySequences(made);
}

static void read_prompt(question *it)
{
    const char *text = it->text;
    if (it->messages)
        MUST(OgaTokenizerApplyChatTemplate(it->tokenizer, it->template, it->messages, NULL, true, &text));
    if (text)
        encode(it, text);
    for (const char *at = it->tokens; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        it->prompt[it->count++] = atoi(at);
    if (it->messages)
        f_OgaDestroyString(text);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static void put(const void *data, size_t bytes)
{
    if (bytes > 0 && fwrite(data, 1, bytes, stdout) != bytes)
        fail("stdout", "it is closed");
}

static void put_number(size_t value)
{
    uint32_t number = (uint32_t)value;
    put(&number, sizeof number);
}

/* What the next token is chosen by, before anything is done with it. */
static float *logits_of(oga_generator *generator, size_t *count)
{
    oga_tensor *tensor;
    void *data;
    size_t rank;
    int64_t shape[8];
    MUST(OgaGenerator_GetLogits(generator, &tensor));
    MUST(OgaTensorGetShapeRank(tensor, &rank));
    MUST(OgaTensorGetShape(tensor, shape, rank));
    MUST(OgaTensorGetData(tensor, &data));
    *count = (size_t)shape[rank - 1];
    float *copy = malloc(*count * sizeof *copy);
    if (!copy)
        fail("malloc", "no memory");
    memcpy(copy, data, *count * sizeof *copy);
    f_OgaDestroyTensor(tensor);
    return copy;
}

static bool is_end(const question *it, int32_t token)
{
    const int32_t *ends;
    size_t count;
    MUST(OgaTokenizerGetEosTokenIds(it->tokenizer, &ends, &count));
    for (size_t i = 0; i < count; i++)
        if (ends[i] == token)
            return true;
    return false;
}

static void answer(const question *it, oga_generator *generator)
{
    oga_tokenizer_stream *stream;
    MUST(OgaCreateTokenizerStream(it->tokenizer, &stream));
    MUST(OgaGenerator_AppendTokens(generator, it->prompt, it->count));
    for (long made = 0; made < it->made && !f_OgaGenerator_IsDone(generator); made++) {
        size_t width;
        const char *text;
        float *logits = logits_of(generator, &width);
        MUST(OgaGenerator_GenerateNextToken(generator));
        size_t count = f_OgaGenerator_GetSequenceCount(generator, 0);
        int32_t token = f_OgaGenerator_GetSequenceData(generator, 0)[count - 1];
        if (count == it->count + (size_t)made || is_end(it, token)) {
            free(logits);
            break;
        }
        MUST(OgaTokenizerStreamDecode(stream, token, &text));
        put_number((size_t)token);
        put_number(strlen(text));
        put(text, strlen(text));
        put_number(width);
        put(logits, width * sizeof *logits);
        free(logits);
    }
    f_OgaDestroyTokenizerStream(stream);
}

static bool value_of(char *word, const char *name, char **value)
{
    size_t length = strlen(name);
    bool is = strncmp(word, name, length) == 0 && word[length] == '=';
    *value = word + length + 1;
    return is;
}

/* A word that says how tokens are chosen. */
static void choose(oga_generator_params *params, char *word)
{
    static const char *const guides[] = {"json_schema", "regex", "lark_grammar"};
    char *value;
    for (size_t i = 0; i < sizeof guides / sizeof *guides; i++)
        if (value_of(word, guides[i], &value)) {
            MUST(OgaGeneratorParamsSetGuidance(params, guides[i], value, false));
            return;
        }
    if (value_of(word, "do_sample", &value)) {
        MUST(OgaGeneratorParamsSetSearchBool(params, "do_sample", atoi(value) != 0));
        return;
    }
    value = strchr(word, '=');
    if (!value)
        fail(word, "it has no value");
    *value++ = '\0';
    MUST(OgaGeneratorParamsSetSearchNumber(params, word, atof(value)));
}

static bool ask(question *it, char *word)
{
    char *value;
    if (value_of(word, "text", &value))
        it->text = value;
    else if (value_of(word, "tokens", &value))
        it->tokens = value;
    else if (value_of(word, "messages", &value))
        it->messages = value;
    else if (value_of(word, "template", &value))
        it->template = value;
    else if (value_of(word, "made", &value))
        it->made = atol(value);
    else if (value_of(word, "ignore_eos", &value))
        it->ignores_eos = atoi(value);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    static question it;
    oga_generator_params *params;
    oga_generator *generator;
    if (argc < 4)
        fail("the words", "GENAI.so ONNXRUNTIME.so FOLDER WORD=VALUE…");
    open_library(argv[1], argv[2]);
    open_model(&it, argv[3]);
    MUST(OgaCreateGeneratorParams(it.model, &params));
    for (int i = 4; i < argc; i++)
        if (!ask(&it, argv[i]))
            choose(params, argv[i]);
    read_prompt(&it);
    double length = (double)it.count + (double)it.made;
    MUST(OgaGeneratorParamsSetSearchNumber(params, "max_length", length));
    if (it.ignores_eos)
        MUST(OgaGeneratorParamsSetSearchNumber(params, "min_length", length));
    MUST(OgaCreateGenerator(it.model, params, &generator));
    put_number(it.count);
    put(it.prompt, it.count * sizeof *it.prompt);
    answer(&it, generator);
    f_OgaDestroyGenerator(generator);
    f_OgaDestroyGeneratorParams(params);
    f_OgaDestroyTokenizer(it.tokenizer);
    f_OgaDestroyModel(it.model);
    return fflush(stdout) == 0 ? 0 : 1;
}
