/* known.c: folders that this process has read and found good. A model is looked at before it is loaded, to tell what it will take;
 * its tokenizer and its graph are read once, and again only where a file of the folder may have changed. */
#include "wl.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/stamp.h"

enum { CACHED = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    wl_files files;
    wl_folder folder;
} known[CACHED]; /* guarded by the lock; a folder without a path is none */
static size_t next_entry;

static uint64_t llm_known_mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 29;
}

static uint64_t mix_text(uint64_t sum, const char *text)
{
    for (; *text; text++)
        sum = llm_known_mix(sum, (unsigned char)*text);
    return llm_known_mix(sum, 256);
}

static uint64_t mix_time(uint64_t sum, const struct timespec *at)
{
    return llm_known_mix(llm_known_mix(sum, (uint64_t)at->tv_sec), (uint64_t)at->tv_nsec);
}

/* Files are added up, in whatever order they come. */
static void llm_known_add_file(wl_files *to, const char *name, const struct stat *about)
{
    wi_stamp stamp = wi_stamp_of(about);
    for (int i = 0; i < 2; i++) {
        uint64_t sum = mix_text((uint64_t)i + 1, name);
        sum = llm_known_mix(llm_known_mix(sum, (uint64_t)stamp.device), (uint64_t)stamp.number);
        sum = llm_known_mix(llm_known_mix(sum, (uint64_t)stamp.size), (uint64_t)about->st_mode);
        to->sums[i] += mix_time(mix_time(sum, &stamp.written), &stamp.changed);
    }
    to->settled &= stamp.settled;
}

void wl_files_look(const char *path, wl_files *out)
{
    struct stat about;
    DIR *list = opendir(path);
    *out = (wl_files){.settled = list != NULL};
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (fstatat(dirfd(list), entry->d_name, &about, 0) != 0)
            out->settled = false;
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            llm_known_add_file(out, entry->d_name, &about);
    if (list)
        closedir(list);
}

static bool llm_known_same(const wl_files *a, const wl_files *b)
{
    return a->sums[0] == b->sums[0] && a->sums[1] == b->sums[1];
}

bool wl_folder_recall(const wl_files *files, wl_folder *folder)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CACHED && !found && files->settled; i++) {
        found = strcmp(known[i].folder.path, folder->path) == 0 && llm_known_same(&known[i].files, files);
        if (found)
            *folder = known[i].folder;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void wl_folder_keep(const wl_files *files, const wl_folder *folder)
{
    if (!files->settled || !folder->flat)
        return;
    pthread_mutex_lock(&lock);
    known[next_entry].files = *files;
    known[next_entry].folder = *folder;
    next_entry = (next_entry + 1) % CACHED;
    pthread_mutex_unlock(&lock);
}
