/* bench_by.c: which allocators there are on a device. */
#include "by.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void bench_enter_thread(const bench_peer *by)
{
    if (by->thread_begin)
        by->thread_begin(by->self);
}

void bench_leave_thread(const bench_peer *by)
{
    if (by->thread_end)
        by->thread_end(by->self);
}

void bench_by_leave_out(bench_allocators *all, const char *name, const char *why)
{
    char *text = text_print("%s: %s", name, why);
    json_array_append_new(all->left_out, text_json(text));
    free(text);
}

bench_allocator *bench_by_add(bench_allocators *all, const bench_peer *by)
{
    if (all->count == BENCH_ALLOCATORS) {
        bench_by_leave_out(all, by->name, "there is no room for more");
        return NULL;
    }
    bench_allocator *added = &all->at[all->count++];
    *added = (bench_allocator){.by = *by};
    return added;
}

static bool add(bench_allocators *all, const char *failure, const char *name, const bench_peer *by, bool own)
{
    if (failure) {
        bench_by_leave_out(all, name, failure);
        return false;
    }
    bench_allocator *added = bench_by_add(all, by);
    if (added)
        added->own = own;
    return added != NULL;
}

static int is_shared_object(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 3 && strcmp(entry->d_name + length - 3, ".so") == 0;
}

/* A file, or every shared object of a folder. */
static void add_path(bench_allocators *all, const char *path, int ordinal)
{
    struct stat status;
    struct dirent **entries = NULL;
    bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    int count = folder ? scandir(path, &entries, is_shared_object, alphasort) : 0;
    for (int i = 0; i < count; i++) {
        char *file = text_print("%s/%s", path, entries[i]->d_name);
        const char *failure = bench_by_file(all, file, ordinal);
        if (failure)
            bench_by_leave_out(all, file, failure);
        free(file);
        free(entries[i]);
    }
    free(entries);
    if (folder && count == 0)
        bench_by_leave_out(all, path, "no shared object is in that folder");
    const char *failure = folder ? NULL : bench_by_file(all, path, ordinal);
    if (failure)
        bench_by_leave_out(all, path, failure);
}

void bench_allocators_open(bench_allocators *all, const char *device, const char *resource, const char *const *paths,
                           size_t path_count)
{
    bench_peer by;
    bool host = strcmp(device, "host") == 0;
    const char *colon = strchr(device, ':');
    int ordinal = colon ? atoi(colon + 1) : 0;
    *all = (bench_allocators){.left_out = json_array()};
    add(all, bench_by_weir(device, resource, true, &by), "weir", &by, true);
    if (host) {
        add(all, bench_by_weir(device, resource, false, &by), "weir, no stream", &by, true);
        add(all, bench_by_malloc(&by), "malloc", &by, false);
        add(all, bench_by_mimalloc(&by), "mimalloc", &by, false);
    } else {
        add(all, bench_by_pool(ordinal, &by), "cuMemAllocAsync", &by, false);
    }
    for (size_t i = 0; i < path_count; i++)
        add_path(all, paths[i], ordinal);
}

void bench_allocators_close(bench_allocators *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->at[i].by.close)
            all->at[i].by.close(all->at[i].by.self);
    json_decref(all->left_out);
    *all = (bench_allocators){0};
}
