/* weir/log.h: what no caller sees: a foreign free that came from an engine, a failed sink, a slow driver call. */
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include <weir/status.h>

WEIR_BEGIN

typedef enum weir_log_level {
    WEIR_LOG_OFF = 0,
    WEIR_LOG_ERROR = 1,
    WEIR_LOG_WARNING = 2,
    WEIR_LOG_INFO = 3,
    WEIR_LOG_DEBUG = 4
} weir_log_level;

/* `text` is one line without newline, valid during the call. Called on the thread that has something to say, never with
 * a weir lock held; it may call weir, and the thread's weir_detail is afterwards as it was. Calls may come from several
 * threads at once. */
typedef void (*weir_log_fn)(weir_log_level level, const char *text, void *user);

/* Sends messages of `level` and more urgent ones to `fn`; NULL restores the default, which is silence, or standard error
 * when the option `log` (WEIR_LOG=error|warning|info|debug) asks for it. Any thread; when it returns, the former
 * function may still be running in another thread. */
WEIR_API weir_status weir_log_set(weir_log_fn fn, void *user, weir_log_level level);

/* Writes one message into the log; for engines and embedders. Any thread. */
WEIR_API void weir_log(weir_log_level level, const char *format, ...) WEIR_PRINTF(2, 3);

WEIR_END
#endif
