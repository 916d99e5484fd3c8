/* A pool under traffic in virtual time: random numbers, the link, the queue of events, requests and models, the
 * policies that are compared, the loop, and what is read and written. */
#ifndef WI_SIM_POOL_TRAFFIC_H
#define WI_SIM_POOL_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <weir/base.h>

#include "pool/admission.h"
#include "pool/decisions.h"

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* Chance that is the same on any machine: no floating point, no libm. */

/* splitmix64 */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* A number below `below`, which is not 0. */
static inline uint64_t random_below(uint64_t *state, uint64_t below)
{
    return (uint64_t)((unsigned __int128)random_next(state) * below >> 64);
}

/* -log2(x / 2^32) in units of 2^-24, for x from 1 to 2^32: by squaring, a bit of the answer each time. */
static inline uint64_t random_log2(uint64_t x)
{
    enum { BITS = 24 };
    unsigned whole = 63 - (unsigned)__builtin_clzll(x);
    uint64_t part = 0, y = x << (63 - whole); /* from 1 to 2, in units of 2^-63 */
    for (int i = 0; i < BITS; i++) {
        unsigned __int128 square = (unsigned __int128)y * y >> 63;
        unsigned bit = (unsigned)(square >> 64);
        part = part << 1 | bit;
        y = (uint64_t)(square >> bit);
    }
    return ((uint64_t)(32 - whole) << BITS) - part;
}

/* Exponentially distributed with this mean: times between independent events. At most 22 times the mean, which is below
 * 2^40. */
static inline uint64_t random_exponential(uint64_t *state, uint64_t mean)
{
    const uint64_t ln2 = 11629080; /* in units of 2^-24 */
    uint64_t log = random_log2((random_next(state) >> 32) + 1);
    return (uint64_t)((unsigned __int128)mean * log * ln2 >> 48);
}

/* ---- queue.c: what happens next ---------------------------------------------------------------------------------- */

/* Future events, earliest first; events of the same time in the order of their heap_put. */

typedef struct heap_event {
    uint64_t at, order;
    uint64_t what; /* the user's */
} heap_event;

/* A heap of zeros is empty. */
typedef struct heap {
    heap_event *list;
    size_t count, room;
    uint64_t order;
} heap;

bool heap_put(heap *it, uint64_t at, uint64_t what); /* false: no memory */
heap_event heap_take(heap *it);                      /* the first; there is one */
void heap_clear(heap *it);

/* When the first one is; UINT64_MAX: there is none. */
static inline uint64_t heap_next(const heap *it)
{
    return it->count > 0 ? it->list[0].at : UINT64_MAX;
}

/* A way into a device, or out of it, that transfers share. While n of them go on, each gets on at an n-th of the
 * speed that it has alone. Up to sixteen at once that is exact; of more, each loses less than a nanosecond a year. */

enum { LINK_PARTS = 720720, LINK_MOST = 256 }; /* parts of a nanosecond: 1 to 16 divide them */

/* All zeros is a link on which nothing goes on. */
typedef struct shared_link {
    struct {
        unsigned __int128 left; /* parts */
        uint32_t who;
    } list[LINK_MOST]; /* in the order of their beginnings */
    uint32_t count;
    uint64_t now;
} shared_link;

/* Begins a transfer that takes `alone` nanoseconds if nothing else goes on. False: there are too many. */
bool link_begin(shared_link *it, uint64_t now, uint32_t who, uint64_t alone);
/* When the first of them is through, rounded up; UINT64_MAX: nothing goes on. */
uint64_t link_next(const shared_link *it);
/* Advances to `now`, which is not after link_next. True: a transfer is complete and removed, and *who names it. To be
 * called until false, as several transfers may be complete at `now`. */
bool link_end(shared_link *it, uint64_t now, uint32_t *who);

/* ---- requests and models ----------------------------------------------------------------------------------------- */

/* The models of a simulated pool, and the requests that come for them: read from files, or made from a seed. */

