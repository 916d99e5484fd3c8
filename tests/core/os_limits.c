/* Under small limits of the system's: addresses, files, threads, mappings. Whatever of it is short, the library refuses in
 * words, what it had taken is given back, and once the limit is gone all works in the same process.
 *
 *     test-core-os-limits          each case, in a process of its own
 *     test-core-os-limits CASE N   one of them, with the limit number N */
#include "core/core.h"

#include <weir/block_pool.h>
#include <weir/trace.h>

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifdef __SANITIZE_ADDRESS__
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif

enum { STREAMS = 3, SKIPPED = 77, BROKEN = 1, A_USER = 64123, MOST_MAPPINGS = 200000, ROUNDS = 6 };

/* What the process has --------------------------------------------------------------------------------------------- */

typedef struct process {
    long files, threads, mappings, pages; /* pages: of addresses */
} process;

static long entries_of(const char *path)
{
    long count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static process look(void)
{
    process p = {entries_of("/proc/self/fd"), entries_of("/proc/self/task"), 0, 0};
    FILE *maps = fopen("/proc/self/maps", "r"), *size = fopen("/proc/self/statm", "r");
    for (int c; maps && (c = getc(maps)) != EOF;)
        p.mappings += c == '\n';
    if (!size || fscanf(size, "%ld", &p.pages) != 1)
        p.pages = -1;
    if (maps)
        fclose(maps);
    if (size)
        fclose(size);
    return p;
}

/* A stream's thread has left when its number has: that is a moment after it was joined. */
static process settled(const process *before)
{
    process now = look();
    for (int i = 0; i < 1000 && now.threads > before->threads; i++) {
        usleep(1000);
        now = look();
    }
    return now;
}

/* What the library does -------------------------------------------------------------------------------------------- */

static int wrong; /* things that went otherwise than the contract has it */

static void complain(const char *what, weir_status status)
{
    fprintf(stderr, "%s: %s (%s)\n", what, weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    wrong++;
}

/* Whether it went well; a refusal has to be one of resources, with its reason. */
static bool went(weir_status status, const char *what)
{
    bool refused = status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_SYSTEM || status == WEIR_ERR_DRIVER;
    if (status != WEIR_OK && (!refused || !weir_detail()[0]))
        complain(what, status);
    return status == WEIR_OK;
}

static void must(weir_status status, const char *what)
{
    if (status != WEIR_OK)
        complain(what, status);
}

static int use_blocks(weir_client *client, weir_stream stream)
{
    void *pointer = NULL;
    weir_block pinned;
    weir_request request = {
        .struct_size = sizeof request, .bytes = 1 << 20, .stream = WEIR_STREAM_HOST, .kind = WEIR_KIND_PINNED};
    weir_block_pool_options options = {.struct_size = sizeof options, .bytes = 4096, .count = 100};
    weir_block_pool *pool;
    int done = 0;
    if (went(weir_alloc(client, 5 * MIB, stream, WEIR_CLASS_KV, &pointer), "an allocation")) {
        memset(pointer, 1, 5 * MIB);
        must(weir_free(client, pointer, stream), "its free");
        done++;
    }
    if (went(weir_alloc_with(client, &request, &pinned), "pinned memory")) {
        memset(pinned.pointer, 1, 1 << 20);
        must(weir_free_block(client, pinned, WEIR_STREAM_HOST), "its free");
        done++;
    }
    if (went(weir_block_pool_create(client, &options, &pool), "a block pool")) {
        must(weir_block_pool_destroy(pool), "its end");
        done++;
    }
    return done;
}

static int use_trace(weir_runtime *runtime)
{
    weir_trace *trace;
    weir_trace_options options = {.struct_size = sizeof options, .capacity = 1000};
    weir_sink sink = WEIR_INIT(weir_sink);
    if (!went(weir_trace_create(runtime, &options, &trace), "a trace"))
        return 0;
    bool opened = went(weir_sink_file("/dev/null", WEIR_SINK_BINARY, &sink), "a file of a trace");
    if (opened)
        must(weir_trace_add_sink(trace, &sink), "a sink of a trace");
    weir_trace_destroy(trace);
    return 1 + opened;
}

enum { ALL = 2 + STREAMS + 3 * STREAMS + 2 };

/* Takes some of everything, and gives it back; how many things there were. */
static int use_all(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * MIB, .resource = "cache"};
    weir_client_options named = {.struct_size = sizeof named, .name = "one"};
    weir_runtime *runtime;
    weir_client *client;
    weir_stream streams[STREAMS];
    bool have[STREAMS];
    int done = 1;
    if (!went(weir_runtime_create("host", &options, &runtime), "a runtime"))
        return 0;
    if (went(weir_client_create(runtime, &named, &client), "a client")) {
        for (int i = 0; i < STREAMS; i++)
            have[i] = went(weir_stream_acquire(runtime, &streams[i]), "a stream");
        for (int i = 0; i < STREAMS; i++)
            done += have[i] + use_blocks(client, have[i] ? streams[i] : WEIR_STREAM_HOST);
        done += 1 + use_trace(runtime);
        for (int i = 0; i < STREAMS; i++)
            if (have[i])
                must(weir_stream_release(streams[i]), "a stream's end");
        must(weir_client_destroy(client), "a client's end");
    }
    must(weir_runtime_destroy(runtime), "a runtime's end");
    return done;
}

/* Limits ----------------------------------------------------------------------------------------------------------- */

static bool limit_to(int resource, rlim_t most)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0)
        return false;
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    return setrlimit(resource, &limit) == 0;
}

