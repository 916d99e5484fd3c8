/* Which pages the host driver should use: private anonymous ones moved by mremap, or one memfd mapped where needed.
 * Prints what an engine would feel (first touch, reading) and what weir would (moving handles), for both, in one run. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SMALL = 64 * 1024, LARGE = 2 * 1024 * 1024, MOVED = 64 * 1024 * 1024, ROUNDS = 7 };
static const size_t total = (size_t)512 << 20;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *must(void *p)
{
    if (p == MAP_FAILED) {
        perror("host_pages");
        exit(1);
    }
    return p;
}

/* Random reads over all of it: what page size means to a look-up of embeddings. */
static double random_reads(const char *p)
{
    uint64_t x = 88172645463325252u, sum = 0;
    double start = now();
    for (int i = 0; i < 4000000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        sum += (unsigned char)p[x % total];
    }
    double seconds = now() - start;
    volatile uint64_t keep = sum;
    (void)keep;
    return seconds;
}

typedef struct result {
    double touch, reads, move_small, move_large;
} result;

/* Seconds for a handle's way out and back again. */
static double move_pages(char *p, size_t handle)
{
    size_t count = MOVED / handle;
    double start = now();
    for (size_t i = 0; i < count; i++) {
        void *moved = must(mremap(p + i * handle, handle, handle, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */));
        must(mremap(moved, handle, handle, MREMAP_MAYMOVE | MREMAP_FIXED, p + i * handle));
    }
    return (now() - start) / (double)count;
}

static double move_file(char *p, int fd, size_t handle)
{
    size_t count = MOVED / handle;
    double start = now();
    for (size_t i = 0; i < count; i++) {
        must(mmap(p + i * handle, handle, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
        must(mmap(p + i * handle, handle, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)(i * handle)));
    }
    return (now() - start) / (double)count;
}

static result anonymous(void)
{
    result r;
    char *range = must(mmap(NULL, total + (2u << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    char *p = (char *)(((uintptr_t)range + (2u << 20) - 1) & ~(uintptr_t)((2u << 20) - 1));
    madvise(p, total, MADV_HUGEPAGE);
    double start = now();
    mprotect(p, total, PROT_READ | PROT_WRITE);
    memset(p, 1, total);
    r.touch = now() - start;
    r.reads = random_reads(p);
    r.move_large = move_pages(p, LARGE); /* before the small ones cut it up */
    r.move_small = move_pages(p, SMALL);
    munmap(range, total + (2u << 20));
    return r;
}

static result file(void)
{
    result r;
    int fd = memfd_create("weir", 0);
    char *p = must(mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    double start = now();
    if (fd < 0 || ftruncate(fd, (off_t)total) != 0)
        perror("memfd");
    must(mmap(p, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
    madvise(p, total, MADV_HUGEPAGE);
    memset(p, 1, total);
    r.touch = now() - start;
    r.reads = random_reads(p);
    r.move_large = move_file(p, fd, LARGE);
    r.move_small = move_file(p, fd, SMALL);
    munmap(p, total);
    close(fd);
    return r;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, by_value);
    return values[ROUNDS / 2];
}

int main(void)
{
    enum { ROWS = 4 };
    double ratios[ROWS][ROUNDS], values[ROWS][2][ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        result a = anonymous(), f = file();
        const double pair[ROWS][2] = {
            {a.touch, f.touch}, {a.reads, f.reads}, {a.move_small, f.move_small}, {a.move_large, f.move_large}};
        for (int k = 0; k < ROWS; k++) {
            values[k][0][i] = pair[k][0];
            values[k][1][i] = pair[k][1];
            ratios[k][i] = pair[k][1] / pair[k][0];
        }
    }
    static const char *const names[] = {"first touch of 512 MiB, ms", "4 M random reads, ms",
                                        "moving a 64 KiB handle, us", "moving a 2 MiB handle, us"};
    static const double scale[] = {1e3, 1e3, 1e6, 1e6};
    printf("%-28s %12s %12s %14s\n", "", "anonymous", "memfd", "memfd/anon.");
    for (int k = 0; k < ROWS; k++)
        printf("%-28s %12.2f %12.2f %14.2f\n", names[k], median(values[k][0]) * scale[k],
               median(values[k][1]) * scale[k], median(ratios[k]));
    return 0;
}
