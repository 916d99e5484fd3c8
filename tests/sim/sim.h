/* What the tests of the simulator share. */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include "sim/simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Instrumented builds get fewer steps: what they look for is found in any of them. */
static inline uint64_t steps_here(uint64_t steps)
{
    const char *sanitized = getenv("WEIR_SANITIZED");
    return sanitized && *sanitized ? steps / 20 : steps;
}

/* Runs it; what was found, with the script that shows it, is a failure. */
static inline void run_and_find_nothing(const simulate_options *options, simulate_result *r)
{
    bool ran = simulate(options, r);
    if (!ran)
        print_error("%s\n", r->error);
    assert_true(ran);
    if (r->found.violations + r->found.count[ORACLE_USER] > 0)
        print_error("seed %llu, budget %llu: %s\n%s\n", (unsigned long long)options->world.seed,
                    (unsigned long long)options->world.budget, r->found.first, r->script ? r->script : "");
    free(r->script);
    assert_int_equal(r->found.violations + r->found.count[ORACLE_USER], 0);
}

static inline void find_nothing(const simulate_options *options)
{
    simulate_result r;
    run_and_find_nothing(options, &r);
}

#endif
