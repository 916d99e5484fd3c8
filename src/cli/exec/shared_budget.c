#include "cli/exec/shared_budget.h"

#include "base/paths.h"
#include "cli/cli.h"
#include "cli/text.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "exec-";

/* Removes the file unless a process locks it: each process with memory holds a lock on a byte of the file. A process
 * that has opened the file and waits for the lock notices the removal and creates another file. */
static void remove_unless_locked(int folder, const char *name)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int file = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return;
    if (fcntl(file, F_OFD_SETLK, &all) == 0)
        (void)unlinkat(folder, name, 0);
    close(file);
}

static void shared_budget_sweep(int folder)
{
    DIR *list = fdopendir(folder);
    if (!list) {
        close(folder);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(list));)
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0)
            remove_unless_locked(folder, entry->d_name);
    closedir(list);
}

/* The number of a process is given again, the time is not. */
char *shared_budget_new(void)
{
    char path[WI_WATCH_PATH];
    int folder = -1;
    struct timespec now;
    for (int place = 0; place < WI_WATCH_PLACES && folder < 0; place++)
        (void)!wi_watch_folder_open(place, true, path, &folder);
    if (folder < 0) {
        (void)cli_fail("the processes have no folder to share their budget in: %s; --each needs none", weir_detail());
        return NULL;
    }
    shared_budget_sweep(folder);
    clock_gettime(CLOCK_REALTIME, &now);
    return text_print("%s/%s%ld-%lld%09ld", path, prefix, (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
}
