/* Stacks of resources by their text form, "budget(log(csv=PATH, async))"; weir/resource.h has the grammar. */
#ifndef WI_STACK_H
#define WI_STACK_H

#include "memory/space/deferred.h"

enum { WI_ARGUMENTS = 8, WI_ARGUMENT_BYTES = 200 };

/* What stands in a part's parentheses besides the inner resource, in order: "64KiB", "zone=1KiB". */
typedef struct wi_arguments {
    const char *part; /* whose they are */
    size_t count;
    char text[WI_ARGUMENTS][WI_ARGUMENT_BYTES];
} wi_arguments;

/* The value of the argument `name` ("" is the one without a name); NULL when it is not given. */
const char *wi_argument(const wi_arguments *arguments, const char *name);
/* Reads it as a size of `least` or more; *out stays as it is when it is not given. WEIR_ERR_INVALID names the part and
 * the argument. */
weir_status wi_argument_size(const wi_arguments *arguments, const char *name, uint64_t least, uint64_t *out);
/* WEIR_ERR_INVALID for arguments other than those of `known`, a list that ends with NULL, and for one that is given
 * twice. */
weir_status wi_arguments_check(const wi_arguments *arguments, const char *const *known);

/* Checks grammar and names. WEIR_ERR_INVALID or WEIR_ERR_NOT_FOUND say what is wrong. */
weir_status wi_stack_check(const char *text);
/* Makes the stack, with a budget around it if it has none. */
weir_status wi_stack_create(const char *text, const wi_driver *driver, wi_device *device, wi_resource **out);

#endif
