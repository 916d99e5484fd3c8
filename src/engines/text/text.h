/* What engines share that go on with a text: settings, inputs, the words of an answer, results, and listeners. The
 * prefix is wt_. */
#ifndef WT_TEXT_H
#define WT_TEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <weir/base.h>
#include <weir/cores.h>
#include <weir/engine.h>
#include <weir/memory.h>
#include <weir/runtime.h>

/* ---- choices.c --------------------------------------------------------------------------------------------------- */

/* An engine's settings. A table has each setting's key, place in the structure, and values. */

typedef struct wt_choice {
    const char *key;
    char kind; /* i(nteger): int64_t, r(eal): double, b(ool), t(ext, short): char[], l(ong): the caller's pointer */
    bool of_load;
    size_t at;          /* in the structure of the settings of a load, or of a run */
    double least, most; /* for a short text: `most` bytes with its end */
} wt_choice;

typedef struct wt_choices {
    const char *engine; /* "gguf", for messages */
    const wt_choice *list;
    size_t count;
} wt_choices;

/* Writes what the settings say into `load` and `run`. At a load both kinds are taken: settings of a run become the
 * model's defaults. For a run `load` is NULL. WEIR_ERR_INVALID names the key, its values, or the keys that there
 * are. */
weir_status wt_choices_take(const wt_choices *choices, const weir_setting *settings, size_t count, void *load,
                            void *run);
/* As strtod, with a point in whatever language the program speaks. */
double wt_real(const char *text, char **end);
/* Copies the long texts of a run's settings into *copies, so that they may outlive the caller's; to be freed. On failure
 * the settings hold no text. */
weir_status wt_choices_keep(const wt_choices *choices, void *run, char **copies);
/* All that the settings of a load say, but for the one at `except`, in words: equal for equal settings. Answers whether
 * it fits. */
bool wt_choices_words(const wt_choices *choices, const void *load, size_t except, char *out, size_t capacity);
/* Goes on with `sum` over the bytes. It finds what was cut or changed by accident; it is no seal. */
uint64_t wt_sum(uint64_t sum, const void *data, size_t bytes);

/* ---- ahead.c ----------------------------------------------------------------------------------------------------- */

/* Reading a model's files ahead of a library that reads them on one thread. It only brings what is not in the page cache there,
 * never more than half of the memory that the system has left; where anything fails, a load is slower, and no more. */

enum { WT_AHEAD_FILES = 16, WT_AHEAD_THREADS = 2 };

typedef struct wt_ahead {
    struct {
        int file;
        uint64_t pieces;
    } files[WT_AHEAD_FILES];
    size_t count;
    atomic_uint_fast64_t next, end; /* pieces: the files are counted as if joined to a single file */
    pthread_t threads[WT_AHEAD_THREADS];
    size_t running;
} wt_ahead;

/* Begins with the file, or with the files of the folder. */
void wt_ahead_begin(wt_ahead *it, const char *path);
/* The same for several paths: wt_ahead_add for each on a wt_ahead of zeros, and then wt_ahead_run, once. */
void wt_ahead_add(wt_ahead *it, const char *path);
void wt_ahead_run(wt_ahead *it);
/* Ends it, also before all is asked for, and where nothing runs; to be called once. */
void wt_ahead_end(wt_ahead *it);

/* Whether the file is in the page cache, by some of its bytes. Where the system cannot tell, nothing is. */
bool wt_ahead_is_cached(int file, uint64_t bytes);

/* ---- ring.c ------------------------------------------------------------------------------------------------------ */

/* Reading a file past the page cache, for a library that reads it on one thread, mostly from the beginning to the end. Threads are up
 * to 16 MiB ahead of the library. */

enum {
    WT_RING_PIECES = 16,
    WT_RING_READERS = 8,
    WT_RING_PIECE = 1 << 20,
    WT_RING_BYTES = WT_RING_PIECES * WT_RING_PIECE
};

