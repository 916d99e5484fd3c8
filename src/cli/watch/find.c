#include "watch.h"

#include "cli/cli.h"
#include "cli/text.h"
#include "base/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MILLISECONDS = 2000, COMMAND_MILLISECONDS = 120000, AT_ONCE = 128, ANSWER_MOST = 1 << 20, COMMAND_MOST = 255 };

/* One process that was asked. */
typedef struct asked {
    uint64_t pid;
    int file; /* -1: it has answered, or will not */
    char *text;
    size_t used;
    bool whole;
} asked;

typedef struct search {
    uint64_t pid;
    const char *request;
    long milliseconds; /* that are waited for answers */
    asked asked[AT_ONCE];
    size_t count;
    watched_list *out;
} search;

/* Answers ---------------------------------------------------------------------------------------------------------- */

uint64_t watched_sum(const json_t *list, const char *inner, const char *key)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i);
        sum += text_json_number(inner != NULL ? json_object_get(object, inner) : object, key);
    }
    return sum;
}

static bool are_objects(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i)))
            return false;
    return json_is_array(list);
}

/* NULL: it is no answer. */
static json_t *read_answer(const asked *one)
{
    json_t *answer = one->whole ? json_loadb(one->text, one->used, 0, NULL) : NULL;
    const json_t *runtimes = json_object_get(answer, "runtimes");
    bool good = are_objects(runtimes);
    for (size_t i = 0; good && i < json_array_size(runtimes); i++) {
        const json_t *clients = json_object_get(json_array_get(runtimes, i), "clients");
        good = !clients || are_objects(clients);
    }
    if (good)
        return answer;
    json_decref(answer);
    return NULL;
}

/* As the kernel has it; the caller frees it. */
static char *find_command_of(uint64_t pid)
{
    char path[64], text[COMMAND_MOST + 1];
    snprintf(path, sizeof path, "/proc/%llu/cmdline", (unsigned long long)pid);
    FILE *file = fopen(path, "re");
    size_t length = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    while (length > 0 && text[length - 1] == '\0')
        length--;
    for (size_t i = 0; i < length; i++)
        text[i] = text[i] == '\0' ? ' ' : text[i];
    return text_clean(text, length, false);
}

static void find_note(watched_list *out, const asked *one)
{
    json_t *answer = read_answer(one);
    const char *command = text_json_text(answer, "command");
    out->list = text_grow(out->list, out->count + 1, sizeof *out->list);
    out->list[out->count++] = (watched){
        one->pid, answer != NULL ? text_clean(command, strlen(command), false) : find_command_of(one->pid), answer};
}

/* Asking ----------------------------------------------------------------------------------------------------------- */

static void watch_find_end(asked *one)
{
    close(one->file);
    one->file = -1;
}

/* Takes what has come. What ends the text ends with a line end in it. */
static void find_take(asked *one)
{
    one->text = text_grow(one->text, one->used + 65536, 1);
    ssize_t count = recv(one->file, one->text + one->used, 65536, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    one->used += count > 0 ? (size_t)count : 0;
    one->whole = one->used > 0 && one->text[one->used - 1] == '\n';
    if (count <= 0 || one->whole || one->used > ANSWER_MOST)
        watch_find_end(one);
}

/* Waits for the processes that were asked, notes their answers, and clears the list of questions. */
static void find_collect(search *s)
{
    long last = (long)(cli_now() / 1000000) + s->milliseconds, left;
    for (size_t open = s->count; open > 0 && (left = last - (long)(cli_now() / 1000000)) > 0;) {
        struct pollfd files[AT_ONCE];
        for (size_t i = 0; i < s->count; i++)
            files[i] = (struct pollfd){.fd = s->asked[i].file, .events = POLLIN};
        if (poll(files, s->count, (int)left) < 0)
            continue;
        open = 0;
        for (size_t i = 0; i < s->count; i++) {
            if (s->asked[i].file >= 0 && files[i].revents != 0)
                find_take(&s->asked[i]);
            open += s->asked[i].file >= 0;
        }
    }
    for (size_t i = 0; i < s->count; i++) {
        if (s->asked[i].file >= 0)
            watch_find_end(&s->asked[i]);
        find_note(s->out, &s->asked[i]);
        free(s->asked[i].text);
    }
    s->count = 0;
}

static bool is_trusted(int file)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           (geteuid() == 0 || wi_watch_allows(geteuid(), peer.uid));
}

