/* Clearing the store of unpacked packages: by age, and by bytes the one that was used longest ago first. */
#ifndef WI_MANIFEST_PACKAGE_CLEAR_H
#define WI_MANIFEST_PACKAGE_CLEAR_H

#include <weir/manifest.h>

typedef struct wi_bounds {
    uint64_t bytes;   /* that may stay */
    uint64_t seconds; /* since its last use, after which a package goes */
} wi_bounds;

/* What the options `unpacked` and `unpacked_age` say. */
wi_bounds wi_bounds_of_options(void);

/* The bytes of a folder's files. */
uint64_t wi_packages_bytes_below(int parent, const char *name);

/* The bytes of all packages, and of those that nobody uses. */
typedef struct wi_packages_there {
    uint64_t bytes, idle;
} wi_packages_there;
weir_status wi_packages_count(int packages, const char *path, wi_packages_there *out);

/* Removes packages until what is there keeps the bounds, or is in use; open as `packages`, whose path is `path`. WEIR_ERR_SYSTEM where
 * the folder cannot be read. What cannot be removed stays, and counts. */
weir_status wi_packages_clear(int packages, const char *path, wi_bounds bounds, weir_manifest_cleared *out);

#endif
