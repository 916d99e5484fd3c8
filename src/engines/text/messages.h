/* messages.h: the input `messages` of engines that go on with a text: a chat, message by message. */
#ifndef WT_MESSAGES_H
#define WT_MESSAGES_H

#include <weir/memory.h>

typedef struct wt_message {
    const char *role; /* "system", "user", "assistant", "tool" */
    const char *text;
} wt_message;

typedef struct wt_messages {
    wt_message *list;
    size_t count;
    char *kept; /* the texts, each with a terminating zero */
} wt_messages;

/* Each message is a line `ROLE BYTES`, so many bytes of text, and a newline, which the last may lack. */
weir_status wt_messages_read(const weir_tensor *input, wt_messages *out);
void wt_messages_drop(wt_messages *messages);

#endif
