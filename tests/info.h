/* What runtimes and clients tell of themselves, where a test asks for one member. */
#ifndef TESTS_INFO_H
#define TESTS_INFO_H

#include <weir/weir.h>

#include <stdlib.h>

static inline weir_runtime_details runtime_details(const weir_runtime *of)
{
    weir_runtime_details details = WEIR_INIT(weir_runtime_details);
    if (weir_runtime_info(of, &details) != WEIR_OK)
        abort();
    return details;
}

static inline weir_client_stats client_details(weir_client *of)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    if (weir_client_info(of, &stats) != WEIR_OK)
        abort();
    return stats;
}

/* Of one element. */
static inline size_t type_bytes(weir_type type)
{
    size_t bytes;
    if (weir_tensor_bytes(type, 0, NULL, &bytes) != WEIR_OK)
        abort();
    return bytes;
}

#endif
