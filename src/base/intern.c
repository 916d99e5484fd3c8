#include "base/intern.h"

enum { BUCKETS = 1024, MOST_TEXTS = 65536 };

typedef struct kept {
    struct kept *next;
    size_t length;
    char text[];
} kept;

/* Entries are only ever added, at the front, so readers need no lock. */
static kept *_Atomic buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t count;

static size_t hash(const char *text, size_t length)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a's offset basis and prime (Fowler, Noll, Vo) */
    for (size_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    return (size_t)(h ^ (h >> 32)) % BUCKETS;
}

static const char *look_up(size_t bucket, const char *text, size_t length)
{
    for (kept *k = atomic_load(&buckets[bucket]); k; k = k->next)
        if (k->length == length && memcmp(k->text, text, length) == 0)
            return k->text;
    return NULL;
}

const char *wi_intern(const char *text, size_t most)
{
    if (!text || !*text)
        return "";
    size_t length = strnlen(text, most), bucket = hash(text, length);
    const char *found = look_up(bucket, text, length);
    if (found)
        return found;
    pthread_mutex_lock(&lock);
    found = look_up(bucket, text, length);
    if (!found && count < MOST_TEXTS) {
        kept *k = malloc(sizeof *k + length + 1);
        if (k) {
            k->next = atomic_load(&buckets[bucket]);
            k->length = length;
            memcpy(k->text, text, length);
            k->text[length] = '\0';
            atomic_store(&buckets[bucket], k);
            count++;
            found = k->text;
        }
    }
    pthread_mutex_unlock(&lock);
    return found ? found : "";
}
