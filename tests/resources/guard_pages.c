/* guard(unmapped): behind each block stands a page that is mapped nowhere. */
#include "resources/guard.h"
#include <weir/guard.h>

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

enum { AT_THE_BYTE = 42, ELSEWHERE = 43, NO_FAULT = 44 };

static char *volatile expected;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    _exit(info->si_addr == expected ? AT_THE_BYTE : ELSEWHERE);
}

int touch_and_fault(const char *bytes, const char *offset)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    weir_runtime *runtime = make_with("guard(unmapped, mapped)", 8 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    char *before = allocate(client, 700, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    char *pointer = allocate(client, strtoull(bytes, NULL, 10), WEIR_STREAM_HOST, WEIR_CLASS_KV);
    char *behind = allocate(client, 700, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    before[0] = behind[0] = 1;
    expected = pointer + strtoll(offset, NULL, 10);
    *(volatile char *)expected = 1;
    return NO_FAULT;
}

static int child(const char *bytes, const char *offset)
{
    char *arguments[] = {"guard", "fault", (char *)bytes, (char *)offset, NULL};
    pid_t pid;
    int status;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void a_write_behind_the_last_page_ends_the_program(void **state)
{
    (void)state;
    if (strcmp(test_device(), "host") != 0)
        skip();                            /* the addresses of others need not be the host's */
    static const char *const cases[][4] = {/* bytes, the last offset that is mapped, the first that is not */
                                           {"1", "255", "256"},
                                           {"256", "255", "256"},
                                           {"700", "767", "768"},
                                           {"65536", "65535", "65536"},
                                           {"100000", "100095", "100096"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(child(cases[i][0], cases[i][1]), NO_FAULT);
        assert_int_equal(child(cases[i][0], cases[i][2]), AT_THE_BYTE);
    }
}

/* A gap that a block would fill up to the next one is no place for it. */
void a_block_apart_keeps_its_distance_from_the_next(void **state)
{
    (void)state;
    if (strcmp(test_device(), "host") != 0)
        skip(); /* another granule */
    weir_runtime *runtime = make_with("guard(unmapped, mapped)", 8 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    char *blocks[6];
    for (int i = 0; i < 3; i++)
        blocks[i] = allocate(client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_int_equal(blocks[1] - blocks[0], 2 * GRANULE);
    assert_int_equal(blocks[2] - blocks[1], 2 * GRANULE);
    ok(weir_free(client, blocks[1], WEIR_STREAM_HOST));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    for (int i = 3; i < 5; i++) { /* two granules with the zone, where one was; whichever gap is looked at first */
        blocks[i] = allocate(client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_true(blocks[i] > blocks[2]);
    }
    blocks[5] = allocate(client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(blocks[5], blocks[1]);
    for (int i = 0; i < 6; i++)
        if (i != 1)
            ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Many more blocks than there is memory for at once, one after another and side by side; the bytes between a block and its
 * page are still checked. */
void blocks_apart_leave_holes_and_serve_again(void **state)
{
    (void)state;
    enum { BLOCKS = 16 };
    weir_runtime *runtime = make_with("guard(unmapped, quarantine=1MiB, mapped)", 64 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *blocks[BLOCKS];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = allocate(client, 1000 + (size_t)(i * 977 * round), WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_guard_check(runtime));
        snapshot s = take_snapshot(runtime);
        check_sums(&s);
        for (int i = 0; i < BLOCKS; i++)
            ok(weir_free(client, blocks[(i * 7) % BLOCKS], WEIR_STREAM_HOST));
    }
    char *p = allocate(client, 700, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    size_t count;
    ok(weir_fill(runtime, p + 767, 1, 1, WEIR_STREAM_HOST));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_guard_reports(runtime, NULL, 0, &count));
    assert_int_equal(count, 1);
    ok(weir_client_destroy(client));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}
