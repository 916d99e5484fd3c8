/* Stacks of resources by their text form, "budget(log(csv=PATH, async))"; weir/runtime.h has the grammar. */
#ifndef WI_STACK_H
#define WI_STACK_H

#include "memory/space/pending.h"

enum { WI_ARGUMENTS = 8, WI_ARGUMENT_BYTES = 200 };

/* A part's arguments, in order, without the inner resource: "64KiB", "zone=1KiB". */
typedef struct wi_arguments {
    const char *part; /* the name of the part */
    size_t count;
    char text[WI_ARGUMENTS][WI_ARGUMENT_BYTES];
} wi_arguments;

/* The value of the argument `name` ("": the one without a name); NULL: it is not given. */
const char *wi_argument(const wi_arguments *arguments, const char *name);
/* Reads an argument as a size of at least `least`; *out is unchanged if it is not given. WEIR_ERR_INVALID names the
 * part and the argument. */
weir_status wi_argument_size(const wi_arguments *arguments, const char *name, uint64_t least, uint64_t *out);
/* WEIR_ERR_INVALID for an argument that is not in `known`, a list that ends with NULL, or is given twice. */
weir_status wi_arguments_check(const wi_arguments *arguments, const char *const *known);

/* Whether there is a part of that name. */
bool wi_stack_has(const char *name);
/* Checks grammar and names. WEIR_ERR_INVALID or WEIR_ERR_NOT_FOUND, with the reason. */
weir_status wi_stack_check(const char *text);
/* Makes the stack, and a budget around it if it has none. */
weir_status wi_stack_create(const char *text, const wi_driver *driver, wi_device *device, wi_resource **out);

#endif
