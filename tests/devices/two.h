/* Two CUDA devices in one process: of the stub (STUB_CUDA_DEVICES=2), or real ones. What tests ask the driver about them. */
#ifndef TESTS_DEVICES_TWO_H
#define TESTS_DEVICES_TWO_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stub/cuda/control.h"
#include "stub/cuda/users.h"

enum { TWO = 2 };

extern struct two_driver {
#define X(name, version, parameters) CUresult(*name) parameters;
    WI_CUDA_FUNCTIONS(X) STUB_USERS(X)
#undef X
} driver;

/* The stub's; NULL where the devices are real. */
extern uint64_t (*two_stub_count)(const char *what);
extern void (*two_stub_fail)(const char *function, int nth, int code);

/* 0 where there are two devices; else the exit status of the test, with a line that says why. */
int two_devices(void);
/* "cuda:1" */
const char *two_name(int ordinal);

/* The device whose memory the address is, as the driver has it. */
int two_where(const void *address);
/* The current context of this thread, and under the stub how many it has. */
typedef struct two_thread {
    CUcontext current;
    uint64_t depth, mode;
} two_thread;
two_thread two_look(void);
/* The thread is as it was; `what` was called. */
void two_same(two_thread before, const char *what);

/* Something of the stub's on a device: two_count("streams", 1). 0 on real devices, and so alike. */
uint64_t two_count(const char *what, int ordinal);

#endif
