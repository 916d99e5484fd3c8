/* A driver whose calls are interrupted: before and after each call of the simulated device a function may run, as
 * another thread of the program would. Only calls that weir makes with no lock held are interrupted. */
#ifndef SIM_BETWEEN_H
#define SIM_BETWEEN_H

#include "sim/device/device.h"

const wi_driver *between_driver(void);

/* Sets the function that runs at each interruption from now on; NULL: none. It does not run after a failed call,
 * because the failure's detail belongs to the calling thread. */
void between_calls(void (*fn)(void *user), void *user);

#endif
