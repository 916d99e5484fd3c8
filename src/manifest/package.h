/* Packages: gzip tars with a manifest and its model. */
#ifndef WI_MANIFEST_PACKAGE_H
#define WI_MANIFEST_PACKAGE_H

#include <weir/manifest_read.h>

#define WI_PACKAGE_MANIFEST "metadata.json"

/* Finds or makes the folder in which the package is unpacked, for good. *folder is to be freed. Errors: see
 * weir_manifest_read. */
weir_status wi_package_open(const char *path, const weir_manifest_options *options, char **folder);

#endif
