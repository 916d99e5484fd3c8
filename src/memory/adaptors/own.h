/* An adaptor of the program's own: the functions of a weir_adaptor_table around an inner resource. */
#ifndef WI_ADAPTOR_OWN_H
#define WI_ADAPTOR_OWN_H

#include "memory/stack.h"

#include <weir/adaptor.h>

weir_status wi_own_adaptor_create(const weir_adaptor_table *own, wi_resource *inner, const wi_arguments *arguments,
                                  wi_resource **out);

#endif
