/* A server for the tests and the bench: routes that answer at once, later, in pieces and never. Its words are limits
 * (head_bytes=8192 …), keys (key=…), files (certificate=…, private=…) and drain=MS; it writes "port N", and ends when its
 * input does. With `ended`, then, it writes what is left: requests that nobody has given back are a mistake. */
#include "serve/http.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- at once, and on a worker ------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned long cancels, waits, flooded; /* under the lock */
static bool released;

static void answer_hello(ws_request *request, void *user)
{
    (void)user;
    ws_answer(request, 200, "text/plain", "hello\n", 6);
}

static void answer_echo(ws_request *request, void *user)
{
    size_t bytes;
    const char *body = ws_body(request, &bytes), *type = ws_header(request, "content-type");
    (void)user;
    ws_add_header(request, "X-Method", ws_method(request));
    ws_add_header(request, "X-Type", type ? type : "");
    ws_answer(request, 200, "application/octet-stream", body, bytes);
}

static void answer_segments(ws_request *request, void *user)
{
    char text[512];
    (void)user;
    int used =
        snprintf(text, sizeof text, "%s\n%s\n%s\n", ws_segment(request, 0), ws_segment(request, 1), ws_path(request));
    ws_answer(request, 200, "text/plain", text, (size_t)used);
}

static void answer_nothing(ws_request *request, void *user)
{
    (void)request;
    (void)user;
}

static void answer_stats(ws_request *request, void *user)
{
    char text[1024];
    ws_server_stats s;
    (void)user;
    ws_server_info(ws_server_of(request), &s);
    pthread_mutex_lock(&lock);
    int used = snprintf(
        text, sizeof text,
        "{\"connections\": %lu, \"accepted\": %lu, \"requests\": %lu, \"ok\": %lu, \"client\": %lu, \"server\": %lu, "
        "\"waiting\": %lu, "
        "\"handled\": %lu, \"streams\": %lu, \"cancelled\": %lu, \"cancelled_waiting\": %lu, \"timed_out\": %lu, "
        "\"stream_bytes\": %lu, \"body_bytes\": %lu, \"cancels\": %lu, \"waits\": %lu, \"flooded\": %lu}\n",
        s.connections, s.accepted, s.requests, s.answered[2], s.answered[4], s.answered[5], s.waiting, s.handled,
        s.streams, s.cancelled, s.cancelled_waiting, s.timed_out, s.stream_bytes, s.body_bytes, cancels, waits,
        flooded);
    pthread_mutex_unlock(&lock);
    ws_answer(request, 200, "application/json", text, (size_t)used);
}

/* ---- later ------------------------------------------------------------------------------------------------------- */

typedef struct waiting {
    bool cancelled;
} waiting;

