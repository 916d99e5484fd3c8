/* checked.c: files that this process has read and found good. A model is looked at before it is loaded, to tell what it will
 * take; its keys, its tensors and its vocabulary are read once, and again only where the file may have changed. */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { KEPT = 16, SETTLED_S = 2 };

typedef struct kept {
    struct stat about; /* the members that tell one file from another, and from what it was */
    wg_facts facts;
    wg_hyper *hyper; /* NULL: the place is free */
} kept;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept files[KEPT]; /* guarded by the lock */
static size_t next_place;

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           same_time(&a->st_mtim, &b->st_mtim) && same_time(&a->st_ctim, &b->st_ctim);
}

/* What was written a moment ago may be written once more within one tick of the file system's clock. */
static bool is_settled(const struct stat *about)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec - about->st_ctim.tv_sec > SETTLED_S && now.tv_sec - about->st_mtim.tv_sec > SETTLED_S;
}

static bool recall(const char *path, wg_facts *facts, wg_hyper *hyper)
{
    struct stat about;
    bool found = false;
    if (stat(path, &about) != 0)
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < KEPT && !found; i++) {
        found = files[i].hyper && same(&files[i].about, &about);
        if (found) {
            *facts = files[i].facts;
            if (hyper)
                *hyper = *files[i].hyper;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Takes `hyper` over. */
static void keep(const struct stat *about, const wg_facts *facts, wg_hyper *hyper)
{
    pthread_mutex_lock(&lock);
    kept *place = &files[next_place++ % KEPT];
    wg_hyper *before = place->hyper;
    *place = (kept){*about, *facts, hyper};
    pthread_mutex_unlock(&lock);
    free(before);
}

/* What memory depends on is read at the same time, from the same file; a load goes on without it. */
static weir_status read_file(const wg_file *file, wg_facts *facts, wg_hyper *wanted)
{
    struct stat about;
    wg_hyper *hyper = malloc(sizeof *hyper);
    weir_status status = wg_check_file(file, facts);
    if (status != WEIR_OK || !hyper) {
        free(hyper);
        return status != WEIR_OK || !wanted ? status
                                            : weir_fail(WEIR_ERR_SYSTEM, "%s: no memory to look at it", file->path);
    }
    weir_status told = wi_gguf_hyper_read(file, hyper);
    if (wanted && told == WEIR_OK)
        *wanted = *hyper;
    if (told == WEIR_OK && fstat(file->descriptor, &about) == 0 && is_settled(&about))
        keep(&about, facts, hyper);
    else
        free(hyper);
    return wanted ? told : WEIR_OK;
}

weir_status wg_check_once(const char *path, wg_facts *facts, wg_hyper *hyper)
{
    wg_file file;
    if (recall(path, facts, hyper))
        return WEIR_OK;
    *facts = (wg_facts){.pooling = -1};
    weir_status status = wi_gguf_file_open(path, &file);
    if (status != WEIR_OK)
        return status;
    status = read_file(&file, facts, hyper);
    wi_gguf_file_close(&file);
    return status;
}
