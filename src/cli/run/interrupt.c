/* interrupt.c: Ctrl-C ends a run in good order. */
#include "run.h"
#include <weir/model.h>

#include "cli/cli.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

enum { AGAIN_NANOSECONDS = 20000000, SETTLE_ROUNDS = 25 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weir_model *covered[RUN_MODELS_MOST]; /* under the lock */
static atomic_bool seen;

static void cancel_all(void)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < RUN_MODELS_MOST; i++)
        if (covered[i] != NULL)
            (void)!weir_model_cancel(covered[i], 0); /* it fails where nothing runs, or the engine cannot cancel */
    pthread_mutex_unlock(&lock);
}

/* Cancels again and again after the first signal, because a run that is about to begin would miss a single call. */
static void *interrupt_watch(void *user)
{
    const sigset_t *signals = user;
    siginfo_t info;
    while (sigwaitinfo(signals, &info) < 0)
        continue;
    atomic_store(&seen, true);
    for (unsigned round = 0;; round += round < SETTLE_ROUNDS) {
        cancel_all();
        /* A shell or a supervisor may send one signal twice, to the process and to its group. */
        if (sigtimedwait(signals, &info, &(struct timespec){0, AGAIN_NANOSECONDS}) > 0 && round == SETTLE_ROUNDS)
            _exit(CLI_INTERRUPTED);
    }
    return NULL;
}

void interrupt_begin(void)
{
    static sigset_t signals;
    pthread_t thread;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (pthread_sigmask(SIG_BLOCK, &signals, NULL) != 0)
        return;
    if (pthread_create(&thread, NULL, interrupt_watch, &signals) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* then a signal ends the command as it always does */
}

bool interrupt_seen(void)
{
    return atomic_load(&seen);
}

static void interrupt_replace(weir_model *from, weir_model *to)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < RUN_MODELS_MOST; i++)
        if (covered[i] == from) {
            covered[i] = to;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void interrupt_add(weir_model *model)
{
    interrupt_replace(NULL, model);
}

void interrupt_remove(weir_model *model)
{
    interrupt_replace(model, NULL);
}
