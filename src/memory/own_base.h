/* Bases of a program's own, made known by weir_base_register. */
#ifndef WI_OWN_BASE_H
#define WI_OWN_BASE_H

#include "memory/stack.h"

/* The base of that name, valid for the life of the process; NULL: there is none. */
const weir_base_table *wi_own_base_called(const char *name);
/* As a part of a stack: the base that the arguments name. */
weir_status wi_own_base_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out);

#endif
