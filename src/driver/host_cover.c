/* The host driver's covered addresses: private anonymous pages that are open and have no memory, so that zeros are read
 * there. A covered range is one mapping, and stays one mapping while handles come and go: a handle that is mapped there
 * for the first time has its pages where the cover is, and they are discarded when it is dropped. The kernel gives them
 * no huge pages, or one byte would bring 2 MiB of memory that nobody has committed; granules of 2 MiB and more ask for
 * them while the process has mappings to spare.
 *
 * What is written to covered addresses takes memory until they are uncovered or filled with zeros. So which granules are
 * covered is written down, a bit for each. */
#include "driver/host.h"
#include "base/system.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRANULE = WI_HOST_GRANULE, HUGE_PAGE = WI_HOST_ALIGNMENT, BITS = 64 };

/* Open addresses of one range. */
typedef struct wi_host_cover {
    struct wi_host_cover *next; /* under the device's lock, like the list's head */
    char *start, *end;
    atomic_uint_fast64_t covered[]; /* a bit a granule; relaxed: who uses a page is ordered behind its commit */
} host_cover;

/* The record at the address, or NULL; *until: where the next one begins, or it ends, at most `end`. */
static host_cover *cover_at(wi_device *device, const char *at, char *end, char **until)
{
    host_cover *found = NULL;
    pthread_mutex_lock(&device->lock);
    *until = end;
    for (host_cover *c = device->covers; c; c = c->next) {
        if (at >= c->start && at < c->end)
            found = c;
        char *edge = at >= c->start ? c->end : c->start;
        if (edge > at && edge < *until)
            *until = edge;
    }
    pthread_mutex_unlock(&device->lock);
    return found;
}

bool wi_host_is_open(wi_device *device, const char *at, char *end, char **until)
{
    return cover_at(device, at, end, until) != NULL;
}

static bool cover_has(const host_cover *c, const char *at)
{
    size_t granule = (size_t)(at - c->start) / GRANULE;
    return atomic_load_explicit(&c->covered[granule / BITS], memory_order_relaxed) >> granule % BITS & 1;
}

static void cover_note(host_cover *c, const char *at, const char *end, bool covered)
{
    for (; at < end; at += GRANULE) {
        size_t granule = (size_t)(at - c->start) / GRANULE;
        uint64_t bit = UINT64_C(1) << granule % BITS;
        if (covered)
            atomic_fetch_or_explicit(&c->covered[granule / BITS], bit, memory_order_relaxed);
        else
            atomic_fetch_and_explicit(&c->covered[granule / BITS], ~bit, memory_order_relaxed);
    }
}

/* Covering --------------------------------------------------------------------------------------------------------- */

/* Opens addresses as they were reserved. */
static weir_status cover_open(wi_device *device, char *start, char *end, host_cover **out)
{
    uint64_t bytes = (uint64_t)(end - start), granules = bytes / GRANULE;
    host_cover *c = calloc(1, sizeof *c + (granules + BITS - 1) / BITS * sizeof c->covered[0]);
    if (!c)
        return weir_fail(WEIR_ERR_SYSTEM, "host: no memory to note %llu covered granules",
                         (unsigned long long)granules);
    (void)madvise(start, bytes, MADV_NOHUGEPAGE);
    if (mprotect(start, bytes, PROT_READ | PROT_WRITE) != 0) {
        free(c);
        return wi_host_failed("covering addresses", bytes);
    }
    c->start = start;
    c->end = end;
    pthread_mutex_lock(&device->lock);
    c->next = device->covers;
    device->covers = c;
    pthread_mutex_unlock(&device->lock);
    *out = c;
    return WEIR_OK;
}

weir_status wi_host_cover(wi_device *device, void *address, uint64_t bytes)
{
    char *start = address, *end = start + bytes;
    for (char *at = start, *until; at < end; at = until) {
        host_cover *c = cover_at(device, at, end, &until);
        weir_status status = WEIR_OK;
        if (!c)
            status = cover_open(device, at, until, &c);
        else if ((uint64_t)(until - at) >= HUGE_PAGE)
            (void)madvise(at, (size_t)(until - at), MADV_NOHUGEPAGE);
        if (status != WEIR_OK) {
            (void)wi_host_uncover(device, start, (uint64_t)(at - start));
            return status;
        }
        cover_note(c, at, until, true);
    }
    return WEIR_OK;
}

