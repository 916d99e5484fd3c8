/* Paths and open libraries that an answer rests on (foresee.h). */
#include "foresee.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int read_counts(struct dl_phdr_info *info, size_t size, void *user)
{
    onnx_seen *it = user;
    (void)size;
    it->opened = info->dlpi_adds;
    it->closed = info->dlpi_subs;
    return 1; /* the counts are the same for each library */
}

void onnx_seen_begin(onnx_seen *it)
{
    *it = (onnx_seen){.whole = true};
    dl_iterate_phdr(read_counts, it);
}

static bool seen_grow(onnx_seen *it)
{
    if (it->count < it->room)
        return true;
    size_t room = it->room ? 2 * it->room : 64;
    onnx_seen_path *more = realloc(it->paths, room * sizeof *more);
    if (!more)
        return false;
    it->paths = more;
    it->room = room;
    return true;
}

void onnx_seen_note(onnx_seen *it, const char *path)
{
    struct stat about;
    char *copy = it->whole && *path == '/' && seen_grow(it) ? strdup(path) : NULL;
    if (!copy) {
        it->whole = false;
        return;
    }
    onnx_seen_path *noted = &it->paths[it->count++];
    *noted = (onnx_seen_path){.path = copy, .there = stat(path, &about) == 0};
    if (noted->there) {
        noted->stamp = wi_stamp_of(&about);
        it->whole = noted->stamp.settled;
    }
}

static bool seen_is_same(const onnx_seen_path *noted)
{
    struct stat about;
    if (stat(noted->path, &about) != 0)
        return !noted->there;
    const wi_stamp now = wi_stamp_of(&about);
    return noted->there && wi_stamp_same(&now, &noted->stamp);
}

bool onnx_seen_holds(const onnx_seen *it)
{
    onnx_seen now;
    onnx_seen_begin(&now);
    bool holds = it->whole && now.opened == it->opened && now.closed == it->closed;
    for (size_t i = 0; holds && i < it->count; i++)
        holds = seen_is_same(&it->paths[i]);
    return holds;
}

void onnx_seen_end(onnx_seen *it)
{
    for (size_t i = 0; i < it->count; i++)
        free(it->paths[i].path);
    free(it->paths);
    *it = (onnx_seen){.whole = false};
}
