/* Turns at the slots, and the session of each run: one for each bucket of shapes (model.h). */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/base.h>
#include <weir/engine.h>

enum { KEY_MOST = 512 };

struct onnx_bucket {
    onnx_bucket *next;
    ort_session *session; /* NULL while it is being made */
    unsigned users;
    uint64_t last; /* when it was used, by the slots taken so far */
    char key[KEY_MOST];
};

/* Shapes that have no session of their own, and when one is tried again. */
typedef struct failure {
    char key[KEY_MOST];
    double until; /* by the monotonic clock; 0: nothing is remembered here */
    unsigned seconds;
} failure;

/* The state of a slot. */
typedef struct slot_state {
    int running;
    onnx_bucket *list;
    size_t count;
    char own[KEY_MOST]; /* the key of the slot's own session; "" until its first run */
} slot_state;

/* A run that has no slot yet. */
typedef struct waiter {
    struct waiter *next;
    size_t wanted; /* a slot, or ANY */
    size_t given;  /* the same, or NONE */
    pthread_cond_t called;
} waiter;

enum { NONE = ONNX_SLOTS_MOST, ANY };

struct onnx_buckets {
    pthread_mutex_t lock; /* guards all of this; not held while a session is made, run or released */
    slot_state *slots;    /* by slot of the model */
    size_t slot_count;
    int room;      /* runs at a time in a slot; 0: any number */
    size_t most;   /* buckets of a slot */
    waiter *first; /* runs that wait, in the order of their arrival */
    uint64_t taken;
    onnx_bucket_stats stats;
    failure failures[ONNX_FAILURES_KEPT];
};

weir_status onnx_buckets_begin(weir_engine_model *model)
{
    onnx_buckets *b = calloc(1, sizeof *b);
    slot_state *slots = calloc(model->slot_count, sizeof *slots);
    if (!b || !slots) {
        free(b);
        free(slots);
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", model->name);
    }
    pthread_mutex_init(&b->lock, NULL);
    b->slots = slots;
    b->slot_count = model->slot_count;
    b->room = model->device.cuda ? 1 : model->settings.concurrency;
    b->most = model->settings.buckets > 1 ? (size_t)model->settings.buckets - 1 : 0;
    model->buckets = b;
    return WEIR_OK;
}

static void buckets_destroy(weir_engine_model *model, onnx_bucket *bucket)
{
    if (bucket && bucket->session)
        model->library->api->ReleaseSession(bucket->session);
    free(bucket);
}

