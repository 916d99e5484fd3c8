/* Files that are read past the page cache: what is asked of the system is in whole blocks, all bytes come to their places and none
 * beside them, and where the system refuses, the rest comes through the cache. */
#include "residency/residency.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define FILE_BYTES (33 * MIB + 12345)

enum { DISK_BLOCK = 4096, BESIDE = 3 * DISK_BLOCK, FILLED = 0xaa, MOST_BUFFERS = 8 };

/* The system, which the linker leads through here ------------------------------------------------------------------ */

typedef enum probe { NOT_CACHED, CACHED, UNKNOWN } probe;

static struct answers {
    probe probe;
    bool refuses_open; /* past the cache */
    int refuses_reads; /* with this error, such reads; 0: it does not */
    bool odd;          /* reads are interrupted, and cut short */
} answers;

static atomic_int direct_file = -1;
static atomic_long direct_reads, refused_reads, odd_reads, misplaced;
static atomic_uint_fast64_t direct_bytes, cached_bytes;

int __real_open(const char *name, int flags, ...);
int __wrap_open(const char *name, int flags, int mode);
ssize_t __real_pread(int file, void *data, size_t bytes, off_t offset);
ssize_t __wrap_pread(int file, void *data, size_t bytes, off_t offset);
ssize_t __wrap_preadv2(int file, const struct iovec *parts, int count, off_t offset, int flags);

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
    if (file != atomic_load(&direct_file)) {
        atomic_fetch_add(&cached_bytes, bytes);
        return __real_pread(file, data, bytes, offset);
    }
    atomic_fetch_add(&direct_reads, 1);
    if ((uintptr_t)data % DISK_BLOCK != 0 || bytes % DISK_BLOCK != 0 || offset % DISK_BLOCK != 0)
        atomic_fetch_add(&misplaced, 1);
    if (answers.refuses_reads) {
        atomic_fetch_add(&refused_reads, 1);
        errno = answers.refuses_reads;
        return -1;
    }
    if (answers.odd && atomic_fetch_add(&odd_reads, 1) % 2) {
        errno = EINTR;
        return -1;
    }
    if (answers.odd && bytes > DISK_BLOCK)
        bytes = bytes / 2 / DISK_BLOCK * DISK_BLOCK;
    ssize_t got = __real_pread(file, data, bytes, offset);
    atomic_fetch_add(&direct_bytes, got > 0 ? (uint64_t)got : 0);
    return got;
}

ssize_t __wrap_preadv2(int file, const struct iovec *parts, int count, off_t offset, int flags)
{
    if (flags != RWF_NOWAIT || count != 1 || parts->iov_len != 1 || file == atomic_load(&direct_file))
        atomic_fetch_add(&misplaced, 1);
    (void)offset;
    errno = answers.probe == UNKNOWN ? EOPNOTSUPP : EAGAIN;
    return answers.probe == CACHED ? 1 : -1;
}

static bool no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *user)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, how, fn, user);
}

static bool no_buffers;
static void *buffers;
static int buffers_taken, buffers_ended;

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    bool is_buffers = !address && protection == (PROT_READ | PROT_WRITE) && bytes == MOST_BUFFERS * MIB;
    void *at = no_buffers && is_buffers ? MAP_FAILED : __real_mmap(address, bytes, protection, flags, file, offset);
    if (is_buffers)
        buffers = at;
    buffers_taken += is_buffers;
    return at;
}

int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes)
{
    buffers_ended += buffers && address == buffers && bytes == MOST_BUFFERS * MIB;
    return __real_munmap(address, bytes);
}

static void forget_calls(void)
{
    direct_reads = refused_reads = odd_reads = misplaced = 0;
    direct_bytes = cached_bytes = 0;
}

/* Files ------------------------------------------------------------------------------------------------------------ */

static char path[] = "weir-direct-XXXXXX";
static unsigned char *contents;

static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(path);
    contents = pattern(FILE_BYTES, 5);
    assert_int_equal(write(file, contents, FILE_BYTES), FILE_BYTES);
    close(file);
    return 0;
}

static int end_file(void **state)
{
    (void)state;
    free(contents);
    return unlink(path);
}

static const struct part {
    uint64_t offset, bytes;
} parts[] = {{0, FILE_BYTES},
             {DISK_BLOCK, 8 * MIB},
             {DISK_BLOCK - 1, 8 * MIB + 2},
             {5, 29 * MIB + 7},
             {FILE_BYTES - DISK_BLOCK - 9, DISK_BLOCK + 9},
             {FILE_BYTES - 1, 1},
             {3 * DISK_BLOCK + 1, 17},
             {8 * MIB - 3, 6}};
enum { PARTS = sizeof parts / sizeof parts[0] };

