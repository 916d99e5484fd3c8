/* ring.c: a file past the page cache, for a library that reads it on one thread from the beginning to the end. Readers are some pieces
 * ahead of the library, in buffers that are used again and again, so that the disk never rests while the library copies. */
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RING_BLOCK = 4096, RING_WORTH = 1 << 18 };

/* With the lock. A piece that was skipped may still be on its way into the buffer. */
static bool ring_may_read(const wt_ring *ring)
{
    return !ring->moving && ring->next < ring->first + WT_RING_PIECES && ring->next * WT_RING_PIECE < ring->size &&
           !ring->filling[ring->next % WT_RING_PIECES];
}

static ssize_t ring_fill(const wt_ring *ring, uint64_t piece)
{
    char *to = ring->buffers + piece % WT_RING_PIECES * WT_RING_PIECE;
    uint64_t at = piece * WT_RING_PIECE;
    size_t wanted = ring->size - at < WT_RING_PIECE ? (size_t)(ring->size - at) : WT_RING_PIECE, done = 0;
    size_t blocks = (wanted + RING_BLOCK - 1) / RING_BLOCK * RING_BLOCK;
    while (done < wanted) {
        ssize_t got = pread(ring->file, to + done, blocks - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || ((size_t)got < wanted - done && (size_t)got % RING_BLOCK != 0))
            return -1;
        done += (size_t)got;
    }
    return (ssize_t)wanted;
}

static void *ring_work(void *user)
{
    wt_ring *ring = user;
    pthread_mutex_lock(&ring->lock);
    while (!ring->ending) {
        if (!ring_may_read(ring)) {
            pthread_cond_wait(&ring->room, &ring->lock);
            continue;
        }
        uint64_t piece = ring->next++;
        ring->busy++;
        ring->filling[piece % WT_RING_PIECES] = true;
        ring->got[piece % WT_RING_PIECES] = 0;
        pthread_mutex_unlock(&ring->lock);
        ssize_t got = ring_fill(ring, piece);
        pthread_mutex_lock(&ring->lock);
        ring->busy--;
        ring->filling[piece % WT_RING_PIECES] = false;
        ring->got[piece % WT_RING_PIECES] = got;
        pthread_cond_broadcast(&ring->come);
        if (ring_may_read(ring))
            pthread_cond_broadcast(&ring->room);
    }
    pthread_mutex_unlock(&ring->lock);
    return NULL;
}

/* With the lock: the window begins at the piece. */
static void ring_move(wt_ring *ring, uint64_t piece)
{
    if (piece < ring->first || piece > ring->next) {
        ring->moving = true;
        while (ring->busy > 0)
            pthread_cond_wait(&ring->come, &ring->lock);
        ring->moving = false;
        ring->next = piece;
    }
    ring->first = piece;
    pthread_cond_broadcast(&ring->room);
}

/* Copies a part of the piece, when the piece is there. */
static bool ring_take(wt_ring *ring, uint64_t piece, char *to, size_t from, size_t bytes)
{
    ssize_t got;
    pthread_mutex_lock(&ring->lock);
    if (piece != ring->first)
        ring_move(ring, piece);
    while (ring->next <= piece || (got = ring->got[piece % WT_RING_PIECES]) == 0)
        pthread_cond_wait(&ring->come, &ring->lock);
    pthread_mutex_unlock(&ring->lock);
    if (got < 0 || from + bytes > (size_t)got)
        return false;
    memcpy(to, ring->buffers + piece % WT_RING_PIECES * WT_RING_PIECE + from, bytes);
    return true;
}

bool wt_ring_read(wt_ring *ring, void *to, uint64_t offset, size_t bytes)
{
    char *place = to;
    if (!ring->buffers || offset > ring->size || bytes > ring->size - offset)
        return false;
    uint64_t piece = offset / WT_RING_PIECE;
    if (bytes < RING_WORTH && (piece < ring->first || piece >= ring->first + WT_RING_PIECES))
        return false; /* one read elsewhere is not worth a new beginning there */
    while (bytes > 0) {
        size_t from = (size_t)(offset % WT_RING_PIECE),
               part = WT_RING_PIECE - from < bytes ? WT_RING_PIECE - from : bytes;
        if (!ring_take(ring, offset / WT_RING_PIECE, place, from, part))
            return false;
        place += part;
        offset += part;
        bytes -= part;
        ring->given += part;
    }
    return true;
}

/* The file for reads past the page cache; negative: it is cached, or cannot be read so. */
static int ring_open(const char *path, struct stat *about)
{
    int plain = open(path, O_RDONLY | O_CLOEXEC);
    bool good = plain >= 0 && fstat(plain, about) == 0 && S_ISREG(about->st_mode) && about->st_size > 0 &&
                !wt_ahead_is_cached(plain, (uint64_t)about->st_size);
    if (plain >= 0)
        close(plain);
    return good ? open(path, O_RDONLY | O_CLOEXEC | O_DIRECT) : -1;
}

bool wt_ring_begin(wt_ring *ring, const char *path)
{
    struct stat about;
    sigset_t all, before;
    *ring = (wt_ring){.file = ring_open(path, &about)};
    void *at = MAP_FAILED;
    if (ring->file >= 0 && fstat(ring->file, &about) == 0)
        at = mmap(NULL, WT_RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        if (ring->file >= 0)
            close(ring->file);
        return false;
    }
    (void)madvise(at, WT_RING_BYTES, MADV_HUGEPAGE);
    ring->buffers = at;
    ring->size = (uint64_t)about.st_size;
    ring->device = about.st_dev;
    ring->number = about.st_ino;
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->room, NULL);
    pthread_cond_init(&ring->come, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are not for these threads */
    while (ring->running < WT_RING_READERS && pthread_create(&ring->threads[ring->running], NULL, ring_work, ring) == 0)
        ring->running++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ring->running == 0)
        wt_ring_end(ring);
    return ring->running > 0;
}

void wt_ring_end(wt_ring *ring)
{
    if (!ring->buffers)
        return;
    pthread_mutex_lock(&ring->lock);
    ring->ending = true;
    pthread_cond_broadcast(&ring->room);
    pthread_mutex_unlock(&ring->lock);
    while (ring->running > 0)
        pthread_join(ring->threads[--ring->running], NULL);
    pthread_cond_destroy(&ring->come);
    pthread_cond_destroy(&ring->room);
    pthread_mutex_destroy(&ring->lock);
    munmap(ring->buffers, WT_RING_BYTES);
    close(ring->file);
    ring->buffers = NULL;
}
