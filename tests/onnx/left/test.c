/* The tool, preloaded: it finds what was left on purpose, by name and to the byte, and nothing else. */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_places.h"

enum { ROUNDS = 20, THREADS = 3 };

static void (*mark)(void);
static double (*report)(unsigned long rounds);
static char told[1 << 16];

static int find_tool(void **state)
{
    (void)state;
    *(void **)&mark = dlsym(RTLD_DEFAULT, "left_mark");
    *(void **)&report = dlsym(RTLD_DEFAULT, "left_report");
    return mark && report ? 0 : -1;
}

/* Bytes of each round; the words of the report are in `told`. */
static double ended(void)
{
    const char *path = getenv("LEFT_TO");
    assert_non_null(path);
    double bytes = report(ROUNDS);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    told[fread(told, 1, sizeof told - 1, file)] = 0;
    fclose(file);
    return bytes;
}

/* Whether a row tells these bytes and blocks of each round, of this kind and by these libraries. */
static bool is_told(double bytes, double blocks, const char *kind, const char *libraries)
{
    char row[256];
    snprintf(row, sizeof row, "  %11.1f %8.2f  %-6s  %s\n", bytes, blocks, kind, libraries);
    return strstr(told, row) != NULL;
}

static void *use(const char *library, const char *name, size_t size)
{
    void *(*call)(size_t) = NULL, *handle = dlopen(library, RTLD_NOW);
    assert_non_null(handle);
    *(void **)&call = dlsym(handle, name);
    assert_non_null(call);
    void *p = call(size);
    assert_int_equal(dlclose(handle), 0);
    return p;
}

/* Its libraries are gone when it is told. */
static void what_is_left_is_told_by_library(void **state)
{
    (void)state;
    void *kept[ROUNDS];
    const char *planting = built_path("tests/libonnx-left-planting.so");
    use(planting, "planting", 24); /* what the loader keeps for libraries */
    mark();
    for (int i = 0; i < ROUNDS; i++)
        kept[i] = use(planting, "planting", 1000);
    double bytes = ended();
    assert_true(bytes >= 1000 && bytes < 1200); /* the loader's own are among them */
    assert_true(is_told(1000, 1, "malloc", "libonnx-left-planted.so < libonnx-left-planting.so"));
    assert_null(dlopen(planting, RTLD_NOW | RTLD_NOLOAD));
    for (int i = 0; i < ROUNDS; i++)
        free(kept[i]);
}

static void what_is_freed_is_not_told(void **state)
{
    (void)state;
    void *old = malloc(3000), *next, *volatile p;
    char *volatile text;
    mark();
    for (int i = 1; i <= ROUNDS; i++) {
        free(malloc(100));
        next = realloc(old, 3000 + (size_t)i % 2); /* the last time to what it was */
        assert_non_null(next);
        old = next;
        assert_int_equal(posix_memalign((void **)&p, 64, 64), 0);
        free(p);
        free(p = aligned_alloc(4096, 4096));
        free(p = memalign(64, 100));
        free(p = valloc(10));
        free(p = calloc(3, 7));
        free(p = reallocarray(NULL, 3, 7));
        free(text = strdup("text"));
    }
    assert_true(ended() == 0);
    free(old);
}

/* Each with its own size: that of calloc is the product, that of realloc the new one. */
static void all_ways_to_allocate_count(void **state)
{
    (void)state;
    void *p[8] = {NULL};
    mark();
    p[0] = malloc(1 * ROUNDS);
    p[1] = calloc(10, ROUNDS);
    p[2] = realloc(malloc(17), 100 * ROUNDS);
    p[3] = reallocarray(NULL, 1000, ROUNDS);
    p[4] = aligned_alloc(64, 10000 * ROUNDS);
    assert_int_equal(posix_memalign(&p[5], 64, 100000 * ROUNDS), 0);
    p[6] = memalign(64, 1000000 * ROUNDS);
    p[7] = valloc(10000000 * ROUNDS);
    assert_true(ended() == 11111111);
    assert_true(is_told(11111111, 8.0 / ROUNDS, "malloc", "test-onnx-left < libcmocka.so.0"));
    for (int i = 0; i < 8; i++)
        free(p[i]);
}

