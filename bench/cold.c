/* Cold starts: a file, or a model, comes from a disk whose pages are not in the page cache, beside the disk's own rate in the same
 * run: the best of several numbers of readers and lengths of reads past the page cache, into buffers in huge pages that are used again
 * and again. The same into fresh memory as long as the files tells what of the rate the host's memory takes.
 *
 *     bench-cold PATH [--device cuda:0] [--rounds 5] [--make MIB] [--model] [--set NAME=VALUE]…
 *
 * PATH is a file or a folder of files. --make writes the file first, and removes it. --model loads PATH with weir_model_create
 * instead of reading its bytes to the device; --set is a setting of that. What is cached is dropped before each measurement
 * (POSIX_FADV_DONTNEED). Prints medians of GB/s; every byte that was read is looked at. */
#include <weir/model.h>
#include <weir/residency.h>
#include <weir/weir.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum {
    MOST_ROUNDS = 99,
    MOST_FILES = 64,
    MOST_SETTINGS = 16,
    MOST_READERS = 32,
    PIECE = 8 << 20,
    HUGE_PAGE = 2 << 20,
    BLOCK = 4096
};

static const char *path, *device = "cuda:0";
static int rounds = 5;
static uint64_t make_bytes;
static bool of_model;
static weir_setting settings[MOST_SETTINGS];
static size_t setting_count;

static char *files[MOST_FILES];
static uint64_t sizes[MOST_FILES], total;
static size_t file_count;

static void fail_with(const char *what, const char *why)
{
    fprintf(stderr, "bench-cold: %s: %s\n", what, why);
    exit(1);
}

static void must(weir_status status, const char *what)
{
    if (status != WEIR_OK)
        fail_with(what, weir_detail());
}
#define MUST(call) must((call), #call)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Files ------------------------------------------------------------------------------------------------------------ */

static void add_file(const char *name)
{
    struct stat s;
    if (stat(name, &s) != 0)
        fail_with(name, strerror(errno));
    if (!S_ISREG(s.st_mode) || s.st_size == 0)
        return;
    if (file_count == MOST_FILES)
        fail_with(path, "too many files");
    files[file_count] = strdup(name);
    sizes[file_count++] = (uint64_t)s.st_size;
    total += (uint64_t)s.st_size;
}

static void find_files(void)
{
    DIR *folder = opendir(path);
    if (!folder) {
        add_file(path);
        return;
    }
    for (const struct dirent *e; (e = readdir(folder));) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        add_file(name);
    }
    closedir(folder);
}

static void make_file(void)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    uint64_t *data = malloc(MIB), word = 88172645463325252u;
    if (file < 0 || !data)
        fail_with(path, strerror(errno));
    for (uint64_t done = 0; done < make_bytes; done += MIB) {
        for (size_t i = 0; i < MIB / sizeof word; i++) {
            word ^= word << 13;
            word ^= word >> 7;
            data[i] = word ^= word << 17;
        }
        if (write(file, data, MIB) != (ssize_t)MIB)
            fail_with(path, strerror(errno));
    }
    free(data);
    close(file);
}

/* Nothing of the files is in the page cache any more. */
static void drop_cached(void)
{
    for (size_t i = 0; i < file_count; i++) {
        int file = open(files[i], O_RDONLY | O_CLOEXEC);
        if (file < 0 || fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0)
            fail_with(files[i], "its pages cannot be dropped");
        close(file);
    }
}

/* Ways to read ----------------------------------------------------------------------------------------------------- */

typedef struct way {
    const char *what;
    void (*read)(void);
    bool cold, model;
    int readers; /* of the disk's own rate, and how many bytes each asks for at a time */
    uint64_t piece;
    bool fresh; /* each piece goes to memory of its own */
    double seconds[MOST_ROUNDS];
} way;

static const way *of_disk; /* that is under way */
static atomic_uint_fast64_t next_piece;
static atomic_int next_reader;
static int disk_file;
static uint64_t disk_bytes;
static char *disk_buffers, *fresh_memory;

