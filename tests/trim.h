/* Trimming where a test asks for the bytes alone: a report that has no more members costs no walk over the layout. */
#ifndef TESTS_TRIM_H
#define TESTS_TRIM_H

#include <weir/pressure.h>

#include <stddef.h>

static inline weir_status trim_keeping(weir_runtime *of, uint64_t keep, uint64_t *released)
{
    weir_trim_options options = {.struct_size = sizeof options, .keep = keep};
    weir_trim_report report = {.struct_size = offsetof(weir_trim_report, left)};
    weir_status status = weir_runtime_trim(of, &options, &report);
    if (status == WEIR_OK)
        *released = report.released;
    return status;
}

#endif