weir_status wi_host_uncover(wi_device *device, void *address, uint64_t bytes)
{
    char *end = (char *)address + bytes;
    for (char *at = address, *until; at < end; at = until) {
        host_cover *c = cover_at(device, at, end, &until);
        if (!c)
            continue;
        wi_host_discard(at, (uint64_t)(until - at));
        cover_note(c, at, until, false);
        if (bytes >= HUGE_PAGE && (uintptr_t)address % HUGE_PAGE == 0 && wi_mappings_take(2))
            (void)madvise(at, (size_t)(until - at), MADV_HUGEPAGE);
    }
    return WEIR_OK;
}

void wi_host_forget_covers(wi_device *device, const void *address, uint64_t bytes)
{
    uintptr_t low = (uintptr_t)address;
    pthread_mutex_lock(&device->lock);
    for (host_cover **link = &device->covers, *c; (c = *link);) {
        if ((uintptr_t)c->start < low || (uintptr_t)c->end - low > bytes) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        free(c);
    }
    pthread_mutex_unlock(&device->lock);
}

/* What is written there -------------------------------------------------------------------------------------------- */

/* The first byte that is not 0, or NULL. */
static const char *first_written(const char *at, const char *end)
{
    if (at == end || (*at == 0 && memcmp(at, at + 1, (size_t)(end - at) - 1) == 0))
        return NULL;
    while (*at == 0)
        at++;
    return at;
}

/* Zeros over a part of a record that is covered, or is not. */
static void cover_clear(char *at, char *end, bool covered)
{
    char *low = (char *)wi_round_up((uintptr_t)at, GRANULE),
         *high = (char *)((uintptr_t)end & ~(uintptr_t)(GRANULE - 1));
    if (covered && low < high) {
        cover_clear(at, low, true);
        wi_host_discard(low, (uint64_t)(high - low));
        cover_clear(high, end, true);
    } else if (!covered || first_written(at, end)) {
        memset(at, 0, (size_t)(end - at));
    }
}

void wi_host_clear(wi_device *device, void *to, uint64_t bytes)
{
    char *end = (char *)to + bytes;
    for (char *at = to, *until; at < end; at = until) {
        host_cover *c = cover_at(device, at, end, &until);
        bool covered = c && cover_has(c, at);
        char *edge = at;
        do
            edge = (char *)((uintptr_t)edge / GRANULE * GRANULE) + GRANULE;
        while (c && edge < until && cover_has(c, edge) == covered);
        if (c && edge < until)
            until = edge;
        cover_clear(at, until, covered);
    }
}

enum { PAGES_AT_ONCE = 512 };

/* Which of the pages have been touched. Without a file descriptor for the first way a page that is swapped out is not
 * among them. False: the kernel does not say. */
static bool pages_touched(int file, char *at, size_t count, uint64_t page, bool *touched)
{
    const uint64_t there = UINT64_C(3) << 62; /* in memory, or swapped out */
    uint64_t entries[PAGES_AT_ONCE];
    unsigned char resident[PAGES_AT_ONCE];
    off_t from = (off_t)((uintptr_t)at / page * sizeof entries[0]);
    bool told =
        file >= 0 && pread(file, entries, count * sizeof entries[0], from) == (ssize_t)(count * sizeof entries[0]);
    if (!told && mincore(at, count * page, resident) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        touched[i] = told ? (entries[i] & there) != 0 : (resident[i] & 1) != 0;
    return true;
}

/* Reads only the pages that the kernel reports as touched, as a read would touch other pages. Reads every page if the
 * kernel reports nothing. */
const void *wi_host_written(wi_device *device, const void *address, uint64_t bytes)
{
    const char *end = (const char *)address + bytes, *found = NULL;
    bool touched[PAGES_AT_ONCE];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    (void)device;
    for (const char *at = address; at < end && !found;) {
        size_t count = wi_min((uint64_t)(end - at) / page, PAGES_AT_ONCE);
        bool told = pages_touched(file, (char *)(uintptr_t)at, count, page, touched);
        for (size_t i = 0; i < count && !found; i++, at += page)
            if (!told || touched[i])
                found = first_written(at, at + page);
    }
    if (file >= 0)
        close(file);
    return found;
}
