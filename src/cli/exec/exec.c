/* exec.c: the verb exec: becomes a program with libweir-preload.so preloaded into it (docs/guide/exec.md). */
#include "cli/args.h"
#include "cli/cli.h"
#include "cli/exec/exec.h"
#include "cli/text.h"
#include "base/paths.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct exec_args {
    const char *budget, *stats, *trace, *report;
    bool each, direct, free_waits, quiet, json;
    char **command; /* up to a NULL */
} exec_args;

static int exec_read_budget(const arg *option, const char *value, void *to)
{
    exec_args *args = to;
    (void)option;
    if (!*value || weir_option_set("budget", value) != WEIR_OK)
        return cli_usage("exec", "--budget %s: a size such as 8GiB is wanted, or a list like cuda:0=8GiB,host=2GiB",
                         value);
    args->budget = value;
    return -1;
}

static int exec_read_command(char **operands, size_t count, void *to)
{
    if (count == 0)
        return cli_usage("exec", "which program?");
    ((exec_args *)to)->command = operands;
    return -1;
}

static const arg options[] = {
    {"budget", "SIZE", "what each CUDA device gives: 8GiB; or by device: cuda:0=8g,cuda:1=4g,host=2g for pinned memory",
     ARG_CALL, .read = exec_read_budget},
    {"each", NULL, "each process has a budget of its own", ARG_FLAG, .at = offsetof(exec_args, each)},
    {"stats", "FILE", "the table at exit is appended there, not written to standard error", ARG_FILE,
     .at = offsetof(exec_args, stats)},
    {"quiet", NULL, "no table", ARG_FLAG, .at = offsetof(exec_args, quiet)},
    {"json", NULL, "the table is one JSON object for each process", ARG_FLAG, .at = offsetof(exec_args, json)},
    {"trace", "FILE", "record what weir serves; %d is the device, %p the process", ARG_FILE,
     .at = offsetof(exec_args, trace)},
    {"report", "FILE", "a page of what was recorded, when the program has ended; children's are beside it", ARG_FILE,
     .at = offsetof(exec_args, report)},
    {"direct", NULL, "all memory stays CUDA's and only counts: for exports to other processes, and access by peers",
     ARG_FLAG, .at = offsetof(exec_args, direct)},
    {"free-waits", NULL, "cuMemFree waits for the device, for programs that rely on it", ARG_FLAG,
     .at = offsetof(exec_args, free_waits)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "exec",
    .usage = "exec [OPTION]… [--] PROGRAM [ARGUMENT]…",
    .about =
        "Runs a program as it is, with its CUDA memory under a budget: weir serves what it asks CUDA's driver for, "
        "and counts what stays CUDA's. What does not fit is refused as CUDA would refuse it. The program and "
        "its children have the budget together.",
    .options = options,
    .notes = "The exit status is the program's; 1 when it cannot be run under weir, with one line that says why.",
    .operands_end_options = true,
    .read_operands = exec_read_command};

/* The environment -------------------------------------------------------------------------------------------------- */

/* The library lies beside libweir. The caller frees it; NULL: it is not there. */
static char *exec_find_library(void)
{
    Dl_info weirs;
    const char *(*function)(void) = weir_version;
    void *address;
    memcpy(&address, &function, sizeof address);
    if (!dladdr(address, &weirs))
        return NULL;
    const char *slash = strrchr(weirs.dli_fname, '/');
    char *path = text_print("%.*slibweir-preload.so", slash ? (int)(slash + 1 - weirs.dli_fname) : 0, weirs.dli_fname);
    char *whole = realpath(path, NULL);
    if (!whole)
        (void)cli_fail("%s: %s", path, strerror(errno));
    else if (strpbrk(whole, " \t:"))
        (void)cli_fail(
            "%s has a blank or a colon in its path, which the dynamic linker takes for the end of it: install "
            "weir elsewhere",
            whole);
    free(path);
    if (whole && strpbrk(whole, " \t:")) {
        free(whole);
        return NULL;
    }
    return whole;
}

static void set(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0)
        text_out_of_memory();
}

/* The program may change its folder. */
static void set_path(const char *name, const char *path)
{
    char folder[PATH_MAX];
    if (!path)
        return;
    char *whole = *path == '/' || !getcwd(folder, sizeof folder) ? text_copy(path) : text_print("%s/%s", folder, path);
    set(name, whole);
    free(whole);
}