enum { TRAFFIC_MODELS = 256, TRAFFIC_DEVICES = 8 };
#define TRAFFIC_SECOND UINT64_C(1000000000)
#define TRAFFIC_DAY    (86400 * TRAFFIC_SECOND)

/* A model's specification for admission, and the behaviour of the model's double. */
typedef struct traffic_model {
    wp_spec spec;
    uint32_t popular;       /* how often generators ask for it, beside the others; from 1 */
    uint32_t fails;         /* a load fails with a chance of 1 in `fails`; 0: never */
    uint64_t request_time;  /* mean, nanoseconds */
    uint64_t request_bytes; /* mean */
    char gives_up[WP_NAME]; /* "device,evict,wait", as spec.steps has them; "" */
} traffic_model;

typedef struct traffic_models {
    traffic_model *list;
    uint32_t count;
    uint32_t devices; /* the highest device's number, and one */
} traffic_models;

/* Fourteen models of 0.5 to 40 GiB, 169 GiB together. A load takes 1.5 s and what 2.5 GiB/s take, as from a good disk; a
 * resume 50 ms and what 40 GiB/s take, as from page-locked memory over PCIe 5; a suspend the same. WEIR_ERR_SYSTEM: no memory.
 * Freed with traffic_models_free, as the others. */
weir_status traffic_models_default(traffic_models *out);
/* Reads a file of them (docs/guide/simulate.md). WEIR_ERR_INVALID names the line. */
weir_status traffic_models_read(const char *path, traffic_models *out);
/* Gives each model a variant on each of `devices` devices, except models that have a variant on another device already.
 * The models' own devices are dealt out in turn. False: a model has too many variants. */
bool traffic_models_spread(traffic_models *models, uint32_t devices);
/* Writes what traffic_models_read reads. */
void traffic_models_write(const traffic_models *models, FILE *file);
void traffic_models_free(traffic_models *models);

typedef struct traffic_request {
    uint64_t at, duration;
    uint64_t deadline; /* after `at`; WP_FOREVER: the pool's longest wait */
    uint64_t bytes;
    uint32_t model; /* in the list */
    int32_t priority;
} traffic_request;

typedef enum traffic_kind {
    TRAFFIC_ZIPF,      /* independent requests; the model of rank n is asked for 1/n as often as the first */
    TRAFFIC_BURSTS,    /* each model sleeps for long, and then has many requests in a row */
    TRAFFIC_PING_PONG, /* models that do not fit together by turns: A B A B …, then A A B A A C …, then others */
    TRAFFIC_SCAN,      /* all models in turn, again and again */
    TRAFFIC_DIURNAL,   /* more by day than by night, and other models by day than by night */
    TRAFFIC_MIX,       /* zipf, bursts, ping-pong and diurnal by turns, for some hours each, and a scan every night */
    TRAFFIC_KINDS
} traffic_kind;

typedef struct traffic_options {
    traffic_kind kind;
    uint64_t seed, length; /* nanoseconds of traffic */
    uint64_t gap;          /* mean time between two requests */
    uint64_t budget;       /* of a device: what does not fit together */
} traffic_options;

typedef struct traffic traffic;

const char *traffic_kind_name(traffic_kind kind);
traffic_kind traffic_kind_called(const char *name); /* TRAFFIC_KINDS: none */

/* Requests in the order of their times. The models must outlive it. NULL: no memory. */
traffic *traffic_generate(const traffic_options *options, const traffic_models *models);
/* Those of a file, read as they are asked for. */
weir_status traffic_open(const char *path, const traffic_models *models, traffic **out);
/* *got false: there is none left. */
weir_status traffic_next(traffic *from, traffic_request *out, bool *got);
/* How much of it has been handed out, from 0 to 1; of a file, of its bytes. */
double traffic_fraction(const traffic *from);
void traffic_close(traffic *from);
/* A line of a file of requests, with its end. */
void traffic_request_write(const traffic_request *q, const traffic_models *models, FILE *file);

