/* What was foreseen of models in this process. A model is looked at when an engine is chosen for it, by a pool, and once more by each
 * load; of one with branches that takes a fifth of the load's time. So it is foreseen again only where the file may have changed, or
 * something else is asked. */
#include "foresee.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CACHED = 16 };

typedef struct cached {
    char *real, *asked;
    wi_stamp stamp;
    onnx_foreseen said;
} cached;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cached *files[CACHED]; /* guarded by the lock, as what they point to */
static size_t next_entry;

static void foreseen_forget(cached *it)
{
    if (it) {
        free(it->real);
        free(it->asked);
    }
    free(it);
}

static bool is_of(const cached *it, const onnx_file *file, const char *asked)
{
    return it && strcmp(it->real, file->real) == 0 && strcmp(it->asked, asked) == 0;
}

/* With the lock held. CACHED: there is none. */
static size_t foreseen_entry_of(const onnx_file *file, const char *asked)
{
    size_t entry = 0;
    while (entry < CACHED && !is_of(files[entry], file, asked))
        entry++;
    return entry;
}

static bool foreseen_recall(const onnx_file *file, const char *asked, onnx_foreseen *out)
{
    pthread_mutex_lock(&lock);
    size_t entry = foreseen_entry_of(file, asked);
    bool found = entry < CACHED && wi_stamp_same(&files[entry]->stamp, &file->stamp);
    if (found)
        *out = files[entry]->said;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Without memory it is foreseen again the next time. */
static void foreseen_keep(const onnx_file *file, const char *asked, const onnx_foreseen *said)
{
    cached *it = calloc(1, sizeof *it);
    if (it)
        *it = (cached){strdup(file->real), strdup(asked), file->stamp, *said};
    if (!it || !it->real || !it->asked) {
        foreseen_forget(it);
        return;
    }
    pthread_mutex_lock(&lock);
    size_t entry = foreseen_entry_of(file, asked);
    entry = entry < CACHED ? entry : next_entry++ % CACHED;
    cached *before = files[entry];
    files[entry] = it;
    pthread_mutex_unlock(&lock);
    foreseen_forget(before);
}

/* NULL without memory. To be freed. */
static char *write_asked(const onnx_foresee_ask *ask)
{
    size_t room = strlen(ask->dims) + 64;
    char *asked = malloc(room);
    bool lifts = false;
    for (size_t i = 0; ask->model && i < ask->model->inner_count; i++)
        lifts |= ask->model->inner[i].lifted;
    if (asked)
        snprintf(asked, room, "%d %d %d %d %d %d %s", ask->cuda, ask->memory_pattern, ask->threads, ask->prepack,
                 ask->optimization, lifts, ask->dims);
    return asked;
}

/* Files beside a model have small tensors of it, too: it is foreseen each time. */
void onnx_foresee(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out)
{
    char *asked = !file->sides && file->stamp.settled ? write_asked(ask) : NULL;
    if (!asked || !foreseen_recall(file, asked, out)) {
        onnx_foresee_now(file, ask, out);
        if (asked && out->runs && out->whole)
            foreseen_keep(file, asked, out);
    }
    free(asked);
}
