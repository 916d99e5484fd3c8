/* In the place of package.c where there is no libarchive. */
#include "manifest/package.h"
#include <weir/manifest.h>

weir_status wi_package_open(const char *path, const weir_manifest_options *options, char **folder, int *use)
{
    (void)options;
    *use = -1;
    *folder = NULL;
    return weir_fail(
        WEIR_ERR_UNSUPPORTED,
        "%s is a package, and this libweir-manifest was built without libarchive; install libarchive-dev and "
        "build weir again, or unpack it and give the folder's " WI_PACKAGE_MANIFEST,
        path);
}

void wi_package_leave(int use)
{
    (void)use;
}

weir_status weir_manifest_clear(const weir_manifest_options *options, uint64_t bytes, uint64_t seconds,
                                weir_manifest_cleared *out)
{
    (void)options;
    (void)bytes;
    (void)seconds;
    (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "this libweir-manifest was built without libarchive: it unpacks no packages, and clears none");
}
