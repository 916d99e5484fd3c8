/* Gates of tests: a test that fails while one is shut fails, and does not hang. */
#include "core.h"

#include <fcntl.h>
#include <sys/wait.h>

static weir_stream stream;

static int set_up(void **state)
{
    *state = make_runtime(8 * MIB);
    return 0;
}

static int tear_down(void **state)
{
    ok(weir_stream_synchronize(stream));
    ok(weir_stream_release(stream));
    ok(weir_runtime_destroy(*state));
    return 0;
}

static void one_that_fails(void **state)
{
    gate shut = GATE;
    ok(weir_stream_acquire(*state, &stream));
    ok(weir_call(*state, pass_gate, &shut, stream));
    pthread_mutex_lock(&shut.lock);
    while (!shut.reached)
        pthread_cond_wait(&shut.changed, &shut.lock);
    pthread_mutex_unlock(&shut.lock);
    fail();
}

static void fail_in_silence(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(one_that_fails, set_up, tear_down)};
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    alarm(60);
    _exit(cmocka_run_group_tests(tests, NULL, NULL));
}

static void a_test_that_fails_leaves_nobody_at_its_gates(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        fail_in_silence();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status)); /* and no alarm came */
    assert_int_equal(WEXITSTATUS(status), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_test_that_fails_leaves_nobody_at_its_gates)};
    return cmocka_run_group_tests_name("gates", tests, NULL, NULL);
}