void onnx_buckets_end(weir_engine_model *model)
{
    onnx_buckets *b = model->buckets;
    if (!b)
        return;
    for (slot_state *at = b->slots; at < b->slots + b->slot_count; at++)
        while (at->list) {
            onnx_bucket *bucket = at->list;
            at->list = bucket->next;
            buckets_destroy(model, bucket);
        }
    pthread_mutex_destroy(&b->lock);
    free(b->slots);
    free(b);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static size_t buckets_put_tensor(const onnx_settings *settings, const weir_tensor *tensor, char *text, size_t capacity)
{
    int dims = (int)tensor->rank < settings->bucket_dims ? (int)tensor->rank : settings->bucket_dims;
    size_t at = (size_t)snprintf(text, capacity, "%s:%u:", weir_name_of(WEIR_NAMES_TYPE, tensor->type), tensor->rank);
    for (int i = 0; i < dims && at < capacity; i++) {
        int64_t extent = tensor->shape[i], step = settings->granularity;
        if (i && extent > 0)
            extent = extent > INT64_MAX - step ? INT64_MAX : (extent + step - 1) / step * step;
        at += (size_t)snprintf(text + at, capacity - at, "%s%" PRId64, i ? "," : "", extent > 0 ? extent : -1);
    }
    if (at < capacity)
        at += (size_t)snprintf(text + at, capacity - at, "%s;", dims < (int)tensor->rank ? "*" : "");
    return at;
}

void onnx_bucket_key(const weir_engine_model *model, const weir_inference *inference, char *text, size_t capacity)
{
    size_t at = 0;
    text[0] = 0;
    for (size_t p = 0; p < model->inputs.count; p++) {
        const weir_tensor *tensor = onnx_input_named(inference, model->inputs.names[p]);
        if (tensor && at < capacity)
            at += buckets_put_tensor(&model->settings, tensor, text + at, capacity - at);
    }
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static void unlink_bucket(slot_state *at, const onnx_bucket *bucket)
{
    onnx_bucket **link = &at->list;
    while (*link != bucket)
        link = &(*link)->next;
    *link = bucket->next;
    at->count--;
}

static onnx_bucket *buckets_find(const slot_state *at, const char *key)
{
    onnx_bucket *bucket = at->list;
    while (bucket && strcmp(bucket->key, key) != 0)
        bucket = bucket->next;
    return bucket;
}

static bool buckets_is_idle(const onnx_bucket *bucket)
{
    return bucket->session && bucket->users == 0;
}

/* Takes the least recently used idle bucket out of the list of the slot `only`, or, NULL, of any slot. NULL: no
 * bucket is idle. */
static onnx_bucket *take_oldest(onnx_buckets *b, const slot_state *only)
{
    onnx_bucket *oldest = NULL;
    slot_state *where = NULL;
    for (slot_state *at = b->slots; at < b->slots + b->slot_count; at++)
        for (onnx_bucket *it = only && only != at ? NULL : at->list; it; it = it->next)
            if (buckets_is_idle(it) && (!oldest || it->last < oldest->last)) {
                oldest = it;
                where = at;
            }
    if (!oldest)
        return NULL;
    unlink_bucket(where, oldest);
    b->stats.ended++;
    return oldest;
}

/* Under the lock, which it gives up meanwhile. */
static bool end_oldest(weir_engine_model *model, const slot_state *only)
{
    onnx_buckets *b = model->buckets;
    onnx_bucket *gone = take_oldest(b, only);
    pthread_mutex_unlock(&b->lock);
    buckets_destroy(model, gone);
    pthread_mutex_lock(&b->lock);
    return gone != NULL;
}

/* True: a bucket can be added, as the slot has fewer than the most, or idle buckets can go for the excess. */
static bool buckets_has_room(const onnx_buckets *b, const slot_state *at)
{
    size_t idle = 0;
    for (const onnx_bucket *it = at->list; it; it = it->next)
        idle += buckets_is_idle(it);
    return at->count + 1 <= b->most + idle;
}

/* ---- those that failed ------------------------------------------------------------------------------------------- */

static failure *buckets_failed_before(onnx_buckets *b, const char *key)
{
    for (size_t i = 0; i < ONNX_FAILURES_KEPT; i++)
        if (b->failures[i].until > 0 && strcmp(b->failures[i].key, key) == 0)
            return &b->failures[i];
    return NULL;
}

/* Instead of what would be tried again the soonest, if there is none of its own. */
static failure *buckets_failure_of(onnx_buckets *b, const char *key)
{
    failure *at = buckets_failed_before(b, key);
    if (at)
        return at;
    at = &b->failures[0];
    for (size_t i = 1; i < ONNX_FAILURES_KEPT; i++)
        if (b->failures[i].until < at->until)
            at = &b->failures[i];
    *at = (failure){.seconds = 0};
    snprintf(at->key, sizeof at->key, "%s", key);
    return at;
}

static void remember_failure(onnx_buckets *b, const char *key)
{
    failure *at = buckets_failure_of(b, key);
    unsigned seconds = at->seconds ? at->seconds * 2 : ONNX_FAILURE_FIRST;
    at->seconds = seconds < ONNX_FAILURE_MOST ? seconds : ONNX_FAILURE_MOST;
    at->until = onnx_seconds() + at->seconds;
    b->stats.failed++;
}

static void forget_failure(onnx_buckets *b, const char *key)
{
    failure *at = buckets_failed_before(b, key);
    if (at)
        at->until = 0;
}

/* It may have failed once too often to be tried now. */
static bool is_spared(onnx_buckets *b, const char *key)
{
    const failure *at = buckets_failed_before(b, key);
    bool spared = at && onnx_seconds() < at->until;
    b->stats.spared += spared;
    return spared;
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

/* Without the lock. */
static weir_status buckets_make_session(weir_engine_model *model, onnx_slot *slot, const char *key, ort_session **out)
{
    onnx_buckets *b = model->buckets;
    weir_status status = onnx_session_another(model, slot, out);
    if (status == WEIR_ERR_OUT_OF_MEMORY) {
        pthread_mutex_lock(&b->lock);
        bool ended = end_oldest(model, NULL);
        pthread_mutex_unlock(&b->lock);
        status = ended ? onnx_session_another(model, slot, out) : status;
    }
    if (status != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: %s has no session of its own for %s: %s", model->name, key, weir_detail());
    return status;
}

/* Under the lock, which it gives up meanwhile. */
static void keep_within(weir_engine_model *model, const slot_state *at)
{
    while (at->count > model->buckets->most && end_oldest(model, at))
        ;
}

static onnx_bucket *buckets_enlist(slot_state *at, const char *key)
{
    onnx_bucket *bucket = calloc(1, sizeof *bucket);
    if (!bucket)
        return NULL;
    snprintf(bucket->key, sizeof bucket->key, "%s", key);
    bucket->users = 1;
    bucket->next = at->list;
    at->list = bucket;
    at->count++;
    return bucket;
}

/* The session of a bucket that was enlisted. Under the lock, which it gives up meanwhile. False: the bucket is gone. */
static bool buckets_make(weir_engine_model *model, size_t number, onnx_bucket *bucket)
{
    onnx_buckets *b = model->buckets;
    slot_state *at = &b->slots[number];
    ort_session *session = NULL;
    pthread_mutex_unlock(&b->lock);
    weir_status status = buckets_make_session(model, &model->slots[number], bucket->key, &session);
    pthread_mutex_lock(&b->lock);
    if (status != WEIR_OK) {
        remember_failure(b, bucket->key);
        unlink_bucket(at, bucket);
        free(bucket);
        return false;
    }
    bucket->session = session;
    b->stats.made++;
    forget_failure(b, bucket->key);
    keep_within(model, at);
    return true;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static size_t buckets_free_slot(const onnx_buckets *b, size_t wanted)
{
    size_t number = wanted == ANY ? 0 : wanted, end = wanted == ANY ? b->slot_count : wanted + 1;
    while (number < end && b->room != 0 && b->slots[number].running >= b->room)
        number++;
    return number < end ? number : NONE;
}

/* Under the lock. Gives free slots to waiting runs, in the order of their arrival. */
static void buckets_hand_out(onnx_buckets *b)
{
    for (waiter **link = &b->first; *link;) {
        waiter *w = *link;
        w->given = buckets_free_slot(b, w->wanted);
        if (w->given == NONE) {
            link = &w->next;
            continue;
        }
        b->slots[w->given].running++;
        *link = w->next;
        pthread_cond_signal(&w->called);
    }
}

/* Under the lock. */
static void give_slot(onnx_buckets *b, size_t number)
{
    b->slots[number].running--;
    buckets_hand_out(b);
}

static void buckets_line_up(onnx_buckets *b, waiter *w, bool first)
{
    waiter **link = &b->first;
    while (!first && *link)
        link = &(*link)->next;
    w->next = *link;
    *link = w;
}

static void buckets_leave_line(onnx_buckets *b, const waiter *w)
{
    waiter **link = &b->first;
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
}

/* Under the lock, which it gives up meanwhile. `first`: before all that wait. */
static weir_status wait_for_slot(weir_engine_model *model, const onnx_run *its, size_t wanted, bool first, size_t *out)
{
    onnx_buckets *b = model->buckets;
    waiter w = {.wanted = wanted, .given = NONE};
    weir_status status = onnx_check_cancelled(model, its);
    if (status != WEIR_OK)
        return status;
    pthread_cond_init(&w.called, NULL);
    buckets_line_up(b, &w, first);
    buckets_hand_out(b);
    while (w.given == NONE && status == WEIR_OK) {
        pthread_cond_wait(&w.called, &b->lock);
        status = w.given == NONE ? onnx_check_cancelled(model, its) : WEIR_OK;
    }
    if (w.given == NONE)
        buckets_leave_line(b, &w);
    pthread_cond_destroy(&w.called);
    *out = w.given;
    return status;
}

/* The bucket whose session is to be used; NULL: the slot's own is. *to_make: its session is still to be made. Under the
 * lock. */
static onnx_bucket *buckets_choose(onnx_buckets *b, slot_state *at, const char *key, bool *to_make)
{
    *to_make = false;
    if (!at->own[0])
        snprintf(at->own, sizeof at->own, "%s", key);
    if (strcmp(at->own, key) == 0)
        return NULL;
    onnx_bucket *bucket = buckets_find(at, key);
    if (bucket) {
        bucket->users += bucket->session != NULL;
        return bucket->session ? bucket : NULL;
    }
    *to_make = !is_spared(b, key) && buckets_has_room(b, at);
    bucket = *to_make ? buckets_enlist(at, key) : NULL;
    *to_make = bucket != NULL;
    return bucket;
}

/* Finds or makes the bucket for the run's shapes in the slot `number`, which the run has. While a session is made, the
 * run gives the slot back. Under the lock, which is released meanwhile. On failure the run has no slot any more. */
static weir_status find_bucket(weir_engine_model *model, const weir_inference *inference, const onnx_run *its,
                               size_t number, onnx_bucket **out)
{
    onnx_buckets *b = model->buckets;
    char key[KEY_MOST];
    bool to_make;
    onnx_bucket_key(model, inference, key, sizeof key);
    *out = buckets_choose(b, &b->slots[number], key, &to_make);
    if (!to_make)
        return WEIR_OK;
    give_slot(b, number);
    if (!buckets_make(model, number, *out))
        *out = NULL;
    size_t same;
    weir_status status = wait_for_slot(model, its, number, true, &same);
    if (status == WEIR_OK || !*out)
        return status;
    (*out)->users--;
    keep_within(model, &b->slots[number]);
    return status;
}

static weir_status buckets_take(weir_engine_model *model, const weir_inference *inference, const onnx_run *its,
                                size_t wanted, onnx_entered *out)
{
    onnx_buckets *b = model->buckets;
    size_t number;
    weir_status status = wait_for_slot(model, its, wanted, false, &number);
    if (status != WEIR_OK)
        return status;
    *out = (onnx_entered){.slot = &model->slots[number]};
    if (b->most)
        status = find_bucket(model, inference, its, number, &out->bucket);
    if (out->bucket && status == WEIR_OK)
        out->bucket->last = ++b->taken;
    out->session = out->bucket && status == WEIR_OK ? out->bucket->session : out->slot->session;
    return status;
}

weir_status onnx_slot_enter(weir_engine_model *model, const weir_inference *inference, const onnx_run *its,
                            onnx_slot *wanted, onnx_entered *out)
{
    pthread_mutex_lock(&model->buckets->lock);
    weir_status status = buckets_take(model, inference, its, wanted ? (size_t)(wanted - model->slots) : ANY, out);
    pthread_mutex_unlock(&model->buckets->lock);
    return status;
}

void onnx_slots_wake(weir_engine_model *model)
{
    pthread_mutex_lock(&model->buckets->lock);
    for (waiter *w = model->buckets->first; w; w = w->next)
        pthread_cond_signal(&w->called);
    pthread_mutex_unlock(&model->buckets->lock);
}

void onnx_slot_leave(weir_engine_model *model, onnx_entered entered)
{
    onnx_buckets *b = model->buckets;
    size_t number = (size_t)(entered.slot - model->slots);
    pthread_mutex_lock(&b->lock);
    if (entered.bucket)
        entered.bucket->users--;
    give_slot(b, number);
    keep_within(model, &b->slots[number]);
    pthread_mutex_unlock(&b->lock);
}

onnx_bucket_stats onnx_buckets_look(weir_engine_model *model)
{
    onnx_buckets *b = model->buckets;
    pthread_mutex_lock(&b->lock);
    onnx_bucket_stats stats = b->stats;
    for (const slot_state *at = b->slots; at < b->slots + b->slot_count; at++)
        stats.now += at->count;
    for (const waiter *w = b->first; w; w = w->next)
        stats.waiting++;
    pthread_mutex_unlock(&b->lock);
    return stats;
}
