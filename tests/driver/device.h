/* Which device a suite runs on: "host", "stub" (cuda over the stub of libcuda.so.1), "cuda" (a real
 * GPU) or "sim" (the simulated one, where only memory is looked at). */
#ifndef TEST_DEVICE_H
#define TEST_DEVICE_H

#include "stub/cuda/control.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef enum device_kind { ON_HOST, ON_STUB, ON_CUDA, ON_SIM } device_kind;
extern device_kind device_kind_now;

/* The stub's controls, where it is the stub. */
extern struct stub_control {
#define X(type, name, parameters) type(*name) parameters;
    STUB_CONTROLS(X)
#undef X
} control;

/* Reads the kind from the arguments and looks whether it is there. 0: run; else what main answers: 77 for a skipped suite,
 * 1 where WEIR_REQUIRE_CUDA=1 forbids to skip it. */
int choose_device(int argc, char **argv);
/* "host", "cuda:0" or "sim" */
const char *device_name(void);
/* A function of the driver library's; NULL if it has none. */
void *cuda_symbol(const char *name);
/* Fills the stub's controls in, once its library is loaded. */
bool find_controls(void);

#define skip_unless(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            skip();                                                                                                    \
    } while (0)

/* A host function that holds a stream up until the gate is opened. */
typedef struct gate {
    atomic_bool entered, open;
} gate;
void hold(void *user);
void nap(unsigned microseconds);

#endif