static void stop_waiting(void *user)
{
    pthread_mutex_lock(&lock);
    cancels += !((waiting *)user)->cancelled;
    ((waiting *)user)->cancelled = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* A worker waits until its client goes, or /release. */
static void answer_wait(ws_request *request, void *user)
{
    waiting it = {false};
    (void)user;
    ws_on_cancel(request, stop_waiting, &it);
    pthread_mutex_lock(&lock);
    waits++;
    while (!it.cancelled && !released)
        pthread_cond_wait(&changed, &lock);
    waits--;
    pthread_mutex_unlock(&lock);
    ws_answer(request, 200, "text/plain", "waited\n", 7);
    ws_end(request);
}

static void answer_wait_kept(ws_request *request, void *user)
{
    ws_keep(request);
    answer_wait(request, user);
}

static void *end_in_thread(void *user)
{
    answer_wait(user, NULL);
    return NULL;
}

/* No thread of the server's has it. */
static void answer_held(ws_request *request, void *user)
{
    pthread_t thread;
    (void)user;
    ws_keep(request);
    if (pthread_create(&thread, NULL, end_in_thread, request) == 0)
        pthread_detach(thread);
    else
        ws_end(request);
}

/* The answer goes out while its handler has work still. */
static void answer_and_wait(ws_request *request, void *user)
{
    (void)user;
    ws_answer(request, 200, "text/plain", "early\n", 6);
    pthread_mutex_lock(&lock);
    while (!released)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void answer_release(ws_request *request, void *user)
{
    (void)user;
    pthread_mutex_lock(&lock);
    released = strcmp(ws_segment(request, 0), "on") == 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    ws_answer(request, 200, "text/plain", NULL, 0);
}

/* ---- in pieces --------------------------------------------------------------------------------------------------- */

static void answer_pieces(ws_request *request, void *user)
{
    char text[32];
    unsigned long count = strtoul(ws_segment(request, 0), NULL, 10);
    weir_status status = WEIR_OK;
    (void)user;
    ws_stream(request, 200, "text/event-stream");
    for (unsigned long i = 0; i < count && status == WEIR_OK; i++) {
        int used = snprintf(text, sizeof text, "data: %lu\n\n", i);
        status = ws_write(request, text, (size_t)used);
    }
}

/* Until the client goes. */
static void *flood(void *user)
{
    static const char text[4096] = {'x'};
    ws_request *request = user;
    while (ws_write(request, text, sizeof text) == WEIR_OK)
        continue;
    pthread_mutex_lock(&lock);
    flooded++;
    pthread_mutex_unlock(&lock);
    ws_end(request);
    return NULL;
}

static void answer_flood(ws_request *request, void *user)
{
    pthread_t thread;
    (void)user;
    ws_keep(request);
    ws_stream(request, 200, "text/event-stream");
    if (pthread_create(&thread, NULL, flood, request) == 0)
        pthread_detach(thread);
    else
        ws_end(request);
}

/* One thread writes a token to every stream, as an engine does that computes one batch for all. */
enum { STREAMS = 4096 };
static struct ticking {
    ws_request *request;
    unsigned long left;
} ticking[STREAMS];
static bool ticks;
static unsigned long tick_us = 20000;

static void tick(struct ticking *one)
{
    static const char token[] = "data: {\"choices\": [{\"index\": 0, \"text\": \" token\"}]}\n\n";
    weir_status status = one->left-- > 0 ? ws_try_write(one->request, token, sizeof token - 1) : WEIR_ERR_CANCELLED;
    if (status != WEIR_ERR_CANCELLED)
        return;
    ws_end(one->request);
    one->request = NULL;
}

static void *ticker(void *user)
{
    struct timespec at;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (;;) {
        pthread_mutex_lock(&lock);
        for (int i = 0; i < STREAMS; i++)
            if (ticking[i].request)
                tick(&ticking[i]);
        pthread_mutex_unlock(&lock);
        at.tv_nsec += (long)tick_us * 1000;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
    return NULL;
}

static void answer_tokens(ws_request *request, void *user)
{
    pthread_t thread;
    (void)user;
    ws_keep(request);
    ws_stream(request, 200, "text/event-stream");
    pthread_mutex_lock(&lock);
    if (!ticks && pthread_create(&thread, NULL, ticker, NULL) == 0)
        ticks = pthread_detach(thread) == 0;
    int i = 0;
    while (i < STREAMS && ticking[i].request)
        i++;
    if (i < STREAMS)
        ticking[i] = (struct ticking){request, strtoul(ws_segment(request, 0), NULL, 10)};
    pthread_mutex_unlock(&lock);
    if (i == STREAMS)
        ws_end(request);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static const ws_route routes[] = {
    {"GET", "/hello", answer_hello, .on_loop = true},
    {"GET", "/open", answer_hello, .on_loop = true, .open = true},
    {"GET", "/work", answer_hello, .open = false},
    {"GET", "/stats", answer_stats, .on_loop = true, .open = true},
    {"POST", "/echo", answer_echo, .most_body = 1 << 20},
    {"DELETE", "/echo", answer_echo, .most_body = 1 << 20},
    {"POST", "/small", answer_echo, .most_body = 10},
    {"GET", "/segments/{}/and/{}", answer_segments, .open = false},
    {"GET", "/nothing", answer_nothing, .open = false},
    {"POST", "/wait", answer_wait_kept, .most_body = 1 << 20},
    {"POST", "/held", answer_held, .most_body = 1 << 20, .on_loop = true},
    {"POST", "/release/{}", answer_release, .on_loop = true},
    {"GET", "/pieces/{}", answer_pieces, .open = false},
    {"GET", "/early", answer_and_wait, .open = false},
    {"GET", "/flood", answer_flood, .on_loop = true},
    {"GET", "/tokens/{}", answer_tokens, .on_loop = true},
    {0},
};

static char *read_file(const char *path)
{
    static char texts[2][16384];
    static int count;
    FILE *file = fopen(path, "r");
    char *text = texts[count++ % 2];
    if (!file)
        return NULL;
    text[fread(text, 1, sizeof texts[0] - 1, file)] = '\0';
    fclose(file);
    return text;
}

static bool set(ws_options *options, const char *word)
{
    struct {
        const char *name;
        unsigned *to;
    } numbers[] = {{"connections=", &options->limits.connections}, {"waiting=", &options->limits.waiting},
                   {"workers=", &options->limits.workers},         {"head_ms=", &options->limits.head_ms},
                   {"body_ms=", &options->limits.body_ms},         {"idle_ms=", &options->limits.idle_ms},
                   {"stall_ms=", &options->limits.stall_ms}};
    const char *value = strchr(word, '=');
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && value; i++)
        if (strncmp(word, numbers[i].name, strlen(numbers[i].name)) == 0) {
            *numbers[i].to = (unsigned)strtoul(value + 1, NULL, 10);
            return true;
        }
    if (strncmp(word, "head_bytes=", 11) == 0)
        options->limits.head_bytes = strtoul(word + 11, NULL, 10);
    else if (strncmp(word, "stream_bytes=", 13) == 0)
        options->limits.stream_bytes = strtoul(word + 13, NULL, 10);
    else if (strncmp(word, "bodies=", 7) == 0)
        options->limits.bodies = strtoul(word + 7, NULL, 10);
    else if (strncmp(word, "certificate=", 12) == 0)
        options->certificate = read_file(word + 12);
    else if (strncmp(word, "private=", 8) == 0)
        options->key = read_file(word + 8);
    else if (strncmp(word, "tick_us=", 8) == 0)
        tick_us = strtoul(word + 8, NULL, 10);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    const char *keys[3] = {NULL};
    unsigned drain = 2000;
    ws_server *server = NULL;
    ws_options options = {.routes = routes, .limits = ws_limits_default()};
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "key=", 4) == 0) {
            keys[keys[0] != NULL] = argv[i] + 4;
            options.keys = keys;
        } else if (strncmp(argv[i], "drain=", 6) == 0) {
            drain = (unsigned)strtoul(argv[i] + 6, NULL, 10);
        } else if (!set(&options, argv[i])) {
            fprintf(stderr, "what is %s?\n", argv[i]);
            return 2;
        }
    }
    if (ws_server_create(&options, &server) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_detail());
        return 1;
    }
    printf("port %u\n", ws_server_port(server));
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    ws_server_destroy(server, drain);
    puts("ended");
    return 0;
}
