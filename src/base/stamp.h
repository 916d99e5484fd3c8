/* Stamps of files: a stamp changes when a file is written to, or replaced by another file. Findings about a file are
 * kept with the stamp from before the file was read: a later write changes the stamp. */
#ifndef WI_STAMP_H
#define WI_STAMP_H

#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

enum { WI_STAMP_SETTLED = 2 }; /* seconds */

typedef struct wi_stamp {
    dev_t device;
    ino_t number;
    off_t size;
    struct timespec written;
    struct timespec changed; /* also by another name or mode */
    /* It was not written just before. Else it may be written once more within one tick of the file system's clock, and have
     * the same stamp. */
    bool settled;
} wi_stamp;

/* Of what was told of the file just now. */
static inline wi_stamp wi_stamp_of(const struct stat *about)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (wi_stamp){about->st_dev,
                      about->st_ino,
                      about->st_size,
                      about->st_mtim,
                      about->st_ctim,
                      now.tv_sec - about->st_ctim.tv_sec > WI_STAMP_SETTLED &&
                          now.tv_sec - about->st_mtim.tv_sec > WI_STAMP_SETTLED};
}

static inline bool wi_stamp_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static inline bool wi_stamp_same(const wi_stamp *a, const wi_stamp *b)
{
    return a->device == b->device && a->number == b->number && a->size == b->size &&
           wi_stamp_same_time(&a->written, &b->written) && wi_stamp_same_time(&a->changed, &b->changed);
}

#endif
