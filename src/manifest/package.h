/* Packages: gzip tars with a manifest and its model. */
#ifndef WI_MANIFEST_PACKAGE_H
#define WI_MANIFEST_PACKAGE_H

#include <weir/manifest.h>

#define WI_PACKAGE_MANIFEST "metadata.json"

/* Finds or makes the folder in which the package is unpacked. *folder is to be freed; nobody clears it away before *use
 * is given to wi_package_leave. Errors: see weir_manifest_read. */
weir_status wi_package_open(const char *path, const weir_manifest_options *options, char **folder, int *use);
void wi_package_leave(int use);

/* An open package, and what it may become. */
typedef struct wi_package {
    const char *path;
    int file;
    uint64_t bytes, limit;
} wi_package;

/* package_unpack.c: unpacks it into the empty folder that is open as `folder`. */
weir_status wi_package_unpack(const wi_package *package, int folder);

/* WEIR_ERR_SYSTEM when `bytes` do not fit onto the disk of `folder`, naming them and what is free. */
weir_status wi_package_check_space(const wi_package *package, int folder, uint64_t bytes);

/* The bytes that the tar has at least, by the length and the end of the gzip file; 0 if it is none. */
uint64_t wi_package_expected(const wi_package *package);

#endif
