/* checked.c: files that this process has read and found good. A model is looked at before it is loaded, to tell what it will
 * take; its keys, its tensors and its vocabulary are read once, and again only where the file may have changed. */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/stamp.h"

enum { CACHED = 16 };

typedef struct cached {
    wi_stamp stamp;
    wg_facts facts;
    wg_hyper *hyper; /* NULL: the entry is free */
} cached;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cached files[CACHED]; /* guarded by the lock */
static size_t next_entry;

static bool gguf_checked_recall(const char *path, wg_facts *facts, wg_hyper *hyper)
{
    struct stat about;
    bool found = false;
    if (stat(path, &about) != 0)
        return false;
    wi_stamp stamp = wi_stamp_of(&about);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CACHED && !found; i++) {
        found = files[i].hyper && wi_stamp_same(&files[i].stamp, &stamp);
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
static void gguf_checked_keep(const wi_stamp *stamp, const wg_facts *facts, wg_hyper *hyper)
{
    pthread_mutex_lock(&lock);
    cached *entry = &files[next_entry++ % CACHED];
    wg_hyper *before = entry->hyper;
    *entry = (cached){*stamp, *facts, hyper};
    pthread_mutex_unlock(&lock);
    free(before);
}

/* What memory depends on is read at the same time, from the same file; a load goes on without it. */
static weir_status gguf_checked_read_file(const wg_file *file, wg_facts *facts, wg_hyper *wanted)
{
    struct stat about;
    wg_hyper *hyper = malloc(sizeof *hyper);
    wi_stamp stamp = fstat(file->descriptor, &about) == 0 ? wi_stamp_of(&about) : (wi_stamp){.settled = false};
    weir_status status = wg_check_file(file, facts);
    if (status != WEIR_OK || !hyper) {
        free(hyper);
        return status != WEIR_OK || !wanted ? status
                                            : weir_fail(WEIR_ERR_SYSTEM, "%s: no memory to look at it", file->path);
    }
    weir_status told = wi_gguf_hyper_read(file, hyper);
    if (wanted && told == WEIR_OK)
        *wanted = *hyper;
    if (told == WEIR_OK && stamp.settled)
        gguf_checked_keep(&stamp, facts, hyper);
    else
        free(hyper);
    return wanted ? told : WEIR_OK;
}

weir_status wg_check_once(const char *path, wg_facts *facts, wg_hyper *hyper)
{
    wg_file file;
    if (gguf_checked_recall(path, facts, hyper))
        return WEIR_OK;
    *facts = (wg_facts){.pooling = -1};
    weir_status status = wi_gguf_file_open(path, &file);
    if (status != WEIR_OK)
        return status;
    status = gguf_checked_read_file(&file, facts, hyper);
    wi_gguf_file_close(&file);
    return status;
}