/* ---- requests.c -------------------------------------------------------------------------------------------------- */

/* What a source of requests is made of. */

struct traffic {
    weir_status (*next)(traffic *from, traffic_request *out, bool *got);
    double (*fraction)(const traffic *from);
    void (*close)(traffic *from);
};

/* ---- policies.c -------------------------------------------------------------------------------------------------- */

/* What decides in a simulated pool: weir's own state machine, or what others do. All of them are told the same
 * events (pool/decisions.h) and answer with the same actions, and what they decide about has the same doubles. */

typedef struct policy_world {
    wp_limits limits;
    uint32_t devices;
    uint32_t most_models; /* of lru-count: loaded at once */
} policy_world;

typedef struct policy {
    const char *name;
    bool suspends;
    /* Begins, as WP_EVENT_BEGIN says. NULL: no memory. Freed with `destroy`. */
    void *(*create)(const policy_world *world);
    void (*destroy)(void *it);
    /* As wp_apply and wp_take. A simulation has these events: add, ceiling, ask, done, the ends of loads, suspends,
     * resumes and unloads, and tick. */
    void (*apply)(void *it, wp_event *event);
    bool (*take)(void *it, wp_event *event, wp_action *action);
    uint64_t (*wake)(const void *it);
    bool (*sound)(const void *it); /* its invariants; NULL: it has none */
} policy;

/* What there is; `count` of them. The first are weir's. */
extern const policy *const policies[];
extern const size_t policy_count;
const policy *policy_called(const char *name); /* NULL: none */

extern const policy policy_weir, policy_weir_suspend;
/* These policies load a model only on its own device, as added. They load on request, one request after the other, and
 * unload idle models until the requested model fits, first: */
extern const policy policy_lru_count; /* …the least recently used; and no more than `most_models` at once */
extern const policy policy_lru_bytes; /* …the least recently used */
extern const policy policy_size;      /* …the largest */
extern const policy
    policy_keep_alive; /* …the one whose keep-alive (5 minutes unless its model says otherwise) ends first;
                                        * when it ends the model goes anyway; one load at a time */

/* ---- drive.c ----------------------------------------------------------------------------------------------------- */

/* A pool under traffic, in virtual time. A policy decides; doubles of the models carry it out. A load, a
 * resume and a suspend take the time of the model's line if nothing else goes on; loads and resumes share the device's
 * way in, suspends share its way out (queue.c). A request runs for its own time. Beside the policy the driver keeps
 * books of its own, by which the policy is judged: bytes over the ceiling, requests that are lost, actions that make no
 * sense. */

/* An unload takes so long. */
#define DRIVE_UNLOAD (10 * TRAFFIC_SECOND / 1000)

typedef struct drive_options {
    const policy *policy;
    const traffic_models *models;
    traffic *requests; /* read to its end */
    wp_limits limits;
    uint64_t budget; /* of each device */
    uint32_t most_models;
    uint64_t seed; /* which loads fail */
    FILE *log;     /* of decisions (pool/decisions.h); NULL: none */
    void (*progress)(void *user, double fraction);
    void *user;
} drive_options;

enum { DRIVE_WAITS = 64 * 64 };

typedef struct drive_result {
    uint64_t requests, granted, done, refused[WP_CAUSES];
    uint64_t loads, resumes, suspends, unloads, failures;
    uint64_t evictions;  /* unloads and suspends for a request */
    uint64_t reload;     /* nanoseconds that the ways in were busy: the sum of the loads' and resumes' times alone */
    uint64_t coming;     /* nanoseconds that models were on their way in: more where they shared it */
    uint64_t suspending; /* nanoseconds that models were on their way out to the host */
    uint64_t bytes_in, bytes_out;
    uint64_t most_taken, over; /* bytes of a device; over its ceiling: at the worst moment */
    uint64_t most_host, over_host;
    uint64_t wait_sum, wait_most;
    uint32_t waits[DRIVE_WAITS]; /* of granted requests, by length: drive_wait */
    uint64_t events, actions;    /* that the policy was told; that it answered with */
    uint64_t virtual_end;        /* nanoseconds */
    double seconds;              /* of real time */
    uint64_t violations;
    char first[256]; /* of them */
} drive_result;

