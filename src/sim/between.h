/* A driver whose calls are interrupted: before and after each of the simulated device's, somebody may do something else, as
 * another thread of the program would. Only calls that weir makes with no lock held are. */
#ifndef SIM_BETWEEN_H
#define SIM_BETWEEN_H

#include "sim/device/device.h"

const wi_driver *between_driver(void);

/* Who does something else from now on; NULL: nobody. After a call that failed nobody does: the words of a failure are its
 * thread's. */
void between_calls(void (*fn)(void *user), void *user);

#endif
