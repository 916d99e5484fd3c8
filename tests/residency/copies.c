/* Where contents are meanwhile: files that cannot be written, that are damaged, and that a killed process leaves nothing
 * of; page-locked memory that is short. */
#include "core/faulty.h"
#include "residency/residency.h"

#include "runtime/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* System calls, which the linker leads through here ---------------------------------------------------------------- */

static long system_calls, killed_at = -1;
static bool no_tmpfile;       /* the file system has no nameless files */
static long writes_left = -1; /* so many more go through, then the disk is full; -1: all */
static int oddities;          /* so many writes are interrupted, or cut short */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, int mode);
ssize_t __real_pwrite(int file, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int file, const void *data, size_t bytes, off_t offset);
ssize_t __real_pread(int file, void *data, size_t bytes, off_t offset);
ssize_t __wrap_pread(int file, void *data, size_t bytes, off_t offset);

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);

static void step(void)
{
    if (system_calls++ == killed_at)
        kill(getpid(), SIGKILL);
}
int __wrap_open(const char *path, int flags, int mode)
{
    step();
    if (no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_open(path, flags, mode);
}
int __wrap_unlink(const char *path)
{
    step();
    return __real_unlink(path);
}
static bool odd(size_t *bytes)
{
    if (oddities > 0 && oddities-- % 2) {
        errno = EINTR;
        return true;
    }
    *bytes = oddities > 0 ? *bytes / 2 + 1 : *bytes;
    return false;
}
ssize_t __wrap_pwrite(int file, const void *data, size_t bytes, off_t offset)
{
    step();
    if (writes_left == 0) {
        errno = ENOSPC;
        return -1;
    }
    writes_left -= writes_left > 0;
    return odd(&bytes) ? -1 : __real_pwrite(file, data, bytes, offset);
}
ssize_t __wrap_pread(int file, void *data, size_t bytes, off_t offset)
{
    step();
    return odd(&bytes) ? -1 : __real_pread(file, data, bytes, offset);
}

/* Folders ----------------------------------------------------------------------------------------------------------- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weir-residency-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}
static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails if something lies there */
}

static unsigned entries(void)
{
    DIR *d = opendir(folder);
    unsigned count = 0;
    for (const struct dirent *e; (e = readdir(d));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return count;
}

/* The nth open file of this process that lies in the folder, without a name; -1: there is none. */
static int nameless_file(int which)
{
    char path[64], target[256];
    for (int file = 3; file < 200; file++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strncmp(target, folder, strlen(folder)) == 0 && which-- == 0)
            return __real_open(path, O_RDWR | O_CLOEXEC);
    }
    return -1;
}

/* Runs through a suspend and a resume; the process may be killed at any step. */
static int live_and_be_killed(const char *where, const char *calls, const char *steps)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 16 * GRANULE};
    weir_suspend_options o = {.struct_size = sizeof o, .folder = where};
    weir_runtime *runtime;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "model", 0, 0);
    void *block = allocate(client, 4 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(runtime, block, 4 * GRANULE, 1);
    fault.calls = system_calls = 0;
    fault.kill_at = atol(calls);
    killed_at = atol(steps);
    ok(weir_client_suspend(client, &o, NULL));
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    fault.kill_at = killed_at = -1;
    block_holds(runtime, block, 4 * GRANULE, 1);
    return 7;
}

/* False: it was not killed, but has come to its end. */
static bool was_killed(long call, long system_call)
{
    char calls[16], steps[16];
    snprintf(calls, sizeof calls, "%ld", call);
    snprintf(steps, sizeof steps, "%ld", system_call);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "files", folder, calls, steps, (char *)NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(entries(), 0);
    if (WIFSIGNALED(status))
        assert_int_equal(WTERMSIG(status), SIGKILL);
    else
        assert_int_equal(WEXITSTATUS(status), 7);
    return WIFSIGNALED(status);
}

static void a_killed_process_leaves_nothing(void **state)
{
    (void)state;
    long calls = 0, steps = 0;
    while (was_killed(calls, -1))
        calls++;
    while (was_killed(-1, steps))
        steps++;
    assert_true(calls > 10 && steps > 4);
}

/* Files that cannot be written ------------------------------------------------------------------------------------- */

static weir_status suspend_to(weir_client *client, const char *where)
{
    weir_suspend_options o = {.struct_size = sizeof o, .folder = where};
    return weir_client_suspend(client, &o, NULL);
}

