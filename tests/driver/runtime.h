/* The suite of the runtime's public calls on each device: a runtime of its own for each test, and looks at bytes. */
#ifndef TEST_RUNTIME_H
#define TEST_RUNTIME_H

#include "driver/device.h"

#include <weir/weir.h>

#define MIB ((size_t)1 << 20)

extern weir_runtime *runtime;

#define ok(status)              check_status(status, WEIR_OK, __FILE__, __LINE__)
#define fails(status, expected) check_status(status, expected, __FILE__, __LINE__)
void check_status(weir_status status, weir_status expected, const char *file, int line);

void make_runtime(uint64_t budget);
/* Everything must have been freed; nothing is left with the stub. */
void end_runtime(void);
weir_client *open_client(const char *name);
weir_stats snapshot(void);
size_t granule(void); /* bytes of a handle on this device */

/* How many of the bytes are not `value`, read by the driver. */
size_t wrong_bytes(const void *block, uint8_t value, size_t bytes);
void fill_now(void *block, uint8_t value, size_t bytes);

int run_kernel_tests(void); /* on a GPU */

#endif
