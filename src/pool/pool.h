/* A pool, inside: models by name, the work on the models, and the waiting requests.
 *
 * The state machine (admission.h) decides, under the pool's one lock; decide.c tells it everything, through
 * decisions.h, and hands out its answers: work on a model to the pool's threads (work.c), grants and refusals to the
 * waiting calls (requests.c). Nothing of weir is called with the lock held, but for the log's and details' texts.
 *
 * An entry is one version of a name on its device. The current one gets the requests of its name. It is retired when it
 * is removed, replaced by another version, unloaded by hand, or not well; in the last two cases another entry of the
 * same source has its place from then on. A retired one takes no request; it is unloaded when its last lease ends, and
 * then forgotten. */
#ifndef WI_POOL_POOL_H
#define WI_POOL_POOL_H

#include "base/internal.h"
#include "pool/decisions.h"

#include <weir/pool.h>
#include <weir/stats.h>

#include <stdatomic.h>
#include <time.h>

enum { WI_POOL_WAYS = 8 };        /* settings of one model */
enum { WI_POOL_PROGRESS = 1000 }; /* a load that is done */

/* What is loaded: copies of what the spec says. Never changed after it was made. */
typedef struct wi_pool_settings {
    weir_setting *all;
    size_t count;
} wi_pool_settings;

typedef struct wi_pool_source {
    unsigned references;                     /* entries that have it; under the lock */
    unsigned listed;                         /* of those, that are in the pool's list */
    char *path, *engine;                     /* NULL: none given */
    bool chosen;                             /* for the manifest; else the path is loaded as it is */
    weir_manifest manifest;                  /* its pointers lead to the caller's memory */
    wi_pool_settings settings[WI_POOL_WAYS]; /* all settings of each way; the first way is the whole model */
    uint64_t guaranteed, maximum;
    bool first_run, prepare;
    weir_hardware *hardware; /* of a manifest: as it was when the model was added */
    /* The hardware key of each device of the pool; "": the model is never on that device. */
    char (*keys)[64];
    size_t ways; /* of settings */
} wi_pool_source;

/* Bytes of an account that is no model's of the pool, when a model was loaded. */
typedef struct wi_pool_account {
    const weir_client *client;
    char name[64];
    uint64_t live;
} wi_pool_account;

typedef struct wi_pool_device {
    char name[32];
    weir_runtime *runtime;
    uint64_t ceiling;         /* as the machine was told it last */
    uint64_t looked;          /* when; 0: never */
    uint64_t looks, answered; /* looks that have begun, and the latest whose answer was taken */
    weir_pool *pool;
    uint64_t pressure; /* id of the callback by which other processes' needs are heard of; 0: none */
} wi_pool_device;

typedef struct wi_pool_entry {
    weir_pool *pool;
    wi_pool_source *source;
    char name[64], version[64];
    uint32_t device;                  /* the present or last device; changed by the order to load */
    wp_spec spec;                     /* as the machine was told it last */
    uint8_t settings_of[WP_VARIANTS]; /* of each variant: its index in source->settings */
    wp_model id;
    struct wi_pool_entry *next;
    bool current, retired;
    bool gone;        /* the machine has forgotten it; freed with its last user */
    bool here;        /* between the order to load it and its end, however that comes */
    bool unhealthy;   /* why: see below */
    atomic_bool stop; /* the load that is ordered or under way: nobody wants it */
    unsigned users;   /* threads that look at it later without having held the lock all the time */

    /* The one piece of work that the machine has ordered and not been told of. */
    bool ordered, under_way;
    wp_action_kind order;
    uint32_t order_variant;
    uint64_t order_bytes, not_before;
    bool order_evicts; /* an unload for another's sake */
    struct wi_pool_entry *next_ordered;

    atomic_uint progress; /* of its load, of WI_POOL_PROGRESS; written by the engine, without the lock */
    weir_model *model;    /* while it is loaded */
    uint64_t resident;    /* measured, and at least what it is guaranteed */
    uint64_t promised;    /* to leases */
    uint64_t guarantee;   /* that its client has; changed by whoever has `limiting` */
    bool limiting;
    uint32_t leases;
    uint64_t grants; /* ever */
    uint32_t variant;
    wi_pool_account *accounts; /* others' at its load */
    size_t account_count;

    uint64_t predicted_peak, predicted[WEIR_CLASS_MOST];
    uint64_t measured_peak, measured[WEIR_CLASS_MOST];
    wp_view past; /* counts of entries that it took the place of */
    /* Of this entry since it was made; a waiting call sees a new failure or unload by the growth. */
    uint64_t failures, unloads;
    weir_status failed; /* with what */
    char why[512];
    double drain_ms;
    uint64_t retired_at;
    weir_pool_receipt receipt; /* of the last unload */
} wi_pool_entry;

