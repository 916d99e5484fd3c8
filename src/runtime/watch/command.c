/* What the owner of a watched process may have it do: a command is carried out by a thread of its own, as it may take its time,
 * and the thread of the connections goes on meanwhile. */
#include "base/values.h"
#include "runtime/outside.h"
#include "runtime/watch/watch.h"

#include <stdio.h>
#include <unistd.h>

enum { MOST_RUNTIMES = 64, LONGEST_HOLD = 3600, RUNTIME_BYTES = 4096 };

/* The thread and the connection have it; whoever comes last frees it. */
enum { RUNNING, DONE, LEFT };

struct wi_watch_job {
    atomic_int state;
    const char *command; /* line of the process */
    size_t length;
    char request[WI_WATCH_REQUEST], answer[WI_WATCH_ANSWER];
};

/* Words ------------------------------------------------------------------------------------------------------------ */

/* yield SIZE [DEVICE [SECONDS]]; suspend NAME; resume NAME. A * is no device in particular. */
typedef struct command_words {
    char verb[WI_WATCH_REQUEST];
    uint64_t bytes, hold;
    char device[WI_NAME_BYTES]; /* "": every device but the host; without devices the host */
    const char *name;           /* of clients: the rest of the request */
} command_words;

/* Takes the next word off the text; "" at its end. False: it is longer than `word` has room for. */
static bool command_word(const char **text, char *word, size_t room)
{
    *text += strspn(*text, " ");
    size_t length = strcspn(*text, " ");
    bool fits = length < room;
    memcpy(word, *text, fits ? length : 0);
    word[fits ? length : 0] = '\0';
    *text += length;
    return fits;
}

static bool command_seconds(const char *word, uint64_t *nanoseconds)
{
    uint64_t seconds = 0;
    for (; *word >= '0' && *word <= '9' && seconds <= LONGEST_HOLD; word++)
        seconds = seconds * 10 + (uint64_t)(*word - '0');
    *nanoseconds = seconds * 1000000000;
    return *word == '\0' && seconds <= LONGEST_HOLD;
}

static bool command_read_yield(const char *words, command_words *out)
{
    char size[WI_WATCH_REQUEST], seconds[WI_WATCH_REQUEST];
    bool good = command_word(&words, size, sizeof size) && command_word(&words, out->device, sizeof out->device) &&
                command_word(&words, seconds, sizeof seconds);
    if (strcmp(out->device, "*") == 0)
        out->device[0] = '\0';
    return good && words[strspn(words, " ")] == '\0' && wi_size_read(size, &out->bytes) &&
           command_seconds(seconds, &out->hold);
}

/* False: it is something else. */
static bool command_read(const char *request, command_words *out)
{
    *out = (command_words){.bytes = 0};
    if (!command_word(&request, out->verb, sizeof out->verb))
        return false;
    if (strcmp(out->verb, "yield") == 0)
        return command_read_yield(request, out);
    out->name = request + strspn(request, " ");
    return (strcmp(out->verb, "suspend") == 0 || strcmp(out->verb, "resume") == 0) && out->name[0] != '\0';
}

bool wi_watch_is_command(const char *request)
{
    command_words ignored;
    return command_read(request, &ignored);
}

/* Yielding --------------------------------------------------------------------------------------------------------- */

typedef struct gathered {
    const command_words *words;
    weir_runtime *list[MOST_RUNTIMES]; /* visited */
    size_t count;
    bool only_devices; /* the host is left out */
} gathered;

static void command_gather(weir_runtime *runtime, void *user)
{
    gathered *g = user;
    const char *device = g->words->device, *name = wi_runtime_device(runtime);
    bool wanted = device[0] ? strcmp(device, name) == 0 : !g->only_devices || strcmp(name, "host") != 0;
    if (wanted && g->count < MOST_RUNTIMES && wi_runtime_visit(runtime, "yield") == WEIR_OK)
        g->list[g->count++] = runtime;
}

static void command_write(wi_json *json, const weir_runtime *runtime, uint64_t asked, const weir_yielded *y)
{
    wi_json_open(json, NULL, '{');
    wi_json_text(json, "device", wi_runtime_device(runtime));
    wi_json_bool(json, "own", !runtime->shared);
    wi_json_number(json, "asked", asked);
    wi_json_number(json, "available", y->available);
    wi_json_number(json, "given", y->given);
    wi_json_number(json, "trimmed", y->trimmed);
    wi_json_number(json, "suspended", y->suspended);
    wi_json_number(json, "called", y->called);
    wi_json_number(json, "suspends", y->clients);
    wi_json_number(json, "lacks", y->lacks);
    wi_json_number(json, "held", y->held);
    wi_json_number(json, "live", y->live);
    wi_json_number(json, "pending", y->pending);
    wi_json_number(json, "unused", y->unused);
    wi_json_number(json, "guaranteed", y->guaranteed);
    wi_json_text(json, "why", y->why);
    wi_json_close(json, '}');
}

