/* ring.c: whatever order a file is read in, its bytes come, past the page cache in whole blocks; and where that does not work, nothing
 * hangs and nothing wrong comes. */
#include "core/core.h"
#include "engines/text/text.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define FILE_BYTES ((uint64_t)40 * WT_RING_PIECE + 12345)

enum { DISK_BLOCK = 4096, SMALL = 1000 };

static struct answers {
    bool cached, refuses_open, no_threads, odd;
    int fails_from; /* the number of the read from which on reads fail; 0: none does */
} answers;

static atomic_int direct_file = -1, reads, misplaced, odd_reads;
static atomic_bool held; /* reads of the first piece wait */
static atomic_int waiting;

int __real_open(const char *name, int flags, ...);
int __wrap_open(const char *name, int flags, int mode);
ssize_t __real_pread(int file, void *data, size_t bytes, off_t offset);
ssize_t __wrap_pread(int file, void *data, size_t bytes, off_t offset);
ssize_t __wrap_preadv2(int file, const struct iovec *parts, int count, off_t offset, int flags);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user);

/* The test looks at blocks itself, so that the file system need not have such reads. */
int __wrap_open(const char *name, int flags, int mode)
{
    if (!(flags & O_DIRECT))
        return __real_open(name, flags, mode);
    if (answers.refuses_open) {
        errno = EINVAL;
        return -1;
    }
    int file = __real_open(name, flags & ~O_DIRECT, mode);
    atomic_store(&direct_file, file);
    return file;
}

ssize_t __wrap_pread(int file, void *data, size_t bytes, off_t offset)
{
    if (file != atomic_load(&direct_file))
        return __real_pread(file, data, bytes, offset);
    if ((uintptr_t)data % DISK_BLOCK != 0 || bytes % DISK_BLOCK != 0 || offset % DISK_BLOCK != 0)
        atomic_fetch_add(&misplaced, 1);
    int number = atomic_fetch_add(&reads, 1) + 1;
    if (offset == 0 && atomic_load(&held)) {
        atomic_fetch_add(&waiting, 1);
        while (atomic_load(&held))
            usleep(100);
    }
    if (answers.fails_from > 0 && number >= answers.fails_from) {
        errno = EIO;
        return -1;
    }
    if (answers.odd && atomic_fetch_add(&odd_reads, 1) % 2) {
        errno = EINTR;
        return -1;
    }
    if (answers.odd && bytes > DISK_BLOCK)
        bytes = bytes / 2 / DISK_BLOCK * DISK_BLOCK;
    return __real_pread(file, data, bytes, offset);
}

ssize_t __wrap_preadv2(int file, const struct iovec *parts, int count, off_t offset, int flags)
{
    (void)file, (void)parts, (void)count, (void)offset, (void)flags;
    errno = EAGAIN;
    return answers.cached ? 1 : -1;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user)
{
    return answers.no_threads ? EAGAIN : __real_pthread_create(thread, how, fn, user);
}

/* Files ------------------------------------------------------------------------------------------------------------ */

static char path[] = "weir-ring-XXXXXX";
static unsigned char *contents, *place;

static int make_file(void **state)
{
    (void)state;
    uint64_t word = 88172645463325252u;
    int file = mkstemp(path);
    contents = malloc(FILE_BYTES + 8);
    place = malloc(FILE_BYTES);
    for (uint64_t i = 0; i < FILE_BYTES; i += sizeof word) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        memcpy(contents + i, &word, sizeof word);
    }
    bool good = file >= 0 && write(file, contents, FILE_BYTES) == (ssize_t)FILE_BYTES;
    close(file);
    return good ? 0 : -1;
}

static int end_file(void **state)
{
    (void)state;
    free(contents);
    free(place);
    return unlink(path);
}

static int plain(void **state)
{
    (void)state;
    answers = (struct answers){.cached = false};
    reads = misplaced = odd_reads = waiting = 0;
    held = false;
    return 0;
}

static void comes(wt_ring *ring, uint64_t offset, size_t bytes)
{
    memset(place, 0, bytes);
    assert_true(wt_ring_read(ring, place, offset, bytes));
    assert_memory_equal(place, contents + offset, bytes);
}

static void read_all(size_t step)
{
    wt_ring ring;
    assert_true(wt_ring_begin(&ring, path));
    for (uint64_t at = 0; at < FILE_BYTES; at += step)
        comes(&ring, at, FILE_BYTES - at < step ? (size_t)(FILE_BYTES - at) : step);
    assert_int_equal(ring.given, FILE_BYTES);
    wt_ring_end(&ring);
    assert_int_equal(misplaced, 0);
}

