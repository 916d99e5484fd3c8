/* libweir opened by a program that was not linked to it, however little thread-local storage is left, and closed by one whose
 * threads go on. */
#include "test_places.h"

#include <weir/weir.h>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "copy_file.h"

enum { MOST_TLS = 256, PAIRS = 3000 };

static void *library;

#define CALL(name) ((__typeof__(name) *)(uintptr_t)dlsym(library, #name))

/* Opens copies of the library that wants so many bytes until the C library has no more of them; answers how many. */
static unsigned eat(const char *folder, int bytes)
{
    enum { MOST = 1024 };
    const char *from = built_path("tests/eaters/eater-%d.so", bytes);
    char to[4096];
    unsigned eaten = 0;
    for (bool there = true; there; eaten += there) {
        assert_true(eaten < MOST);
        snprintf(to, sizeof to, "%s/%d-%u.so", folder, bytes, eaten);
        copy_file(from, to);
        there = dlopen(to, RTLD_NOW) != NULL;
        (void)unlink(to);
    }
    return eaten;
}

static void eat_static_tls(void)
{
    char folder[] = "/tmp/weir-eaters-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_true(eat(folder, 256) > 0);
    (void)eat(folder, 32);
    (void)eat(folder, 8);
    (void)rmdir(folder);
}

static void opens_where_no_static_storage_is_left(void **state)
{
    (void)state;
    eat_static_tls();
    library = dlopen(built_path(WEIR_LIBRARY), RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fail_msg("%s", dlerror());
}

static int look_at_segments(struct dl_phdr_info *info, size_t size, void *user)
{
    size_t *bytes = user;
    (void)size;
    for (int i = 0; strstr(info->dlpi_name, "libweir.so") && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            *bytes = info->dlpi_phdr[i].p_memsz;
    return 0;
}

static void asks_for_little_thread_local_storage(void **state)
{
    size_t bytes = SIZE_MAX;
    (void)state;
    dl_iterate_phdr(look_at_segments, &bytes);
    assert_true(bytes <= MOST_TLS);
}

static void work(void)
{
    weir_runtime *rt;
    weir_client *client;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64u << 20};
    weir_client_options named = {.struct_size = sizeof named, .name = "opened"};
    assert_int_equal(CALL(weir_runtime_create)("host", &options, &rt), WEIR_OK);
    assert_int_equal(CALL(weir_client_create)(rt, &named, &client), WEIR_OK);
    for (int i = 0; i < PAIRS; i++) {
        void *block;
        assert_int_equal(CALL(weir_alloc)(client, 4096, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &block), WEIR_OK);
        assert_int_equal(CALL(weir_free)(client, block, WEIR_STREAM_HOST), WEIR_OK);
    }
    assert_int_equal(CALL(weir_free)(client, &client, WEIR_STREAM_HOST), WEIR_ERR_FOREIGN);
    assert_non_null(strstr(CALL(weir_detail)(), "no memory of this runtime's"));
    assert_int_equal(CALL(weir_client_destroy)(client), WEIR_OK);
    assert_int_equal(CALL(weir_runtime_destroy)(rt), WEIR_OK);
}

static void *work_and_wait(void *barrier)
{
    work();
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier); /* the library is closed between the two */
    return NULL;
}

static void serves_a_program_that_opened_it(void **state)
{
    (void)state;
    work();
}

static void threads_outlive_its_closing(void **state)
{
    enum { THREADS = 4 };
    pthread_barrier_t barrier;
    pthread_t threads[THREADS];
    (void)state;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work_and_wait, &barrier);
    pthread_barrier_wait(&barrier);
    assert_int_equal(dlclose(library), 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

int main(void)
{
    /* Runtimes of several threads are there together. By default each would reserve eight times the host's memory, and
     * ThreadSanitizer, whose programs have 1.5 TiB of addresses, ends a thread whose stack lies beyond without a word. */
    setenv("WEIR_RANGE", "1GiB", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_where_no_static_storage_is_left),
        cmocka_unit_test(asks_for_little_thread_local_storage),
        cmocka_unit_test(serves_a_program_that_opened_it),
        cmocka_unit_test(threads_outlive_its_closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