typedef struct wt_ring {
    int file;
    dev_t device; /* of the file */
    ino_t number;
    uint64_t size, given; /* bytes of the file, and so many that were copied out of the ring */
    char *buffers;        /* NULL: it does not run */
    pthread_mutex_t lock;
    pthread_cond_t room, come;
    uint64_t first, next;        /* pieces: the first that is still wanted, and the next to be read */
    ssize_t got[WT_RING_PIECES]; /* bytes of the piece there; 0: it is being read, -1: it cannot be read */
    bool filling[WT_RING_PIECES];
    int busy; /* readers that read */
    bool moving, ending;
    pthread_t threads[WT_RING_READERS];
    int running;
} wt_ring;

/* Answers false, with a ring that may be ended, where the file is in the page cache, the file system has no such reads (O_DIRECT), or
 * memory or threads are missing. */
bool wt_ring_begin(wt_ring *ring, const char *path);
/* Copies bytes of the file. One thread at a time. Answers false, perhaps after some bytes, where they are to be read otherwise: they
 * cannot be read so, lie behind the end, or are few (less than 256 KiB) and away from what was read last. */
bool wt_ring_read(wt_ring *ring, void *to, uint64_t offset, size_t bytes);
/* Ends a ring, when the reads under way have ended; also a ring of zeros. */
void wt_ring_end(wt_ring *ring);

/* ---- words.c ----------------------------------------------------------------------------------------------------- */

/* Words that end a text, and lists of words in a setting. */

typedef struct wt_word {
    const char *text;
    size_t bytes;
} wt_word;

typedef struct wt_words {
    wt_word *list;
    size_t count, longest;
    char *copies;
} wt_words;

enum { WT_MOST_WORDS = 64 };

/* The words of a setting, one a line; \n, \t and \\ in a word are a newline, a tab and a backslash. Empty lines are
 * none. */
weir_status wt_words_read(const char *key, const char *value, wt_words *out);
void wt_words_drop(wt_words *words);
/* Finds the word that begins first in text[from..]; of several words that begin there, the word that was named first.
 * NULL: none. */
const wt_word *wt_words_find(const wt_words *words, const char *text, size_t bytes, size_t from, size_t *at);
/* So many bytes at the end of the text may be the beginning of a word. */
size_t wt_words_held(const wt_words *words, const char *text, size_t bytes);

/* ---- ports.c ----------------------------------------------------------------------------------------------------- */

/* Inputs and results of engines that go on with a text. */

/* Whether an input is a row of bytes of that type (WEIR_TYPE_TEXT, WEIR_TYPE_U8) that has some. */
weir_status wt_check_bytes(const weir_tensor *input, weir_type type);
/* Copies the bytes of such an input and adds a byte 0, for engines that take terminated texts. WEIR_ERR_INVALID: a byte
 * 0 in the input would cut the text. The caller frees *out. */
weir_status wt_text_copy(const weir_tensor *input, char **out);
/* Whether an input is tokens, i32, of rank 1 to `rank`, each below `vocabulary`. With `padded`, -1 may stand in one of rank 2. */
weir_status wt_check_tokens(const weir_tensor *input, uint32_t rank, int32_t vocabulary, bool padded);

/* The inputs by name; NULL: not given. */
typedef struct wt_inputs {
    const weir_tensor *text, *tokens, *messages, *state;
    int prompts; /* of the first three */
} wt_inputs;

/* How many of the four a model takes. */
enum { WT_EMBEDS = 2, WT_CHATS = 3, WT_RESUMES = 4 };

/* Finds the inputs, and checks type, shape, size and the values of tokens. An unknown name, a name given twice and a second
 * prompt are WEIR_ERR_INVALID. */
weir_status wt_inputs_read(const weir_inference *inference, size_t kinds, int32_t vocabulary, wt_inputs *out);

/* Inputs and results that every engine of text has. */
enum { WT_PROMPT_PORTS = 3, WT_ANSWER_PORTS = 8 };
extern const weir_port wt_prompt_ports[WT_PROMPT_PORTS], wt_answer_ports[WT_ANSWER_PORTS];

enum { WT_PARTS = 13 };