/* Reads the part to an address that lies so many bytes behind the beginning of a block, and looks at all that is there then. */
static void read_part(fixture *f, const struct part *part, size_t shift)
{
    size_t room = part->bytes + (size_t)2 * BESIDE;
    weir_request request = {.struct_size = sizeof request, .bytes = room, .alignment = DISK_BLOCK};
    weir_block block;
    ok(weir_alloc_with(f->model, &request, &block));
    ok(weir_fill(f->runtime, block.pointer, FILLED, room, WEIR_STREAM_HOST));
    size_t at = DISK_BLOCK + shift;
    ok(weir_read_file(f->model, (char *)block.pointer + at, path, part->offset, part->bytes, WEIR_STREAM_HOST));
    unsigned char *there = malloc(room), *wanted = malloc(room);
    memset(wanted, FILLED, room);
    memcpy(wanted + at, contents + part->offset, part->bytes);
    ok(weir_copy(f->runtime, there, block.pointer, room, WEIR_STREAM_HOST));
    bytes_are(there, wanted, room);
    free(there);
    free(wanted);
    ok(weir_free_block(f->model, block, WEIR_STREAM_HOST));
    assert_int_equal(misplaced, 0);
}

/* Each part to a place that has the same distance from a block as in the file, and to another. */
static void read_all(fixture *f)
{
    for (size_t i = 0; i < PARTS; i++)
        for (size_t k = 0; k < 2; k++)
            read_part(f, &parts[i], (parts[i].offset + 100 * k) % DISK_BLOCK);
}

/* All of it, wherever its place lies. */
static void what_is_not_cached_is_read_past_the_cache(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < PARTS; i++)
        for (probe p = NOT_CACHED; p <= UNKNOWN; p += UNKNOWN) {
            forget_calls();
            answers.probe = p;
            read_part(f, &parts[i], parts[i].offset % DISK_BLOCK + 100 * (i % 2));
            assert_true(direct_bytes >= parts[i].bytes);
            assert_int_equal(cached_bytes, 0);
        }
}

static void what_is_cached_is_read_through_it(void **state)
{
    forget_calls();
    answers.probe = CACHED;
    read_all(*state);
    assert_int_equal(direct_reads, 0);
}

static void a_file_system_without_such_reads(void **state)
{
    forget_calls();
    answers.refuses_open = true;
    read_all(*state);
    assert_int_equal(direct_reads, 0);
    for (int error = EIO; error <= EINVAL; error += EINVAL - EIO) {
        answers = (struct answers){.refuses_reads = error};
        for (size_t i = 0; i < PARTS; i++)
            read_part(*state, &parts[i], parts[i].offset % DISK_BLOCK);
        assert_int_equal(direct_reads, refused_reads);
        forget_calls();
        no_threads = true; /* so that the call's own thread reads all pieces */
        read_part(*state, &parts[0], 0);
        no_threads = false;
        assert_int_equal(refused_reads, 1);
    }
}

/* The host's buffers come from the system; a device's are in the host's ledger, whose refusals are looked at in files.c. */
static void without_buffers_it_comes_through_the_cache(void **state)
{
    forget_calls();
    no_buffers = true;
    read_part(*state, &parts[0], 0);
    no_buffers = false;
    assert_true(host_writes() == (direct_reads == 0));
    buffers_taken = buffers_ended = 0;
    read_part(*state, &parts[0], 0);
    assert_int_equal(buffers_taken, buffers_ended);
    assert_int_equal(buffers_taken, host_writes());
}

static void reads_that_are_interrupted_and_short(void **state)
{
    forget_calls();
    answers.odd = true;
    read_part(*state, &parts[0], 0);
    assert_true(odd_reads > 0);
    assert_true(direct_bytes + DISK_BLOCK >= FILE_BYTES); /* none of them was taken for a refusal */
    read_all(*state);
}

/* The file ends, or cannot be read, in the middle. */
static void a_file_that_is_cut_meanwhile(void **state)
{
    fixture *f = *state;
    char *block = allocate(f->model, FILE_BYTES, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    char cut[sizeof path + 4];
    snprintf(cut, sizeof cut, "%s.cut", path);
    int file = __real_open(cut, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(write(file, contents, FILE_BYTES), FILE_BYTES);
    ok(weir_read_file(f->model, block, cut, 0, FILE_BYTES, WEIR_STREAM_HOST));
    assert_int_equal(ftruncate(file, 20 * MIB + 77), 0);
    fails(WEIR_ERR_INVALID, weir_read_file(f->model, block, cut, 0, FILE_BYTES, WEIR_STREAM_HOST));
    ok(weir_read_file(f->model, block, cut, 20 * MIB, 77, WEIR_STREAM_HOST));
    close(file);
    assert_int_equal(unlink(cut), 0);
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
}

static int plain(void **state)
{
    answers = (struct answers){.probe = NOT_CACHED};
    return set_up(state);
}

#define DIRECT(name) cmocka_unit_test_setup_teardown(name, plain, tear_down)

int main(void)
{
    const struct CMUnitTest direct[] = {
        DIRECT(what_is_not_cached_is_read_past_the_cache), DIRECT(what_is_cached_is_read_through_it),
        DIRECT(a_file_system_without_such_reads),          DIRECT(without_buffers_it_comes_through_the_cache),
        DIRECT(reads_that_are_interrupted_and_short),      DIRECT(a_file_that_is_cut_meanwhile),
    };
    return cmocka_run_group_tests(direct, make_file, end_file);
}
