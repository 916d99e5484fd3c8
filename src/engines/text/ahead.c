/* ahead.c: reading ahead. A library that reads a file on one thread lets the disk rest while it copies, and rests while the
 * disk reads. So threads ask the system for what is not in the page cache yet, from the beginning to the end, and the
 * library finds it there. */
#include "text.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { AHEAD_PIECE = 4 << 20, AHEAD_PROBES = 16 };

/* Half of what the system can give without pushing anybody out: else what comes early would be gone before it is read. */
static uint64_t ahead_room(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        continue;
    if (file)
        fclose(file);
    return (uint64_t)kib * 1024 / 2;
}

/* By a byte here and there. Where the system cannot tell, nothing is cached. */
bool wt_ahead_is_cached(int file, uint64_t bytes)
{
    char byte;
    struct iovec one = {&byte, 1};
    for (uint64_t i = 0; i < AHEAD_PROBES; i++)
        if (preadv2(file, &one, 1, (off_t)(bytes / AHEAD_PROBES * i), RWF_NOWAIT) != 1)
            return false;
    return true;
}

static void ahead_add(wt_ahead *it, int folder, const char *path)
{
    struct stat about;
    int file = it->count < WT_AHEAD_FILES ? openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (file < 0)
        return;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size <= AHEAD_PIECE ||
        wt_ahead_is_cached(file, (uint64_t)about.st_size)) {
        close(file);
        return;
    }
    uint64_t pieces = ((uint64_t)about.st_size + AHEAD_PIECE - 1) / AHEAD_PIECE;
    it->files[it->count].file = file;
    it->files[it->count++].pieces = pieces;
    it->end += pieces;
}

static void *ahead_work(void *user)
{
    wt_ahead *it = user;
    for (uint64_t at; (at = atomic_fetch_add(&it->next, 1)) < atomic_load(&it->end);) {
        size_t i = 0;
        while (at >= it->files[i].pieces)
            at -= it->files[i++].pieces;
        (void)posix_fadvise(it->files[i].file, (off_t)(at * AHEAD_PIECE), AHEAD_PIECE, POSIX_FADV_WILLNEED);
    }
    return NULL;
}

void wt_ahead_add(wt_ahead *it, const char *path)
{
    DIR *folder = path ? opendir(path) : NULL;
    if (path && !folder)
        ahead_add(it, AT_FDCWD, path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        ahead_add(it, dirfd(folder), entry->d_name);
    if (folder)
        closedir(folder);
}

void wt_ahead_run(wt_ahead *it)
{
    uint64_t room = it->end > 0 ? ahead_room() / AHEAD_PIECE : 0;
    if (it->end > room)
        it->end = room;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are not for these threads */
    while (it->end > 0 && it->running < WT_AHEAD_THREADS &&
           pthread_create(&it->threads[it->running], NULL, ahead_work, it) == 0)
        it->running++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void wt_ahead_begin(wt_ahead *it, const char *path)
{
    *it = (wt_ahead){.count = 0};
    wt_ahead_add(it, path);
    wt_ahead_run(it);
}

void wt_ahead_end(wt_ahead *it)
{
    atomic_store(&it->end, 0);
    while (it->running > 0)
        pthread_join(it->threads[--it->running], NULL);
    while (it->count > 0)
        close(it->files[--it->count].file);
}