/* Results are put together in one block of the client's. */
typedef struct wt_part {
    const char *name;
    weir_type type;
    uint32_t rank;
    int64_t shape[2];
    const void *data;
    size_t bytes;
} wt_part;

typedef struct wt_parts {
    wt_part list[WT_PARTS];
    size_t count;
} wt_parts;

void wt_parts_add(wt_parts *parts, const char *name, weir_type type, const void *data, size_t count);
void wt_parts_add_rows(wt_parts *parts, const char *name, weir_type type, const void *data, size_t rows,
                       size_t columns);
/* Copies the parts into host memory of the client: of its device, or of the kind `kind`. */
weir_status wt_hand_out(weir_client *client, weir_kind kind, const wt_parts *parts, weir_outputs *out);
/* On failure the block stays with the client, and is the results' no more. */
weir_status wt_release_outputs(weir_client *client, weir_outputs *outputs);

/* ---- messages.c -------------------------------------------------------------------------------------------------- */

/* The input `messages` of engines that go on with a text: a chat, message by message. */

typedef struct wt_message {
    const char *role; /* "system", "user", "assistant", "tool" */
    const char *text;
} wt_message;

typedef struct wt_messages {
    wt_message *list;
    size_t count;
    char *copies; /* the texts, each with a terminating zero */
} wt_messages;

/* Each message is a line `ROLE BYTES`, so many bytes of text, and a newline, which the last may lack. */
weir_status wt_messages_read(const weir_tensor *input, wt_messages *out);
/* The messages of a chat; of an input `text` one, of the role "user". */
weir_status wt_chat_read(const wt_inputs *in, wt_messages *out);
void wt_messages_drop(wt_messages *messages);

/* ---- answer.c ---------------------------------------------------------------------------------------------------- */

/* The answer of a run that goes on with a text: tokens, text, the decided part of both, and the reason of the
 * end. */

typedef struct wt_answer {
    wt_words stops;
    int32_t *tokens;
    size_t *ends; /* of each token's text in `text` */
    size_t count, most;
    char *text;
    size_t bytes, room;
    size_t released;     /* tokens whose text is decided: no stop word begins in it that may still end */
    size_t delivered;    /* of these, to the run's reader */
    const wt_word *stop; /* the stop word that ended the answer */
    const char *finish;  /* the reason of the end: "stop", "length", "cancelled"; NULL: it goes on */
    size_t alternatives; /* for each token */
    float *logprobs, *top_logprobs;
    int32_t *top_tokens;
} wt_answer;

/* Settles how many tokens a run makes behind `prompt` tokens, in a context of `room`; below 0: as many as there is room
 * for. The last `spare` of them need no place. WEIR_ERR_INVALID: there is too little room, or `logprobs` is more than the
 * tokens that there are. */
weir_status wt_settle_tokens(int64_t *tokens, size_t prompt, uint64_t room, uint64_t spare, int64_t logprobs,
                             int64_t vocabulary);
/* Makes an answer with room for `tokens` tokens, each with `alternatives` alternatives and their probabilities (0:
 * none). `stop` is the setting of that name, or NULL. */
weir_status wt_answer_make(const char *stop, size_t tokens, size_t alternatives, wt_answer *out);
void wt_answer_drop(wt_answer *answer);
/* Adds a token with its text; of the logits it came from, `width` wide, the probabilities are taken where they were asked
 * for. false: no memory. The answer may be at its end then. */
bool wt_answer_add(wt_answer *it, int32_t token, const char *text, size_t bytes, const float *logits, int32_t width);
/* Nothing comes any more: what was held back is decided. */
void wt_answer_end(wt_answer *it, const char *finish);
/* Leaves the first `count` tokens of it. */
void wt_answer_cut(wt_answer *it, size_t count);
/* Its reader wants no more: leaves what was delivered. */
void wt_answer_stop(wt_answer *it);
/* Hands the next piece to the reader, without the lock, during which the answer may grow. Answers whether the reader
 * wants more; also false, with *lost, where there was no memory for the piece. */
