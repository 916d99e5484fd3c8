/* See buckets.h. */
#include "buckets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/log.h>

enum { KEY_MOST = 512 };

struct onnx_bucket {
    onnx_bucket *next;
    ort_session *session; /* NULL while it is being made */
    unsigned users;
    uint64_t last; /* when it was used, by the turns that were given */
    char key[KEY_MOST];
};

/* Shapes that have no session of their own, and when one is tried again. */
typedef struct failure {
    char key[KEY_MOST];
    double until; /* by the monotonic clock; 0: nothing is remembered here */
    unsigned seconds;
} failure;

struct onnx_buckets {
    pthread_mutex_t lock; /* guards all of this; not held while a session is made, run or released */
    pthread_cond_t ended; /* a run, or somebody cancelled one */
    onnx_bucket *list;
    size_t count, most;
    int running;
    uint64_t turns;
    onnx_bucket_stats stats;
    failure failures[ONNX_FAILURES_KEPT];
    char own[KEY_MOST]; /* the key of the model's own session; "" until the first run */
};

weir_status onnx_buckets_begin(weir_engine_model *model)
{
    onnx_buckets *b = calloc(1, sizeof *b);
    if (!b)
        return weir_fail(WEIR_SYSTEM, "%s: no host memory", weir_client_name(model->client));
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->ended, NULL);
    b->most = model->settings.buckets > 1 ? (size_t)model->settings.buckets - 1 : 0;
    model->buckets = b;
    return WEIR_OK;
}

static void destroy(weir_engine_model *model, onnx_bucket *bucket)
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
    while (b->list) {
        onnx_bucket *bucket = b->list;
        b->list = bucket->next;
        destroy(model, bucket);
    }
    pthread_cond_destroy(&b->ended);
    pthread_mutex_destroy(&b->lock);
    free(b);
    model->buckets = NULL;
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

static size_t put_tensor(const onnx_settings *settings, const weir_tensor *tensor, char *text, size_t capacity)
{
    int dims = (int)tensor->rank < settings->bucket_dims ? (int)tensor->rank : settings->bucket_dims;
    size_t at = (size_t)snprintf(text, capacity, "%s:%u:", weir_type_name(tensor->type), tensor->rank);
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
        const char *tensor = (const char *)inference->inputs;
        for (size_t i = 0; i < inference->input_count && at < capacity; i++, tensor += inference->inputs[0].size)
            if (strcmp(((const weir_tensor *)(const void *)tensor)->name, model->inputs.names[p]) == 0)
                at += put_tensor(&model->settings, (const void *)tensor, text + at, capacity - at);
    }
}

/* ---- sessions ----------------------------------------------------------------------------------------------------- */

static void unlink_bucket(onnx_buckets *b, const onnx_bucket *bucket)
{
    onnx_bucket **at = &b->list;
    while (*at != bucket)
        at = &(*at)->next;
    *at = bucket->next;
    b->count--;
}

static onnx_bucket *find(const onnx_buckets *b, const char *key)
{
    onnx_bucket *bucket = b->list;
    while (bucket && strcmp(bucket->key, key) != 0)
        bucket = bucket->next;
    return bucket;
}

/* The one that was used the longest time ago, of those that nobody uses; it is taken out of the list. NULL: all are in use. */
static onnx_bucket *take_oldest(onnx_buckets *b)
{
    onnx_bucket *oldest = NULL;
    for (onnx_bucket *it = b->list; it; it = it->next)
        if (it->session && it->users == 0 && (!oldest || it->last < oldest->last))
            oldest = it;
    if (!oldest)
        return NULL;
    unlink_bucket(b, oldest);
    b->stats.ended++;
    return oldest;
}

/* Under the lock, which it gives up meanwhile. */
static bool end_oldest(weir_engine_model *model)
{
    onnx_buckets *b = model->buckets;
    onnx_bucket *gone = take_oldest(b);
    pthread_mutex_unlock(&b->lock);
    destroy(model, gone);
    pthread_mutex_lock(&b->lock);
    return gone != NULL;
}

/* For one more there has to be a place, or one that can go for each that is too many. */
static bool has_room(const onnx_buckets *b)
{
    size_t idle = 0;
    for (const onnx_bucket *it = b->list; it; it = it->next)
        idle += it->session && it->users == 0;
    return b->count + 1 <= b->most + idle;
}

/* ---- those that failed ---------------------------------------------------------------------------------------------- */

static failure *failed_before(onnx_buckets *b, const char *key)
{
    for (size_t i = 0; i < ONNX_FAILURES_KEPT; i++)
        if (b->failures[i].until > 0 && strcmp(b->failures[i].key, key) == 0)
            return &b->failures[i];
    return NULL;
}

/* In the place of what would be tried again the soonest, if there is none of its own. */
static failure *place_for(onnx_buckets *b, const char *key)
{
    failure *at = failed_before(b, key);
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
    failure *at = place_for(b, key);
    unsigned seconds = at->seconds ? at->seconds * 2 : ONNX_FAILURE_FIRST;
    at->seconds = seconds < ONNX_FAILURE_MOST ? seconds : ONNX_FAILURE_MOST;
    at->until = onnx_seconds() + at->seconds;
    b->stats.failed++;
}

