/* ahead.c: each piece of a file that is not cached is asked for once, within the memory that there is, and nothing is left of it
 * when it ends. */
#include "core/core.h"
#include "engines/text/text.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { PIECE = 4 << 20, MOST_PIECES = 64, FILES = 3 };

/* The system, which the linker leads through here ------------------------------------------------------------------ */

static struct answers {
    bool cached, unknown, no_threads;
    uint64_t available; /* bytes, as /proc/meminfo says; 0: it says nothing */
} answers;

static atomic_int asked[MOST_PIECES * FILES], strange, askers;
static atomic_size_t threads_made;
static atomic_bool held;    /* who asks for a piece waits */
static ino_t inodes[FILES]; /* of the files, by their first letter */

int __wrap_posix_fadvise(int file, off_t offset, off_t bytes, int advice);
ssize_t __wrap_preadv2(int file, const struct iovec *parts, int count, off_t offset, int flags);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__real_fopen(const char *path, const char *mode);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user);

int __wrap_posix_fadvise(int file, off_t offset, off_t bytes, int advice)
{
    struct stat about;
    size_t which = 0;
    atomic_fetch_add(&askers, 1);
    if (fstat(file, &about) != 0 || advice != POSIX_FADV_WILLNEED || bytes != PIECE || offset % PIECE != 0 ||
        offset >= about.st_size)
        atomic_fetch_add(&strange, 1);
    while (which + 1 < FILES && inodes[which] != about.st_ino)
        which++;
    atomic_fetch_add(&asked[which * MOST_PIECES + (size_t)(offset / PIECE)], 1);
    while (atomic_load(&held))
        usleep(100);
    return 0;
}

ssize_t __wrap_preadv2(int file, const struct iovec *parts, int count, off_t offset, int flags)
{
    (void)file, (void)parts, (void)offset;
    if (flags != RWF_NOWAIT || count != 1)
        atomic_fetch_add(&strange, 1);
    errno = answers.unknown ? EOPNOTSUPP : EAGAIN;
    return answers.cached ? 1 : -1;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
    static char text[128];
    if (strcmp(path, "/proc/meminfo") != 0)
        return __real_fopen(path, mode);
    if (answers.available == 0)
        return NULL;
    snprintf(text, sizeof text, "MemTotal: 99999999 kB\nMemAvailable: %llu kB\nCached: 5 kB\n",
             (unsigned long long)answers.available / 1024);
    return fmemopen(text, strlen(text), "r");
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user)
{
    atomic_fetch_add(&threads_made, 1);
    return answers.no_threads ? EAGAIN : __real_pthread_create(thread, how, fn, user);
}

/* Files ------------------------------------------------------------------------------------------------------------ */

static char folder[] = "weir-ahead-XXXXXX";
static const uint64_t lengths[FILES] = {5 * PIECE + 1, 3 * PIECE, PIECE}; /* the last one is too short to be worth it */

static void name_of(size_t which, char *out, size_t capacity)
{
    snprintf(out, capacity, "%s/%c", folder, (int)('a' + which));
}

static int make_files(void **state)
{
    (void)state;
    char name[64];
    struct stat about;
    if (!mkdtemp(folder))
        return -1;
    for (size_t i = 0; i < FILES; i++) {
        name_of(i, name, sizeof name);
        int file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (file < 0 || ftruncate(file, (off_t)lengths[i]) != 0 || fstat(file, &about) != 0)
            return -1;
        inodes[i] = about.st_ino;
        close(file);
    }
    snprintf(name, sizeof name, "%s/inner", folder);
    return mkdir(name, 0700);
}

static int drop_files(void **state)
{
    (void)state;
    char name[64];
    for (size_t i = 0; i < FILES; i++) {
        name_of(i, name, sizeof name);
        unlink(name);
    }
    snprintf(name, sizeof name, "%s/inner", folder);
    rmdir(name);
    return rmdir(folder);
}

static int plain(void **state)
{
    (void)state;
    answers = (struct answers){.available = UINT64_C(1) << 40};
    memset(asked, 0, sizeof asked);
    strange = askers = 0;
    threads_made = 0;
    return 0;
}

static int open_files(void)
{
    int count = 0;
    for (int file = 3; file < 100; file++)
        count += fcntl(file, F_GETFD) >= 0;
    return count;
}

