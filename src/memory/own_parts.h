/* Bases and adaptors of a program's own, made known by weir_base_register and weir_adaptor_register. */
#ifndef WI_OWN_PARTS_H
#define WI_OWN_PARTS_H

#include "memory/stack.h"

#include <weir/adaptor.h>

/* One of the two is set. Both are valid for the life of the process. */
typedef struct wi_own_part {
    const weir_base_table *base;
    const weir_adaptor_table *adaptor;
} wi_own_part;

/* The part of that name; both NULL: there is none. */
wi_own_part wi_own_part_called(const char *name);

/* As parts of a stack: the part that the arguments name. */
weir_status wi_own_base_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out);
weir_status wi_own_adaptor_make(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);

#endif
