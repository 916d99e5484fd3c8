/* Files that this process has checked. A model is looked at before it is loaded, to tell what it will take, and the walk
 * over a large one is most of that: so a file is walked again only where it may have changed. */
#include "onnx/file/file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CACHED = 16 };

typedef struct cached_side {
    char *location;
    wi_stamp stamp;
} cached_side;

typedef struct cached {
    char *real;
    wi_stamp stamp;
    bool texts, plain, nested, two_bits;
    size_t count;
    cached_side sides[];
} cached;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cached *files[CACHED]; /* guarded by the lock, as what they point to */
static size_t next_entry;

static void onnx_file_checked_forget(cached *it)
{
    for (size_t i = 0; it && i < it->count; i++)
        free(it->sides[i].location);
    if (it)
        free(it->real);
    free(it);
}

/* Opens the files beside it as well, as a check does. */
static bool is_unchanged(const cached *it, onnx_file *file)
{
    char why[200];
    bool good = strcmp(it->real, file->real) == 0 && wi_stamp_same(&it->stamp, &file->stamp);
    for (size_t i = 0; good && i < it->count; i++) {
        const onnx_text location = {it->sides[i].location, strlen(it->sides[i].location)};
        const onnx_side_file *side = onnx_file_side(file, location, why, sizeof why);
        good = side && wi_stamp_same(&side->stamp, &it->sides[i].stamp);
    }
    return good;
}

static bool was_checked(onnx_file *file)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CACHED && !found; i++) {
        found = files[i] && is_unchanged(files[i], file);
        if (found) {
            file->texts = files[i]->texts;
            file->plain = files[i]->plain;
            file->nested = files[i]->nested;
            file->two_bits = files[i]->two_bits;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static cached *onnx_file_checked_describe(const onnx_file *file)
{
    size_t most = 0;
    bool good = file->stamp.settled;
    for (const onnx_side_file *side = file->sides; side; side = side->next) {
        good &= side->stamp.settled;
        most++;
    }
    cached *it = good ? calloc(1, sizeof *it + most * sizeof *it->sides) : NULL;
    if (!it)
        return NULL;
    it->stamp = file->stamp;
    it->texts = file->texts;
    it->plain = file->plain;
    it->nested = file->nested;
    it->two_bits = file->two_bits;
    it->real = strdup(file->real);
    good = it->real != NULL;
    for (const onnx_side_file *side = file->sides; good && side; side = side->next) {
        it->sides[it->count] = (cached_side){strdup(side->location), side->stamp};
        good = it->sides[it->count++].location != NULL;
    }
    if (good)
        return it;
    onnx_file_checked_forget(it);
    return NULL;
}

static void onnx_file_checked_keep(const onnx_file *file)
{
    cached *it = onnx_file_checked_describe(file);
    if (!it)
        return;
    pthread_mutex_lock(&lock);
    size_t entry = 0;
    while (entry < CACHED && !(files[entry] && strcmp(files[entry]->real, it->real) == 0))
        entry++;
    entry = entry < CACHED ? entry : next_entry++ % CACHED;
    cached *before = files[entry];
    files[entry] = it;
    pthread_mutex_unlock(&lock);
    onnx_file_checked_forget(before);
}

weir_status onnx_check_once(onnx_file *file)
{
    if (was_checked(file))
        return WEIR_OK;
    weir_status status = onnx_check(file);
    if (status == WEIR_OK)
        onnx_file_checked_keep(file);
    return status;
}
