/* See served.h. */
#include "served.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FIRST_WORD = 259, SKIPPED = 77 };

void must(weir_status status, const char *what)
{
    const char *require = getenv("WEIR_REQUIRE_ENGINES");
    bool missing = status == WEIR_ERR_NOT_FOUND || status == WEIR_ERR_UNSUPPORTED;
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, weir_detail());
    exit(missing && !(require && strcmp(require, "1") == 0) ? SKIPPED : 1);
}

void give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

void served_read(served *it, const char *word)
{
    char between = 0;
    const char *colon = strrchr(word, ':');
    *it = (served){.context = "4096", .threads = "1"}; /* as there are other threads enough */
    bool read = colon && (size_t)(colon - word) < sizeof it->path &&
                sscanf(colon + 1, "%ld%c%ld", &it->first, &between, &it->rest) == 3;
    it->generates = between == '+';
    if (!read || (between != 'x' && between != '+') || it->first < 1 || it->rest < 1) {
        fprintf(stderr, "%s: %s is not FILE:FIRSTxREST or FILE:PROMPT+TOKENS\n", program_invocation_short_name, word);
        exit(2);
    }
    memcpy(it->path, word, (size_t)(colon - word));
    const char *slash = strrchr(it->path, '/');
    it->name = slash ? slash + 1 : it->path;
    struct stat about;
    it->folder = stat(it->path, &about) == 0 && S_ISDIR(about.st_mode);
    WEIR(weir_engine_get(it->folder ? "llm" : it->generates ? "gguf" : "onnx", &it->engine));
}

static size_t settings_of(const served *it, bool on_host, weir_setting *list)
{
    const char *module = getenv("WEIR_LLAMA_CUDA");
    size_t count = 0;
    if (on_host && it->threads[0])
        list[count++] = (weir_setting){"threads", it->threads};
    if (it->generates && !it->folder)
        list[count++] = (weir_setting){"context", it->context};
    if (it->generates && !it->folder && !on_host && module)
        list[count++] = (weir_setting){"llama_cuda", module};
    return count;
}

/* ---- its question ------------------------------------------------------------------------------------------------ */

static void fill(weir_tensor *t)
{
    size_t width;
    WEIR(weir_tensor_bytes(t->type, 0, NULL, &width));
    for (size_t i = 0; i < t->bytes / width; i++) {
        uint64_t noise = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
        int64_t number = strstr(t->name, "mask") ? 1 : strstr(t->name, "type") ? 0 : (int64_t)(noise % 1000);
        if (t->type == WEIR_TYPE_F32)
            ((float *)t->data)[i] = (float)(noise & 0xffff) / 65536.0f - 0.5f;
        else if (t->type == WEIR_TYPE_I64)
            ((int64_t *)t->data)[i] = number;
    }
}

static void ask_port(served *it, const weir_port *port)
{
    weir_tensor *t = &it->inputs[it->input_count++];
    int64_t next = it->first;
    *t = (weir_tensor){.struct_size = sizeof *t, .type = port->type, .rank = port->rank};
    for (uint32_t d = 0; d < port->rank; d++) {
        t->shape[d] = port->shape[d] < 0 ? next : port->shape[d];
        next = port->shape[d] < 0 ? it->rest : next;
    }
    t->name = strdup(port->name); /* the port's own goes with the model */
    WEIR(weir_tensor_bytes(t->type, t->rank, t->shape, &t->bytes));
    t->data = calloc(1, t->bytes + 1);
    check(t->name && t->data, "no host memory");
    fill(t);
}

static void ask_words(served *it, int64_t words)
{
    weir_tensor *t = &it->inputs[it->input_count++];
    *t = (weir_tensor){.struct_size = sizeof *t, .name = strdup("tokens"), .type = WEIR_TYPE_I32, .rank = 1};
    t->shape[0] = it->first;
    t->bytes = (size_t)it->first * sizeof(int32_t);
    int32_t *tokens = t->data = calloc(1, t->bytes);
    check(t->name && tokens && words > FIRST_WORD, "no vocabulary, or no host memory");
    for (int64_t i = 0; i < it->first; i++)
        tokens[i] = FIRST_WORD + (int32_t)((i * 7919 + 17) % (words - FIRST_WORD));
}

