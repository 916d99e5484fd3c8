/* The disk is the test's: how much room there is on it. For programs linked with --wrap=fstatvfs. */
#ifndef DISK_H
#define DISK_H

#include <stdint.h>
#include <sys/statvfs.h>

static uint64_t room_bytes;        /* 0: what there is */
static uint64_t (*room_now)(void); /* instead, if it is not NULL */

int __real_fstatvfs(int file, struct statvfs *out);
int __wrap_fstatvfs(int file, struct statvfs *out);
int __wrap_fstatvfs(int file, struct statvfs *out)
{
    int answer = __real_fstatvfs(file, out);
    if (room_bytes > 0 || room_now) {
        out->f_bavail = room_now ? room_now() : room_bytes;
        out->f_frsize = 1;
    }
    return answer;
}

#endif
