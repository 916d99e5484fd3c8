/* Interned texts and string pools. */
#include "base/texts.h"

#include <weir/base.h>

#include <stdio.h>

/* Interned texts --------------------------------------------------------------------------------------------------- */

enum { BUCKETS = 1 << 14 };

typedef struct stored {
    struct stored *next;
    uint64_t hash;
    size_t length;
    char text[];
} stored;

/* Entries are only added, at the head, so that readers need no lock. */
static stored *_Atomic buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
WI_FREE_AFTER_FORKS(lock)
static atomic_size_t counts[WI_TEXTS]; /* changed under the lock */
static atomic_uint_fast64_t lost[WI_TEXTS];

static const char *intern_look_up(uint64_t hash, const char *text, size_t length)
{
    for (stored *k = atomic_load(&buckets[hash % BUCKETS]); k; k = k->next)
        if (k->hash == hash && k->length == length && memcmp(k->text, text, length) == 0)
            return k->text;
    return NULL;
}

/* With the lock held. */
static const char *intern_add(wi_text_kind kind, uint64_t hash, const char *text, size_t length)
{
    stored *k = atomic_load(&counts[kind]) < WI_TEXTS_MOST ? malloc(sizeof *k + length + 1) : NULL;
    if (!k)
        return NULL;
    k->next = atomic_load(&buckets[hash % BUCKETS]);
    k->hash = hash;
    k->length = length;
    memcpy(k->text, text, length);
    k->text[length] = '\0';
    atomic_store(&buckets[hash % BUCKETS], k);
    atomic_fetch_add(&counts[kind], 1);
    return k->text;
}

/* When the table is full, a new text is searched for without the lock. */
static const char *intern_keep(wi_text_kind kind, const char *text, size_t most)
{
    size_t length = strnlen(text, most);
    uint64_t hash = wi_hash(text, length);
    const char *found = intern_look_up(hash, text, length);
    if (found || atomic_load_explicit(&counts[kind], memory_order_relaxed) == WI_TEXTS_MOST)
        return found;
    watch_forks();
    pthread_mutex_lock(&lock);
    found = intern_look_up(hash, text, length);
    if (!found)
        found = intern_add(kind, hash, text, length);
    pthread_mutex_unlock(&lock);
    return found;
}

static void tell_of_loss(wi_text_kind kind, const char *text, size_t most)
{
    if (atomic_fetch_add(&lost[kind], 1) > 0)
        return;
    if (kind == WI_TAG)
        weir_log(
            WEIR_LOG_WARNING,
            "the tag \"%.*s\" is not kept: there have been %d different ones or no memory for more; blocks with new "
            "ones have none from here on, which weir_stats.lost_tags counts: use fewer",
            (int)most, text, (int)WI_TEXTS_MOST);
    else
        weir_log(WEIR_LOG_WARNING,
                 "the name \"%.*s\" is its client's alone: there have been %d different ones or no memory for more; "
                 "traces show new ones as \"" WI_LOST_NAME "\" from here on: use fewer",
                 (int)most, text, (int)WI_TEXTS_MOST);
}

const char *wi_intern_as(wi_text_kind kind, const char *text, size_t most)
{
    const char *found = intern_keep(kind, text, most);
    if (!found)
        tell_of_loss(kind, text, most);
    return found;
}

const char *wi_intern(const char *text, size_t most)
{
    const char *found = text && *text ? wi_intern_as(WI_TAG, text, most) : NULL;
    return found ? found : "";
}

uint64_t wi_intern_lost(wi_text_kind kind)
{
    return atomic_load_explicit(&lost[kind], memory_order_relaxed);
}

/* String pools ----------------------------------------------------------------------------------------------------- */

typedef struct wi_pooled_string {
    struct wi_pooled_string *before;
    char text[];
} pooled_string;

const char *wi_string_pool_vprint(wi_string_pool *pool, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    pooled_string *string = length < 0 ? NULL : malloc(sizeof *string + (size_t)length + 1);
    if (string) {
        vsnprintf(string->text, (size_t)length + 1, format, again);
        wi_one_line(string->text);
        string->before = pool->last;
        pool->last = string;
    }
    va_end(again);
    pool->failed |= string == NULL;
    return string ? string->text : "";
}

const char *wi_string_pool_print(wi_string_pool *pool, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *string = wi_string_pool_vprint(pool, format, arguments);
    va_end(arguments);
    return string;
}

void wi_string_pool_free(wi_string_pool *pool)
{
    for (pooled_string *before; pool->last; pool->last = before) {
        before = pool->last->before;
        free(pool->last);
    }
}
