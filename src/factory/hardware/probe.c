#include "factory/hardware/hardware.h"
#include <weir/select.h>

#include "base/system.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <time.h>

static const wi_source *const sources[WI_SOURCES] = {
    [WI_SOURCE_NVML] = &wi_source_nvml,
    [WI_SOURCE_CUDA] = &wi_source_cuda,
    [WI_SOURCE_PCI] = &wi_source_pci,
};

#define MS   UINT64_C(1000000)
#define SLOW (50 * MS)             /* a failure that took longer is not tried again at once, */
#define MOST (UINT64_C(5000) * MS) /* but after ten times as long, and after this at the latest */

/* A source at one root. All members but `record`, which is its thread's, are under the root's lock. */
typedef struct probe {
    const wi_source *source;
    struct probed_root *at;
    void *record;
    wi_found *latest;
    bool running, failed; /* the last start or thread had no room */
    uint64_t begun;       /* when it was asked last */
    uint64_t told;        /* when `latest` was asked for */
    uint64_t again;       /* it is not asked before */
} probe;

/* A root that was asked for. They stay for the life of the process, as threads may still be at work for them. */
typedef struct probed_root {
    struct probed_root *next;
    char *root;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    probe probes[WI_SOURCES];
} probed_root;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static probed_root *roots;

static probed_root *make_root(const char *root)
{
    probed_root *p = calloc(1, sizeof *p);
    char *copy = strdup(root);
    if (!p || !copy) {
        free(p);
        free(copy);
        return NULL;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&p->lock, NULL);
    p->root = copy;
    for (size_t i = 0; i < WI_SOURCES; i++) {
        p->probes[i].source = sources[i];
        p->probes[i].at = p;
    }
    p->next = roots;
    roots = p;
    return p;
}

static probed_root *find_root(const char *root)
{
    pthread_mutex_lock(&lock);
    probed_root *p = roots;
    while (p && strcmp(p->root, root) != 0)
        p = p->next;
    if (!p)
        p = make_root(root);
    pthread_mutex_unlock(&lock);
    return p;
}

/* Asking ----------------------------------------------------------------------------------------------------------- */

static void probe_clear(wi_found *found)
{
    if (found)
        free(found->cards);
    free(found);
}

static void *probe_ask(void *user)
{
    probe *a = user;
    wi_found *found = calloc(1, sizeof *found);
    if (found)
        a->source->ask(a->at->root, &a->record, found);
    /* What the linker has to say is this thread's, and a process that ends before the thread has lost it. */
    while (dlerror())
        continue;
    pthread_mutex_lock(&a->at->lock);
    uint64_t now = wi_now(), took = now - a->begun;
    wi_found *old = a->latest;
    a->failed = !found;
    if (found) {
        a->latest = found;
        a->told = a->begun;
    }
    if (found && !found->told && took > SLOW)
        a->again = now + wi_min(10 * took, MOST);
    a->running = false;
    pthread_cond_broadcast(&a->at->changed);
    pthread_mutex_unlock(&a->at->lock);
    if (found)
        probe_clear(old);
    return NULL;
}

/* With the lock held. The thread takes no signals: they are the program's. */
static void probe_start(probe *a)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    a->begun = wi_now();
    a->running = pthread_create(&thread, &attributes, probe_ask, a) == 0;
    a->failed = !a->running;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* With the lock held. */
static void probe_wait_for(const probe *a, uint64_t deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline / (1000 * MS)), .tv_nsec = (long)(deadline % (1000 * MS))};
    int result = 0;
    while (a->running && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&a->at->changed, &a->at->lock, &until);
}

/* With the lock held; `now`: when this look began. */
static bool copy_answer(const probe *a, uint64_t now, wi_answer *out)
{
    uint64_t since = a->failed ? a->told : a->begun;
    *out = (wi_answer){.source = a->source->name,
                       .late = a->running,
                       .failed = a->failed && !a->running,
                       .left = !a->running && !a->failed && a->begun < now && now < a->again,
                       .since = since ? wi_now() - since : 0};
    if (!a->latest)
        return true;
    out->found = *a->latest;
    out->found.cards = NULL;
    if (a->latest->count == 0)
        return true;
    out->found.cards = malloc(a->latest->count * sizeof *out->found.cards);
    if (!out->found.cards)
        return false;
    memcpy(out->found.cards, a->latest->cards, a->latest->count * sizeof *out->found.cards);
    return true;
}

weir_status wi_probe(const char *root, uint64_t limit, bool ask_again, wi_answer answers[WI_SOURCES])
{
    probed_root *p = find_root(root);
    memset(answers, 0, WI_SOURCES * sizeof *answers);
    if (!p)
        return weir_fail(WEIR_ERR_SYSTEM, "weir_hardware_create: no host memory");
    uint64_t now = wi_now();
    bool good = true;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < WI_SOURCES; i++)
        if (!p->probes[i].running && (ask_again || now >= p->probes[i].again))
            probe_start(&p->probes[i]);
    for (size_t i = 0; i < WI_SOURCES; i++)
        probe_wait_for(&p->probes[i], (ask_again ? now : p->probes[i].begun) + limit);
    for (size_t i = 0; i < WI_SOURCES; i++)
        good = copy_answer(&p->probes[i], now, &answers[i]) && good;
    pthread_mutex_unlock(&p->lock);
    if (good)
        return WEIR_OK;
    wi_answers_clear(answers);
    return weir_fail(WEIR_ERR_SYSTEM, "weir_hardware_create: no host memory");
}

void wi_answers_clear(wi_answer answers[WI_SOURCES])
{
    for (size_t i = 0; i < WI_SOURCES; i++) {
        free(answers[i].found.cards);
        answers[i].found.cards = NULL;
    }
}