static void set_preload(const char *library)
{
    const char *others = getenv("LD_PRELOAD");
    char *all = others && *others ? text_print("%s:%s", library, others) : text_copy(library);
    set("LD_PRELOAD", all);
    free(all);
}

/* What is said later, by a program or another `weir exec` inside, is for one process. */
static void set_shared_budget(const char *path)
{
    weir_option option = WEIR_INIT(weir_option);
    set("WEIR_EXEC_TREE", path);
    set("WEIR_EXEC_BUDGET", weir_option_info("budget", 0, &option) == WEIR_OK ? option.value : "");
}

static void set_environment(const exec_args *args, const char *library, const char *shared)
{
    char *words = text_print("%s%s%s%s", args->direct ? "direct," : "", args->free_waits ? "free-waits," : "",
                             args->quiet ? "quiet," : "", args->json ? "json," : "");
    set_preload(library);
    if (args->budget)
        set("WEIR_BUDGET", args->budget);
    set("WEIR_EXEC", words);
    unsetenv("WEIR_EXEC_STATS");
    set_path("WEIR_EXEC_STATS", args->stats);
    set_path("WEIR_TRACE", args->trace);
    if (shared)
        set_shared_budget(shared);
    free(words);
}

/* The shared budget ------------------------------------------------------------------------------------------------ */

static const char prefix[] = "exec-";

/* Removes the file unless a process locks it: each process with memory holds a lock on a byte of the file. A process
 * that has opened the file and waits for the lock notices the removal and creates another file. */
static void exec_remove_unless_locked(int folder, const char *name)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int file = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return;
    if (fcntl(file, F_OFD_SETLK, &all) == 0)
        (void)unlinkat(folder, name, 0);
    close(file);
}

static void exec_sweep(int folder)
{
    DIR *list = fdopendir(folder);
    if (!list) {
        close(folder);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(list));)
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0)
            exec_remove_unless_locked(folder, entry->d_name);
    closedir(list);
}

/* Returns the path of the file in which the processes of one `weir exec` share their budget (src/interpose/preload/tree.c); the
 * first process that asks for memory creates the file. Removes the files of trees in which no process has memory any more. The
 * number of a process is given again, the time is not. The caller frees the path. NULL: there is no folder for the file, and
 * cli_fail has said so. */
static char *exec_shared_budget_new(void)
{
    char path[WI_WATCH_PATH];
    int folder = -1;
    struct timespec now;
    for (int number = 0; number < WI_WATCH_FOLDERS && folder < 0; number++)
        (void)!wi_watch_folder_open(number, true, path, &folder);
    if (folder < 0) {
        (void)cli_fail("the processes have no folder to share their budget in: %s; --each needs none", weir_detail());
        return NULL;
    }
    exec_sweep(folder);
    clock_gettime(CLOCK_REALTIME, &now);
    return text_print("%s/%s%ld-%lld%09ld", path, prefix, (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
}

/* Returns the path of a new shared budget. NULL if none is wanted: *status is a failure already, --each is given, or an
 * outer `weir exec` shares its budget. NULL and *status CLI_FAILED: there is no folder for the budget. */
static char *find_shared_budget(const exec_args *args, int *status)
{
    const char *outer = getenv("WEIR_EXEC_TREE");
    bool wanted = *status == CLI_OK && !args->each && !(outer && *outer);
    char *path = wanted ? exec_shared_budget_new() : NULL;
    *status = wanted && !path ? CLI_FAILED : *status;
    return path;
}

static int exec_run(const exec_args *args, const char *path)
{
    if (args->report)
        return reported_run(path, args->command, args->report);
    execvp(path, args->command);
    return cli_fail("%s cannot be run: %s", path, strerror(errno));
}

int verb_exec(int argc, char **argv)
{
    exec_args args = {0};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status >= 0)
        return status;
    if (args.report && args.trace)
        return cli_usage("exec", "--report records by itself: weir report makes a page of --trace's file");
    char *library = exec_find_library(), *path = library ? program_find(args.command[0]) : NULL;
    status = path ? program_check(path) : CLI_FAILED;
    char *shared = find_shared_budget(&args, &status);
    if (status == CLI_OK) {
        set_environment(&args, library, shared);
        status = exec_run(&args, path);
    }
    free(shared);
    free(library);
    free(path);
    return status;
}
