#include "base/own.h"

/* Before each piece of memory. */
typedef struct owned {
    struct owned *next; /* of the same thread */
    void **place;
    _Alignas(max_align_t) char bytes[];
} owned;

static pthread_key_t key; /* the thread's list */
static bool usable;

/* Destructors of other libraries may run after this and need the memory again. The thread then gets a new list, and
 * the system calls this again. */
static void end_thread(void *list)
{
    for (owned *o = list, *next; o; o = next) {
        next = o->next;
        *o->place = NULL;
        free(o);
    }
}

static void base_own_make_key(void)
{
    usable = pthread_key_create(&key, end_thread) == 0;
}

void *wi_own(void **place, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (wi_likely(*place))
        return *place;
    pthread_once(&once, base_own_make_key);
    owned *o = usable ? calloc(1, sizeof *o + bytes) : NULL;
    if (!o)
        return NULL;
    *o = (owned){.next = pthread_getspecific(key), .place = place};
    if (pthread_setspecific(key, o) != 0) {
        free(o);
        return NULL;
    }
    return *place = o->bytes;
}
