/* messages.c: a chat is read message by message, and refused where it is not one. */
#include "text.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 4096 };

static const char *role_of(const char *word, size_t bytes)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strlen(roles[i]) == bytes && memcmp(roles[i], word, bytes) == 0)
            return roles[i];
    return NULL;
}

/* `ROLE BYTES` and the end of the line; answers what is behind it. */
static const char *messages_read_head(const char *at, const char *end, const char **role, size_t *bytes)
{
    const char *line = memchr(at, '\n', (size_t)(end - at)), *space = memchr(at, ' ', (size_t)(end - at));
    if (!line || !space || space > line || space + 1 == line || line - space > 11)
        return NULL;
    *role = role_of(at, (size_t)(space - at));
    *bytes = 0;
    for (const char *digit = space + 1; digit < line; digit++) {
        if (*digit < '0' || *digit > '9')
            return NULL;
        *bytes = *bytes * 10 + (size_t)(*digit - '0');
    }
    return *role && *bytes <= (size_t)(end - line - 1) ? line + 1 : NULL;
}

static weir_status wrong_message(size_t number, const char *why)
{
    return weir_fail(WEIR_ERR_INVALID,
                     "the input 'messages': message %zu %s; each is a line 'ROLE BYTES' (role: system, user, assistant "
                     "or tool), so many bytes of text, and a newline",
                     number, why);
}

static weir_status messages_read_all(const weir_tensor *input, wt_messages *out)
{
    const char *at = input->data, *end = at + input->bytes;
    out->list = calloc(MOST_MESSAGES, sizeof *out->list);
    out->copies = malloc(input->bytes + 1);
    if (!out->list || !out->copies)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu bytes of messages", input->bytes);
    char *to = out->copies;
    while (at < end) {
        const char *role = NULL;
        size_t bytes = 0, number = out->count + 1;
        if (number > MOST_MESSAGES)
            return weir_fail(WEIR_ERR_INVALID, "the input 'messages' has more than %d messages", MOST_MESSAGES);
        const char *text = messages_read_head(at, end, &role, &bytes);
        if (!text)
            return wrong_message(number, "has no such head, or is cut off");
        if (memchr(text, '\0', bytes))
            return wrong_message(number, "has a byte 0 in its text");
        memcpy(to, text, bytes);
        to[bytes] = '\0';
        out->list[out->count++] = (wt_message){role, to};
        to += bytes + 1;
        at = text + bytes;
        if (at < end && *at++ != '\n')
            return wrong_message(number, "does not end with a newline where it says");
    }
    return WEIR_OK;
}

weir_status wt_messages_read(const weir_tensor *input, wt_messages *out)
{
    *out = (wt_messages){0};
    weir_status status = messages_read_all(input, out);
    if (status != WEIR_OK)
        wt_messages_drop(out);
    return status;
}

weir_status wt_chat_read(const wt_inputs *in, wt_messages *out)
{
    if (in->messages)
        return wt_messages_read(in->messages, out);
    *out = (wt_messages){0};
    weir_status status = wt_text_copy(in->text, &out->copies);
    if (status == WEIR_OK && !(out->list = calloc(1, sizeof *out->list)))
        status = weir_fail(WEIR_ERR_SYSTEM, "no memory for a message");
    if (status == WEIR_OK)
        out->list[out->count++] = (wt_message){"user", out->copies};
    else
        wt_messages_drop(out);
    return status;
}

void wt_messages_drop(wt_messages *messages)
{
    free(messages->list);
    free(messages->copies);
    *messages = (wt_messages){0};
}
