/* toy.h: a driver of a program's own for a device that is made up: one with 1 GiB of memory, whose streams are
 * threads. */
#ifndef TOY_H
#define TOY_H

#include <weir/driver.h>

/* Its devices are "toy:0" and "toy:1" from then on. */
weir_status toy_register(void);

#endif
