/* prompt.c: what a run begins with: tokens as they are, a text, the messages of a chat. */
#include "wl.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static weir_status copy_tokens(const int32_t *from, size_t count, wl_prompt *out)
{
    out->tokens = malloc(count * sizeof *from + 1);
    if (!out->tokens)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a prompt of %zu tokens", count);
    if (count > 0)
        memcpy(out->tokens, from, count * sizeof *from);
    out->count = count;
    return WEIR_OK;
}

/* GenAI takes them for places in its tables. */
static weir_status llm_prompt_check_tokens(const weir_engine_model *model, const wl_prompt *prompt)
{
    for (size_t i = 0; i < prompt->count; i++)
        if (prompt->tokens[i] < 0 || prompt->tokens[i] >= model->folder.vocabulary)
            return weir_fail(WEIR_ERR_CORRUPT,
                             "%s: its tokenizer makes token %d of the text; its vocabulary has 0 to %lld",
                             model->folder.path, prompt->tokens[i], (long long)model->folder.vocabulary - 1);
    return WEIR_OK;
}

static weir_status encode(weir_engine_model *model, const char *text, wl_prompt *out)
{
    const wl_library *lib = model->library;
    oga_sequences *sequences = NULL;
    wl_phase phase;
    char words[1024] = "";
    wl_phase_begin(&phase, WL_RUNNING, model->account);
    pthread_mutex_lock(&model->words);
    bool done = !wl_failed(lib, lib->OgaCreateSequences(&sequences), words, sizeof words) &&
                !wl_failed(lib, lib->OgaTokenizerEncode(model->tokenizer, text, sequences), words, sizeof words);
    pthread_mutex_unlock(&model->words);
    weir_status status = done ? copy_tokens(lib->OgaSequencesGetSequenceData(sequences, 0),
                                            lib->OgaSequencesGetSequenceCount(sequences, 0), out)
                              : wl_explain(model, &phase, words, "make tokens of the text");
    if (status == WEIR_OK)
        status = llm_prompt_check_tokens(model, out);
    if (sequences)
        lib->OgaDestroySequences(sequences);
    wl_phase_end(&phase);
    return status;
}

/* ---- chats ------------------------------------------------------------------------------------------------------- */

static weir_status llm_prompt_apply_template(weir_engine_model *model, const char *jinja, const char *messages,
                                             wl_prompt *out)
{
    const wl_library *lib = model->library;
    const char *text = NULL;
    wl_phase phase;
    char words[1024] = "";
    jinja = jinja && jinja[0] ? jinja : NULL;
    weir_status status = jinja ? wl_template_check("the setting 'chat_template'", jinja) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    wl_phase_begin(&phase, WL_RUNNING, model->account);
    pthread_mutex_lock(&model->words);
    bool done =
        !wl_failed(lib, lib->OgaTokenizerApplyChatTemplate(model->tokenizer, jinja, messages, NULL, true, &text), words,
                   sizeof words);
    pthread_mutex_unlock(&model->words);
    wl_phase_end(&phase);
    status = done ? encode(model, text, out)
                  : wl_explain(model, &phase, words,
                               jinja ? "apply the setting 'chat_template'" : "apply its chat template");
    if (text)
        lib->OgaDestroyString(text);
    return status;
}

static weir_status llm_prompt_from_messages(weir_engine_model *model, const wl_run_settings *settings,
                                            const wt_message *list, size_t count, wl_prompt *out)
{
    json_t *all = json_array();
    bool whole = all != NULL;
    for (size_t i = 0; i < count && whole; i++) {
        json_t *text = json_string(list[i].text);
        if (!text) {
            json_decref(all);
            return weir_fail(WEIR_ERR_INVALID, "the text of message %zu is no UTF-8", i + 1);
        }
        json_t *message = json_pack("{s:s, s:o}", "role", list[i].role, "content", text);
        whole = message && json_array_append_new(all, message) == 0;
    }
    char *written = whole ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    if (!written)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a chat of %zu messages", count);
    weir_status status = llm_prompt_apply_template(model, settings->chat_template, written, out);
    free(written);
    return status;
}

static weir_status from_text(weir_engine_model *model, const weir_tensor *input, wl_prompt *out)
{
    char *text;
    weir_status status = wt_text_copy(input, &text);
    if (status == WEIR_OK)
        status = encode(model, text, out);
    free(text);
    return status;
}

static weir_status from_chat(weir_engine_model *model, const wl_run_settings *settings, const wt_inputs *in,
                             wl_prompt *out)
{
    wt_messages messages;
    weir_status status = wt_chat_read(in, &messages);
    if (status == WEIR_OK)
        status = llm_prompt_from_messages(model, settings, messages.list, messages.count, out);
    wt_messages_drop(&messages);
    return status;
}

weir_status wl_prompt_read(weir_engine_model *model, const weir_inference *inference, const wl_run_settings *settings,
                           wl_prompt *out)
{
    wt_inputs in;
    *out = (wl_prompt){0};
    weir_status status = wt_inputs_read(inference, WT_CHATS, (int32_t)model->folder.vocabulary, &in);
    if (status == WEIR_OK && in.prompts == 0)
        status = weir_fail(WEIR_ERR_INVALID, "one input is taken, 'text' or 'tokens' or 'messages', and there are 0");
    if (status != WEIR_OK)
        return status;
    if (in.tokens)
        return copy_tokens(in.tokens->data, in.tokens->bytes / sizeof(int32_t), out);
    status = in.messages || settings->chat ? from_chat(model, settings, &in, out) : from_text(model, in.text, out);
    if (status == WEIR_OK && out->count == 0)
        status = weir_fail(WEIR_ERR_INVALID, "the input '%s' has no tokens", in.text ? "text" : "messages");
    return status;
}
