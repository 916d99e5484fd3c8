/* In the place of package.c where there is no libarchive. */
#include "manifest/package.h"

weir_status wi_package_open(const char *path, const weir_manifest_options *options, char **folder)
{
    (void)options;
    *folder = NULL;
    return weir_fail(
        WEIR_UNSUPPORTED,
        "%s is a package, and this libweir-manifest was built without libarchive; install libarchive-dev and "
        "build weir anew, or unpack it and give the folder's " WI_PACKAGE_MANIFEST,
        path);
}