/* Has the runtime yield, and ends its visit. */
static void command_yield_one(wi_json *json, weir_runtime *runtime, const command_words *words)
{
    weir_yield_options options = {.struct_size = sizeof options, .bytes = words->bytes, .hold = words->hold};
    weir_yielded done = {.struct_size = sizeof done};
    weir_status status = weir_yield(runtime, &options, &done);
    if (status != WEIR_OK)
        wi_shorten(weir_detail(), done.why, sizeof done.why);
    if (status != WEIR_OK)
        done.lacks = words->bytes;
    if (wi_json_room(json) >= RUNTIME_BYTES)
        command_write(json, runtime, words->bytes, &done);
    wi_runtime_visit_end(runtime);
}

static void command_yield(wi_json *json, const command_words *words)
{
    gathered g = {.words = words, .only_devices = true};
    wi_runtimes_each(command_gather, &g);
    if (g.count == 0 && !words->device[0]) {
        g.only_devices = false;
        wi_runtimes_each(command_gather, &g);
    }
    for (size_t i = 0; i < g.count; i++)
        command_yield_one(json, g.list[i], words);
}

/* Suspending and resuming ------------------------------------------------------------------------------------------ */

static void command_tell_client(const weir_client *client, weir_status status, uint64_t bytes, void *user)
{
    wi_json *json = user;
    char why[256] = "";
    if (status != WEIR_OK)
        wi_shorten(weir_detail(), why, sizeof why);
    if (wi_json_room(json) < RUNTIME_BYTES)
        return;
    wi_json_open(json, NULL, '{');
    wi_json_text(json, "name", wi_client_name(client));
    wi_json_bool(json, "moved", status == WEIR_OK);
    wi_json_number(json, "bytes", status == WEIR_OK ? bytes : 0);
    wi_json_text(json, "why", why);
    wi_json_close(json, '}');
}

static void command_move(wi_json *json, const command_words *words)
{
    gathered g = {.words = words};
    wi_runtimes_each(command_gather, &g);
    for (size_t i = 0; i < g.count; i++) {
        bool told = wi_json_room(json) >= 2 * (size_t)RUNTIME_BYTES;
        if (told) {
            wi_json_open(json, NULL, '{');
            wi_json_text(json, "device", wi_runtime_device(g.list[i]));
            wi_json_bool(json, "own", !g.list[i]->shared);
            wi_json_open(json, "clients", '[');
            (void)wi_outside_move_named(g.list[i], words->name, strcmp(words->verb, "suspend") == 0,
                                        command_tell_client, json);
            wi_json_close(json, ']');
            wi_json_close(json, '}');
        }
        wi_runtime_visit_end(g.list[i]);
    }
}

/* Jobs ------------------------------------------------------------------------------------------------------------- */

static void command_carry_out(wi_watch_job *job)
{
    wi_json json = {.text = job->answer, .capacity = sizeof job->answer};
    command_words words;
    bool good = command_read(job->request, &words);
    wi_assert(good);
    wi_json_open(&json, NULL, '{');
    wi_json_text(&json, "weir", WEIR_VERSION_STRING);
    wi_json_number(&json, "pid", (uint64_t)getpid());
    wi_json_text(&json, "command", job->command);
    wi_json_open(&json, "runtimes", '[');
    if (good)
        (words.name ? command_move : command_yield)(&json, &words);
    wi_json_close(&json, ']');
    wi_json_close(&json, '}');
    wi_assert(!json.full);
    job->answer[json.used] = '\n';
    job->length = json.used + 1;
}

static void *command_run(void *user)
{
    wi_watch_job *job = user;
    pthread_setname_np(pthread_self(), "weir-command");
    command_carry_out(job);
    if (atomic_exchange(&job->state, DONE) == LEFT)
        free(job);
    return NULL;
}

wi_watch_job *wi_watch_begin(const char *request, const char *command)
{
    wi_watch_job *job = calloc(1, sizeof *job);
    pthread_attr_t detached;
    pthread_t thread;
    if (!job)
        return NULL;
    atomic_init(&job->state, RUNNING);
    job->command = command;
    snprintf(job->request, sizeof job->request, "%s", request);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int failure = pthread_create(&thread, &detached, command_run, job); /* the signals are blocked as in its maker */
    pthread_attr_destroy(&detached);
    if (failure == 0)
        return job;
    free(job);
    return NULL;
}

const char *wi_watch_result(const wi_watch_job *job, size_t *length)
{
    if (atomic_load(&job->state) != DONE)
        return NULL;
    *length = job->length;
    return job->answer;
}

void wi_watch_leave(wi_watch_job *job)
{
    if (job && atomic_exchange(&job->state, LEFT) == DONE)
        free(job);
}