/* A call of weir_pool_acquire that waits; on its thread's stack. */
typedef struct wi_pool_waiter {
    wi_pool_entry *entry; /* that was asked for; a user of it */
    wp_ticket ticket;
    uint64_t id, since, bytes;
    bool over;
    wp_answer answer; /* how it ended */
    pthread_cond_t ended;
    struct wi_pool_waiter *next;
} wi_pool_waiter;

typedef struct wi_pool_news {
    struct wi_pool_news *next;
    weir_pool_event_kind kind;
    uint64_t time, bytes;
    char name[64], version[64];
    const char *device;
    weir_runtime *runtime; /* of the device, or NULL */
    uint64_t ceiling;      /* of the pool there */
    bool evicted;          /* an unload for another's sake */
    char text[];           /* the detail or the line */
} wi_pool_news;

struct weir_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;    /* for the pool's threads */
    pthread_cond_t changed; /* for calls that wait for a model, or for an end */
    wp_admission *admission;
    wi_pool_device *devices;
    uint32_t device_count;
    wp_limits limits;
    wi_pool_entry *entries; /* in the order in which they were added */
    wi_pool_entry **by_id;
    size_t ids;
    wi_pool_entry *first_ordered;
    wi_pool_waiter *waiters, *asking; /* `asking`: not in the list yet */
    uint32_t waiting;
    size_t inside; /* calls */
    size_t leases;
    bool ending, closing; /* takes no requests; threads end */
    pthread_t *threads;
    uint32_t thread_count;
    bool watched;         /* a thread waits for the time */
    uint64_t watch_until; /* that it wakes at */
    void (*event)(const weir_pool_event *event, void *user);
    void *user;
    wi_pool_news *news, **news_end;
    bool telling, news_lost;
};

/* ---- decide.c: the state machine and who is told of it. With the lock held, but for wi_pool_tell ---- */

/* Tells the machine the event, with the time of now, and hands out the actions. */
void wi_pool_decide(weir_pool *pool, wp_event *event);
/* Lets the machine see what time it is, if something is due. */
void wi_pool_tick(weir_pool *pool);
/* Notes something for the event function; a text that is NULL is "". */
void wi_pool_note(weir_pool *pool, weir_pool_event_kind kind, const wi_pool_entry *entry, uint64_t bytes,
                  const char *text);
/* Every input and action, as text. */
void wi_pool_note_line(weir_pool *pool, const wp_event *event);
/* Without the lock: tells the noted events, unless another thread is telling them. */
void wi_pool_tell(weir_pool *pool);
wp_view wi_pool_see(const wi_pool_entry *entry);

/* ---- pool.c ---- */

/* A call begins; WEIR_ERR_CANCELLED: the pool ends. At WEIR_OK the lock is held. */
weir_status wi_pool_enter(weir_pool *pool, const char *call);
/* It ends: lets go of the lock, and tells what was noted. */
void wi_pool_leave(weir_pool *pool);
/* Waits on the condition with the lock, at most until `until` by wi_now. False: that is over. */
bool wi_pool_wait(weir_pool *pool, pthread_cond_t *condition, uint64_t until);
uint64_t wi_pool_until(const weir_pool *pool, uint64_t wait); /* a limit from now on, as callers give it */

/* ---- entries.c. With the lock held, where not said otherwise ---- */