bool wt_answer_deliver(wt_answer *it, pthread_mutex_t *lock, weir_piece_fn reader, void *user, bool *lost);
size_t wt_answer_begin_of(const wt_answer *it, size_t token);
/* Adds the results that every engine has; *prompt is the number of the prompt's tokens. */
void wt_answer_parts(const wt_answer *it, const int32_t *prompt, wt_parts *parts);

/* What the model gives a token, before any sampler, and the `most` likeliest ones with theirs: logarithms. */
float wt_log_probabilities(const float *logits, int32_t width, int32_t token, size_t most, int32_t *top_tokens,
                           float *top_values);

/* ---- listener.c -------------------------------------------------------------------------------------------------- */

/* By which others ask a model for memory: a pressure callback whose model may be unloaded while it runs. */

typedef struct wt_listener wt_listener;

/* Has give_up(model) called when a request of the runtime's finds no memory. It must wait for nobody for long, and for no
 * callback: the end waits for it. The same errors as weir_pressure_register_with; *out is NULL then. */
weir_status wt_listener_begin(weir_runtime *runtime, void (*give_up)(void *model), void *model, wt_listener **out);
/* When it returns, no call is in the model, and none will be: also inside a pressure callback, where the end of a
 * registration waits for nobody. NULL: nothing. */
void wt_listener_end(wt_listener *listener);

/* ---- runs.c ------------------------------------------------------------------------------------------------------ */

typedef struct wt_run {
    uint64_t id;
    atomic_bool stop;
    pthread_cond_t wake; /* its thread waits for it, with the lock; where the model says so, while `sleeps` */
    bool sleeps;
    void
        *computes; /* what the engine has for a run that computes, with the lock; NULL: nothing that a cancel can end */
    struct wt_run *next;
} wt_run;

typedef struct wt_runs {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    wt_run *first;          /* of those under way or waiting */
    wt_run *_Atomic active; /* that computes now; may be read without the lock */
    weir_engine_metrics metrics;
} wt_runs;

void wt_runs_open(wt_runs *it);
void wt_runs_close(wt_runs *it);
weir_status wt_runs_metrics(wt_runs *it, weir_engine_metrics *out);
/* Stops the runs of that number, 0: all. `stop`, which may be NULL, is told of each, with the lock. */
weir_status wt_runs_cancel(wt_runs *it, uint64_t id, weir_cores *cores, void (*stop)(void *user, wt_run *run),
                           void *user);

/* Puts a run into the list. wt_run_end takes it out and counts it by `status`. */
void wt_run_begin(wt_runs *it, wt_run *run, uint64_t id);
void wt_run_end(wt_runs *it, wt_run *run, weir_status status, uint64_t in, uint64_t out);
/* Takes a run out of the list before its end, so that no cancel finds the run; called with the lock held. */
void wt_run_leave(wt_runs *it, wt_run *run);
/* The same, without the lock; whether a cancel had found it. */
bool wt_run_was_stopped(wt_runs *it, wt_run *run);
/* For those who wait on behalf of a run. */
bool wt_run_is_stopped(void *run);

/* Runs a single token, so that kernels, work buffers and page tables exist. */
weir_status wt_warm_up(const weir_engine *engine, weir_engine_model *model, int32_t token, const weir_setting *settings,
                       size_t count);

/* Waits until the model is the run's: WEIR_ERR_CANCELLED if the run was cancelled while it waited. */
weir_status wt_runs_enter(wt_runs *it, wt_run *run);
void wt_runs_leave(wt_runs *it, double seconds);

/* Leases cores, or renews the lease if *leased is true. Called before each step, on the computing thread, without locks.
 * With an error, as when `stops` answers true, nothing is leased. `cores` NULL: nothing waits. */
weir_status wt_cores_take(weir_cores *cores, bool (*stops)(void *user), void *user, bool *leased, uint32_t *count);
/* Before the thread does anything else. */
void wt_cores_give(weir_cores *cores, bool *leased);

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* For pthread_cond_timedwait. */
static inline struct timespec wt_soon(long milliseconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec += milliseconds * 1000000;
    now.tv_sec += now.tv_nsec / 1000000000;
    now.tv_nsec %= 1000000000;
    return now;
}

static inline double wt_seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