static void ask(served *it)
{
    weir_model_details about = WEIR_INIT(weir_model_details);
    int64_t words = 0;
    if (it->input_count > 0)
        return;
    WEIR(it->engine->info(it->model, &about));
    for (size_t i = 0; i < about.output_count; i++)
        if (strcmp(about.outputs[i].name, "logits") == 0)
            words = about.outputs[i].shape[0];
    if (it->generates)
        ask_words(it, words);
    for (size_t i = 0; !it->generates && i < about.input_count && it->input_count < SERVED_INPUTS; i++)
        if (!about.inputs[i].optional)
            ask_port(it, &about.inputs[i]);
}

weir_status served_load(served *it, weir_runtime *runtime)
{
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    weir_client_options client = WEIR_INIT(weir_client_options);
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    weir_setting settings[SERVED_SETTINGS];
    WEIR(weir_runtime_info(runtime, &its));
    client.name = it->name;
    WEIR(weir_client_create(runtime, &client, &it->client));
    weir_engine_place place = {runtime, it->client};
    load.path = it->path;
    load.places = &place;
    load.place_count = 1;
    load.settings = settings;
    load.setting_count = settings_of(it, strcmp(its.device, "host") == 0, settings);
    weir_status status = it->engine->load(&load, &it->model);
    if (status == WEIR_OK)
        ask(it);
    else
        it->model = NULL;
    return status;
}

void served_unload(served *it)
{
    if (it->model)
        it->engine->unload(it->model);
    it->model = NULL;
    check(served_account(it).live == 0, "a model has left memory behind");
    WEIR(weir_client_destroy(it->client));
    it->client = NULL;
}

void served_forget(served *it)
{
    for (size_t i = 0; i < it->input_count; i++) {
        free((char *)it->inputs[i].name);
        free(it->inputs[i].data);
    }
    free(it->answer);
    it->input_count = it->answer_bytes = 0;
    it->answer = NULL;
}

weir_client_stats served_account(const served *it)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    WEIR(weir_client_info(it->client, &stats));
    return stats;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static char *put_together(const weir_outputs *outputs, size_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < outputs->count; i++)
        *bytes += outputs->tensors[i].bytes;
    char *all = malloc(*bytes + 1), *at = all;
    check(all != NULL, "no host memory");
    for (size_t i = 0; i < outputs->count; i++) {
        memcpy(at, outputs->tensors[i].data, outputs->tensors[i].bytes);
        at += outputs->tensors[i].bytes;
    }
    return all;
}

static void compare(served *it, const weir_outputs *outputs)
{
    size_t bytes;
    char *all = put_together(outputs, &bytes);
    if (!it->answer) {
        it->answer = all;
        it->answer_bytes = bytes;
        return;
    }
    it->different += !it->any_answer && (bytes != it->answer_bytes || memcmp(all, it->answer, bytes) != 0);
    free(all);
}

weir_status served_run(served *it)
{
    char tokens[24];
    const weir_setting settings[] = {{"tokens", tokens}, {"temperature", "0"}, {"ignore_eos", "1"}, {"logits", "1"}};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    snprintf(tokens, sizeof tokens, "%ld", it->rest);
    inference.inputs = it->inputs;
    inference.input_count = it->input_count;
    inference.settings = settings;
    inference.setting_count = it->folder ? 2 : it->generates ? sizeof settings / sizeof *settings : 0;
    weir_status status = it->engine->infer(it->model, &inference, &outputs);
    if (status == WEIR_ERR_OUT_OF_MEMORY) {
        it->refused++;
        return status;
    }
    must(status, it->name);
    it->runs++;
    compare(it, &outputs);
    it->engine->release_outputs(it->model, &outputs);
    return WEIR_OK;
}
