#include "plan_peer.h"

#include "clock.h"
#include "cli/text.h"

#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

double bench_plan_peer(const char *program, const char *problem, uint64_t capacity, double limit)
{
    char *words[] = {text_copy(program),
                     text_print("--capacity=%llu", (unsigned long long)capacity),
                     text_print("--input=%s", problem),
                     text_print("--output=/dev/null"),
                     text_print("--timeout=%.0fs", limit),
                     NULL};
    posix_spawn_file_actions_t files;
    pid_t child;
    int status = 1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    uint64_t start = bench_now();
    bool ran = posix_spawn(&child, program, &files, NULL, words, environ) == 0 && waitpid(child, &status, 0) == child;
    double seconds = (double)(bench_now() - start) * 1e-9;
    posix_spawn_file_actions_destroy(&files);
    for (size_t i = 0; words[i]; i++)
        free(words[i]);
    return ran && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? seconds : (double)NAN;
}
