/* log.c: what llama.cpp and ggml have to say goes into weir's log; the last error is kept for the answer. */
#include "wg.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[512];

void wg_log_forget(void)
{
    last_error[0] = '\0';
}

const char *wg_log_last_error(void)
{
    return last_error;
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

void wg_on_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    size_t length = strcspn(text, "\n");
    if (length == 0 || level_of(level) == WEIR_LOG_OFF)
        return;
    if (level == GGML_LOG_LEVEL_ERROR)
        snprintf(last_error, sizeof last_error, "%.*s", (int)length, text);
    weir_log(level_of(level), "llama.cpp: %.*s", (int)length, text);
}
