/* embeddings.c: OpenAI's embeddings. */
#include "completion.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

static char *base64(const unsigned char *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = text_zeroed(bytes / 3 * 4 + 5, 1), *to = text;
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned left = bytes - i > 2 ? 3 : (unsigned)(bytes - i);
        unsigned word =
            (unsigned)data[i] << 16 | (left > 1 ? (unsigned)data[i + 1] << 8 : 0) | (left > 2 ? data[i + 2] : 0);
        *to++ = digits[word >> 18];
        *to++ = digits[word >> 12 & 63];
        *to++ = left > 1 ? digits[word >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[word & 63] : '=';
    }
    return text;
}

static json_t *embeddings_row_json(const weir_tensor *rows, size_t at, bool encoded)
{
    if (!encoded)
        return completion_vector_json(rows, at);
    size_t bytes = (size_t)rows->shape[1] * sizeof(float);
    char *text = base64((const unsigned char *)rows->data + at * bytes, bytes);
    json_t *row = json_string(text);
    free(text);
    return row;
}

static json_t *rows_json(const weir_tensor *rows, size_t count, bool encoded)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i,
                                              "embedding", embeddings_row_json(rows, i, encoded)));
    return list;
}

static void answer_rows(completion *it, const json_t *body, size_t count)
{
    const char *format = json_string_value(json_object_get(body, "encoding_format"));
    bool encoded = format && strcmp(format, "base64") == 0;
    const weir_tensor *rows = completion_vectors(it, count, !encoded);
    json_int_t tokens = (json_int_t)completion_prompt_tokens(it);
    if (rows)
        answer_json(it->run.request, 200,
                    json_pack("{s:s, s:o, s:o, s:{s:I, s:I}}", "object", "list", "data",
                              rows_json(rows, count, encoded), "model", text_json(it->run.model->name), "usage",
                              "prompt_tokens", tokens, "total_tokens", tokens));
}

static void embeddings_embed(completion *it, const json_t *body, size_t count)
{
    if (!completion_begin(it, json_string_value(json_object_get(body, "model"))))
        return;
    weir_status status = completion_run(it);
    if (status == WEIR_OK) {
        answer_rows(it, body, count);
        completion_release(it);
    } else {
        answer_failure(it->run.request, status);
    }
    completion_end(it);
}

static bool takes_format(const json_t *format)
{
    const char *text = json_string_value(format);
    return !format || json_is_null(format) || (text && (strcmp(text, "float") == 0 || strcmp(text, "base64") == 0));
}

void openai_embeddings(ws_request *request, void *all)
{
    completion it = {.run = {.all = all, .request = request}};
    json_t *body = body_json(request);
    size_t count = 0;
    if (body && !json_is_string(json_object_get(body, "model")))
        completion_wrong(&it, "'model' is the name of one");
    else if (body && json_is_number(json_object_get(body, "dimensions")))
        completion_wrong(&it, "'dimensions' is not taken: vectors have the model's width");
    else if (body && !takes_format(json_object_get(body, "encoding_format")))
        completion_wrong(&it, "'encoding_format' is float or base64");
    else if (body)
        count = completion_lines(&it, json_object_get(body, "input"));
    if (count > 0)
        embeddings_embed(&it, body, count);
    completion_clear(&it);
    json_decref(body);
}
