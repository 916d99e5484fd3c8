/* Bases of the program's own: pairs of functions that weir_base_register has made known. */
#ifndef WI_OWN_BASE_H
#define WI_OWN_BASE_H

#include "memory/stack.h"

/* The base of that name; NULL: there is none. What is found stays. */
const weir_base_table *wi_own_base_called(const char *name);
/* For a stack: the base that the arguments are of. */
weir_status wi_own_base_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out);

#endif