static void in_order_each_piece_is_read_once(void **state)
{
    static const size_t steps[] = {SMALL * 1000 + 7, 3 * WT_RING_PIECE, FILE_BYTES, WT_RING_PIECE};
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        reads = 0;
        read_all(steps[i]);
        assert_int_equal(reads, 41);
    }
    answers.odd = true;
    read_all(steps[0]);
    assert_true(odd_reads > 41);
}

static void in_any_order_the_bytes_come(void **state)
{
    (void)state;
    wt_ring ring;
    uint64_t word = 1, step = WT_RING_PIECE / 2;
    assert_true(wt_ring_begin(&ring, path));
    for (int i = 0; i < 200; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        uint64_t offset = (word >> 33) % (FILE_BYTES - 3 * step);
        comes(&ring, offset, (size_t)(step + (word >> 20) % step));
    }
    for (uint64_t at = 0; at + step < FILE_BYTES; at += 5 * step + 1) /* parts are left out */
        comes(&ring, at, (size_t)step);
    wt_ring_end(&ring);
    assert_int_equal(misplaced, 0);
}

/* Its buffer is not given to another piece meanwhile. */
static void a_piece_that_is_skipped_may_come_late(void **state)
{
    (void)state;
    wt_ring ring;
    held = true;
    assert_true(wt_ring_begin(&ring, path));
    while (atomic_load(&waiting) == 0)
        usleep(100);
    for (uint64_t piece = 1; piece < WT_RING_PIECES; piece++)
        comes(&ring, piece * WT_RING_PIECE, WT_RING_PIECE);
    pthread_mutex_lock(&ring.lock);
    assert_true(ring.next <= WT_RING_PIECES);
    pthread_mutex_unlock(&ring.lock);
    held = false;
    for (uint64_t piece = WT_RING_PIECES; piece < 40; piece++)
        comes(&ring, piece * WT_RING_PIECE, WT_RING_PIECE);
    wt_ring_end(&ring);
}

static void few_bytes_elsewhere_are_not_its_own(void **state)
{
    (void)state;
    wt_ring ring;
    assert_true(wt_ring_begin(&ring, path));
    comes(&ring, 5, SMALL);
    assert_false(wt_ring_read(&ring, place, 30 * (uint64_t)WT_RING_PIECE, SMALL));
    comes(&ring, 30 * (uint64_t)WT_RING_PIECE, WT_RING_PIECE);
    assert_false(wt_ring_read(&ring, place, 5, SMALL));
    comes(&ring, 31 * (uint64_t)WT_RING_PIECE, SMALL);
    assert_false(wt_ring_read(&ring, place, FILE_BYTES - 1, 2));
    assert_false(wt_ring_read(&ring, place, FILE_BYTES + 1, 0));
    wt_ring_end(&ring);
}

static void what_cannot_be_read_is_said(void **state)
{
    (void)state;
    for (int from = 1; from < 45; from += 9) {
        wt_ring ring;
        bool good = true;
        reads = 0;
        answers.fails_from = from;
        assert_true(wt_ring_begin(&ring, path));
        for (uint64_t at = 0; at < FILE_BYTES && good; at += SMALL * 1000) {
            size_t bytes = FILE_BYTES - at < SMALL * 1000 ? (size_t)(FILE_BYTES - at) : (size_t)SMALL * 1000;
            good = wt_ring_read(&ring, place, at, bytes);
            if (good)
                assert_memory_equal(place, contents + at, bytes);
        }
        assert_true(good == (from > 41));
        wt_ring_end(&ring);
    }
}

static void where_it_is_not_possible_or_in_vain_it_does_not_begin(void **state)
{
    (void)state;
    wt_ring ring;
    for (int way = 0; way < 3; way++) {
        answers = (struct answers){.cached = way == 0, .refuses_open = way == 1, .no_threads = way == 2};
        assert_false(wt_ring_begin(&ring, path));
        assert_false(wt_ring_read(&ring, place, 0, SMALL));
        wt_ring_end(&ring);
    }
    plain(NULL);
    assert_false(wt_ring_begin(&ring, "no/such/file"));
    wt_ring_end(&ring);
    assert_false(wt_ring_begin(&ring, "."));
    wt_ring_end(&ring);
    assert_true(wt_ring_begin(&ring, path)); /* and ends before anything was wanted */
    wt_ring_end(&ring);
}

#define RING(name) cmocka_unit_test_setup(name, plain)

int main(void)
{
    const struct CMUnitTest ring[] = {
        RING(in_order_each_piece_is_read_once),      RING(in_any_order_the_bytes_come),
        RING(a_piece_that_is_skipped_may_come_late), RING(few_bytes_elsewhere_are_not_its_own),
        RING(what_cannot_be_read_is_said),           RING(where_it_is_not_possible_or_in_vain_it_does_not_begin),
    };
    return cmocka_run_group_tests(ring, make_file, end_file);
}