static char *take_memory(uint64_t bytes)
{
    char *raw =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        fail_with("buffers", strerror(errno));
    char *start = raw + (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    (void)madvise(start, bytes, MADV_HUGEPAGE);
    return start;
}

static void *read_pieces(void *user)
{
    uint64_t piece = of_disk->piece, mine = (uint64_t)atomic_fetch_add(&next_reader, 1) * piece;
    (void)user;
    for (uint64_t at; (at = atomic_fetch_add(&next_piece, piece)) < disk_bytes;) {
        char *to = of_disk->fresh ? fresh_memory + at : disk_buffers + mine;
        if (pread(disk_file, to, piece, (off_t)at) <= 0)
            fail_with(path, strerror(errno));
    }
    return NULL;
}

/* What the disk gives: whole blocks past the page cache, many at once, to nowhere. */
static void read_from_disk(void)
{
    for (size_t i = 0; i < file_count; i++) {
        pthread_t threads[MOST_READERS];
        disk_file = open(files[i], O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (disk_file < 0)
            fail_with(files[i], strerror(errno));
        disk_bytes = sizes[i];
        atomic_store(&next_piece, 0);
        atomic_store(&next_reader, 0);
        for (int k = 0; k < of_disk->readers; k++)
            if (pthread_create(&threads[k], NULL, read_pieces, NULL) != 0)
                fail_with("a thread", "there is none");
        for (int k = 0; k < of_disk->readers; k++)
            pthread_join(threads[k], NULL);
        close(disk_file);
    }
}

static void read_in_order(void)
{
    char *buffer = malloc(PIECE);
    for (size_t i = 0; i < file_count; i++) {
        int file = open(files[i], O_RDONLY | O_CLOEXEC);
        ssize_t got = 1;
        while (file >= 0 && buffer && got > 0)
            got = read(file, buffer, PIECE);
        if (got != 0)
            fail_with(files[i], strerror(errno));
        close(file);
    }
    free(buffer);
}

static weir_runtime *runtime;
static weir_client *client;
static char *place;

static void read_with_weir(void)
{
    for (uint64_t i = 0, at = 0; i < file_count; at += (sizes[i++] + BLOCK - 1) / BLOCK * BLOCK)
        MUST(weir_read_file(client, place + at, files[i], 0, sizes[i], WEIR_STREAM_HOST));
}

static void load_model(void)
{
    weir_model *model;
    weir_model_options options = {
        .struct_size = sizeof options, .device = device, .settings = settings, .setting_count = setting_count};
    MUST(weir_model_create(path, &options, &model));
    MUST(weir_model_destroy(model));
}

static void look_at_bytes(void)
{
    char *there = malloc(PIECE), *wanted = malloc(PIECE);
    for (uint64_t i = 0, begin = 0; i < file_count; begin += (sizes[i++] + BLOCK - 1) / BLOCK * BLOCK) {
        int file = open(files[i], O_RDONLY | O_CLOEXEC);
        for (uint64_t at = 0; at < sizes[i]; at += PIECE) {
            uint64_t bytes = sizes[i] - at < PIECE ? sizes[i] - at : PIECE;
            MUST(weir_copy(runtime, there, place + begin + at, bytes, WEIR_STREAM_HOST));
            if (pread(file, wanted, bytes, (off_t)at) != (ssize_t)bytes || memcmp(there, wanted, bytes) != 0)
                fail_with(files[i], "its bytes on the device are others");
        }
        close(file);
    }
    free(there);
    free(wanted);
}

/* Measuring -------------------------------------------------------------------------------------------------------- */

static way ways[] = {
    {.what = "the disk: 2 readers of 4 MiB", .read = read_from_disk, .cold = true, .readers = 2, .piece = 4 * MIB},
    {.what = "the disk: 8 readers of 1 MiB", .read = read_from_disk, .cold = true, .readers = 8, .piece = MIB},
    {.what = "the disk: 16 readers of 1 MiB", .read = read_from_disk, .cold = true, .readers = 16, .piece = MIB},
    {.what = "the disk: 16 readers of 8 MiB", .read = read_from_disk, .cold = true, .readers = 16, .piece = 8 * MIB},
    {.what = "the disk: 32 readers of 512 KiB", .read = read_from_disk, .cold = true, .readers = 32, .piece = MIB / 2},
    {.what = "8 readers of 1 MiB, straight to their places",
     .read = read_from_disk,
     .cold = true,
     .readers = 8,
     .piece = MIB,
     .fresh = true},
    {.what = "weir_read_file", .read = read_with_weir, .cold = true},
    {.what = "weir_model_create, and unloading", .read = load_model, .cold = true, .model = true},
    {.what = "one reader through the page cache", .read = read_in_order, .cold = true},
    {.what = "the same with the file in the page cache", .read = load_model, .model = true},
};
enum { WAYS = sizeof ways / sizeof ways[0], FAST = 8 };

static bool is_measured(const way *w)
{
    return w->readers > 0 || w->model == of_model;
}

static void measure_once(way *w, int round)
{
    if (!is_measured(w))
        return;
    if (w->cold)
        drop_cached();
    else
        read_in_order();
    of_disk = w;
    double start = now();
    w->read();
    w->seconds[round] = now() - start;
}

static double rate_of(const way *w)
{
    return (double)total * 1e-9 / w->seconds[rounds / 2];
}

static void tell(void)
{
    double disk = 0;
    for (int i = 0; i < WAYS; i++) {
        qsort(ways[i].seconds, (size_t)rounds, sizeof *ways[i].seconds, by_size);
        if (ways[i].readers > 0 && !ways[i].fresh && rate_of(&ways[i]) > disk)
            disk = rate_of(&ways[i]);
    }
    for (int i = 0; i < WAYS; i++)
        if (is_measured(&ways[i]))
            printf("%-46s %7.2f GB/s  %5.2f of the disk  (%.3f to %.3f s)\n", ways[i].what, rate_of(&ways[i]),
                   rate_of(&ways[i]) / disk, ways[i].seconds[0], ways[i].seconds[rounds - 1]);
    for (int i = 0; i < WAYS; i++)
        if (is_measured(&ways[i]) && (ways[i].read == read_with_weir || (ways[i].read == load_model && ways[i].cold)))
            printf("goal: 0.9 of the disk, cold: %s, %.3f of %.2f GB/s\n",
                   rate_of(&ways[i]) >= 0.9 * disk ? "reached" : "missed", rate_of(&ways[i]) / disk, disk);
}

/* The disk and the fast ways take turns, forwards and backwards: a disk may be slower after much work, and faster after a rest, as
 * machines have a budget of bytes. The slow ones come at the end. */
static void measure(void)
{
    uint64_t longest = 0;
    for (size_t i = 0; i < file_count; i++)
        longest = sizes[i] > longest ? sizes[i] : longest;
    disk_buffers = take_memory((uint64_t)MOST_READERS * PIECE);
    memset(disk_buffers, 1, (size_t)MOST_READERS * PIECE);
    fresh_memory = take_memory(longest + PIECE);
    memset(fresh_memory, 1, longest + PIECE);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < FAST; i++)
            measure_once(&ways[round % 2 ? FAST - 1 - i : i], round);
    for (int round = 0; round < rounds; round++)
        for (int i = FAST; i < WAYS; i++)
            measure_once(&ways[i], round);
    tell();
}

static uint64_t number(const char *text, uint64_t most)
{
    unsigned long long value = strtoull(text, NULL, 10);
    if (value == 0 || value > most)
        fail_with(text, "no such number is possible");
    return value;
}

static void add_setting(char *text)
{
    char *value = strchr(text, '=');
    if (!value || setting_count == MOST_SETTINGS)
        fail_with(text, "is no setting NAME=VALUE");
    *value = '\0';
    settings[setting_count++] = (weir_setting){text, value + 1};
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (strcmp(option, "--model") == 0)
            of_model = true;
        else if (option[0] != '-' && !path)
            path = option;
        else if (i + 1 == argc)
            fail_with(option, "is no option, or has no value");
        else if (strcmp(option, "--device") == 0)
            device = argv[++i];
        else if (strcmp(option, "--rounds") == 0)
            rounds = (int)number(argv[++i], MOST_ROUNDS);
        else if (strcmp(option, "--make") == 0)
            make_bytes = number(argv[++i], 1 << 20) * MIB;
        else if (strcmp(option, "--set") == 0)
            add_setting(argv[++i]);
        else
            fail_with(option, "is no option");
    }
    if (!path)
        fail_with("PATH", "a file or a folder is to be named");
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    if (make_bytes)
        make_file();
    find_files();
    if (file_count == 0)
        fail_with(path, "there is nothing to read");
    printf("%s, %.2f GB in %zu files, on %s, medians of %d\n", path, (double)total * 1e-9, file_count, device, rounds);
    if (!of_model) {
        uint64_t room = total + file_count * BLOCK;
        weir_runtime_options options = {.struct_size = sizeof options, .budget = room + 256 * MIB};
        weir_client_options name = {.struct_size = sizeof name, .name = "cold"};
        weir_request request = {
            .struct_size = sizeof request, .bytes = room, .alignment = BLOCK, .memory_class = WEIR_CLASS_WEIGHTS};
        weir_block block;
        MUST(weir_runtime_create(device, &options, &runtime));
        MUST(weir_client_create(runtime, &name, &client));
        MUST(weir_alloc_with(client, &request, &block));
        place = block.pointer;
        MUST(weir_fill(runtime, place, 0, room, WEIR_STREAM_HOST));
        measure();
        look_at_bytes();
        MUST(weir_free_block(client, block, WEIR_STREAM_HOST));
        MUST(weir_client_destroy(client));
        MUST(weir_runtime_destroy(runtime));
    } else {
        measure();
    }
    if (make_bytes)
        unlink(path);
    return 0;
}