wi_pool_entry *wi_pool_find(weir_pool *pool, const char *name);    /* the current one */
weir_status wi_pool_none(const weir_pool *pool, const char *name); /* WEIR_ERR_NOT_FOUND, with the names */
/* Loads or resumes it, and waits for that. */
weir_status wi_pool_load_entry(wi_pool_entry *entry, uint64_t until);
/* No more requests; `heir` (may be NULL) gets its place first. */
void wi_pool_retire(wi_pool_entry *entry, wi_pool_entry *heir);
/* The same with an heir of the same source. NULL: no host memory, and nothing has changed. */
wi_pool_entry *wi_pool_renew(wi_pool_entry *entry);
/* Drops one user; the last user of a gone entry frees the entry. */
void wi_pool_drop(wi_pool_entry *entry);
/* Looks whether the machine has forgotten it. */
void wi_pool_look_gone(wi_pool_entry *entry);
void wi_pool_entry_free(wi_pool_entry *entry); /* without the lock; unlinked */

/* ---- spec.c: without the lock ---- */

/* An entry as the spec says, with what it is predicted to take; not listed yet. */
weir_status wi_pool_entry_make(weir_pool *pool, const weir_pool_spec *spec, wi_pool_entry **out);
/* Copies of what a caller gave; `variants` has room for WI_POOL_WAYS. */
weir_status wi_pool_read_variants(weir_pool_spec *spec, weir_pool_variant *variants);

/* ---- source.c: without the lock ---- */

weir_status wi_pool_source_make(const weir_pool *pool, const weir_pool_spec *spec, const uint32_t *devices,
                                size_t count, wi_pool_source **out);
void wi_pool_source_free(wi_pool_source *source);
/* One way more, with that number of layers on the device. */
weir_status wi_pool_source_layers(wi_pool_source *source, int64_t layers);

typedef struct wi_pool_prediction {
    uint64_t peak, resident, bytes[WEIR_CLASS_MOST];
    bool suspends; /* its engine can */
} wi_pool_prediction;
/* What a way will take on the device, as its engine says, else the size of the file. */
weir_status wi_pool_predict(const weir_pool *pool, const wi_pool_source *source, size_t way, uint32_t device,
                            wi_pool_prediction *out);
/* Finds how many layers fit into `bytes` on the device; -1: all layers, or no layer. */
weir_status wi_pool_fit_layers(const weir_pool *pool, const wi_pool_source *source, uint32_t device, uint64_t bytes,
                               int64_t *layers);

/* ---- ceiling.c: without the lock ---- */

/* Looks at what others have on the device, and tells the machine, unless that was done a moment ago. */
void wi_pool_look(weir_pool *pool, uint32_t number, bool at_once);
/* From here on the pool looks when another process wants memory of the device; until the end of listening on all devices. */
weir_status wi_pool_listen(weir_pool *pool, uint32_t number);
void wi_pool_listen_no_more(weir_pool *pool);
/* What they have now; NULL: no host memory. */
wi_pool_account *wi_pool_accounts(const weir_pool *pool, weir_runtime *runtime, size_t *count);

/* ---- work.c ---- */

void *wi_pool_work(void *user); /* a thread's function */
/* When something is to be done although nothing happens. With the lock. */
uint64_t wi_pool_next_time(const weir_pool *pool);
/* Without the lock: gives the entry's client the due guarantee, after a call of another thread that is
 * under way. */
weir_status wi_pool_guarantee(wi_pool_entry *entry);

/* ---- carry.c: without the lock; the entry is the caller's alone ---- */

/* What came of it. The entry learns of it under the lock. */
typedef struct wi_pool_carried {
    weir_model *model; /* that was loaded */
    uint64_t
        wanted; /* bytes that a load which failed for want of memory would have had to have; 0: it did not, or not known */
    bool lost;       /* the resume failed, and the model is gone */
    uint64_t waited; /* of its time, for runs of others to end */
    uint64_t bytes;  /* resident, or what stayed */
    uint64_t peak, classes[WEIR_CLASS_MOST];
    weir_pool_receipt receipt;
} wi_pool_carried;

weir_status wi_pool_carry_load(wi_pool_entry *entry, wi_pool_carried *out);
weir_status wi_pool_carry_suspend(const wi_pool_entry *entry, wi_pool_carried *out);
weir_status wi_pool_carry_resume(const wi_pool_entry *entry, wi_pool_carried *out);
/* WEIR_ERR_BUSY: results are still out, and nothing has changed. Otherwise the model is gone. */
weir_status wi_pool_carry_unload(const wi_pool_entry *entry, wi_pool_carried *out);
uint64_t wi_pool_measure(weir_model *model, weir_client_stats *out);

#endif
