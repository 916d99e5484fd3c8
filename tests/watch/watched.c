/* A process to be watched: does what it is told on standard input, a line for each, and answers each by a line. */
#include <weir/cores.h>
#include <weir/outside.h>
#include <weir/weir.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1024 };

static weir_runtime *runtimes[MOST];
static weir_client *clients[MOST];
static void *blocks[MOST];
static weir_client *owners[MOST];
static int runtime_count, client_count, block_count;

static void say(weir_status status)
{
    printf("%s %s\n", weir_name_of(WEIR_NAMES_STATUS, status), status == WEIR_OK ? "" : weir_detail());
}

static void make_runtime(const char *device, bool own)
{
    weir_runtime **place = &runtimes[runtime_count];
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = own ? 64u << 20 : 0;
    weir_status status = own ? weir_runtime_create(device, &options, place) : weir_runtime_get(device, NULL, place);
    runtime_count += status == WEIR_OK;
    say(status);
}

static void make_client(int runtime, const char *name, unsigned long long maximum)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = name;
    options.maximum = maximum;
    weir_status status = weir_client_create(runtimes[runtime], &options, &clients[client_count]);
    client_count += status == WEIR_OK;
    say(status);
}

static void allocate(int client, unsigned long long bytes, int memory_class)
{
    weir_status status =
        weir_alloc(clients[client], bytes, WEIR_STREAM_HOST, (weir_class)memory_class, &blocks[block_count]);
    owners[block_count] = clients[client];
    block_count += status == WEIR_OK;
    say(status);
}

static void print_classes(const char *key, const uint64_t *values)
{
    printf(", \"%s\": {", key);
    for (int c = 0; c < WEIR_CLASS_COUNT; c++)
        printf("%s\"%s\": %llu", c ? ", " : "", weir_name_of(WEIR_NAMES_CLASS, c), (unsigned long long)values[c]);
    putchar('}');
}