static void forget_failure(onnx_buckets *b, const char *key)
{
    failure *at = failed_before(b, key);
    if (at)
        at->until = 0;
}

/* It may have failed once too often to be tried now. */
static bool is_spared(onnx_buckets *b, const char *key)
{
    const failure *at = failed_before(b, key);
    bool spared = at && onnx_seconds() < at->until;
    b->stats.spared += spared;
    return spared;
}

/* ---- making one ------------------------------------------------------------------------------------------------------- */

/* Without the lock. */
static weir_status make_session(weir_engine_model *model, const char *key, ort_session **out)
{
    onnx_buckets *b = model->buckets;
    weir_status status = onnx_session_another(model, out);
    if (status == WEIR_OUT_OF_MEMORY) {
        pthread_mutex_lock(&b->lock);
        bool ended = end_oldest(model);
        pthread_mutex_unlock(&b->lock);
        status = ended ? onnx_session_another(model, out) : status;
    }
    if (status != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: %s has no session of its own for %s: %s", weir_client_name(model->client),
                 key, weir_detail());
    return status;
}

/* Under the lock, which it gives up meanwhile. */
static void keep_within(weir_engine_model *model)
{
    while (model->buckets->count > model->buckets->most && end_oldest(model))
        ;
}

/* Under the lock, which it gives up meanwhile. NULL: the model's own session is to be used. */
static onnx_bucket *make(weir_engine_model *model, const char *key)
{
    onnx_buckets *b = model->buckets;
    onnx_bucket *bucket = is_spared(b, key) || !has_room(b) ? NULL : calloc(1, sizeof *bucket);
    ort_session *session = NULL;
    if (!bucket)
        return NULL;
    snprintf(bucket->key, sizeof bucket->key, "%s", key);
    bucket->users = 1;
    bucket->next = b->list;
    b->list = bucket;
    b->count++;
    pthread_mutex_unlock(&b->lock);
    weir_status status = make_session(model, key, &session);
    pthread_mutex_lock(&b->lock);
    if (status != WEIR_OK) {
        unlink_bucket(b, bucket);
        free(bucket);
        remember_failure(b, key);
        return NULL;
    }
    bucket->session = session;
    b->stats.made++;
    forget_failure(b, key);
    keep_within(model);
    return bucket;
}

static onnx_bucket *choose(weir_engine_model *model, const char *key)
{
    onnx_buckets *b = model->buckets;
    if (!b->own[0])
        snprintf(b->own, sizeof b->own, "%s", key);
    if (strcmp(b->own, key) == 0)
        return NULL;
    onnx_bucket *bucket = find(b, key);
    if (!bucket)
        return make(model, key);
    if (!bucket->session)
        return NULL;
    bucket->users++;
    return bucket;
}

/* ---- turns ------------------------------------------------------------------------------------------------------------ */

/* Under the lock, which it gives up meanwhile. */
static void leave(weir_engine_model *model, onnx_bucket *bucket)
{
    if (bucket)
        bucket->users--;
    keep_within(model);
}

/* Under the lock, which it gives up meanwhile. */
static weir_status wait_for_room(weir_engine_model *model, const onnx_run *its)
{
    onnx_buckets *b = model->buckets;
    weir_status status = onnx_check_cancelled(model, its);
    while (status == WEIR_OK && model->settings.concurrency && b->running >= model->settings.concurrency) {
        pthread_cond_wait(&b->ended, &b->lock);
        status = onnx_check_cancelled(model, its);
    }
    return status;
}

weir_status onnx_turn_take(weir_engine_model *model, const weir_inference *inference, const onnx_run *its,
                           onnx_turn *out)
{
    onnx_buckets *b = model->buckets;
    onnx_turn turn = {.session = model->session};
    char key[KEY_MOST];
    pthread_mutex_lock(&b->lock);
    weir_status status = onnx_check_cancelled(model, its);
    if (status == WEIR_OK && b->most) { /* before its turn: others run while a session is made */
        onnx_bucket_key(model, inference, key, sizeof key);
        turn.bucket = choose(model, key);
    }
    if (turn.bucket) {
        turn.bucket->last = ++b->turns;
        turn.session = turn.bucket->session;
    }
    if (status == WEIR_OK)
        status = wait_for_room(model, its);
    b->running += status == WEIR_OK;
    if (status != WEIR_OK)
        leave(model, turn.bucket);
    pthread_mutex_unlock(&b->lock);
    *out = turn;
    return status;
}

void onnx_turns_wake(weir_engine_model *model)
{
    pthread_mutex_lock(&model->buckets->lock);
    pthread_cond_broadcast(&model->buckets->ended);
    pthread_mutex_unlock(&model->buckets->lock);
}

void onnx_turn_give(weir_engine_model *model, onnx_turn turn)
{
    onnx_buckets *b = model->buckets;
    pthread_mutex_lock(&b->lock);
    b->running--;
    pthread_cond_signal(&b->ended);
    leave(model, turn.bucket);
    pthread_mutex_unlock(&b->lock);
}

onnx_bucket_stats onnx_buckets_look(weir_engine_model *model)
{
    pthread_mutex_lock(&model->buckets->lock);
    onnx_bucket_stats stats = model->buckets->stats;
    stats.now = model->buckets->count;
    pthread_mutex_unlock(&model->buckets->lock);
    return stats;
}