/* WEIR_OK also with violations. WEIR_ERR_INVALID: the requests cannot be read; WEIR_ERR_SYSTEM: no memory, or the log cannot be
 * written. */
weir_status drive(const drive_options *options, drive_result *out);

/* The wait that so much of the granted requests did not pass, in nanoseconds: at most 1.6 % too much. `part` is from 0 to 1. */
uint64_t drive_wait(const drive_result *result, double part);
/* All refusals. */
uint64_t drive_refusals(const drive_result *result);

/* ---- lines.c ----------------------------------------------------------------------------------------------------- */

/* Files of lines "WORD key=value key=value flag", read strictly: every problem has its line. Comments begin with
 * '#'. Times are "250ms", "1.5s", "5m", "forever"; sizes as everywhere ("1.5GiB"). */

enum { LINE_BYTES = 1024, LINE_WORDS = 40 };

typedef struct line_reader {
    FILE *file;
    const char *path; /* as it was opened; the caller keeps it */
    uint64_t number;  /* of the line, from 1 */
    char text[LINE_BYTES + 2];
    const char *word; /* its first; the others are pairs */
    struct {
        const char *key, *value; /* value NULL: a flag */
    } pairs[LINE_WORDS];
    unsigned count;
} line_reader;

typedef enum line_type {
    LINE_SIZE, /* a uint64_t, bytes */
    LINE_TIME, /* a uint64_t, nanoseconds; "forever" is 2^64-1 */
    LINE_U32,
    LINE_I32,
    LINE_NAME, /* char[64], not empty */
    LINE_SET,  /* a bool, which the flag sets to true */
    LINE_CLEAR /* a bool, which the flag sets to false */
} line_type;

/* A key of a line and where its value goes. */
typedef struct line_field {
    const char *key;
    line_type type;
    bool wanted; /* a line without it is refused */
    size_t at;
    uint64_t least, most; /* of numbers, sizes and times; both 0: any */
} line_field;

/* WEIR_ERR_SYSTEM: it cannot be opened. */
weir_status line_open(line_reader *reader, const char *path);
void line_close(line_reader *reader);
/* The next line that has words. *got false: there is none. */
weir_status line_next(line_reader *reader, bool *got);
/* WEIR_ERR_INVALID with "PATH, line N: …". */
weir_status line_fail(const line_reader *reader, const char *format, ...) WEIR_PRINTF(2, 3);
/* Reads the line's pairs into `to`. A key that is not there, comes twice or is missing is refused, as is a value that is
 * none. *seen, unless NULL, gets a bit for each field that was given. */
weir_status line_fill(const line_reader *reader, const line_field *fields, size_t count, void *to, uint64_t *seen);

/* "1.5s" in nanoseconds; parts of a nanosecond, signs and other units are refused. */
bool line_time_read(const char *text, uint64_t *out);
/* Writes the time so that line_time_read reads the same value: "1500ms". Returns `text`, which has at least 24
 * bytes. */
char *line_time_write(uint64_t time, char *text, size_t capacity);

/* ---- replay.c ---------------------------------------------------------------------------------------------------- */

/* A log of decisions (pool/decisions.h) given to a new state machine, which has to decide the same. */

typedef struct replay_result {
    uint64_t lines, events, actions;    /* read; given to the machine; compared */
    bool differs;                       /* then it has ended there */
    uint64_t line;                      /* where */
    char recorded[2048], decided[2048]; /* the two lines; "" for none */
    double seconds;
} replay_result;

/* WEIR_OK also when it differs. WEIR_ERR_INVALID names the line that is none; WEIR_ERR_SYSTEM: it cannot be read. */
weir_status replay_decisions(const char *path, void (*progress)(void *user, double fraction), void *user,
                             replay_result *out);

#endif