#define MEMBER(structure, name)                                                                                        \
    printf("%s\"" #name "\": %llu", between, (unsigned long long)(structure).name), between = ", "

static void print_stats(const weir_stats *s)
{
    const char *between = "";
    MEMBER(*s, budget);
    MEMBER(*s, live);
    MEMBER(*s, pending);
    MEMBER(*s, cached);
    MEMBER(*s, spare);
    MEMBER(*s, promised);
    MEMBER(*s, held);
    MEMBER(*s, peak);
    MEMBER(*s, peak_held);
    MEMBER(*s, guaranteed);
    MEMBER(*s, allocations);
    MEMBER(*s, frees);
    MEMBER(*s, refusals);
    MEMBER(*s, driver_calls);
    MEMBER(*s, failed_frees);
    MEMBER(*s, created);
    MEMBER(*s, moved);
    MEMBER(*s, batches);
    MEMBER(*s, thread_cached);
    MEMBER(*s, hits);
    MEMBER(*s, misses);
    MEMBER(*s, emptied);
    MEMBER(*s, lent_clients);
    MEMBER(*s, lent_streams);
    MEMBER(*s, lost_tags);
    MEMBER(*s, away);
    printf(", \"ladder\": {");
    for (int r = 0; r < WEIR_RUNG_COUNT; r++)
        printf("%s\"%s\": %llu", r ? ", " : "", weir_name_of(WEIR_NAMES_RUNG, r), (unsigned long long)s->ladder[r]);
    printf("}, \"client_count\": %u", s->clients);
}

static void print_client(const weir_client_stats *s)
{
    const char *between = ", ";
    printf("{\"name\": \"%s\", \"outside_method\": \"%s\", \"residency\": \"%s\"", s->name, s->outside_method,
           weir_name_of(WEIR_NAMES_RESIDENCY, (int)s->residency));
    MEMBER(*s, predicted);
    MEMBER(*s, guaranteed);
    MEMBER(*s, maximum);
    MEMBER(*s, live);
    MEMBER(*s, pending);
    MEMBER(*s, promised);
    MEMBER(*s, thread_cached);
    MEMBER(*s, peak);
    MEMBER(*s, blocks);
    MEMBER(*s, allocations);
    MEMBER(*s, frees);
    MEMBER(*s, refusals);
    MEMBER(*s, hits);
    MEMBER(*s, misses);
    MEMBER(*s, outside);
    MEMBER(*s, away);
    print_classes("live_class", s->live_class);
    print_classes("peak_class", s->peak_class);
    putchar('}');
}

/* The same as the socket tells, by the public call. */
static void snapshot(int runtime)
{
    static weir_client_stats all[MOST];
    weir_stats stats = WEIR_INIT(weir_stats);
    size_t count = 0;
    all[0].struct_size = sizeof all[0];
    if (weir_snapshot(runtimes[runtime], &stats, all, MOST, &count) != WEIR_OK)
        abort();
    putchar('{');
    print_stats(&stats);
    printf(", \"clients\": [");
    for (size_t i = 0; i < count && i < MOST; i++) {
        printf("%s", i ? ", " : "");
        print_client(&all[i]);
    }
    puts("]}");
}

static void layout(int runtime)
{
    weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
    if (weir_layout_walk(runtimes[runtime], NULL, NULL, &totals) != WEIR_OK)
        abort();
    const char *between = "{";
    MEMBER(totals, held);
    MEMBER(totals, in_hand);
    MEMBER(totals, segments);
    MEMBER(totals, spans);
    printf(", \"bytes\": {");
    for (int s = 0; s < WEIR_SPAN_COUNT; s++)
        printf("%s\"%s\": %llu", s ? ", " : "", weir_name_of(WEIR_NAMES_SPAN, s), (unsigned long long)totals.bytes[s]);
    puts("}}");
}

/* A line that leases so many cores, and keeps them; 0: none. */
static void lease(const char *name, uint32_t count)
{
    weir_cores *line;
    uint32_t got;
    weir_status status = weir_cores_open(name, count ? count : 1, count, &line);
    if (status == WEIR_OK && count > 0)
        status = weir_cores_take(line, NULL, NULL, &got);
    say(status);
}

static int entries(const char *folder)
{
    DIR *list = opendir(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(list);
    return count;
}

/* Open files of a kind, and how many: by what their links say. */
static int files(const char *kind)
{
    char path[300], link[256];
    DIR *list = opendir("/proc/self/fd");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, link, sizeof link - 1);
        count += length > 0 && strncmp(link, kind, strlen(kind)) == 0;
    }
    closedir(list);
    return count;
}

static bool is_child; /* of fork_child */