/* A disk that is full after so many writes: nothing has changed, and another folder will do. */
static void a_full_disk(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime_here(64 * MIB);
    weir_client *client = open_client(runtime, "model", 0, 0);
    void *block = allocate(client, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(runtime, block, 20 * MIB, 1);
    snapshot before = take_snapshot(runtime);
    for (int writes = 0; writes < 3; writes++) {
        writes_left = writes;
        fails(WEIR_ERR_SYSTEM, suspend_to(client, folder));
        writes_left = -1;
        detail_names("No space left");
        unchanged(runtime, before);
        assert_int_equal(residency(client).state, WEIR_RESIDENT);
        assert_int_equal(residency(client).stored, 0);
        assert_int_equal(nameless_file(0), -1);
        block_holds(runtime, block, 20 * MIB, 1);
    }
    writes_left = 0;
    fails(WEIR_ERR_SYSTEM, suspend_to(client, folder));
    writes_left = -1;
    ok(suspend_to(client, "."));
    assert_int_equal(nameless_file(0), -1);
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    block_holds(runtime, block, 20 * MIB, 1);
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* The same by the system's own limit. */
static void a_limit_on_files(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime_here(64 * MIB);
    weir_client *client = open_client(runtime, "model", 0, 0);
    void *block = allocate(client, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    struct rlimit old, little;
    write_block(runtime, block, 20 * MIB, 1);
    snapshot before = take_snapshot(runtime);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    little = old;
    little.rlim_cur = MIB + 1000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    weir_status status = suspend_to(client, folder);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    fails(WEIR_ERR_SYSTEM, status);
    unchanged(runtime, before);
    ok(suspend_to(client, folder));
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    block_holds(runtime, block, 20 * MIB, 1);
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Writes and reads that are interrupted or come in parts, and a file system without nameless files. */
static void odd_files(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime_here(64 * MIB);
    weir_client *client = open_client(runtime, "model", 0, 0);
    void *block = allocate(client, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(runtime, block, 20 * MIB, 1);
    for (int i = 0; i < 2; i++) {
        no_tmpfile = i;
        oddities = 9;
        ok(suspend_to(client, folder));
        no_tmpfile = false;
        assert_int_equal(entries(), 0);
        oddities = 9;
        ok(weir_client_resume(client, WEIR_STREAM_HOST));
        oddities = 0;
        block_holds(runtime, block, 20 * MIB, 1);
        assert_int_equal(weir_client_forget_copies(client), 20 * MIB);
    }
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Damage ------------------------------------------------------------------------------------------------------------ */

static void damage_is_found(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime_here(64 * MIB);
    weir_client *client = open_client(runtime, "model", 0, 0), *other = open_client(runtime, "other", 0, 0);
    void *block = allocate(client, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(runtime, block, 20 * MIB, 1);
    ok(suspend_to(client, folder));
    assert_int_equal(nameless_file(1), -1);
    int file = nameless_file(0);
    assert_true(file >= 0);
    void *its = allocate(other, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(runtime, its, 20 * MIB, 2);
    ok(suspend_to(other, folder));
    struct stat about;
    assert_int_equal(fstat(file, &about), 0);
    const off_t places[] = {0, 11 * (off_t)MIB + 77, about.st_size - 1};
    for (int i = 0; i < 4; i++) {
        unsigned char byte, other_byte;
        snapshot before = take_snapshot(runtime);
        if (i < 3) {
            assert_int_equal(__real_pread(file, &byte, 1, places[i]), 1);
            other_byte = byte ^ 1;
            assert_int_equal(__real_pwrite(file, &other_byte, 1, places[i]), 1);
        } else {
            assert_int_equal(ftruncate(file, about.st_size - 4096), 0);
        }
        fails(WEIR_ERR_CORRUPT, weir_client_resume(client, WEIR_STREAM_HOST));
        detail_names("model");
        snapshot now = take_snapshot(runtime);
        check_sums(&now);
        assert_int_equal(now.device.away, before.device.away);
        assert_int_equal(now.device.live + now.device.promised, 0);
        assert_int_equal(residency(client).state, WEIR_SUSPENDED);
        ok(weir_client_resume(other, WEIR_STREAM_HOST));
        block_holds(runtime, its, 20 * MIB, 2);
        ok(suspend_to(other, folder));
        if (i == 3)
            break;
        assert_int_equal(__real_pwrite(file, &byte, 1, places[i]), 1);
        ok(weir_client_resume(client, WEIR_STREAM_HOST)); /* nothing was lost by the try */
        block_holds(runtime, block, 20 * MIB, 1);
        ok(suspend_to(client, folder));
    }
    close(file);
    ok(weir_free(client, block, WEIR_STREAM_HOST)); /* what is lost can be freed */
    ok(weir_free(other, its, WEIR_STREAM_HOST));
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    check_empty(runtime);
    ok(weir_client_destroy(client));
    ok(weir_client_destroy(other));
    ok(weir_runtime_destroy(runtime));
}

/* Copies of other blocks than before do not let the file grow for ever. */
static void a_file_has_what_is_needed(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime_here(64 * MIB);
    weir_client *client = open_client(runtime, "model", 0, 0);
    for (int i = 0; i < 6; i++) {
        const size_t bytes = (8 + (size_t)i % 3 * 2) * MIB + 300 * (size_t)i;
        void *block = allocate(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(runtime, block, bytes, (uint64_t)i);
        ok(suspend_to(client, folder));
        int file = nameless_file(0);
        struct stat about;
        assert_int_equal(fstat(file, &about), 0);
        assert_true((uint64_t)about.st_blocks * 512 <= residency(client).stored + 64 * 4096);
        assert_true(residency(client).stored <= 13 * MIB);
        close(file);
        ok(weir_client_resume(client, WEIR_STREAM_HOST));
        block_holds(runtime, block, bytes, (uint64_t)i);
        ok(weir_free(client, block, WEIR_STREAM_HOST));
        trim(runtime);
    }
    ok(weir_client_destroy(client));
    assert_int_equal(nameless_file(0), -1);
    ok(weir_runtime_destroy(runtime));
}

/* Page-locked memory ------------------------------------------------------------------------------------------------ */

typedef struct pinned {
    weir_runtime *host, *runtime;
    weir_client *client;
    void *block;
} pinned;

static pinned open_pinned(uint64_t host_budget)
{
    pinned p = {.host = make_runtime(host_budget)};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 32 * MIB, .host = p.host};
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &p.runtime));
    p.client = open_client(p.runtime, "model", 0, 0);
    p.block = allocate(p.client, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(p.runtime, p.block, 6 * MIB, 1);
    return p;
}

static void close_pinned(pinned *p)
{
    block_holds(p->runtime, p->block, 6 * MIB, 1);
    ok(weir_free(p->client, p->block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(p->client));
    assert_null(p->host->ledger.pressures.first); /* nobody asks it for its copies any more */
    check_empty(p->host);
    assert_int_equal(take_snapshot(p->host).device.held, 0);
    ok(weir_runtime_destroy(p->runtime));
    ok(weir_runtime_destroy(p->host));
    assert_true(faults_nothing_left());
}

/* The budget of the host's runtime refuses, with its numbers. */
static void memory_of_the_hosts_that_is_short(void **state)
{
    (void)state;
    pinned p = open_pinned(4 * MIB);
    snapshot before = take_snapshot(p.runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, suspend_to(p.client, NULL));
    weir_refusal refusal = last_refusal();
    assert_int_equal(refusal.cause, WEIR_CAUSE_BUDGET);
    assert_int_equal(refusal.limit, 4 * MIB);
    assert_string_equal(refusal.device, "host");
    assert_string_equal(refusal.client, "model");
    snapshot now = take_snapshot(p.runtime);
    assert_int_equal(now.device.live, before.device.live);
    assert_int_equal(now.device.held, before.device.held);
    assert_int_equal(residency(p.client).state, WEIR_RESIDENT);
    assert_int_equal(residency(p.client).stored, 0);
    assert_int_equal(take_snapshot(p.host).device.live, 0);
    block_holds(p.runtime, p.block, 6 * MIB, 1);
    ok(weir_runtime_set_budget(p.host, 16 * MIB));
    ok(suspend_to(p.client, NULL));
    ok(weir_client_resume(p.client, WEIR_STREAM_HOST));
    close_pinned(&p);
}

/* Contents go where the last suspend says, also if there are copies elsewhere. */
static void a_place_for_each_suspend(void **state)
{
    (void)state;
    pinned p = open_pinned(32 * MIB);
    for (int i = 0; i < 4; i++) {
        ok(suspend_to(p.client, i % 2 ? folder : NULL));
        (void)wi_free_aside_wait(p.client);
        uint64_t live = take_snapshot(p.host).device.live;
        assert_true(i % 2 ? live <= 8 * MIB : live >= 6 * MIB); /* a stage of 8 MiB */
        assert_int_equal(residency(p.client).stored, 6 * MIB);
        ok(weir_client_resume(p.client, WEIR_STREAM_HOST));
        block_holds(p.runtime, p.block, 6 * MIB, 1);
        if (i == 1)
            assert_int_equal(weir_client_forget_copies(p.client), 6 * MIB);
    }
    close_pinned(&p);
}

/* Copies of a client that is here again are given up for those of another one. */
static void copies_make_room_for_others(void **state)
{
    (void)state;
    pinned p = open_pinned(8 * MIB);
    weir_client *other = open_client(p.runtime, "other", 0, 0);
    void *its = allocate(other, 5 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(p.runtime, its, 5 * MIB, 2);
    ok(suspend_to(p.client, NULL));
    fails(WEIR_ERR_OUT_OF_MEMORY, suspend_to(other, NULL)); /* the copies are all that there is of it */
    ok(weir_client_resume(p.client, WEIR_STREAM_HOST));
    assert_int_equal(residency(p.client).stored, 6 * MIB);
    ok(suspend_to(other, NULL));
    assert_int_equal(residency(p.client).stored, 0);
    ok(weir_client_resume(other, WEIR_STREAM_HOST));
    block_holds(p.runtime, its, 5 * MIB, 2);
    ok(weir_free(other, its, WEIR_STREAM_HOST));
    ok(weir_client_destroy(other));
    close_pinned(&p);
}

#define IN_FOLDER(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)

int main(int count, char **words)
{
    if (count == 4)
        return live_and_be_killed(words[1], words[2], words[3]);
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_killed_process_leaves_nothing),
        IN_FOLDER(a_full_disk),
        IN_FOLDER(a_limit_on_files),
        IN_FOLDER(odd_files),
        IN_FOLDER(damage_is_found),
        IN_FOLDER(a_file_has_what_is_needed),
        cmocka_unit_test(memory_of_the_hosts_that_is_short),
        IN_FOLDER(a_place_for_each_suspend),
        cmocka_unit_test(copies_make_room_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
