/* weir/base.h: what every other header needs: version, visibility, attributes.
 *
 * All structures that callers fill or receive begin with a member `struct_size`, set by the caller to sizeof the structure as
 * it was compiled. A later libweir reads and writes only that much, so programs built against this header keep working.
 * Use WEIR_INIT for it: `weir_client_options o = WEIR_INIT(weir_client_options); o.name = "bert";`
 */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_VERSION_MAJOR  0
#define WEIR_VERSION_MINOR  2
#define WEIR_VERSION_PATCH  0
#define WEIR_VERSION_STRING "0.2.0"

#ifdef __cplusplus
#define WEIR_BEGIN extern "C" {
#define WEIR_END   }
#define WEIR_INIT(type)                                                                                                \
    ([] {                                                                                                              \
        type value_{};                                                                                                 \
        value_.struct_size = sizeof(type);                                                                             \
        return value_;                                                                                                 \
    }())
#else
#define WEIR_BEGIN
#define WEIR_END
#define WEIR_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

#if defined(__GNUC__)
#define WEIR_API               __attribute__((visibility("default")))
#define WEIR_NODISCARD         __attribute__((warn_unused_result))
#define WEIR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define WEIR_API
#define WEIR_NODISCARD
#define WEIR_PRINTF(fmt, args)
#endif

WEIR_BEGIN

/* The version of the library that is running, "0.2.0"; never NULL. Any thread. */
WEIR_API const char *weir_version(void);

WEIR_END
#endif
