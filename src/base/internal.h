/* For every file of libweir: small macros, the fork guard, locks. Internal names begin with wi_. */
#ifndef WI_INTERNAL_H
#define WI_INTERNAL_H

#include <weir/base.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define wi_likely(x)   __builtin_expect(!!(x), 1)
#define wi_unlikely(x) __builtin_expect(!!(x), 0)

/* Returns the value, and hides it from the compiler, which then cannot turn a computation with it into a branch. */
static inline uint64_t wi_opaque(uint64_t value)
{
    __asm__("" : "+r"(value));
    return value;
}

#define WI_KIB (UINT64_C(1) << 10)
#define WI_MIB (UINT64_C(1) << 20)
#define WI_GIB (UINT64_C(1) << 30)

/* Invariants, which are written beside the types, are executed in builds with WEIR_INVARIANTS. A broken one aborts, as
 * going on would only spread the damage. */
#ifdef WEIR_INVARIANTS
_Noreturn void wi_invariant_broken(const char *invariant, const char *file, int line);
#define wi_assert(condition) ((condition) ? (void)0 : wi_invariant_broken(#condition, __FILE__, __LINE__))
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
/* `unit` is a power of two. The caller knows that the sum does not overflow. */
static inline uint64_t wi_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}
static inline bool wi_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* Makes room for one more item behind the `count` of a list, by doubling. `list` is the address of the pointer to the items,
 * each of `bytes`; *room is how many of them fit. False: no host memory, and nothing has changed. */
static inline bool wi_make_room(void *list, size_t count, size_t *room, size_t bytes)
{
    void *items, *grown;
    size_t more = *room ? 2 * *room : 4; /* few, as every block of a trace has such lists */
    if (count < *room)
        return true;
    memcpy(&items, list, sizeof items);
    grown = realloc(items, more * bytes);
    if (!grown)
        return false;
    memcpy(list, &grown, sizeof grown);
    *room = more;
    return true; /* cppcheck-suppress memleak ; the list has it */
}

/* Set in the child of a fork if the parent had a runtime: the child has neither its threads nor its device
 * contexts. */
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

/* For a file's `lock` that may be used before the first runtime, when forks are not watched yet. A fork waits for the
 * lock, so that the child finds it free. watch_forks() is called before each lock. */
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

/* Saves the thread's detail around calls of sinks and the log's function, which are not part of the caller's own
 * call. */
typedef struct wi_saved_detail {
    char text[1024];
} wi_saved_detail;
void wi_detail_save(wi_saved_detail *saved);
void wi_detail_restore(const wi_saved_detail *saved);

/* Gives the only thread of a forked child a detail that needs no allocation: the lock of an allocator that is not the C
 * library's may have been held at the fork. */
void wi_detail_in_child(void);

/* Whether a message of that level would be told to anybody. */
bool wi_log_wants(weir_log_level level);

/* Copies a text into `room` bytes: all of it, or its beginning up to the end of a word, with "…" behind it. Answers
 * `to`. The two may be the same memory. */
char *wi_shorten(const char *text, char *to, size_t room);

/* Turns a text from elsewhere into one line: no line breaks inside or at the end. */
void wi_one_line(char *text);

/* Copies our structure into a caller's of `caller_size` bytes, as far as it fits, so that callers of older headers
 * keep working. False: too small to be one. Its first member, struct_size, keeps the caller's value. */
static inline bool wi_copy_out(void *to, size_t caller_size, const void *from, size_t our_size)
{
    if (caller_size < 2 * sizeof(size_t))
        return false;
    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t),
           wi_min(caller_size, our_size) - sizeof(size_t));
    return true;
}
/* Copies a caller's options in. Members that the caller does not know are 0. Members that this library does not know
 * have to be 0, as an option is obeyed or refused, never ignored. WEIR_ERR_INVALID for NULL, a struct_size that is not
 * set, or one that no header had; WEIR_ERR_UNSUPPORTED for something set beyond our size. Errors name `call` and the
 * structure. */
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
/* Checks that a list of `count` entries is there: WEIR_ERR_INVALID if the list is NULL and the count is not 0. `name`
 * is the list's name in the caller's structure. */
weir_status wi_check_list(const void *list, size_t count, const char *call, const char *name);
/* The same for settings, each of which has a key and a value. */
struct weir_setting;
weir_status wi_check_settings(const struct weir_setting *settings, size_t count, const char *call);
/* For options that may be NULL: `to` is unchanged then. */
#define WI_COPY_OPTIONS_IN(type, to, from, call) ((from) ? WI_COPY_IN(type, to, from, call) : WEIR_OK)

#endif
