/* The log: the program's function, or standard error if an option asks for it. */
#include "base/internal.h"
#include "base/values.h"

#include <weir/base.h>

#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
WI_FREE_AFTER_FORKS(lock)
static weir_log_fn sink;
static void *sink_user;
static atomic_int sink_level = -1; /* -1: not yet read from the option */

static const char *const level_names[] = {"off", "error", "warning", "info", "debug"};

const char *wi_log_level_name(weir_log_level level)
{
    return level_names[level];
}

static void to_stderr(weir_log_level level, const char *text, void *user)
{
    (void)user;
    fprintf(stderr, "weir %s: %s\n", level_names[level], text);
}

weir_status weir_log_set(weir_log_fn fn, void *user, weir_log_level level)
{
    WI_ENTER();
    if (level < WEIR_LOG_OFF || level > WEIR_LOG_DEBUG)
        return weir_fail(WEIR_ERR_INVALID, "weir_log_set: level %d is none of 0 (off) to 4 (debug)", (int)level);
    watch_forks();
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_user = user;
    atomic_store(&sink_level, fn ? (int)level : -1);
    pthread_mutex_unlock(&lock);
    return WEIR_OK;
}

static int level_from_option(void)
{
    weir_option option = {.struct_size = sizeof option};
    wi_saved_detail saved;
    int level = WEIR_LOG_OFF;
    wi_detail_save(&saved);
    if (weir_option_info("log", 0, &option) == WEIR_OK)
        for (int i = 0; i <= WEIR_LOG_DEBUG; i++)
            if (strcmp(option.value, level_names[i]) == 0)
                level = i;
    wi_detail_restore(&saved);
    return level;
}

bool wi_log_wants(weir_log_level level)
{
    if (atomic_load(&wi_forked))
        return false;
    int wanted = atomic_load(&sink_level);
    if (wanted < 0) {
        wanted = level_from_option();
        int unread = -1;
        if (!atomic_compare_exchange_strong(&sink_level, &unread, wanted))
            wanted = unread;
    }
    return level >= WEIR_LOG_ERROR && (int)level <= wanted;
}

void weir_log(weir_log_level level, const char *format, ...)
{
    if (!wi_log_wants(level))
        return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    wi_one_line(text);
    watch_forks();
    pthread_mutex_lock(&lock);
    /* The program may have removed its function after the level was read. */
    int now = atomic_load(&sink_level);
    weir_log_fn fn = sink ? sink : to_stderr;
    void *user = sink_user;
    pthread_mutex_unlock(&lock);
    if ((int)level > now)
        return;
    wi_saved_detail saved; /* the message may come from within a call that has set its detail already */
    wi_detail_save(&saved);
    fn(level, text, user);
    wi_detail_restore(&saved);
}

void wi_log_option_changed(void)
{
    watch_forks();
    pthread_mutex_lock(&lock);
    if (!sink)
        atomic_store(&sink_level, -1);
    pthread_mutex_unlock(&lock);
}
