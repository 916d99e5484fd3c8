#include "base/biased.h"
#include "base/system.h"

#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define BIASED_ALONE __libc_single_threaded
#else
#define BIASED_ALONE 0
#endif

/* From linux/membarrier.h, which not every system has. */
enum { PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

static bool fenced = true; /* until init knows that the system has membarrier */

static bool membarrier(int command)
{
#ifdef SYS_membarrier
    return syscall(SYS_membarrier, command, 0, 0) == 0;
#else
    (void)command;
    return false;
#endif
}

static void prepare_once(void)
{
    bool served = !WI_BIASED_ALWAYS_FENCED && membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
    fenced = !served;
}

static pthread_once_t biased_once = PTHREAD_ONCE_INIT;

/* A process of several threads waits some milliseconds to be registered, till each processor has switched threads; a process of a single
 * thread, as most are when they begin, does not. */
__attribute__((constructor)) static void prepare_while_alone(void)
{
    if (BIASED_ALONE)
        pthread_once(&biased_once, prepare_once);
}

void wi_biased_init(wi_biased *lock)
{
    pthread_once(&biased_once, prepare_once);
    *lock = (wi_biased){.fenced = fenced};
}

void wi_biased_ask(wi_biased *lock)
{
    (void)atomic_exchange(&lock->revoked, 1);
}

void wi_biased_fence(void)
{
    if (!fenced) {
        bool served = membarrier(PRIVATE_EXPEDITED);
        wi_assert(served); /* registered by wi_biased_init, which cannot be undone */
        (void)served;
    }
}

void wi_biased_wait(wi_biased *lock)
{
    for (unsigned spin = 0; atomic_load(&lock->busy); spin++)
        wi_pause(spin);
}

void wi_biased_release(wi_biased *lock)
{
    atomic_store_explicit(&lock->revoked, 0, memory_order_release);
}
