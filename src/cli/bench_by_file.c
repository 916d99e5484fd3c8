/* bench_by_file.c: peers out of shared objects. They stay loaded: what PyTorch and CUDA start does not end before the
 * process. */
#include "bench_by.h"

#include <dlfcn.h>
#include <string.h>

static bool complete(const bench_peer *by)
{
    return by->struct_size == sizeof *by && by->name[0] && by->begin && by->end && by->stream && by->allocate &&
           by->release;
}

/* The loader names the file, which whoever asked does too. */
static const char *without(const char *path, const char *text)
{
    size_t length = strlen(path);
    return strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0 ? text + length + 2 : text;
}

const char *bench_by_file(bench_allocators *all, const char *path, int ordinal)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return without(path, dlerror());
    bench_peer_entry *entry;
    void *symbol = dlsym(library, BENCH_PEER_ENTRY);
    if (!symbol)
        return "it does not export " BENCH_PEER_ENTRY;
    memcpy(&entry, &symbol, sizeof entry);
    for (unsigned which = 0; which < BENCH_ALLOCATORS; which++) {
        bench_peer by = {0};
        const char *failure = NULL;
        if (!entry(which, ordinal, &by, &failure))
            break;
        by.name[sizeof by.name - 1] = '\0';
        if (!failure && !complete(&by))
            failure = "its table is not that of bench/peer.h";
        if (failure)
            bench_by_leave_out(all, by.name[0] ? by.name : path, failure);
        else
            bench_by_add(all, &by);
    }
    return NULL;
}
