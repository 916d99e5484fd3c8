#include "cli/exec/exec.h"

#include "cli/cli.h"
#include "cli/text.h"
#include "cli/report/report.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The program ------------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t child;

/* What a terminal sends goes to the program as well, which is of the same group; what was sent to this process is meant for
 * the program. */
static void reported_pass_on(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0 && child > 0)
        (void)kill((pid_t)child, number);
}

static const int passed_on[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

/* What is ignored stays so. */
static void watch_signals(struct sigaction before[PASSED_ON])
{
    struct sigaction passing = {.sa_sigaction = reported_pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&passing.sa_mask);
    for (int i = 0; i < PASSED_ON; i++) {
        sigaction(passed_on[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(passed_on[i], &passing, NULL);
    }
}

/* What comes before the program's number is known waits. */
static pid_t reported_begin(const char *program, char **command)
{
    struct sigaction before[PASSED_ON];
    sigset_t all, mask;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask);
    watch_signals(before);
    pid_t begun = fork();
    if (begun == 0) {
        for (int i = 0; i < PASSED_ON; i++)
            sigaction(passed_on[i], &before[i], NULL);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        execvp(program, command);
        _exit(cli_fail("%s cannot be run: %s", program, strerror(errno)));
    }
    child = begun;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return begun;
}

static int reported_wait_for(pid_t program)
{
    int status;
    while (waitpid(program, &status, 0) < 0)
        if (errno != EINTR)
            return 0;
    child = 0;
    return status;
}

/* The core, if any, is the program's. */
static int end_like(int status)
{
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(WTERMSIG(status), SIG_DFL);
    (void)raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

/* The pages -------------------------------------------------------------------------------------------------------- */

static const char before_process[] = "process-", ending[] = ".weir";

static int is_trace(const struct dirent *entry)
{
    return strncmp(entry->d_name, before_process, sizeof before_process - 1) == 0;
}

/* The program's own is the page, others are beside it: page.html, page.4712-cuda-0.html. */
static char *reported_page_of(const char *page, const char *trace, bool first)
{
    const char *which = trace + sizeof before_process - 1, *slash = strrchr(page, '/'), *dot = strrchr(page, '.');
    if (first)
        return text_copy(page);
    size_t stem = dot && dot > page && (!slash || dot > slash + 1) ? (size_t)(dot - page) : strlen(page);
    return text_print("%.*s.%.*s%s", (int)stem, page, (int)(strlen(which) - (sizeof ending - 1)), which, page + stem);
}

static bool write_one(const char *folder, const char *trace, const char *page)
{
    char *path = text_print("%s/%s", folder, trace);
    int length = (int)(strlen(trace) - (sizeof ending - 1));
    struct stat its = {0};
    bool killed = stat(path, &its) == 0 && its.st_size == 0; /* events are written many at a time, and at exit */
    bool written = killed || report_make_page(path, page) == WEIR_OK;
    if (killed)
        fprintf(stderr, "weir exec: %.*s was killed before any of its trace was written\n", length, trace);
    else if (written)
        fprintf(stderr, "weir exec: %s shows %.*s\n", page, length, trace);
    else
        (void)cli_fail("%s: %s", page, weir_detail());
    (void)unlink(path);
    free(path);
    return written;
}

/* The program's own trace, or the first one, comes first. */
static int reported_first_of(struct dirent **traces, int count, pid_t program)
{
    char *own = text_print("%s%ld-", before_process, (long)program);
    int at = 0;
    for (int i = count - 1; i >= 0; i--)
        if (strncmp(traces[i]->d_name, own, strlen(own)) == 0)
            at = i;
    free(own);
    return at;
}

static bool write_pages(const char *folder, const char *page, pid_t program)
{
    struct dirent **traces = NULL;
    int count = scandir(folder, &traces, is_trace, versionsort);
    bool good = true;
    if (count < 0)
        return cli_fail("%s: %s", folder, strerror(errno)) == CLI_OK;
    int first = reported_first_of(traces, count, program);
    for (int i = 0; i < count; i++) {
        char *its = reported_page_of(page, traces[i]->d_name, i == first);
        good = write_one(folder, traces[i]->d_name, its) && good;
        free(its);
        free(traces[i]);
    }
    free(traces);
    if (count == 0)
        fprintf(stderr, "weir exec: there is no report, as no memory of CUDA's was asked for\n");
    return good;
}

static int run_into(const char *folder, const char *program, char **command, const char *page)
{
    char *pattern = text_print("%s/%s%%p-%%d%s", folder, before_process, ending);
    pid_t begun = setenv("WEIR_TRACE", pattern, 1) == 0 ? reported_begin(program, command) : -1;
    free(pattern);
    if (begun < 0)
        return cli_fail("%s cannot be run: %s", program, strerror(errno));
    int ended = reported_wait_for(begun);
    bool written = write_pages(folder, page, begun);
    (void)rmdir(folder);
    int status = end_like(ended);
    return status == CLI_OK && !written ? CLI_FAILED : status;
}

int reported_run(const char *program, char **command, const char *page)
{
    if (output_file_check(page, "the report") != WEIR_OK)
        return cli_fail("%s", weir_detail());
    const char *given = getenv("TMPDIR");
    char *folder = text_print("%s/weir-exec-XXXXXX", given && *given == '/' ? given : "/tmp");
    int status =
        mkdtemp(folder) ? run_into(folder, program, command, page) : cli_fail("%s: %s", folder, strerror(errno));
    free(folder);
    return status;
}
