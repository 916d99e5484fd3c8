/* What the tests of the guard share. */
#ifndef TESTS_RESOURCES_GUARD_H
#define TESTS_RESOURCES_GUARD_H

#include "core.h"

static inline const char *test_device(void)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    return device ? device : "host";
}

static inline weir_runtime *make_with(const char *resource, uint64_t budget)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget, .resource = resource};
    weir_runtime *runtime;
    ok(weir_runtime_create(test_device(), &options, &runtime));
    return runtime;
}

/* guard_pages.c */
int touch_and_fault(const char *bytes, const char *offset); /* the other program; its exit status */
void a_write_behind_the_last_page_ends_the_program(void **state);
void a_block_apart_keeps_its_distance_from_the_next(void **state);
void blocks_apart_leave_holes_and_serve_again(void **state);

#endif