static void calls_that_are_refused_leave_all_as_it_was(void **state)
{
    (void)state;
    void *(*volatile again)(void *, size_t) = realloc;
    void *(*volatile again_array)(void *, size_t, size_t) = reallocarray;
    void *(*volatile zeroed)(size_t, size_t) = calloc;
    void *p = malloc(500), *out = NULL;
    bool refused = true;
    mark();
    for (int i = 0; i < 2; i++) {
        void *more = i ? again_array(p, SIZE_MAX / 4, 8) : again(p, SIZE_MAX / 2);
        refused = refused && !more;
        p = more ? more : p;
    }
    void *much = zeroed(SIZE_MAX / 4, 8);
    refused = refused && !much;
    free(much);
    assert_true(refused);
    assert_int_not_equal(posix_memalign(&out, 24, 24), 0);
    assert_true(ended() == 0);
    free(p);
}

/* Written to, they are resident; those that go in part leave the rest. */
static void mappings_are_told_too(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    mark();
    for (int i = 0; i < ROUNDS; i++) {
        char *p = mmap(NULL, 5 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(p != MAP_FAILED);
        memset(p, 1, 5 * page);
        assert_int_equal(munmap(p, page), 0);
        p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(p != MAP_FAILED);
        assert_ptr_equal(mmap(p, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
        assert_int_equal(munmap(p, page), 0);
    }
    assert_true(ended() == 0);
    assert_true(is_told(4.0 * (double)page, 1, "mmap", "test-onnx-left < libcmocka.so.0"));
    const char *words = strstr(told, "(anonymous ");
    assert_non_null(words);
    double anonymous = strtod(words + strlen("(anonymous "), NULL), kib = 4.0 * (double)page / 1024;
    assert_true(anonymous >= kib && anonymous < kib + 8);
}

/* ---- threads, and children -------------------------------------------------------------------------------------------------- */

static atomic_bool stop;

static void *churn(void *user)
{
    (void)user;
    while (!atomic_load(&stop)) {
        void *p[8];
        for (size_t i = 0; i < 8; i++)
            p[i] = malloc(16 + i * 40);
        for (size_t i = 0; i < 8; i++)
            free(p[i]);
    }
    return NULL;
}

static void *leave_some(void *user)
{
    void *volatile p = malloc(*(const size_t *)user); /* no jump: this program stays on the stack */
    return p;
}

static void threads_leave_too(void **state)
{
    (void)state;
    pthread_t threads[THREADS], one;
    void *p[ROUNDS];
    size_t size = 700;
    atomic_store(&stop, false);
    mark();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(pthread_create(&one, NULL, leave_some, &size), 0);
        assert_int_equal(pthread_join(one, &p[i]), 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    ended();
    assert_true(is_told(700, 1, "malloc", "test-onnx-left < -"));
    for (int i = 0; i < ROUNDS; i++)
        free(p[i]);
}

/* Whatever another thread was at, the child can allocate. */
static void children_are_not_held_up(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    atomic_store(&stop, false);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            void *volatile p = malloc(100);
            free(p);
            _exit(p ? 0 : 1);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_is_told_by_library), cmocka_unit_test(what_is_freed_is_not_told),
        cmocka_unit_test(all_ways_to_allocate_count),      cmocka_unit_test(calls_that_are_refused_leave_all_as_it_was),
        cmocka_unit_test(mappings_are_told_too),           cmocka_unit_test(threads_leave_too),
        cmocka_unit_test(children_are_not_held_up),
    };
    return cmocka_run_group_tests(tests, find_tool, NULL);
}