/* Begins, waits until so many pieces were asked for, and ends. */
static void read_ahead(const char *path, int pieces)
{
    wt_ahead ahead;
    int before = open_files();
    wt_ahead_begin(&ahead, path);
    for (int naps = 0; atomic_load(&askers) < pieces && naps < 5000; naps++)
        usleep(1000);
    wt_ahead_end(&ahead);
    assert_int_equal(open_files(), before);
    assert_int_equal(strange, 0);
    assert_int_equal(askers, pieces);
}

static void asked_once(size_t file, size_t pieces)
{
    for (size_t i = 0; i < MOST_PIECES; i++)
        assert_int_equal(asked[file * MOST_PIECES + i], i < pieces);
}

static void a_file_is_asked_for_once(void **state)
{
    (void)state;
    char name[64];
    for (int i = 0; i < 2; i++) {
        plain(NULL);
        answers.unknown = i;
        name_of(0, name, sizeof name);
        read_ahead(name, 6);
        asked_once(0, 6);
        assert_true(threads_made > 0 && threads_made <= WT_AHEAD_THREADS);
    }
}

static void a_folder_is_its_files(void **state)
{
    (void)state;
    read_ahead(folder, 6 + 3);
    asked_once(0, 6);
    asked_once(1, 3);
    asked_once(2, 0);
}

static void several_are_asked_for_once_each(void **state)
{
    (void)state;
    char name[64];
    wt_ahead ahead = {.count = 0};
    int before = open_files();
    for (size_t i = 0; i < FILES; i++) {
        name_of(i, name, sizeof name);
        wt_ahead_add(&ahead, name);
    }
    assert_int_equal(threads_made, 0);
    wt_ahead_run(&ahead);
    for (int naps = 0; atomic_load(&askers) < 6 + 3 && naps < 5000; naps++)
        usleep(1000);
    wt_ahead_end(&ahead);
    assert_int_equal(open_files(), before);
    asked_once(0, 6);
    asked_once(1, 3);
    asked_once(2, 0);
    ahead = (wt_ahead){.count = 0}; /* a load that fails before it runs */
    wt_ahead_add(&ahead, folder);
    wt_ahead_end(&ahead);
    assert_int_equal(open_files(), before);
}

static void nothing_is_asked_for_in_vain(void **state)
{
    (void)state;
    char name[64];
    answers.cached = true;
    read_ahead(folder, 0);
    answers.cached = false;
    name_of(2, name, sizeof name);
    read_ahead(name, 0);
    read_ahead("no/such/file", 0);
    read_ahead(NULL, 0);
    answers.available = 0;
    read_ahead(folder, 0);
    assert_int_equal(threads_made, 0);
}

static void half_of_the_memory_is_left(void **state)
{
    (void)state;
    char name[64];
    name_of(0, name, sizeof name);
    answers.available = 2 * 4 * PIECE + 2 * PIECE - 1024;
    read_ahead(name, 4);
    asked_once(0, 4);
}

static void without_threads_nothing_happens(void **state)
{
    (void)state;
    answers.no_threads = true;
    read_ahead(folder, 0);
    assert_int_equal(threads_made, 1);
}

/* Lets the threads go on when the end has begun, or seems not to. */
static void *release(void *user)
{
    wt_ahead *ahead = user;
    for (int naps = 0; atomic_load(&ahead->end) > 0 && naps < 5000; naps++)
        usleep(1000);
    atomic_store(&held, false);
    return NULL;
}

/* A load that fails at once does not wait for the disk to be read. */
static void it_ends_before_the_end(void **state)
{
    (void)state;
    wt_ahead ahead;
    pthread_t opener;
    atomic_store(&held, true);
    wt_ahead_begin(&ahead, folder);
    assert_int_equal(__real_pthread_create(&opener, NULL, release, &ahead), 0);
    wt_ahead_end(&ahead);
    pthread_join(opener, NULL);
    assert_true(askers <= WT_AHEAD_THREADS);
    assert_int_equal(strange, 0);
}

#define AHEAD(name) cmocka_unit_test_setup(name, plain)

int main(void)
{
    const struct CMUnitTest ahead[] = {
        AHEAD(a_file_is_asked_for_once),        AHEAD(a_folder_is_its_files),
        AHEAD(nothing_is_asked_for_in_vain),    AHEAD(half_of_the_memory_is_left),
        AHEAD(without_threads_nothing_happens), AHEAD(it_ends_before_the_end),
        AHEAD(several_are_asked_for_once_each),
    };
    return cmocka_run_group_tests(ahead, make_files, drop_files);
}
