/* log.c: llama.cpp's and ggml's messages go into weir's log. The first error is kept for the answer; later errors only
 * repeat that a step has failed. */
#include "wg.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char first_error[512];

void wg_log_forget(void)
{
    first_error[0] = '\0';
}

const char *wg_log_first_error(void)
{
    return first_error;
}

/* llama.cpp tells its whole life at level info; that is worth debug here. */
static weir_log_level level_of(enum ggml_log_level level)
{
    switch (level) {
    case GGML_LOG_LEVEL_ERROR:
        return WEIR_LOG_ERROR;
    case GGML_LOG_LEVEL_WARN:
        return WEIR_LOG_WARNING;
    case GGML_LOG_LEVEL_INFO:
        return WEIR_LOG_DEBUG;
    default:
        return WEIR_LOG_OFF;
    }
}

/* Without the name of the function in front. */
static void gguf_log_keep(const char *text, size_t length)
{
    size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    size_t skip = name > 0 && strncmp(text + name, ": ", 2) == 0 && name + 2 < length ? name + 2 : 0;
    snprintf(first_error, sizeof first_error, "%.*s", (int)(length - skip), text + skip);
}

void wg_on_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    size_t length = strcspn(text, "\n");
    if (length == 0 || level_of(level) == WEIR_LOG_OFF)
        return;
    if (level == GGML_LOG_LEVEL_ERROR && !first_error[0])
        gguf_log_keep(text, length);
    weir_log(level_of(level), "llama.cpp: %.*s", (int)length, text);
}
