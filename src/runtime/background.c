/* Threads of weir's own beside the work, and page-locked memory that one of them frees. */
#include "runtime/background.h"
#include "base/system.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Threads ---------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t background_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t background_changed = PTHREAD_COND_INITIALIZER;
static unsigned background_running; /* under the lock */
static atomic_bool background_ending;

typedef struct task {
    void (*fn)(void *user);
    void *user;
} task;

static void *background_run(void *user)
{
    task t = *(task *)user;
    free(user);
    t.fn(t.user);
    pthread_mutex_lock(&background_lock);
    background_running--;
    pthread_cond_broadcast(&background_changed);
    pthread_mutex_unlock(&background_lock);
    return NULL;
}

/* Nothing of weir's is in the driver when its own exit handlers come; a driver that does not return is not waited for. */
static void background_at_exit(void)
{
    struct timespec until;
    bool late = false;
    if (atomic_load(&wi_forked))
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&background_lock);
    atomic_store(&background_ending, true);
    while (background_running > 0 && !late)
        late = pthread_cond_timedwait(&background_changed, &background_lock, &until) == ETIMEDOUT;
    pthread_mutex_unlock(&background_lock);
}

static void background_watch_exit(void)
{
    (void)!atexit(background_at_exit);
}

bool wi_background_ends(void)
{
    return atomic_load(&background_ending);
}

bool wi_background(void (*fn)(void *user), void *user)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    task *t = wi_alone ? NULL : malloc(sizeof *t); /* a simulated program has all steps in one thread */
    if (!t)
        return false;
    *t = (task){fn, user};
    pthread_once(&once, background_watch_exit); /* after the driver was opened, so that it runs before the driver's */
    pthread_mutex_lock(&background_lock);
    bool started = !atomic_load(&background_ending) && wi_thread_start(NULL, background_run, t) == 0;
    background_running += started;
    pthread_mutex_unlock(&background_lock);
    if (!started)
        free(t);
    return started;
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

atomic_uint_fast64_t wi_aside_most = 8192 * WI_MIB;

typedef struct wi_aside_block {
    struct wi_aside_block *next;
    weir_client *client;
    weir_block block;
    uint64_t bytes;
    bool going; /* a thread is freeing it */
} aside_block;

void wi_aside_begin(wi_aside *aside)
{
    *aside = (wi_aside){0};
    pthread_mutex_init(&aside->lock, NULL);
    pthread_cond_init(&aside->changed, NULL);
}

void wi_aside_end(wi_aside *aside)
{
    pthread_mutex_lock(&aside->lock);
    while (aside->works)
        pthread_cond_wait(&aside->changed, &aside->lock);
    pthread_mutex_unlock(&aside->lock);
    pthread_cond_destroy(&aside->changed);
    pthread_mutex_destroy(&aside->lock);
}

static void background_free(weir_client *client, weir_block block)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    if (weir_free_block(client, block, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "copies of what %s had on its device were not freed: %s", client->account.name,
                 weir_detail());
    wi_detail_restore(&saved);
}

/* With the lock: the first block that no thread is freeing. */
static aside_block *background_next(const wi_aside *f)
{
    aside_block *b = f->first;
    while (b && b->going)
        b = b->next;
    return b;
}

/* With the lock, which it lets go of meanwhile. */
static void background_free_one(wi_aside *f, aside_block *b)
{
    b->going = true;
    pthread_mutex_unlock(&f->lock);
    background_free(b->client, b->block);
    pthread_mutex_lock(&f->lock);
    aside_block **link = &f->first;
    while (*link != b)
        link = &(*link)->next;
    *link = b->next;
    f->bytes -= b->bytes;
    pthread_cond_broadcast(&f->changed);
    free(b);
}

static void background_free_all(void *user)
{
    wi_aside *f = user;
    pthread_mutex_lock(&f->lock);
    for (aside_block *b; !wi_background_ends() && (b = background_next(f));)
        background_free_one(f, b);
    f->works = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void wi_free_aside(weir_client *client, weir_block block, uint64_t bytes)
{
    wi_aside *f = &client->runtime->aside;
    aside_block *b = wi_kind_is_own(client->runtime, WEIR_KIND_PINNED) ? NULL : malloc(sizeof *b);
    bool waits = false;
    if (b) {
        *b = (aside_block){NULL, client, block, bytes, false};
        pthread_mutex_lock(&f->lock);
        waits = f->bytes + bytes <= atomic_load(&wi_aside_most);
        waits = waits && (f->works || wi_background(background_free_all, f));
        f->works |= waits;
        if (waits) {
            aside_block **link = &f->first;
            while (*link)
                link = &(*link)->next;
            *link = b;
            f->bytes += bytes;
        }
        pthread_mutex_unlock(&f->lock);
    }
    if (waits)
        return;
    free(b);
    background_free(client, block);
}

static bool background_has(const wi_aside *f, const weir_client *client)
{
    const aside_block *b = f->first;
    while (b && b->client != client)
        b = b->next;
    return b != NULL;
}

bool wi_free_aside_wait(weir_client *client)
{
    wi_aside *f = &client->runtime->aside;
    pthread_mutex_lock(&f->lock);
    bool any = background_has(f, client);
    while (background_has(f, client)) {
        aside_block *b = f->works ? NULL : background_next(f);
        if (b) /* the process ends, and the thread has left */
            background_free_one(f, b);
        else
            pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return any;
}
