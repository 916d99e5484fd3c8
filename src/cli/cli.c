#include "cli.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* In one write, so that lines of several threads do not mix. */
static void cli_say(const char *text)
{
    char *clean = text_clean(text, strlen(text), false);
    char *line = text_print("weir: %s\n", clean);
    fputs(line, stderr);
    free(line);
    free(clean);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *last_failure; /* under the lock, as runs of several models fail in threads of their own */
static bool has_answered;  /* as JSON */

int cli_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = text_vprint(format, arguments);
    va_end(arguments);
    cli_say(text);
    pthread_mutex_lock(&lock);
    free(last_failure);
    last_failure = text;
    pthread_mutex_unlock(&lock);
    return CLI_FAILED;
}

void cli_keep_streams(void)
{
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) < 0)
            (void)!open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* True: --json is given, in full or abbreviated as getopt_long allows. No verb has another option that begins with
 * "--j". */
static bool asks_for_json(char **argv)
{
    for (; *argv != NULL && strcmp(*argv, "--") != 0; argv++)
        if (strlen(*argv) > 2 && strncmp(*argv, "--json", strlen(*argv)) == 0)
            return true;
    return false;
}

int cli_end(int status, char **argv)
{
    if (status == CLI_FAILED && !has_answered && last_failure != NULL && asks_for_json(argv))
        (void)cli_print_json(json_pack("{s:{s:o}}", "error", "detail", text_json(last_failure)));
    free(last_failure);
    last_failure = NULL;
    return status;
}

int cli_usage(const char *verb, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = text_vprint(format, arguments);
    va_end(arguments);
    char *line =
        verb != NULL ? text_print("%s; see 'weir %s --help'", text, verb) : text_print("%s; see 'weir help'", text);
    cli_say(line);
    free(line);
    free(text);
    return CLI_USAGE;
}

int cli_flush(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    return cli_fail("cannot write to standard output: %s", strerror(errno));
}

int cli_print_json(json_t *object)
{
    char *text = object == NULL ? NULL : json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (text == NULL)
        return cli_fail("cannot make the JSON answer: out of memory");
    has_answered = true;
    puts(text);
    free(text);
    return cli_flush(CLI_OK);
}

uint64_t cli_now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

json_t *cli_classes_json(const uint64_t *bytes)
{
    json_t *object = json_object();
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        json_object_set_new(object, weir_name_of(WEIR_NAMES_CLASS, i), text_json_count(bytes[i]));
    return object;
}

weir_runtime_details cli_runtime(const weir_runtime *runtime)
{
    weir_runtime_details details = WEIR_INIT(weir_runtime_details);
    if (!runtime || weir_runtime_info(runtime, &details) != WEIR_OK)
        details.device = "";
    return details;
}

weir_client_stats cli_client(weir_client *client)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    if (client && weir_client_info(client, &stats) != WEIR_OK)
        stats = WEIR_INIT(weir_client_stats);
    return stats;
}
