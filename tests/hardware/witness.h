/* What NVIDIA's own libraries say of devices, asked beside weir: the part of their headers that is wanted is declared
 * here a second time. */
#ifndef TESTS_HARDWARE_WITNESS_H
#define TESTS_HARDWARE_WITNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What this process sees by CUDA's driver: UUIDs in its order, 32 digits each, a space behind each. Starts the driver,
 * so only for processes that are made for this. False: no driver is here. */
bool witness_seen(char *text, size_t capacity);

/* Starts NVML, which shows all devices whatever the process may see, and stays. False: it is not here or has no
 * device. */
bool witness_begin(void);
/* Of the device number 0: its UUID as NVML writes it, and what is used of its memory, everybody's together. */
const char *witness_uuid(void);
uint64_t witness_used(void);

/* Whether CUDA's driver is one that can make contexts, and no stub. Does not start it. */
bool witness_is_real(void);

/* What a context takes at the least, and what may come and go beside one. */
enum { WITNESS_CONTEXT = 64 << 20, WITNESS_NOISE = 16 << 20 };

#endif