/* LeakSanitizer's check at the exit of a forked child may wait for a lock that a thread of the parent had at the fork. */
int __lsan_is_turned_off(void); /* NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
int __lsan_is_turned_off(void)  /* NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
{
    return is_child;
}

/* A child that lives until it is killed, and says how many sockets it has; with `exits` it ends at once, by exit. */
static void fork_child(bool exits)
{
    int ends[2];
    char sockets = 0;
    if (pipe(ends) != 0)
        abort();
    pid_t child = fork();
    if (child == 0) {
        is_child = true;
        if (exits)
            exit(0);
        sockets = (char)files("socket:");
        if (write(ends[1], &sockets, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    if (exits)
        waitpid(child, NULL, 0);
    else if (read(ends[0], &sockets, 1) != 1)
        abort();
    close(ends[0]);
    close(ends[1]);
    printf("%d %d\n", (int)child, sockets);
}

static void limit_files(rlim_t most)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = most == 0 ? limit.rlim_max : most;
    puts(setrlimit(RLIMIT_NOFILE, &limit) == 0 ? "done" : "failed");
}

/* What a program does that becomes a daemon: closes what it did not open, and uses the numbers for files of its own. */
static void close_all(void)
{
    for (int file = 3; file < 64; file++)
        close(file);
    for (int i = 0; i < 32; i++)
        if (open("/dev/null", O_RDWR) < 0)
            abort();
    puts("done");
}

static void become_cat(void)
{
    puts("done");
    fflush(stdout);
    execlp("cat", "cat", (char *)NULL);
}

static void on_signal(int number)
{
    (void)number;
}

/* Which signals the threads block, beyond the first one: those that a process gets are for the program alone. */
static int threads_that_take(int number)
{
    char path[300], line[256];
    DIR *list = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        unsigned long long blocked = 0;
        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
                count += !(blocked >> (number - 1) & 1);
        if (file)
            fclose(file);
    }
    closedir(list);
    return count;
}

static bool obey_files(const char *verb, unsigned long long number)
{
    if (strcmp(verb, "threads") == 0)
        printf("%d\n", entries("/proc/self/task"));
    else if (strcmp(verb, "takers") == 0)
        printf("%d\n", threads_that_take((int)number));
    else if (strcmp(verb, "sockets") == 0)
        printf("%d\n", files("socket:"));
    else if (strcmp(verb, "nulls") == 0)
        printf("%d\n", files("/dev/null"));
    else if (strcmp(verb, "fork") == 0)
        fork_child(number == 1);
    else if (strcmp(verb, "files") == 0)
        limit_files(number);
    else if (strcmp(verb, "close") == 0)
        close_all();
    else
        return false;
    return true;
}

/* Offered to others, and taken back. */
static bool obey_offers(const char *verb, int client)
{
    bool idle = strcmp(verb, "idle") == 0;
    if (idle || strcmp(verb, "busy") == 0)
        say(idle ? weir_client_idle(clients[client], NULL) : weir_client_busy(clients[client], WEIR_STREAM_HOST));
    return idle || strcmp(verb, "busy") == 0;
}

static bool obey_residency(const char *verb, int client)
{
    bool suspends = strcmp(verb, "suspend") == 0;
    if (suspends || strcmp(verb, "resume") == 0)
        say(suspends ? weir_client_suspend(clients[client], NULL, NULL)
                     : weir_client_resume(clients[client], WEIR_STREAM_HOST));
    return suspends || strcmp(verb, "resume") == 0;
}

static void obey(const char *line)
{
    char verb[32] = "", word[64] = "";
    unsigned long long number = 0, more = 0;
    int named = sscanf(line, "%31s %63s %llu %llu", verb, word, &number, &more);
    int first = atoi(word);
    if (strcmp(verb, "get") == 0 || strcmp(verb, "own") == 0)
        make_runtime(word, verb[0] == 'o');
    else if (strcmp(verb, "drop") == 0)
        say(weir_runtime_destroy(runtimes[first]));
    else if (strcmp(verb, "client") == 0)
        make_client(named > 3 ? (int)more : 0, word, number);
    else if (strcmp(verb, "alloc") == 0)
        allocate(first, number, (int)more);
    else if (strcmp(verb, "free") == 0)
        say(weir_free(owners[first], blocks[first], WEIR_STREAM_HOST));
    else if (strcmp(verb, "outside") == 0)
        say(weir_client_note_outside(clients[first], number, "as it was told"));
    else if (strcmp(verb, "option") == 0)
        say(weir_option_set("watch", word));
    else if (strcmp(verb, "cores") == 0)
        lease(word, (uint32_t)number);
    else if (strcmp(verb, "snapshot") == 0)
        snapshot(first);
    else if (strcmp(verb, "layout") == 0)
        layout(first);
    else if (strcmp(verb, "exec") == 0)
        become_cat();
    else if (strcmp(verb, "exit") == 0)
        exit(0);
    else if (!obey_residency(verb, first) && !obey_offers(verb, first) && !obey_files(verb, (unsigned long long)first))
        abort();
    fflush(stdout);
}

/* With a number as its argument it runs as that user. */
int main(int argc, char **argv)
{
    char line[256];
    signal(SIGUSR1, on_signal);
    if (argc > 1 && atoi(argv[1]) > 0 && setuid((uid_t)atoi(argv[1])) != 0)
        return 2;
    while (fgets(line, sizeof line, stdin))
        obey(line);
    return 0;
}
