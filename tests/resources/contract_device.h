/* Where the suite of the resources runs: on the device and over the stack that its arguments name. */
#ifndef CONTRACT_DEVICE_H
#define CONTRACT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct contract_place {
    const char *device; /* as weir_runtime_create takes it */
    const char *stack;
    bool simulated; /* memory cannot be read, and work is done by whoever waits */
    bool gpu;       /* a real one */
} contract_place;
extern contract_place place;

/* Reads "host|stub|cuda" and the stack; with CONTRACT_SIMULATED, which is a program of its own because it has to see the
 * simulated driver, the stack alone. 0: run; else what main answers, 77 for a suite that is skipped. */
int choose_place(int argc, char **argv);

/* Whether the stub of CUDA's library has something that was not given back, or the simulated device was told to do what no
 * device would survive; prints what. */
bool something_is_left(void);

/* On a real GPU: a kernel that runs so long, on a driver's stream. False: it could not be started, which is printed. */
bool spin_on_gpu(void *stream, uint64_t nanoseconds);

#endif
