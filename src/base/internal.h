/* What every file of libweir may use: small macros, the fork guard, locks. Internal names begin with wi_. */
#ifndef WI_INTERNAL_H
#define WI_INTERNAL_H

#include <weir/base.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define wi_likely(x)   __builtin_expect(!!(x), 1)
#define wi_unlikely(x) __builtin_expect(!!(x), 0)

/* The value, of which the compiler knows nothing: it makes no branch of what is computed from it. */
static inline uint64_t wi_opaque(uint64_t value)
{
    __asm__("" : "+r"(value));
    return value;
}

#define WI_KIB (UINT64_C(1) << 10)
#define WI_MIB (UINT64_C(1) << 20)
#define WI_GIB (UINT64_C(1) << 30)

/* The laws written beside the types are executed in builds with WEIR_INVARIANTS; a broken one ends the process there,
 * because going on would only move the damage. Other builds do not contain them. */
#ifdef WEIR_INVARIANTS
_Noreturn void wi_law_broken(const char *law, const char *file, int line);
#define wi_assert(condition) ((condition) ? (void)0 : wi_law_broken(#condition, __FILE__, __LINE__))
#else
#define wi_assert(condition) ((void)sizeof(condition))
#endif

static inline uint64_t wi_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t wi_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
/* `unit` is a power of two; the caller has made sure that the sum does not overflow. */
static inline uint64_t wi_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}
static inline bool wi_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* Set in a child made by fork from a process that had a runtime: threads and device contexts did not come along. */
extern atomic_bool wi_forked;
void wi_watch_forks(void);
void wi_fail_forked(void);
#define WI_ENTER()                                                                                                     \
    do {                                                                                                               \
        if (wi_unlikely(atomic_load_explicit(&wi_forked, memory_order_relaxed))) {                                     \
            wi_fail_forked();                                                                                          \
            return WEIR_ERR_FORKED;                                                                                    \
        }                                                                                                              \
    } while (0)

/* For a file's `lock` that is used before the first runtime, and so before a child of fork is told that it is one: a
 * fork waits for it, and the child finds it free. watch_forks() comes before each lock. */
#define WI_FREE_AFTER_FORKS(lock)                                                                                      \
    static void before_fork(void)                                                                                      \
    {                                                                                                                  \
        pthread_mutex_lock(&(lock));                                                                                   \
    }                                                                                                                  \
    static void after_fork(void)                                                                                       \
    {                                                                                                                  \
        pthread_mutex_unlock(&(lock));                                                                                 \
    }                                                                                                                  \
    static void watch_forks_once(void)                                                                                 \
    {                                                                                                                  \
        pthread_atfork(before_fork, after_fork, after_fork);                                                           \
    }                                                                                                                  \
    static void watch_forks(void)                                                                                      \
    {                                                                                                                  \
        static pthread_once_t once = PTHREAD_ONCE_INIT;                                                                \
        pthread_once(&once, watch_forks_once);                                                                         \
    }

/* The thread's detail, put back after what is no affair of whoever called weir: sinks and the log's function. */
typedef struct wi_kept_detail {
    char text[1024];
} wi_kept_detail;
void wi_detail_keep(wi_kept_detail *kept);
void wi_detail_restore(const wi_kept_detail *kept);

/* Makes one line of a text that may come from elsewhere: no line breaks inside, none at the end. */
void wi_one_line(char *text);

/* Copies what a caller's structure of `caller_size` bytes can hold of ours, so that old callers keep working; false if
 * it is too small to be one at all. The member `size` at its front keeps the caller's value. */
static inline bool wi_copy_out(void *to, size_t caller_size, const void *from, size_t our_size)
{
    if (caller_size < 2 * sizeof(size_t))
        return false;
    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t),
           wi_min(caller_size, our_size) - sizeof(size_t));
    return true;
}
/* The other way: an options structure, with zeros for what the caller does not know. What this library does not know has to
 * be zero: an option that somebody sets is obeyed or refused, never dropped. Errors, naming `call` and the structure:
 * WEIR_ERR_INVALID for NULL, a struct_size that is not set, or one that no header ever had; WEIR_ERR_UNSUPPORTED for
 * something set beyond our size. */
enum { WI_LATER_MEMBERS = 4096 }; /* a later header's structure has at most so many bytes more than ours */
weir_status wi_copy_in_other(void *to, size_t our_size, const void *from, size_t caller_size, const char *call,
                             const char *type);
static inline weir_status wi_copy_in(void *to, size_t our_size, const void *from, size_t caller_size, const char *call,
                                     const char *type)
{
    if (wi_unlikely(caller_size != our_size))
        return wi_copy_in_other(to, our_size, from, caller_size, call, type);
    memcpy(to, from, our_size);
    return WEIR_OK;
}
#define WI_COPY_IN(type, to, from, call)                                                                               \
    wi_copy_in(1 ? (to) : (type *)NULL, sizeof(type), from, (from) ? (from)->struct_size : 0, call, #type)
/* Options that may be NULL: `to` stays as it is then. */
#define WI_COPY_OPTIONS_IN(type, to, from, call) ((from) ? WI_COPY_IN(type, to, from, call) : WEIR_OK)

#endif