static bool limit_addresses(int number, bool on)
{
    return limit_to(RLIMIT_AS, on ? (rlim_t)look().pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)1 << 20 << number)
                                  : RLIM_INFINITY);
}

static bool limit_files(int number, bool on)
{
    int next = dup(0); /* the lowest that is free */
    if (next < 0)
        return limit_to(RLIMIT_NOFILE, 1024);
    close(next);
    return limit_to(RLIMIT_NOFILE, on ? (rlim_t)(next + number) : 1024);
}

static bool limit_threads(int number, bool on)
{
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(A_USER) != 0 || setuid(A_USER) != 0))
        return false;                /* root's threads have no limit */
    (void)prctl(PR_SET_DUMPABLE, 1); /* else what the process has cannot be looked at any more */
    return limit_to(RLIMIT_NPROC, on ? (rlim_t)(1 + number) : RLIM_INFINITY);
}

/* Has so many mappings that a few are left: every other page of a range is another one. */
static bool limit_mappings(int number, bool on)
{
    static char *range;
    static size_t bytes;
    long most = 0, page = sysconf(_SC_PAGESIZE);
    if (!on)
        return munmap(range, bytes) == 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    if (!file || fscanf(file, "%ld", &most) != 1 || most > MOST_MAPPINGS) {
        if (file)
            fclose(file);
        return false;
    }
    fclose(file);
    bytes = (size_t)(most + 2) * (size_t)page;
    range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return false;
    long left = most - look().mappings - (1L << number);
    for (long i = 0; i + 1 < left; i += 2)
        if (mprotect(range + (i + 1) * page, (size_t)page, PROT_READ) != 0)
            return false;
    return true;
}

static const struct limits {
    const char *name;
    bool (*set)(int number, bool on);
    int from, to;    /* numbers */
    bool sanitizers; /* live with it */
} limits[] = {
    {"addresses", limit_addresses, 0, 20, false},
    {"files", limit_files, 0, 4, true},
    {"threads", limit_threads, 0, 3, false},
    {"mappings", limit_mappings, 0, 9, false},
};
enum { LIMITS = sizeof limits / sizeof *limits };

/* The child -------------------------------------------------------------------------------------------------------- */

/* Whether the process has more of something than before. A sanitizer maps memory of its own all the time, and finds leaks
 * by itself. */
static bool has_grown(const process *before, const process *after)
{
    bool more = after->mappings > before->mappings || after->pages > before->pages + 20000;
    return (more && !(UNDER_TSAN || UNDER_ASAN)) || after->files > before->files || after->threads > before->threads;
}

/* Uses all without a limit, under it, and without it again. An allocator's own mappings stay once; a leak of weir's grows
 * in every round. */
static int try_limit(const struct limits *it, int number)
{
    int under = 0, round = 0;
    process before, after;
    do {
        int all = use_all();
        before = look();
        if (!it->set(number, true))
            return SKIPPED;
        under = use_all();
        if (!it->set(number, false))
            return SKIPPED;
        after = settled(&before);
        if (all != ALL || use_all() != ALL) {
            fprintf(stderr, "%s %d: without a limit there were not all\n", it->name, number);
            wrong++;
        }
    } while (has_grown(&before, &after) && ++round < ROUNDS && !wrong);
    if (round == ROUNDS) {
        fprintf(stderr,
                "%s %d, %d times: files %ld to %ld, threads %ld to %ld, mappings %ld to %ld, pages %ld to %ld\n",
                it->name, number, ROUNDS, before.files, after.files, before.threads, after.threads, before.mappings,
                after.mappings, before.pages, after.pages);
        wrong++;
    }
    printf("%s %d: %d of %d\n", it->name, number, under, ALL);
    return wrong ? BROKEN : 0;
}

static int try_by_name(const char *name, int number)
{
    for (size_t i = 0; i < LIMITS; i++)
        if (strcmp(limits[i].name, name) == 0)
            return try_limit(&limits[i], number);
    return 2;
}

/* The parent ------------------------------------------------------------------------------------------------------- */

static int run_child(const char *name, int number)
{
    char text[16];
    int status;
    snprintf(text, sizeof text, "%d", number);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "test-core-os-limits", name, text, (char *)NULL);
        _exit(2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status))
        fail_msg("%s %d ended by signal %d", name, number, WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void under(const char *name)
{
    size_t at = 0;
    while (strcmp(limits[at].name, name) != 0)
        at++;
    if ((UNDER_TSAN || UNDER_ASAN) && !limits[at].sanitizers)
        skip();
    for (int number = limits[at].from; number <= limits[at].to; number++) {
        int status = run_child(name, number);
        if (status == SKIPPED)
            skip();
        assert_int_equal(status, 0);
    }
}

static void few_addresses(void **state)
{
    (void)state;
    under("addresses");
}

static void few_files(void **state)
{
    (void)state;
    under("files");
}

static void few_threads(void **state)
{
    (void)state;
    under("threads");
}

static void few_mappings(void **state)
{
    (void)state;
    under("mappings");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_addresses),
        cmocka_unit_test(few_files),
        cmocka_unit_test(few_threads),
        cmocka_unit_test(few_mappings),
    };
    return argc == 3 ? try_by_name(argv[1], atoi(argv[2])) : cmocka_run_group_tests(tests, NULL, NULL);
}