/* Nobody listens on it: its process is gone, as a process takes the name when it listens already. */
static void remove_dead(int folder, const char *name, const struct stat *seen)
{
    struct stat now;
    if (fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == seen->st_ino &&
        now.st_ctim.tv_sec == seen->st_ctim.tv_sec && now.st_ctim.tv_nsec == seen->st_ctim.tv_nsec)
        (void)unlinkat(folder, name, 0);
}

static void find_ask(search *s, int folder, const char *name, uint64_t pid)
{
    struct stat seen;
    struct sockaddr_un address;
    if (fstatat(folder, name, &seen, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(seen.st_mode))
        return;
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0)
        return;
    wi_watch_address(folder, name, &address);
    int error = connect(file, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    if (error == ECONNREFUSED)
        remove_dead(folder, name, &seen);
    if ((error != 0 && error != EAGAIN) || (error == 0 && !is_trusted(file))) {
        close(file);
        return;
    }
    char line[128];
    int length = snprintf(line, sizeof line, "%s\n", s->request);
    asked *one = &s->asked[s->count++];
    *one = (asked){.pid = pid, .file = file};
    if (error == EAGAIN || send(file, line, (size_t)length, MSG_NOSIGNAL) != length)
        watch_find_end(one);
    if (s->count == AT_ONCE)
        find_collect(s);
}

/* The number in front of the ending; 0: the name has another form. */
static uint64_t pid_of(const char *name, const char *ending)
{
    char digits[20];
    size_t length = strspn(name, "0123456789");
    uint64_t pid;
    if (length == 0 || length >= sizeof digits || strcmp(name + length, ending) != 0)
        return 0;
    snprintf(digits, sizeof digits, "%.*s", (int)length, name);
    return text_number(digits, 1, INT32_MAX, &pid) ? pid : 0;
}

static void find_look_into(search *s, int folder)
{
    DIR *list = fdopendir(folder);
    if (list == NULL) {
        close(folder);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        uint64_t pid = pid_of(entry->d_name, ".sock"), early = pid_of(entry->d_name, ".new");
        if (pid != 0 && (s->pid == 0 || s->pid == pid))
            find_ask(s, dirfd(list), entry->d_name, pid);
        else if (early != 0 && kill((pid_t)early, 0) != 0 && errno == ESRCH)
            (void)unlinkat(dirfd(list), entry->d_name, 0); /* it was killed on the way */
    }
    find_collect(s);
    closedir(list);
}

static int by_pid(const void *a, const void *b)
{
    const watched *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static void find_all(search s, watched_list *out)
{
    s.out = out;
    *out = (watched_list){0};
    for (int number = 0; number < WI_WATCH_FOLDERS; number++) {
        char path[WI_WATCH_PATH];
        int folder;
        weir_status status = wi_watch_folder_open(number, false, path, &folder);
        if (status == WEIR_OK) {
            find_look_into(&s, folder);
        } else if (status != WEIR_ERR_NOT_FOUND) {
            free(out->problem);
            out->problem = text_copy(weir_detail());
        }
    }
    if (out->count > 0)
        qsort(out->list, out->count, sizeof *out->list, by_pid);
}

void watched_find(uint64_t pid, const char *request, watched_list *out)
{
    find_all((search){.pid = pid, .request = request, .milliseconds = MILLISECONDS}, out);
}

void watched_command(uint64_t pid, const char *request, watched_list *out)
{
    find_all((search){.pid = pid, .request = request, .milliseconds = COMMAND_MILLISECONDS}, out);
}

void watched_clear(watched_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->list[i].command);
        json_decref(list->list[i].answer);
    }
    free(list->list);
    free(list->problem);
    *list = (watched_list){0};
}

void watched_add_server(watched_list *list, const char *url, json_t *state)
{
    list->list = text_grow(list->list, list->count + 1, sizeof *list->list);
    memmove(&list->list[1], &list->list[0], list->count * sizeof *list->list);
    json_object_set(state, "runtimes", json_object_get(state, "devices"));
    json_object_set_new(state, "server", text_json(url));
    list->list[0] = (watched){.command = text_print("weir serve at %s", url), .answer = state};
    list->count++;
}
