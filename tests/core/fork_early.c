/* A fork before the first runtime, while another thread has one of the locks that are used before that: the child finds it
 * free. A fork after it: a refusal in the child needs nothing of the allocator. */
#include "core.h"
#include "base/texts.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>

static sem_t held, go_on, forked;
static _Thread_local bool holds, forks, child;

/* The linker puts these in the place of the library's locks. The holder stops with its lock until the fork waits for that, or
 * is over; a child that finds a lock taken would wait for ever. */
int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (!forks)
        return __real_pthread_mutex_lock(lock);
    if (pthread_mutex_trylock(lock) == 0)
        return 0;
    if (child)
        _exit(3);
    sem_post(&go_on);
    return __real_pthread_mutex_lock(lock);
}

int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
    if (holds) {
        holds = false;
        sem_post(&held);
        sem_wait(&go_on);
    }
    return __real_pthread_mutex_unlock(lock);
}

/* An allocator of which another thread had the lock at the fork would not come back. */
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    if (child)
        _exit(4);
    return __real_calloc(count, bytes);
}

static bool option(void)
{
    weir_option wait = WEIR_INIT(weir_option);
    return weir_option_info("wait", 0, &wait) == WEIR_OK;
}

static bool text(void)
{
    static atomic_uint number;
    char tag[32];
    snprintf(tag, sizeof tag, "text %u", atomic_fetch_add(&number, 1));
    return strcmp(wi_intern(tag, 47), tag) == 0;
}

static void listen(weir_log_level level, const char *line, void *user)
{
    (void)level, (void)line, (void)user;
}

static bool say(void)
{
    return weir_log_set(listen, NULL, WEIR_LOG_OFF) == WEIR_OK;
}

static void *hold(void *user)
{
    bool (*call)(void) = *(bool (**)(void))user;
    holds = true;
    bool worked = call();
    sem_wait(&forked); /* ThreadSanitizer calls a thread that a child finds ended a leak */
    return worked ? user : NULL;
}

static void fork_while_held(bool (*call)(void))
{
    pthread_t member;
    void *worked;
    int status;
    assert_int_equal(pthread_create(&member, NULL, hold, &call), 0);
    sem_wait(&held);
    forks = true;
    pid_t pid = fork();
    if (pid == 0) {
        child = true;
        _exit(call() ? 0 : 2);
    }
    forks = false;
    sem_post(&go_on);
    sem_post(&forked);
    pthread_join(member, &worked);
    assert_non_null(worked);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    sem_destroy(&go_on);
    sem_init(&go_on, 0, 0);
    assert_true(call()); /* the parent goes on */
}

static void options(void **state)
{
    (void)state;
    fork_while_held(option);
}

static void texts(void **state)
{
    (void)state;
    fork_while_held(text);
}

static void the_log(void **state)
{
    (void)state;
    fork_while_held(say);
}

/* Forks in a thread of which no call has failed yet. */
static void *fork_and_be_refused(void *unused)
{
    (void)unused;
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        weir_runtime *runtime;
        child = true;
        bool refused = weir_runtime_get("host", NULL, &runtime) == WEIR_ERR_FORKED && strstr(weir_detail(), "forked");
        bool told = weir_fail(WEIR_ERR_BUSY, "x") == WEIR_ERR_BUSY && strcmp(weir_detail(), "x") == 0;
        _exit(refused && told ? 0 : 2);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? (void *)(intptr_t)(1 + WEXITSTATUS(status)) : NULL;
}

static void a_refusal_without_memory(void **state)
{
    (void)state;
    pthread_t thread;
    void *answer;
    weir_runtime *runtime;
    ok(weir_runtime_get("host", NULL, &runtime));
    assert_int_equal(pthread_create(&thread, NULL, fork_and_be_refused, NULL), 0);
    pthread_join(thread, &answer);
    assert_int_equal((intptr_t)answer, 1 + 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(options), cmocka_unit_test(texts), cmocka_unit_test(the_log),
                                       cmocka_unit_test(a_refusal_without_memory)};
    sem_init(&held, 0, 0);
    sem_init(&go_on, 0, 0);
    sem_init(&forked, 0, 0);
    return cmocka_run_group_tests_name("fork-early", tests, NULL, NULL);
}
