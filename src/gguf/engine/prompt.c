/* prompt.c: what a run begins with: tokens as they are, a text, the messages of a chat, a saved state. */
#include "wg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEMPLATES = 256 };

void wg_prompt_drop(wg_prompt *prompt)
{
    free(prompt->tokens);
    *prompt = (wg_prompt){0};
}

/* ---- chat templates ---------------------------------------------------------------------------------------------- */

typedef struct templating {
    const wg_library *library;
    const char *wanted;
    const struct llama_chat_message *messages;
    size_t count;
    char *out;
    int32_t room, got;
} templating;

static void gguf_prompt_apply_template(void *user)
{
    templating *it = user;
    it->got = it->library->llama_chat_apply_template(it->wanted, it->messages, it->count, true, it->out, it->room);
}

static weir_status unknown_template(const char *name, const char *const *known, int32_t count)
{
    char list[900] = "";
    size_t used = 0;
    for (int32_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", known[i]);
    return weir_fail(WEIR_ERR_INVALID, "the setting 'chat_template' is the name of one of llama.cpp's, not '%.60s': %s",
                     name, list);
}

/* The model's own template, or one of llama.cpp's by its name. */
static weir_status find_template(const weir_engine_model *model, const char *name, const char **out)
{
    const char *known[MOST_TEMPLATES];
    if (!name || !name[0]) {
        *out = model->library->llama_model_chat_template(model->model, NULL);
        if (*out)
            return WEIR_OK;
        return weir_fail(WEIR_ERR_INVALID,
                         "a chat needs the model's chat template, and it has none; the setting 'chat_template' names "
                         "one of llama.cpp's");
    }
    int32_t count = model->library->llama_chat_builtin_templates(known, MOST_TEMPLATES);
    count = count < MOST_TEMPLATES ? count : MOST_TEMPLATES;
    for (int32_t i = 0; i < count; i++)
        if (strcmp(known[i], name) == 0) {
            *out = known[i];
            return WEIR_OK;
        }
    return unknown_template(name, known, count);
}

/* The messages as one text, in the words that the model was trained on; ends where the answer begins. */
static weir_status in_chat(const weir_engine_model *model, const char *template, templating *it, size_t bytes)
{
    char thrown[512] = "";
    weir_status status = find_template(model, template, &it->wanted);
    for (int attempt = 0; attempt < 2 && status == WEIR_OK; attempt++) {
        free(it->out);
        it->room = attempt ? it->got + 1 : (int32_t)(bytes < INT32_MAX / 4 ? bytes * 2 + 1024 : bytes);
        it->out = malloc((size_t)it->room);
        if (!it->out)
            status = weir_fail(WEIR_ERR_SYSTEM, "no memory for a chat template");
        else if (!wg_guarded(gguf_prompt_apply_template, it, thrown, sizeof thrown) || it->got < 0)
            status = weir_fail(WEIR_ERR_UNSUPPORTED, "llama.cpp does not know the model's chat template%s%s",
                               thrown[0] ? ": " : "", thrown);
        else if (it->got <= it->room)
            break;
    }
    return status;
}

static weir_status tokens_of_chat(const weir_engine_model *model, const char *template, const wt_inputs *in,
                                  wg_prompt *out)
{
    wt_messages read;
    templating it = {.library = model->library};
    struct llama_chat_message *messages = NULL;
    weir_status status = wt_chat_read(in, &read);
    if (status == WEIR_OK && !(messages = calloc(read.count, sizeof *messages)))
        status = weir_fail(WEIR_ERR_SYSTEM, "no memory for a chat template");
    for (size_t i = 0; status == WEIR_OK && i < read.count; i++)
        messages[it.count++] = (struct llama_chat_message){read.list[i].role, read.list[i].text};
    it.messages = messages;
    if (status == WEIR_OK)
        status = in_chat(model, template, &it, in->messages ? in->messages->bytes : in->text->bytes);
    if (status == WEIR_OK)
        status = wg_tokenize(model, it.out, (size_t)it.got, true, true, &out->tokens, &out->count);
    free(messages);
    free(it.out);
    wt_messages_drop(&read);
    return status;
}

/* ---- text, tokens, state ----------------------------------------------------------------------------------------- */

static weir_status from_tokens(const weir_tensor *input, wg_prompt *out)
{
    out->count = input->bytes / sizeof *out->tokens;
    out->tokens = malloc(input->bytes);
    if (!out->tokens)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a prompt of %zu tokens", out->count);
    memcpy(out->tokens, input->data, input->bytes);
    return WEIR_OK;
}

/* The tokens of a saved state, and behind them those of the prompt, if there is one. */
static weir_status gguf_prompt_append(wg_prompt *saved, const wg_prompt *more)
{
    if (more->count == 0)
        return WEIR_OK;
    int32_t *grown = realloc(saved->tokens, (saved->count + more->count) * sizeof *grown);
    if (!grown)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a prompt of %zu tokens", saved->count + more->count);
    memcpy(grown + saved->count, more->tokens, more->count * sizeof *grown);
    saved->tokens = grown;
    saved->count += more->count;
    return WEIR_OK;
}

static weir_status gguf_prompt_read_prompt(const weir_engine_model *model, const wt_inputs *in,
                                           const wg_run_settings *settings, wg_prompt *out)
{
    weir_status status = WEIR_OK;
    if (in->tokens)
        return from_tokens(in->tokens, out);
    if (in->messages || (in->text && settings->chat))
        status = tokens_of_chat(model, settings->chat_template, in, out);
    else if (in->text)
        status = wg_tokenize(model, in->text->data, in->text->bytes, !in->state, false, &out->tokens, &out->count);
    if (status == WEIR_OK && out->count == 0 && !in->state)
        status = weir_fail(WEIR_ERR_INVALID, "the input '%s' has no tokens", in->text ? "text" : "messages");
    return status;
}

weir_status wg_prompt_read(const weir_engine_model *model, const weir_inference *inference,
                           const wg_run_settings *settings, wg_prompt *out)
{
    wt_inputs in;
    wg_prompt more = {0};
    *out = (wg_prompt){0};
    weir_status status = wg_the_inputs(model, inference, &in);
    if (status == WEIR_OK && in.state && (in.messages || settings->chat))
        status = weir_fail(WEIR_ERR_INVALID, "the input 'state' is gone on with by 'text' or 'tokens'; a chat template "
                                             "makes a whole conversation");
    if (status == WEIR_OK)
        status = gguf_prompt_read_prompt(model, &in, settings, &more);
    if (status == WEIR_OK && in.state) {
        status = wg_state_open(model, in.state, out);
        if (status == WEIR_OK)
            status = gguf_prompt_append(out, &more);
        wg_prompt_drop(&more);
    } else {
        *out = more;
    }
    return status;
}
