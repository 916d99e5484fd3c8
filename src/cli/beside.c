/* beside.c: the programs beside this one. */
#include "cli.h"

#include "text.h"
#include "engines/command.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Beside the file of this process. The caller frees it. */
static char *beside_find(const char *name)
{
    char own[4096];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    return text_print("%.*s%s", slash ? (int)(slash + 1 - own) : 0, own, name);
}

/* Its path, then the arguments. The caller frees the list. */
static char **beside_command_of(char *path, const char *const *argv)
{
    size_t count = 0;
    while (argv[count] != NULL)
        count++;
    char **command = text_zeroed(count + 2, sizeof *command);
    command[0] = path;
    memcpy(command + 1, argv, count * sizeof *command);
    return command;
}

int beside_become_sim(char **argv)
{
    char *path = beside_find("weir-sim"), **command = beside_command_of(path, (const char *const *)argv);
    execv(path, command);
    int status =
        cli_fail("the simulated device is the program weir-sim's, and %s cannot be run: %s", path, strerror(errno));
    free(command);
    free(path);
    return status;
}

int beside_become_bench(char **argv)
{
    char *path = beside_find("weir-bench"), **command = beside_command_of(path, (const char *const *)argv);
    execv(path, command);
    int error = errno;
    if (error == ENOENT)
        execvp("weir-bench", command);
    int status =
        error == ENOENT
            ? cli_fail("weir bench needs the program weir-bench, which is neither %s nor in PATH: 'make' builds "
                       "it, and 'make install' and the Python package put it beside weir",
                       path)
            : cli_fail("weir bench needs the program weir-bench, and %s cannot be run: %s", path, strerror(error));
    free(command);
    free(path);
    return status;
}

/* scripts/engines as the wheel, an installed weir and a checkout's build/PRESET/bin have it; the first where none is. The
 * caller frees it. */
static char *beside_find_engines(void)
{
    static const char *const places[] = {"../scripts/weir-engines", "../share/weir/scripts/engines",
                                         "../../../scripts/engines"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *path = beside_find(places[i]);
        if (access(path, R_OK) == 0)
            return path;
        free(path);
    }
    return beside_find(places[0]);
}

int beside_become_engines(char **argv)
{
    char *path = beside_find_engines(), **script = beside_command_of(path, (const char *const *)argv);
    char bytecode[] = "-B", **command = beside_command_of(bytecode, (const char *const *)script);
    char python[] = "python3", **words = beside_command_of(python, (const char *const *)command);
    if (access(path, R_OK) == 0)
        execvp(python, words);
    int status = cli_fail("weir engines get needs python3 and the script %s: %s", path, strerror(errno));
    free(words);
    free(command);
    free(script);
    free(path);
    return status;
}

/* Standard output into a pipe, whose other end is the answer; -1: it could not be started. */
static int beside_start(const char *path, char **command, pid_t *child)
{
    int ends[2], error = pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
    if (error == 0) {
        posix_spawn_file_actions_t files;
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        error = posix_spawn(child, path, &files, NULL, command, environ);
        posix_spawn_file_actions_destroy(&files);
        close(ends[1]);
        if (error != 0)
            close(ends[0]);
    }
    if (error == 0)
        return ends[0];
    (void)weir_fail(WEIR_ERR_SYSTEM, "the simulated device is the program weir-sim's, and %s cannot be run: %s", path,
                    strerror(error));
    return -1;
}

/* An answer {error: {detail}} is a failure. */
static json_t *beside_judge(json_t *answer)
{
    const char *detail = json_string_value(json_object_get(json_object_get(answer, "error"), "detail"));
    if (answer != NULL && detail == NULL)
        return answer;
    (void)weir_fail(WEIR_ERR_SYSTEM, "%s", detail != NULL ? detail : "weir-sim gave no answer");
    json_decref(answer);
    return NULL;
}

json_t *beside_call_sim(const char *const *argv)
{
    pid_t child;
    char *path = beside_find("weir-sim"), **command = beside_command_of(path, argv);
    int output = beside_start(path, command, &child);
    FILE *file = output >= 0 ? fdopen(output, "r") : NULL;
    json_t *answer = file != NULL ? json_loadf(file, 0, NULL) : NULL;
    if (file != NULL)
        fclose(file);
    else if (output >= 0)
        close(output);
    if (output >= 0)
        waitpid(child, NULL, 0);
    free(command);
    free(path);
    return output >= 0 ? beside_judge(answer) : NULL;
}
