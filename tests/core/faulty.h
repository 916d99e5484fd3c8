/* A driver that is the host's, counts what it gives out, and fails at the call that it is told to. Any thread may use it;
 * `status` and the functions are set before others do, or while they rest. */
#ifndef TESTS_CORE_FAULTY_H
#define TESTS_CORE_FAULTY_H

#include "driver/driver.h"

extern const wi_driver faulty_driver;
/* The same with the host's `drop` and `written`, which it lacks, so that both ways are tried. */
wi_driver faulty_driver_that_drops(void);
/* The host's `copy_many`, which both lack. */
weir_status faulty_copy_many(wi_device *device, const weir_driver_copy *copies, size_t count, void *stream);

typedef struct faults {
    atomic_long calls;   /* that can fail, since the last reset */
    atomic_long fail_at; /* the call that fails, from 0; -1: none */
    atomic_long and_at;  /* one more that fails; -1: none */
    long kill_at;        /* the call at which the process is killed; -1: none */
    weir_status status;  /* what they answer */
    atomic_bool stay;    /* every later call fails too */
    atomic_long limit;   /* handles that the device has; 0: no limit */
    atomic_long devices, ranges, handles, mapped, covered, streams, pieces; /* given out and not given back */
    atomic_long refused_releases;                                           /* so many pieces more are not taken back */
    atomic_long refused_unmaps;                                             /* so many mappings more stay */
    void (*in_destroy)(void *); /* called while handles are being destroyed */
    void (*in_release)(void *); /* ... and while a piece is being given back */
    void *user;
} faults;

extern faults fault;

void faults_reset(long fail_at);
bool faults_nothing_left(void);

#endif
